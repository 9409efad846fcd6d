//! One device: its name, its bar, its legend, its sensors, its newest past.

mod mig;
mod sensors;

use gpumem_probe::Reading;
use gpumem_text::units::{self, gib};
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};

use super::super::Screen;
use super::super::pen::{Pen, split_right, split_top, width};
use super::super::theme::Ink;
use super::super::{badge, bar, graph, history, legend};
use crate::model::{Basis, Device, DeviceKind, DeviceState, Partition};

/// Before the name of the selected device, where there are several.
const SELECTED: char = '▸';

/// How much of a device is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tier {
    /// Framed, with a thick bar and an area graph.
    Tall,
    /// Framed, with a smaller graph.
    Framed,
    /// Title, bar, legend, sensors with a spark, and a line of air.
    Airy,
    /// Title, bar, legend.
    Compact,
    /// A bar with its name on one line.
    Bar,
}

impl Tier {
    /// Tallest first.
    pub(super) const ALL: [Tier; 5] = [Tier::Tall, Tier::Framed, Tier::Airy, Tier::Compact, Tier::Bar];

    /// Lines it takes.
    pub(super) fn lines(self) -> u16 {
        match self {
            Tier::Tall => 14,
            Tier::Framed => 10,
            Tier::Airy => 5,
            Tier::Compact => 3,
            Tier::Bar => 1,
        }
    }

    /// Lines a device takes beyond those: its MIG devices, where there is room for anything but its bar.
    pub(super) fn more_lines(self, device: &Device) -> u16 {
        if self == Tier::Bar { 0 } else { mig::lines(device) }
    }
}

/// Draws a device at a tier.
pub(super) fn draw(screen: &mut Screen<'_>, area: Rect, device: &Device, tier: Tier) {
    let several = screen.model.world().devices.len() > 1;
    let selected = several && screen.model.selected_device().is_some_and(|d| d.key == device.key);
    let newest = history::newest(screen.model, device);
    let pen = &mut screen.pen;
    // Its label says it, too.
    pen.labelled |= device.kind == DeviceKind::Simulated && area.width >= width(&device.label) + 6;
    match tier {
        Tier::Tall | Tier::Framed => framed(pen, area, device, selected, &newest),
        Tier::Airy | Tier::Compact => lines(pen, area, device, selected, tier == Tier::Airy),
        Tier::Bar => one_line(pen, area, device, selected),
    }
}

fn framed(pen: &mut Pen<'_>, area: Rect, device: &Device, selected: bool, newest: &str) {
    let title = if selected {
        format!("{SELECTED} {}", device.label)
    } else {
        device.label.clone()
    };
    let inside = pen.panel(area, &title, "");
    let after = 3 + width(&title) + 1;
    name(pen, area, after + 1, device, area.width.saturating_sub(3), true);
    let air = u16::from(area.height >= Tier::Tall.lines());
    let (_, inside) = split_top(inside, air);
    let (thick, rest) = split_top(inside, 2);
    partition_bar(pen, thick, device);
    let (_, rest) = split_top(rest, air);
    legend(pen, rest, device);
    let (_, rest) = split_top(rest, 1);
    let (parts, rest) = split_top(rest, mig::lines(device));
    mig::draw(pen, parts, device);
    let (_, lower) = split_top(rest, air);
    let side = if lower.width >= 70 && sensors::has_sensors(device) {
        36
    } else {
        0
    };
    let (left, right) = split_right(lower, side);
    if side > 0 {
        sensors::column(pen, right, device);
    }
    let (graph, _) = split_right(left, if side > 0 { 3 } else { 0 });
    history::draw(pen, graph, device, newest);
}

