//! The checks of `doctor`.

/// The result of a check, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Verdict {
    /// It works.
    Good,
    /// Something optional is missing or limited.
    Note,
    /// There is no GPU.
    NoGpu,
    /// Something is broken.
    Bad,
}

impl Verdict {
    /// Returns the mark before a check.
    pub(crate) fn mark(self) -> &'static str {
        match self {
            Verdict::Good => "ok  ",
            Verdict::Note => "note",
            Verdict::NoGpu => "none",
            Verdict::Bad => "BAD ",
        }
    }

    /// Returns the word for it in JSON.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Verdict::Good => "ok",
            Verdict::Note => "note",
            Verdict::NoGpu => "no-gpu",
            Verdict::Bad => "bad",
        }
    }
}

/// A check and its result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Check {
    /// The name of what was checked.
    pub name: &'static str,
    /// The result.
    pub verdict: Verdict,
    /// What was found.
    pub seen: String,
    /// What to do, in one or more lines; empty if nothing needs doing.
    pub todo: String,
}

/// Creates a check that found no problem.
pub(crate) fn good(name: &'static str, seen: impl Into<String>) -> Check {
    Check {
        name,
        verdict: Verdict::Good,
        seen: seen.into(),
        todo: String::new(),
    }
}

/// Creates a check that found something else; `todo` says what to do.
pub(crate) fn not(name: &'static str, verdict: Verdict, seen: impl Into<String>, todo: impl Into<String>) -> Check {
    Check {
        name,
        verdict,
        seen: seen.into(),
        todo: todo.into(),
    }
}
