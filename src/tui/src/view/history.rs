//! The last minute of a device as stacked areas in the colours of its bar.

use gpumem_text::units;
use ratatui::layout::Rect;

use super::graph;
use super::pen::{Pen, split_bottom, split_left, width};
use super::theme::Ink;
use crate::model::{Device, DeviceKind, DeviceState, Model, Partition, SECOND};

/// Seconds that are shown.
pub(super) const SECONDS: usize = 60;
/// Columns of the axis.
const AXIS: u16 = 7;

/// When a device's newest figures are of: those that are shown while the user pauses, or the driver does not answer, grow old.
pub(super) fn newest(model: &Model, device: &Device) -> String {
    match (&device.state, device.history.long.back()) {
        (DeviceState::Gone | DeviceState::Lost(_), _) => "last known".to_owned(),
        (DeviceState::Present, Some(point)) if model.paused() => {
            format!("{} ago", units::age(model.now.saturating_sub(point.at)))
        }
        (DeviceState::Present, _) => match model.nvml_late_by() {
            Some(age) if device.kind == DeviceKind::Nvml => format!("{} ago", units::age(age)),
            _ => "now".to_owned(),
        },
    }
}

/// Draws the last minute up to the `newest` figures, with an axis up to the device's total, or to a round figure when little
/// is used.
pub(super) fn draw(pen: &mut Pen<'_>, area: Rect, device: &Device, newest: &str) {
    let dim = pen.theme.ink(Ink::Dim);
    let (axis, chart) = split_left(area, AXIS);
    if chart.width < 12 || chart.height < 2 || device.history.seconds.is_empty() {
        return;
    }
    let (chart, foot) = split_bottom(chart, u16::from(chart.height >= 5));
    let scale = Scale::new(chart.width);
    let columns = columns(device, scale);
    let most = columns.iter().flatten().map(|m| m.used()).max().unwrap_or(0);
    let total = columns.iter().flatten().map(|m| m.total).max().unwrap_or(0).max(1);
    // Little use of a large device would be a line on the floor; none needs no other axis.
    let top = if (1..total / 4).contains(&most) {
        graph::ceiling(most.saturating_add(most / 4)).min(total)
    } else {
        total
    };
    pen.text_end(axis, AXIS - 1, 0, &units::bytes_short(top), dim);
    pen.text_end(axis, AXIS - 1, chart.height - 1, "0", dim);
    for x in 0..chart.width {
        pen.cell(chart, x, 0, '┈', dim);
    }
    let begin = format!("{} s ago", scale.seconds);
    let left = pen.text_end(foot, foot.width, 0, newest, dim);
    if width(&begin) < left {
        pen.text(foot, 0, 0, &begin, dim);
    }
    for (x, memory) in (0..).zip(columns) {
        let Some(memory) = memory else { continue };
        let share = |bytes: u64| bytes as f64 / top as f64;
        let tops = [share(memory.allocated), share(memory.reserved()), share(memory.used())];
        graph::stacked_column(pen, chart, x, &[Ink::Allocated, Ink::Cached, Ink::Other], &tops);
    }
}

/// How time lies on columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Scale {
    width: u16,
    /// Seconds from the left edge to the right.
    seconds: u16,
    /// Columns of a second; 0: less than one.
    fine: u16,
}

impl Scale {
    /// A minute, and more where a second a whole number of columns wide leaves room for it.
    fn new(width: u16) -> Scale {
        let fine = width / SECONDS as u16;
        let seconds = width.checked_div(fine).unwrap_or(SECONDS as u16);
        Scale { width, seconds, fine }
    }

    /// The columns of the second that many seconds before the right edge.
    fn columns(self, back: u64) -> std::ops::Range<usize> {
        let (width, seconds) = (usize::from(self.width), usize::from(self.seconds));
        let Some(second) = usize::try_from(back)
            .ok()
            .and_then(|back| (seconds - 1).checked_sub(back))
        else {
            return 0..0;
        };
        match usize::from(self.fine) {
            0 => second * width / seconds..(second + 1) * width / seconds,
            fine => width - (seconds - second) * fine..width - (seconds - second - 1) * fine,
        }
    }
}

