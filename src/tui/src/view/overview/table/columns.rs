//! Chooses the columns of a table for its width. The least important ones are dropped first.

#[cfg(test)]
mod tests;

use super::row;
use crate::model::{Column, Figure, Model, Process};
use crate::view::layout::clip;
use crate::wrap::width;

/// A column of the table: a sortable one, or one that only wide screens have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shown {
    /// A sortable column.
    Of(Column),
    /// The label of the device.
    Device,
    /// The number of the GPU, in place of the label where space is short and all devices are real.
    Gpu,
    /// The job's name and the rank.
    Job,
    /// Bytes asked for.
    Requested,
    /// Highest allocated bytes.
    Peak,
    /// A bar of its share of the device.
    Bar,
    /// The whole command line.
    CommandLine,
}

/// A column with its least width and its drop rank: the highest is dropped first, 0 never.
struct Spec {
    shown: Shown,
    width: u16,
    drop_rank: u8,
}

const SPECS: [Spec; 18] = [
    spec(Shown::Of(Column::Pid), 7, 0),
    spec(Shown::Device, 7, 4),
    spec(Shown::Of(Column::User), 8, 7),
    spec(Shown::Of(Column::Command), COMMAND, 0),
    spec(Shown::Job, 10, 10),
    spec(Shown::Bar, 18, 9),
    spec(Shown::Of(Column::Nvml), 7, 0),
    spec(Shown::Of(Column::Reserved), 9, 5),
    spec(Shown::Of(Column::Allocated), 7, 1),
    spec(Shown::Requested, 10, 13),
    spec(Shown::Peak, 7, 12),
    spec(Shown::Of(Column::Cached), 7, 1),
    spec(Shown::Of(Column::Fragmentation), 5, 3),
    spec(Shown::Of(Column::LargestFree), 13, 6),
    spec(Shown::Of(Column::Managed), 8, 1),
    spec(Shown::Of(Column::Ooms), 5, 8),
    spec(Shown::Of(Column::State), 14, 2),
    spec(Shown::CommandLine, 24, 11),
];

/// Replaces the column of devices before that is dropped.
const GPU: Spec = spec(Shown::Gpu, 3, 4);

const fn spec(shown: Shown, width: u16, drop_rank: u8) -> Spec {
    Spec {
        shown,
        width,
        drop_rank,
    }
}

/// Blank columns between two columns of the table.
pub(super) const GAP: u16 = 2;
/// Columns of this drop rank or above are extras.
const EXTRA: u8 = 7;
/// Extra columns are shown only if command and state have this much more than their least width.
const TEXT_SLACK: u16 = 18;
/// The command line is shown only if the command has this much more than its least width: most labels are whole then.
const NAME_SLACK: u16 = 10;
/// The least width of the command where there is room.
const COMMAND: u16 = 14;
/// Its least width beside NVML's figure: the width of its heading, or of the longest state before it if a row has an
/// unusual one.
const NAME: [u16; 2] = [7, 12];

impl Shown {
    /// Returns the heading.
    pub(super) fn title(self) -> &'static str {
        match self {
            Shown::Of(column) => column.title(),
            Shown::Device => "DEVICE",
            Shown::Gpu => "GPU",
            Shown::Job => "JOB",
            Shown::Requested => "REQUESTED",
            Shown::Peak => "PEAK",
            Shown::Bar => "OF DEVICE",
            Shown::CommandLine => "COMMAND LINE",
        }
    }

    /// Returns its name in the configuration.
    fn name(self) -> String {
        self.title().to_lowercase().replace(' ', "-")
    }

    /// Returns the column of a figure.
    pub(super) fn of_figure(figure: Figure) -> Shown {
        Shown::Of(match figure {
            Figure::Reserved => Column::Reserved,
            Figure::Allocated => Column::Allocated,
            Figure::Cached => Column::Cached,
            Figure::Nvml => Column::Nvml,
        })
    }

    /// Checks whether the column holds text, aligned at the left, and not figures, aligned at the right.
    pub(super) fn is_text(self) -> bool {
        matches!(
            self,
            Shown::Of(Column::User | Column::Command | Column::State)
                | Shown::Device
                | Shown::Job
                | Shown::Bar
                | Shown::CommandLine
        )
    }

    /// Fits a cell's text into `room` columns. Words are cut with an ellipsis. A figure is dropped if it does not fit, because a
    /// cut figure would be wrong.
    pub(super) fn fitted(self, text: String, room: u16) -> String {
        match width(&text) <= room {
            true => text,
            false if self.is_text() => clip(&text, room),
            false => String::new(),
        }
    }
}

