//! The reports as text, for people.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::fmt::{self, Write};

use gpumem_text::clean;
use gpumem_text::units::bytes_to_pib;

use super::{Leak, LeakReport, Owner, PeakReport};
use crate::stack::{Stack, StackFrame, Symbols};

/// Owners and frames shown in a text.
const MOST_OWNERS: usize = 12;
const MOST_FRAMES: usize = 6;

/// The frames of a stack without Rust's library, PyTorch's inner ways, and what called the program: in a Rust program that is `main`, which
/// the compiler makes and from which Rust's library calls the program's own.
fn of_the_program(frames: &[StackFrame]) -> Vec<&StackFrame> {
    let made = |at: usize| at > 0 && frames[at - 1].name.starts_with("std::rt::");
    let main = frames.iter().position(|frame| frame.name == "main");
    let end = main.map_or(frames.len(), |at| if made(at) { at } else { at + 1 });
    let own = |frame: &&StackFrame| !(frame.is_library() || frame.cpp && is_between(&frame.name));
    let shown: Vec<_> = frames[..end].iter().filter(own).collect();
    match &shown[..] {
        // Nothing that tells places apart.
        [] => frames[..end].iter().collect(),
        _ => shown,
    }
}

/// Whether a function lies in PyTorch between an operation and its memory, or between one and what implements it. There are a dozen around
/// each, which tell nothing of what wanted the memory.
fn is_between(name: &str) -> bool {
    let parts = [
        "torch::cuda::CUDAPluggableAllocator::",
        "torch::autograd::VariableType::",
        "at::(anonymous namespace)::",
        "at::detail::",
        "at::meta::",
        "c10::",
        // What takes more than is shown to read.
        "_ZN3c10",
    ];
    let makes = ["::empty", "::redispatch"].iter().any(|part| name.contains(part));
    name.starts_with("at::") && makes || parts.iter().any(|part| name.starts_with(part))
}

/// Tag and call stack, in indented lines; where others have one, that there is none.
fn place(symbols: &mut Symbols, tag: &str, stack: Stack, others: bool) -> String {
    let mut text = match tag {
        "" => "(no tag)\n".to_owned(),
        tag => format!("{}\n", clean(tag)),
    };
    if stack == Stack::OTHER {
        let _ = writeln!(text, "      {stack}");
    }
    if stack == Stack::NONE && others {
        text += "      (no call stack, as what was held before the history began)\n";
    }
    if stack == Stack::NONE || stack == Stack::OTHER {
        return text;
    }
    let frames = symbols.frames(stack);
    let frames = of_the_program(&frames);
    let more = frames.len().saturating_sub(MOST_FRAMES);
    // The last one takes no more room than to say that there is one more.
    let shown = if more == 1 { frames.len() } else { MOST_FRAMES };
    for frame in frames.iter().take(shown) {
        let _ = writeln!(text, "      {frame}");
    }
    if more > 1 {
        let _ = writeln!(text, "      ({more} more)");
    }
    text
}

/// Puts together what is shown as the same place: without line numbers two calls of one function are, or where only frames differ that are
/// not shown. Each with its place.
fn by_place<T: Clone>(all: &[T], of: impl Fn(&T) -> (&str, Stack), add: impl Fn(&mut T, &T)) -> Vec<(String, T)> {
    let mut symbols = Symbols::new();
    let mut numbers: HashMap<String, usize> = HashMap::new();
    let mut places: Vec<(String, T)> = Vec::new();
    let stacks = all.iter().any(|one| of(one).1 != Stack::NONE);
    for one in all {
        let (tag, stack) = of(one);
        let place = place(&mut symbols, tag, stack, stacks);
        match numbers.get(&place) {
            Some(number) => add(&mut places[*number].1, one),
            None => {
                numbers.insert(place.clone(), places.len());
                places.push((place, one.clone()));
            }
        }
    }
    places
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
        let (allocated, reserved) = (bytes_to_pib(self.allocated), bytes_to_pib(self.reserved));
        let ago = self.ago.as_secs_f64();
        writeln!(f, "peak: {allocated} held, {reserved} reserved, {ago:.1} s ago")?;
        let add = |owner: &mut Owner, other: &Owner| {
            owner.bytes += other.bytes;
            owner.blocks += other.blocks;
        };
        let mut owners = by_place(&self.owners, |owner| (&owner.tag, owner.stack), add);
        owners.sort_by_key(|(_, owner)| Reverse(owner.bytes));
        for (place, owner) in owners.iter().take(MOST_OWNERS) {
            let share = owner.bytes as f64 * 100.0 / self.allocated.max(1) as f64;
            let (bytes, blocks) = (bytes_to_pib(owner.bytes), blocks(owner.blocks));
            write!(f, "{share:5.1} %  {bytes:>10}  {blocks:>12}  {place}")?;
        }
        let rest = owners.get(MOST_OWNERS..).unwrap_or_default();
        if !rest.is_empty() {
            let bytes: u64 = rest.iter().map(|(_, owner)| owner.bytes).sum();
            writeln!(f, "and {} in {} more places", bytes_to_pib(bytes), rest.len())?;
        }
        Ok(())
    }
}

impl Leak {
    /// What another place holds that looks the same counts here, too.
    fn add(&mut self, other: &Leak) {
        self.blocks += other.blocks;
        self.bytes += other.bytes;
        self.held_blocks += other.held_blocks;
        self.held_bytes += other.held_bytes;
        self.oldest_step = self.oldest_step.min(other.oldest_step);
        self.growth_per_step = match (self.growth_per_step, other.growth_per_step) {
            (Some(one), Some(more)) => Some(one.saturating_add(more)),
            (one, more) => one.or(more),
        };
        self.grows |= other.grows;
    }
}

