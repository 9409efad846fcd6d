//! What `doctor` says: one check for each thing that is looked at.

/// How a check ended, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Verdict {
    /// It works.
    Good,
    /// Something is not there that need not be.
    Note,
    /// There is no GPU to look at.
    NoGpu,
    /// Something is broken.
    Bad,
}

impl Verdict {
    /// The mark before a check.
    pub(crate) fn mark(self) -> &'static str {
        match self {
            Verdict::Good => "ok  ",
            Verdict::Note => "note",
            Verdict::NoGpu => "none",
            Verdict::Bad => "BAD ",
        }
    }
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Check {
    /// The name of what was looked at.
    pub name: &'static str,
    /// How it ended.
    pub verdict: Verdict,
    /// What was seen.
    pub seen: String,
    /// What to do, in a line or more; empty when nothing needs doing.
    pub todo: String,
}

/// A check that found everything as it should be.
pub(crate) fn good(name: &'static str, seen: impl Into<String>) -> Check {
    Check {
        name,
        verdict: Verdict::Good,
        seen: seen.into(),
        todo: String::new(),
    }
}

/// A check that found something else; `todo` says what to do.
pub(crate) fn not(name: &'static str, verdict: Verdict, seen: impl Into<String>, todo: impl Into<String>) -> Check {
    Check {
        name,
        verdict,
        seen: seen.into(),
        todo: todo.into(),
    }
}
