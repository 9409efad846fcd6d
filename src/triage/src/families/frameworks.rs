//! Frameworks and their pools.

use std::sync::LazyLock;

use gpumem_text::units::bytes as text;
use regex::{Captures, Regex};

use super::Strength::{General, Other, Specific, Warning};
use super::{A, Around, Judged, NO_SIZES, V, by_request, count, diagnosed, judged, of_device, size};
use crate::diagnose::{LARGEST_DEVICE, diagnose};
use crate::pytorch::Figures;
use crate::text::{head, pattern};

/// C++'s error, which RMM has for the device, too.
pub(super) fn bad_alloc(found: &Captures<'_>, around: &Around<'_>) -> Option<Judged> {
    if head(around.after, 300).contains("maximumpoolsizeexceeded") {
        return None;
    }
    Some(match found.get(1) {
        Some(_) => by_request(size(found, 2)),
        None => judged(
            Specific,
            A::Host,
            V::HostMemory,
            "std::bad_alloc: host memory could not be allocated",
        ),
    })
}

/// Python's error for the host's memory. Longer words contain its name.
pub(super) fn memory_error(_: &Captures<'_>, around: &Around<'_>) -> Option<Judged> {
    let line = around.line.trim();
    let at = line.find("MemoryError")?;
    let before = line[..at].trim_end();
    let is_whole = before.is_empty() || before.ends_with([':', ']']);
    let of_device = ["bad_alloc", "device", "CUDA", "cuda"]
        .iter()
        .any(|word| line.contains(word));
    (is_whole && !of_device).then(|| {
        judged(
            Specific,
            A::Host,
            V::HostMemory,
            "Python failed to allocate host memory",
        )
    })
}

/// What containers say. An exit by SIGKILL may have another cause, which is said near it.
pub(super) fn oom_killed(_: &Captures<'_>, around: &Around<'_>) -> Option<Judged> {
    let near = [
        around
            .before
            .get(around.before.len().saturating_sub(300)..)
            .unwrap_or(""),
        head(around.after, 300),
    ]
    .concat();
    let denied = [
        "oomkilled\":false",
        "oomkilled:false",
        "oomkilled=false",
        "livenessprobe",
        "evicted",
    ];
    (!denied.iter().any(|words| near.contains(words))).then(|| {
        judged(
            Specific,
            A::Host,
            V::HostMemory,
            "the container's memory was full, and the kernel ended its process",
        )
    })
}

static CUDNN_MEMORY: LazyLock<Regex> = LazyLock::new(|| pattern(r"memoryusage:(\d+)bytesfree,(\d+)bytestotal"));

/// A library that found no room, unless the line below says that there was.
pub(super) fn cudnn_handle(_: &Captures<'_>, around: &Around<'_>) -> Option<Judged> {
    let after = CUDNN_MEMORY.captures(head(around.after, 400));
    let found = after.or_else(|| CUDNN_MEMORY.captures_iter(around.before).last());
    let (free, total) = found.map_or((None, None), |found| (count(&found, 1), count(&found, 2)));
    Some(match free {
        Some(free) if free > 1 << 30 => judged(
            Other,
            A::None,
            V::NotMemory,
            format!(
                "cuDNN could not begin with {} of {} free: its version or the driver's does not fit",
                text(free),
                text(total.unwrap_or(0))
            ),
        ),
        _ => judged(
            Specific,
            A::Device,
            V::Preallocation,
            "a library failed to allocate memory beside what the framework preallocated",
        ),
    })
}

/// CUDA.jl.
pub(super) fn julia(found: &Captures<'_>, _: &Around<'_>) -> Option<Judged> {
    let [requested, used, total, pool, reserved, held, cap] = [1, 3, 5, 7, 9, 11, 13].map(|at| size(found, at));
    let mut figures = Figures {
        requested,
        total,
        free: total.zip(used).map(|(total, used)| total.saturating_sub(used)),
        allocated: pool.or(held),
        unallocated: reserved.zip(pool).map(|(reserved, pool)| reserved.saturating_sub(pool)),
        ..Figures::default()
    };
    if let (Some(held), Some(cap), Some(asked)) = (held, cap, requested)
        && held.saturating_add(asked) > cap
    {
        figures.allowed = Some(cap);
        let why = format!(
            "the pool has {}, {} more were asked for, and it may have {}",
            text(held),
            text(asked),
            text(cap)
        );
        return Some(of_device(V::PoolLimit, why, figures));
    }
    Some(diagnosed(figures))
}

