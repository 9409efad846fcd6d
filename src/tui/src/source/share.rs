//! How much of the model another user's channels may take. Root reads what any user puts where channels are: nobody may make the dashboard
//! slow or large for everybody. Our own user's channels are all shown.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashSet};

use crate::model::{ChannelKey, LeftOut};

/// Channels shown of one other user: eight programs on each of eight GPUs.
const CHANNELS: usize = 64;
/// Bytes of one user's files together, which are copied: the size of the largest channel.
const BYTES: u64 = 1 << 30;
/// Devices shown of one of these channels: a channel's default capacity.
pub(super) const DEVICES: usize = 16;
/// Channels of all other users together that are shown. Someone who controls many uids must not get a share for each.
const ALL_CHANNELS: usize = 512;

/// A channel of another user.
#[derive(Clone, Debug)]
pub(super) struct Candidate {
    pub(super) key: ChannelKey,
    pub(super) uid: u32,
    /// A request of its program failed: what somebody will ask about.
    pub(super) ran_out: bool,
    pub(super) alive: bool,
    /// It is shown now: what is looked at does not go without a reason.
    pub(super) shown: bool,
    pub(super) bytes: u64,
    /// Devices that it publishes.
    pub(super) devices: usize,
}

/// The channels to show, and what is left out, by user. Those that ran out of memory come first, then the living; among those that are
/// alike in this each user has a first one before anybody has a second.
pub(super) fn choose(mut candidates: Vec<Candidate>) -> (HashSet<ChannelKey>, Vec<LeftOut>) {
    let worth = |c: &Candidate| (Reverse(c.ran_out), Reverse(c.alive));
    candidates.sort_by_key(|c| (worth(c), Reverse(c.shown), c.key));
    let mut taken: BTreeMap<u32, (usize, u64)> = BTreeMap::new();
    let mut fitting = Vec::new();
    for candidate in &candidates {
        let (channels, bytes) = taken.entry(candidate.uid).or_default();
        let sum = bytes.saturating_add(candidate.bytes);
        if *channels < CHANNELS && sum <= BYTES {
            fitting.push((worth(candidate), *channels, candidate));
            (*channels, *bytes) = (*channels + 1, sum);
        }
    }
    fitting.sort_by_key(|(worth, place, candidate)| (*worth, *place, candidate.uid));
    let chosen: HashSet<ChannelKey> = fitting.iter().take(ALL_CHANNELS).map(|(.., c)| c.key).collect();
    let mut left_out: BTreeMap<u32, LeftOut> = BTreeMap::new();
    for candidate in &candidates {
        let user = left_out.entry(candidate.uid).or_default();
        user.uid = candidate.uid;
        user.channels += 1;
        match chosen.contains(&candidate.key) {
            true => user.hidden_devices += candidate.devices.saturating_sub(DEVICES),
            false => user.hidden_channels += 1,
        }
    }
    let something = |user: &LeftOut| user.hidden_channels > 0 || user.hidden_devices > 0;
    (chosen, left_out.into_values().filter(something).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(uid: u32, number: u64) -> Candidate {
        Candidate {
            key: ChannelKey(uid.into(), number),
            uid,
            ran_out: false,
            alive: true,
            shown: false,
            bytes: 10 << 20,
            devices: 1,
        }
    }

    fn many(uid: u32, channels: u64) -> Vec<Candidate> {
        (0..channels).map(|number| candidate(uid, number)).collect()
    }

    #[test]
    fn a_user_with_a_thousand_takes_nothing_from_another() {
        let list = [many(7, 1000), many(8, 8)].concat();
        let (chosen, left_out) = choose(list);
        assert!((0..8).all(|number| chosen.contains(&ChannelKey(8, number))));
        assert_eq!(chosen.len(), CHANNELS + 8);
        assert_eq!(left_out.len(), 1);
        let user = &left_out[0];
        assert_eq!(
            (user.uid, user.channels, user.hidden_channels, user.hidden_devices),
            (7, 1000, 936, 0)
        );
    }

    #[test]
    fn who_ran_out_of_memory_comes_first_and_then_the_living_and_the_shown() {
        let mut list = many(7, 200);
        list.iter_mut().for_each(|c| c.alive = false);
        list[199].ran_out = true;
        list[150..180].iter_mut().for_each(|c| c.alive = true);
        list[100..133].iter_mut().for_each(|c| c.shown = true);
        let (chosen, _) = choose(list);
        let mut numbers: Vec<u64> = chosen.iter().map(|key| key.1).collect();
        numbers.sort_unstable();
        let expected: Vec<u64> = (100..133).chain(150..180).chain([199]).collect();
        assert_eq!(numbers, expected);
    }

    #[test]
    fn devices_and_bytes_have_their_bounds() {
        let mut list = many(7, 3);
        list[0].bytes = BYTES;
        list[0].devices = 256;
        let (chosen, left_out) = choose(list);
        assert_eq!(chosen, [ChannelKey(7, 0)].into());
        assert_eq!((left_out[0].hidden_channels, left_out[0].hidden_devices), (2, 240));
        assert_eq!(choose(many(7, 64)).1, []);
    }

    #[test]
    fn many_users_share_what_there_is_for_all() {
        let list: Vec<Candidate> = (0..1000).flat_map(|uid| many(uid, 2)).collect();
        let (chosen, left_out) = choose(list);
        assert_eq!(chosen.len(), ALL_CHANNELS);
        assert!(chosen.iter().all(|key| key.1 == 0), "nobody has a second one");
        assert_eq!(
            left_out.iter().map(|user| user.hidden_channels).sum::<usize>(),
            2000 - ALL_CHANNELS
        );
    }
}
