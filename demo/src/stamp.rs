//! Patterns in simulated memory: one word of the block's seed, repeated, which the simulated device stores as one extent
//! however large the block is.

use gpumem_alloc::{Buffer, Error};

use crate::pattern::{Checked, pattern};

/// The repeated word: never 0, which unwritten memory reads as.
fn word(seed: u64) -> u32 {
    pattern(seed, 0) as u32 | 1
}

/// Fills a buffer with its stamp.
pub(crate) fn write(buffer: &mut Buffer<u64>, seed: u64) -> Result<(), Error> {
    buffer.fill_words(word(seed))
}

/// Compares every word of a buffer with its stamp.
pub(crate) fn check(buffer: &Buffer<u64>, seed: u64) -> Result<Checked, Error> {
    let mut found = vec![0; buffer.len()];
    buffer.read(&mut found)?;
    let expected = [u64::from(word(seed)) << 32 | u64::from(word(seed)); 4096];
    let mut checked = Checked {
        words: buffer.len() as u64,
        ..Checked::default()
    };
    for (part, found) in found.chunks(expected.len()).enumerate() {
        // Most parts are sound, and one comparison of memory says so.
        if found == &expected[..found.len()] {
            continue;
        }
        for (index, _) in found.iter().enumerate().filter(|(_, found)| **found != expected[0]) {
            checked.mismatches += 1;
            checked.first = checked.first.or(Some((part * expected.len() + index) as u64));
        }
    }
    Ok(checked)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use gpumem_alloc::{Allocator, Config, Publish, Stream, device};

    #[test]
    fn a_damaged_word_is_found_and_a_foreign_stamp_too() {
        let config = Config {
            publish: Publish::Off,
            ..Config::default()
        };
        let allocator = Allocator::new(device::sim(device::SimConfig::default()), config).unwrap();
        let mut buffer = allocator.alloc::<u64>(10_000, Stream::DEFAULT).unwrap();
        assert_eq!(
            check(&buffer, 7).unwrap().mismatches,
            10_000,
            "unwritten memory is no stamp"
        );
        write(&mut buffer, 7).unwrap();
        assert_eq!(
            check(&buffer, 7).unwrap(),
            Checked {
                words: 10_000,
                mismatches: 0,
                first: None
            }
        );
        assert_eq!(check(&buffer, 8).unwrap().mismatches, 10_000);
        let mut words = vec![0; 10_000];
        buffer.read(&mut words).unwrap();
        words[9_123] ^= 1 << 40;
        buffer.write(&words).unwrap();
        assert_eq!(
            check(&buffer, 7).unwrap(),
            Checked {
                words: 10_000,
                mismatches: 1,
                first: Some(9_123)
            }
        );
    }
}
