//! The last minute of a device's memory as stacked areas in the colours of its bar.

use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Span};
use ratatui::widgets::Widget;

use super::axis::ceiling;
use super::graph::StackedGraph;
use crate::model::{Device, SECOND, Spread};
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
    /// Whether the axis ends a little above what is used, as where only changes matter, and not at the device's total.
    pub(in crate::view) zoomed: bool,
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
        let seconds = self.device.history.seconds.iter();
        let total = seconds.map(|second| second.memory.total).max().unwrap_or(0).max(1);
        let most = columns.iter().flatten().map(|tops| tops.most[LAYERS.len() - 1]).max();
        let top = match most.filter(|most| self.zoomed && *most > 0) {
            Some(most) => ceiling(most.saturating_add(most / 4)).min(total),
            None => total,
        };
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
        let shares = |tops: &[u64; 3]| tops.map(|bytes| bytes as f64 / top as f64);
        let columns: Vec<_> = columns.iter().map(|tops| tops.map(|tops| tops.map(shares))).collect();
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
            // Several seconds share a column.
            0 if width > 0 => second * width / seconds..second * width / seconds + 1,
            0 => 0..0,
            fine => width - (seconds - second) * fine..width - (seconds - second - 1) * fine,
        }
    }
}

/// Returns the least and the most of each column's samples, the newest last. If there are several columns in a second, those that
/// have samples of their own show these. Seconds without a sample are gaps.
fn columns(device: &Device, scale: Scale) -> Vec<Option<Spread<[u64; 3]>>> {
    let mut columns: Vec<Option<Spread<[u64; 3]>>> = vec![None; usize::from(scale.width)];
    let history = &device.history;
    let Some(edge) = history.edge() else { return columns };
    let put = |column: &mut Option<Spread<[u64; 3]>>, tops: &Spread<[u64; 3]>| match column {
        Some(known) => known.add(tops),
        None => *column = Some(*tops),
    };
    for second in &history.seconds {
        if let Some(back) = edge.checked_sub(second.at / SECOND) {
            for column in &mut columns[scale.columns(back)] {
                put(column, &second.spread);
            }
        }
    }
    if scale.fine < 2 {
        return columns;
    }
    let mut own = vec![None; columns.len()];
    for point in &history.long {
        let second = edge
            .checked_sub(point.at / SECOND)
            .map_or(0..0, |back| scale.columns(back));
        let part = (point.at % SECOND * u64::from(scale.fine) / SECOND) as usize;
        if !second.is_empty() {
            put(&mut own[second.start + part], &Spread::of(point.memory.tops()));
        }
    }
    own.into_iter()
        .zip(columns)
        .map(|(own, column)| own.or(column))
        .collect()
}

/// Returns the most in use, as a share, in each of the last `n` seconds, for a sparkline.
pub(in crate::view) fn used_shares(device: &Device, n: usize) -> Vec<Option<f64>> {
    let mut shares = vec![None; n.min(SECONDS)];
    let edge = device.history.edge().unwrap_or(0);
    for second in &device.history.seconds {
        let back = edge
            .checked_sub(second.at / SECOND)
            .and_then(|back| usize::try_from(back).ok());
        let place = back.and_then(|back| shares.len().checked_sub(back + 1));
        let memory = &second.memory;
        if let Some(place) = place.filter(|_| memory.total > 0) {
            shares[place] = Some(memory.used() as f64 / memory.total as f64);
        }
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Partition;
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
        columns
            .into_iter()
            .map(|tops| tops.map_or(0, |tops| tops.most[0]))
            .collect()
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
            columns.dedup();
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

    /// A narrow graph has several seconds in a column, a wide one several samples.
    #[test]
    fn column_shows_the_least_and_the_most_of_its_time() {
        let points: Vec<(u64, u64)> = (0..40).map(|half| (1000 + half * 5, 10 + half)).collect();
        let device = device(&points);
        for (width, last) in [(30, (46, 49)), (60, (48, 49)), (120, (49, 49))] {
            let columns = columns(&device, Scale::new(width));
            let tops = columns.last().and_then(|tops| *tops);
            assert_eq!(tops.map(|tops| (tops.least[0], tops.most[0])), Some(last), "{width}");
        }
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
                    "   100 ┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈▒",
                    "                          ▒",
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
                    "   100 ┈┈┈┈┈┈┈┈┈┈┈▒",
                    "                  ▒",
                    "                  #",
                    "     0            #",
                    "       60 s ago now",
                ],
            ),
        ];
        for (theme, device, size, lines) in cases {
            let newest = "now";
            let graph = HistoryGraph {
                theme,
                device,
                newest,
                zoomed: false,
            };
            assert_drawn(size, lines, |area, buf| graph.render(area, buf));
        }
    }
}
