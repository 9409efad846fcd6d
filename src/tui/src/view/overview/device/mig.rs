//! The MIG devices of a GPU: each its own memory, one line each.

use gpumem_probe::{MigDevice, Reading};
use gpumem_text::units::{self, gib};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Span};

use super::texts;
use crate::model::Device;
use crate::view::Screen;
use crate::view::layout::clip;
use crate::view::theme::{Ink, Theme};
use crate::view::widgets::MemoryBar;
use crate::wrap::width;

/// Columns of the names: `1g.10gb+me` is a long one.
const NAME: u16 = 24;

/// Lines they take.
pub(super) fn lines(device: &Device) -> u16 {
    u16::try_from(device.mig.len()).unwrap_or(u16::MAX)
}

/// Draws a line for each.
pub(super) fn draw(screen: &mut Screen<'_>, area: Rect, device: &Device) {
    for (mig, line) in device.mig.iter().zip(area.rows()) {
        let [left, right] = Layout::horizontal([Constraint::Length(NAME + 1), Constraint::Fill(1)]).areas(line);
        screen.render(name(mig, screen.theme, left.width.min(NAME)), left);
        memory(screen, right, mig);
    }
}

/// Its number and its name in so many columns.
fn name(mig: &MigDevice, theme: Theme, room: u16) -> Line<'static> {
    let number = format!("MIG {}", mig.index);
    let name = clip(&mig.name, room.saturating_sub(width(&number) + 2));
    Line::from_iter([
        Span::styled(number, theme.ink(Ink::Strong)),
        Span::raw("  "),
        Span::styled(name, theme.ink(Ink::Dim)),
    ])
}

/// Its bar with its figure, or why there is none.
fn memory(screen: &mut Screen<'_>, area: Rect, mig: &MigDevice) {
    let Reading::Value(memory) = &mig.memory else {
        let why = texts::reason(&mig.memory, "memory").unwrap_or_default();
        let why = clip(&why, area.width);
        screen.render(Span::styled(why, screen.theme.ink(Ink::Dim)), area);
        return;
    };
    let driver = memory.reserved.unwrap_or(0).min(memory.total);
    let used = memory.used.min(memory.total - driver);
    let text = format!("{} of {} used", gib(used), units::bytes(memory.total));
    if width(&text) > area.width {
        // Half of a figure would be read as another one.
        return;
    }
    let [left, right] = Layout::horizontal([Constraint::Fill(1), Constraint::Length(width(&text))]).areas(area);
    screen.render(text, right);
    // Which of its processes publish is not known by instance: what is used is not divided further.
    let parts = [
        (Ink::Other, used),
        (Ink::Free, memory.total - driver - used),
        (Ink::Driver, driver),
    ];
    let width = left.width.saturating_sub(2);
    let theme = screen.theme;
    screen.render(MemoryBar { theme, parts: &parts }, Rect { width, ..left });
}