/// TensorFlow's own words for what the driver refused.
pub(super) fn driver(found: &Captures<'_>, _: &Around<'_>) -> Option<Judged> {
    Some(by_request(size(found, 1)))
}

/// What a shell says of a process that was ended by SIGKILL: the word alone, or after the number of a job.
pub(super) fn killed(_: &Captures<'_>, around: &Around<'_>) -> Option<Judged> {
    static SHELL: LazyLock<Regex> =
        LazyLock::new(|| pattern(r"^(?:Killed|.{0,60}line \d+: +\d+ Killed .*|\[\d+\][+-]? +\d* *Killed .*)$"));
    SHELL.is_match(around.line).then(|| {
        judged(
            General,
            A::Host,
            V::Incomplete,
            "somebody ended the process by SIGKILL, as the kernel does when the host's memory is full: its log says so",
        )
    })
}

/// gRPC's name for a quota is the same.
pub(super) fn resource_exhausted(_: &Captures<'_>, around: &Around<'_>) -> Option<Judged> {
    let near = head(around.after, 250);
    let of_network = [
        "quota",
        "ratelimit",
        "perminute",
        "toomanyrequests",
        "receivedmessagelargerthan",
    ];
    let is_memory = !of_network.iter().any(|word| near.contains(word));
    is_memory.then(|| judged(General, A::Device, V::Incomplete, NO_SIZES))
}

/// PyTorch on cudaMallocAsync. It says nothing of what CUDA's pool caches.
pub(super) fn asynchronous(found: &Captures<'_>, _: &Around<'_>) -> Option<Judged> {
    let [allocated, requested, total, free, allowed] = [1, 3, 5, 7, 9].map(|at| size(found, at));
    let figures = Figures {
        requested,
        total,
        free,
        allocated,
        unallocated: Some(0),
        allowed: allowed.filter(|allowed| Some(*allowed) < total),
        ..Figures::default()
    };
    Some(diagnosed(figures))
}

/// Apple's: the limit is a share of the memory that CPU and GPU share.
pub(super) fn mps(found: &Captures<'_>, _: &Around<'_>) -> Option<Judged> {
    let [allocated, other, allowed, requested] = [1, 3, 5, 7].map(|at| size(found, at));
    let why = format!(
        "{} and {} are allocated, and the process may have {} of the memory that CPU and GPU share",
        text(allocated?),
        text(other?),
        text(allowed?)
    );
    let mut judged = judged(Specific, A::Device, V::ProcessLimit, why);
    (
        judged.figures.allocated,
        judged.figures.allowed,
        judged.figures.requested,
    ) = (allocated, allowed, requested);
    Some(judged)
}

/// The end of PyTorch's message without its beginning.
pub(super) fn tail(found: &Captures<'_>, _: &Around<'_>) -> Option<Judged> {
    let mut judged = judged(
        General,
        A::Device,
        V::Incomplete,
        "the beginning of PyTorch's message is cut off: what was asked for, and what was free",
    );
    judged.figures.allocated = size(found, 1);
    Some(judged)
}

pub(super) fn hami(found: &Captures<'_>, _: &Around<'_>) -> Option<Judged> {
    let (wanted, limit) = (count(found, 1), count(found, 2));
    let why = format!(
        "used and asked for are {} together, and the layer allows {}: the card itself may have room",
        text(wanted.unwrap_or(0)),
        text(limit.unwrap_or(0))
    );
    let mut judged = judged(Specific, A::VirtualLimit, V::VirtualLimit, why);
    judged.figures.allowed = limit;
    Some(judged)
}

pub(super) fn cupy(found: &Captures<'_>, around: &Around<'_>) -> Option<Judged> {
    let [requested, allocated, limit] = [1, 2, 3].map(|at| count(found, at));
    let figures = Figures {
        requested,
        allocated,
        allowed: limit,
        ..Figures::default()
    };
    let asked = requested.unwrap_or(0);
    let held = allocated.unwrap_or(0);
    let pinned = around
        .before
        .rfind("pinned_memory")
        .is_some_and(|at| around.before.len() - at < 600);
    let (strength, allocator, verdict, why) = if pinned {
        let why = format!("{} of host memory could not be pinned", text(asked));
        (Specific, A::PinnedHost, V::PinnedMemory, why)
    } else if let Some(limit) = limit.filter(|limit| held.saturating_add(asked) > *limit) {
        let why = format!(
            "the pool has {}, {} more were asked for, and its limit is {}",
            text(held),
            text(asked),
            text(limit)
        );
        (Specific, A::Device, V::PoolLimit, why)
    } else if asked > LARGEST_DEVICE {
        let (verdict, why) = diagnose(&figures);
        (Specific, A::Device, verdict, why)
    } else if held >= asked.saturating_mul(2) && held > 1 << 30 {
        let why = format!(
            "this pool has {} of the device, and {} more were asked for",
            text(held),
            text(asked)
        );
        (Specific, A::Device, V::Exhausted, why)
    } else {
        let why = format!(
            "CuPy's pool had {} and asked for {}; what the device had and who has the rest is not in the text",
            text(held),
            text(asked)
        );
        (General, A::Device, V::Incomplete, why)
    };
    Some(Judged {
        strength,
        allocator,
        verdict,
        figures,
        why,
    })
}

