//! Which columns a table of some width has. The least important ones leave first.

use super::super::super::Screen;
use super::super::super::pen::width;
use super::row;
use crate::model::{Column, Model, Process};

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
}

/// Which columns fit, with their widths: the command takes what is left over.
pub(super) fn fit(screen: &Screen<'_>, room: u16, framed: bool) -> Vec<(Shown, u16)> {
    let model = screen.model;
    let several_devices = model.world().devices.len() > 1;
    let managed = model.listed().any(|p| p.managed.value().is_some());
    let jobs = model.listed().any(|p| !p.job_text().is_empty());
    // A column of dashes tells nothing, and stands where what is reserved could.
    let counted = model.counted();
    let mut specs: Vec<&Spec> = SPECS
        .iter()
        .filter(|s| match s.shown {
            Shown::Device => several_devices,
            Shown::Of(Column::Managed) => managed,
            Shown::Job => jobs,
            Shown::Of(Column::Nvml) => counted,
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
    // Where a program uses several devices only this column tells its rows apart.
    let apart = several_devices && uses_several(model);
    let numbered = model
        .listed()
        .all(|p| row::gpu(p).is_some_and(|number| width(number) <= GPU.width));
    // Columns of dashes tell less than which device a row is of.
    let untold = several_devices && model.listed().all(|p| p.figures.is_none());
    // Who ended or stands still must not pass for one of those that run.
    let unusual = model.listed().any(|p| !p.runs_as_usual());
    let leaves = |s: &Spec| match s.shown {
        Shown::Device if numbered => GPU.leaves,
        Shown::Device | Shown::Gpu if apart => 1,
        Shown::Of(Column::State) if unusual => 1,
        Shown::Of(Column::Allocated | Column::Cached | Column::Fragmentation) if untold => 5,
        Shown::Of(Column::Allocated | Column::Cached) if unusual => 2,
        Shown::Of(Column::Reserved) if !counted => 1,
        _ => s.leaves,
    };
    while let Some(leaver) = (0..specs.len())
        .filter(|&i| leaves(specs[i]) > 0)
        .max_by_key(|&i| leaves(specs[i]))
    {
        // An extra column must leave command and state legible; the others need only fit.
        let comfort = if leaves(specs[leaver]) >= EXTRA { COMFORT } else { 0 };
        if needed(&specs) + comfort <= room {
            break;
        }
        match specs[leaver].shown {
            Shown::Device if numbered => specs[leaver] = &GPU,
            _ => drop(specs.remove(leaver)),
        }
    }
    // There is air before the first column, and none behind the last.
    let mut over = (needed(&specs) + 1).saturating_sub(room + GAP);
    if over > COMMAND - NAME[usize::from(unusual)] {
        // A figure that is cut is none: the name has what there is.
        specs.retain(|s| s.shown != Shown::Of(Column::Nvml));
        over = 0;
    }
    let job_shown = specs.iter().any(|s| s.shown == Shown::Job);
    // A frame needs air before it, the edge of the screen none.
    let mut spare = (room + u16::from(!framed)).saturating_sub(needed(&specs));
    let mut widths: Vec<u16> = specs.iter().map(|s| wide(s)).collect();
    if let Some(i) = specs.iter().position(|s| s.shown == Shown::Of(Column::Command)) {
        widths[i] = widths[i].saturating_sub(over);
    }
    // What is left over goes to the words: first to what they cannot do without, then to all of them.
    for (shown, most) in [
        (Shown::Of(Column::State), 20),
        (Shown::Of(Column::Command), 24),
        (Shown::Job, 30),
        (Shown::Of(Column::State), 30),
        (Shown::Of(Column::User), 16),
        (Shown::Of(Column::Command), 100),
        (Shown::Of(Column::State), 100),
    ] {
        let Some(i) = specs.iter().position(|s| s.shown == shown) else {
            continue;
        };
        let text = |p: &Process| match shown {
            Shown::Of(Column::State) => width(&row::state_in(p, most)),
            Shown::Of(Column::Command) => width(&row::name_in(p, u16::MAX, job_shown, "")),
            _ => width(&row::value(p, shown).0),
        };
        let wanted = model.listed().map(text).max().unwrap_or(0).min(most);
        let more = wanted.saturating_sub(widths[i]).min(spare);
        widths[i] += more;
        spare -= more;
    }
    specs.iter().map(|s| s.shown).zip(widths).collect()
}

/// Whether a listed program has rows of several devices.
fn uses_several(model: &Model) -> bool {
    let mut rows: Vec<(u32, &str)> = model.listed().map(|p| (p.pid, p.device_label.as_str())).collect();
    rows.sort_unstable();
    rows.dedup();
    rows.windows(2).any(|two| two[0].0 == two[1].0)
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
                // The arrow of the order beside it.
                width(spec.shown.title()) < spec.width,
                "{:?}: its heading would be cut",
                spec.shown
            );
        }
    }
}