fn lines(pen: &mut Pen<'_>, area: Rect, device: &Device, selected: bool, airy: bool) {
    let margin = Rect {
        x: area.x + area.width.min(1),
        width: area.width.saturating_sub(2),
        ..area
    };
    let label_style = if selected {
        pen.theme.ink(Ink::Accent).add_modifier(Modifier::BOLD)
    } else {
        pen.theme.ink(Ink::Strong)
    };
    if selected {
        pen.cell(area, 0, 0, SELECTED, label_style);
    }
    let x = pen.text(margin, 0, 0, &device.label, label_style);
    name(pen, margin, x + 2, device, margin.width, false);
    let (_, rest) = split_top(margin, 1);
    let (line, rest) = split_top(rest, 1);
    partition_bar(pen, line, device);
    legend(pen, rest, device);
    let (parts, rest) = split_top(split_top(rest, 1).1, mig::lines(device));
    mig::draw(pen, parts, device);
    if airy {
        let (line, _) = split_top(rest, 1);
        let room = if line.width >= 70 {
            (line.width / 3).min(history::SECONDS as u16)
        } else {
            0
        };
        let (left, spark) = split_right(line, room);
        let (left, _) = split_right(left, if room > 0 { 7 } else { 0 });
        sensors::line(pen, left, device);
        if room > 0 && !device.history.seconds.is_empty() {
            graph::spark(pen, spark, Ink::Allocated, &history::used(device, usize::from(room)));
            pen.text_end(
                line,
                line.width - room - 1,
                0,
                &format!("{room} s"),
                pen.theme.ink(Ink::Dim),
            );
        }
    }
}

fn one_line(pen: &mut Pen<'_>, area: Rect, device: &Device, selected: bool) {
    let ink = if selected { Ink::Accent } else { Ink::Strong };
    if selected {
        pen.cell(area, 0, 0, SELECTED, pen.theme.ink(ink));
    }
    let x = pen.text(area, 1, 0, &device.label, pen.theme.ink(ink));
    let (texts, style) = match (device.memory.value(), lost(device)) {
        // The bar's place says why there is no figure.
        (None, _) => (Default::default(), Style::new()),
        (_, Some((long, short))) => ([long, short].map(str::to_owned), pen.theme.ink(Ink::Warning)),
        _ => (
            [used_text, used_share].map(|say| say(device).unwrap_or_default()),
            Style::new(),
        ),
    };
    let room = area.width.saturating_sub(x + 2);
    // A bar says more than words that leave it no room.
    let [long, short] = texts;
    let texts = [long, short, String::new()];
    let text = texts.iter().find(|text| width(text) + 8 <= room).unwrap_or(&texts[2]);
    let end = area.width.saturating_sub(1);
    let left = if text.is_empty() {
        end + 1
    } else {
        pen.text_end(area, end, 0, text, style)
    };
    let line = Rect {
        x: area.x + x + 1,
        width: left.saturating_sub(x + 2),
        ..area
    };
    partition_bar(pen, line, device);
}

/// Marketing name from column `x`, and what is used up to column `end`.
fn name(pen: &mut Pen<'_>, area: Rect, x: u16, device: &Device, end: u16, in_frame: bool) {
    let air = |pen: &mut Pen<'_>, x: u16| {
        if in_frame {
            pen.cell(area, x, 0, ' ', Style::new());
        }
    };
    let mut left = end;
    let (text, style) = match lost(device) {
        Some((text, _)) => (text.to_owned(), pen.theme.ink(Ink::Warning)),
        None => (used_text(device).unwrap_or_default(), Style::new()),
    };
    if width(&text) + x + 2 <= end && !text.is_empty() {
        left = pen.text_end(area, end - u16::from(in_frame), 0, &text, style);
        air(pen, end - 1);
        air(pen, left - 1);
        left -= 1;
    }
    let mut x = x;
    if device.kind == DeviceKind::Simulated && x + badge::LEAST < left {
        air(pen, x - 1);
        x = badge::draw(pen, area, x, left - x - 1) + 1;
    }
    let room = left.saturating_sub(x + 2);
    let mut facts = vec![device.name.as_str()];
    if device.shared_with_host {
        facts.push("uses the host's memory");
    }
    if !device.pci.is_empty() && area.width >= 140 {
        facts.push(&device.pci);
    }
    for fact in facts {
        if !fact.is_empty() && room > 4 {
            air(pen, x - 1);
            x = pen.clipped(area, x, 0, fact, left.saturating_sub(x + 2), pen.theme.ink(Ink::Dim));
            air(pen, x);
            x += 2;
        }
    }
}

