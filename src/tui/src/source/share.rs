//! Limits on how many of other users' channels are shown. Root reads whatever any user puts into a channel directory, and no
//! user may make the dashboard slow or large. Our own user's channels are all shown.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashSet};

use crate::model::{ChannelKey, LeftOut};

/// Channels shown of one other user. Enough for eight programs on each of eight GPUs.
const CHANNELS: usize = 64;
/// Bytes of all shown files of one user, which are copied. The size of the largest channel.
const BYTES: u64 = 1 << 30;
/// Devices shown of one such channel. The default capacity of a channel.
pub(super) const DEVICES: usize = 16;
/// Channels shown of all other users together, since one person may control many uids.
const ALL_CHANNELS: usize = 512;

/// A channel of another user.
#[derive(Clone, Debug)]
pub(super) struct Candidate {
    pub(super) key: ChannelKey,
    pub(super) uid: u32,
    /// A request of its program failed.
    pub(super) ran_out: bool,
    pub(super) alive: bool,
    /// It is shown now. Such a channel is preferred, so that it does not vanish without a reason.
    pub(super) shown: bool,
    pub(super) bytes: u64,
    /// Number of devices that it publishes.
    pub(super) devices: usize,
}

/// Chooses the channels to show. Returns them, and what is left out by user.
///
/// Channels that ran out of memory come first, then live ones. Among equals, each user gets a first channel before any user
/// gets a second.
pub(super) fn choose(mut candidates: Vec<Candidate>) -> (HashSet<ChannelKey>, Vec<LeftOut>) {
    let rank = |c: &Candidate| (Reverse(c.ran_out), Reverse(c.alive));
    candidates.sort_by_key(|c| (rank(c), Reverse(c.shown), c.key));
    let mut taken: BTreeMap<u32, (usize, u64)> = BTreeMap::new();
    let mut fitting = Vec::new();
    for candidate in &candidates {
        let (channels, bytes) = taken.entry(candidate.uid).or_default();
        let sum = bytes.saturating_add(candidate.bytes);
        if *channels < CHANNELS && sum <= BYTES {
            fitting.push((rank(candidate), *channels, candidate));
            (*channels, *bytes) = (*channels + 1, sum);
        }
    }
    fitting.sort_by_key(|(rank, place, candidate)| (*rank, *place, candidate.uid));
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
    let is_incomplete = |user: &LeftOut| user.hidden_channels > 0 || user.hidden_devices > 0;
    (chosen, left_out.into_values().filter(is_incomplete).collect())
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
    fn user_with_a_thousand_channels_displaces_nobody() {
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
    fn out_of_memory_comes_first_then_live_then_shown() {
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
    fn devices_and_bytes_of_a_user_are_bounded() {
        let mut list = many(7, 3);
        list[0].bytes = BYTES;
        list[0].devices = 256;
        let (chosen, left_out) = choose(list);
        assert_eq!(chosen, [ChannelKey(7, 0)].into());
        assert_eq!((left_out[0].hidden_channels, left_out[0].hidden_devices), (2, 240));
        assert_eq!(choose(many(7, 64)).1, []);
    }

    #[test]
    fn many_users_share_the_total_limit() {
        let list: Vec<Candidate> = (0..1000).flat_map(|uid| many(uid, 2)).collect();
        let (chosen, left_out) = choose(list);
        assert_eq!(chosen.len(), ALL_CHANNELS);
        assert!(chosen.iter().all(|key| key.1 == 0), "no user has a second one");
        assert_eq!(
            left_out.iter().map(|user| user.hidden_channels).sum::<usize>(),
            2000 - ALL_CHANNELS
        );
    }
}
