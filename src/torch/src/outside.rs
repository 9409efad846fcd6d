//! What the process uses of a device outside of PyTorch's allocator, when it begins to use it.
//!
//! The driver counts all memory of a process, PyTorch its own, and both change. So the driver's figure counts only if PyTorch took
//! nothing and gave nothing back between the readings before and after it.

use std::collections::HashMap;

use gpumem_channel::{Outside, Publisher};

use crate::run::Measure;

/// Readings after which no more is tried: a program that loads a model takes memory all the time.
const TRIES: u32 = 60;

/// The measurement of one device.
#[derive(Debug, Default)]
pub(crate) struct Measuring {
    outside: Outside,
    tries: u32,
    /// Bytes that the driver counted after the last stats, if they are not used yet.
    counted: Option<u64>,
    /// What PyTorch had taken and given back until then.
    moved: (u64, u64),
}

impl Measuring {
    /// Takes the stats of a device, and measures if that is not done yet. Returns whether there is something new to publish.
    pub(crate) fn take(
        &mut self,
        stats: &HashMap<String, i64>,
        (uuid, pid): ([u8; 16], u32),
        publisher: &mut Publisher,
        measure: Measure<'_>,
    ) -> bool {
        if self.outside.measured_at > 0 || self.tries >= TRIES {
            return false;
        }
        let figure = |what: &str| {
            let value = stats.get(&format!("reserved_bytes.all.{what}"));
            value.map_or(0, |value| u64::try_from(*value).unwrap_or(0))
        };
        let moved = (figure("allocated"), figure("freed"));
        if let Some(counted) = self.counted.take().filter(|_| moved == self.moved)
            && let Some(outside) = counted.checked_sub(figure("current"))
        {
            self.outside.at_start = outside;
            self.outside.measured_at = publisher.now();
            return true;
        }
        self.tries += 1;
        self.moved = moved;
        self.counted = measure(uuid, pid);
        if self.counted.is_none() {
            self.tries = TRIES;
        }
        false
    }

    /// Returns what is known, with these users.
    pub(crate) fn known(&mut self, users: gpumem_channel::StringId) -> Outside {
        self.outside.users = users;
        self.outside
    }
}
