//! What a request on the short way wonders: how far another stream is, whose memory it would have.
//!
//! It comes back with the question, which its thread asks without the heap's lock, and takes the short way again. A program whose streams
//! take over each other's memory in every round does so all the time: this is for one question what `turn` is for any call.

use std::sync::Arc;

use crate::device::Driver;
use crate::heap::Heap;
use crate::heap::ask::asking::Asking;
use crate::heap::ask::{Answer, Question, Shared};

/// A question.
#[derive(Debug)]
pub(crate) struct Wonder {
    question: Question,
    about: About,
    asking: Asking,
}

/// What is asked about.
#[derive(Clone, Copy, Debug)]
struct About {
    line: u16,
    /// What was heard after so many answers is known to the request.
    since: u64,
}

/// What came of a question.
#[derive(Debug)]
pub(crate) struct Heard {
    answers: [Option<Answer>; 2],
    about: About,
    /// Until it was heard: who ends the stream meanwhile waits.
    _asking: Asking,
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
}

impl Wonder {
    /// Asks. To be done by who does not hold the heap's lock, and tells the heap what it [heard](Heap::heard).
    pub(crate) fn ask(self, driver: &Arc<dyn Driver>) -> Heard {
        Heard {
            answers: self.question.ask(driver, &mut Shared::default()),
            about: self.about,
            _asking: self.asking,
        }
    }
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
        self.wondering.next = Some(Wonder {
            asking: self.asked.begin(question.named()),
            question,
            about: About { line, since },
        });
    }

    /// Hears what came of a question. What it comes to beside that, if nothing more is to be asked: what the request does knowing that.
    pub(crate) fn heard<R>(&mut self, heard: Heard, serve: impl FnOnce(&mut Heap) -> Option<R>) -> Option<R> {
        let Heard {
            answers,
            about,
            _asking,
        } = heard;
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::time::{Duration, Instant};

    use crate::allocator::Allocator;
    use crate::buffer::Buffer;
    use crate::config::{Config, SegmentMode};
    use crate::device::{Call, Sim, SimConfig};
    use crate::publish::Publish;
    use crate::route::Route;
    use crate::stream::Stream;

    const MIB: usize = 1 << 20;
    const LOOPS: Stream = Stream(1);
    const OTHER: Stream = Stream(2);

    /// Requests of a loop, which go where they went in the round before.
    fn round(alloc: &Allocator, stream: Stream) {
        let sizes = (0..100).map(|n| 11 * MIB / 10 + n * 37 % 100 * MIB / 128);
        let held: Vec<Buffer<u8>> = sizes.map(|bytes| alloc.alloc(bytes, stream).unwrap()).collect();
        drop(held);
    }

    /// Whoever is in the middle of a question when its driver panics asks no more.
    #[test]
    fn nobody_waits_for_an_answer_that_never_comes() {
        let config = Config {
            publish: Publish::Off,
            cross_stream_reuse: true,
            segments: SegmentMode::Stitched,
            ..Config::default()
        };
        let sim = Sim::new(SimConfig::default());
        let alloc = Allocator::new(sim.device(), config).unwrap();
        for _ in 0..4 {
            round(&alloc, LOOPS);
            round(&alloc, OTHER);
        }
        // A graph's.
        let pool = alloc.private_pool().unwrap();
        sim.panic_at(Call::QueryStream);
        catch_unwind(AssertUnwindSafe(|| round(&alloc, LOOPS))).unwrap_err();
        let others = std::thread::spawn(move || {
            alloc.begin_allocate_to_pool(&pool, Route::Stream(LOOPS)).unwrap();
            alloc.end_allocate_to_pool(&pool).unwrap();
            alloc.retire_stream(OTHER).unwrap();
        });
        let began = Instant::now();
        while !others.is_finished() && began.elapsed() < Duration::from_secs(10) {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(others.is_finished(), "they wait for an answer");
        others.join().unwrap();
    }
}