/// Checks whether jobs have a column of their own.
pub(super) fn has_jobs(columns: &[(Shown, u16)]) -> bool {
    columns.iter().any(|c| c.0 == Shown::Job)
}

/// Chooses the columns of a table that is `room` wide, with their widths. The command takes what is left over. They fit
/// behind one blank column.
pub(super) fn fit(model: &Model, room: u16, framed: bool) -> Vec<(Shown, u16)> {
    let listed = Listed::new(model);
    let mut specs = listed.candidates();
    listed.drop_columns(&mut specs, room);
    let needed = listed.needed(&specs);
    // There is a blank before the first column, and none behind the last.
    let mut over = (needed + 1).saturating_sub(room + GAP);
    if over > COMMAND - NAME[usize::from(listed.unusual)] {
        // NVML's figure would be cut, so the name takes its space.
        specs.retain(|s| s.shown != Shown::Of(Column::Nvml));
        over = 0;
    }
    let width = |s: &&Spec| match s.shown {
        Shown::Of(Column::Command) => s.width.saturating_sub(over),
        _ => listed.width(s),
    };
    let mut columns: Vec<(Shown, u16)> = specs.iter().map(|s| (s.shown, width(s))).collect();
    // A frame needs a blank before it, the edge of the screen none.
    let spare = (room + u16::from(!framed)).saturating_sub(listed.needed(&specs));
    widen(model, &mut columns, spare);
    cut_at_edge(&mut columns, room);
    columns
}

/// Gives the columns left over to the text columns: first what they need most, then the rest.
fn widen(model: &Model, columns: &mut [(Shown, u16)], mut spare: u16) {
    let job_shown = has_jobs(columns);
    for (shown, most) in [
        (Shown::Of(Column::Managed), 12),
        (Shown::Of(Column::State), 20),
        (Shown::Of(Column::Command), 24),
        (Shown::Job, 30),
        (Shown::Of(Column::State), 30),
        (Shown::Of(Column::User), 16),
        (Shown::Of(Column::Command), 100),
        (Shown::Of(Column::State), 100),
        (Shown::CommandLine, 200),
    ] {
        let Some((_, wide)) = columns.iter_mut().find(|c| c.0 == shown) else {
            continue;
        };
        let text = |p: &Process| match shown {
            Shown::Of(Column::State) => width(&row::state_in(p, most)),
            Shown::Of(Column::Command) => width(&row::name_in(p, u16::MAX, job_shown, "")),
            _ => width(&row::value(p, shown).0),
        };
        let wanted = model.listed().map(text).max().unwrap_or(0).min(most);
        let more = wanted.saturating_sub(*wide).min(spare);
        *wide += more;
        spare -= more;
    }
}

/// Cuts columns at the right edge if not even those that are never dropped fit.
fn cut_at_edge(columns: &mut Vec<(Shown, u16)>, room: u16) {
    let mut left = room.saturating_sub(1);
    for (_, wide) in columns.iter_mut() {
        *wide = left.min(*wide);
        left = left.saturating_sub(*wide + GAP);
    }
    columns.retain(|c| c.1 > 0);
}

/// The facts about the listed processes that decide which columns are shown.
struct Listed<'a> {
    model: &'a Model,
    several_devices: bool,
    /// NVML may count at least one of them.
    counted: bool,
    /// A program uses several devices, so that only the device tells its rows apart.
    multi_device: bool,
    /// Every device can be identified by its number alone.
    numbered: bool,
    /// A process has ended or is stopped, which its row must show.
    unusual: bool,
}