static BFC_LIMIT: LazyLock<Regex> = LazyLock::new(|| pattern(r"limit:(\d+)(?:[a-z0-9_.:/\[\]-]{0,80}?)inuse:(\d+)"));
static BFC_FREE: LazyLock<Regex> = LazyLock::new(|| pattern(r"largestfreechunk:?(\d+)|maxfree:?(\d+)"));
static BFC_POOL: LazyLock<Regex> = LazyLock::new(|| {
    pattern(r"(?:total_region_allocated_bytes_|totalbytesinpool):?(\d+)memory_limit_:?(\d+)available")
});

/// The allocator of TensorFlow and JAX. It may print its state after the message.
pub(super) fn bfc(found: &Captures<'_>, around: &Around<'_>) -> Option<Judged> {
    let name = found.get(1).map_or("", |name| name.as_str());
    let requested = count(found, 4).or_else(|| size(found, 2));
    if name.contains("host") {
        let why = format!(
            "{} of pinned host memory could not be had",
            text(requested.unwrap_or(0))
        );
        return Some(judged(Specific, A::PinnedHost, V::PinnedMemory, why));
    }
    if name.contains("cpu") {
        let why = format!("{} of host memory could not be had", text(requested.unwrap_or(0)));
        return Some(judged(Specific, A::Host, V::HostMemory, why));
    }
    if around.after.contains("thisisnotafailure")
        && !around.after.contains("resource_exhausted")
        && !around.after.contains("resourceexhausted")
    {
        return Some(judged(
            Warning,
            A::None,
            V::Warning,
            "the caller says that this is no failure",
        ));
    }
    Some(pool_state(requested, around.after).unwrap_or_else(|| by_request(requested)))
}

/// Judges what an allocator prints of its state after a failure.
pub(super) fn pool_state(requested: Option<u64>, after: &str) -> Option<Judged> {
    let found = BFC_LIMIT.captures(after);
    let pool = BFC_POOL.captures(after);
    let (limit, used) = match (&found, &pool) {
        (Some(found), _) => (count(found, 1)?, count(found, 2)?),
        (None, Some(pool)) => (count(pool, 2)?, count(pool, 1)?),
        (None, None) => return None,
    };
    let asked = requested?;
    let figures = Figures {
        requested,
        allocated: Some(used),
        total: Some(limit),
        ..Figures::default()
    };
    let largest = BFC_FREE
        .captures(after)
        .and_then(|found| count(&found, 1).or_else(|| count(&found, 2)));
    let (verdict, why) = if asked > limit {
        diagnose(&figures)
    } else if asked <= limit.saturating_sub(used) && found.is_some() {
        let pieces = largest.map_or(String::new(), |largest| {
            format!(", the largest piece {}", text(largest))
        });
        let why = format!(
            "{} of {} are unused{pieces}, and {} were asked for",
            text(limit - used),
            text(limit),
            text(asked)
        );
        (V::Fragmentation, why)
    } else {
        let why = format!(
            "{} of the {} that the pool may have are in use, and {} more were asked for",
            text(used),
            text(limit),
            text(asked)
        );
        (V::PoolLimit, why)
    };
    Some(of_device(verdict, why, figures))
}

pub(super) fn jax(found: &Captures<'_>, around: &Around<'_>) -> Option<Judged> {
    let requested = size(found, 1).or_else(|| size(found, 3));
    Some(pool_state(requested, around.after).unwrap_or_else(|| by_request(requested)))
}

