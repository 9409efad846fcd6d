//! The list of options.

use super::Draft;
use super::error::{Bad, ConfError, nearest};
use super::lex::{Given, Word, quote};
use super::lists::{divisions, history, monitor};
use crate::config::SegmentMode;

/// Whose option it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// PyTorch's; it means what it means there.
    PyTorch,
    /// PyTorch's; it means nothing here and is refused.
    Refused,
    /// Ours.
    Gpumem,
}

/// An option of `GPUMEM_ALLOC_CONF`.
pub struct ConfOption {
    /// Its name.
    pub name: &'static str,
    /// What it takes.
    pub values: &'static str,
    /// What holds without it.
    pub default: &'static str,
    /// What it does, or why it is refused.
    pub about: &'static str,
    /// Whose it is.
    pub origin: Origin,
    pub(super) read: fn(&mut Draft, &Given) -> Result<(), Bad>,
}

impl std::fmt::Debug for ConfOption {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("ConfOption").field(&self.name).finish()
    }
}

const fn option(
    origin: Origin,
    [name, values, default]: [&'static str; 3],
    about: &'static str,
    read: fn(&mut Draft, &Given) -> Result<(), Bad>,
) -> ConfOption {
    ConfOption {
        name,
        values,
        default,
        about,
        origin,
        read,
    }
}

/// One that is refused, whatever its value.
const fn refused(name: &'static str, about: &'static str) -> ConfOption {
    option(Origin::Refused, [name, "-", "-"], about, |_, given| {
        let refused = OPTIONS.iter().find(|option| option.name == given.name.text);
        Err(given.name.bad(refused.map_or("", |option| option.about).to_owned()))
    })
}

const RESERVE: &str = "is about address space, of which this allocator reserves what it needs: leave it out";
const PINNED: &str = "is about pinned host memory, which this allocator does not hand out: leave it out";

/// Every option, PyTorch's first.
pub const OPTIONS: &[ConfOption] = &[
    option(
        Origin::PyTorch,
        ["max_split_size_mb", "MiB, at least 20", "no limit"],
        "Plain blocks larger than this are not split, and smaller requests do not take them. Only with plain segments, which segments:auto is then.",
        |draft, given| {
            draft.config.max_split_size = Some(given.mebibytes(20)?);
            Ok(())
        },
    ),
    option(
        Origin::PyTorch,
        ["max_non_split_rounding_mb", "MiB, at least 20", "20"],
        "A request above max_split_size_mb, which has to be given, takes a block that is larger by less than this.",
        |draft, given| {
            draft.config.max_non_split_rounding = given.mebibytes(20)?;
            Ok(())
        },
    ),
    option(
        Origin::PyTorch,
        ["roundup_power2_divisions", "N, or [MiB:N,...,>:N]", "none"],
        "Sizes are rounded up to a power of two, or to one of N equal parts below the next; N is a power of two, and 1 rounds nothing. In a list each N is for sizes from its MiB to twice that, the first also for what is below, > for what is above the last.",
        divisions,
    ),
    option(
        Origin::PyTorch,
        ["garbage_collection_threshold", "above 0, below 1", "none"],
        "Plain segments that have been idle for long are given back before new memory is taken while more than this part of the budget is reserved. Needs a budget; only with plain segments, which segments:auto is then.",
        |draft, given| {
            draft.config.garbage_collection_threshold = Some(given.fraction(false)?);
            Ok(())
        },
    ),
    option(
        Origin::PyTorch,
        ["expandable_segments", "True or False", "as segments"],
        "True: segments that grow (segments:virtual), for all streams together. False: segments:plain.",
        |draft, given| {
            draft.expandable = Some((given.word()?.boolean()?, given.name.column));
            Ok(())
        },
    ),
    option(
        Origin::PyTorch,
        ["per_process_memory_fraction", "above 0, at most 1", "none"],
        "The same as budget_fraction.",
        budget_fraction,
    ),
    option(
        Origin::PyTorch,
        ["backend", "native", "native"],
        "cudaMallocAsync is refused: the driver's own pool is another allocator.",
        |_, given| match given.word()?.text.as_str() {
            "native" => Ok(()),
            "cudaMallocAsync" => Err(given
                .word()?
                .bad("is native only: the driver's own pool (cudaMallocAsync) is another allocator".to_owned())),
            _ => Err(given.word()?.not("native")),
        },
    ),
    option(
        Origin::PyTorch,
        ["release_lock_on_cudamalloc", "True or False", "-"],
        "Accepted, and without effect: what is locked during driver calls is the allocator's own affair.",
        |_, given| given.word()?.boolean().map(drop),
    ),
    option(
        Origin::PyTorch,
        ["throw_on_cudamalloc_oom", "True or False", "-"],
        "Accepted, and without effect: what a budget has no room for is never asked of the driver.",
        |_, given| given.word()?.boolean().map(drop),
    ),
    option(
        Origin::PyTorch,
        ["large_segment_size_mb", "20", "20"],
        "The segments that requests of 1 to 10 MiB share. They are always of 20 MiB here.",
        |_, given| match given.mebibytes(0)? >> 20 {
            20 => Ok(()),
            _ => Err(given.word()?.bad("is always 20 here: leave it out".to_owned())),
        },
    ),
    refused("pinned_use_cuda_host_register", PINNED),
    refused("pinned_num_register_threads", PINNED),
    refused("pinned_use_background_threads", PINNED),
    refused("pinned_reserve_segment_size_mb", PINNED),
    refused("pinned_max_round_threshold_mb", PINNED),
    refused("pinned_max_cached_size_mb", PINNED),
    refused("pinned_free_catch_all", PINNED),
    refused("expandable_segments_reserve", RESERVE),
    refused("expandable_segments_reserve_by_class", RESERVE),
    refused(
        "graph_capture_record_stream_reuse",
        "has memory that other streams use reused within a capture, by a look into the graph; here it waits for the capture's end: leave it out",
    ),
    option(
        Origin::Gpumem,
        ["segments", "auto, plain, virtual or stitched", "auto"],
        "How memory for large blocks is taken from the driver. auto is stitched, but plain where an option is for plain ones only or the device cannot map memory.",
        |draft, given| {
            draft.segments = Some(
                given
                    .word()?
                    .one_of(&SegmentMode::ALL.map(|mode| (mode.name(), mode)))?,
            );
            Ok(())
        },
    ),
    option(
        Origin::Gpumem,
        ["budget_mb", "MiB", "none"],
        "Most memory to take from the driver.",
        |draft, given| {
            draft.config.budget = Some(given.mebibytes(1)?);
            Ok(())
        },
    ),
    option(
        Origin::Gpumem,
        ["budget_fraction", "above 0, at most 1", "none"],
        "The same as a part of the device's memory; of both the smaller counts.",
        budget_fraction,
    ),
    option(
        Origin::Gpumem,
        ["max_chunk_mb", "MiB, a power of two", "64"],
        "Largest physical chunk, of virtual and stitched segments only. What is taken beyond a quarter of the device or budget has stitched chunks of about half the request at most, or 6 MiB: only whole ones serve larger requests.",
        |draft, given| {
            let bytes = given.mebibytes(1)?;
            if !bytes.is_power_of_two() {
                return Err(given.word()?.not("a power of two"));
            }
            draft.config.max_chunk = bytes;
            Ok(())
        },
    ),
    option(
        Origin::Gpumem,
        ["release_on_oom", "True or False", "True"],
        "Whether a request that does not fit gives the cache back to the driver and tries again before it fails, and a part of a full device's stitched memory goes back to others once it is cached.",
        |draft, given| {
            draft.config.release_on_oom = given.word()?.boolean()?;
            Ok(())
        },
    ),
    option(
        Origin::Gpumem,
        ["gpu_direct_rdma", "True or False", "True where the device can"],
        "Whether network cards and storage can reach the memory of virtual and stitched segments (GPUDirect RDMA, as UCX and cuFile use it), as they can that of plain ones. True is an error where the device cannot. A mapping takes 20 % longer for it.",
        |draft, given| {
            draft.config.gpu_direct_rdma = Some(given.word()?.boolean()?);
            Ok(())
        },
    ),
    option(
        Origin::Gpumem,
        ["publish", "on or off", "on"],
        "Whether the allocator can be seen in gpumem-tui.",
        |draft, given| {
            draft.publish = Some(given.word()?.one_of(&[("on", true), ("off", false)])?);
            Ok(())
        },
    ),
    option(
        Origin::Gpumem,
        ["monitor", "none, warn, release or compact, or a list", "none"],
        "A thread that warns when fragmentation is too high for too long, or then releases the cache or makes it compact (which gives whole free chunks of stitched memory back and moves none). The list's defaults: [action:warn, of:external, ratio:0.5, seconds:10, below:0.45, least_mb:256, every_ms:500]; below is 0.9 times the ratio. of:cached looks at the part of what is reserved that is free.",
        monitor,
    ),
    option(
        Origin::Gpumem,
        ["history", "on or off, or a list", "off"],
        "Whether events, call stacks and who holds what are recorded, for peaks, leaks and snapshots. The list's defaults: [events:200000, stacks:alloc]; stacks are taken for none, for alloc or for all.",
        history,
    ),
    option(
        Origin::Gpumem,
        ["job", "text", "GPUMEM_JOB"],
        "What gpumem-tui calls the program's job. No comma, colon or bracket.",
        |draft, given| {
            draft.job = Some((given.word()?.written.trim().to_owned(), given.name.column));
            Ok(())
        },
    ),
];

/// The option of a name.
pub(super) fn find(name: &Word) -> Result<&'static ConfOption, ConfError> {
    if let Some(option) = OPTIONS.iter().find(|option| option.name == name.text) {
        return Ok(option);
    }
    let names = OPTIONS.iter().filter(|option| option.origin != Origin::Refused);
    let meant = match nearest(&name.text, names.map(|option| option.name)) {
        Some(meant) => format!("did you mean {meant}?"),
        None => "`gpumem-tui replay --conf help` lists the options".to_owned(),
    };
    let reason = format!("there is no option {}: {meant}", quote(&name.written));
    Err(name.bad(reason).into_error())
}

fn budget_fraction(draft: &mut Draft, given: &Given) -> Result<(), Bad> {
    draft.config.budget_fraction = Some(given.fraction(true)?);
    Ok(())
}
