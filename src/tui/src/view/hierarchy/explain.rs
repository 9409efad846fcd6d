//! What a level is, in sentences, with its figures and what others published.

use gpumem_text::units::{self, bytes, nanoseconds, plural};
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::Line;

use super::ladder::{short_ns, short_rate};
use crate::model::{Hierarchy, HierarchyLevel, LevelLatency, Rung};
use crate::view::Screen;
use crate::view::theme::Ink;
use crate::wrap::wrap;

/// Returns what a level is for, in a few words.
pub(super) fn caption(rung: Rung) -> &'static str {
    match rung {
        Rung::Registers => "operands of instructions, private to a thread",
        Rung::Shared => "the kernel's own cache (__shared__), of a block",
        Rung::L1 => "what an SM loaded lately",
        Rung::L2Near => "the half of L2 beside an SM, for all SMs",
        Rung::L2Far => "the other half, across the chip",
        Rung::Device => "what cudaMalloc returns (HBM or GDDR)",
        Rung::Peer => "another GPU's memory",
        Rung::PinnedHost => "host memory that the GPU may read (cudaMallocHost)",
        Rung::PageableHost => "malloc: copied through a pinned buffer",
        Rung::Disk => "where datasets and checkpoints are",
    }
}

/// Returns four sentences about a level, and the demo or benchmark that shows it.
fn sentences(rung: Rung) -> (&'static str, &'static str) {
    match rung {
        Rung::Registers => (
            "The compiler keeps a thread's variables here. A multiply-add whose operand was just computed waits some cycles for it, so an SM \
             needs other warps, or independent instructions, to stay busy. The registers of an SM are shared out among its threads: a kernel that \
             uses many of them runs fewer threads at a time. What does not fit spills to local memory, which is device memory behind L1.",
            "gpumem-tui bench claims",
        ),
        Rung::Shared => (
            "A kernel places here what the threads of a block use together: it decides what is in it, not the hardware. It is on the SM, in the same \
             memory as L1, and as fast. It is split into 32 banks: when threads of a warp use different words of one bank, they wait for each other. \
             It ends with the block, and blocks that use much of it leave room for fewer others.",
            "gpumem-tui bench claims",
        ),
        Rung::L1 => (
            "Each SM keeps what its threads loaded lately, in lines of 128 bytes. Neighbouring threads that load neighbouring words share a line, \
             which is what coalesced access means. It is not kept consistent with other SMs: a write goes through to L2. A working set per SM that \
             fits here costs a tenth of one that does not.",
            "gpumem-tui bench claims",
        ),
        Rung::L2Near => (
            "All SMs share L2, which stands before the device's memory. On large cards it has two halves, and an address has its home in the half \
             that is near to some SMs. Up to about half of its size a working set is served from the near half. A part of it can be set aside for data \
             that should stay (persisting accesses).",
            "gpumem-tui bench hierarchy",
        ),
        Rung::L2Far => (
            "A load whose line is in the other half of L2 crosses the chip and takes about twice as long. It still spares the device's memory \
             the access. Working sets of 70 to 85 % of L2 are mostly served from here. Cards with one L2 have no such step.",
            "gpumem-tui bench hierarchy",
        ),
        Rung::Device => (
            "Weights, activations and caches are here, and this is what runs out. A single load takes hundreds of nanoseconds, so thousands of threads \
             have to wait at the same time to use its bandwidth. It is reached in lines: a kernel that uses one word of each wastes the rest. In random \
             order, translating addresses adds to the time.",
            "gpumem-tui demo fragmentation",
        ),
        Rung::Peer => (
            "A kernel can use another GPU's memory as its own if the two have peer access. Over NVLink that has a part of the bandwidth of device \
             memory, over PCIe a small one. Collectives of distributed training move gradients this way. Memory that another process exports is \
             reached the same way.",
            "gpumem-tui bench hierarchy",
        ),
        Rung::PinnedHost => (
            "Pinned memory cannot be swapped out, so the GPU copies from it directly, and kernels can read it over the bus. Copies from it run beside \
             kernels, if they are asynchronous and in a stream of their own. A load over the bus takes a microsecond. Pinning takes memory from everybody \
             on the host, so only buffers for transfers should be pinned.",
            "gpumem-tui bench claims",
        ),
        Rung::PageableHost => (
            "What malloc or NumPy returns. The driver copies it to a pinned buffer of its own first, so the copy takes longer, and the program waits \
             for it even if it asked for an asynchronous one. A data loader that hands over pageable batches pays that in every step. Managed memory \
             is pageable, too, but its pages move by themselves.",
            "gpumem-tui demo unified",
        ),
        Rung::Disk => (
            "A reference, not a measurement: a fast NVMe drive answers after tens of microseconds and delivers some gigabytes a second. A checkpoint \
             of 80 GB takes ten seconds or more. The operating system keeps what was read lately in the host's memory.",
            "",
        ),
    }
}

