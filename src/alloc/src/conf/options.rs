//! The list of options.

use super::Draft;
use super::error::{Bad, nearest};
use super::lex::{Given, Value, Word, quote};
use super::lists::{divisions, history, monitor};
use super::torch;
use crate::config::SegmentMode;
use crate::size::MID_SEGMENT;

/// Whose option it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// PyTorch's; it means what it means there.
    PyTorch,
    /// PyTorch's; it is read, has no effect and is [noted](super::Note).
    Ignored,
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
    /// What it does, or why it has no effect.
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

/// One of PyTorch's that has no effect. What PyTorch would not read is an error all the same.
const fn ignored(
    name: &'static str,
    about: &'static str,
    read: fn(&mut Draft, &Given) -> Result<(), Bad>,
) -> ConfOption {
    option(Origin::Ignored, [name, "-", "-"], about, read)
}

const PINNED: &str = "pinned host memory is not this allocator's";
const RESERVE: &str = "this allocator reserves what address space it needs";
const LOCK: &str = "what is locked during driver calls is this allocator's own affair";

/// Every option, PyTorch's first.
pub const OPTIONS: &[ConfOption] = &[
    option(
        Origin::PyTorch,
        ["max_split_size_mb", "MiB, at least 20", "no limit"],
        "Plain blocks larger than this are not split, and smaller requests do not take them. Only with plain segments, which segments:auto is then.",
        |draft, given| {
            let least = draft.shared_segment.min(20);
            draft.config.max_split_size =
                torch::mebibytes(draft, given.word()?, least)?.map(|limit| at_least_20(draft, limit));
            Ok(())
        },
    ),
    option(
        Origin::PyTorch,
        ["max_non_split_rounding_mb", "MiB, at least 20", "20"],
        "A request above max_split_size_mb, without which it has no effect, takes a block that is larger by less than this.",
        |draft, given| {
            let least = draft.shared_segment.min(20);
            let rounding = torch::mebibytes(draft, given.word()?, least)?.unwrap_or(u64::MAX);
            draft.config.max_non_split_rounding = at_least_20(draft, rounding);
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
        "Plain segments that have been idle for long are given back before new memory is taken while more than this part of the budget is reserved. Without a budget it has no effect; only with plain segments, which segments:auto is then.",
        |draft, given| {
            let expected = "a number above 0 and below 1";
            let part = torch::decimal(draft, given.word()?, expected)?;
            if !(part > 0.0 && part < 1.0) {
                return Err(given.word()?.not(expected));
            }
            draft.config.garbage_collection_threshold = Some(part);
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
        |draft, given| {
            let expected = "a number above 0 and at most 1";
            let part = torch::decimal(draft, given.word()?, expected)?;
            if !(0.0..=1.0).contains(&part) {
                return Err(given.word()?.not(expected));
            }
            if part == 0.0 {
                draft.note("no effect: 0 would leave no memory");
            }
            draft.config.budget_fraction = Some(part).filter(|part| *part > 0.0);
            Ok(())
        },
    ),
    option(
        Origin::PyTorch,
        ["backend", "native or cudaMallocAsync", "native"],
        "cudaMallocAsync has no effect: the driver's own pool is another allocator.",
        |draft, given| {
            let is_async = given.word()?.one_of(&[("native", false), ("cudaMallocAsync", true)])?;
            if is_async {
                draft.note("cudaMallocAsync has no effect: the driver's own pool is another allocator");
            }
            Ok(())
        },
    ),
    option(
        Origin::PyTorch,
        ["large_segment_size_mb", "MiB, more than 10", "20"],
        "The segments that requests of 1 to 10 MiB share. They are always of 20 MiB here: another size has no effect.",
        |draft, given| {
            let mib = torch::number(draft, given.word()?, "a whole number of MiB")?;
            if mib <= 10 {
                return Err(given.word()?.bad(format!("must be more than 10, not {mib}")));
            }
            if mib != 20 {
                draft.note("no effect: the segments that requests of 1 to 10 MiB share are always of 20 MiB");
            }
            draft.shared_segment = mib;
            Ok(())
        },
    ),
    ignored("release_lock_on_cudamalloc", LOCK, boolean),
    ignored("release_lock_on_hipmalloc", LOCK, boolean),
    ignored(
        "throw_on_cudamalloc_oom",
        "what a budget has no room for is never asked of the driver",
        boolean,
    ),
    ignored("pinned_use_cuda_host_register", PINNED, boolean),
    ignored("pinned_use_hip_host_register", PINNED, boolean),
    ignored("pinned_num_register_threads", PINNED, |draft, given| {
        let expected = "a power of two, at most 128";
        let threads = torch::number(draft, given.word()?, expected)?;
        match threads.is_power_of_two() && threads <= 128 {
            true => ineffective(draft),
            false => Err(given.word()?.not(expected)),
        }
    }),
    ignored("pinned_use_background_threads", PINNED, boolean),
    ignored(
        "pinned_reserve_segment_size_mb",
        PINNED,
        |draft, given| match torch::number(draft, given.word()?, "a whole number of MiB")? {
            0 => Err(given.word()?.bad("must be at least 1, not 0".to_owned())),
            _ => ineffective(draft),
        },
    ),
    ignored("pinned_max_round_threshold_mb", PINNED, number),
    ignored("pinned_max_cached_size_mb", PINNED, number),
    ignored("pinned_free_catch_all", PINNED, boolean),
    // Of what these two cannot use PyTorch only warns.
    ignored("expandable_segments_reserve", RESERVE, |draft, given| {
        given.word()?;
        ineffective(draft)
    }),
    ignored(
        "expandable_segments_reserve_by_class",
        RESERVE,
        |draft, given| match &given.value {
            Value::List(_) => ineffective(draft),
            Value::Word(word) => Err(word.not("a list")),
        },
    ),
    ignored(
        "graph_capture_record_stream_reuse",
        "memory that other streams use waits for the end of a capture",
        boolean,
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
        |draft, given| {
            draft.config.budget_fraction = Some(given.fraction(true)?);
            Ok(())
        },
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
        ["cross_stream_reuse", "on or off", "off"],
        "Whether what one stream has freed may serve another one before the device was waited for. It saves memory where several streams take turns. A program breaks by it that frees a block of stream A while stream B still reads it, and has A wait for B only before A allocates again: a third stream may get the block meanwhile. Off, as in PyTorch, such a program is right. For PyTorch, CuPy, RMM and C it needs a driver for CUDA 12.5, and no graph may be captured by other means than PyTorch's.",
        |draft, given| {
            draft.config.cross_stream_reuse = given.word()?.one_of(&[("on", true), ("off", false)])?;
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
pub(super) fn find(name: &Word) -> Result<&'static ConfOption, Bad> {
    if let Some(option) = OPTIONS.iter().find(|option| option.name == name.text) {
        return Ok(option);
    }
    let meant = match meant(&name.text) {
        Some(meant) => format!("did you mean {meant}?"),
        None => "`gpumem-tui replay --conf help` lists the options".to_owned(),
    };
    Err(name.bad(format!("there is no option {}: {meant}", quote(&name.written))))
}

/// The option that a name is probably of, whose case is not looked at.
pub(super) fn meant(name: &str) -> Option<&'static str> {
    nearest(&name.to_ascii_lowercase(), OPTIONS.iter().map(|option| option.name))
}

fn ineffective(draft: &mut Draft) -> Result<(), Bad> {
    draft.note(format!("no effect: {}", draft.reading.about));
    Ok(())
}

fn boolean(draft: &mut Draft, given: &Given) -> Result<(), Bad> {
    given.word()?.boolean()?;
    ineffective(draft)
}

fn number(draft: &mut Draft, given: &Given) -> Result<(), Bad> {
    torch::number(draft, given.word()?, "a whole number of MiB")?;
    ineffective(draft)
}

/// A size that PyTorch takes from large_segment_size_mb on.
fn at_least_20(draft: &mut Draft, bytes: u64) -> u64 {
    if bytes < MID_SEGMENT {
        draft.note("is 20 here, the size of the segments that requests of 1 to 10 MiB share");
    }
    bytes.max(MID_SEGMENT)
}
