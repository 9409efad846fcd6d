//! How a device's memory is divided: a bar of its parts, and a legend with their figures.

use gpumem_probe::Reading;
use gpumem_text::units::Form;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Span};

use super::texts;
use crate::model::{Basis, Device, Model, Partition};
use crate::view::Screen;
use crate::view::layout::clip;
use crate::view::theme::{Ink, Theme};
use crate::view::widgets::{Entry, Legend, MemoryBar, Part, Says};
use crate::wrap::width;

fn parts(memory: &Partition) -> [Part; 6] {
    [
        (Ink::Allocated, memory.allocated),
        (Ink::Cached, memory.cached),
        (Ink::Other, memory.other),
        (Ink::Pending, memory.managed),
        (Ink::Free, memory.free),
        // A GPU has at most one of the two.
        (Ink::Driver, memory.driver.or(memory.host).unwrap_or(0)),
    ]
}

/// Draws a bar of the parts, or the reason why there is none.
pub(super) fn bar(screen: &mut Screen<'_>, area: Rect, device: &Device) {
    match device.memory.value() {
        Some(memory) => {
            let theme = screen.theme;
            let parts = parts(memory);
            screen.render(MemoryBar { theme, parts: &parts }, area);
        }
        None => {
            let known = matches!(device.memory, Reading::NotSupported | Reading::Pending);
            let style = screen.theme.ink(if known { Ink::Dim } else { Ink::Warning });
            let why = clip(&texts::no_memory(device), area.width);
            screen.render(Span::styled(why, style), area);
        }
    }
}

/// Draws as many parts with their figures as fit on a line. Where a line of names is shared by several devices, the figures have
/// no names.
pub(super) fn legend(screen: &mut Screen<'_>, area: Rect, device: &Device) {
    let Some(memory) = device.memory.value() else {
        return;
    };
    let entries = entries(memory);
    let legend = Legend {
        theme: screen.theme,
        form: Form::of(entries.iter().map(|entry| entry.2)),
        entries,
        total: memory.total,
        says: match screen.model.world().devices.len() {
            0 | 1 => Says::Both,
            _ => Says::Sizes,
        },
    };
    let line = legend.fitted(area.width).line(area.width);
    let end = line.width() as u16;
    screen.render(line, area);
    let skewed = "published more than NVML counts";
    if memory.skewed && end + width(skewed) <= area.width {
        let [_, rest] = Layout::horizontal([Constraint::Length(end), Constraint::Fill(1)]).areas(area);
        screen.render(Span::styled(skewed, screen.theme.ink(Ink::Dim)), rest);
    }
}

/// Returns the names of the colours in the bars of all devices, in a line of at most `room` columns.
pub(in crate::view::overview) fn names(model: &Model, theme: Theme, room: u16) -> Line<'static> {
    let memories = model.world().devices.iter().filter_map(|device| device.memory.value());
    let mut sums: Vec<Entry> = Vec::new();
    let mut total = 0u64;
    for memory in memories {
        total = total.saturating_add(memory.total);
        for entry in entries(memory) {
            match sums.iter_mut().find(|sum| sum.0 == entry.0) {
                Some(sum) => sum.2 = sum.2.saturating_add(entry.2),
                None => sums.push(entry),
            }
        }
    }
    // The order of the bars: the free memory last.
    sums.sort_by_key(|entry| ORDER.iter().position(|&ink| ink == entry.0));
    let legend = Legend {
        theme,
        entries: sums,
        total,
        form: Form::Short,
        says: Says::Names,
    };
    legend.line(room)
}

/// The order of the parts in a legend.
const ORDER: [Ink; 6] = [
    Ink::Allocated,
    Ink::Cached,
    Ink::Other,
    Ink::Driver,
    Ink::Pending,
    Ink::Free,
];

/// Returns the parts of a legend. The free memory is dropped last.
fn entries(memory: &Partition) -> Vec<Entry> {
    let mut entries = Vec::new();
    // Without a program that publishes there is no such part.
    if memory.basis == Basis::Publishers || memory.reserved() > 0 {
        entries.push((Ink::Allocated, "allocated", memory.allocated, 1));
        entries.push((Ink::Cached, "cached", memory.cached, 2));
    }
    match (memory.basis, memory.driver) {
        (Basis::Driver, Some(driver)) => {
            entries.push((Ink::Other, "other", memory.other, 3));
            entries.push((Ink::Driver, "driver", driver, 4));
        }
        (Basis::Driver, None) if let Some(host) = memory.host => {
            entries.push((Ink::Other, "other", memory.other, 3));
            entries.push((Ink::Driver, "host's programs", host, 4));
        }
        // The driver's share is not reported separately.
        (Basis::Driver, None) => entries.push((Ink::Other, "other and driver", memory.other, 3)),
        (Basis::Publishers, _) => {}
    }
    if memory.managed > 0 {
        entries.push((Ink::Pending, "managed, at most", memory.managed, 1));
    }
    entries.push((Ink::Free, memory.rest(), memory.free, 0));
    entries
}
