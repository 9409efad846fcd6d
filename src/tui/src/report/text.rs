//! The text report.

use std::collections::HashSet;
use std::fmt::Write;

use gpumem_channel::pool_called;
use gpumem_probe::{NvmlState, Reading};
use gpumem_text::units;

use super::processes;
use crate::model::{Basis, BlackBoxes, Device, DeviceKind, Model, Partition, ProcessId, Severity};
use crate::wrap::{width, wrap};

/// Formats the report, ending in a newline. Lines take at most `room` columns if possible: the table drops columns, and sentences
/// are wrapped.
pub(crate) fn text(model: &Model, room: u16) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = write(&mut out, model, room);
    out
}

fn write(out: &mut String, model: &Model, room: u16) -> std::fmt::Result {
    let world = model.world();
    write!(out, "gpumem {}  {}", env!("CARGO_PKG_VERSION"), model.setup.host)?;
    if let Some(version) = &world.driver.version {
        write!(out, "  driver {version}")?;
    }
    if let Some((major, minor)) = world.driver.cuda {
        write!(out, "  CUDA {major}.{minor}")?;
    }
    writeln!(out)?;
    if world.nvml == NvmlState::Missing {
        write_sentence(out, "no NVML: figures are the publishers' alone", room)?;
    }
    for device in &world.devices {
        writeln!(out)?;
        write_device(out, device, room)?;
    }
    if model.rows.is_empty() {
        let living = world.processes.iter().any(|p| !world.past.contains(&p.id));
        let filtered = living && !model.ui.filter.text.is_empty();
        // A GPU may be used by processes that are not listed, such as those in other containers.
        let none = match (filtered, &world.nvml) {
            (true, _) => "no process passes the filter",
            (false, NvmlState::Ready) => "NVML lists no process, and none publishes",
            (false, _) => "no process publishes",
        };
        writeln!(out, "\n{none}")?;
    } else {
        writeln!(out)?;
        for line in processes::table(model, room) {
            writeln!(out, "{line}")?;
        }
        write_budgets(out, model, room)?;
        write_jobs(out, model, room)?;
    }
    if !world.past.is_empty() && !model.ui.black_boxes && model.setup.black_boxes == BlackBoxes::Recent {
        let count = world.past.len();
        let text = format!("black boxes of programs that ended: {count} (--json and the dashboard's b list them)");
        writeln!(out)?;
        write_sentence(out, &text, room)?;
    }
    let shown = model
        .findings()
        .filter(|f| f.severity > Severity::Info || f.process.is_none());
    for (i, finding) in shown.enumerate() {
        let word = match finding.severity {
            Severity::Info => "note",
            Severity::Warning => "warning",
            Severity::Error => "error",
        };
        if i == 0 {
            writeln!(out)?;
        }
        write_sentence(out, &format!("{word}: {}", finding.text), room)?;
    }
    Ok(())
}

/// Writes a sentence, wrapped to `room` columns.
fn write_sentence(out: &mut String, text: &str, room: u16) -> std::fmt::Result {
    writeln!(out, "{}", wrap(text, room.saturating_sub(2).max(1)).join("\n  "))
}

/// Writes an indented line of a device or process, wrapped to `room` columns.
fn write_detail(out: &mut String, text: &str, room: u16) -> std::fmt::Result {
    match width(text).saturating_add(2) <= room {
        true => writeln!(out, "  {text}"),
        false => writeln!(out, "  {}", wrap(text, room.saturating_sub(4).max(1)).join("\n    ")),
    }
}

fn write_device(out: &mut String, device: &Device, room: u16) -> std::fmt::Result {
    write!(out, "{}  {}", device.label, device.name)?;
    if device.kind == DeviceKind::Simulated {
        write!(out, "  SIMULATED")?;
    }
    if let Some(uuid) = device.uuid_text() {
        write!(out, "  {uuid}")?;
    }
    if let Some(note) = device.state.said() {
        write!(out, "  {note}")?;
    }
    writeln!(out)?;
    match &device.memory {
        Reading::Value(memory) => write_memory(out, device, memory, room)?,
        other => write_detail(out, &format!("memory: {}", other.reason().unwrap_or_default()), room)?,
    }
    if let Some(host) = &device.host {
        let [total, available, free] = [host.total, host.available, host.free].map(units::bytes);
        let text = format!("shared with host: {total}, {available} available, {free} free (MemAvailable, MemFree)");
        write_detail(out, &text, room)?;
    }
    // NVML measures only whole GPUs.
    if device.kind == DeviceKind::Nvml && device.part_of.is_none() {
        write_detail(out, &sensors(device).join("   "), room)?;
    }
    Ok(())
}

