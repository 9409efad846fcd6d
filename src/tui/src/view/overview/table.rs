//! The process table: as many columns as fit, the least important ones leave first.

use gpumem_probe::Reading;
use ratatui::layout::Rect;
use ratatui::style::Modifier;

use super::super::Screen;
use super::super::pen::{split_left, split_top, width, wrap};
use super::super::theme::Ink;
use super::super::{bar, units::plural};
use crate::model::{Column, Device, Figures, Process, ProcessState, SourceState, Target};
use crate::units;

/// What a table column shows: a sortable figure, or one of the extras that only wide screens have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shown {
    Of(Column),
    Device,
    Job,
    Requested,
    Peak,
    Ooms,
    Bar,
}

/// A column: what, its width, whether numbers (right-aligned), and when it leaves (higher leaves sooner).
struct Spec {
    shown: Shown,
    width: u16,
    leaves: u8,
}

const SPECS: [Spec; 17] = [
    Spec {
        shown: Shown::Of(Column::Pid),
        width: 7,
        leaves: 0,
    },
    Spec {
        shown: Shown::Device,
        width: 7,
        leaves: 4,
    },
    Spec {
        shown: Shown::Of(Column::User),
        width: 8,
        leaves: 7,
    },
    Spec {
        shown: Shown::Of(Column::Command),
        width: 16,
        leaves: 0,
    },
    Spec {
        shown: Shown::Job,
        width: 10,
        leaves: 13,
    },
    Spec {
        shown: Shown::Bar,
        width: 18,
        leaves: 9,
    },
    Spec {
        shown: Shown::Of(Column::Nvml),
        width: 7,
        leaves: 0,
    },
    Spec {
        shown: Shown::Of(Column::Reserved),
        width: 8,
        leaves: 5,
    },
    Spec {
        shown: Shown::Of(Column::Allocated),
        width: 7,
        leaves: 1,
    },
    Spec {
        shown: Shown::Requested,
        width: 9,
        leaves: 11,
    },
    Spec {
        shown: Shown::Peak,
        width: 7,
        leaves: 10,
    },
    Spec {
        shown: Shown::Of(Column::Cached),
        width: 7,
        leaves: 1,
    },
    Spec {
        shown: Shown::Of(Column::Fragmentation),
        width: 4,
        leaves: 3,
    },
    Spec {
        shown: Shown::Of(Column::LargestFree),
        width: 12,
        leaves: 6,
    },
    Spec {
        shown: Shown::Of(Column::Managed),
        width: 7,
        leaves: 12,
    },
    Spec {
        shown: Shown::Ooms,
        width: 4,
        leaves: 8,
    },
    Spec {
        shown: Shown::Of(Column::State),
        width: 14,
        leaves: 2,
    },
];
/// Columns of air between two columns of the table.
const GAP: u16 = 2;
/// Columns that leave at this rank or above are extras.
const EXTRA: u8 = 7;
/// What the command should have beyond its least width before an extra column comes.
const COMMAND_COMFORT: u16 = 14;

impl Shown {
    fn title(self) -> &'static str {
        match self {
            Shown::Of(column) => column.title(),
            Shown::Device => "DEVICE",
            Shown::Job => "JOB",
            Shown::Requested => "REQUESTED",
            Shown::Peak => "PEAK",
            Shown::Ooms => "OOMS",
            Shown::Bar => "OF DEVICE",
        }
    }

    fn is_text(self) -> bool {
        matches!(
            self,
            Shown::Of(Column::User | Column::Command | Column::State) | Shown::Device | Shown::Job | Shown::Bar
        )
    }
}

/// Lines the table would like for so many rows: heading, rows, frame.
pub(super) fn wanted_lines(rows: usize) -> u16 {
    u16::try_from(rows.max(1)).unwrap_or(u16::MAX).saturating_add(3)
}

/// Draws the table, with a line that says how many devices did not fit.
pub(super) fn draw_below(screen: &mut Screen<'_>, area: Rect, hidden_devices: usize) {
    if hidden_devices == 0 || area.height < 4 {
        return draw(screen, area);
    }
    let (line, rest) = split_top(area, 1);
    let text = format!(
        "{} more: Tab or a click on a device selects the next",
        plural(hidden_devices as u64, "device")
    );
    let style = screen.pen.theme.ink(Ink::Dim);
    screen
        .pen
        .clipped(line, 1, 0, &text, line.width.saturating_sub(1), style);
    draw(screen, rest);
}

