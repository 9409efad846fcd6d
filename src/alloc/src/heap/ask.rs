//! What the GPU is done with: asked of the driver without the heap's lock.
//!
//! A question is made up under the lock, [asked](Batch::ask) without it, and what comes of it is [heard](Heap::hear) under it again. Others
//! use the heap meanwhile, and may ask the same: a block whose event is done is looked for by that event, and may be gone.

pub(super) mod asking;
pub(super) mod early;
pub(super) mod errands;
pub(super) mod event;
pub(super) mod wonder;

use std::sync::Arc;

use super::Heap;
use super::turn::access::Access;
use crate::device::Driver;
use crate::error::Error;
use crate::stream::Stream;
use asking::Asking;
use event::Event;

/// Something to be asked about the stream of a line.
#[derive(Debug)]
pub(super) enum Question {
    /// Whether it is idle when the heap's free counter is this; if not, an event is recorded that tells later. Where no stream is named
    /// all of them are asked at once.
    Idle {
        line: u16,
        frees: u64,
        stream: Option<Stream>,
    },
    /// Whether the event of a block is done that waits, and else the line's marker.
    Done {
        line: u16,
        waits: Option<Event>,
        marker: Option<Event>,
    },
}

/// What came of a question.
#[derive(Debug)]
pub(super) enum Answer {
    /// Or it is busy, and an event was left there.
    Idle {
        line: u16,
        frees: u64,
        busy: Option<Event>,
    },
    Waited {
        line: u16,
        event: Event,
        done: bool,
    },
    Marker {
        line: u16,
        event: Event,
        done: bool,
    },
}

/// Questions that one thread asks.
#[derive(Debug)]
pub(super) struct Batch {
    driver: Arc<dyn Driver>,
    questions: Vec<(Question, Asking)>,
}

/// What one answer says for several questions.
#[derive(Debug, Default)]
pub(super) struct Shared {
    /// Whether other threads' own streams are idle: the default stream answers for all of them.
    threads: Option<bool>,
    /// The event behind all that was queued, if one was to be had, and whether it is done.
    all: Option<Option<(Event, bool)>>,
}

impl Batch {
    /// Asks. To be done by who does not hold the heap's lock.
    fn ask(self) -> Vec<Answer> {
        let Batch { driver, questions } = self;
        let mut shared = Shared::default();
        let answers = questions
            .into_iter()
            .flat_map(|(question, _asking)| question.ask(&driver, &mut shared));
        answers.flatten().collect()
    }
}

impl Question {
    /// The stream that it names, if it does.
    fn named(&self) -> Option<Stream> {
        match self {
            Question::Idle { stream, .. } => *stream,
            Question::Done { .. } => None,
        }
    }

    /// `shared`: what was asked for a question before.
    pub(super) fn ask(self, driver: &Arc<dyn Driver>, shared: &mut Shared) -> [Option<Answer>; 2] {
        match self {
            Question::Idle { line, frees, stream } => {
                let busy = match stream {
                    None => shared.ask_whether_all_is_done(driver),
                    Some(stream) if stream.is_of_another_thread() => shared
                        .threads
                        .get_or_insert_with(|| matches!(driver.is_idle(stream), Ok(true)))
                        .then_some(None),
                    Some(stream) => ask_whether_idle(driver, stream),
                };
                [busy.map(|busy| Answer::Idle { line, frees, busy }), None]
            }
            Question::Done { line, waits, marker } => {
                let waited = waits.and_then(|event| {
                    let done = is_over(&event)?;
                    Some(Answer::Waited { line, event, done })
                });
                // While its blocks come free one after the other it is not needed.
                if let Some(Answer::Waited { done: true, .. }) = waited {
                    return [waited, None];
                }
                let marker = marker.and_then(|event| {
                    let done = is_over(&event)?;
                    Some(Answer::Marker { line, event, done })
                });
                [waited, marker]
            }
        }
    }
}

impl Shared {
    /// The event that is left behind all that was queued; nothing in it if that is done; nothing if it is not to be learned.
    fn ask_whether_all_is_done(&mut self, driver: &Arc<dyn Driver>) -> Option<Option<Event>> {
        let ask = || {
            let event = Event::behind_all(driver);
            event.record();
            event.is_recorded().then(|| {
                let done = matches!(event.query(), Ok(true));
                (event, done)
            })
        };
        let (event, done) = self.all.get_or_insert_with(ask).as_ref()?;
        Some((!done).then(|| event.clone()))
    }
}

/// The event that is left on a stream that is busy; nothing if that is not to be learned.
fn ask_whether_idle(driver: &Arc<dyn Driver>, stream: Stream) -> Option<Option<Event>> {
    // An event takes even an idle stream some microseconds; that it is idle it says at once.
    match driver.is_idle(stream) {
        Ok(true) => Some(None),
        Ok(false) => {
            let event = Event::new(driver, stream);
            event.record();
            Some(Some(event))
        }
        // A stream that takes no event keeps its blocks until the device is synchronised.
        Err(_) => None,
    }
}

/// Whether it is done, or nothing will be known of it; `None`: neither.
fn is_over(event: &Event) -> Option<bool> {
    match event.query() {
        Ok(true) => Some(true),
        Ok(false) => None,
        Err(_) => Some(false),
    }
}

/// Completes the pending blocks whose events are done.
pub(crate) fn poll(on: &mut impl Access) -> Result<(), Error> {
    let lines = |heap: &mut Heap| match heap.streams.pending {
        0 => Vec::new(),
        // Streams that have ended are asked how far they are, too.
        _ => [&heap.streams.awaited(), heap.streams.all_retired()].concat(),
    };
    ask_all(on, lines, Heap::ask_whether_done)
}

