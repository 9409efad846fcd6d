//! The scenario's file: what the driver counts, queues and refuses.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::device::TOOLS;

/// Bytes of an event.
pub(crate) const ENTRY: usize = 64;
pub(crate) type Entry = [u8; ENTRY];

/// How a request ends before the driver looks at it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Refuse(u32),
    Silent,
    Fail(i32),
}

/// What happens at a moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Happening {
    /// Counters grow: bytes to GPUs, bytes to the CPU, faults of the CPU, faults of GPUs.
    Count([u64; 4]),
    Events {
        entry: Entry,
        times: u64,
        step: u64,
        held: bool,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    /// Time since counters or events were enabled.
    pub(crate) at: Duration,
    /// For trackers of this address space only.
    pub(crate) space: Option<u32>,
    pub(crate) what: Happening,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Scenario {
    pub(crate) lines: Vec<Line>,
    pub(crate) fates: BTreeMap<u32, Fate>,
}

pub(crate) fn path(root: &Path) -> PathBuf {
    root.join(format!("{TOOLS}.scenario"))
}

impl Scenario {
    /// Reads the file. Nothing happens in a scenario without a file.
    pub(crate) fn read(root: &Path) -> Result<Scenario, String> {
        Scenario::parse(&std::fs::read_to_string(path(root)).unwrap_or_default())
    }

    /// # Errors
    /// The first line that is not understood.
    pub(crate) fn parse(text: &str) -> Result<Scenario, String> {
        let mut scenario = Scenario::default();
        for line in text.lines() {
            let words: Vec<&str> = line.split('#').next().unwrap_or("").split_whitespace().collect();
            if !words.is_empty() {
                scenario.add(&words).ok_or_else(|| line.to_owned())?;
            }
        }
        scenario.lines.sort_by_key(|line| line.at);
        Ok(scenario)
    }

    fn add(&mut self, words: &[&str]) -> Option<()> {
        let request = || number(words.get(1)?)?.try_into().ok();
        let value = || number(words.get(2)?)?.try_into().ok();
        let fate = match words[0] {
            "refuse" => Fate::Refuse(value()?),
            "silent" => Fate::Silent,
            "fail" => Fate::Fail(value()? as i32),
            _ => {
                self.lines.push(happening(words)?);
                return Some(());
            }
        };
        self.fates.insert(request()?, fate);
        Some(())
    }
}

fn happening(mut words: &[&str]) -> Option<Line> {
    let space = words[0].strip_prefix("space=");
    if space.is_some() {
        words = &words[1..];
    }
    let (at, rest) = words.split_first()?;
    let (kind, rest) = rest.split_first()?;
    Some(Line {
        at: Duration::from_millis(number(at)?),
        space: match space {
            Some(space) => Some(number(space)?.try_into().ok()?),
            None => None,
        },
        what: match *kind {
            "count" => Happening::Count(counts(rest)?),
            "event" => events(rest)?,
            _ => return None,
        },
    })
}

fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

fn counts(words: &[&str]) -> Option<[u64; 4]> {
    let mut counts = [0; 4];
    for word in words {
        let (key, value) = word.split_once('=')?;
        let keys = ["to_gpu", "to_cpu", "cpu_faults", "gpu_faults"];
        counts[keys.iter().position(|k| *k == key)?] = number(value)?;
    }
    Some(counts)
}

/// Name, number and offset of the address of each type of event (`uvm_types.h`).
const TYPES: [(&str, u8, usize); 6] = [
    ("cpu_fault", 1, 8),
    ("migration", 2, 8),
    ("gpu_fault", 3, 8),
    ("thrashing", 10, 16),
    ("throttling", 11, 8),
    ("map_remote", 13, 8),
];

/// Returns the offset of the address in an event of a type. `None` for an unknown type.
pub(crate) fn address_at(kind: u8) -> Option<usize> {
    TYPES.iter().find(|(_, k, _)| *k == kind).map(|(_, _, at)| *at)
}

fn events(words: &[&str]) -> Option<Happening> {
    let mut entry = [0; ENTRY];
    let (mut times, mut step, mut held) = (1, 0, false);
    for word in words {
        let Some((key, value)) = word.split_once('=') else {
            match *word {
                "held" => held = true,
                name => entry[0] = TYPES.iter().find(|(n, _, _)| *n == name)?.1,
            }
            continue;
        };
        if key == "raw" {
            entry = raw(value)?;
            continue;
        }
        let value = number(value)?;
        let kind = entry[0];
        let mut put = |at: usize| entry[at..at + 8].copy_from_slice(&value.to_ne_bytes());
        match key {
            "times" => times = value,
            "step" => step = value,
            "address" => put(address_at(kind)?),
            "bytes" if kind == 2 => put(16),
            "bytes" => put(24),
            "cause" => entry[1] = value.try_into().ok()?,
            "from" => entry[2] = value.try_into().ok()?,
            "to" => entry[3] = value.try_into().ok()?,
            _ => return None,
        }
    }
    Some(Happening::Events {
        entry,
        times,
        step,
        held,
    })
}

fn raw(hex: &str) -> Option<Entry> {
    let digits: Option<Vec<u8>> = (0..ENTRY)
        .map(|n| u8::from_str_radix(hex.get(2 * n..2 * n + 2)?, 16).ok())
        .collect();
    digits?.try_into().ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn lines_are_parsed_with_their_times() {
        let text = "\
# a comment
space=3 20 count to_gpu=0x10 gpu_faults=2
10 event migration cause=4 from=1 to=0 address=0x200000 bytes=4096 times=3 step=4096 held # evicted
refuse 56 0x51
silent 60
";
        let scenario = Scenario::parse(text).unwrap();
        let mut entry = [0; ENTRY];
        entry[..4].copy_from_slice(&[2, 4, 1, 0]);
        entry[8..16].copy_from_slice(&0x20_0000u64.to_ne_bytes());
        entry[16..24].copy_from_slice(&4096u64.to_ne_bytes());
        let [events, count] = &scenario.lines[..] else {
            unreachable!()
        };
        assert_eq!(
            events.what,
            Happening::Events {
                entry,
                times: 3,
                step: 4096,
                held: true
            }
        );
        assert_eq!((count.space, count.at), (Some(3), Duration::from_millis(20)));
        assert_eq!(count.what, Happening::Count([16, 0, 0, 2]));
        assert_eq!(
            scenario.fates,
            BTreeMap::from([(56, Fate::Refuse(0x51)), (60, Fate::Silent)])
        );
    }

    #[test]
    fn an_unknown_line_is_an_error() {
        for line in [
            "x",
            "1",
            "1 count",
            "1 count to=1",
            "1 event fault",
            "1 event raw=00",
            "refuse 56",
            "space=x 1 count",
        ] {
            let understood = Scenario::parse(line).is_ok();
            assert_eq!(understood, line == "1 count", "{line}");
        }
        assert!(Scenario::parse(include_str!("../fixtures/ping-pong.scenario")).is_ok());
    }
}
