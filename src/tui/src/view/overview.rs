//! Overview: every device as a bar that adds up, with its last minute; every process as a row.

mod device;
mod table;

use ratatui::layout::Rect;

use super::Screen;
use super::pen::{split_left, split_top, wrap};
use super::theme::Ink;
use crate::model::{Device, SourceState, Target};
use device::Tier;

/// A second column of devices pays from this width on.
const TWO_COLUMNS: u16 = 150;

/// Draws the view.
pub(super) fn draw(screen: &mut Screen<'_>, area: Rect) {
    let model = screen.model;
    let devices = &model.world().devices;
    let area = notice(screen, area);
    if devices.is_empty() {
        table::draw(screen, area);
        return;
    }
    let columns = if area.width >= TWO_COLUMNS && devices.len() > 1 {
        2
    } else {
        1
    };
    let rows: Vec<&[Device]> = devices.chunks(columns).collect();
    let wanted = table::wanted_lines(model.rows.len());
    // The tallest tier that leaves the table what it wants, or at least a third of the screen.
    let table_lines = wanted.min((area.height / 3).max(4));
    let room = area.height.saturating_sub(table_lines);
    let more = |tier: Tier, row: &[Device]| row.iter().map(|d| tier.more_lines(d)).max().unwrap_or(0);
    let all_more = |tier: Tier| rows.iter().fold(0, |sum: u16, row| sum.saturating_add(more(tier, row)));
    let tier = Tier::ALL
        .into_iter()
        .find(|&t| rows.len() * usize::from(t.lines()) + usize::from(all_more(t)) <= usize::from(room))
        .unwrap_or(Tier::Bar);
    // The tallest grows into what the table leaves, up to half of the screen.
    let lines = match tier {
        Tier::Tall => ((room - all_more(tier)) / rows.len() as u16)
            .min(area.height / 2)
            .max(tier.lines()),
        _ => tier.lines(),
    };
    let shown_rows = (usize::from(room) / usize::from(lines)).clamp(1, rows.len());
    let selected = model
        .selected_device()
        .and_then(|d| devices.iter().position(|x| x.key == d.key))
        .unwrap_or(0);
    let first = (selected / columns + 1).saturating_sub(shown_rows);
    let mut rest = area;
    for row in rows.iter().skip(first).take(shown_rows) {
        let (line, below) = split_top(rest, lines + more(tier, row));
        let width = if columns == 2 { line.width / 2 } else { line.width };
        for (i, device) in row.iter().enumerate() {
            let (_, right) = split_left(line, width * i as u16);
            let (area, _) = split_left(right, width);
            device_at(screen, area, device, tier);
        }
        rest = below;
    }
    let hidden = devices.len().saturating_sub(shown_rows * columns);
    table::draw_below(screen, rest, hidden);
}

fn device_at(screen: &mut Screen<'_>, area: Rect, device: &Device, tier: Tier) {
    device::draw(screen, area, device, tier);
    screen.hit(area, Target::Device(device.key));
}

/// Says what is wrong with the sources, above everything else; returns the area that is left.
fn notice(screen: &mut Screen<'_>, area: Rect) -> Rect {
    let model = screen.model;
    let theme = screen.pen.theme;
    let none = model.world().devices.is_empty();
    let (ink, first, second) = match &model.world().nvml.state {
        SourceState::Failing { error, hint } => (Ink::Warning, format!("NVML fails: {error}"), hint.clone()),
        SourceState::Starting if none => (Ink::Dim, "Asking the driver ...".to_owned(), String::new()),
        SourceState::Missing if none => (
            Ink::Warning,
            "No NVIDIA driver on this machine (libnvidia-ml.so.1 is not installed).".to_owned(),
            "gpumem-tui demo train --device sim shows everything on a simulated device; gpumem-tui doctor says what is missing.".to_owned(),
        ),
        SourceState::Ok if none => (
            Ink::Plain,
            "The driver answers and lists no GPU.".to_owned(),
            "In a container, ask for one (docker run --gpus all). gpumem-tui doctor looks further.".to_owned(),
        ),
        _ => return area,
    };
    let mark = if ink == Ink::Warning { theme.glyph(ink) } else { ' ' };
    let room = area.width.saturating_sub(4);
    let lines = wrap(&first, room).into_iter().map(|l| (l, Ink::Strong));
    let lines: Vec<_> = lines
        .chain(wrap(&second, room).into_iter().map(|l| (l, Ink::Dim)))
        .collect();
    let (top, rest) = split_top(area, lines.len() as u16);
    screen.pen.cell(top, 1, 0, mark, theme.ink(ink));
    for (y, (line, ink)) in lines.into_iter().enumerate() {
        screen.pen.text(top, 3, y as u16, &line, theme.ink(ink));
    }
    split_top(rest, 1).1
}
