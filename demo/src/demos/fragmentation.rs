//! `demo fragmentation`: free memory that no request can use, and three ways to get it back.
//!
//! The budget is exactly the memory that the eight blocks take, as on a full GPU. The allocator uses virtual segments and does
//! not release its cache by itself: by default it would, and the failure would not be seen. So the request fails for one
//! reason: no hole is large enough, and no new memory may be taken.

mod sizes;

use std::str::FromStr;

use clap::Args;

use crate::demo::Demo;
use crate::error::DemoError;
use crate::lab::{Block, Lab, MemoryPlan, Request};
use crate::pattern::Checked;
use crate::protocol::{Choice, Kind, Outcome, Step};
use crate::stage::{Stage, Stop};
use gpumem_text::units::{MIB, bytes_to_pib, count};
use sizes::GRANULARITY;

pub use sizes::Sizes;

const STEPS: u64 = 6;

/// The blocks in the order of their allocation, with `None` for freed ones.
type Blocks = Vec<Option<Block>>;

/// A way to make the large request succeed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fix {
    /// Return the cache to the driver and retry.
    Release,
    /// Join the holes by remapping.
    #[default]
    Remap,
    /// Start over with a workspace that is allocated first and reused.
    Workspace,
}

impl Fix {
    /// Every fix, in the order of a list.
    pub const ALL: [Fix; 3] = [Fix::Release, Fix::Remap, Fix::Workspace];

    /// Returns the name that the command line and `fix NAME` take.
    pub fn name(self) -> &'static str {
        match self {
            Fix::Release => "release",
            Fix::Remap => "remap",
            Fix::Workspace => "workspace",
        }
    }
}

impl FromStr for Fix {
    type Err = String;

    fn from_str(text: &str) -> Result<Fix, String> {
        let found = Fix::ALL.into_iter().find(|fix| fix.name() == text);
        found.ok_or_else(|| format!("{text:?} is not a fix: say release, remap or workspace"))
    }
}

/// `demo fragmentation`, with its arguments.
#[derive(Clone, Debug, Default, Args)]
#[command(after_help = "--conf takes only publish, job, history and monitor here.")]
pub struct Fragmentation {
    /// Which fix it applies unless another is chosen: release, remap or workspace [default: remap]
    #[arg(long, value_name = "FIX", default_value = "remap", hide_default_value = true, value_parser = |text: &str| text.parse::<Fix>())]
    pub fix: Fix,
}

impl Demo for Fragmentation {
    const NAME: &'static str = "fragmentation";
    const SUMMARY: &'static str = "free memory that no request can use, and three ways to get it back";
    const KIND: Kind = Kind::Stepped;

    fn memory_plan(&self) -> MemoryPlan {
        MemoryPlan::Full(|budget| Sizes::for_budget(budget).total())
    }

    fn run(&mut self, stage: &mut Stage<'_>) -> Result<Outcome, Stop> {
        let sizes = Sizes::for_budget(stage.lab.budget());
        let mut checked = Checked::default();
        stage.begin(STEPS, Some(sizes.map_bytes()))?;

        let mut blocks = fill(stage, &sizes)?;
        stage.advance()?;
        free_every_other(stage, &mut blocks, &sizes)?;
        stage.advance()?;
        let failed_before = request_fails(stage, &sizes, self.fix)?;
        let fix = stage.choose(self.fix)?;
        let workspace = match fix {
            Fix::Release => release(stage, &sizes)?,
            Fix::Remap => remap(stage, &sizes)?,
            Fix::Workspace => workspace(stage, &mut blocks, &sizes)?,
        };
        stage.advance()?;
        let large = request_again(stage, &sizes, workspace, fix)?;
        stage.advance()?;
        verify(stage, &blocks, large.as_ref(), &mut checked)?;
        stage.advance()?;

        let succeeded_after = large.is_some();
        drop((blocks, large));
        Ok(Outcome {
            failed_before: Some(failed_before),
            succeeded_after: Some(succeeded_after),
            fix: Some(fix.name().to_owned()),
            patterns_verified: Some(checked.intact()),
            words_checked: checked.words,
            steps_done: stage.steps_done,
            reserved_at_end: stage.release_all()?,
        })
    }
}

/// Returns a size in whole MiB, which all sizes of this demo are.
fn mib(bytes: u64) -> String {
    format!("{} MiB", bytes.div_ceil(MIB))
}

/// Reports a finished step with the map after it.
fn done(stage: &mut Stage<'_>, step: Step) -> Result<(), DemoError> {
    let map = stage.lab.map()?;
    stage.done(Step { map, ..step })
}

