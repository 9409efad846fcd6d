//! The MIG devices of a GPU: each its own memory, one line each.

use gpumem_probe::{MigDevice, Reading};
use gpumem_text::units::{self, gib};
use ratatui::layout::Rect;
use ratatui::style::Style;

use super::super::super::bar;
use super::super::super::pen::{Pen, split_left, split_top, width};
use super::super::super::theme::Ink;
use crate::model::Device;

/// Columns of the names: `1g.10gb+me` is a long one.
const NAME: u16 = 24;

/// Lines they take.
pub(super) fn lines(device: &Device) -> u16 {
    u16::try_from(device.mig.len()).unwrap_or(u16::MAX)
}

/// Draws a line for each.
pub(super) fn draw(pen: &mut Pen<'_>, area: Rect, device: &Device) {
    for (y, mig) in device.mig.iter().enumerate().take(usize::from(area.height)) {
        let line = split_top(split_top(area, y as u16).1, 1).0;
        let x = pen.text(line, 0, 0, &format!("MIG {}", mig.index), pen.theme.ink(Ink::Strong));
        let room = (NAME.saturating_sub(x + 2)).min(line.width.saturating_sub(x + 2));
        pen.clipped(line, x + 2, 0, &mig.name, room, pen.theme.ink(Ink::Dim));
        memory(pen, split_left(line, NAME + 1).1, mig);
    }
}

/// Its bar with its figure, or why there is none.
fn memory(pen: &mut Pen<'_>, area: Rect, mig: &MigDevice) {
    let Reading::Value(memory) = &mig.memory else {
        let why = super::reason(&mig.memory, "memory").unwrap_or_default();
        pen.clipped(area, 0, 0, &why, area.width, pen.theme.ink(Ink::Dim));
        return;
    };
    let driver = memory.reserved.unwrap_or(0).min(memory.total);
    let used = memory.used.min(memory.total - driver);
    let text = format!("{} of {} used", gib(used), units::bytes(memory.total));
    let left = pen.text_end(area, area.width, 0, &text, Style::new());
    if left == 0 && width(&text) > area.width {
        return;
    }
    // Which of its processes publish is not known by instance: what is used is not divided further.
    let parts = [
        (Ink::Other, used),
        (Ink::Free, memory.total - driver - used),
        (Ink::Driver, driver),
    ];
    bar::stacked(pen, split_left(area, left.saturating_sub(2)).0, &parts);
}
