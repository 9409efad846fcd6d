//! Which text is safe to show: none of its characters may move the cursor, be invisible, or reverse the text beside it.

/// Bytes of the longest sentence that a report may have.
const LONGEST: usize = 4096;

/// Returns the first harmful character of a text, or a note that the text is too long.
pub(crate) fn harm(text: &str) -> Option<String> {
    if text.len() > LONGEST {
        return Some(format!("a text of {} bytes", text.len()));
    }
    let harmful = text.chars().find(|c| is_harmful(*c));
    harmful.map(|c| format!("{c:?} in {text:?}"))
}

/// Returns whether Unicode lists a character as a control (Cc), a format character (Cf), or a line or paragraph separator (Zl, Zp).
pub(crate) fn is_harmful(c: char) -> bool {
    let format = [
        '\u{ad}'..='\u{ad}',
        '\u{61c}'..='\u{61c}',
        '\u{180e}'..='\u{180e}',
        '\u{200b}'..='\u{200f}',
        '\u{2028}'..='\u{202e}',
        '\u{2060}'..='\u{206f}',
        '\u{feff}'..='\u{feff}',
        '\u{fff9}'..='\u{fffb}',
        '\u{e0001}'..='\u{e007f}',
    ];
    c.is_control() || format.iter().any(|range| range.contains(&c))
}
