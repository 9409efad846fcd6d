//! What a request on the short way wonders: how far another stream is, whose memory it would have.
//!
//! It comes back with the question, which its thread asks without the heap's lock, and takes the short way again. A program whose streams
//! take over each other's memory in every round does so all the time: this is for one question what `turn` is for any call.

use std::sync::Arc;
use std::time::Duration;

use crate::device::Driver;
use crate::error::Error;
use crate::heap::Heap;
use crate::heap::ask::{Answer, Question};
use crate::heap::turn::access::Access;
use crate::process::sleep;
use crate::stream::Stream;

/// A question takes some microseconds; who has to wait for the answer looks again after so long.
const LOOK: Duration = Duration::from_micros(20);

/// A question.
#[derive(Debug)]
pub(crate) struct Wonder {
    question: Question,
    about: About,
}

/// What is asked about.
#[derive(Clone, Copy, Debug)]
struct About {
    line: u16,
    /// The stream that the question names, if it does.
    named: Option<Stream>,
    /// What was heard after so many answers is known to the request.
    since: u64,
}

/// What came of a question.
#[derive(Debug)]
pub(crate) struct Heard {
    answers: [Option<Answer>; 2],
    about: About,
}

/// What is wondered about in a heap.
#[derive(Debug, Default)]
pub(in crate::heap) struct Wondering {
    /// By the request that is being served.
    next: Option<Wonder>,
    /// What that knows already.
    since: Option<u64>,
    /// Answers that were heard.
    heard: u64,
    /// The streams that are named by questions to which no answer was heard yet.
    open: Vec<Option<Stream>>,
}

impl Wonder {
    /// Asks. To be done by who does not hold the heap's lock, and tells the heap what it [heard](Heap::heard).
    pub(crate) fn ask(self, driver: &Arc<dyn Driver>) -> Heard {
        Heard {
            answers: self.question.ask(driver),
            about: self.about,
        }
    }
}

/// Waits until nobody asks anything that names a stream, or anything at all. Whoever calls this has seen to it that nobody begins to.
pub(in crate::heap) fn wait_for_answers(on: &mut impl Access, named: Option<Stream>) -> Result<(), Error> {
    while on.heap(|heap| heap.waits_for_answer(named))? {
        sleep(LOOK);
    }
    Ok(())
}

impl Heap {
    /// Whether the request that was just served wonders something.
    #[inline(always)]
    pub(in crate::heap) fn wonders(&self) -> bool {
        self.wondering.next.is_some()
    }

    /// What it wonders. To be taken and asked by whoever served it: a stream that is asked about cannot end.
    #[inline(always)]
    pub(crate) fn take_wonder(&mut self) -> Option<Wonder> {
        self.wondering.next.take()
    }

    /// Whether there is a question to which no answer was heard yet: one that names a stream, or any.
    pub(in crate::heap) fn waits_for_answer(&self, named: Option<Stream>) -> bool {
        let open = &self.wondering.open;
        named.map_or(!open.is_empty(), |_| open.contains(&named))
    }

    /// Whether there is something to be asked about how far a stream is.
    pub(in crate::heap) fn wonder_how_far(&mut self, line: u16) -> bool {
        let since = self.wondering.since.unwrap_or(self.wondering.heard);
        if self.streams.line(line).heard <= since && !self.capturing() {
            self.wonder(line, since);
        }
        self.wonders()
    }

    fn wonder(&mut self, line: u16, since: u64) {
        let Some(question) = self.ask_how_far(line) else {
            return;
        };
        let named = match &question {
            Question::Idle { stream, .. } => Some(*stream),
            Question::Done { .. } => None,
        };
        self.wondering.open.push(named);
        let about = About { line, named, since };
        self.wondering.next = Some(Wonder { question, about });
    }

    /// Hears what came of a question. What it comes to beside that, if nothing more is to be asked: what the request does knowing that.
    pub(crate) fn heard<R>(&mut self, heard: Heard, serve: impl FnOnce(&mut Heap) -> Option<R>) -> Option<R> {
        let Heard { answers, about } = heard;
        let open = &mut self.wondering.open;
        if let Some(at) = open.iter().position(|named| *named == about.named) {
            open.swap_remove(at);
        }
        let answers = answers.into_iter().flatten();
        let more = answers.fold(false, |more, answer| self.hear(answer).is_some() | more);
        if more && !self.capturing() {
            self.wonder(about.line, about.since);
        }
        if self.wonders() {
            return None;
        }
        self.wondering.heard += 1;
        self.streams.line_mut(about.line).heard = self.wondering.heard;
        self.wondering.since = Some(about.since);
        let served = serve(self);
        self.wondering.since = None;
        served
    }
}
