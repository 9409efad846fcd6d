//! Patterns in simulated memory: one word of the block's seed, repeated. The simulated device stores that as one extent,
//! however large the block is.

use gpumem_alloc::{Buffer, Error};

use crate::pattern::{Checked, pattern};

/// Returns the repeated word. It is never 0, the value of unwritten memory.
fn word(seed: u64) -> u32 {
    pattern(seed, 0) as u32 | 1
}

/// Fills a buffer with its pattern.
pub(crate) fn write(buffer: &mut Buffer<u64>, seed: u64) -> Result<(), Error> {
    buffer.fill_words(word(seed))
}

/// Words read and compared at a time: 256 KiB, which stay in the processor's cache.
const PART: usize = 32 * 1024;

/// Compares every word of a buffer with its pattern.
pub(crate) fn check(buffer: &Buffer<u64>, seed: u64) -> Result<Checked, Error> {
    let sound = u64::from(word(seed)) << 32 | u64::from(word(seed));
    let expected = vec![sound; PART];
    let mut found = vec![0; PART];
    let mut checked = Checked {
        words: buffer.len() as u64,
        ..Checked::default()
    };
    for start in (0..buffer.len()).step_by(PART) {
        let found = &mut found[..PART.min(buffer.len() - start)];
        buffer.read_at(start, found)?;
        // Most parts are intact, which one comparison of memory shows.
        if *found == expected[..found.len()] {
            continue;
        }
        for (index, _) in found.iter().enumerate().filter(|(_, found)| **found != sound) {
            checked.mismatches += 1;
            checked.first = checked.first.or(Some((start + index) as u64));
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
    fn damaged_words_and_foreign_patterns_are_found() {
        let config = Config {
            publish: Publish::Off,
            ..Config::default()
        };
        let allocator = Allocator::new(device::sim(device::SimConfig::default()), config).unwrap();
        let mut buffer = allocator.alloc::<u64>(100_000, Stream::DEFAULT).unwrap();
        assert_eq!(
            check(&buffer, 7).unwrap().mismatches,
            100_000,
            "unwritten memory is not a pattern"
        );
        write(&mut buffer, 7).unwrap();
        assert_eq!(
            check(&buffer, 7).unwrap(),
            Checked {
                words: 100_000,
                mismatches: 0,
                first: None
            }
        );
        assert_eq!(check(&buffer, 8).unwrap().mismatches, 100_000);
        let mut damaged = [0];
        buffer.read_at(91_123, &mut damaged).unwrap();
        buffer.write_at(91_123, &[damaged[0] ^ 1 << 40]).unwrap();
        assert_eq!(
            check(&buffer, 7).unwrap(),
            Checked {
                words: 100_000,
                mismatches: 1,
                first: Some(91_123)
            }
        );
    }
}
