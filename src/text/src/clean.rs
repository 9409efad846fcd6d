//! Strings of others, made fit for a terminal.

#[cfg(test)]
#[path = "clean_tests.rs"]
mod tests;

/// What stands for a character that was taken out.
pub const REPLACEMENT: char = char::REPLACEMENT_CHARACTER;
/// Marks that one character may carry. Vietnamese has two, pointed Hebrew three or four.
pub const MARKS_MAX: usize = 4;

/// `text` without anything that moves a cursor, changes a colour, or touches what stands beside it.
///
/// [Harmful](is_harmful) characters become U+FFFD, one each, so that everybody sees where something was. A character carries
/// [`MARKS_MAX`] combining marks at most; further ones become U+FFFD. So does a mark at the beginning, which would be drawn on whatever
/// stands before the text.
///
/// Letters of scripts that run from right to left stay: names are written in them.
pub fn clean(text: &str) -> String {
    cleaned(text.chars())
}

/// `bytes` as one line of at most `limit` characters, without blanks around it.
///
/// As [`clean`], but white space (tab, line feed, carriage return, vertical tab, form feed, U+2028, U+2029) becomes a blank: the arguments
/// of a command stay apart. Bytes that are no UTF-8 become U+FFFD.
pub fn clean_line(bytes: &[u8], limit: usize) -> String {
    let text = String::from_utf8_lossy(bytes);
    let line = text.trim_matches(char::is_whitespace).chars().take(limit);
    cleaned(line.map(|c| match c {
        '\t'..='\r' | '\u{2028}' | '\u{2029}' => ' ',
        c => c,
    }))
}

fn cleaned(text: impl Iterator<Item = char>) -> String {
    // There is nothing that the first character could be drawn on.
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

/// Whether a character has no place in a terminal.
///
/// - controls (Cc), line and paragraph separators (Zl, Zp): they move the cursor and change colours;
/// - format characters (Cf): marks, embeddings, overrides and isolates of direction, joiners, soft hyphens, tags, interlinear
///   annotations, the byte order mark, controls of shorthand, music and hieroglyphs;
/// - what Unicode has programs not draw (Default_Ignorable_Code_Point): variation selectors, the fillers U+115F, U+1160, U+3164 and
///   U+FFA0, the grapheme joiner. Terminals do not agree on how many columns these take;
/// - numbers that are no characters, such as U+FFFF.
///
/// Blanks are not harmful: U+00A0, U+3000 and the blank pattern of Braille, U+2800, take the columns that they say they take.
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

/// Whether a character may take no column of its own: combining marks, vowels and final consonants of Hangul, consonants of India that
/// are drawn on the next letter, and what this Rust's tables do not know, which may be a mark in newer ones.
fn is_mark(c: char) -> bool {
    if c < '\u{300}' || c.is_whitespace() || is_private(c) {
        return false;
    }
    let is_hangul = matches!(c, '\u{1160}'..='\u{11ff}' | '\u{d7b0}'..='\u{d7ff}');
    // What has a form of its own is written as it is; marks (Grapheme_Extend) and unassigned numbers are escaped.
    is_hangul || is_prefix(c) || c.escape_debug().len() > 1
}

/// Unicode's Indic_Syllabic_Category Consonant_Preceding_Repha and Consonant_Prefixed, and a sign that width tables have with these.
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

/// Characters of private use. Fonts for terminals have symbols there, of one column each.
fn is_private(c: char) -> bool {
    matches!(c, '\u{e000}'..='\u{f8ff}' | '\u{f0000}'..='\u{10ffff}')
}
