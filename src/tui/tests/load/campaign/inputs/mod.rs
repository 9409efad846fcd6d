//! Inputs that are nearly real: bytes from a terminal, and files and texts that users give the program.

mod conf;
mod keys;
mod snapshots;
mod traces;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Command;
use std::time::{Duration, Instant};

use gpumem_tests::{Random, World, said};

use super::program::run;
use super::text::harm;

pub(crate) use conf::configurations;
pub(crate) use keys::terminal_bytes;
pub(crate) use snapshots::snapshots;
pub(crate) use traces::traces;

/// How long it may take to read one input.
const LIMIT: Duration = Duration::from_secs(5);
/// The program reads every this many inputs, too.
const PROGRAM: u64 = 25;
/// A recorded program.
const TRACE: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../demo/tests/data/multi_stream_2000.csv.gz"
);

/// Counts of what was seen.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) inputs: u64,
    pub(crate) read: u64,
    pub(crate) refused: u64,
    /// Inputs that the program read, too.
    pub(crate) runs: u64,
}

/// Mutates an input: changes a digit, flips a bit, inserts, removes, doubles or moves bytes, truncates it, or inserts one of `pieces`.
/// Mostly does this once, because a reader that refuses the first fault does not see the others.
fn mutate(random: &mut Random, bytes: &mut Vec<u8>, pieces: &[&[u8]]) {
    for _ in 0..1 + random.below(8) / 5 {
        let length = bytes.len() as u64;
        let at = random.below(length.max(1)) as usize;
        let end = (at + 1 + random.below(12) as usize).min(bytes.len());
        let digit = bytes.iter().skip(at).position(u8::is_ascii_digit);
        match (random.below(12), digit) {
            _ if bytes.is_empty() => bytes.push(random.any() as u8),
            (0..4, Some(more)) => bytes[at + more] = b'0' + random.below(10) as u8,
            (4, _) => bytes[at] ^= 1 << random.below(8),
            (5, _) => bytes[at] = random.any() as u8,
            (6, _) => drop(bytes.drain(at..end)),
            (7, _) => {
                let double = bytes[at..end].to_vec();
                bytes.splice(at..at, double);
            }
            (8, _) if random.below(4) == 0 => bytes.truncate(at),
            (9, _) => {
                let other = random.below(length) as usize;
                let moved = bytes[at..end].to_vec();
                bytes.splice(other..other, moved);
            }
            _ => {
                let piece = pieces[random.below(pieces.len() as u64) as usize];
                let replaced = if random.below(2) == 0 { at } else { end };
                bytes.splice(at..replaced, piece.iter().copied());
            }
        }
    }
}

/// Reads an input. Returns `None` if it was refused with a message that is safe to show. Panics with the input if `read` panics or takes
/// too long.
#[track_caller]
fn attempt<T>(input: &[u8], read: impl FnOnce() -> Result<T, String>) -> Option<T> {
    let start = Instant::now();
    let read = catch_unwind(AssertUnwindSafe(read));
    let shown = || {
        String::from_utf8_lossy(&input[..input.len().min(4096)])
            .escape_debug()
            .to_string()
    };
    assert!(start.elapsed() < LIMIT, "{:?} for {}", start.elapsed(), shown());
    match read {
        Ok(Ok(read)) => Some(read),
        Ok(Err(error)) => {
            assert_eq!(harm(&error), None, "the error for {}", shown());
            None
        }
        Err(_) => panic!("a panic for {}", shown()),
    }
}

/// Runs a command that reads an input. Checks that it ends with one of `codes`, and with a document or a message.
#[track_caller]
fn run_with(input: &[u8], command: Command, codes: &[i32]) {
    let shown = || String::from_utf8_lossy(input).escape_debug().to_string();
    let run = run(command).unwrap_or_else(|why| panic!("{why}: {}", shown()));
    let complaint = said(&run.stderr);
    let code = run.code.filter(|code| codes.contains(code));
    assert!(code.is_some(), "{:?}, {complaint}: {}", run.code, shown());
    assert_eq!(complaint.lines().find_map(harm), None, "for {}", shown());
    match code {
        Some(0) => drop(serde_json::from_slice::<serde_json::Value>(&run.stdout).unwrap()),
        _ => assert!(run.stdout.is_empty() && !complaint.is_empty(), "{}", shown()),
    }
}

/// Returns the command that replays a file on a simulated device.
fn replay(world: &World, file: &std::path::Path) -> Command {
    world.command(&[
        "replay",
        file.to_str().unwrap(),
        "--device",
        "sim",
        "--json",
        "--passes",
        "1",
    ])
}
