//! Cleans untrusted text so that it is safe to show in a terminal.

#[cfg(test)]
#[path = "clean_tests.rs"]
mod tests;

/// The character that replaces a removed one.
pub const REPLACEMENT: char = char::REPLACEMENT_CHARACTER;
/// Most combining marks that a character may have. Vietnamese uses two, pointed Hebrew three or four.
pub const MARKS_MAX: usize = 4;

/// Returns `text` without characters that move the cursor, change colours, or affect neighbouring text.
///
/// Each [harmful](is_harmful) character becomes U+FFFD, so that it shows where something was removed. A character keeps
/// at most [`MARKS_MAX`] combining marks; further ones become U+FFFD. So does a mark at the beginning, which would be
/// drawn on whatever precedes the text.
///
/// Letters of right-to-left scripts stay, because names are written in them.
pub fn clean(text: &str) -> String {
    cleaned(text.chars())
}

/// Returns `bytes` as one line of at most `limit` characters, without surrounding blanks.
///
/// Cleans like [`clean`], but white space (tab, line feed, carriage return, vertical tab, form feed, U+2028, U+2029)
/// becomes a blank, so that the arguments of a command stay separate. Bytes that are not UTF-8 become U+FFFD.
pub fn clean_line(bytes: &[u8], limit: usize) -> String {
    let text = String::from_utf8_lossy(bytes);
    let line = text.trim_matches(char::is_whitespace).chars().take(limit);
    cleaned(line.map(|c| match c {
        '\t'..='\r' | '\u{2028}' | '\u{2029}' => ' ',
        c => c,
    }))
}

fn cleaned(text: impl Iterator<Item = char>) -> String {
    // A mark at the beginning has no character to combine with.
    let mut marks = MARKS_MAX;
    text.map(|c| {
        if !is_mark(c) || is_harmful(c) {
            marks = 0;
            return if is_harmful(c) { REPLACEMENT } else { c };
        }
        if marks == MARKS_MAX {
            return REPLACEMENT;
        }
        marks += 1;
        c
    })
    .collect()
}

/// Whether a character is unsafe to show in a terminal. These are:
///
/// - controls (Cc), line and paragraph separators (Zl, Zp): they move the cursor and change colours;
/// - format characters (Cf): marks, embeddings, overrides and isolates of direction, joiners, soft hyphens, tags, interlinear
///   annotations, the byte order mark, controls of shorthand, music and hieroglyphs;
/// - invisible characters (Default_Ignorable_Code_Point): variation selectors, the fillers U+115F, U+1160, U+3164 and
///   U+FFA0, the grapheme joiner. Terminals do not agree on how many columns these take;
/// - noncharacters, such as U+FFFF.
///
/// Blanks are safe: U+00A0, U+3000 and the blank pattern of Braille, U+2800, take their nominal number of columns.
pub fn is_harmful(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{ad}'
                | '\u{34f}'
                | '\u{600}'..='\u{605}'
                | '\u{61c}'
                | '\u{6dd}'
                | '\u{70f}'
                | '\u{890}'..='\u{891}'
                | '\u{8e2}'
                | '\u{115f}'..='\u{1160}'
                | '\u{17b4}'..='\u{17b5}'
                | '\u{180b}'..='\u{180f}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{3164}'
                | '\u{fdd0}'..='\u{fdef}'
                | '\u{fe00}'..='\u{fe0f}'
                | '\u{feff}'
                | '\u{ffa0}'
                | '\u{fff0}'..='\u{fffb}'
                | '\u{110bd}'
                | '\u{110cd}'
                | '\u{13430}'..='\u{1343f}'
                | '\u{1bca0}'..='\u{1bca3}'
                | '\u{1d173}'..='\u{1d17a}'
                | '\u{e0000}'..='\u{e0fff}'
        )
        || u32::from(c) & 0xfffe == 0xfffe
}

/// Whether a character may take no column of its own: combining marks, vowels and final consonants of Hangul, Indic
/// consonants that are drawn on the next letter, and characters unknown to this Rust version's tables, which may be
/// marks in newer versions of Unicode.
fn is_mark(c: char) -> bool {
    if c < '\u{300}' || c.is_whitespace() || is_private(c) {
        return false;
    }
    let is_hangul = matches!(c, '\u{1160}'..='\u{11ff}' | '\u{d7b0}'..='\u{d7ff}');
    // `escape_debug` escapes marks (Grapheme_Extend) and unassigned code points, and leaves other characters as they
    // are.
    is_hangul || is_prefix(c) || c.escape_debug().len() > 1
}

/// Unicode's Indic_Syllabic_Category Consonant_Preceding_Repha and Consonant_Prefixed, and a sign that width tables
/// group with these.
fn is_prefix(c: char) -> bool {
    matches!(
        c,
        '\u{d4e}'
            | '\u{a8fa}'
            | '\u{111c2}'..='\u{111c3}'
            | '\u{113d1}'
            | '\u{1193f}'
            | '\u{11941}'
            | '\u{11a84}'..='\u{11a89}'
            | '\u{11d46}'
            | '\u{11f02}'
    )
}

/// Whether a character is for private use. Terminal fonts have symbols of one column each there.
fn is_private(c: char) -> bool {
    matches!(c, '\u{e000}'..='\u{f8ff}' | '\u{f0000}'..='\u{10ffff}')
}
