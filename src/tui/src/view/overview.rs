//! Overview: every device as a bar of its memory with its recent history, and every process as a row.

mod device;
mod notice;
mod table;

use gpumem_text::units::plural;
use ratatui::layout::{Constraint, Layout, Margin, Rect};
use ratatui::text::Line;
use ratatui::widgets::Paragraph;

use crate::model::{Device, Model, Target};
use crate::view::Screen;
use crate::view::layout::clip;
use crate::view::theme::Ink;
use crate::wrap::width;
use device::Tier;

/// From this width on devices stand in two columns.
const TWO_COLUMNS: u16 = 150;

/// How the view divides an area.
struct Plan {
    /// Devices per row.
    columns: usize,
    /// How much of each device is shown.
    tier: Tier,
    /// The height of each shown row of devices.
    rows: Vec<u16>,
    /// The first shown row.
    first: usize,
    /// Whether a line below several devices names the colours of their bars, and how many devices are not shown.
    has_line: bool,
}

impl Plan {
    fn new(model: &Model, area: Rect) -> Plan {
        let devices = &model.world().devices;
        let columns = match area.width >= TWO_COLUMNS && devices.len() > 1 {
            true => 2,
            false => 1,
        };
        let rows: Vec<&[Device]> = devices.chunks(columns).collect();
        // The devices keep their height while the user types a filter.
        let listed = match model.narrowed() {
            true => model.rows.len().max(model.listable()),
            false => model.rows.len(),
        };
        // The table has the lines it needs, or half of the screen below its header, whatever else is to be shown.
        let half = model.ui.term.height.saturating_sub(1).div_ceil(2).max(4);
        let beside = |lines: u16| area.height.saturating_sub(lines.min(half));
        let needed = table::needed_lines(listed, table::may_be_framed(model, area));
        let has_line = devices.len() > 1 && beside(needed) > 1;
        let room = beside(needed) - u16::from(has_line);
        let tier = Tier::ALL
            .into_iter()
            .find(|&t| rows.len() * usize::from(t.lines()) <= usize::from(room))
            .unwrap_or(Tier::Bar);
        // The tallest tier grows into the lines that the table leaves, up to half of the screen. Some are left for long findings.
        let left = beside(table::wanted_lines(listed)).saturating_sub(has_line.into());
        let lines = match (tier, rows.len() as u16) {
            (Tier::Tall, count @ 1..) => (left / count).min(area.height / 2).max(tier.lines()),
            _ => tier.lines(),
        };
        let shown = (usize::from(room) / usize::from(lines)).max(1).min(rows.len());
        let selected = model
            .selected_device()
            .and_then(|d| devices.iter().position(|x| x.key == d.key))
            .unwrap_or(0);
        let first = first_in_view(model.ui.hits.first[1], Some(selected / columns), shown, rows.len());
        Plan {
            columns,
            tier,
            rows: vec![lines; shown.min(rows.len() - first)],
            first,
            has_line,
        }
    }

    /// Returns how many devices are not shown.
    fn hidden(&self, model: &Model) -> usize {
        model
            .world()
            .devices
            .len()
            .saturating_sub(self.rows.len() * self.columns)
    }

    /// Returns the areas of the shown devices, row by row from the left.
    fn places(&self, area: Rect) -> Vec<Rect> {
        let rows = Layout::vertical(self.rows.iter().map(|&lines| Constraint::Length(lines))).split(area);
        // All have the same width, even if that leaves a column of the terminal blank.
        let width = Constraint::Length(area.width / self.columns as u16);
        let columns = Layout::horizontal(vec![width; self.columns]);
        rows.iter().flat_map(|&row| columns.split(row).to_vec()).collect()
    }

    /// Splits the part of an area below the devices into the line about them and the table.
    fn below(&self, area: Rect) -> [Rect; 2] {
        let devices = self.rows.iter().fold(0u16, |sum, &lines| sum.saturating_add(lines));
        let line = Constraint::Length(self.has_line.into());
        let [_, line, table] = Layout::vertical([Constraint::Length(devices), line, Constraint::Fill(1)]).areas(area);
        [line, table]
    }
}

/// Returns the first row in view: `kept`, the previous one, as long as the selected row is in view from there.
fn first_in_view(kept: usize, selected: Option<usize>, shown: usize, all: usize) -> usize {
    let selected = selected.unwrap_or(0);
    let least = (selected + 1).saturating_sub(shown.max(1));
    kept.clamp(least, selected).min(all.saturating_sub(shown))
}

/// Returns how many of the area's last lines, up to `most`, the view can do without and still show the same, if less tall.
pub(super) fn spare(screen: &Screen<'_>, area: Rect, most: u16) -> u16 {
    let model = screen.model;
    let notice = notice::lines(model, screen.theme, area.width);
    let [_, area] = below_notice(area, &notice);
    let plan = Plan::new(model, area);
    let spare = table::spare(model, plan.below(area)[1]).min(most);
    let holds = |less: &u16| {
        let height = area.height.saturating_sub(*less);
        let smaller = Plan::new(model, Rect { height, ..area });
        // Rows of the tallest tier may shrink, because they fill all space.
        smaller.tier == plan.tier && smaller.rows.len() == plan.rows.len()
    };
    (0..=spare).rev().find(holds).unwrap_or(0)
}

/// Draws the view.
pub(super) fn draw(screen: &mut Screen<'_>, area: Rect) {
    let model = screen.model;
    let devices = &model.world().devices;
    let notice = notice::lines(model, screen.theme, area.width);
    let [top, area] = below_notice(area, &notice);
    screen.render(Paragraph::new(notice), top);
    if devices.is_empty() {
        table::draw(screen, area);
        return;
    }
    let plan = Plan::new(model, area);
    screen.hits.first[1] = plan.first;
    let places = plan.places(area);
    for (&place, device) in places.iter().zip(&devices[plan.first * plan.columns..]) {
        device::draw(screen, place, device, plan.tier);
        screen.hit(place, Target::Device(device.key));
    }
    let [line, rest] = plan.below(area);
    line_below(screen, line, plan.hidden(model));
    table::draw(screen, rest);
}

/// Draws the names of the colours, and at the right the number of devices that are not shown.
fn line_below(screen: &mut Screen<'_>, line: Rect, hidden: usize) {
    let line = line.inner(Margin::new(1, 0));
    let names = device::names(screen.model, screen.theme, line.width);
    if hidden == 0 {
        return screen.render(names, line);
    }
    let left = line.width.saturating_sub(names.width() as u16);
    let more = plural(hidden as u64, "device");
    let texts = [
        format!("{more} more: ← → or a click on a device selects the next"),
        format!("{more} more: ← →"),
        format!("{hidden} more: ← →"),
    ];
    // Where both do not fit, the devices matter more.
    let text = texts.iter().find(|text| width(text) <= left).unwrap_or(&texts[2]);
    let text = Line::styled(clip(text, line.width), screen.theme.ink(Ink::Dim));
    let left = line.width.saturating_sub(text.width() as u16 + 2);
    screen.render(device::names(screen.model, screen.theme, left), line);
    screen.render(text.right_aligned(), line);
}

/// Splits an area into the lines of a notice and the rest below it.
fn below_notice(area: Rect, notice: &[Line<'_>]) -> [Rect; 2] {
    let lines = u16::try_from(notice.len()).unwrap_or(u16::MAX);
    Layout::vertical([Constraint::Length(lines), Constraint::Fill(1)]).areas(area)
}
