//! The record of what a process uses outside of its allocator, as words.

use crate::error::ReadError;
use crate::format::Section;
use crate::outside::Outside;
use crate::record::StringId;
use crate::snapshot::Snapshot;
use crate::source::Source;

/// Words of the record, with its sequence word.
pub(crate) const WORDS: usize = 8;

pub(crate) fn encode(outside: &Outside) -> [u64; WORDS - 1] {
    [
        outside.at_start,
        outside.measured_at,
        u64::from(outside.users.0),
        0,
        0,
        0,
        0,
    ]
}

fn decode(w: &[u64; WORDS - 1]) -> Outside {
    Outside {
        at_start: w[0],
        measured_at: w[1],
        users: StringId(w[2] as u32),
    }
}

/// Reads the records of those devices that the snapshot has.
pub(super) fn read(source: &Source, section: &Section, snapshot: &mut Snapshot) -> Result<(), ReadError> {
    let count = section.count.min(snapshot.devices.len());
    let devices = &mut snapshot.devices;
    source.changed(
        section,
        0..count,
        |_| 0,
        |index, record: Option<(u64, [u64; WORDS - 1])>| {
            if let (Some((_, words)), Some(map)) = (record, devices.get_mut(index)) {
                map.outside = Some(decode(&words));
            }
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The format, word for word.
    #[test]
    fn words_of_the_record_are_fixed() {
        let outside = Outside {
            at_start: 5,
            measured_at: 6,
            users: StringId(7),
        };
        assert_eq!(encode(&outside), [5, 6, 7, 0, 0, 0, 0]);
        assert_eq!(decode(&encode(&outside)), outside);
    }
}
