//! The events under the chart, their legend, and a list of the newest.

use gpumem_text::units;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Span, Text};

use super::Window;
use crate::model::{Device, DeviceState, Mark, MarkKind, Nanos, Owner, SECOND};
use crate::view::Screen;
use crate::view::theme::{Ink, Theme};
use crate::view::widgets::{EventStrip, FailureLines, mark_look};
use crate::wrap::{cut, width};

/// Columns of a time in the list.
const TIME: u16 = 6;

/// Returns the events of the window with their columns, without the program's own phases.
fn shown(device: &Device, window: Window) -> impl DoubleEndedIterator<Item = (u16, &Mark)> {
    device
        .history
        .marks
        .iter()
        .filter(|m| m.kind != MarkKind::Phase)
        .filter_map(move |m| window.column(m.at).map(|column| (column, m)))
}

/// Draws the most severe event of each column, and a line up through the plot where a request failed.
pub(super) fn draw(screen: &mut Screen<'_>, area: Rect, plot: Rect, device: &Device, window: Window) {
    let mut most_severe: Vec<Option<MarkKind>> = vec![None; usize::from(window.columns)];
    for (column, mark) in shown(device, window) {
        let here = &mut most_severe[usize::from(column)];
        if here.is_none_or(|kind| mark_look(kind).severity < mark_look(mark.kind).severity) {
            *here = Some(mark.kind);
        }
    }
    let (theme, columns) = (screen.theme, &most_severe[..]);
    screen.render(EventStrip { theme, columns }, area);
    screen.render(FailureLines { theme, columns }, plot);
}

/// Returns the kinds of the window's events with their glyphs, as far as they fit. Each ends with the gap to the next one.
pub(super) fn legend(theme: &Theme, device: &Device, window: Window, room: u16) -> Line<'static> {
    let mut kinds: Vec<MarkKind> = vec![];
    for (_, mark) in shown(device, window) {
        if !kinds.contains(&mark.kind) {
            kinds.push(mark.kind);
        }
    }
    kinds.sort_by_key(|&kind| std::cmp::Reverse(mark_look(kind).severity));
    // Every drawn kind is explained, with shorter names if there are many.
    let wide = |words: usize| -> u16 { kinds.iter().map(|&kind| width(mark_look(kind).names[words]) + 5).sum() };
    let (words, gap) = if wide(0) <= room + 3 { (0, "   ") } else { (1, "  ") };
    let mut line = Line::default();
    for look in kinds.into_iter().map(mark_look) {
        let name = look.names[words];
        if line.width() as u16 + 2 + width(name) > room {
            break;
        }
        let name = Span::styled(name, theme.ink(Ink::Dim));
        line.extend([look.sign(theme), Span::raw(" "), name, Span::raw(gap)]);
    }
    line
}

/// Returns texts on events that are not shown, the longest first. `lost` were overwritten before they were read, `dropped`
/// gave way to newer ones; the lost ones matter more.
pub(super) fn missing(lost: u64, dropped: u64) -> Vec<String> {
    let lost_text = format!("{} lost", units::plural(lost, "event"));
    match (lost, dropped) {
        (0, 0) => vec![],
        (0, n) => vec![format!("{} not kept", units::plural(n, "event"))],
        (_, 0) => vec![lost_text],
        (_, n) => vec![format!("{lost_text}, {} not kept", units::count(n)), lost_text],
    }
}

