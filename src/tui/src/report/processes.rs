//! The report's table of processes.

use std::collections::HashSet;

use gpumem_probe::Reading;
use gpumem_text::units;

use super::table::{Align, lines};
use crate::model::{Column, Figures, JOB_OR_COMMAND, ManagedSums, Model, Process};
use crate::wrap::{cut, width};

/// Longest job or command, in columns.
const NAME: usize = 40;
/// A column is dropped before names are cut shorter than this.
const SHORT_NAME: usize = 14;
/// The mark at the end of a name that was cut.
const CUT: &str = "..";

/// A column of the process table. `None` is the device column, which the dashboard does not have.
type ReportColumn = Option<Column>;

/// Columns that are dropped when the table is too wide, in this order, as in the dashboard.
const LEAVING: [ReportColumn; 5] = [
    Some(Column::User),
    Some(Column::LargestFree),
    Some(Column::Reserved),
    None,
    Some(Column::Fragmentation),
];

/// Formats the process table in at most `room` columns if possible: names are cut, then columns are dropped, then names are
/// cut further.
pub(super) fn table(model: &Model, room: u16) -> Vec<String> {
    let room = usize::from(room);
    let mut columns: Vec<ReportColumn> = vec![None];
    columns.extend(
        Column::ALL
            .into_iter()
            .filter(|&column| model.listed().any(|process| process.has(column)))
            // The state says it where there are some.
            .filter(|column| *column != Column::Ooms)
            .map(Some),
    );
    // If a program uses several devices, only the device column tells its rows apart.
    let mut pids = HashSet::new();
    let apart = model.listed().any(|p| !pids.insert(p.pid));
    let mut leaving = LEAVING.into_iter().filter(|column| column.is_some() || !apart);
    let widest = |lines: &[String]| lines.iter().map(|line| usize::from(width(line))).max().unwrap_or(0);
    loop {
        let lines = table_of(model, &columns, NAME);
        let over = widest(&lines).saturating_sub(room);
        if over == 0 {
            return lines;
        }
        let names: Vec<String> = model.listed().map(|process| name_of(process, NAME)).collect();
        let short = widest(&names).saturating_sub(over);
        if short >= SHORT_NAME {
            return table_of(model, &columns, short);
        }
        match leaving.next() {
            Some(column) => columns.retain(|other| *other != column),
            None => return table_of(model, &columns, short.max(JOB_OR_COMMAND.len())),
        }
    }
}

fn table_of(model: &Model, columns: &[ReportColumn], name: usize) -> Vec<String> {
    let align = |column: &ReportColumn| match column {
        None | Some(Column::User | Column::Command | Column::State) => Align::Left,
        Some(_) => Align::Right,
    };
    let title = |column: &ReportColumn| match column {
        None => "DEVICE".to_owned(),
        Some(Column::Command) if model.listed().any(|p| !p.job.is_empty()) => JOB_OR_COMMAND.to_owned(),
        Some(column) => column.title().to_owned(),
    };
    let aligns: Vec<Align> = columns.iter().map(align).collect();
    let mut rows: Vec<Vec<String>> = vec![columns.iter().map(title).collect()];
    rows.extend(
        model
            .listed()
            .map(|process| columns.iter().map(|column| cell(process, *column, name)).collect()),
    );
    lines(&aligns, &rows)
}

/// Formats NVML's bytes of a process, or a word for why there are none.
fn driver_bytes(process: &Process) -> String {
    match &process.nvml {
        Reading::Value(n) => units::bytes_short(*n),
        _ if !process.may_be_counted() => "-".into(),
        Reading::Pending => "-".into(),
        Reading::NotSupported => "n/s".into(),
        Reading::NoPermission => "no permission".into(),
        Reading::Failed(_) => "failed".into(),
    }
}

/// Formats the largest free block. An incomplete map gives a lower bound, or nothing.
fn largest_free(figures: &Figures) -> String {
    match (figures.complete, figures.largest_free) {
        _ if !figures.mapped => "-".into(),
        (true, bytes) => units::bytes_short(bytes),
        (false, 0) => "-".into(),
        (false, bytes) => format!(">={}", units::bytes_short(bytes)),
    }
}

fn managed(sums: &ManagedSums) -> String {
    let share = sums.cpu_share().map_or_else(String::new, units::percent);
    format!("{} {share}", units::bytes_short(sums.bytes))
}

/// Returns the name of a process in at most `room` columns.
fn name_of(process: &Process, room: usize) -> String {
    match process.name_in(room, CUT) {
        name if name.is_empty() => "?".to_owned(),
        name => cut(&name, u16::try_from(room).unwrap_or(u16::MAX), CUT),
    }
}

fn cell(process: &Process, column: ReportColumn, name: usize) -> String {
    let figures = process.figures.as_ref();
    let bytes =
        |of: fn(&Figures) -> u64| figures.map_or_else(|| "-".to_owned(), |figures| units::bytes_short(of(figures)));
    match column {
        None => process.device_label.clone(),
        Some(Column::Pid) => process.pid.to_string(),
        Some(Column::User) if process.user.is_empty() => "?".to_owned(),
        Some(Column::User) => process.user.clone(),
        Some(Column::Command) => name_of(process, name),
        Some(Column::Nvml) => driver_bytes(process),
        Some(Column::Reserved) => bytes(|figures| figures.reserved),
        Some(Column::Allocated) => bytes(|figures| figures.allocated),
        Some(Column::Cached) => bytes(|figures| figures.cached),
        Some(Column::Fragmentation) => figures
            .and_then(|figures| figures.fragmentation())
            .map_or_else(|| "-".to_owned(), units::percent),
        Some(Column::LargestFree) => figures.map_or_else(|| "-".to_owned(), largest_free),
        Some(Column::Ooms) => figures.map_or_else(|| "-".to_owned(), |figures| units::count(figures.ooms)),
        Some(Column::Managed) => process
            .managed
            .value()
            .filter(|sums| sums.bytes > 0)
            .map_or_else(|| "-".to_owned(), managed),
        Some(Column::State) if process.simulated => format!("{}, SIMULATED", process.state_text()),
        Some(Column::State) => match &process.failing {
            Some(failing) => format!("{}, {}", process.state_text(), failing.text()),
            None => process.state_text(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{ChannelKey, DeviceKey, Owner, ProcessId, ProcessState};

    /// Otherwise the terminal would break the last column.
    #[test]
    fn table_with_the_longest_state_fits() {
        let mut model = Model::default();
        model.live.processes.push(Process {
            id: ProcessId {
                device: DeviceKey::NvmlIndex(0),
                owner: Owner::Channel(ChannelKey(1, 1)),
            },
            pid: 9202,
            device_label: "SIM 9202".into(),
            user: "root".into(),
            command: "gpumem-tui".into(),
            label: "gpumem-tui".into(),
            job: "replay resnet50_multires.csv.gz".into(),
            rank: None,
            world_size: None,
            parent: None,
            nvml: Reading::NotSupported,
            figures: Some(Figures {
                allocated: 800 << 20,
                ..Figures::default()
            }),
            managed: Reading::NotSupported,
            state: ProcessState::Publishing,
            stopped: None,
            mps: false,
            simulated: true,
            failing: None,
            ended: None,
            hints: [].into(),
        });
        model.rows = vec![0];
        for room in 56..=140 {
            let lines = table(&model, room);
            let widest = lines.iter().map(|line| width(line)).max();
            assert!(widest <= Some(room), "{room}: {lines:#?}");
            assert!(lines[1].ends_with("publishing, SIMULATED"), "{lines:#?}");
        }
    }
}
