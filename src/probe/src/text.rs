//! Text from outside: made safe for a terminal, and bounded.

/// `bytes` as text of at most `limit` characters. What could move a cursor, colour a screen or reorder a line is
/// replaced: white space by a blank, other control and direction characters by U+FFFD.
pub(crate) fn clean(bytes: &[u8], limit: usize) -> String {
    String::from_utf8_lossy(bytes)
        .trim_matches(char::is_whitespace)
        .chars()
        .take(limit)
        .map(harmless)
        .collect()
}

fn harmless(c: char) -> char {
    match c {
        '\t' | '\n' | '\r' | '\u{b}' | '\u{c}' | '\u{2028}' | '\u{2029}' => ' ',
        // Direction marks, embeddings, overrides and isolates; zero-width characters; the byte order mark.
        '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{61c}' => {
            '\u{fffd}'
        }
        c if c.is_control() => '\u{fffd}',
        c => c,
    }
}

/// The 16 bytes of a UUID text such as `GPU-6f5ae4c5-...`; the prefix may be any (`GPU-`, `MIG-`) or none.
pub(crate) fn uuid_bytes(text: &str) -> Option<[u8; 16]> {
    let digits = match text.split_once('-') {
        Some((prefix, rest)) if prefix.len() <= 4 && !prefix.is_empty() => rest,
        _ => text,
    };
    let mut bytes = [0u8; 16];
    let mut nibbles = 0;
    for c in digits.chars().filter(|&c| c != '-') {
        let value = c.to_digit(16)? as u8;
        *bytes.get_mut(nibbles / 2)? |= if nibbles % 2 == 0 { value << 4 } else { value };
        nibbles += 1;
    }
    (nibbles == 32).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_steers_a_terminal_survives() {
        let text = clean(b"\x1b[31mred\x1b]0;title\x07\x9b\ttab\xff\xc2\x9b\x7f end\n", 100);
        assert!(!text.chars().any(|c| c.is_control()), "{text:?}");
        assert!(text.contains("red") && text.ends_with("end"));
        assert_eq!(clean("a\u{202e}b".as_bytes(), 10), "a\u{fffd}b");
    }

    #[test]
    fn the_limit_counts_characters() {
        assert_eq!(clean("ääääää".as_bytes(), 3), "äää");
        assert_eq!(clean(b"", 3), "");
    }

    #[test]
    fn a_uuid_is_sixteen_bytes_or_nothing() {
        let expected = [
            0x6f, 0x5a, 0xe4, 0xc5, 0x12, 0x34, 0x56, 0x78, 0x9a, 0xbc, 0xde, 0xf0, 0x11, 0x22, 0x33, 0x44,
        ];
        for text in [
            "GPU-6f5ae4c5-1234-5678-9abc-def011223344",
            "MIG-6F5AE4C5-1234-5678-9abc-def011223344",
            "6f5ae4c5-1234-5678-9abc-def011223344",
        ] {
            assert_eq!(uuid_bytes(text), Some(expected), "{text}");
        }
        for text in [
            "",
            "GPU-",
            "GPU-6f5a",
            "GPU-6f5ae4c5-1234-5678-9abc-def0112233445",
            "GPU-zf5ae4c5-1234-5678-9abc-def011223344",
            "GPU-ä",
        ] {
            assert_eq!(uuid_bytes(text), None, "{text}");
        }
    }
}
