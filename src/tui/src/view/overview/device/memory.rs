//! How a device's memory is divided: a bar of its parts, and a legend with their figures.

use gpumem_probe::Reading;
use gpumem_text::units::{self, gib};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::Span;

use super::texts;
use crate::model::{Basis, Device, Partition};
use crate::view::Screen;
use crate::view::layout::clip;
use crate::view::theme::Ink;
use crate::view::widgets::{Entry, Legend, MemoryBar, Part};
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

/// Draws as many parts with their figures as fit on a line.
pub(super) fn legend(screen: &mut Screen<'_>, area: Rect, device: &Device) {
    let Some(memory) = device.memory.value() else {
        return;
    };
    // Tenths of a GiB are too coarse for a few hundred MiB: 0.2 and 0.3 could add up to 0.4.
    let in_gib = memory.total >= 1 << 34 && !(1..1 << 30).contains(&memory.reserved());
    let text = |bytes| {
        if in_gib { gib(bytes) } else { units::bytes_short(bytes) }
    };
    let unit = if in_gib { " GiB" } else { "" };
    let legend = Legend {
        theme: screen.theme,
        entries: entries(memory),
        total: memory.total,
        text,
        unit,
    };
    let line = legend.line(area.width);
    let end = line.width() as u16;
    screen.render(line, area);
    let skewed = "published more than NVML counts";
    if memory.skewed && end + width(skewed) <= area.width {
        let [_, rest] = Layout::horizontal([Constraint::Length(end), Constraint::Fill(1)]).areas(area);
        screen.render(Span::styled(skewed, screen.theme.ink(Ink::Dim)), rest);
    }
}

/// Returns the parts of a legend. The free memory is dropped last.
fn entries(memory: &Partition) -> Vec<Entry> {
    let mut entries = vec![
        (Ink::Allocated, "allocated", memory.allocated, 1),
        (Ink::Cached, "cached", memory.cached, 2),
    ];
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
