//! Measures, cuts and wraps text by terminal columns.

use textwrap::{Options, WordSplitter};
use unicode_width::UnicodeWidthStr;

/// Returns the columns that a text takes.
pub(crate) fn width(text: &str) -> u16 {
    u16::try_from(UnicodeWidthStr::width(text)).unwrap_or(u16::MAX)
}

/// Checks whether a text takes at most `room` columns.
pub(crate) fn fits(text: &str, room: usize) -> bool {
    usize::from(width(text)) <= room
}

/// Cuts a text to `room` columns, with `sign` at its end if something is missing.
pub(crate) fn cut(text: &str, room: u16, sign: &str) -> String {
    if width(text) <= room {
        return text.to_owned();
    }
    let Some(room) = room.checked_sub(width(sign)) else {
        return String::new();
    };
    let mut out = String::new();
    for letter in text.chars() {
        out.push(letter);
        if width(&out) > room {
            out.pop();
            break;
        }
    }
    out + sign
}

/// Wraps a text at spaces into lines of at most `room` columns. Longer words are broken. Returns no lines if `room` is 0.
pub(crate) fn wrap(text: &str, room: u16) -> Vec<String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    if room == 0 || words.is_empty() {
        return Vec::new();
    }
    let options = Options::new(room.into()).word_splitter(WordSplitter::NoHyphenation);
    let text = words.join(" ");
    let lines = textwrap::wrap(&text, options);
    lines.into_iter().map(|line| line.into_owned()).collect()
}

/// Wraps a text into one to `most` lines. The last line has the whole rest, even if it is too long.
pub(crate) fn wrap_to(text: &str, room: u16, most: usize) -> Vec<String> {
    let mut lines = match most {
        ..2 => vec![text.to_owned()],
        _ => wrap(text, room),
    };
    if lines.len() > most.max(1) {
        let last = lines.split_off(most - 1).join(" ");
        lines.push(last);
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_wraps_at_words_and_loses_none() {
        let cases: [(&str, u16, &[&str]); 6] = [
            ("one two three", 0, &[]),
            ("one two three", 7, &["one two", "three"]),
            ("one two", 3, &["one", "two"]),
            ("abcdefg hi", 4, &["abcd", "efg", "hi"]),
            ("", 5, &[]),
            ("日本語", 3, &["日", "本", "語"]),
        ];
        for (text, room, expected) in cases {
            assert_eq!(wrap(text, room), expected, "{text} in {room}");
        }
        for room in 1..12 {
            let words = wrap("a bb ccc dddd eeeee 日本語 ffffff", room)
                .concat()
                .replace(' ', "");
            assert_eq!(words, "abbcccddddeeeee日本語ffffff");
        }
    }

    #[test]
    fn cut_text_never_exceeds_its_room() {
        for room in 0..12 {
            assert!(width(&cut("abc 日本語 def", room, "…")) <= room);
        }
        assert_eq!(cut("abcdef", 4, "…"), "abc…");
    }
}
