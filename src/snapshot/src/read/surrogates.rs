//! Lone surrogates in JSON. Python writes file names that are not UTF-8 with them, but they are not valid text
//! elsewhere.

use std::borrow::Cow;

use super::error::ReadError;
use super::limits::Meter;

/// Replaces lone surrogates by U+FFFD, as the pickle reader does. The JSON keeps its length, and is copied only if it
/// has any.
pub(crate) fn replace_lone(json: &mut Cow<'_, [u8]>, meter: &mut Meter) -> Result<(), ReadError> {
    let mut at = 0;
    while let Some(lone) = next_lone(json, at) {
        if let Cow::Borrowed(json) = json {
            meter.charge(json.len())?;
        }
        json.to_mut()[lone + 2..lone + 6].copy_from_slice(b"fffd");
        at = lone + 6;
    }
    Ok(())
}

/// Finds the next escape that is a lone surrogate. `at` must not be within an escape.
fn next_lone(json: &[u8], mut at: usize) -> Option<usize> {
    loop {
        at += json.get(at..)?.iter().position(|byte| *byte == b'\\')?;
        let low = || matches!(unit(json, at + 6), Some(0xdc00..=0xdfff));
        at += match unit(json, at) {
            Some(0xd800..=0xdbff) if low() => 12,
            Some(0xd800..=0xdfff) => return Some(at),
            // An escaped backslash does not begin another escape.
            _ => 2,
        };
    }
}

/// Returns the UTF-16 code unit of an escape.
fn unit(json: &[u8], at: usize) -> Option<u32> {
    let digits = json.get(at..at + 6)?.strip_prefix(b"\\u")?;
    let mut digits = digits.iter().map(|byte| char::from(*byte).to_digit(16));
    digits.try_fold(0, |unit, digit| Some(unit << 4 | digit?))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::Limits;

    #[test]
    fn only_lone_surrogates_are_replaced() {
        for (text, replaced) in [
            (r#""\ud83d\ude00 \u00e9 \n""#, r#""\ud83d\ude00 \u00e9 \n""#),
            (r#""\udc80a\uDCFF""#, r#""\ufffda\ufffd""#),
            (r#""\ud83d\ud83d\ude00""#, r#""\ufffd\ud83d\ude00""#),
            (r#""\ud83d\\ude00""#, r#""\ufffd\\ude00""#),
            (r#""\\udc80 \\\udc80""#, r#""\\udc80 \\\ufffd""#),
            (r#""\ud83"#, r#""\ud83"#),
            (r"\ud83d\", r"\ufffd\"),
            (r"\u+d83\", r"\u+d83\"),
        ] {
            let mut json = Cow::Borrowed(text.as_bytes());
            replace_lone(&mut json, &mut Limits::default().meter(0, 0)).unwrap();
            assert_eq!(String::from_utf8_lossy(&json), replaced, "{text}");
            assert_eq!(matches!(json, Cow::Owned(_)), text != replaced, "{text}");
        }
    }
}
