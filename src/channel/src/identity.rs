//! The identity of the publishing process: read from the kernel once, and packed into the header's identity words.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;

use rustix::time::{ClockId, clock_gettime};

use crate::format::IDENTITY_WORDS;
use crate::options::{Options, Ranks};
use crate::snapshot::Identity;
use crate::text;

// Word offsets inside the identity.
const PID: usize = 0;
const START_TIME: usize = 1;
const BOOT_ID: usize = 2;
const PID_NAMESPACE: usize = 4;
const CREATED_REALTIME: usize = 5;
const CREATED_MONOTONIC: usize = 6;
/// Rank, local rank, world size: value + 1, 0 when not set.
const RANKS: usize = 7;
const PROGRAM: usize = 10;
const JOB: usize = 20;
const TEXT_WORDS: usize = 9;

/// Returns the time of `clock` in nanoseconds.
pub(crate) fn now(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    (time.tv_sec as u64)
        .wrapping_mul(1_000_000_000)
        .wrapping_add(time.tv_nsec as u64)
}

/// Converts a time of the publisher's `CLOCK_MONOTONIC` into nanoseconds since 1970.
pub(crate) fn realtime_of(publisher: &Identity, moment: u64) -> Option<u64> {
    // Event times are those of the kernel's tick, and may be slightly before the exact time of creation.
    let since_creation = moment.saturating_sub(publisher.created_monotonic);
    let by_its_clock = publisher.created_realtime.checked_add(since_creation)?;
    if !may_be_of_this_boot(publisher) {
        return Some(by_its_clock);
    }
    // `CLOCK_MONOTONIC` stops while the machine sleeps, and the realtime clock may be set. So the time since the moment
    // is more reliable than the time before it.
    let since = now(ClockId::Monotonic).saturating_sub(moment);
    let by_ours = now(ClockId::Realtime).saturating_sub(since);
    Some(by_its_clock.max(by_ours))
}

/// Reads the identity of a process; of this one if none is named.
pub(crate) fn of_process(options: &Options) -> io::Result<Identity> {
    let (pid, program, job) = (options.process, options.program.as_deref(), &options.job);
    let ranks = options.ranks.unwrap_or_else(Ranks::of_environment);
    let folder = pid.map_or("/proc/self".to_owned(), |pid| format!("/proc/{pid}"));
    let own_name = || {
        let path = std::env::current_exe().ok()?;
        Some(path.file_name()?.to_string_lossy().into_owned())
    };
    Ok(Identity {
        pid: pid.unwrap_or_else(std::process::id),
        // The name in it is truncated to 15 bytes, which may split a character.
        start_time: start_time(&String::from_utf8_lossy(&fs::read(format!("{folder}/stat"))?))
            .ok_or(io::ErrorKind::InvalidData)?,
        boot_id: boot_id().unwrap_or(UNKNOWN_BOOT),
        pid_namespace: fs::metadata(format!("{folder}/ns/pid"))?.ino(),
        uid: rustix::process::geteuid().as_raw(),
        created_realtime: now(ClockId::Realtime),
        created_monotonic: now(ClockId::Monotonic),
        program: program.map(str::to_owned).or_else(own_name).unwrap_or_default(),
        job: job.clone(),
        rank: ranks.rank,
        local_rank: ranks.local_rank,
        world_size: ranks.world_size,
    })
}

/// Returns field 22 of `/proc/PID/stat`. The name before it may contain spaces and parentheses, so counting starts at
/// the last `)`.
pub(crate) fn start_time(stat: &str) -> Option<u64> {
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(19)?.parse().ok()
}

/// The boot id if it cannot be read: the `/proc` of sandboxed services may show processes only (`subset=pid`).
const UNKNOWN_BOOT: [u8; 16] = [0; 16];

/// Whether a file can be of this boot of the machine. If its publisher or this process does not know the boot id, only
/// the file's lock tells whether the publisher lives.
pub(crate) fn may_be_of_this_boot(identity: &Identity) -> bool {
    identity.boot_id == UNKNOWN_BOOT || boot_id().map_or(true, |id| id == identity.boot_id)
}

/// Reads the kernel's boot id as 16 bytes.
fn boot_id() -> io::Result<[u8; 16]> {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    let digits: String = text.trim().chars().filter(|c| *c != '-').collect();
    let id = u128::from_str_radix(&digits, 16).map_err(|_| io::ErrorKind::InvalidData)?;
    Ok(id.to_be_bytes())
}

/// Encodes the identity as words of the header.
pub(crate) fn pack(identity: &Identity) -> [u64; IDENTITY_WORDS] {
    let mut w = [0; IDENTITY_WORDS];
    w[PID] = identity.pid.into();
    w[START_TIME] = identity.start_time;
    w[BOOT_ID] = text::word(&identity.boot_id[..8]);
    w[BOOT_ID + 1] = text::word(&identity.boot_id[8..]);
    w[PID_NAMESPACE] = identity.pid_namespace;
    w[CREATED_REALTIME] = identity.created_realtime;
    w[CREATED_MONOTONIC] = identity.created_monotonic;
    for (i, rank) in [identity.rank, identity.local_rank, identity.world_size]
        .into_iter()
        .enumerate()
    {
        w[RANKS + i] = rank.map_or(0, |r| u64::from(r) + 1);
    }
    for (at, string) in [(PROGRAM, &identity.program), (JOB, &identity.job)] {
        w[at] = text::pack(string, &mut w[at + 1..][..TEXT_WORDS]) as u64;
    }
    w
}

/// Decodes the identity of a header and cleans its texts. The user is the file's owner, which no publisher can choose.
pub(crate) fn unpack(w: &[u64; IDENTITY_WORDS], uid: u32) -> Identity {
    let rank = |i: usize| w[RANKS + i].checked_sub(1).and_then(|r| u32::try_from(r).ok());
    let mut boot_id = [0; 16];
    boot_id[..8].copy_from_slice(&w[BOOT_ID].to_le_bytes());
    boot_id[8..].copy_from_slice(&w[BOOT_ID + 1].to_le_bytes());
    let string = |at: usize| text::unpack(w[at], &w[at + 1..][..TEXT_WORDS]);
    Identity {
        pid: u32::try_from(w[PID]).unwrap_or(0),
        start_time: w[START_TIME],
        boot_id,
        pid_namespace: w[PID_NAMESPACE],
        uid,
        created_realtime: w[CREATED_REALTIME],
        created_monotonic: w[CREATED_MONOTONIC],
        program: string(PROGRAM),
        job: string(JOB),
        rank: rank(0),
        local_rank: rank(1),
        world_size: rank(2),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn start_time_survives_hostile_names() {
        let stat = "7 (a) b (c)) S 1 7 7 0 -1 4194304 1 0 0 0 0 0 0 0 20 0 1 0 424242 1 1";
        assert_eq!(start_time(stat), Some(424242));
        assert_eq!(start_time("7 (a"), None);
        assert_eq!(start_time(""), None);
    }

    #[test]
    fn identity_survives_the_round_trip() {
        let identity = of_process(&Options {
            program: Some("train.py".into()),
            job: "llama".into(),
            ranks: Some(Ranks {
                rank: Some(0),
                local_rank: None,
                world_size: Some(u32::MAX - 1),
            }),
            ..Options::default()
        })
        .unwrap();
        assert_eq!((identity.rank, identity.local_rank), (Some(0), None));
        assert_eq!(unpack(&pack(&identity), identity.uid), identity);
        assert_ne!(identity.boot_id, [0; 16]);
    }
}
