//! Frames that the program names: what an interpreter runs has no addresses.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::sync::Arc;

use super::StackFrame;
use super::table::Stack;
use crate::callback::Callback;
use crate::lock::Shared;

/// In the number of a named frame, and in no address that a program runs at.
const NAMED: u64 = 1 << 63;
/// All frames for which there was no room.
const OTHER: u64 = NAMED | u32::MAX as u64;
/// Room for them: programs have thousands of places, with names of 100 bytes.
const MOST_BYTES: usize = 16 << 20;
/// What one takes beside its names.
const FRAME_BYTES: usize = 128;

/// What tells the frames that the calling thread is in, innermost first: it fills in their [numbers](Stack::name_frame), and how many it
/// filled in: with none the stack is [`NONE`](Stack::NONE). `None`: it cannot tell, and addresses are taken.
pub type StackSource = Box<dyn Fn(&mut [u64]) -> Option<usize> + Send + Sync>;

struct Table {
    frames: Vec<Arc<StackFrame>>,
    numbers: HashMap<Arc<StackFrame>, u64, BuildHasherDefault<DefaultHasher>>,
    bytes: usize,
}

// Made by the compiler: a child that is forked while a thread makes it would wait for that thread for ever.
static TABLE: Shared<Table> = Shared::new(Table {
    frames: Vec::new(),
    numbers: HashMap::with_hasher(BuildHasherDefault::new()),
    bytes: 0,
});
static SOURCE: Callback<StackSource> = Callback::none();

impl Stack {
    /// The number of a frame for a [`StackSource`]: equal ones have the same. Beyond 16 MiB of them all further ones share one.
    pub fn name_frame(name: &str, file: &str, line: u32) -> u64 {
        let frame = StackFrame {
            name: name.to_owned(),
            file: (!file.is_empty()).then(|| file.to_owned()),
            line: (line > 0).then_some(line),
            cpp: false,
        };
        let Some(mut table) = TABLE.lock() else { return OTHER };
        if let Some(number) = table.numbers.get(&frame) {
            return *number;
        }
        let bytes = name.len() + file.len() + FRAME_BYTES;
        if table.bytes + bytes > MOST_BYTES {
            return OTHER;
        }
        let (number, frame) = (NAMED | table.frames.len() as u64, Arc::new(frame));
        table.bytes += bytes;
        table.frames.push(Arc::clone(&frame));
        table.numbers.insert(frame, number);
        number
    }

    /// From now on histories ask this where a thread is, and take the stack of addresses only where it cannot tell. It is called without
    /// any lock of ours, by each thread that allocates, and may wait for others that do. What it allocates itself is recorded, too, for
    /// which it is called again. `None`: addresses again.
    ///
    /// Waits until no other thread is in the one before, which is never called after that: not to be called with what that waits for. Who
    /// is in one itself does not wait.
    pub fn set_source(source: Option<StackSource>) {
        SOURCE.set(source);
    }
}

/// The frames that the source names.
pub(super) fn capture<const MOST: usize>() -> Option<Stack> {
    let mut numbers = [0; MOST];
    let count = SOURCE.call(|source| source(&mut numbers))??.min(MOST);
    // An address that it makes up is none.
    let all_named = numbers[..count].iter().all(|number| is_named(*number));
    all_named.then(|| Stack::of(&numbers[..count]))
}

pub(super) fn is_named(number: u64) -> bool {
    number & NAMED != 0
}

/// What was named by a number.
pub(super) fn named(number: u64) -> Option<StackFrame> {
    let other = || StackFrame::bare("(not kept: too many places)".to_owned());
    let found = || Some((**TABLE.lock()?.frames.get((number & !NAMED) as usize)?).clone());
    is_named(number).then(|| found().unwrap_or_else(other))
}
