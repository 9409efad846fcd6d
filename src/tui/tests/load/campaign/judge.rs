//! Reads a mutant in this process. The reader may refuse it or show less, but never crash, hang, or show impossible figures.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use gpumem_channel::{Reader, Snapshot};

use super::oracle::{Claim, Figures, Oracle};
use super::text::harm;

/// How long the reader may take. It needs some milliseconds on an idle machine.
const LIMIT: Duration = Duration::from_secs(2);
/// How long it takes until the reader counts as hung.
const PATIENCE: Duration = Duration::from_secs(20);

/// What the reader made of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It did not open the file.
    Refused,
    /// It opened the file, and could not read it.
    Unreadable,
    /// It reported that something in the file contradicts itself.
    Inconsistent,
    /// It believed the file.
    Sound,
}

/// A verdict, and what is wrong with it.
#[derive(Clone, Debug)]
pub(crate) struct Judged {
    pub(crate) verdict: Verdict,
    /// Devices that the reader shows, and how many of them it believes.
    pub(crate) devices: usize,
    pub(crate) sound: usize,
    pub(crate) faults: Vec<String>,
}

/// Reads a file with the reader. A panic is a fault, and so is taking too long.
pub(crate) fn judge(path: PathBuf, oracle: Option<Oracle>) -> Judged {
    let (send, receive) = mpsc::channel();
    std::thread::spawn(move || {
        let start = Instant::now();
        let mut judged = catch_unwind(AssertUnwindSafe(|| read(&path, oracle.as_ref()))).unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            failed(format!("the reader panicked: {}", text.unwrap_or_default()))
        });
        if start.elapsed() > LIMIT {
            judged.faults.push(format!("the reader took {:?}", start.elapsed()));
        }
        // The receiver is gone if it took too long.
        let _ = send.send(judged);
    });
    let hung = |_| failed(format!("the reader was not done after {PATIENCE:?}"));
    receive.recv_timeout(PATIENCE).unwrap_or_else(hung)
}

fn failed(fault: String) -> Judged {
    Judged {
        verdict: Verdict::Unreadable,
        devices: 0,
        sound: 0,
        faults: vec![fault],
    }
}

fn read(path: &Path, oracle: Option<&Oracle>) -> Judged {
    let mut judged = Judged {
        verdict: Verdict::Refused,
        devices: 0,
        sound: 0,
        faults: Vec::new(),
    };
    let mut reader = match Reader::open(path) {
        Ok(reader) => reader,
        Err(error) => {
            judged.faults.extend(harm(&error.to_string()));
            return judged;
        }
    };
    for pass in 0..2 {
        let snapshot = match reader.refresh() {
            Ok(snapshot) => snapshot,
            Err(error) => {
                judged.verdict = Verdict::Unreadable;
                judged.faults.extend(harm(&error.to_string()));
                return judged;
            }
        };
        check(&snapshot, &mut judged.faults);
        compare(&snapshot, oracle, &mut judged.faults);
        let malformed = snapshot.malformed_segments > 0;
        let devices = snapshot.devices.iter();
        let sound = devices.filter(|map| !malformed && map.stats.is_some() && map.contradiction.is_none());
        let sound = sound.count();
        if pass > 0 && (judged.devices, judged.sound) != (snapshot.devices.len(), sound) {
            judged
                .faults
                .push("reading the same file again gives another result".to_owned());
        }
        (judged.devices, judged.sound) = (snapshot.devices.len(), sound);
        judged.verdict = match sound == snapshot.devices.len() && !malformed {
            true => Verdict::Sound,
            false => Verdict::Inconsistent,
        };
        if let Err(error) = reader.events().and_then(|_| reader.glance()) {
            judged
                .faults
                .push(format!("reading the same file again fails: {error}"));
        }
    }
    judged
}

/// Checks what holds for anything that the reader returns.
fn check(snapshot: &Snapshot, faults: &mut Vec<String>) {
    for device in &snapshot.devices {
        let mut end = Some(0);
        for map in &device.segments {
            let segment = &map.segment;
            let apart = end.is_some_and(|end| segment.addr >= end) && segment.mapped <= segment.size;
            end = segment.addr.checked_add(segment.size);
            let mut at = Some(segment.addr);
            let mut tiled = true;
            for block in map.blocks.iter() {
                tiled &= at == Some(block.addr);
                let ordered = at.is_some_and(|at| block.addr >= at) && block.size > 0;
                at = block.addr.checked_add(block.size).filter(|_| ordered);
            }
            let inside = at.zip(end).is_some_and(|(at, end)| at <= end);
            if !apart || !inside || (map.complete && !(tiled && at == end)) {
                faults.push(format!("segment {} and its blocks are not in order", map.slot));
            }
        }
        faults.extend(harm(&device.device.name));
    }
    let identity = &snapshot.identity;
    for text in [&*identity.program, &*identity.job]
        .into_iter()
        .chain(snapshot.strings.iter().map(|text| &**text))
    {
        faults.extend(harm(text));
        if text.len() > 3 * 128 {
            faults.push(format!("a string of {} bytes", text.len()));
        }
    }
    if snapshot.lanes.len() > 255 || snapshot.devices.len() > 256 {
        faults.push("more lanes or devices than there can be".to_owned());
    }
}

/// Compares the reader's result with the oracle's: a sound device has exactly its figures, and one that contradicts itself has none.
fn compare(snapshot: &Snapshot, oracle: Option<&Oracle>, faults: &mut Vec<String>) {
    let Some(oracle) = oracle else { return };
    if snapshot.devices.len() > oracle.claims.len() {
        faults.push("more devices than the file has".to_owned());
    }
    for (n, (map, claim)) in snapshot.devices.iter().zip(&oracle.claims).enumerate() {
        let all = map.stats.map(|stats| stats.all());
        let shown = all.filter(|_| map.contradiction.is_none()).map(|all| Figures {
            reserved: all.reserved_bytes.current,
            allocated: all.allocated_bytes.current,
            active: all.active_bytes.current,
            requested: all.requested_bytes.current,
        });
        match (claim, shown) {
            (Claim::Contradictory(why), Some(_)) => faults.push(format!("device {n} is believed: {why}")),
            (Claim::Nothing, Some(_)) => faults.push(format!("device {n} has no figures, and some are shown")),
            (Claim::Sound(figures), Some(shown)) if *figures != shown => {
                faults.push(format!("device {n} shows {shown:?} and not {figures:?}"));
            }
            (Claim::Sound(_), None) if map.contradiction != Some("its free blocks are more than it has cached") => {
                faults.push(format!(
                    "device {n} is sound, and not believed: {:?}",
                    map.contradiction
                ));
            }
            _ => {}
        }
    }
}
