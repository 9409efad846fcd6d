//! `demo unified`: when managed memory moves, what that costs, and how to avoid it.
//!
//! Each topic is two steps: a question, so that a class can guess, and the answer with its numbers. On the simulated device a
//! model of the driver ([`crate::uvm`]) runs; on a GPU the same accesses are made and timed.

mod machine;
mod screen;
mod text;

use std::str::FromStr;

use clap::Args;

use crate::demo::Demo;
use crate::error::DemoError;
use crate::lab::MemoryPlan;
use crate::protocol::{Choice, Kind, Measure, Outcome, Step};
use crate::stage::{Stage, Stop};
use crate::uvm::{Access, Advice, BLOCK, Processor};
use gpumem_text::units::{MIB, bytes_to_pib, parse_bytes};
use machine::{Machine, Model, Real, measure};
use screen::Screen;
use text::{Question, answer, ratio};

use Access::{Read, Write};
use Processor::{Cpu, Gpu};

/// The most managed memory, in bytes, and the least.
const MOST: u64 = 1024 * MIB;
const LEAST: u64 = 16 * MIB;

/// How often the two processors take turns.
const ROUNDS: u64 = 3;
/// How often they take turns with a single page.
const PAGE_ROUNDS: u64 = 20;
/// How often a kernel reads what it is not read just once of.
const READS: u64 = 8;
/// How often a kernel goes over a working set.
const PASSES: u64 = 4;

/// How a working set that does not fit is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UnifiedFix {
    /// All passes over one half, then over the other.
    #[default]
    Tiles,
    /// What does not fit stays in the host's memory.
    Split,
}

impl UnifiedFix {
    /// Every fix, in the order of a list.
    pub const ALL: [UnifiedFix; 2] = [UnifiedFix::Tiles, UnifiedFix::Split];

    /// Returns the name that the command line and `fix NAME` take.
    pub fn name(self) -> &'static str {
        match self {
            UnifiedFix::Tiles => "tiles",
            UnifiedFix::Split => "split",
        }
    }

    fn title(self) -> &'static str {
        match self {
            UnifiedFix::Tiles => "all passes over one half, then over the other; needs passes that can be reordered",
            UnifiedFix::Split => {
                "keep what does not fit in the host's memory and read it over the bus; needs no change of the kernel"
            }
        }
    }
}

impl FromStr for UnifiedFix {
    type Err = String;

    fn from_str(text: &str) -> Result<UnifiedFix, String> {
        let found = UnifiedFix::ALL.into_iter().find(|fix| fix.name() == text);
        found.ok_or_else(|| format!("{text:?} is not a fix: say tiles or split"))
    }
}

/// `demo unified`, with its arguments.
#[derive(Clone, Debug, Default, Args)]
#[command(
    after_help = "--conf takes only publish, job, history and monitor here. A GPU is never asked for more memory than it has: the last steps need --device sim."
)]
pub struct Unified {
    /// Managed memory to use, at most 1G and half of what is free on a GPU [default: 256M]
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true, value_parser = |text: &str| parse_bytes(text))]
    pub size: Option<u64>,
    /// How it uses what does not fit unless another is chosen: tiles or split [default: tiles]
    #[arg(long, value_name = "FIX", default_value = "tiles", hide_default_value = true, value_parser = |text: &str| text.parse::<UnifiedFix>())]
    pub fix: UnifiedFix,
}

impl Demo for Unified {
    const NAME: &'static str = "unified";
    const SUMMARY: &'static str = "managed memory: when its pages move, what that costs, and how to avoid it";
    const KIND: Kind = Kind::Stepped;

    fn memory_plan(&self) -> MemoryPlan {
        MemoryPlan::Managed(self.size.map(|size| size.next_multiple_of(BLOCK)))
    }

    fn check(&self) -> Result<(), DemoError> {
        match self.size {
            Some(size) if !(LEAST..=MOST).contains(&size) => Err(DemoError::Argument {
                argument: "--size",
                reason: format!("say something from {} to {}", bytes_to_pib(LEAST), bytes_to_pib(MOST)),
            }),
            _ => Ok(()),
        }
    }

    fn run(&mut self, stage: &mut Stage<'_>) -> Result<Outcome, Stop> {
        let bytes = stage.lab.budget().next_multiple_of(BLOCK);
        let allocator = stage.lab.allocator().clone();
        let mut machine: Box<dyn Machine + '_> = match stage.lab.take_kernels() {
            Some(kernels) => Box::new(Real::new(kernels, &allocator, bytes, screen(stage))?),
            // Until the last topic everything fits.
            None => Box::new(Model::new(&allocator, bytes, bytes, screen(stage))?),
        };
        let simulated = machine.counters().is_some();
        stage.begin(if simulated { 13 } else { 12 }, None)?;