/// That a device's figures are old, in more words and in one.
fn lost(device: &Device) -> Option<(&'static str, &'static str)> {
    match device.state {
        // Its figures were never known.
        DeviceState::Lost(_) if device.memory.value().is_none() => Some(("LOST", "LOST")),
        DeviceState::Lost(_) => Some(("LOST, last known figures", "LOST")),
        DeviceState::Gone => Some(("gone, last known figures", "gone")),
        DeviceState::Present => None,
    }
}

/// `52.1 of 79.6 GiB used`; `None` where there is no figure.
fn used_text(device: &Device) -> Option<String> {
    let memory = device.memory.value()?;
    let (used, what) = match memory.basis {
        Basis::Driver => (memory.used(), "used"),
        Basis::Publishers => (memory.reserved(), "published"),
    };
    let total = units::bytes(memory.total);
    let same_unit = total.ends_with("GiB") && (used == 0 || used >= 1 << 30);
    let used = if same_unit { gib(used) } else { units::bytes(used) };
    Some(format!("{used} of {total} {what}"))
}

/// The share that is used: `66%`.
fn used_share(device: &Device) -> Option<String> {
    let memory = device.memory.value().filter(|m| m.total > 0)?;
    Some(units::percent(memory.used() as f64 / memory.total as f64))
}

/// Why there is no memory figure.
fn memory_reason(device: &Device) -> String {
    match &device.state {
        DeviceState::Lost(text) => format!("lost: {text}"),
        _ => reason(&device.memory, "memory").unwrap_or_default(),
    }
}

/// Why a reading has no figure; `None` when it has one.
fn reason<T>(reading: &Reading<T>, what: &str) -> Option<String> {
    match reading {
        Reading::Value(_) => None,
        Reading::Pending => Some(format!("{what}: not asked yet")),
        Reading::NotSupported => Some(format!("{what}: not supported by driver or card")),
        Reading::NoPermission => Some(format!("{what}: needs more rights")),
        Reading::Failed(text) => Some(format!("{what}: {text}")),
    }
}

fn parts(memory: &Partition) -> [bar::Part; 5] {
    [
        (Ink::Allocated, memory.allocated),
        (Ink::Cached, memory.cached),
        (Ink::Other, memory.other),
        (Ink::Free, memory.free),
        (Ink::Driver, memory.driver.unwrap_or(0)),
    ]
}

fn partition_bar(pen: &mut Pen<'_>, area: Rect, device: &Device) {
    match device.memory.value() {
        Some(memory) => bar::stacked(pen, area, &parts(memory)),
        None => {
            let known = matches!(device.memory, Reading::NotSupported | Reading::Pending);
            let style = pen.theme.ink(if known { Ink::Dim } else { Ink::Warning });
            pen.clipped(area, 0, 0, &memory_reason(device), area.width, style);
        }
    }
}

/// One line with the number of every part, as many as fit. What is left to whoever asks next is the last to leave.
fn legend(pen: &mut Pen<'_>, area: Rect, device: &Device) {
    let Some(memory) = device.memory.value() else {
        return;
    };
    let mut entries: Vec<legend::Entry> = vec![(Ink::Allocated, "allocated", memory.allocated, 1)];
    entries.push((Ink::Cached, "cached", memory.cached, 2));
    match (memory.basis, memory.driver) {
        (Basis::Driver, Some(driver)) => {
            entries.push((Ink::Other, "other", memory.other, 3));
            entries.push((Ink::Driver, "driver", driver, 4));
        }
        // Nobody tells the driver's share apart.
        (Basis::Driver, None) => entries.push((Ink::Other, "other and driver", memory.other, 3)),
        (Basis::Publishers, _) => {}
    }
    entries.push((Ink::Free, memory.basis.rest(), memory.free, 0));
    // Tenths of a GiB do not tell how a few hundred MiB are divided: 0.2 and 0.3 would be 0.4.
    let in_gib = memory.total >= 1 << 34 && !(1..1 << 30).contains(&memory.reserved());
    let text = |bytes| {
        if in_gib { gib(bytes) } else { units::bytes_short(bytes) }
    };
    let unit = if in_gib { " GiB" } else { "" };
    let x = legend::draw(pen, area, entries, memory.total, (text, unit));
    if memory.skewed && x + 26 <= area.width {
        pen.text(area, x, 0, "publishers ahead of driver", pen.theme.ink(Ink::Dim));
    }
}
