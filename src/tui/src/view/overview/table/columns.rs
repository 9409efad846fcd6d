//! Which columns a table of some width has. The least important ones leave first.

#[cfg(test)]
mod tests;

use super::row;
use crate::model::{Column, Model, Process};
use crate::view::layout::clip;
use crate::wrap::width;

/// What a table column shows: a sortable figure, or one of the extras that only wide screens have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shown {
    /// A column of the model's.
    Of(Column),
    /// Which device.
    Device,
    /// The same where there is little room and all are real ones: its number.
    Gpu,
    /// Job label and rank.
    Job,
    /// Bytes asked for.
    Requested,
    /// Highest allocated bytes.
    Peak,
    /// Requests that failed.
    Ooms,
    /// A bar of its share of the device.
    Bar,
}

/// A column: what, its least width, and when it leaves (higher leaves sooner; 0 never does).
struct Spec {
    shown: Shown,
    width: u16,
    leaves: u8,
}

const SPECS: [Spec; 17] = [
    spec(Shown::Of(Column::Pid), 7, 0),
    spec(Shown::Device, 7, 4),
    spec(Shown::Of(Column::User), 8, 7),
    spec(Shown::Of(Column::Command), COMMAND, 0),
    spec(Shown::Job, 10, 13),
    spec(Shown::Bar, 18, 9),
    spec(Shown::Of(Column::Nvml), 7, 0),
    spec(Shown::Of(Column::Reserved), 9, 5),
    spec(Shown::Of(Column::Allocated), 7, 1),
    spec(Shown::Requested, 10, 11),
    spec(Shown::Peak, 7, 10),
    spec(Shown::Of(Column::Cached), 7, 1),
    spec(Shown::Of(Column::Fragmentation), 5, 3),
    spec(Shown::Of(Column::LargestFree), 13, 6),
    spec(Shown::Of(Column::Managed), 8, 12),
    spec(Shown::Ooms, 5, 8),
    spec(Shown::Of(Column::State), 14, 2),
];

/// What the column of devices becomes before it leaves.
const GPU: Spec = spec(Shown::Gpu, 3, 4);

const fn spec(shown: Shown, width: u16, leaves: u8) -> Spec {
    Spec { shown, width, leaves }
}

/// Columns of air between two columns of the table.
pub(super) const GAP: u16 = 2;
/// Columns that leave at this rank or above are extras.
const EXTRA: u8 = 7;
/// What the words should have beyond their least width before an extra column comes.
const COMFORT: u16 = 18;
/// Columns that a command has where there is room.
const COMMAND: u16 = 14;
/// Columns that it has at least beside the driver's figure: its heading; or the longest state before it, where one is not usual.
const NAME: [u16; 2] = [7, 12];

impl Shown {
    /// The heading.
    pub(super) fn title(self) -> &'static str {
        match self {
            Shown::Of(column) => column.title(),
            Shown::Device => "DEVICE",
            Shown::Gpu => "GPU",
            Shown::Job => "JOB",
            Shown::Requested => "REQUESTED",
            Shown::Peak => "PEAK",
            Shown::Ooms => "OOMS",
            Shown::Bar => "OF DEVICE",
        }
    }

    /// Words at the left rather than figures at the right.
    pub(super) fn is_text(self) -> bool {
        matches!(
            self,
            Shown::Of(Column::User | Column::Command | Column::State) | Shown::Device | Shown::Job | Shown::Bar
        )
    }

    /// A text as it stands in so many columns: words are cut with a sign. A figure stands there whole or not at all: cut, it would be
    /// read as another one.
    pub(super) fn fitted(self, text: String, room: u16) -> String {
        match width(&text) <= room {
            true => text,
            false if self.is_text() => clip(&text, room),
            false => String::new(),
        }
    }
}

/// Whether jobs have a column of their own.
pub(super) fn has_jobs(columns: &[(Shown, u16)]) -> bool {
    columns.iter().any(|c| c.0 == Shown::Job)
}

/// Which columns a table of so many columns of the terminal has, with their widths: the command takes what is left over. They fit
/// behind one column of air.
pub(super) fn fit(model: &Model, room: u16, framed: bool) -> Vec<(Shown, u16)> {
    let listed = Listed::new(model);
    let mut specs = listed.candidates();
    listed.thin_out(&mut specs, room);
    let needed = listed.needed(&specs);
    // There is air before the first column, and none behind the last.
    let mut over = (needed + 1).saturating_sub(room + GAP);
    if over > COMMAND - NAME[usize::from(listed.unusual)] {
        // A figure that is cut is none: the name has what there is.
        specs.retain(|s| s.shown != Shown::Of(Column::Nvml));
        over = 0;
    }
    let width = |s: &&Spec| match s.shown {
        Shown::Of(Column::Command) => s.width.saturating_sub(over),
        _ => listed.width(s),
    };
    let mut columns: Vec<(Shown, u16)> = specs.iter().map(|s| (s.shown, width(s))).collect();
    // A frame needs air before it, the edge of the screen none.
    let spare = (room + u16::from(!framed)).saturating_sub(listed.needed(&specs));
    widen(model, &mut columns, spare);
    cut_off(&mut columns, room);
    columns
}