fn fill(stage: &mut Stage<'_>, sizes: &Sizes) -> Result<Blocks, Stop> {
    let mut blocks = Blocks::new();
    for (i, bytes) in sizes.blocks.into_iter().enumerate() {
        let _scope = gpumem_alloc::scope(if i % 2 == 0 { "kept" } else { "temporary" });
        blocks.push(Some(stage.lab.block(bytes)?));
    }
    done(
        stage,
        Step {
            id: "fill".into(),
            title: format!("Allocate eight blocks: they take {}", mib(sizes.total())),
            headline: format!("{} held, 0 MiB free: the budget is used up", mib(sizes.total())),
            summary: "Each block is filled with its own pattern, which is checked at the end.".into(),
            detail: format!(
                "{}. Rounded up to chunks of {} they take the allocator's whole budget. Each is filled with its own pattern.",
                sizes.blocks.map(bytes_to_pib).join(", "),
                bytes_to_pib(GRANULARITY),
            ),
            ..Step::default()
        },
    )?;
    Ok(blocks)
}

fn free_every_other(stage: &mut Stage<'_>, blocks: &mut Blocks, sizes: &Sizes) -> Result<(), Stop> {
    for freed in blocks.iter_mut().skip(1).step_by(2) {
        *freed = None;
    }
    let holes: Vec<String> = sizes.freed().map(bytes_to_pib).collect();
    let largest = sizes.freed().max().unwrap_or_default();
    done(
        stage,
        Step {
            id: "free-every-other".into(),
            title: format!("Free every other block: this frees {}", mib(sizes.freed().sum())),
            headline: format!("{} free, largest hole {}", mib(sizes.freed().sum()), mib(largest)),
            summary: "The blocks that stay keep the holes apart; for the driver nothing changed.".into(),
            detail: format!(
                "The holes are {}. For the driver, and for nvidia-smi, nothing changed: the memory is in the allocator's cache, still taken from the \
             driver, and split up by the blocks that stay.",
                holes.join(", ")
            ),
            ..Step::default()
        },
    )?;
    Ok(())
}

fn request_fails(stage: &mut Stage<'_>, sizes: &Sizes, default: Fix) -> Result<bool, Stop> {
    let _scope = gpumem_alloc::scope("large request");
    let outcome = stage.lab.request(sizes.request)?;
    let largest = sizes.freed().max().unwrap_or_default();
    let (title, oom) = match outcome {
        Request::Failed(oom) => ("fails", Some(oom)),
        Request::Served(_) => ("succeeds, which this demo did not expect", None),
    };
    let failed = oom.is_some();
    let choices = Fix::ALL
        .map(|fix| Choice {
            name: fix.name().into(),
            title: describe(fix).into(),
            default: fix == default,
        })
        .to_vec();
    let summary = match failed {
        true => "No hole is large enough, and the budget allows no new memory.",
        false => "",
    };
    done(
        stage,
        Step {
            id: "request-fails".into(),
            title: format!("Ask for {}: it {title}", mib(sizes.request)),
            headline: format!(
                "{} free, largest hole {}, need {}",
                mib(sizes.freed().sum()),
                mib(largest),
                mib(sizes.request)
            ),
            summary: summary.into(),
            detail: format!(
                "{} are free, but the largest hole is {}, and the budget allows no new memory from the driver. This allocator \
             is configured not to release its cache by itself.",
                bytes_to_pib(sizes.freed().sum()),
                bytes_to_pib(largest)
            ),
            oom,
            choices,
            ..Step::default()
        },
    )?;
    Ok(failed)
}

fn describe(fix: Fix) -> &'static str {
    match fix {
        Fix::Release => "return the cache to the driver and retry; needs whole free chunks or segments",
        Fix::Remap => "join the holes by remapping; no copy, needs virtual segments",
        Fix::Workspace => "start over, allocate a workspace first and reuse it; needs temporaries that take turns",
    }
}

fn release(stage: &mut Stage<'_>, sizes: &Sizes) -> Result<Option<Block>, Stop> {
    let (released, time) = stage.lab.timed(Lab::release)?;
    done(
        stage,
        Step {
            id: "fix-release".into(),
            title: format!("Release the cache: {} go back to the driver", mib(released)),
            headline: format!("{} released, need {}", mib(released), mib(sizes.request)),
            summary: "The holes have no memory any more, so the budget has room for new memory elsewhere.".into(),
            detail: format!(
                "{time}. The holes keep their addresses but have no memory behind them any more, so the budget has \
             room for {} of new memory. This works because the segment is virtual and every hole consists of whole \
             physical chunks. With plain segments (cuMemAlloc) a hole beside a live block stays pinned, and only \
             segments that are entirely free can go back; and later requests must get memory from the driver again.",
                bytes_to_pib(sizes.request),
            ),
            ..Step::default()
        },
    )?;
    Ok(None)
}

fn remap(stage: &mut Stage<'_>, sizes: &Sizes) -> Result<Option<Block>, Stop> {
    let (joined, time) = stage.lab.timed(|lab| lab.join_holes(sizes.request))?;
    done(
        stage,
        Step {
            id: "fix-remap".into(),
            title: format!("Join the holes by remapping: {} in one piece", mib(joined.contiguous)),
            headline: format!(
                "{} free, largest hole {}, need {}",
                mib(sizes.freed().sum()),
                mib(joined.contiguous),
                mib(sizes.request)
            ),
            summary: "The memory of the holes was mapped again side by side, and nothing was copied.".into(),
            detail: format!(
                "{time} for {} physical chunks ({}), which were mapped again side by side. Nothing was copied, nothing \
             went back to the driver, and the live blocks kept their addresses and contents. It needs virtual segments, \
             holes of whole chunks, and a moment in which no queued GPU work uses the holes.",
                joined.chunks_moved,
                bytes_to_pib(joined.bytes_moved),
            ),
            ..Step::default()
        },
    )?;
    Ok(None)
}