/// One partition a column, the newest last: the fullest of its second, and of its part of the second where samples are
/// that many. Columns of seconds without a sample are gaps.
fn columns(device: &Device, scale: Scale) -> Vec<Option<&Partition>> {
    let mut columns = vec![None; usize::from(scale.width)];
    let history = &device.history;
    let Some(edge) = history.edge() else { return columns };
    for point in history.seconds.iter() {
        if let Some(back) = edge.checked_sub(point.at / SECOND) {
            // Where seconds share a column the newest shows, as it will when it stands alone.
            columns[scale.columns(back)].fill(Some(&point.memory));
        }
    }
    if scale.fine < 2 {
        return columns;
    }
    let mut taken = vec![false; columns.len()];
    for point in history.long.iter() {
        let Some(back) = edge.checked_sub(point.at / SECOND) else {
            continue;
        };
        let second = scale.columns(back);
        let part = (point.at % SECOND * u64::from(scale.fine) / SECOND) as usize;
        if second.is_empty() {
            continue;
        }
        let column = second.start + part;
        let fuller = columns[column].is_none_or(|m: &Partition| m.fullness() <= point.memory.fullness());
        if !taken[column] || fuller {
            columns[column] = Some(&point.memory);
            taken[column] = true;
        }
    }
    columns
}

/// The share in use in each of the last `n` seconds, for a spark.
pub(super) fn used(device: &Device, n: usize) -> Vec<Option<f64>> {
    let seconds = columns(device, Scale::new(SECONDS as u16));
    let share = |m: &Partition| (m.total > 0).then(|| m.used() as f64 / m.total as f64);
    seconds[SECONDS - n.min(SECONDS)..]
        .iter()
        .map(|m| m.and_then(share))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::fixture;
    use super::*;

    fn device(points: &[(u64, u64)]) -> Device {
        let mut device = fixture::simulated().live.devices.remove(0);
        device.history = Default::default();
        for &(tenths, allocated) in points {
            let memory = Partition {
                total: 100,
                allocated,
                free: 100 - allocated,
                ..Partition::default()
            };
            let at = tenths * SECOND / 10;
            device.history.push(crate::model::Point { at, memory });
        }
        device
    }

    fn allocated(device: &Device, width: u16) -> Vec<u64> {
        let columns = columns(device, Scale::new(width));
        columns.into_iter().map(|m| m.map_or(0, |m| m.allocated)).collect()
    }

    #[test]
    fn every_width_is_filled_by_a_minute_or_more() {
        for width in 0..400 {
            let scale = Scale::new(width);
            assert!(scale.seconds >= 60 && scale.seconds < 120, "{scale:?}");
            let mut columns: Vec<usize> = (0..u64::from(scale.seconds))
                .flat_map(|back| scale.columns(back))
                .collect();
            columns.sort_unstable();
            let left = usize::from(width) - columns.len();
            assert!(left < usize::from(scale.fine.max(1)), "{scale:?} leaves {left}");
            assert_eq!(columns, (left..usize::from(width)).collect::<Vec<_>>());
            assert!(scale.columns(u64::from(scale.seconds)).is_empty());
        }
    }

    #[test]
    fn a_second_is_one_column_while_they_are_few_and_parts_of_it_show_where_there_is_room() {
        let points: Vec<(u64, u64)> = (0..20).map(|half| (1000 + half * 5, 10 + half)).collect();
        let device = device(&points);
        let narrow = allocated(&device, 60);
        assert_eq!(
            narrow[50..],
            [11, 13, 15, 17, 19, 21, 23, 25, 27, 29],
            "the fullest of each"
        );
        let wide = allocated(&device, 120);
        assert_eq!(wide[100..], (10..30).collect::<Vec<u64>>());
        assert!(
            wide[..100].iter().all(|&n| n == 0),
            "nothing is known of what was before"
        );
    }
}
