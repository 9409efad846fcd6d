//! The last minute of a device as stacked areas in the colours of its bar.

use ratatui::layout::Rect;

use super::graph;
use super::pen::{Pen, split_bottom, split_left};
use super::theme::Ink;
use crate::model::{Device, Partition, SECOND};
use crate::units;

/// Seconds that are shown.
pub(super) const SECONDS: usize = 60;
/// Columns of the axis.
const AXIS: u16 = 7;

/// Draws a second a step, with an axis up to the device's total, or to a round figure when little is used.
pub(super) fn draw(pen: &mut Pen<'_>, area: Rect, device: &Device) {
    let dim = pen.theme.ink(Ink::Dim);
    let (axis, chart) = split_left(area, AXIS);
    if chart.width < 12 || chart.height < 2 || device.history.seconds.is_empty() {
        return;
    }
    let (chart, foot) = split_bottom(chart, u16::from(chart.height >= 5));
    let seconds = by_second(device);
    let most = seconds.iter().flatten().map(|m| m.used()).max().unwrap_or(0);
    let total = seconds.iter().flatten().map(|m| m.total).max().unwrap_or(0).max(1);
    // Little use of a large device would be a line on the floor.
    let top = if most < total / 4 {
        graph::ceiling(most.saturating_add(most / 4)).min(total)
    } else {
        total
    };
    pen.text_end(axis, AXIS - 1, 0, &units::bytes_short(top), dim);
    pen.text_end(axis, AXIS - 1, chart.height - 1, "0", dim);
    for x in 0..chart.width {
        pen.cell(chart, x, 0, '┈', dim);
    }
    pen.text(foot, 0, 0, "60 s ago", dim);
    pen.text_end(foot, foot.width, 0, "now", dim);
    for x in 0..chart.width {
        let second = usize::from(x) * SECONDS / usize::from(chart.width);
        let Some(memory) = seconds[second] else {
            continue;
        };
        let share = |bytes: u64| bytes as f64 / top as f64;
        let tops = [share(memory.allocated), share(memory.reserved()), share(memory.used())];
        graph::stacked_column(pen, chart, x, &[Ink::Allocated, Ink::Cached, Ink::Other], &tops);
    }
}

/// The share in use in each of the last `n` seconds, for a spark.
pub(super) fn used(device: &Device, n: usize) -> Vec<Option<f64>> {
    let seconds = by_second(device);
    let share = |m: &Partition| (m.total > 0).then(|| m.used() as f64 / m.total as f64);
    seconds[SECONDS - n.min(SECONDS)..]
        .iter()
        .map(|m| m.and_then(share))
        .collect()
}

/// One partition per second, the newest last; seconds without a sample are gaps.
fn by_second(device: &Device) -> [Option<&Partition>; SECONDS] {
    let mut slots = [None; SECONDS];
    let Some(edge) = device.history.edge() else {
        return slots;
    };
    for point in device.history.seconds.iter().filter(|p| p.at / SECOND <= edge) {
        let back = (edge - point.at / SECOND) as usize;
        if back < SECONDS {
            slots[SECONDS - 1 - back] = Some(&point.memory);
        }
    }
    slots
}