        let topics = [first_touch, ping_pong, prefetch, preferred_location, read_mostly];
        for (question, topic) in text::QUESTIONS.iter().zip(topics) {
            ask(stage, question, bytes)?;
            machine.begin();
            let step = topic(stage, &mut *machine, bytes)?;
            stage.done(step)?;
            stage.advance()?;
        }
        ask(stage, &text::DOES_NOT_FIT, bytes)?;
        let checked = machine.checked();
        drop(machine);
        let mut fix = None;
        // The memory lives until its last step was looked at.
        let mut _shown = None;
        if simulated {
            let (chosen, model) = does_not_fit(stage, bytes, self.fix)?;
            (fix, _shown) = (Some(chosen), Some(model));
        } else {
            stage.done(text::not_on_a_gpu())?;
        }
        stage.advance()?;
        Ok(Outcome {
            fix: fix.map(|fix| fix.name().to_owned()),
            patterns_verified: checked.map(|checked| checked.intact()),
            words_checked: checked.map_or(0, |checked| checked.words),
            steps_done: stage.steps_done,
            reserved_at_end: stage.release_all()?,
            ..Outcome::default()
        })
    }
}

/// Returns the screen of who steers the demo, if anybody does.
fn screen<'a>(stage: &Stage<'a>) -> Screen<'a> {
    Screen::new(stage.args.steer.then_some(stage.control))
}

/// Asks a question, and waits until the answer is wanted.
fn ask(stage: &mut Stage<'_>, question: &Question, bytes: u64) -> Result<(), Stop> {
    let slow_motion = (stage.lab.simulated() && stage.args.steer).then_some(screen::SLOW_MOTION);
    stage.done(question.step(bytes, slow_motion))?;
    stage.advance()?;
    stage.lab.mark(question.id);
    Ok(())
}

fn first_touch(stage: &mut Stage<'_>, machine: &mut dyn Machine, bytes: u64) -> Result<Step, DemoError> {
    let fresh = measure(machine, "the kernel touches it first", bytes, |m| {
        m.touch(Gpu, bytes, Write)
    })?;
    machine.renew()?;
    machine.touch(Cpu, bytes, Write)?;
    let after_cpu = measure(machine, "the CPU touched it before", bytes, |m| {
        m.touch(Gpu, bytes, Write)
    })?;
    machine.renew()?;
    machine.touch(Cpu, bytes, Write)?;
    let prefetched = measure(machine, "the same with a prefetch, which counts", bytes, |m| {
        m.prefetch(Gpu)?;
        m.touch(Gpu, bytes, Write)
    })?;
    let alone = measure(machine, "the kernel alone after that", bytes, |m| {
        m.touch(Gpu, bytes, Write)
    })?;
    Ok(answer(
        stage.lab.simulated(),
        "first-touch",
        format!(
            "First touch: a prefetch before it makes it {}",
            ratio(&after_cpu, &prefetched)
        ),
        "The allocation was only a range of addresses. A page appears where it is touched first. A kernel that meets a page which is \
         not there stops at it; the driver takes the GPU's faults in batches of up to 256 and serves one batch after the other. What \
         the CPU touched before has to be copied as well. The fix: cuMemPrefetchAsync to the processor that uses the memory first, \
         before it does. That populates or moves whole blocks without a fault.",
        "the pages are not on the CPU, because the last kernel has them.",
        vec![fresh, after_cpu, prefetched, alone],
    ))
}

/// Both processors write everything in turns. The memory is at the CPU before and after.
fn turns(machine: &mut dyn Machine, name: &str, bytes: u64, prefetch: bool) -> Result<Measure, DemoError> {
    machine.prefetch(Cpu)?;
    measure(machine, name, 2 * ROUNDS * bytes, |m| {
        for _ in 0..ROUNDS {
            for who in [Gpu, Cpu] {
                if prefetch {
                    m.prefetch(who)?;
                }
                m.touch(who, bytes, Write)?;
            }
        }
        Ok(())
    })
}

fn ping_pong(stage: &mut Stage<'_>, machine: &mut dyn Machine, bytes: u64) -> Result<Step, DemoError> {
    let all = turns(machine, "all of it, 3 rounds", bytes, false)?;
    let page = measure(
        machine,
        "a single page, 20 rounds",
        2 * PAGE_ROUNDS * crate::uvm::PAGE,
        |m| {
            for _ in 0..PAGE_ROUNDS {
                m.touch(Gpu, crate::uvm::PAGE, Write)?;
                m.touch(Cpu, crate::uvm::PAGE, Write)?;
            }
            Ok(())
        },
    )?;
    Ok(answer(
        stage.lab.simulated(),
        "ping-pong",
        format!("Ping-pong: every round moves {} there and back", bytes_to_pib(bytes)),
        "Each side finds the pages at the other one and faults. The CPU faults six times for 2 MiB: the driver adds neighbours \
         (4 KiB, then 60 KiB with it, up to 1020 KiB) as soon as more than 51 % of a part of the block are there, but never beyond the \
         block. A single page that bounces within 500 microseconds is thrashing: from the third time on the driver holds one side up, \
         and after ten times it pins the page in the host's memory for 150 ms, where both reach it. The next topic has the fix.",
        "bytes each way are equal, and c shows faults and the driver's prefetch as causes.",
        vec![all, page],
    ))
}

