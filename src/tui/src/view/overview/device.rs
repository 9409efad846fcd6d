//! One device: its name, bar, legend, sensors and recent history.

mod memory;
mod sensors;
mod texts;

use ratatui::layout::{Constraint, Layout, Margin, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};

use crate::model::{Device, DeviceKind};
use crate::view::theme::{Ink, Theme};
use crate::view::widgets::{HistoryGraph, SECONDS, Spark, used_shares};
use crate::view::{Screen, badge, history};
use crate::wrap::width;
pub(super) use memory::names;
use texts::Fullness;

/// Marks the selected device where there are several.
const SELECTED: &str = "▸";

/// From this width on a device's title has its PCI address.
const WIDE: u16 = 140;

/// How much of a device is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tier {
    /// Framed, with a thick bar and an area graph.
    Tall,
    /// Framed, with a smaller graph.
    Framed,
    /// Title, bar, legend, sensors with a sparkline, and a blank line.
    Expanded,
    /// Title, bar, legend.
    Compact,
    /// A bar with its name on one line.
    Bar,
}

impl Tier {
    /// Tallest first.
    pub(super) const ALL: [Tier; 5] = [Tier::Tall, Tier::Framed, Tier::Expanded, Tier::Compact, Tier::Bar];

    /// Returns the least number of lines that a device takes.
    pub(super) fn lines(self) -> u16 {
        match self {
            Tier::Tall => 14,
            Tier::Framed => 10,
            Tier::Expanded => 5,
            Tier::Compact => 3,
            Tier::Bar => 1,
        }
    }
}

/// Draws a device at a tier.
pub(super) fn draw(screen: &mut Screen<'_>, area: Rect, device: &Device, tier: Tier) {
    let several = screen.model.world().devices.len() > 1;
    let selected = several && screen.model.selected_device().is_some_and(|d| d.key == device.key);
    // The label of a simulated device begins with SIM.
    screen.labelled |= device.kind == DeviceKind::Simulated && area.width >= width(&device.label) + 6;
    match tier {
        Tier::Tall | Tier::Framed => framed(screen, area, device, selected),
        Tier::Expanded | Tier::Compact => lines(screen, area, device, selected, tier == Tier::Expanded),
        Tier::Bar => one_line(screen, area, device, selected),
    }
}

fn framed(screen: &mut Screen<'_>, area: Rect, device: &Device, selected: bool) {
    let title = match selected {
        true => format!("{SELECTED} {}", device.label),
        false => device.label.clone(),
    };
    let inside = screen.panel(area, &title, "");
    // The line between the title, with the blank behind it, and the corner.
    let [_, beside_title, _] = Layout::horizontal([
        Constraint::Length(width(&title) + 4),
        Constraint::Fill(1),
        Constraint::Length(3),
    ])
    .areas(area);
    name(screen, beside_title, device, (true, area.width >= WIDE));
    let blank = u16::from(area.height >= Tier::Tall.lines());
    let [_, bar, _, legend_line, _, lower] = Layout::vertical([
        Constraint::Length(blank),
        Constraint::Length(2),
        Constraint::Length(blank),
        Constraint::Length(1),
        Constraint::Length(blank),
        Constraint::Fill(1),
    ])
    .areas(inside);
    memory::bar(screen, bar, device);
    memory::legend(screen, legend_line, device);
    let [gap, side] = match lower.width >= 70 && sensors::has_sensors(device) {
        true => [3, 36],
        false => [0, 0],
    };
    let [graph, _, side] =
        Layout::horizontal([Constraint::Fill(1), Constraint::Length(gap), Constraint::Length(side)]).areas(lower);
    if !side.is_empty() {
        sensors::draw(screen, side, device);
    }
    let newest = history::newest(screen.model, device);
    let widget = HistoryGraph {
        theme: screen.theme,
        device,
        newest: &newest,
        zoomed: false,
    };
    screen.render(widget, graph);
}

fn lines(screen: &mut Screen<'_>, area: Rect, device: &Device, selected: bool, expanded: bool) {
    let theme = screen.theme;
    let [title, bar, legend_line, sensors, _] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Length(expanded.into()),
        Constraint::Fill(1),
    ])
    .areas(area.inner(Margin::new(1, 0)));
    let style = match selected {
        true => theme.ink(Ink::Accent).add_modifier(Modifier::BOLD),
        false => theme.ink(Ink::Strong),
    };
    if selected {
        screen.render(Span::styled(SELECTED, style), area);
    }
    let [label, beside_label] =
        Layout::horizontal([Constraint::Length(width(&device.label) + 1), Constraint::Fill(1)]).areas(title);
    screen.render(Span::styled(&device.label, style), label);
    name(screen, beside_label, device, (false, title.width >= WIDE));
    memory::bar(screen, bar, device);
    memory::legend(screen, legend_line, device);
    if expanded {
        sensors_and_spark(screen, sensors, device);
    }
}

