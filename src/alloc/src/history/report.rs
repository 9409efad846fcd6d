//! What the history is asked for.

use std::fmt;
use std::time::Duration;

use gpumem_channel::clean;

use crate::size::human;
use crate::stack::{Stack, StackFrame, Symbols};

/// What the history holds and takes. It counts from the moment it was switched on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct HistoryFigures {
    /// Events kept.
    pub events: u64,
    /// Events that were dropped for newer ones.
    pub dropped: u64,
    /// Blocks that the program holds.
    pub held: u64,
    /// Call stacks with tags, told apart.
    pub owners: u64,
    /// Steps that ended.
    pub steps: u64,
    /// Bytes of host memory for all that.
    pub bytes: u64,
    /// Call stacks kept by the process, for all its allocators and until its end.
    pub stacks: u64,
    /// Bytes of host memory for these.
    pub stack_bytes: u64,
}

/// Who held memory.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Owner {
    /// The scope in which it was allocated; empty for none.
    pub tag: String,
    /// Where in the program. [`Stack::NONE`] for what was held before the history began, and without stacks.
    pub stack: Stack,
    /// Bytes, after rounding.
    pub bytes: u64,
    /// Blocks.
    pub blocks: u64,
}

/// Who held the memory when the program held most, since the history was switched on: exact, whatever events were dropped.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PeakReport {
    /// How long ago; 0 if nothing was held since the history began or peaks were reset.
    pub ago: Duration,
    /// Bytes held then, after rounding: the sum over the owners.
    pub allocated: u64,
    /// Bytes taken from the driver then.
    pub reserved: u64,
    /// Who held them, most first.
    pub owners: Vec<Owner>,
}

/// Blocks that outlived some steps, from one place in the program.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Leak {
    /// The scope in which they were allocated; empty for none.
    pub tag: String,
    /// Where in the program.
    pub stack: Stack,
    /// Blocks that outlived the steps.
    pub blocks: u64,
    /// Their bytes, after rounding.
    pub bytes: u64,
    /// The step in which the oldest was allocated, from 1; 0 for what was held when the history began.
    pub oldest_step: u64,
    /// Bytes more a step of everything that this place holds, over the last 64 steps at most; `None` for fewer than 8 steps.
    pub growth_per_step: Option<i64>,
    /// Whether they grow all the time, as a leak does: the least held at the end of a step was more in each quarter of these steps
    /// than in the one before. What was allocated once and stays (weights) does not, nor what comes and goes.
    pub grows: bool,
}

/// Blocks that outlived some steps.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeakReport {
    /// Steps that ended since the history was switched on.
    pub steps: u64,
    /// Steps that a block had to outlive.
    pub min_steps: u64,
    /// Where they were allocated, most bytes first.
    pub leaks: Vec<Leak>,
}

impl LeakReport {
    /// Those that grow, the fastest first.
    pub fn suspects(&self) -> Vec<&Leak> {
        let mut grow: Vec<&Leak> = self.leaks.iter().filter(|leak| leak.grows).collect();
        grow.sort_by_key(|leak| std::cmp::Reverse(leak.growth_per_step));
        grow
    }
}

/// Owners and frames shown in a text.
const MOST_OWNERS: usize = 12;
const MOST_FRAMES: usize = 6;

/// The frames of a stack without Rust's library and what called the program: in a Rust program that is `main`, which the compiler makes
/// and from which Rust's library calls the program's own.
fn of_the_program(frames: &[StackFrame]) -> Vec<&StackFrame> {
    let made = |at: usize| at > 0 && frames[at - 1].name.starts_with("std::rt::");
    let main = frames.iter().position(|frame| frame.name == "main");
    let end = main.map_or(frames.len(), |at| if made(at) { at } else { at + 1 });
    frames[..end].iter().filter(|frame| !frame.is_library()).collect()
}

