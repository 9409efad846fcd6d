//! The order, filter and selection of the process table.

use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};

use gpumem_probe::Reading;

use crate::model::{
    BlocksUi, Column, Device, DeviceKey, Jobs, KeptColumns, Model, Owner, Popup, Process, ProcessId, Sort,
};

/// Rebuilds the list of processes after a sample, or when the order or the filter change. The same process stays selected. The
/// first row is selected if none was, or if the selected process is gone, does not pass the filter, or is on another device than
/// the one that the list is restricted to.
pub(super) fn refresh(model: &mut Model) {
    follow_demo(model);
    follow_publisher(model);
    let (sort, all) = (model.ui.sort, model.ui.black_boxes);
    let (filter, only) = (model.filter(), model.listed_devices());
    let world = model.world();
    let processes = &world.processes;
    let devices: HashMap<DeviceKey, &Device> = match filter.is_empty() {
        true => HashMap::new(),
        false => world.devices.iter().map(|d| (d.key, d)).collect(),
    };
    let listed = |p: &Process| {
        let device = p.id.device;
        (all || !world.past.contains(&p.id))
            && only.as_ref().is_none_or(|only| only.contains(&device))
            && filter.matches(p, devices.get(&device).copied())
    };
    let mut rows: Vec<usize> = (0..processes.len()).filter(|&i| listed(&processes[i])).collect();
    let jobs = &world.jobs;
    rows.sort_by(|&a, &b| compare(&processes[a], &processes[b], sort, jobs));
    model.rows = rows;
    keep_columns(model);
    let narrowed = model.narrowed();
    if !narrowed
        && let Some(before) = model.ui.filter.before.take()
        && model.world().processes.iter().any(|p| p.id == before)
    {
        model.ui.process = Some(before);
        model.ui.blocks = BlocksUi::default();
    }
    let first = model.listed().next().map(|p| p.id);
    // The popup of ranks selects ranks that do not pass the filter, too.
    let narrowed = narrowed && model.ui.popup != Some(Popup::Ranks);
    let hidden = narrowed && first.is_some() && !model.listed().any(|p| Some(p.id) == model.ui.process);
    if model.selected_process().is_none() || hidden {
        let filter = &mut model.ui.filter;
        filter.before = filter.before.or(model.ui.process).filter(|_| hidden);
        model.ui.process = first;
        model.ui.blocks = BlocksUi::default();
    }
}

/// Records which columns have a value, for as long as the user changes neither the list nor its order.
fn keep_columns(model: &mut Model) {
    let ui = &model.ui;
    let device = model.only_device().map(|device| device.key);
    let list = (ui.filter.text.clone(), device, ui.black_boxes, ui.sort);
    let valued = Column::ALL
        .into_iter()
        .filter(|&column| model.listed().any(|p| p.has(column)));
    let mut columns: HashSet<Column> = valued.collect();
    if ui.kept.list == list {
        columns.extend(&ui.kept.columns);
    }
    model.ui.kept = KeptColumns { columns, list };
}

/// Selects the process of a demo that was just started, once it has a row.
fn follow_demo(model: &mut Model) {
    let Some(pid) = model.demo.as_ref().and_then(|d| d.pid).filter(|_| model.ui.follow_demo) else {
        return;
    };
    let Some(id) = model
        .world()
        .processes
        .iter()
        // NVML may list it before its channel is found, but that row has no blocks to show.
        .find(|p| p.pid == pid && p.state.alive() && matches!(p.id.owner, Owner::Channel(_)))
        .map(|p| p.id)
    else {
        return;
    };
    model.ui.follow_demo = false;
    model.ui.process = Some(id);
    model.ui.chosen = Some(id);
    model.ui.device = Some(id.device);
    model.ui.blocks = BlocksUi::default();
}

/// Keeps a process selected when it begins to publish, which gives its row another identity.
fn follow_publisher(model: &mut Model) {
    let Some(ProcessId {
        device,
        owner: Owner::Pid(pid, _),
    }) = model.ui.process
    else {
        return;
    };
    let publishes = |p: &&Process| p.id.device == device && p.pid == pid && p.state.alive();
    if model.selected_process().is_none()
        && let Some(now) = model.world().processes.iter().find(publishes).map(|p| p.id)
    {
        if model.ui.chosen == model.ui.process {
            model.ui.chosen = Some(now);
        }
        model.ui.process = Some(now);
    }
}

/// Compares two rows. Figures that are not available come last in either direction. Ties are broken by identity, so that rows
/// do not change places.
fn compare(a: &Process, b: &Process, sort: Sort, jobs: &Jobs) -> Ordering {
    let directed = |order: Ordering| if sort.descending { order.reverse() } else { order };
    let order = match sort.column {
        Column::Pid => directed(a.pid.cmp(&b.pid)),
        Column::User => directed(a.user.cmp(&b.user)),
        // The ranks of a job stand together, in their order.
        Column::Command => {
            let (x, y) = (jobs.label(a), jobs.label(b));
            directed(x.cmp(y)).then(jobs.place(a.id).cmp(&jobs.place(b.id)))
        }
        Column::State => directed(a.state_text().cmp(&b.state_text())),
        column => match (number(a, column), number(b, column)) {
            (Some(x), Some(y)) => directed(x.total_cmp(&y)),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (None, None) => Ordering::Equal,
        },
    };
    // Black boxes come after live processes, the newest first.
    let ended = |p: &Process| p.ended.map(|ended| ended.at);
    let newest = match a.state.alive() || b.state.alive() {
        true => Ordering::Equal,
        false => ended(b).cmp(&ended(a)),
    };
    // Who ran out of memory a moment ago comes first, alive or not.
    b.failing
        .is_some()
        .cmp(&a.failing.is_some())
        .then(b.state.alive().cmp(&a.state.alive()))
        .then(newest)
        .then(order)
        .then(a.id.cmp(&b.id))
}

fn number(process: &Process, column: Column) -> Option<f64> {
    let figures = process.figures.as_ref();
    let bytes = |reading: &Reading<u64>| reading.value().map(|&n| n as f64);
    match column {
        // A publisher without a figure of NVML's ranks by what it reserved.
        Column::Nvml => bytes(&process.nvml).or(figures.map(|f| f.reserved as f64)),
        Column::Reserved => figures.map(|f| f.reserved as f64),
        Column::Allocated => figures.map(|f| f.allocated as f64),
        Column::Cached => figures.map(|f| f.cached as f64),
        Column::Fragmentation => figures.and_then(|f| f.fragmentation()),
        Column::LargestFree => figures.and_then(|f| Some(f.largest()? as f64)),
        Column::Ooms => figures.map(|f| f.ooms as f64),
        Column::Managed => process.managed.value().map(|sums| sums.bytes as f64),
        Column::Pid | Column::User | Column::Command | Column::State => None,
    }
}