/// What is left over goes to the words: first to what they cannot do without, then to all of them.
fn widen(model: &Model, columns: &mut [(Shown, u16)], mut spare: u16) {
    let job_shown = has_jobs(columns);
    for (shown, most) in [
        (Shown::Of(Column::State), 20),
        (Shown::Of(Column::Command), 24),
        (Shown::Job, 30),
        (Shown::Of(Column::State), 30),
        (Shown::Of(Column::User), 16),
        (Shown::Of(Column::Command), 100),
        (Shown::Of(Column::State), 100),
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

/// Cuts off what is beyond the right edge, where not even the columns fit that never leave.
fn cut_off(columns: &mut Vec<(Shown, u16)>, room: u16) {
    let mut left = room.saturating_sub(1);
    for (_, wide) in columns.iter_mut() {
        *wide = left.min(*wide);
        left = left.saturating_sub(*wide + GAP);
    }
    columns.retain(|c| c.1 > 0);
}

/// What of the listed processes decides about columns.
struct Listed<'a> {
    model: &'a Model,
    several_devices: bool,
    /// A driver counts some of them.
    counted: bool,
    /// Where a program uses several devices only their column tells its rows apart.
    apart: bool,
    /// The number of its device tells for each which one it is.
    numbered: bool,
    /// None has figures, and there are several devices: columns of dashes tell less than which device a row is of.
    untold: bool,
    /// Who ended or stands still must not pass for one of those that run.
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
            apart: several_devices && uses_several(model),
            numbered: model.listed().all(numbered),
            untold: several_devices && model.listed().all(|p| p.figures.is_none()),
            unusual: model.listed().any(|p| !p.runs_as_usual()),
        }
    }

    /// The columns that have something to tell. One of dashes tells nothing, and stands where what is reserved could.
    fn candidates(&self) -> Vec<&'static Spec> {
        let managed = self.model.listed().any(|p| p.managed.value().is_some());
        let jobs = self.model.listed().any(|p| !p.job_text().is_empty());
        let tells = |s: &&Spec| match s.shown {
            Shown::Device => self.several_devices,
            Shown::Of(Column::Managed) => managed,
            Shown::Job => jobs,
            Shown::Of(Column::Nvml) => self.counted,
            _ => true,
        };
        SPECS.iter().filter(tells).collect()
    }

    /// The least width of a column. Labels of devices differ in length: `GPU 0`, `SIM 4194304`.
    fn width(&self, spec: &Spec) -> u16 {
        if spec.shown != Shown::Device {
            return spec.width;
        }
        let labels = self.model.listed().map(|p| width(&p.device_label));
        labels.max().unwrap_or(0).clamp(6, 11)
    }

    /// What columns need, with air behind each.
    fn needed(&self, specs: &[&Spec]) -> u16 {
        specs.iter().map(|s| self.width(s) + GAP).sum()
    }

    /// When a column leaves, as in [`Spec::leaves`].
    fn leaves(&self, spec: &Spec) -> u8 {
        match spec.shown {
            Shown::Device if self.numbered => GPU.leaves,
            Shown::Device | Shown::Gpu if self.apart => 1,
            Shown::Of(Column::State) if self.unusual => 1,
            Shown::Of(Column::Allocated | Column::Cached | Column::Fragmentation) if self.untold => 5,
            Shown::Of(Column::Allocated | Column::Cached) if self.unusual => 2,
            Shown::Of(Column::Reserved) if !self.counted => 1,
            _ => spec.leaves,
        }
    }

    /// Takes columns out until the others fit, or only those are left that never leave.
    fn thin_out(&self, specs: &mut Vec<&'static Spec>, room: u16) {
        while let Some(leaver) = (0..specs.len())
            .filter(|&i| self.leaves(specs[i]) > 0)
            .max_by_key(|&i| self.leaves(specs[i]))
        {
            // An extra column must leave command and state legible; the others need only fit.
            let comfort = if self.leaves(specs[leaver]) >= EXTRA {
                COMFORT
            } else {
                0
            };
            if self.needed(specs) + comfort <= room {
                break;
            }
            match specs[leaver].shown {
                Shown::Device if self.numbered => specs[leaver] = &GPU,
                _ => drop(specs.remove(leaver)),
            }
        }
    }
}

/// Whether a listed program has rows of several devices.
fn uses_several(model: &Model) -> bool {
    let mut rows: Vec<(u32, &str)> = model.listed().map(|p| (p.pid, p.device_label.as_str())).collect();
    rows.sort_unstable();
    rows.dedup();
    rows.windows(2).any(|two| two[0].0 == two[1].0)
}
