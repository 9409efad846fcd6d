//! Serving engines: what they plan with, and what they could not have.

use std::sync::LazyLock;

use gpumem_text::units::bytes as text;
use regex::{Captures, Regex};

use super::Strength::{Specific, Warning};
use super::{A, Around, Judged, V, by_request, count, diagnosed, judged, size};
use crate::pytorch::Figures;
use crate::text::{SIZE, bytes, pattern};

pub(super) fn vllm(found: &Captures<'_>, around: &Around<'_>) -> Option<Judged> {
    let [total, wanted] = [2, 5].map(|at| size(found, at));
    let free = bytes(&found[1], &found[3]);
    let mut judged = judged(
        Specific,
        A::Device,
        V::Budget,
        format!(
            "vLLM wants {} of {} (utilisation {}), and only {} were free when it started: others have the rest",
            text(wanted.unwrap_or(0)),
            text(total.unwrap_or(0)),
            &found[4],
            text(free.unwrap_or(0))
        ),
    );
    (judged.figures.free, judged.figures.total, judged.figures.requested) = (free, total, wanted);
    if SHARED.is_match(around.before) {
        judged.verdict = V::UnifiedMemory;
        judged.why = format!(
            "{}. On this board CPU and GPU share their memory, and CUDA's free leaves out what the page cache has",
            judged.why
        );
    } else if wanted > total {
        judged.why = format!(
            "vLLM wants {}, more than the device has ({})",
            text(wanted.unwrap_or(0)),
            text(total.unwrap_or(0))
        );
    }
    Some(judged)
}

/// Boards on which CPU and GPU share their memory.
static SHARED: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"gb10|dgxspark|jetson|tegra|nvidiathor|agxthor|agxorin|orinnx"));

static VRAM: LazyLock<Regex> = LazyLock::new(|| pattern(r"vram:(\d+)mib|(\d+)mibfree"));
static BUFFERS: LazyLock<Regex> = LazyLock::new(|| pattern(&format!(r"(?:cuda|rocm)\d*\w*buffersize={SIZE}")));
static OLLAMA: LazyLock<Regex> = LazyLock::new(|| {
    pattern(&format!(
        r"memory\.available=[\\\x22']*\[?{SIZE}[^{{}}]{{0,400}}?memory\.required"
    ))
});

pub(super) fn llama(found: &Captures<'_>, around: &Around<'_>) -> Option<Judged> {
    let requested = size(found, 1);
    // The device's memory, or what was free when the model began to load.
    let room = VRAM.captures_iter(around.before).last();
    let vram = room.and_then(|found| bytes(found.get(1).or(found.get(2))?.as_str(), "mib"));
    let buffers = BUFFERS.captures_iter(around.before).filter_map(|found| size(&found, 1));
    let held = buffers.fold(0, u64::saturating_add);
    if let (Some(asked), Some(vram)) = (requested, vram)
        && asked > vram
    {
        let figures = Figures {
            requested,
            total: Some(vram),
            ..Figures::default()
        };
        return Some(diagnosed(figures));
    }
    if let (Some(asked), Some(vram)) = (requested, vram)
        && held > 0
        && asked.saturating_add(held) > vram
    {
        let why = format!(
            "the model has {} of {} already, and {} more were asked for",
            text(held),
            text(vram),
            text(asked)
        );
        let mut judged = judged(Specific, A::Device, V::Exhausted, why);
        (judged.figures.requested, judged.figures.total, judged.figures.allocated) =
            (requested, Some(vram), Some(held));
        return Some(judged);
    }
    if OLLAMA.is_match(around.before) {
        let why = format!(
            "{} on device {} did not fit, though the estimate before said that it would",
            text(requested.unwrap_or(0)),
            &found[3]
        );
        let mut judged = judged(Specific, A::Device, V::Budget, why);
        judged.figures.requested = requested;
        return Some(judged);
    }
    Some(by_request(requested))
}

pub(super) fn tensorrt(found: &Captures<'_>, around: &Around<'_>) -> Option<Judged> {
    let near = |text: &str| text.contains("skippingtactic") || text.contains("tacticskipped");
    if near(around.after.get(..400).unwrap_or(around.after))
        || near(
            around
                .before
                .get(around.before.len().saturating_sub(200)..)
                .unwrap_or(""),
        )
    {
        return Some(judged(
            Warning,
            A::None,
            V::Warning,
            "the builder skips what does not fit, and goes on",
        ));
    }
    Some(by_request(count(found, 1).or_else(|| count(found, 2))))
}