/// Runs the same program written differently: the temporaries take turns in a workspace as large as the largest request.
fn workspace(stage: &mut Stage<'_>, blocks: &mut Blocks, sizes: &Sizes) -> Result<Option<Block>, Stop> {
    blocks.clear();
    stage.lab.release()?;
    let mut workspace = {
        let _scope = gpumem_alloc::scope("workspace");
        stage.lab.block(sizes.request)?
    };
    let temporaries = &mut sizes.freed();
    for (bytes, _) in sizes.kept() {
        {
            let _scope = gpumem_alloc::scope("kept");
            blocks.push(Some(stage.lab.block(bytes)?));
        }
        if let Some(temporary) = temporaries.next() {
            stage.lab.fill_prefix(&mut workspace, temporary, temporary)?;
        }
    }
    let held = sizes.with_workspace();
    let free = stage.lab.stats().free_total;
    done(
        stage,
        Step {
            id: "fix-workspace".into(),
            title: format!("Start over with a workspace of {} allocated first", mib(sizes.request)),
            headline: format!(
                "{} held instead of {}, {} free",
                mib(held),
                mib(sizes.total()),
                mib(free)
            ),
            summary: "The temporaries took turns in the workspace, so they left no holes.".into(),
            detail: format!(
                "All blocks were freed. Then came the workspace, and beside it the four blocks that stay. The four temporaries \
             took their turns inside the workspace instead of leaving holes: {} instead of {} are held now. This needs a \
             change of the program, and temporaries that do not have to live at the same time.",
                bytes_to_pib(held),
                bytes_to_pib(sizes.total()),
            ),
            ..Step::default()
        },
    )?;
    Ok(Some(workspace))
}

fn request_again(
    stage: &mut Stage<'_>,
    sizes: &Sizes,
    workspace: Option<Block>,
    fix: Fix,
) -> Result<Option<Block>, Stop> {
    let _scope = gpumem_alloc::scope("large request");
    let request = match workspace {
        Some(mut workspace) => {
            stage.lab.fill(&mut workspace)?;
            Request::Served(workspace)
        }
        None => stage.lab.request(sizes.request)?,
    };
    let (title, summary, detail) = match (&request, fix) {
        (Request::Failed(_), _) => ("it fails again", "The fix did not help.", "The fix did not help."),
        (_, Fix::Workspace) => (
            "it is in the workspace already",
            "The workspace serves the request, so it needs no allocation.",
            "It needed no allocation at all. The workspace is filled with its own pattern again.",
        ),
        _ => (
            "it succeeds",
            "The same request succeeds, with the same blocks alive.",
            "The same request, with the same blocks alive. The large block is filled with its own pattern.",
        ),
    };
    let (large, oom) = match request {
        Request::Served(block) => (Some(block), None),
        Request::Failed(oom) => (None, Some(oom)),
    };
    done(
        stage,
        Step {
            id: "request-again".into(),
            title: format!("Ask for {} again: {title}", mib(sizes.request)),
            headline: format!(
                "{} requested: {}",
                mib(sizes.request),
                if large.is_some() { "served" } else { "failed" }
            ),
            summary: summary.into(),
            detail: detail.into(),
            oom,
            ..Step::default()
        },
    )?;
    Ok(large)
}

fn verify(
    stage: &mut Stage<'_>,
    blocks: &Blocks,
    large: Option<&Block>,
    checked: &mut Checked,
) -> Result<(), DemoError> {
    let mut now = Checked::default();
    for block in blocks.iter().flatten().chain(large) {
        now = now.and(stage.lab.check(block)?);
    }
    *checked = checked.and(now);
    let finding = match now.first {
        None => "All are intact: no block lost its memory to another.".to_owned(),
        Some(first) => format!(
            "{} differ from what was written, the first at word {first} of its block: memory was lost or shared.",
            now.mismatches
        ),
    };
    let intact = now.intact();
    done(
        stage,
        Step {
            id: "verify".into(),
            title: format!("Check the patterns: {}", if intact { "all intact" } else { "DAMAGED" }),
            headline: format!("{} words compared, {} differ", count(now.words), count(now.mismatches)),
            summary: match intact {
                true => "No block lost its memory to another.".into(),
                false => "Memory was lost or shared.".into(),
            },
            detail: format!(
                "{} words of 8 bytes were compared {}. {finding}",
                count(now.words),
                stage.lab.checker()
            ),
            verified: Some(intact),
            ..Step::default()
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fixes_are_read_by_name() {
        for fix in Fix::ALL {
            assert_eq!(fix.name().parse(), Ok(fix));
        }
        assert!("defrag".parse::<Fix>().is_err());
    }
}
