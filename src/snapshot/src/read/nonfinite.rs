//! Numbers in Python's JSON that are not valid JSON: `NaN`, `Infinity` and `-Infinity`.

use std::borrow::Cow;

use super::error::ReadError;
use super::limits::Meter;

/// Replaces them by empty texts, which are not numbers either, padded so that the JSON keeps its length. It is copied
/// only if it has any.
pub(crate) fn replace(json: &mut Cow<'_, [u8]>, meter: &mut Meter) -> Result<(), ReadError> {
    let mut at = 0;
    while let Some((from, to)) = next(json, at) {
        if let Cow::Borrowed(json) = json {
            meter.charge(json.len())?;
        }
        let word = &mut json.to_mut()[from..to];
        word.fill(b' ');
        word[..2].fill(b'"');
        at = to;
    }
    Ok(())
}

/// Finds the next such word outside of texts. `at` must not be within a text.
fn next(json: &[u8], mut at: usize) -> Option<(usize, usize)> {
    loop {
        at += json
            .get(at..)?
            .iter()
            .position(|byte| matches!(byte, b'"' | b'N' | b'I'))?;
        let rest = &json[at..];
        if rest.starts_with(b"NaN") {
            return Some((at, at + 3));
        }
        if rest.starts_with(b"Infinity") {
            let minus = at > 0 && json[at - 1] == b'-';
            return Some((at - usize::from(minus), at + 8));
        }
        at += match rest[0] {
            b'"' => text(rest)?,
            _ => 1,
        };
    }
}

/// Returns the length of the text that begins here, with its quotes.
fn text(json: &[u8]) -> Option<usize> {
    let mut at = 1;
    loop {
        at += json.get(at..)?.iter().position(|byte| matches!(byte, b'"' | b'\\'))?;
        match json[at] {
            b'"' => return Some(at + 1),
            _ => at += 2,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::Limits;

    #[test]
    fn only_words_outside_of_texts_are_replaced() {
        for (text, replaced) in [
            (
                r#"{"a": NaN, "NaN": [-Infinity,Infinity]}"#,
                r#"{"a": "" , "NaN": [""       ,""      ]}"#,
            ),
            (r#"["\"NaN", "\\", NaN]"#, r#"["\"NaN", "\\", "" ]"#),
            (r#"["Infinity\"#, r#"["Infinity\"#),
            ("[Nan, In, N", "[Nan, In, N"),
            ("NaN", "\"\" "),
        ] {
            let mut json = Cow::Borrowed(text.as_bytes());
            replace(&mut json, &mut Limits::default().meter(0, 0)).unwrap();
            assert_eq!(String::from_utf8_lossy(&json), replaced, "{text}");
            assert_eq!(json.len(), text.len());
            assert_eq!(matches!(json, Cow::Owned(_)), text != replaced, "{text}");
        }
    }
}