/// Draws the newest events in words, the newest first. If the figures are not of now, a line above says so.
pub(super) fn list(screen: &mut Screen<'_>, area: Rect, device: &Device, window: Window) {
    if area.height < 2 {
        return;
    }
    let theme = screen.theme;
    let dim = theme.ink(Ink::Dim);
    let newest = device.history.long.back().map_or(screen.model.now, |p| p.at);
    let present = device.state == DeviceState::Present && !screen.model.paused();
    let marks = shown(device, window).rev().take(usize::from(area.height) - 1);
    let lines: Vec<Line<'_>> = marks
        .map(|(_, mark)| {
            let when = match newest.saturating_sub(mark.at) / SECOND {
                0 if present => "now".to_owned(),
                0 => "last".to_owned(),
                ago @ 1..100 => format!("-{ago} s"),
                ago => format!("-{}", units::ago_short(ago * SECOND)),
            };
            // A cut time would be wrong.
            let when = if width(&when) > TIME { String::new() } else { when };
            let pid = pid_of(screen, mark);
            let room = area.width.saturating_sub(TIME + 4 + width(&pid));
            Line::from_iter([
                Span::raw(" ".repeat(usize::from(TIME - width(&when)))),
                Span::styled(when, dim),
                Span::raw("  "),
                mark_look(mark.kind).sign(&theme),
                Span::raw(" "),
                Span::styled(pid, dim),
                Span::raw(cut(&sentence(mark), room, "…")),
            ])
        })
        .collect();
    let [head, list] = Layout::vertical([Constraint::Length(1), Constraint::Min(0)]).areas(area);
    if lines.is_empty() {
        let text = cut(why_no_event(screen, device, window), area.width, "…");
        screen.render(Span::styled(text, dim), list);
        return;
    }
    if !present {
        let text = "events until the last known figures, and how long before them";
        screen.render(Span::styled(cut(text, area.width, "…"), dim), head);
    }
    screen.render(Text::from(lines), list);
}

/// Returns why no event is shown.
fn why_no_event(screen: &Screen<'_>, device: &Device, window: Window) -> &'static str {
    let reaches = |until: Nanos| until / window.bucket >= window.first.max(1);
    match publishes(screen, device) {
        // Some of the dropped events were of this span.
        _ if reaches(device.history.dropped_until) => "No event of this span was kept: newer ones took their place.",
        // The lost events may have been of memory taken or returned.
        _ if reaches(device.history.lost_until) => {
            "Memory taken and returned is not known: events were overwritten unread."
        }
        true => "No event in this span: no publisher took or returned memory.",
        false => "No process here publishes events: memory taken and returned is not known.",
    }
}

/// Checks whether any process on a device publishes, or did until it ended.
fn publishes(screen: &Screen<'_>, device: &Device) -> bool {
    let world = screen.model.world();
    let seen = world.processes.iter().filter(|p| !world.past.contains(&p.id));
    seen.map(|p| p.id)
        .any(|id| id.device == device.key && matches!(id.owner, Owner::Channel(_)))
}

fn pid_of(screen: &Screen<'_>, mark: &Mark) -> String {
    let known = screen.model.world().processes.iter().find(|p| p.id == mark.process);
    match (known, mark.process.owner) {
        (Some(process), _) => format!("{}  ", process.pid),
        (None, Owner::Pid(pid, _)) => format!("{pid}  "),
        (None, Owner::Channel(_)) => String::new(),
    }
}

/// Describes an event in words.
fn sentence(mark: &Mark) -> String {
    let bytes = units::bytes(mark.bytes);
    let mut text = match mark.kind {
        MarkKind::OutOfMemory => format!("out of memory: tried to allocate {bytes}"),
        MarkKind::Retry => format!("a request of {bytes} was retried after making room"),
        MarkKind::SegmentTaken => format!("took {bytes} from the driver"),
        MarkKind::SegmentFreed => format!("gave {bytes} back to the driver"),
        MarkKind::CacheReleased => format!("released its cache: {bytes} came free"),
        MarkKind::Migration => format!("began to move managed memory: {bytes} in a second"),
        MarkKind::Remapped => format!("joined its holes by remapping: {bytes} are contiguous now"),
        MarkKind::Monitor => return format!("its monitor: {}", mark.text),
        MarkKind::Phase => "began a phase".to_owned(),
        MarkKind::Died => format!("died holding {bytes} (its last sign of life)"),
        MarkKind::Exited => "exited".to_owned(),
    };
    if !mark.text.is_empty() {
        text.push_str(&format!(" ({})", mark.text));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dropped_events_are_not_called_lost() {
        assert!(missing(0, 0).is_empty());
        assert_eq!(missing(0, 1200), ["1,200 events not kept"]);
        assert_eq!(missing(5, 0), ["5 events lost"]);
        assert_eq!(missing(1, 7), ["1 event lost, 7 not kept", "1 event lost"]);
    }
}