fn prefetch(stage: &mut Stage<'_>, machine: &mut dyn Machine, bytes: u64) -> Result<Step, DemoError> {
    // A page that is still pinned would spoil the comparison.
    machine.renew()?;
    let before = turns(machine, "on demand, 3 rounds", bytes, false)?;
    let after = turns(machine, "prefetched, 3 rounds", bytes, true)?;
    Ok(answer(
        stage.lab.simulated(),
        "prefetch",
        format!("Prefetch: the same bytes without a fault, {}", ratio(&before, &after)),
        "The bytes are the same, because the program still needs them on the other side. What is gone is the faults: the copy engine \
         moves 2 MiB at a time at the speed of the bus, instead of waiting for a fault, its handling and a small copy each time. \
         In a real program the prefetch also runs in a stream beside other work.",
        "bytes as before, but hardly any fault.",
        vec![before, after],
    ))
}

/// The CPU writes everything and the GPU reads it, `reads` times, in turns.
fn reading_turns(
    machine: &mut dyn Machine,
    name: &str,
    bytes: u64,
    reads: u64,
    prefetch: bool,
) -> Result<Measure, DemoError> {
    measure(machine, name, ROUNDS * (1 + reads) * bytes, |m| {
        for _ in 0..ROUNDS {
            if prefetch {
                m.prefetch(Gpu)?;
            }
            for _ in 0..reads {
                m.touch(Gpu, bytes, Read)?;
            }
            if prefetch {
                m.prefetch(Cpu)?;
            }
            m.touch(Cpu, bytes, Write)?;
        }
        Ok(())
    })
}

fn preferred_location(stage: &mut Stage<'_>, machine: &mut dyn Machine, bytes: u64) -> Result<Step, DemoError> {
    machine.prefetch(Cpu)?;
    let before = reading_turns(machine, "on demand, read once a round", bytes, 1, false)?;
    let moved = reading_turns(machine, "prefetched, read 8 times a round", bytes, READS, true)?;
    machine.advise(Advice::PreferCpu(true))?;
    let after = reading_turns(machine, "preferred at the CPU, read once a round", bytes, 1, false)?;
    let often = reading_turns(
        machine,
        "preferred at the CPU, read 8 times a round",
        bytes,
        READS,
        false,
    )?;
    machine.advise(Advice::PreferCpu(false))?;
    Ok(answer(
        stage.lab.simulated(),
        "preferred-location",
        format!(
            "Preferred location: nothing moves, {} when it is read once",
            ratio(&before, &after)
        ),
        "With cuMemAdvise (preferred location: CPU) the pages stay in the host's memory, and the GPU maps them and reads over the bus. \
         The CPU never faults, the GPU only until its mapping is there. The price: each read crosses the bus. So it is for what is \
         read about once between two writes; what is read often is better moved by a prefetch.",
        "all pages stay on the CPU, and no bytes move.",
        vec![before, after, moved, often],
    ))
}

/// Both processors read everything in turns.
fn readers(machine: &mut dyn Machine, name: &str, bytes: u64) -> Result<Measure, DemoError> {
    machine.prefetch(Cpu)?;
    measure(machine, name, 2 * ROUNDS * bytes, |m| {
        for _ in 0..ROUNDS {
            m.touch(Gpu, bytes, Read)?;
            m.touch(Cpu, bytes, Read)?;
        }
        Ok(())
    })
}

fn read_mostly(stage: &mut Stage<'_>, machine: &mut dyn Machine, bytes: u64) -> Result<Step, DemoError> {
    // A GPU keeps what it mapped under advice that was taken back: it would go on reading over the bus.
    machine.renew()?;
    // The readers check what a kernel wrote: the CPU writes only a word of each page.
    machine.touch(Gpu, bytes, Write)?;
    let before = readers(machine, "without advice, 3 rounds", bytes)?;
    machine.advise(Advice::ReadMostly(true))?;
    let after = readers(machine, "read-mostly, 3 rounds", bytes)?;
    let step = answer(
        stage.lab.simulated(),
        "read-mostly",
        format!("Read-mostly: each page is copied once, {}", ratio(&before, &after)),
        "A page normally has one place, even when both sides only read. With cuMemAdvise (read-mostly) a reader gets a copy of its own \
         and the other side keeps its page. The price: the copies take memory on both sides, and a write drops the other side's copy, \
         with a fault. So it is for weights and tables, not for what is written in every round.",
        "all pages are on the CPU although the GPU has them, too: the view cannot tell a second copy.",
        vec![before, after],
    );
    machine.advise(Advice::ReadMostly(false))?;
    Ok(step)
}