/// What outlived the steps, and if it is more what the place holds now.
impl fmt::Display for Leak {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.growth_per_step {
            Some(bytes) if self.grows => write!(f, "GROWS {} a step", bytes_to_pib(bytes.unsigned_abs()))?,
            Some(_) => f.write_str("stays")?,
            None => f.write_str("too few steps to tell")?,
        }
        write!(f, ": {}, {}", bytes_to_pib(self.bytes), blocks(self.blocks))?;
        match self.oldest_step {
            0 => f.write_str(", from before")?,
            step => write!(f, ", from step {step} on")?,
        }
        if self.held_blocks > self.blocks {
            write!(
                f,
                "; now {}, {}",
                bytes_to_pib(self.held_bytes),
                blocks(self.held_blocks)
            )?;
        }
        Ok(())
    }
}

/// What grows first, then what stays.
impl fmt::Display for LeakReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LeakReport { steps, min_steps, .. } = self;
        writeln!(f, "held for {min_steps} or more of {steps} steps:")?;
        let mut leaks = by_place(&self.leaks, |leak| (&leak.tag, leak.stack), Leak::add);
        let order = |leak: &Leak| match leak.grows {
            true => (true, leak.growth_per_step, leak.bytes),
            false => (false, None, leak.bytes),
        };
        leaks.sort_by_key(|(_, leak)| Reverse(order(leak)));
        for (place, leak) in leaks.iter().take(MOST_OWNERS) {
            write!(f, "{leak}  {place}")?;
        }
        match leaks.len().saturating_sub(MOST_OWNERS) {
            0 if leaks.is_empty() => writeln!(f, "nothing"),
            0 => Ok(()),
            more => writeln!(f, "and {more} more places"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(names: &[&str]) -> Vec<String> {
        shown_of(names, false)
    }

    fn shown_of(names: &[&str], cpp: bool) -> Vec<String> {
        let frame = |name: &&str| StackFrame {
            name: (*name).to_owned(),
            file: None,
            line: None,
            cpp,
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

    /// PyTorch 2.11 on an H100: a backward pass of linear layers.
    #[test]
    fn of_pytorch_the_operations_are_shown() {
        let product = [
            "torch::cuda::CUDAPluggableAllocator::CUDAPluggableAllocator::malloc",
            "torch::cuda::CUDAPluggableAllocator::CUDAPluggableAllocator::allocate",
            "at::detail::empty_generic",
            "at::detail::empty_cuda",
            "at::(anonymous namespace)::create_out",
            "at::(anonymous namespace)::structured_mm_out_cuda_functional::set_output_raw_strided",
            "at::meta::structured_mm::meta",
            "c10::impl::wrap_kernel_functor_unboxed_<c10::impl::detail::WrapFunctionIntoFunctor_<...",
            "at::_ops::mm::redispatch",
            "torch::autograd::VariableType::(anonymous namespace)::mm",
            "at::_ops::mm::call",
            "torch::autograd::generated::details::mm_mat1_backward",
            "torch::autograd::generated::AddmmBackward0::apply",
            "torch::autograd::Node::operator()",
        ];
        assert_eq!(shown_of(&product, true), product[10..]);
        let copy = [
            "at::native::empty_cuda",
            "at::_ops::empty_memory_format::call",
            "at::empty_like",
            "at::native::clone",
            "at::native::(anonymous namespace)::prepare_matrix_for_cublas",
        ];
        assert_eq!(shown_of(&copy, true), copy[3..]);
        let other = [
            "std::vector<Tensor>::resize",
            "core::Engine::run",
            "app::redispatch",
            "alloc::arena",
            "main",
        ];
        assert_eq!(
            shown_of(&other, true),
            other[1..],
            "another program has names like Rust's"
        );
        assert_eq!(shown_of(&product[..9], true), product[..9], "rather than nothing");
    }

    #[test]
    fn deep_stacks_are_cut_where_that_saves_a_line() {
        let lines = |depth: u32| {
            let frames: Vec<u64> = (1..=depth).map(|line| Stack::name_frame("f", "a.py", line)).collect();
            let text = place(&mut Symbols::new(), "tag", Stack::of(&frames), false);
            (text.lines().count(), text.lines().last().map(str::to_owned))
        };
        assert_eq!(lines(6), (7, Some("      f (a.py:6)".to_owned())));
        assert_eq!(lines(7), (8, Some("      f (a.py:7)".to_owned())));
        assert_eq!(lines(8), (8, Some("      (2 more)".to_owned())));
    }

    /// A leak whose function is called at two places, each for a part of the steps, is one.
    #[test]
    fn what_looks_the_same_is_one_and_says_all_that_it_holds() {
        let leak = |blocks: u64, held_blocks: u64, oldest_step: u64, growth: i64| Leak {
            tag: "loss".to_owned(),
            stack: Stack::NONE,
            blocks,
            bytes: blocks * (3 << 20),
            held_blocks,
            held_bytes: held_blocks * (3 << 20),
            oldest_step,
            growth_per_step: Some(growth),
            grows: growth > 0,
        };
        let other = Leak {
            tag: "weights".to_owned(),
            ..leak(200, 200, 1, 0)
        };
        let report = LeakReport {
            steps: 261,
            min_steps: 130,
            leaks: vec![other, leak(116, 116, 1, 0), leak(16, 145, 85, 3 << 20)],
        };
        assert_eq!(
            report.to_string(),
            "held for 130 or more of 261 steps:\n\
             GROWS 3.0 MiB a step: 396 MiB, 132 blocks, from step 1 on; now 783 MiB, 261 blocks  loss\n\
             stays: 600 MiB, 200 blocks, from step 1 on  weights\n"
        );
    }
}
