//! What a request on the short way wonders: how far another stream is, whose memory it would have.
//!
//! It comes back with the question, which its thread asks without the heap's lock, and takes the short way again. A program whose streams
//! take over each other's memory in every round does so all the time: this is for one question what `turn` is for any call.

use std::sync::Arc;

use super::Heap;
use super::ask::{Answer, Question};
use super::asking::{Asking, Named};
use crate::device::Driver;

/// A question.
#[derive(Debug)]
pub(crate) struct Wonder {
    driver: Arc<dyn Driver>,
    question: Question,
    asking: Asking,
    about: About,
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
}

/// What is wondered about in a heap.
#[derive(Debug, Default)]
pub(super) struct Wondering {
    /// By the request that is being served.
    next: Option<Wonder>,
    /// What that knows already.
    since: Option<u64>,
    /// Answers that were heard.
    heard: u64,
}

impl Wonder {
    /// Asks. To be done by who does not hold the heap's lock.
    pub(crate) fn ask(self) -> Heard {
        let answers = self.question.ask(&self.driver);
        drop(self.asking);
        Heard {
            answers,
            about: self.about,
        }
    }
}

impl Heap {
    /// Whether the request that was just served wonders something.
    #[inline(always)]
    pub(super) fn wonders(&self) -> bool {
        self.wondering.next.is_some()
    }

    /// What it wonders. To be taken by whoever served it: a stream that is asked about cannot end.
    #[inline(always)]
    pub(crate) fn take_wonder(&mut self) -> Option<Wonder> {
        self.wondering.next.take()
    }

    /// Whether there is something to be asked about how far a stream is.
    pub(super) fn wonder_how_far(&mut self, line: u16) -> bool {
        let since = self.wondering.since.unwrap_or(self.wondering.heard);
        if self.streams.line(line).heard <= since && !self.capturing() {
            self.wonder(About { line, since });
        }
        self.wonders()
    }

    fn wonder(&mut self, about: About) {
        let Some(question) = self.ask_how_far(about.line) else {
            return;
        };
        let named = match &question {
            Question::Idle { stream, .. } => Named::One(*stream),
            Question::Done { .. } => Named::None,
        };
        self.wondering.next = Some(Wonder {
            driver: Arc::clone(&self.driver),
            asking: self.asked.begin(named),
            question,
            about,
        });
    }

    /// Hears what came of a question. What it comes to beside that, if nothing more is to be asked: what the request does knowing that.
    pub(crate) fn heard<R>(&mut self, heard: Heard, serve: impl FnOnce(&mut Heap) -> Option<R>) -> Option<R> {
        let Heard { answers, about } = heard;
        let answers = answers.into_iter().flatten();
        let more = answers.fold(false, |more, answer| self.hear(answer).is_some() | more);
        if more && !self.capturing() {
            self.wonder(about);
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
