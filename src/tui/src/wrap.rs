//! Text in columns of a terminal: how many it takes, and lines of at most so many.

/// Columns a text takes.
pub fn width(text: &str) -> u16 {
    if text.is_ascii() {
        return u16::try_from(text.len()).unwrap_or(u16::MAX);
    }
    u16::try_from(ratatui::text::Span::raw(text).width()).unwrap_or(u16::MAX)
}

/// Whether a text takes no more than `room` columns.
pub fn fits(text: &str, room: usize) -> bool {
    usize::from(width(text)) <= room
}

/// A text in at most `room` columns, with a sign at its end where something is missing.
pub fn cut(text: &str, room: u16, sign: &str) -> String {
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

/// A text in lines of at most `room` columns, broken at spaces; longer words are cut.
pub fn wrap(text: &str, room: u16) -> Vec<String> {
    let mut lines = vec![];
    if room == 0 {
        return lines;
    }
    let mut line = String::new();
    for word in text.split_whitespace() {
        let mut word = word.to_owned();
        while width(&line) + u16::from(!line.is_empty()) + width(&word) > room {
            if !line.is_empty() {
                lines.push(std::mem::take(&mut line));
                continue;
            }
            let fits = word
                .char_indices()
                .take_while(|(i, c)| width(&word[..i + c.len_utf8()]) <= room)
                .count()
                .max(1);
            let cut = word.char_indices().nth(fits).map_or(word.len(), |(i, _)| i);
            let rest = word.split_off(cut);
            lines.push(std::mem::replace(&mut word, rest));
            if word.is_empty() {
                break;
            }
        }
        if !line.is_empty() && !word.is_empty() {
            line.push(' ');
        }
        line.push_str(&word);
    }
    if !line.is_empty() {
        lines.push(line);
    }
    lines
}

/// The same in at most `most` lines (and at least one); the last has all that is left, be it too long for it.
pub fn wrap_to(text: &str, room: u16, most: usize) -> Vec<String> {
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