/// Draws the table.
pub(super) fn draw(screen: &mut Screen<'_>, area: Rect) {
    let framed = area.height >= 7 && area.width >= 60 && screen.model.ui.term.height >= 30;
    let inside = if framed {
        let note = note(screen);
        let inside = screen.pen.panel(area, "Processes", &note);
        // The selection reaches from frame to frame.
        Rect {
            x: inside.x - 1,
            width: inside.width + 2,
            ..inside
        }
    } else {
        area
    };
    let (heading, rows) = split_top(inside, 1);
    let columns = fit(screen, inside.width);
    draw_heading(screen, heading, &columns);
    screen.hits.page = rows.height;
    if screen.model.rows.is_empty() {
        empty(screen, rows);
        return;
    }
    let model = screen.model;
    let shown = usize::from(rows.height);
    let selected = model.selected_row();
    let first = selected.map_or(0, |s| (s + 1).saturating_sub(shown));
    for (i, process) in model.listed().enumerate().skip(first).take(shown) {
        let (_, line) = split_top(rows, (i - first) as u16);
        let (line, _) = split_top(line, 1);
        draw_row(screen, line, &columns, process);
        if selected == Some(i) {
            let style = screen.pen.theme.selected();
            screen.pen.restyle(line, style);
        }
        draw_bar(screen, line, &columns, process);
        screen.hit(line, Target::Process(process.id));
    }
}

fn note(screen: &Screen<'_>) -> String {
    let model = screen.model;
    let all = model.world().processes.len();
    if !model.ui.filter.text.is_empty() {
        return format!("{} of {all} match {:?}", model.rows.len(), model.ui.filter.text);
    }
    plural(model.rows.len() as u64, "row")
}

/// Which columns fit, with their widths: the command takes what is left over.
fn fit(screen: &Screen<'_>, room: u16) -> Vec<(Shown, u16)> {
    let model = screen.model;
    let several_devices = model.world().devices.len() > 1;
    let managed = model.listed().any(|p| p.managed.value().is_some());
    let jobs = model.listed().any(|p| !p.job.is_empty());
    let mut specs: Vec<&Spec> = SPECS
        .iter()
        .filter(|s| match s.shown {
            Shown::Device => several_devices,
            Shown::Of(Column::Managed) => managed,
            Shown::Job => jobs,
            _ => true,
        })
        .collect();
    // Labels differ in length: `GPU 0`, `SIM 4194304`.
    let devices = model
        .listed()
        .map(|p| width(&p.device_label))
        .max()
        .unwrap_or(0)
        .clamp(6, 11);
    let wide = |s: &Spec| if s.shown == Shown::Device { devices } else { s.width };
    let needed = |specs: &[&Spec]| specs.iter().map(|s| wide(s) + GAP).sum::<u16>();
    while let Some(leaver) = (0..specs.len())
        .filter(|&i| specs[i].leaves > 0)
        .max_by_key(|&i| specs[i].leaves)
    {
        // An extra column must leave the command legible; the others need only fit.
        let comfort = if specs[leaver].leaves >= EXTRA {
            COMMAND_COMFORT
        } else {
            0
        };
        if needed(&specs) + comfort <= room {
            break;
        }
        specs.remove(leaver);
    }
    let spare = room.saturating_sub(needed(&specs));
    let state = spare.min(3) + (spare / 4).min(13);
    specs
        .iter()
        .map(|s| match s.shown {
            Shown::Device => (s.shown, devices),
            Shown::Of(Column::Command) => (s.shown, s.width + spare.saturating_sub(state).min(44)),
            Shown::Of(Column::State) => (s.shown, s.width + state),
            _ => (s.shown, s.width),
        })
        .collect()
}