/// Learns how far streams are done, later by an event that is left there if one is busy.
pub(super) fn probe(on: &mut impl Access, lines: impl FnOnce(&mut Heap) -> Vec<u16>) -> Result<(), Error> {
    ask_all(on, lines, Heap::ask_how_far)
}

/// The same for streams that have ended.
pub(super) fn probe_ended(on: &mut impl Access, lines: impl FnOnce(&mut Heap) -> Vec<u16>) -> Result<(), Error> {
    ask_all(on, lines, Heap::ask_whether_ended)
}

fn ask_all(
    on: &mut impl Access,
    lines: impl FnOnce(&mut Heap) -> Vec<u16>,
    question: fn(&mut Heap, u16) -> Option<Question>,
) -> Result<(), Error> {
    let mut next = on.heap(|heap| {
        let lines = lines(heap);
        heap.batch(lines, question)
    })?;
    while let Some(batch) = next {
        let answers = batch.ask();
        next = on.heap(|heap| {
            let more = answers.into_iter().filter_map(|answer| heap.hear(answer)).collect();
            heap.batch(more, question)
        })?;
    }
    Ok(())
}

impl Heap {
    /// What there is to ask about lines, if anything is.
    fn batch(&mut self, lines: Vec<u16>, question: fn(&mut Heap, u16) -> Option<Question>) -> Option<Batch> {
        if self.capturing() {
            return None;
        }
        let questions = lines.into_iter().filter_map(|line| {
            let question = question(self, line)?;
            let asking = self.asked.begin(question.named());
            Some((question, asking))
        });
        let questions: Vec<(Question, Asking)> = questions.collect();
        (!questions.is_empty()).then(|| Batch {
            driver: Arc::clone(&self.driver),
            questions,
        })
    }

    fn ask_whether_done(&mut self, line: u16) -> Option<Question> {
        self.end_waiting(line);
        let its = self.streams.line(line);
        // Mostly the first one's. A block for which there is no event is done when one is that was given back after it.
        let mut events = its.waiting.iter().filter_map(|(event, _)| event.as_ref());
        let waits = events.find(|event| event.is_recorded()).cloned();
        let marker = its.recorded_marker().filter(|_| its.is_retired()).cloned();
        (waits.is_some() || marker.is_some()).then_some(Question::Done { line, waits, marker })
    }

    fn ask_whether_ended(&mut self, line: u16) -> Option<Question> {
        self.end_waiting(line);
        let marker = self.streams.line(line).recorded_marker().cloned()?;
        Some(Question::Done {
            line,
            waits: None,
            marker: Some(marker),
        })
    }

    pub(super) fn ask_how_far(&mut self, line: u16) -> Option<Question> {
        let its = self.streams.line(line);
        if its.marker.is_some() {
            return self.ask_whether_ended(line);
        }
        if !self.is_unknown(line) {
            return None;
        }
        self.tick(line);
        Some(Question::Idle {
            line,
            frees: self.frees,
            stream: (!self.streams_may_end_untold).then(|| self.streams.name(line)),
        })
    }

    /// Whether something is to be learned of how far a stream is.
    pub(super) fn is_unknown(&self, line: u16) -> bool {
        let its = self.streams.line(line);
        match &its.marker {
            Some((event, _)) => event.is_recorded(),
            // Who has left the heap since it chose the line may find that of no stream.
            None => {
                self.shares_across_streams && its.safe != self.frees && !its.is_retired() && self.streams.is_real(line)
            }
        }
    }

    fn hear_whether_idle(&mut self, line: u16, frees: u64, busy: Option<Event>) {
        let its = self.streams.line_mut(line);
        match busy {
            None => its.reached(frees, self.shares_across_streams),
            // Somebody else may have asked, or the stream have ended, or the line be that of another one by now.
            Some(event) if event.is_recorded() && its.marker.is_none() && !its.is_retired() && its.safe < frees => {
                its.marker = Some((event, frees));
            }
            Some(_) => {}
        }
    }

    /// The line, if there may be more to ask about it.
    #[inline]
    pub(super) fn hear(&mut self, answer: Answer) -> Option<u16> {
        match answer {
            Answer::Idle { line, frees, busy } => {
                self.hear_whether_idle(line, frees, busy);
                None
            }
            Answer::Waited { line, event, done } => self.hear_waited(line, &event, done).then_some(line),
            Answer::Marker { line, event, done } => {
                let its = self.streams.line_mut(line);
                let (_, count) = its.marker.take_if(|(marker, _)| marker.is(&event))?;
                its.reached(if done { count } else { 0 }, self.shares_across_streams);
                its.begin_later();
                self.end_waiting(line);
                Some(line)
            }
        }
    }

    /// Whether a block still waits for this event, and that is done: so is all that the stream was used for before.
    fn hear_waited(&mut self, line: u16, event: &Event, done: bool) -> bool {
        let waiting = &mut self.streams.line_mut(line).waiting;
        let its = |(waits, _): &(Option<Event>, u32)| waits.as_ref().is_some_and(|its| its.is(event));
        let Some(at) = waiting.iter().position(its) else {
            return false;
        };
        if !done {
            waiting[at].0 = None;
            return false;
        }
        for _ in 0..=at {
            if let Some((_, b)) = self.streams.line_mut(line).waiting.pop_front() {
                self.waited(b);
            }
        }
        true
    }

    /// Nothing waits any more for a stream that has ended and whose work is done.
    pub(super) fn end_waiting(&mut self, line: u16) {
        while self.streams.line(line).is_done()
            && let Some((_, b)) = self.streams.line_mut(line).waiting.pop_front()
        {
            self.waited(b);
        }
    }
}