/// Makes a model whose memory is at the CPU, and whose GPU has room for `room` bytes.
fn model_at_cpu<'a>(stage: &Stage<'a>, bytes: u64, room: u64) -> Result<Model<'a>, DemoError> {
    let mut model = Model::new(stage.lab.allocator(), bytes, room, screen(stage))?;
    model.touch_part(Cpu, 0..bytes, Write);
    Ok(model)
}

/// Runs the topic that only the model has, up to the chosen fix. Returns that, and the memory as it left it.
fn does_not_fit<'a>(stage: &mut Stage<'a>, bytes: u64, default: UnifiedFix) -> Result<(UnifiedFix, Model<'a>), Stop> {
    let room = bytes / 5 * 4 / BLOCK * BLOCK;
    let passes = |name: &str, model: &mut Model<'_>| {
        measure(model, name, PASSES * bytes, |m| {
            (0..PASSES).try_for_each(|_| m.touch(Gpu, bytes, Write))
        })
    };
    let fits = passes("it fits, 4 passes", &mut model_at_cpu(stage, bytes, bytes)?)?;
    let mut model = model_at_cpu(stage, bytes, room)?;
    let thrashes = passes("it does not fit, 4 passes", &mut model)?;
    let choices = UnifiedFix::ALL.map(|fix| Choice {
        name: fix.name().into(),
        title: fix.title().into(),
        default: fix == default,
    });
    stage.done(Step {
        choices: choices.to_vec(),
        ..answer(
            true,
            "does-not-fit",
            format!("A fifth does not fit: {}", ratio(&fits, &thrashes)),
            &format!(
                "The GPU has room for {} of the {}. When it is full the driver evicts the 2 MiB block that was faulted longest ago. A \
                 kernel that goes over everything in order needs exactly that block next: so not a fifth is missed but everything, in \
                 every pass, and each block is copied out and in again. Real hardware is never asked for this: a GPU that thrashes can \
                 stall for everybody who uses it.",
                bytes_to_pib(room),
                bytes_to_pib(bytes)
            ),
            "",
            vec![fits.clone(), thrashes.clone()],
        )
    })?;
    let fix = stage.choose(default)?;
    stage.lab.mark(fix.name());
    // The old memory goes first.
    drop(model);
    let mut model = model_at_cpu(stage, bytes, room)?;
    let half = bytes / 2 / BLOCK * BLOCK;
    // The parts of which each has all its passes before the next one's turn.
    let parts = match fix {
        UnifiedFix::Tiles => [0..half, half..bytes],
        UnifiedFix::Split => {
            model.advise_part(room..bytes, Advice::PreferCpu(true));
            [0..bytes, bytes..bytes]
        }
    };
    let fixed = measure_parts(&mut model, fix, bytes, &parts);
    let why = match fix {
        UnifiedFix::Tiles => {
            "All four passes go over one half before the other one's turn. Each half fits, so each block comes in once. This needs \
             passes whose order may change: that is what tiling does in every good kernel, here with the GPU's memory as the cache."
        }
        UnifiedFix::Split => {
            "What fits stays on the GPU. The rest prefers the CPU and is accessed over the bus, in every pass, but without a fault or an \
             eviction once it is mapped. This needs no change of the kernel; it is the better the less does not fit."
        }
    };
    stage.done(answer(
        true,
        &format!("fix-{}", fix.name()),
        format!("Fix {}: {}", fix.name(), ratio(&thrashes, &fixed)),
        why,
        "",
        vec![thrashes, fixed],
    ))?;
    Ok((fix, model))
}

/// Measures all passes over one part, then over the next.
fn measure_parts(model: &mut Model<'_>, fix: UnifiedFix, bytes: u64, parts: &[std::ops::Range<u64>]) -> Measure {
    let name = format!("{}, 4 passes", fix.name());
    machine::measure_model(model, &name, PASSES * bytes, |m| {
        for part in parts {
            for _ in 0..PASSES {
                m.touch_part(Gpu, part.clone(), Write);
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fixes_are_read_by_name() {
        for fix in UnifiedFix::ALL {
            assert_eq!(fix.name().parse(), Ok(fix));
        }
        assert!("remap".parse::<UnifiedFix>().is_err());
    }
}