fn write_memory(out: &mut String, device: &Device, memory: &Partition, room: u16) -> std::fmt::Result {
    let mut parts = vec![("allocated", memory.allocated), ("cached", memory.cached)];
    if memory.basis == Basis::Driver && memory.allocated + memory.cached == 0 {
        // No program publishes.
        parts.clear();
    }
    match memory.basis {
        Basis::Driver => {
            match memory.host {
                Some(host) => {
                    let others = match memory.reserved() {
                        0 => "processes of the GPU",
                        _ => "other processes of the GPU",
                    };
                    parts.extend([(others, memory.other), ("host's programs", host)]);
                }
                None => parts.push(("other", memory.other)),
            }
            if memory.managed > 0 {
                parts.push(("managed at most", memory.managed));
            }
            parts.extend(memory.driver.map(|bytes| ("driver", bytes)));
        }
        Basis::Publishers => {}
    }
    parts.push((memory.rest(), memory.free));
    let parts: Vec<String> = parts
        .into_iter()
        .map(|(name, n)| format!("{name} {}", units::bytes(n)))
        .collect();
    let (parts, total) = (parts.join(" + "), units::bytes(memory.total));
    let sum = format!("{parts}  =  total {total}");
    if width(&sum).saturating_add(2) <= room {
        writeln!(out, "  {sum}")?;
    } else {
        write_detail(out, &parts, room)?;
        writeln!(out, "    =  total {total}")?;
    }
    if let (Basis::Driver, Some(why)) = (memory.basis, device.driver_share_unknown()) {
        write_detail(out, &format!("driver: {why}"), room)?;
    }
    if memory.skewed {
        let text = "(publishers claim more than the driver counts: their figures are of different moments)";
        write_detail(out, text, room)?;
    }
    Ok(())
}

fn sensors(device: &Device) -> Vec<String> {
    let s = &device.sensors;
    let say = |name: &str, text: Result<String, Option<String>>| match text {
        Ok(value) => format!("{name} {value}"),
        Err(why) => format!("{name}: {}", why.unwrap_or_default()),
    };
    let power = match (&s.power, &s.power_limit) {
        (Reading::Value(now), Reading::Value(limit)) => Ok(format!("{} of {} W", now / 1000, limit / 1000)),
        (Reading::Value(now), _) => Ok(format!("{} W", now / 1000)),
        (other, _) => Err(other.reason()),
    };
    let rate = |reading: &Reading<u64>| match reading {
        Reading::Value(n) => Ok(units::rate(*n)),
        other => Err(other.reason()),
    };
    vec![
        say(
            "utilization",
            s.utilization
                .value()
                .map(|n| format!("{n}%"))
                .ok_or_else(|| s.utilization.reason()),
        ),
        say(
            "temperature",
            s.temperature
                .value()
                .map(|n| format!("{n} C"))
                .ok_or_else(|| s.temperature.reason()),
        ),
        say("power", power),
        say("H>D", rate(&s.pcie_rx)),
        say("D>H", rate(&s.pcie_tx)),
    ]
}

/// Writes a line for each budget and for each named pool that has memory, with the device if there are several.
fn write_budgets(out: &mut String, model: &Model, room: u16) -> std::fmt::Result {
    for process in model.listed() {
        let who = model.world().name_of(process);
        if let Some((figures, budget)) = process.figures.as_ref().and_then(|f| Some((f, f.budget?))) {
            let [budget, reserved] = [budget, figures.reserved].map(units::bytes);
            write_detail(out, &format!("{who} budget {budget}: {reserved} reserved"), room)?;
        }
        for pool in process.figures.iter().flat_map(|figures| &figures.pools) {
            let [reserved, free, largest] = [pool.reserved, pool.free.bytes, pool.free.largest].map(units::bytes);
            let pool = pool_called(&pool.name);
            let text = format!("{who} {pool}: {reserved} reserved, {free} of it free, the largest block {largest}");
            write_detail(out, &text, room)?;
        }
    }
    Ok(())
}

/// Writes a line for each job with a listed rank: its ranks, their median, and those that are unlike the others.
fn write_jobs(out: &mut String, model: &Model, room: u16) -> std::fmt::Result {
    let listed: HashSet<ProcessId> = model.listed().map(|process| process.id).collect();
    let jobs = model.world().jobs.iter();
    for job in jobs.filter(|job| job.ranks.iter().any(|rank| listed.contains(&rank.id))) {
        let mut text = format!("{}: {}", job.name, job.extent());
        if let Some(median) = job.median.reserved {
            write!(text, ", median {} reserved", units::bytes(median))?;
        }
        for (rank, outlier) in job.ranks.iter().filter_map(|rank| Some((rank.rank, rank.outlier?))) {
            write!(text, "; rank {rank}: {outlier}")?;
        }
        write_detail(out, &text, room)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use gpumem_probe::{Gpu, NvmlSample, Sensors};

    use super::*;
    use crate::event::Event;
    use crate::model::Sample;
    use crate::update::update;

    fn of(sensors: Sensors) -> String {
        let gpu = Gpu {
            sensors,
            ..Gpu::default()
        };
        let sample = NvmlSample {
            state: NvmlState::Ready,
            gpus: vec![gpu],
            ..NvmlSample::default()
        };
        let mut model = Model::default();
        update(&mut model, 0, Event::sampled(0, Sample::Nvml(sample)));
        text(&model, u16::MAX)
    }

    #[test]
    fn each_sensor_is_named() {
        let text = of(Sensors {
            utilization: Reading::Value(37),
            temperature: Reading::NotSupported,
            ..Sensors::default()
        });
        assert!(text.contains("utilization 37%   temperature: not supported"), "{text}");
    }

    /// In tenths of a gigabyte, a link with little traffic would look idle.
    #[test]
    fn little_traffic_is_not_shown_as_none() {
        let text = of(Sensors {
            pcie_rx: Reading::Value(30_000_000),
            pcie_tx: Reading::Value(1_234_000_000),
            ..Sensors::default()
        });
        assert!(text.contains("H>D 30 MB/s   D>H 1.2 GB/s"), "{text}");
    }
}
