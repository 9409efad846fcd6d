//! Other users' channels, and what is known of each without reading it in full.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;

use gpumem_channel::{Found, Life, Reader};

use super::open::Open;
use super::share::{Candidate, DEVICES, choose};
use crate::model::{ChannelKey, LeftOut};

/// How many hidden channels one scan looks at again: one of them may have run out of memory meanwhile.
const RECHECKED: usize = 64;

/// What is known of another user's channel.
struct Known {
    found: Found,
    uid: u32,
    ran_out: bool,
    alive: bool,
    bytes: u64,
    devices: usize,
}

impl Known {
    fn of(found: Found, reader: &mut Reader) -> Known {
        let mut known = Known {
            found,
            uid: reader.identity().uid,
            ran_out: false,
            alive: false,
            bytes: reader.file_len(),
            devices: 0,
        };
        known.update(reader);
        known
    }

    /// Updates what is known. A figure that cannot be read keeps its previous value.
    fn update(&mut self, reader: &mut Reader) {
        self.ran_out = self.ran_out || reader.ran_out_of_memory().unwrap_or(false);
        self.alive = reader.life().is_ok_and(|life| life == Life::Alive);
        self.devices = reader.device_count().unwrap_or(self.devices);
    }
}

/// The channels of other users.
#[derive(Default)]
pub(super) struct Others {
    known: BTreeMap<ChannelKey, Known>,
    /// The last channel that was looked at again.
    last: Option<ChannelKey>,
    /// What is not shown, by user, as of the last scan.
    pub(super) left_out: Vec<LeftOut>,
}

impl Others {
    pub(super) fn knows(&self, key: &ChannelKey) -> bool {
        self.known.contains_key(key)
    }

    /// Keeps the channels for which `is_there` holds.
    pub(super) fn retain(&mut self, is_there: impl Fn(&ChannelKey) -> bool) {
        self.known.retain(|key, _| is_there(key));
    }

    /// Adds a channel that was found.
    pub(super) fn note(&mut self, key: ChannelKey, found: Found, reader: &mut Reader) {
        self.known.insert(key, Known::of(found, reader));
    }

    /// Opens the channels that are chosen to be shown and closes the rest. At most `room` more files are opened; returns how many
    /// channels stayed closed because of that.
    pub(super) fn open_chosen(&mut self, open: &mut HashMap<ChannelKey, Open>, mut room: u64) -> u64 {
        self.recheck(open);
        for (key, known) in &mut self.known {
            match open.get_mut(key).map(Open::reader) {
                Some(Some(reader)) => known.update(reader),
                // The reader is dropped when the publisher is dead.
                Some(None) => known.alive = false,
                None => {}
            }
        }
        let candidates = self.known.iter().map(|(key, known)| Candidate {
            key: *key,
            uid: known.uid,
            ran_out: known.ran_out,
            alive: known.alive,
            shown: open.contains_key(key),
            bytes: known.bytes,
            devices: known.devices,
        });
        let (chosen, left_out) = choose(candidates.collect());
        self.left_out = left_out;
        let before = open.len();
        open.retain(|key, _| !self.known.contains_key(key) || chosen.contains(key));
        room += (before - open.len()) as u64;
        let mut without = 0;
        for key in chosen {
            let (false, Some(known)) = (open.contains_key(&key), self.known.get(&key)) else {
                continue;
            };
            if room == 0 {
                without += 1;
                continue;
            }
            // A file that is gone or cannot be opened now is tried again by the next scan.
            if let Ok(mut reader) = known.found.open() {
                reader.limit_devices(DEVICES);
                open.insert(key, Open::new(known.found.clone(), reader, Some(DEVICES)));
                room -= 1;
            }
        }
        without
    }

    /// Updates what is known of the next [`RECHECKED`] channels that are not open.
    fn recheck(&mut self, open: &HashMap<ChannelKey, Open>) {
        let from = self.last.map_or(Bound::Unbounded, Bound::Excluded);
        let turn = self.known.range_mut((from, Bound::Unbounded));
        let mut looked = None;
        for (key, known) in turn.filter(|(key, _)| !open.contains_key(key)).take(RECHECKED) {
            if let Ok(mut reader) = known.found.open() {
                known.update(&mut reader);
            }
            looked = Some(*key);
        }
        // After the last channel this is `None`, and the next scan begins with the first.
        self.last = looked;
    }
}
