//! The record of a publisher that samples another allocator, as words.

use crate::error::ReadError;
use crate::format::Section;
use crate::record::StringId;
use crate::sampled::Sampled;
use crate::snapshot::Snapshot;
use crate::source::Source;

/// Words of the record, with its sequence word.
pub(crate) const WORDS: usize = 8;

pub(crate) fn encode(sampled: &Sampled) -> [u64; WORDS - 1] {
    [
        sampled.figures_at,
        sampled.blocks_at,
        u64::from(sampled.skipped.0),
        u64::from(sampled.events_skipped.0),
        0,
        0,
        0,
    ]
}

fn decode(w: &[u64; WORDS - 1]) -> Sampled {
    Sampled {
        figures_at: w[0],
        blocks_at: w[1],
        skipped: StringId(w[2] as u32),
        events_skipped: StringId(w[3] as u32),
    }
}

pub(super) fn read(source: &Source, section: &Section, snapshot: &mut Snapshot) -> Result<(), ReadError> {
    let mut found = Sampled::default();
    source.changed(
        section,
        0..1,
        |_| 0,
        |_, record: Option<(u64, [u64; WORDS - 1])>| {
            if let Some((_, words)) = record {
                found = decode(&words);
            }
        },
    )?;
    snapshot.sampled = Some(found);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The format, word for word.
    #[test]
    fn words_of_the_sampled_record_are_fixed() {
        let sampled = Sampled {
            figures_at: 5,
            blocks_at: 6,
            skipped: StringId(7),
            events_skipped: StringId(8),
        };
        assert_eq!(encode(&sampled), [5, 6, 7, 8, 0, 0, 0]);
        assert_eq!(decode(&encode(&sampled)), sampled);
    }
}
