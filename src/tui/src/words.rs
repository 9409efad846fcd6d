//! Commands and sentences as the screen and the reports show them.

use crate::wrap::fits;

#[cfg(test)]
#[path = "words_tests.rs"]
mod tests;

/// Strips the directory of a command line's program: `python3 train.py` rather than `/usr/bin/python3 train.py`.
pub(crate) fn program(command: &str) -> &str {
    let first = command.split(' ').next().unwrap_or("");
    let name = first.rfind('/').map_or(0, |slash| slash + 1);
    if name < first.len() { &command[name..] } else { command }
}

/// Shortens a command line until it fits into `room` columns, if it can. The program's directory is always stripped, then those of
/// the arguments (`python3 train.py` of `python3 /data/jobs/train.py`), then this program's own name (`replay trace.csv` of
/// `gpumem-tui replay trace.csv`).
pub(crate) fn command_in(command: &str, room: usize) -> String {
    let full = program(command);
    if fits(full, room) {
        return full.to_owned();
    }
    let bare = |word: &str| -> String {
        let name = word.rsplit('/').next().unwrap_or(word);
        let shown = if word.starts_with('-') || name.is_empty() {
            word
        } else {
            name
        };
        shown.to_owned()
    };
    let names: Vec<String> = full.split(' ').map(bare).collect();
    let names = names.join(" ");
    let own = format!("{} ", env!("CARGO_PKG_NAME"));
    match names.strip_prefix(&own) {
        Some(rest) if !fits(&names, room) => rest.to_owned(),
        _ => names,
    }
}

/// Capitalizes the first letter.
pub(crate) fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().into_iter().flat_map(char::to_uppercase);
    first.chain(letters).collect()
}
