//! Values as PyTorch reads them: by `std::stoull` and `std::stod`, which stop at what is no part of a number and say nothing of the rest
//! (`ConfigTokenizer` in `c10/core/AllocatorConfig.h`). What was written otherwise than it is read is noted.

use super::Draft;
use super::error::Bad;
use super::lex::{Word, quote};

const MIB: u64 = 1 << 20;

/// A whole number: 512 of `512MB`, and a negative one from 2^64 down.
pub(super) fn number(draft: &mut Draft, word: &Word, expected: &str) -> Result<u64, Bad> {
    let unsigned = word.text.trim_start_matches(['+', '-']);
    let signs = word.text.len() - unsigned.len();
    let digits = unsigned.len() - unsigned.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let number: u64 = match unsigned[..digits].parse() {
        Ok(number) if signs <= 1 => number,
        _ => return Err(word.not(expected)),
    };
    let written = quote(&word.written);
    if digits < unsigned.len() {
        draft.note(format!(
            "{written} is read as {}, as PyTorch reads it",
            &word.text[..signs + digits]
        ));
    } else if word.text.starts_with('-') {
        draft.note(format!("{written} is read as a very large number, as PyTorch reads it"));
    }
    Ok(if word.text.starts_with('-') {
        number.wrapping_neg()
    } else {
        number
    })
}

/// A finite number: 0.8 of `0.8x`.
pub(super) fn decimal(draft: &mut Draft, word: &Word, expected: &str) -> Result<f64, Bad> {
    let ends = word.text.char_indices().map(|(at, c)| at + c.len_utf8()).rev();
    let read = ends
        .map(|end| &word.text[..end])
        .find_map(|part| Some((part, part.parse::<f64>().ok()?)));
    let Some((part, number)) = read.filter(|(_, number)| number.is_finite()) else {
        return Err(word.not(expected));
    };
    if part.len() < word.text.len() {
        draft.note(format!(
            "{} is read as {part}, as PyTorch reads it",
            quote(&word.written)
        ));
    }
    Ok(number)
}

/// At least so many MiB, in bytes; `None` where there are more than can be counted.
pub(super) fn mebibytes(draft: &mut Draft, word: &Word, least: u64) -> Result<Option<u64>, Bad> {
    let mib = number(draft, word, "a whole number of MiB")?;
    if mib < least {
        return Err(word.bad(format!("must be at least {least}, not {mib}")));
    }
    Ok(mib.checked_mul(MIB))
}
