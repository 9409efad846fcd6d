//! The UUIDs of GPUs, as text.

/// Parses the 16 bytes of a UUID text such as `GPU-6f5ae4c5-...`. Any prefix of up to four letters (`GPU-`, `MIG-`) or
/// none is accepted.
pub fn bytes(text: &str) -> Option<[u8; 16]> {
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
    fn uuid_is_sixteen_bytes_or_rejected() {
        let expected = [
            0x6f, 0x5a, 0xe4, 0xc5, 0x12, 0x34, 0x56, 0x78, 0x9a, 0xbc, 0xde, 0xf0, 0x11, 0x22, 0x33, 0x44,
        ];
        for text in [
            "GPU-6f5ae4c5-1234-5678-9abc-def011223344",
            "MIG-6F5AE4C5-1234-5678-9abc-def011223344",
            "6f5ae4c5-1234-5678-9abc-def011223344",
        ] {
            assert_eq!(bytes(text), Some(expected), "{text}");
        }
        for text in [
            "",
            "GPU-",
            "GPU-6f5a",
            "GPU-6f5ae4c5-1234-5678-9abc-def0112233445",
            "GPU-zf5ae4c5-1234-5678-9abc-def011223344",
            "GPU-ä",
        ] {
            assert_eq!(bytes(text), None, "{text}");
        }
    }
}
