//! The records of earlier figures, as words. They are a ring, whose order follows from the times.

use crate::past::PastFigures;

/// Words of a record, with its sequence word.
pub(crate) const WORDS: usize = 8;
/// The most earlier figures that a channel keeps. Of one device that is sampled once a second, those of half an hour.
pub const PAST: usize = 2048;

pub(crate) fn encode(past: &PastFigures) -> [u64; WORDS - 1] {
    [
        past.time,
        u64::from(past.device),
        past.allocated,
        past.reserved,
        0,
        0,
        0,
    ]
}

pub(crate) fn decode(w: &[u64; WORDS - 1]) -> PastFigures {
    PastFigures {
        time: w[0],
        device: w[1] as u8,
        allocated: w[2],
        reserved: w[3],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The format, word for word.
    #[test]
    fn words_of_the_record_are_fixed() {
        let past = PastFigures {
            time: 5,
            device: 6,
            allocated: 7,
            reserved: 8,
        };
        assert_eq!(encode(&past), [5, 6, 7, 8, 0, 0, 0]);
        assert_eq!(decode(&encode(&past)), past);
    }
}
