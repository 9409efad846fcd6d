//! Overview: every device as a bar that adds up, with its newest past; every process as a row.

mod device;
mod table;

use gpumem_probe::NvmlState;
use ratatui::layout::Rect;

use super::Screen;
use super::pen::{split_bottom, split_left, split_top, wrap};
use super::theme::Ink;
use crate::model::{Demo, DemoPhase, Device, Model, Only, Target};
use crate::units;
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
        let more = |tier: Tier, row: &[Device]| row.iter().map(|d| tier.more_lines(d)).max().unwrap_or(0);
        let all_more = |tier: Tier| rows.iter().fold(0, |sum: u16, row| sum.saturating_add(more(tier, row)));
        let tier = Tier::ALL
            .into_iter()
            .find(|&t| rows.len() * usize::from(t.lines()) + usize::from(all_more(t)) <= usize::from(room))
            .unwrap_or(Tier::Bar);
        // The tallest grows into what the table leaves, up to half of the screen.
        let lines = match (tier, rows.len() as u16) {
            (Tier::Tall, count @ 1..) => ((room - all_more(tier)) / count).min(area.height / 2).max(tier.lines()),
            _ => tier.lines(),
        };
        let shown = (usize::from(room) / usize::from(lines)).max(1).min(rows.len());
        let selected = model
            .selected_device()
            .and_then(|d| devices.iter().position(|x| x.key == d.key))
            .unwrap_or(0);
        let first = first_in_view(model.ui.hits.first[1], Some(selected / columns), shown, rows.len());
        let of_row = |row: &&[Device]| lines + more(tier, row);
        Plan {
            columns,
            tier,
            rows: rows.iter().skip(first).take(shown).map(of_row).collect(),
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

    /// Lines of an area that the devices leave to the table.
    fn table(&self, model: &Model, area: Rect) -> Rect {
        let devices = self.rows.iter().fold(0u16, |sum, &lines| sum.saturating_add(lines));
        let (_, rest) = split_top(area, devices);
        table::below_note(rest, self.hidden(model))[1]
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
    let (_, area) = split_top(area, notice_lines(screen, area).len() as u16);
    let plan = Plan::new(model, area);
    let spare = table::spare(model, plan.table(model, area)).min(most);
    let holds = |less: &u16| {
        let smaller = Plan::new(model, split_bottom(area, *less).0);
        // The tallest devices fill what there is.
        smaller.tier == plan.tier && smaller.rows.len() == plan.rows.len()
    };
    (0..=spare).rev().find(holds).unwrap_or(0)
}

/// Draws the view.
pub(super) fn draw(screen: &mut Screen<'_>, area: Rect) {
    let model = screen.model;
    let devices = &model.world().devices;
    let area = notice(screen, area);
    if devices.is_empty() {
        table::draw(screen, area);
        return;
    }
    let plan = Plan::new(model, area);
    screen.hits.first[1] = plan.first;
    let mut rest = area;
    for (row, &lines) in devices.chunks(plan.columns).skip(plan.first).zip(&plan.rows) {
        let (line, below) = split_top(rest, lines);
        let width = line.width / plan.columns as u16;
        for (i, device) in row.iter().enumerate() {
            let (_, right) = split_left(line, width * i as u16);
            let (area, _) = split_left(right, width);
            device_at(screen, area, device, plan.tier);
        }
        rest = below;
    }
    table::draw_below(screen, rest, plan.hidden(model));
}

fn device_at(screen: &mut Screen<'_>, area: Rect, device: &Device, tier: Tier) {
    device::draw(screen, area, device, tier);
    screen.hit(area, Target::Device(device.key));
}

/// Says what is wrong with the sources, above everything else; returns the area that is left.
fn notice(screen: &mut Screen<'_>, area: Rect) -> Rect {
    let theme = screen.pen.theme;
    let lines = notice_lines(screen, area);
    let (top, rest) = split_top(area, lines.len() as u16);
    for (y, (mark, line, ink)) in lines.into_iter().enumerate() {
        if let Some(mark) = mark {
            screen.pen.cell(top, 1, y as u16, theme.glyph(mark), theme.ink(mark));
        }
        screen.pen.text(top, 3, y as u16, &line, theme.ink(ink));
    }
    rest
}

/// The same as lines, with the mark before each and the look of its text. The last is air.
fn notice_lines(screen: &Screen<'_>, area: Rect) -> Vec<(Option<Ink>, String, Ink)> {
    let model = screen.model;
    let none = model.world().devices.is_empty();
    let (ink, first, second) = match &model.world().nvml {
        NvmlState::Failed { error, hint } => (Ink::Warning, format!("NVML fails: {error}"), units::sentence(hint)),
        NvmlState::Starting if none && model.setup.only == Some(Only::Simulated) => why_nothing_is_simulated(model),
        NvmlState::Starting if none => (Ink::Dim, "Asking the driver ...".to_owned(), String::new()),
        NvmlState::Missing if none => (
            Ink::Warning,
            match &model.setup.nvml {
                Some(file) => format!("GPUMEM_NVML names {file}, which is not on this machine."),
                None => "No NVIDIA driver on this machine (libnvidia-ml.so.1 is not installed).".to_owned(),
            },
            without_driver(model),
        ),
        NvmlState::Ready if none => (
            Ink::Plain,
            "The driver answers and lists no GPU.".to_owned(),
            "In a container, ask for one (docker run --gpus all). gpumem-tui doctor looks further.".to_owned(),
        ),
        _ => return Vec::new(),
    };
    let room = area.width.saturating_sub(4);
    let first = wrap(&first, room).into_iter().map(|l| (None, l, Ink::Strong));
    let second = wrap(&second, room).into_iter().map(|l| (None, l, Ink::Dim));
    let mut lines: Vec<_> = first.chain(second).chain([(None, String::new(), Ink::Plain)]).collect();
    lines[0].0 = Some(ink).filter(|&ink| ink == Ink::Warning);
    lines
}

/// What can be seen without a driver, or what is in the way of it.
fn without_driver(model: &Model) -> String {
    match model.demo.as_ref().and_then(|demo| demo.unpublished.as_ref()) {
        Some(why) => {
            format!("What runs on a simulated device here cannot be seen: {why}. gpumem-tui doctor looks further.")
        }
        None => "gpumem-tui demo train --device sim shows everything on a simulated device; gpumem-tui doctor says what is missing."
            .to_owned(),
    }
}

/// Why there is no simulated device where nothing else was asked for. A demo whose channel cannot be made simulates for itself.
fn why_nothing_is_simulated(model: &Model) -> (Ink, String, String) {
    let nothing = |why: &str| {
        let first = "The simulated training run does not publish: nothing of it can be seen.";
        (
            Ink::Warning,
            first.to_owned(),
            format!("{why}. gpumem-tui doctor looks further."),
        )
    };
    match &model.demo {
        Some(demo) if let Some(why) = &demo.unpublished => nothing(why),
        Some(Demo {
            phase: DemoPhase::Failed(why),
            ..
        }) => (
            Ink::Warning,
            "The simulated training run failed.".to_owned(),
            why.clone(),
        ),
        Some(demo) if demo.running() => (
            Ink::Dim,
            "Starting a simulated training run ...".to_owned(),
            String::new(),
        ),
        _ => (
            Ink::Dim,
            "Nothing is simulated now.".to_owned(),
            "Key 7 starts a demo.".to_owned(),
        ),
    }
}