impl Listed<'_> {
    fn new(model: &Model) -> Listed<'_> {
        let several_devices = model.world().devices.len() > 1;
        let numbered = |p: &Process| row::gpu(p).is_some_and(|number| width(number) <= GPU.width);
        Listed {
            model,
            several_devices,
            counted: model.counted(),
            multi_device: several_devices && uses_several(model),
            numbered: model.listed().all(numbered),
            unusual: model.listed().any(|p| !p.runs_as_usual()),
        }
    }

    /// Returns the columns that may be shown: those with a value in any row, and the one that rows are sorted by.
    fn candidates(&self) -> Vec<&'static Spec> {
        let model = self.model;
        let tells = |s: &&Spec| match s.shown {
            Shown::Of(column) => column == model.order() || model.has_values(column),
            Shown::Requested | Shown::Peak => model.has_values(Column::Allocated),
            Shown::Bar => model.has_values(Column::Nvml) || model.has_values(Column::Reserved),
            Shown::Device | Shown::Gpu => self.several_devices,
            Shown::Job => model.listed().any(|p| !p.job_text().is_empty()),
            Shown::CommandLine => model.listed().any(|p| p.command != p.label),
        };
        let chosen = &model.setup.columns;
        let wanted = |s: &&Spec| match s.shown {
            // They tell rows apart.
            Shown::Of(Column::Pid | Column::Command) | Shown::Device | Shown::Gpu => true,
            Shown::Of(column) if column == model.order() => true,
            shown => chosen.is_empty() || chosen.contains(&shown.name()),
        };
        SPECS.iter().filter(tells).filter(wanted).collect()
    }

    /// Returns the least width of a column. Device labels differ in length: `GPU 0`, `SIM 4194304`.
    fn width(&self, spec: &Spec) -> u16 {
        if spec.shown != Shown::Device {
            return spec.width;
        }
        let labels = self.model.listed().map(|p| width(&p.device_label));
        labels.max().unwrap_or(0).clamp(6, 11)
    }

    /// Returns the width that columns need, with a gap behind each.
    fn needed(&self, specs: &[&Spec]) -> u16 {
        specs.iter().map(|s| self.width(s) + GAP).sum()
    }

    /// Returns the drop rank of a column, which may differ from [`Spec::drop_rank`].
    fn drop_rank(&self, spec: &Spec) -> u8 {
        match spec.shown {
            Shown::Of(column) if column == self.model.order() => 0,
            Shown::Device if self.numbered => GPU.drop_rank,
            Shown::Device | Shown::Gpu if self.multi_device => 1,
            Shown::Of(Column::State) if self.unusual => 1,
            Shown::Of(Column::Allocated | Column::Cached) if self.unusual => 2,
            Shown::Of(Column::Reserved) if !self.counted => 1,
            _ => spec.drop_rank,
        }
    }

    /// Drops columns until the others fit, or only those are left that are never dropped.
    fn drop_columns(&self, specs: &mut Vec<&'static Spec>, room: u16) {
        while let Some(dropped) = (0..specs.len())
            .filter(|&i| self.drop_rank(specs[i]) > 0)
            .max_by_key(|&i| self.drop_rank(specs[i]))
        {
            // Extra columns must leave space for command and state, and the command line for whole names; the others need only
            // fit.
            let slack = match specs[dropped].shown {
                Shown::CommandLine => NAME_SLACK,
                _ if self.drop_rank(specs[dropped]) >= EXTRA => TEXT_SLACK,
                _ => 0,
            };
            if self.needed(specs) + slack <= room {
                break;
            }
            match specs[dropped].shown {
                Shown::Device if self.numbered => specs[dropped] = &GPU,
                _ => drop(specs.remove(dropped)),
            }
        }
    }
}

/// Checks whether a listed program has rows of several devices.
fn uses_several(model: &Model) -> bool {
    let mut rows: Vec<(u32, &str)> = model.listed().map(|p| (p.pid, p.device_label.as_str())).collect();
    rows.sort_unstable();
    rows.dedup();
    rows.windows(2).any(|two| two[0].0 == two[1].0)
}
