//! The sensors that NVML reads, besides memory.

use gpumem_probe::Reading;
use gpumem_text::units::rate;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use crate::model::{Device, DeviceKind, DeviceState};
use crate::view::Screen;
use crate::view::layout::clip;
use crate::view::theme::{Ink, Theme};
use crate::view::widgets::Meter;
use crate::wrap::width;

/// A figure: its label, its text, and its share of a limit where it has one.
type Row = (&'static str, String, Option<f64>);

/// Returns the readings of the sensors, utilization first. A missing figure is replaced by its reason.
fn readings(device: &Device) -> Vec<Row> {
    let sensors = &device.sensors;
    // A device that is gone will not answer any more.
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
        Reading::NoPermission => "no permission",
        Reading::Failed(_) => "failed",
    }
    .into()
}

/// Checks whether NVML reads this device.
pub(super) fn has_sensors(device: &Device) -> bool {
    device.kind == DeviceKind::Nvml
}

/// Returns as many sensors as fit on a line of `room` columns.
pub(super) fn line(device: &Device, theme: Theme, room: u16) -> Line<'static> {
    let dim = theme.ink(Ink::Dim);
    if !has_sensors(device) {
        return Line::from(Span::styled(clip(no_sensors(device), room), dim));
    }
    let rows = readings(device);
    let mut short = rows.clone();
    short[0].0 = "util";
    // The long names, unless they push out a figure.
    let mut rows = match fitting(&short, room) > fitting(&rows, room) {
        true => short,
        false => rows,
    };
    rows.truncate(fitting(&rows, room));
    let row = |(label, text, _)| [Span::styled(label, dim), Span::raw(format!(" {text}   "))];
    rows.into_iter().flat_map(row).collect()
}

/// Returns how many rows fit on a line, with blanks between them.
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

/// The column at which figures are right-aligned.
const FIGURE_END: u16 = 23;

/// Draws one sensor per line, with a small meter where it has a limit.
pub(super) fn draw(screen: &mut Screen<'_>, area: Rect, device: &Device) {
    for (row, line) in rows(device, area.height).iter().zip(area.rows()) {
        screen.render(row_line(row, screen.theme, line.width), line);
        if let (.., Some(share)) = row {
            let [_, meter] = Layout::horizontal([Constraint::Length(FIGURE_END + 2), Constraint::Fill(1)]).areas(line);
            let widget = Meter {
                theme: screen.theme,
                ink: Ink::Accent,
                share: *share,
            };
            screen.render(widget, meter);
        }
    }
}

/// Returns the sensors in at most `lines` rows. Both directions of the PCIe link share one when lines are few.
fn rows(device: &Device, lines: u16) -> Vec<Row> {
    let mut rows = readings(device);
    if usize::from(lines) < rows.len()
        && let (Some(down), Some(up)) = (rows.pop(), rows.pop())
    {
        let has_figures = device.sensors.pcie_rx.value().is_some();
        let text = match up.1 == down.1 && !has_figures {
            // A reason that both directions share is shown once.
            true => up.1,
            false => format!("H>D {}  D>H {}", up.1, down.1),
        };
        rows.push(("PCIe", text, None));
    }
    rows
}

/// Returns a label with its right-aligned figure, or with the reason why there is none, in `room` columns.
fn row_line((label, text, share): &Row, theme: Theme, room: u16) -> Line<'static> {
    let dim = theme.ink(Ink::Dim);
    let (before, wide) = (width(label), width(text));
    // A reason is longer than a figure and may use the space of the meter.
    let is_reason = share.is_none() && wide + 12 > FIGURE_END;
    let (start, style) = match is_reason {
        true => (room.saturating_sub(wide).clamp(before + 1, 12.max(before + 1)), dim),
        false => (FIGURE_END.saturating_sub(wide), Style::new()),
    };
    let blank = " ".repeat(start.saturating_sub(before).into());
    let text = clip(text, room.saturating_sub(start));
    Line::from_iter([Span::styled(*label, dim), Span::raw(blank), Span::styled(text, style)])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::tests::fixture;

    fn texts_of(lines: &[Line<'_>]) -> Vec<String> {
        lines.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn sensor_line_drops_figures_that_do_not_fit() {
        let device = fixture::h100().live.devices.remove(0);
        let text = |room| line(&device, Theme::default(), room).to_string().trim_end().to_owned();
        assert_eq!(text(7), "");
        assert_eq!(text(8), "util 97%");
        assert_eq!(text(18), "utilization 97%");
        assert_eq!(text(35), "utilization 97%   memory bus 61%");
    }

    #[test]
    fn figures_are_aligned_and_reasons_use_the_meters_space() {
        let device = fixture::several().live.devices.remove(2);
        let lines: Vec<_> = rows(&device, 5)
            .iter()
            .map(|row| row_line(row, Theme::default(), 36))
            .collect();
        assert_eq!(
            texts_of(&lines),
            [
                "utilization          3%",
                "memory bus  not supported",
                "power               4 W",
                "temperature       41 °C",
                "PCIe   H>D no permission  D>H failed",
            ]
        );
    }
}