fn draw_heading(screen: &mut Screen<'_>, area: Rect, columns: &[(Shown, u16)]) {
    let model = screen.model;
    let mut x = 1;
    for &(shown, wide) in columns {
        let sorted = shown == Shown::Of(model.ui.sort.column);
        let style = if sorted {
            screen.pen.theme.ink(Ink::Accent).add_modifier(Modifier::BOLD)
        } else {
            screen.pen.theme.ink(Ink::Dim)
        };
        let cell = Rect {
            x: area.x.saturating_add(x),
            width: wide.min(area.width.saturating_sub(x)),
            ..area
        };
        let title = shown.title();
        let end = if shown.is_text() {
            screen.pen.text(cell, 0, 0, title, style)
        } else {
            screen.pen.text_end(cell, wide, 0, title, style);
            wide
        };
        if sorted {
            let arrow = if model.ui.sort.descending { '▾' } else { '▴' };
            screen.pen.cell(area, x + end, 0, arrow, style);
        }
        if let Shown::Of(column) = shown {
            screen.hit(cell, Target::Column(column));
        }
        x = x.saturating_add(wide + GAP);
    }
}

fn draw_row(screen: &mut Screen<'_>, line: Rect, columns: &[(Shown, u16)], process: &Process) {
    let mut x = 1;
    for &(shown, wide) in columns {
        let room = wide.min(line.width.saturating_sub(x));
        let (_, cell) = split_left(line, x);
        let (cell, _) = split_left(cell, room);
        if shown != Shown::Bar {
            let (text, ink) = value(process, shown);
            let style = screen.pen.theme.ink(ink);
            if shown.is_text() {
                screen.pen.clipped(cell, 0, 0, &text, room, style);
            } else {
                screen.pen.text_end(cell, room, 0, &text, style);
            }
        }
        x = x.saturating_add(wide + GAP);
    }
}

/// The bar of a row; drawn after the selection, so that its colours keep their meaning.
fn draw_bar(screen: &mut Screen<'_>, line: Rect, columns: &[(Shown, u16)], process: &Process) {
    let before = columns.iter().take_while(|c| c.0 != Shown::Bar);
    let x = before.fold(1u16, |x, c| x.saturating_add(c.1 + GAP));
    if let Some(&(_, wide)) = columns.iter().find(|c| c.0 == Shown::Bar) {
        let (_, cell) = split_left(line, x);
        reserved_bar(screen, split_left(cell, wide).0, process);
    }
}

/// What one process shows in one column. `-` is "it does not say"; the STATE column says why.
fn value(process: &Process, shown: Shown) -> (String, Ink) {
    let figures = process.figures.as_ref();
    let bytes = |f: fn(&Figures) -> u64| match figures {
        Some(figures) => (units::bytes_short(f(figures)), Ink::Plain),
        None => ("-".to_owned(), Ink::Dim),
    };
    // A map with holes in it gives lower bounds only.
    let bound = |text: String| match figures {
        Some(f) if !f.complete => format!(">{text}"),
        _ => text,
    };
    match shown {
        Shown::Of(Column::Pid) => (process.pid.to_string(), Ink::Plain),
        Shown::Device => (process.device_label.clone(), Ink::Dim),
        Shown::Of(Column::User) => (process.user.clone(), Ink::Dim),
        Shown::Of(Column::Command) => (process.command.clone(), Ink::Plain),
        Shown::Job => match process.rank {
            Some(rank) => (format!("{}:{rank}", process.job), Ink::Dim),
            None => (process.job.clone(), Ink::Dim),
        },
        Shown::Of(Column::Nvml) => reading(&process.nvml),
        Shown::Of(Column::Managed) => reading(&process.managed),
        Shown::Of(Column::Reserved) => bytes(|f| f.reserved),
        Shown::Of(Column::Allocated) => bytes(|f| f.allocated),
        Shown::Requested => bytes(|f| f.requested),
        Shown::Peak => bytes(|f| f.peak_allocated),
        Shown::Of(Column::Cached) => bytes(|f| f.cached),
        Shown::Of(Column::Fragmentation) => match figures.and_then(Figures::fragmentation) {
            Some(share) => (units::percent(share), Ink::Plain),
            None => ("-".to_owned(), Ink::Dim),
        },
        Shown::Of(Column::LargestFree) => match figures {
            // Without a whole map a zero is no figure.
            Some(f) if f.largest_free == 0 && !f.complete => ("-".to_owned(), Ink::Dim),
            _ => {
                let (text, ink) = bytes(|f| f.largest_free);
                (bound(text), ink)
            }
        },
        Shown::Ooms => match figures.map(|f| f.ooms) {
            Some(0) => ("0".to_owned(), Ink::Dim),
            Some(n) => (n.to_string(), Ink::Warning),
            None => ("-".to_owned(), Ink::Dim),
        },
        Shown::Of(Column::State) => state(process),
        Shown::Bar => (String::new(), Ink::Plain),
    }
}

