//! The last minute of a device's memory as stacked areas in the colours of its bar.

use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Span};
use ratatui::widgets::Widget;

use super::graph::StackedGraph;
use crate::model::{Device, Partition, SECOND};
use crate::view::theme::{Ink, Theme};
use crate::wrap::width;
use gpumem_text::units;

/// The least number of seconds shown.
pub(in crate::view) const SECONDS: usize = 60;
/// Columns of the axis.
const AXIS: u16 = 7;
/// The layers of the stack, from the bottom up.
const LAYERS: [Ink; 3] = [Ink::Allocated, Ink::Cached, Ink::Other];

/// The last minute of a device's memory. The axis ends at the device's total, so that a full device looks full and another does not.
///
/// The area stays blank if it is too small for a graph or the device has no samples.
#[derive(Clone, Copy, Debug)]
pub(in crate::view) struct HistoryGraph<'a> {
    /// Colours and glyphs.
    pub(in crate::view) theme: Theme,
    /// The device.
    pub(in crate::view) device: &'a Device,
    /// The age of the newest figures as text, at the right end of the time axis.
    pub(in crate::view) newest: &'a str,
}

impl Widget for HistoryGraph<'_> {
    fn render(self, area: Rect, buf: &mut Buffer) {
        let dim = self.theme.ink(Ink::Dim);
        let area = area.intersection(buf.area);
        let [axis, chart] = Layout::horizontal([Constraint::Length(AXIS), Constraint::Min(0)]).areas(area);
        if chart.width < 12 || chart.height < 2 || self.device.history.seconds.is_empty() {
            return;
        }
        let times = u16::from(chart.height >= 5);
        let [chart, times] = Layout::vertical([Constraint::Min(0), Constraint::Length(times)]).areas(chart);
        let scale = Scale::new(chart.width);
        let columns = columns(self.device, scale);
        let top = columns.iter().flatten().map(|m| m.total).max().unwrap_or(0).max(1);
        for (text, y) in [
            (units::bytes_short(top), chart.top()),
            ("0".to_owned(), chart.bottom() - 1),
        ] {
            let label = Rect {
                y,
                width: AXIS - 1,
                height: 1,
                ..axis
            };
            Line::from(Span::styled(text, dim)).right_aligned().render(label, buf);
        }
        Span::styled("┈".repeat(chart.width.into()), dim).render(chart, buf);
        let begin = format!("{} s ago", scale.seconds);
        let left = times.width.saturating_sub(width(self.newest));
        if width(self.newest) <= times.width {
            Line::from(Span::styled(self.newest, dim))
                .right_aligned()
                .render(times, buf);
        }
        // A label that would touch the one at the end is left out.
        if width(&begin) < left {
            Span::styled(begin, dim).render(times, buf);
        }
        let share = |bytes: u64| bytes as f64 / top as f64;
        let tops = |m: &Partition| [m.allocated, m.reserved(), m.used()].map(share);
        let columns: Vec<_> = columns.into_iter().map(|m| m.map(tops)).collect();
        StackedGraph {
            theme: self.theme,
            layers: &LAYERS,
            columns: &columns,
        }
        .render(chart, buf);
    }
}

/// How time is mapped to columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Scale {
    width: u16,
    /// Seconds from the left edge to the right edge.
    seconds: u16,
    /// Columns per second; 0 means less than one.
    fine: u16,
}

impl Scale {
    /// Returns a scale of a minute, or more if whole columns per second leave room for it.
    fn new(width: u16) -> Scale {
        let fine = width / SECONDS as u16;
        let seconds = width.checked_div(fine).unwrap_or(SECONDS as u16);
        Scale { width, seconds, fine }
    }

    /// Returns the columns of the second that is `back` seconds before the right edge.
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

/// Returns one partition per column, the newest last. It is the one with the most memory in use in its second, or in its part
/// of the second if there are enough samples. Seconds without a sample are gaps.
fn columns(device: &Device, scale: Scale) -> Vec<Option<&Partition>> {
    let mut columns = vec![None; usize::from(scale.width)];
    let history = &device.history;
    let Some(edge) = history.edge() else { return columns };
    for point in history.seconds.iter() {
        if let Some(back) = edge.checked_sub(point.at / SECOND) {
            // If seconds share a column, the newest one is shown, as it is when the column is its own.
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

/// Returns the share in use in each of the last `n` seconds, for a sparkline.
pub(in crate::view) fn used_shares(device: &Device, n: usize) -> Vec<Option<f64>> {
    let seconds = columns(device, Scale::new(SECONDS as u16));
    let share = |m: &Partition| (m.total > 0).then(|| m.used() as f64 / m.total as f64);
    seconds[SECONDS - n.min(SECONDS)..]
        .iter()
        .map(|m| m.and_then(share))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::tests::fixture;
    use crate::view::widgets::tests::{ASCII, COLOUR, Case, assert_drawn};

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
    fn every_width_shows_at_least_a_minute() {
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
    fn wide_graph_shows_parts_of_a_second() {
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

    #[test]
    fn last_minute_has_an_axis_and_grows_from_the_right() {
        let small = device(&[(990, 5), (1000, 10)]);
        let large = device(&[(990, 50), (1000, 100)]);
        let cases: [Case<'_, &Device>; 9] = [
            (
                ASCII,
                &large,
                (27, 5),
                &[
                    "   100 ┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈#",
                    "                          #",
                    "                          #",
                    "     0                    #",
                    "       60 s ago         now",
                ],
            ),
            // A small use of a large device looks small.
            (
                COLOUR,
                &small,
                (27, 3),
                &[
                    "   100 ┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈",
                    "                           ",
                    "     0                    ▂",
                ],
            ),
            (COLOUR, &large, (18, 4), &[]),
            (COLOUR, &large, (19, 1), &[]),
            (COLOUR, &large, (0, 0), &[]),
            (COLOUR, &large, (0, 9), &[]),
            (COLOUR, &large, (40, 0), &[]),
            (COLOUR, &device(&[]), (40, 9), &[]),
            (
                ASCII,
                &large,
                (19, 5),
                &[
                    "   100 ┈┈┈┈┈┈┈┈┈┈┈#",
                    "                  #",
                    "                  #",
                    "     0            #",
                    "       60 s ago now",
                ],
            ),
        ];
        for (theme, device, size, lines) in cases {
            let newest = "now";
            let graph = HistoryGraph { theme, device, newest };
            assert_drawn(size, lines, |area, buf| graph.render(area, buf));
        }
    }
}
