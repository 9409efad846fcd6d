//! Wraps text.

/// The width that text is wrapped at unless the terminal is narrower.
pub(crate) const WIDTH: usize = 100;

/// Wraps words behind a label and indents the following lines by its width.
pub(crate) fn paragraph(text: &mut String, label: &str, words: &str, width: usize) {
    text.push_str(label);
    let mut column = label.len();
    for (at, word) in words.split_whitespace().enumerate() {
        let length = word.chars().count();
        if at > 0 && column + 1 + length > width {
            text.push('\n');
            text.push_str(&" ".repeat(label.len()));
            column = label.len();
        } else if at > 0 {
            text.push(' ');
            column += 1;
        }
        text.push_str(word);
        column += length;
    }
    text.push('\n');
}
