//! Text packed into words by the publisher, and cleaned by the reader before it can reach a terminal.

use gpumem_text::clean;

/// Packs up to eight bytes into a little-endian word.
pub(crate) fn word(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(word)
}

/// Packs as much of `text` as fits into `words`, without splitting a character. Returns the number of bytes used.
pub(crate) fn pack(text: &str, words: &mut [u64]) -> usize {
    let len = text.floor_char_boundary(words.len() * 8);
    for (to, from) in words.iter_mut().zip(text.as_bytes()[..len].chunks(8)) {
        *to = word(from);
    }
    len
}

/// Returns the text of `len` bytes in `words`, cleaned. A length beyond the words is clamped.
pub(crate) fn unpack(len: u64, words: &[u64]) -> String {
    let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
    let len = usize::try_from(len).unwrap_or(usize::MAX).min(bytes.len());
    clean(&String::from_utf8_lossy(&bytes[..len]))
}

/// Returns how to refer to a pool of this name in a sentence: names made up by the allocator (`pool (7, 1)`, `private
/// pool 2`) already contain the word "pool".
pub fn pool_called(name: &str) -> String {
    match name.starts_with("pool (") || name.starts_with("private pool ") {
        true => clean(name),
        false => format!("pool {}", clean(name)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn truncated_text_keeps_whole_characters() {
        let mut words = [0; 1];
        let len = pack("abcdefgé", &mut words);
        assert_eq!((len, unpack(len as u64, &words).as_str()), (7, "abcdefg"));
    }

    #[test]
    fn word_pool_is_not_repeated() {
        let called = ["pool (7, 1)", "private pool 2", "tenant\x1b", "pool"].map(pool_called);
        assert_eq!(
            called,
            ["pool (7, 1)", "private pool 2", "pool tenant\u{fffd}", "pool pool"]
        );
    }

    #[test]
    fn hostile_lengths_and_bytes_are_harmless() {
        assert_eq!(
            unpack(u64::MAX, &[u64::from_le_bytes(*b"\x1b[2Jab\r\n")]),
            "\u{fffd}[2Jab\u{fffd}\u{fffd}"
        );
        assert_eq!(unpack(4, &[0xffff_ffff]), "\u{fffd}".repeat(4));
    }
}