/// Tag and call stack, indented.
fn show_place(f: &mut fmt::Formatter<'_>, symbols: &mut Symbols, tag: &str, stack: Stack) -> fmt::Result {
    match tag {
        "" => writeln!(f, "  (no tag)")?,
        tag => writeln!(f, "  {}", clean(tag))?,
    }
    if stack == Stack::NONE || stack == Stack::OTHER {
        return if stack == Stack::OTHER {
            writeln!(f, "      {stack}")
        } else {
            Ok(())
        };
    }
    let frames = symbols.frames(stack);
    let frames = of_the_program(&frames);
    for frame in frames.iter().take(MOST_FRAMES) {
        writeln!(f, "      {frame}")?;
    }
    match frames.len().saturating_sub(MOST_FRAMES) {
        0 => Ok(()),
        more => writeln!(f, "      ({more} more)"),
    }
}

fn blocks(n: u64) -> String {
    format!("{n} block{}", if n == 1 { "" } else { "s" })
}

/// The largest owners with their call stacks.
impl fmt::Display for PeakReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.allocated == 0 {
            return writeln!(f, "peak: nothing was held since the history began or peaks were reset");
        }
        let (allocated, reserved) = (human(self.allocated), human(self.reserved));
        let ago = self.ago.as_secs_f64();
        writeln!(f, "peak: {allocated} held, {reserved} reserved, {ago:.1} s ago")?;
        let mut symbols = Symbols::new();
        for owner in self.owners.iter().take(MOST_OWNERS) {
            let share = owner.bytes as f64 * 100.0 / self.allocated.max(1) as f64;
            write!(
                f,
                "{share:5.1} %  {:>10}  {:>12}",
                human(owner.bytes),
                blocks(owner.blocks)
            )?;
            show_place(f, &mut symbols, &owner.tag, owner.stack)?;
        }
        let rest = self.owners.get(MOST_OWNERS..).unwrap_or_default();
        if !rest.is_empty() {
            let bytes: u64 = rest.iter().map(|owner| owner.bytes).sum();
            writeln!(f, "and {} in {} more places", human(bytes), rest.len())?;
        }
        Ok(())
    }
}

/// What grows first, then what stays.
impl fmt::Display for LeakReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LeakReport { steps, min_steps, .. } = self;
        writeln!(f, "held for {min_steps} or more of {steps} steps:")?;
        let suspects = self.suspects();
        let stays = self.leaks.iter().filter(|leak| !leak.grows);
        let shown: Vec<&Leak> = suspects.into_iter().chain(stays).collect();
        let mut symbols = Symbols::new();
        for leak in shown.iter().take(MOST_OWNERS) {
            let how = match leak.growth_per_step {
                Some(bytes) if leak.grows => format!("GROWS {} a step", human(bytes.unsigned_abs())),
                Some(_) => "stays".to_owned(),
                None => "too few steps to tell".to_owned(),
            };
            let since = match leak.oldest_step {
                0 => "from before".to_owned(),
                step => format!("from step {step} on"),
            };
            write!(f, "{how}: {}, {}, {since}", human(leak.bytes), blocks(leak.blocks))?;
            show_place(f, &mut symbols, &leak.tag, leak.stack)?;
        }
        match shown.len().saturating_sub(MOST_OWNERS) {
            0 if shown.is_empty() => writeln!(f, "nothing"),
            0 => Ok(()),
            more => writeln!(f, "and {more} more places"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(names: &[&str]) -> Vec<String> {
        let frame = |name: &&str| StackFrame {
            name: (*name).to_owned(),
            file: None,
            line: None,
        };
        let frames: Vec<StackFrame> = names.iter().map(frame).collect();
        let shown = of_the_program(&frames).into_iter();
        shown.map(|frame| frame.name.clone()).collect()
    }

    #[test]
    fn a_program_begins_at_its_own_main() {
        let rust = [
            "app::train",
            "core::iter::fold",
            "app::main",
            "std::rt::lang_start_internal",
        ];
        assert_eq!(
            shown(&[&rust[..], &["std::rt::lang_start", "main", "_start"]].concat()),
            ["app::train", "app::main"]
        );
        assert_eq!(
            shown(&["leaky", "main", "__libc_start_main", "_start"]),
            ["leaky", "main"]
        );
        assert_eq!(shown(&["main", "_start"]), ["main"]);
        assert_eq!(shown(&["worker", "clone"]), ["worker", "clone"]);
    }
}
