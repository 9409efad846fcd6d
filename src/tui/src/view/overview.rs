//! Overview: every device as a bar that adds up, with its newest past; every process as a row.

mod device;
mod notice;
mod table;

use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::Line;
use ratatui::widgets::Paragraph;

use crate::model::{Device, Model, Target};
use crate::view::Screen;
use device::Tier;

/// A second column of devices pays from this width on.
const TWO_COLUMNS: u16 = 150;

/// How the view divides an area.
struct Plan {
    /// Devices beside each other.
    columns: usize,
    /// How much of each is shown.
    tier: Tier,
    /// Lines of each of the rows of devices that are shown.
    rows: Vec<u16>,
    /// The first of them.
    first: usize,
}

impl Plan {
    fn new(model: &Model, area: Rect) -> Plan {
        let devices = &model.world().devices;
        let columns = match area.width >= TWO_COLUMNS && devices.len() > 1 {
            true => 2,
            false => 1,
        };
        let rows: Vec<&[Device]> = devices.chunks(columns).collect();
        let wanted = table::wanted_lines(model.rows.len());
        // The tallest tier that leaves the table what it wants, or at least a third of the screen.
        let table_lines = wanted.min((area.height / 3).max(4));
        let room = area.height.saturating_sub(table_lines);
        let tier = Tier::ALL
            .into_iter()
            .find(|&t| rows.len() * usize::from(t.lines()) <= usize::from(room))
            .unwrap_or(Tier::Bar);
        // The tallest grows into what the table leaves, up to half of the screen.
        let lines = match (tier, rows.len() as u16) {
            (Tier::Tall, count @ 1..) => (room / count).min(area.height / 2).max(tier.lines()),
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
        }
    }

    /// How many devices are not shown.
    fn hidden(&self, model: &Model) -> usize {
        model
            .world()
            .devices
            .len()
            .saturating_sub(self.rows.len() * self.columns)
    }

    /// Where the devices that are shown stand in an area, from left to right and from top to bottom.
    fn places(&self, area: Rect) -> Vec<Rect> {
        let rows = Layout::vertical(self.rows.iter().map(|&lines| Constraint::Length(lines))).split(area);
        // All are as wide, even where that leaves a column of the terminal.
        let width = Constraint::Length(area.width / self.columns as u16);
        let columns = Layout::horizontal(vec![width; self.columns]);
        rows.iter().flat_map(|&row| columns.split(row).to_vec()).collect()
    }

    /// What the devices leave of an area.
    fn rest(&self, area: Rect) -> Rect {
        let devices = self.rows.iter().fold(0u16, |sum, &lines| sum.saturating_add(lines));
        let [_, rest] = Layout::vertical([Constraint::Length(devices), Constraint::Fill(1)]).areas(area);
        rest
    }

    /// Lines of an area that the devices leave to the table.
    fn table(&self, model: &Model, area: Rect) -> Rect {
        table::below_note(self.rest(area), self.hidden(model))[1]
    }
}

/// The first of so many rows that are in view: `kept`, the one that was, where that shows the selected one.
fn first_in_view(kept: usize, selected: Option<usize>, shown: usize, all: usize) -> usize {
    let selected = selected.unwrap_or(0);
    let least = (selected + 1).saturating_sub(shown.max(1));
    kept.clamp(least, selected).min(all.saturating_sub(shown))
}

/// How many of the last lines of an area, up to some, the view does not need: without them it shows the same, if less tall.
pub(super) fn spare(screen: &Screen<'_>, area: Rect, most: u16) -> u16 {
    let model = screen.model;
    let notice = notice::lines(model, screen.theme, area.width);
    let [_, area] = below_notice(area, &notice);
    let plan = Plan::new(model, area);
    let spare = table::spare(model, plan.table(model, area)).min(most);
    let holds = |less: &u16| {
        let height = area.height.saturating_sub(*less);
        let smaller = Plan::new(model, Rect { height, ..area });
        // The tallest devices fill what there is.
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
    table::draw_below(screen, plan.rest(area), plan.hidden(model));
}

/// The lines of a notice, and what is below it.
fn below_notice(area: Rect, notice: &[Line<'_>]) -> [Rect; 2] {
    let lines = u16::try_from(notice.len()).unwrap_or(u16::MAX);
    Layout::vertical([Constraint::Length(lines), Constraint::Fill(1)]).areas(area)
}