fn state(process: &Process) -> (String, Ink) {
    let ink = match process.state {
        ProcessState::Publishing => Ink::Good,
        ProcessState::NotPublishing | ProcessState::OtherUser | ProcessState::Exited => Ink::Dim,
        ProcessState::Died | ProcessState::Inconsistent(_) => Ink::Warning,
    };
    let mut text = process.state.text().to_owned();
    if let ProcessState::Inconsistent(why) = &process.state {
        text = format!("{text}: {why}");
    }
    if process.simulated {
        text = format!("SIMULATED, {text}");
    }
    (text, ink)
}

fn reading(reading: &Reading<u64>) -> (String, Ink) {
    match reading {
        Reading::Value(n) => (units::bytes_short(*n), Ink::Plain),
        Reading::Pending => ("-".to_owned(), Ink::Dim),
        Reading::NotSupported => ("n/s".to_owned(), Ink::Dim),
        Reading::NoPermission => ("denied".to_owned(), Ink::Warning),
        Reading::Failed(_) => ("failed".to_owned(), Ink::Warning),
    }
}

/// Allocated and cached (or NVML's figure) as a share of the device.
fn reserved_bar(screen: &mut Screen<'_>, cell: Rect, process: &Process) {
    let device: Option<&Device> = screen.model.world().devices.iter().find(|d| d.key == process.id.device);
    let Some(total) = device
        .and_then(|d| d.memory.value())
        .map(|m| m.total)
        .filter(|&t| t > 0)
    else {
        return;
    };
    let (allocated, cached) = process.figures.as_ref().map_or((0, 0), |f| (f.allocated, f.cached));
    let other = process.nvml.value().map_or(0, |n| n.saturating_sub(allocated + cached));
    let free = total
        .saturating_sub(allocated)
        .saturating_sub(cached)
        .saturating_sub(other);
    let parts = [
        (Ink::Allocated, allocated),
        (Ink::Cached, cached),
        (Ink::Other, other),
        (Ink::Free, free),
    ];
    bar::stacked(&mut screen.pen, cell, &parts);
}

/// What to do when there is no row.
fn empty(screen: &mut Screen<'_>, area: Rect) {
    let model = screen.model;
    let text = if !model.ui.filter.text.is_empty() {
        "No process matches the filter. Esc clears it."
    } else {
        match (&model.world().nvml.state, model.world().devices.is_empty()) {
            (SourceState::Starting, true) => "",
            (SourceState::Failing { .. }, _) => {
                "While NVML fails, only programs that publish can be listed, and none does. A program publishes when it \
                 allocates through gpumem-alloc."
            }
            _ => {
                "No process uses or publishes GPU memory now. A program publishes when it allocates through gpumem-alloc. \
                 Try it: key 7 starts a demo."
            }
        }
    };
    let style = screen.pen.theme.ink(Ink::Dim);
    let top = u16::from(area.height > 3);
    for (y, line) in wrap(text, area.width.saturating_sub(3).min(90)).iter().enumerate() {
        screen.pen.text(area, 2, y as u16 + top, line, style);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_important_columns_leave_first_and_the_names_never() {
        let leavers: Vec<u8> = SPECS.iter().map(|s| s.leaves).filter(|&l| l > 0).collect();
        assert!(leavers.len() < SPECS.len());
        for spec in &SPECS {
            assert!(
                width(spec.shown.title()) <= spec.width,
                "{:?}: its heading would be cut",
                spec.shown
            );
        }
    }
}
