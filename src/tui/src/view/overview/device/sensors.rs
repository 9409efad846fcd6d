//! What NVML measures besides memory.

use gpumem_probe::Reading;
use gpumem_text::units::rate;
use ratatui::layout::Rect;
use ratatui::style::Style;

use super::super::super::bar;
use super::super::super::pen::{Pen, split_left, split_top, width};
use super::super::super::theme::Ink;
use crate::model::{Device, DeviceKind, DeviceState};

/// A figure: its label, its text, and its share of a limit where it has one.
type Row = (&'static str, String, Option<f64>);

/// What the sensors say, utilization first. Figures that are not there say why; nothing is made up.
fn readings(device: &Device) -> Vec<Row> {
    let sensors = &device.sensors;
    // What was not asked while it answered never will be.
    let pending = match device.state {
        DeviceState::Present => "not asked yet",
        DeviceState::Lost(_) | DeviceState::Gone => "not known",
    };
    let mut rows = vec![];
    let share = |p: u32| Some(f64::from(p.min(100)) / 100.0);
    let mut percent = |label, reading: &Reading<u32>| {
        rows.push(match reading {
            Reading::Value(p) => (label, format!("{p}%"), share(*p)),
            other => (label, short_reason(other, pending), None),
        });
    };
    percent("utilization", &sensors.utilization);
    percent("memory bus", &sensors.memory_utilization);
    rows.push(match (&sensors.power, &sensors.power_limit) {
        (Reading::Value(now), Reading::Value(limit)) if *limit > 0 => (
            "power",
            format!("{} / {} W", now / 1000, limit / 1000),
            Some(f64::from(*now) / f64::from(*limit)),
        ),
        (Reading::Value(now), _) => ("power", format!("{} W", now / 1000), None),
        (other, _) => ("power", short_reason(other, pending), None),
    });
    rows.push(match &sensors.temperature {
        Reading::Value(t) => ("temperature", format!("{t} °C"), None),
        other => ("temperature", short_reason(other, pending), None),
    });
    for (label, reading) in [("H>D", &sensors.pcie_rx), ("D>H", &sensors.pcie_tx)] {
        rows.push(match reading {
            Reading::Value(n) => (label, rate(*n), None),
            other => (label, short_reason(other, pending), None),
        });
    }
    rows
}

fn short_reason<T>(reading: &Reading<T>, pending: &str) -> String {
    match reading {
        Reading::Value(_) | Reading::Pending => pending,
        Reading::NotSupported => "not supported",
        Reading::NoPermission => "needs more rights",
        Reading::Failed(_) => "failed",
    }
    .into()
}

/// Whether anything measures this device.
pub(super) fn has_sensors(device: &Device) -> bool {
    device.kind == DeviceKind::Nvml
}

/// The sensors on one line, as many as fit.
pub(super) fn line(pen: &mut Pen<'_>, area: Rect, device: &Device) {
    if !has_sensors(device) {
        pen.clipped(area, 0, 0, no_sensors(device), area.width, pen.theme.ink(Ink::Dim));
        return;
    }
    let rows = readings(device);
    let mut short = rows.clone();
    short[0].0 = "util";
    // The word in full, unless another figure has to go for it.
    let rows = match fitting(&short, area.width) > fitting(&rows, area.width) {
        true => short,
        false => rows,
    };
    let mut x = 0;
    for (label, text, _) in &rows[..fitting(&rows, area.width)] {
        x = pen.text(area, x, 0, label, pen.theme.ink(Ink::Dim));
        x = pen.text(area, x + 1, 0, text, Style::new()) + 3;
    }
}

/// How many of them fit on a line, with air between them.
fn fitting(rows: &[Row], room: u16) -> usize {
    let mut end = 0;
    let fits = |(label, text, _): &&Row| {
        end += width(label) + 1 + width(text) + 3;
        end - 3 <= room
    };
    rows.iter().take_while(fits).count()
}

fn no_sensors(device: &Device) -> &'static str {
    match device.kind {
        DeviceKind::Simulated => "a simulated device has no sensors",
        _ => "NVML does not list it: no sensors",
    }
}

/// Column where the figures of the sensor column end.
const FIGURE_END: u16 = 23;

/// A column of sensors, each with a small meter where it has a limit.
pub(super) fn column(pen: &mut Pen<'_>, area: Rect, device: &Device) {
    let dim = pen.theme.ink(Ink::Dim);
    let mut rows = readings(device);
    if usize::from(area.height) < rows.len() {
        // Both directions of the link share a line when lines are few.
        if let (Some(down), Some(up)) = (rows.pop(), rows.pop()) {
            let told = device.sensors.pcie_rx.value().is_some();
            let text = match up.1 == down.1 && !told {
                // One reason for both is said once.
                true => up.1,
                false => format!("H>D {}  D>H {}", up.1, down.1),
            };
            rows.push(("PCIe", text, None));
        }
    }
    for (y, (label, text, share)) in rows.into_iter().enumerate() {
        let y = y as u16;
        pen.text(area, 0, y, label, dim);
        match share {
            Some(share) => {
                pen.text_end(area, FIGURE_END, y, &text, Style::new());
                let (_, meter) = split_left(split_top(area, y).1, FIGURE_END + 2);
                bar::meter(pen, split_top(meter, 1).0, Ink::Accent, share);
            }
            // A reason is longer than a figure: it may use the room of the meter.
            None if width(&text) + 12 > FIGURE_END => {
                let x = area
                    .width
                    .saturating_sub(width(&text))
                    .clamp(width(label) + 1, 12.max(width(label) + 1));
                pen.clipped(area, x, y, &text, area.width, dim);
            }
            None => {
                pen.text_end(area, FIGURE_END, y, &text, Style::new());
            }
        }
    }
}