/// Draws the panel.
pub(super) fn draw(screen: &mut Screen<'_>, area: Rect, hierarchy: &Hierarchy, selected: usize) {
    let Some(level) = hierarchy.levels.get(selected) else {
        return;
    };
    if area.height < 3 {
        return;
    }
    let (text, shows) = sentences(level.rung);
    let shown_by = if shows.is_empty() {
        String::new()
    } else {
        format!("shown by {shows}")
    };
    let inside = screen.panel(area, &level.name, &shown_by);
    let theme = screen.theme;
    let (plain, dim) = (Style::new(), theme.ink(Ink::Dim));
    let mut parts: Vec<(String, Style)> = vec![(text.to_owned(), plain)];
    parts.extend(there_now(screen, hierarchy, level).map(|text| (text, theme.ink(Ink::Accent))));
    parts.extend(figures(level).into_iter().map(|text| (text, dim)));
    let note = level.note.clone();
    parts.extend((!note.is_empty()).then_some((note, dim)));
    let published = level.published.join("; ");
    parts.extend((!published.is_empty()).then(|| (format!("Published: {published}."), dim)));
    let mut lines: Vec<Line<'_>> = Vec::new();
    for (text, style) in parts {
        lines.extend(
            wrap(&text, inside.width)
                .into_iter()
                .map(|line| Line::styled(line, style)),
        );
    }
    for (line, y) in lines.into_iter().zip(inside.y..inside.bottom()) {
        screen.render(line, Rect { y, height: 1, ..inside });
    }
}

/// Says what of the level is in use now, where that is known.
fn there_now(screen: &Screen<'_>, hierarchy: &Hierarchy, level: &HierarchyLevel) -> Option<String> {
    let model = screen.model;
    match level.rung {
        Rung::Device => {
            let device = model.measurable()?;
            let memory = device.memory.value()?;
            let used = memory.total.saturating_sub(memory.free);
            Some(format!(
                "There now: {} of {} in use on {}.",
                bytes(used),
                bytes(memory.total),
                device.label
            ))
        }
        Rung::L2Near => {
            let (set_aside, most) = hierarchy.persisting?;
            Some(format!(
                "Set aside for persisting accesses: {} of at most {}.",
                bytes(set_aside),
                bytes(most)
            ))
        }
        _ => None,
    }
}

/// Returns what was measured, in sentences.
fn figures(level: &HierarchyLevel) -> Vec<String> {
    let mut all = Vec::new();
    if let Some(size) = level.bytes {
        let per_sm = level
            .bytes_per_sm
            .map_or_else(String::new, |per_sm| format!(", {} per SM", bytes(per_sm)));
        all.push(format!("Size: {}{per_sm}.", bytes(size)));
    }
    let latency = |latency: &LevelLatency| {
        format!(
            "{} or {} ({})",
            short_ns(latency.ns),
            plural_cycles(latency.cycles),
            latency.how
        )
    };
    if let Some(its) = &level.latency {
        let (least, most) = its.range;
        let spread = match most - least < 0.1 {
            true => String::new(),
            false => format!(", {} to {}", nanoseconds(least), nanoseconds(most)),
        };
        let others: Vec<String> = level.other_latencies.iter().map(latency).collect();
        let others = if others.is_empty() {
            String::new()
        } else {
            format!("; {}", others.join("; "))
        };
        all.push(format!("Latency: {}{spread}{others}.", latency(its)));
    }
    let rates: Vec<String> = level
        .bandwidths
        .iter()
        .map(|bandwidth| format!("{} {}", bandwidth.what, short_rate(bandwidth.gb_per_s)))
        .collect();
    if !rates.is_empty() {
        all.push(format!("Bandwidth: {}.", rates.join(", ")));
    }
    all
}

fn plural_cycles(cycles: f64) -> String {
    match cycles.fract().abs() < 0.05 {
        true => plural(cycles as u64, "cycle"),
        false => format!("{} cycles", units::decimals(cycles, 1)),
    }
}
