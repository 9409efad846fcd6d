//! Other users' channels: what is known of each of them without having read it in full.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;

use gpumem_channel::{Found, Life, Reader};

use super::open::Open;
use super::share::{Candidate, DEVICES, choose};
use crate::model::{ChannelKey, LeftOut};

/// Channels that are not shown and are looked at again at a time: one of them may have run out of memory meanwhile.
const AGAIN: usize = 64;

/// What is known of a channel.
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
        known.look(reader);
        known
    }

    /// Of a file that fails what was known stays so.
    fn look(&mut self, reader: &mut Reader) {
        self.ran_out = self.ran_out || reader.ran_out_of_memory().unwrap_or(false);
        self.alive = reader.life().is_ok_and(|life| life == Life::Alive);
        self.devices = reader.device_count().unwrap_or(self.devices);
    }
}

/// The channels of other users.
#[derive(Default)]
pub(super) struct Others {
    known: BTreeMap<ChannelKey, Known>,
    /// The last that was looked at again.
    last: Option<ChannelKey>,
    /// What is not shown, by user, as of the last look.
    pub(super) left_out: Vec<LeftOut>,
}

impl Others {
    pub(super) fn knows(&self, key: &ChannelKey) -> bool {
        self.known.contains_key(key)
    }

    /// Forgets those that are gone.
    pub(super) fn retain(&mut self, is_there: impl Fn(&ChannelKey) -> bool) {
        self.known.retain(|key, _| is_there(key));
    }

    /// Notes one that was found.
    pub(super) fn note(&mut self, key: ChannelKey, found: Found, reader: &mut Reader) {
        self.known.insert(key, Known::of(found, reader));
    }

    /// Opens those of the known that are to be shown, as far as `room` for open files goes, and closes the others. How many had none.
    pub(super) fn share_out(&mut self, open: &mut HashMap<ChannelKey, Open>, mut room: u64) -> u64 {
        self.look_again(open);
        for (key, known) in &mut self.known {
            match open.get_mut(key).map(Open::reader) {
                Some(Some(reader)) => known.look(reader),
                // Nobody reads what is dead.
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
            // One that went, or cannot be opened now, is looked for anew with the next look.
            if let Ok(mut reader) = known.found.open() {
                reader.limit_devices(DEVICES);
                open.insert(key, Open::new(known.found.clone(), reader, Some(DEVICES)));
                room -= 1;
            }
        }
        without
    }

    /// Looks at some of those that are not open, in turn.
    fn look_again(&mut self, open: &HashMap<ChannelKey, Open>) {
        let from = self.last.map_or(Bound::Unbounded, Bound::Excluded);
        let turn = self.known.range_mut((from, Bound::Unbounded));
        let mut looked = None;
        for (key, known) in turn.filter(|(key, _)| !open.contains_key(key)).take(AGAIN) {
            if let Ok(mut reader) = known.found.open() {
                known.look(&mut reader);
            }
            looked = Some(*key);
        }
        // Behind the last of them comes the first.
        self.last = looked;
    }
}
