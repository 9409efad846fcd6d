//! What a text asks for without effect.

use std::fmt;

/// Options of a text that have no effect, or another one than in PyTorch, and why. Whoever wrote the text is to read it: `Display` has it in
/// a line.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Note {
    /// Their names; at least one.
    pub options: Vec<&'static str>,
    /// What becomes of them.
    pub reason: String,
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.options.join(", "), self.reason)
    }
}

/// Adds what is to be said of an option: in one note with others of the same reason.
pub(crate) fn note(notes: &mut Vec<Note>, option: &'static str, reason: impl Into<String>) {
    let reason = reason.into();
    match notes.iter_mut().find(|note| note.reason == reason) {
        Some(note) if note.options.contains(&option) => {}
        Some(note) => note.options.push(option),
        None => notes.push(Note {
            options: vec![option],
            reason,
        }),
    }
}

/// Takes back what was to be said of an option: it is given once more, and the last one counts.
pub(super) fn forget(notes: &mut Vec<Note>, option: &str) {
    for note in &mut *notes {
        note.options.retain(|other| *other != option);
    }
    notes.retain(|note| !note.options.is_empty());
}