/// TensorFlow says the shape of what it could not have.
pub(super) fn tensor(found: &Captures<'_>, around: &Around<'_>) -> Option<Judged> {
    let element = match &found[2] {
        "double" | "int64" | "uint64" | "complex64" => 8u64,
        "half" | "bfloat16" | "int16" | "float16" => 2,
        "int8" | "uint8" | "bool" => 1,
        _ => 4,
    };
    let mut dimensions = found[1].split(',').map(|size| size.parse::<u64>().ok());
    let product = dimensions.try_fold(element, |product, size| Some(product.saturating_mul(size?)));
    if around.after.contains("device:cpu") && !around.after.contains("device:gpu") {
        return Some(judged(
            Specific,
            A::Host,
            V::HostMemory,
            "host memory could not be had for a tensor",
        ));
    }
    Some(pool_state(product, around.after).unwrap_or_else(|| by_request(product)))
}

pub(super) fn hbm(found: &Captures<'_>, _: &Around<'_>) -> Option<Judged> {
    let (needed, total) = (size(found, 1), size(found, 3));
    let why = format!(
        "the program needs {} and the device has {}",
        text(needed.unwrap_or(0)),
        text(total.unwrap_or(0))
    );
    let mut judged = judged(Specific, A::Device, V::Exhausted, why);
    judged.figures.total = total;
    Some(judged)
}

pub(super) fn paddle(found: &Captures<'_>, _: &Around<'_>) -> Option<Judged> {
    let [requested, allocated, free] = [1, 3, 5].map(|at| size(found, at));
    let (asked, held, left) = (requested.unwrap_or(0), allocated.unwrap_or(0), free.unwrap_or(0));
    let figures = Figures {
        requested,
        allocated,
        free,
        ..Figures::default()
    };
    let (verdict, why) = if asked > LARGEST_DEVICE {
        diagnose(&figures)
    } else if left > asked {
        (
            V::NotCapacity,
            format!(
                "{} were available, and a request for {} failed",
                text(left),
                text(asked)
            ),
        )
    } else if held > left {
        // The driver's count of the whole device: Paddle does not say whose it is.
        let why = format!(
            "{} of the device are in use, {} are left, and {} were asked for",
            text(held),
            text(left),
            text(asked)
        );
        (V::Exhausted, why)
    } else {
        (
            V::Incomplete,
            format!("{} were asked for and {} were left", text(asked), text(left)),
        )
    };
    Some(of_device(verdict, why, figures))
}

pub(super) fn onnx(found: &Captures<'_>, _: &Around<'_>) -> Option<Judged> {
    let (available, requested) = (count(found, 1), count(found, 2));
    let why = format!(
        "the arena had {} left of what it may take, and {} were asked for",
        text(available.unwrap_or(0)),
        text(requested.unwrap_or(0))
    );
    let mut judged = judged(Specific, A::Device, V::PoolLimit, why);
    (judged.figures.requested, judged.figures.free) = (requested, available);
    Some(judged)
}

pub(super) fn onnx_arena(found: &Captures<'_>, _: &Around<'_>) -> Option<Judged> {
    Some(by_request(count(found, 1)))
}

pub(super) fn single_limit(_: &Captures<'_>, _: &Around<'_>) -> Option<Judged> {
    Some(judged(
        Specific,
        A::Device,
        V::RequestTooLarge,
        "one request is larger than what this driver or interface allows at once, whatever is free",
    ))
}

pub(super) fn overflow(_: &Captures<'_>, _: &Around<'_>) -> Option<Judged> {
    Some(judged(
        Specific,
        A::Device,
        V::RequestTooLarge,
        "the size of the request overflows: a shape is wrong",
    ))
}

/// NVIDIA's error numbers in the kernel's log. Running out of memory has none.
pub(super) fn xid(found: &Captures<'_>, around: &Around<'_>) -> Option<Judged> {
    // Databases number their transactions by the same word.
    if !["NVRM", "PCI", "GPU", "gpu", "nvidia"]
        .iter()
        .any(|word| around.line.contains(word))
    {
        return None;
    }
    let number = &found[1];
    Some(match number {
        "48" | "64" | "74" | "79" | "92" | "95" | "119" | "120" | "140" | "143" => judged(
            Specific,
            A::None,
            V::Hardware,
            format!("Xid {number}: the GPU has to be drained and reset"),
        ),
        "63" | "94" => judged(
            Other,
            A::None,
            V::Hardware,
            format!("Xid {number}: the driver has dealt with a faulty row of memory; the program that was hit ended"),
        ),
        _ => judged(
            Other,
            A::None,
            V::NotMemory,
            format!("Xid {number} is an error of a program or of the driver, and not out of memory"),
        ),
    })
}