/// Draws the sensors on one line, with a sparkline behind them where there is room for one.
fn sensors_and_spark(screen: &mut Screen<'_>, line: Rect, device: &Device) {
    let theme = screen.theme;
    let [gap, seconds] = match line.width >= 70 {
        true => [7, (line.width / 3).min(SECONDS as u16)],
        false => [0, 0],
    };
    let [sensors, gap, spark] = Layout::horizontal([
        Constraint::Fill(1),
        Constraint::Length(gap),
        Constraint::Length(seconds),
    ])
    .areas(line);
    screen.render(sensors::line(device, theme, sensors.width), sensors);
    if seconds > 0 && !device.history.seconds.is_empty() {
        let used = used_shares(device, seconds.into());
        let widget = Spark {
            theme,
            ink: Ink::Allocated,
            samples: &used,
        };
        screen.render(widget, spark);
        let axis = Span::styled(format!("{seconds} s"), theme.ink(Ink::Dim));
        screen.render(Line::from_iter([axis, Span::raw(" ")]).right_aligned(), gap);
    }
}

fn one_line(screen: &mut Screen<'_>, area: Rect, device: &Device, selected: bool) {
    let theme = screen.theme;
    let (mark, ink) = match selected {
        true => (SELECTED, Ink::Accent),
        false => (" ", Ink::Strong),
    };
    let label = Line::from_iter([mark, &device.label].map(|text| Span::styled(text, theme.ink(ink))));
    let before = label.width().try_into().unwrap_or(u16::MAX).min(area.width);
    screen.render(label, area);
    let (text, ink) = beside_bar(device, area.width.saturating_sub(before + 2));
    let after = match width(&text) {
        0 => 1,
        wide => wide + 2,
    };
    let [_, bar, after] = Layout::horizontal([
        Constraint::Length(before + 1),
        Constraint::Fill(1),
        Constraint::Length(after),
    ])
    .areas(area);
    if !text.is_empty() {
        let text = Span::styled(text, theme.ink(ink));
        screen.render(Line::from_iter([text, Span::raw(" ")]).right_aligned(), after);
    }
    memory::bar(screen, bar, device);
}

/// Returns the text behind the bar of a device that has one line: the longest that leaves room for the bar.
fn beside_bar(device: &Device, room: u16) -> (String, Ink) {
    let (texts, ink) = match (device.memory.value(), texts::lost(device)) {
        // The reason for the missing figure is written in place of the bar.
        (None, _) => return (String::new(), Ink::Plain),
        (_, Some((long, short))) => ([long, short].map(str::to_owned), Ink::Warning),
        _ => (
            [texts::used, texts::used_share].map(|say| say(device).unwrap_or_default()),
            match texts::fullness(device) {
                Fullness::Room => Ink::Plain,
                Fullness::Nearly | Fullness::Full => Ink::Warning,
            },
        ),
    };
    // The bar matters more than a text that leaves no room for it.
    let text = texts.into_iter().find(|text| width(text) + 8 <= room);
    (text.unwrap_or_default(), ink)
}

/// Returns the colour of the memory in use: full looks full.
fn fullness(theme: Theme, device: &Device) -> Style {
    match texts::fullness(device) {
        // The text does not take on the colour of the frame.
        Fullness::Room => Style::new().fg(Color::Reset),
        Fullness::Nearly => theme.ink(Ink::Warning),
        Fullness::Full => theme
            .ink(Ink::Warning)
            .add_modifier(Modifier::BOLD | Modifier::REVERSED),
    }
}

/// Draws the rest of a title: the label of a simulated device, its name, and the memory in use. On a frame each has blanks
/// around it.
fn name(screen: &mut Screen<'_>, area: Rect, device: &Device, (in_frame, wide): (bool, bool)) {
    let theme = screen.theme;
    let (text, style) = match texts::lost(device) {
        Some((text, _)) => (text.to_owned(), theme.ink(Ink::Warning)),
        None => (texts::used(device).unwrap_or_default(), fullness(theme, device)),
    };
    let fits = !text.is_empty() && width(&text) + 3 <= area.width;
    let behind = if in_frame { " " } else { "" };
    let used = match fits {
        true => Line::from_iter([Span::raw(" "), Span::styled(text, style), Span::raw(behind)]),
        false => Line::default(),
    };
    let columns = used.width().try_into().unwrap_or(u16::MAX);
    let [mut left, right] = Layout::horizontal([Constraint::Fill(1), Constraint::Length(columns)]).areas(area);
    screen.render(used, right);
    if device.kind == DeviceKind::Simulated && 1 + badge::MIN_WIDTH < left.width {
        let room = left.width - 2;
        let label = badge::label(screen, left, 1, room).unwrap_or_default();
        let label = Line::from_iter([Span::raw(" "), label]);
        let end = label.width() as u16;
        screen.render(label, left);
        [_, left] = Layout::horizontal([Constraint::Length(end), Constraint::Fill(1)]).areas(left);
    }
    let room = left.width.saturating_sub(3);
    let facts = texts::facts(device, room, wide);
    if room > 4 && !facts.is_empty() {
        let facts = Span::styled(facts, theme.ink(Ink::Dim));
        screen.render(Line::from_iter([Span::raw(" "), facts, Span::raw(" ")]), left);
    }
}
