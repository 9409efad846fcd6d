//! Marks under the chart, what they mean, and the newest of them in words.

use ratatui::layout::Rect;
use ratatui::style::Style;

use super::super::Screen;
use super::super::pen::width;
use super::super::theme::Ink;
use super::Window;
use crate::model::{Device, DeviceState, Mark, MarkKind, Nanos, Owner, SECOND};
use crate::view::widgets::{EventStrip, FailureLines, mark_look};
use gpumem_text::units;

/// The events of the window, without the program's own phases.
fn shown(device: &Device, window: Window) -> impl DoubleEndedIterator<Item = (u16, &Mark)> {
    device
        .history
        .marks
        .iter()
        .filter(|m| m.kind != MarkKind::Phase)
        .filter_map(move |m| window.column(m.at).map(|column| (column, m)))
}

/// One glyph per column with an event, the gravest first; a failed request also draws a line up through the free part.
pub(super) fn lane(screen: &mut Screen<'_>, area: Rect, plot: Rect, device: &Device, window: Window) {
    let mut gravest: Vec<Option<MarkKind>> = vec![None; usize::from(window.columns)];
    for (column, mark) in shown(device, window) {
        let here = &mut gravest[usize::from(column)];
        if here.is_none_or(|kind| mark_look(kind).gravity < mark_look(mark.kind).gravity) {
            *here = Some(mark.kind);
        }
    }
    let (theme, columns) = (screen.pen.theme, &gravest[..]);
    screen.render(EventStrip { theme, columns }, area);
    screen.render(FailureLines { theme, columns }, plot);
}

/// The kinds that are in the window, with their glyphs; returns the columns that are left.
pub(super) fn legend(screen: &mut Screen<'_>, area: Rect, device: &Device, window: Window) -> (u16, u16) {
    let mut kinds: Vec<MarkKind> = vec![];
    for (_, mark) in shown(device, window) {
        if !kinds.contains(&mark.kind) {
            kinds.push(mark.kind);
        }
    }
    kinds.sort_by_key(|&kind| std::cmp::Reverse(mark_look(kind).gravity));
    let dim = screen.pen.theme.ink(Ink::Dim);
    // Every mark that is seen is explained, in fewer letters where there are many.
    let wide = |words: usize| -> u16 { kinds.iter().map(|&kind| width(mark_look(kind).names[words]) + 5).sum() };
    let (words, gap) = if wide(0) <= area.width + 3 { (0, 3) } else { (1, 2) };
    let mut x = 0;
    for kind in kinds {
        let name = mark_look(kind).names[words];
        if x + 2 + width(name) > area.width {
            break;
        }
        let sign = mark_look(kind).sign(&screen.pen.theme);
        screen.pen.text(area, x, 0, &sign.content, sign.style);
        x = screen.pen.text(area, x + 2, 0, name, dim) + gap;
    }
    for text in missing(device.history.marks_lost, device.history.marks_dropped) {
        if x + width(&text) <= area.width {
            let left = screen.pen.text_end(area, area.width, 0, &text, dim);
            return (x, left.saturating_sub(2));
        }
    }
    (x, area.width)
}

/// What is told of events that are not shown, the fullest words first: what was lost is news, what was not kept had its time.
pub(super) fn missing(lost: u64, dropped: u64) -> Vec<String> {
    let lost_text = format!("{} lost", units::plural(lost, "event"));
    match (lost, dropped) {
        (0, 0) => vec![],
        (0, n) => vec![format!("{} not kept", units::plural(n, "event"))],
        (_, 0) => vec![lost_text],
        (_, n) => vec![format!("{lost_text}, {} not kept", units::count(n)), lost_text],
    }
}

/// The newest events in words, the newest first.
pub(super) fn list(screen: &mut Screen<'_>, area: Rect, device: &Device, window: Window) {
    if area.height < 2 {
        return;
    }
    let dim = screen.pen.theme.ink(Ink::Dim);
    let newest = device.history.long.back().map_or(screen.model.now, |p| p.at);
    let present = device.state == DeviceState::Present && !screen.model.paused();
    let mut y = 1;
    for (_, mark) in shown(device, window).rev() {
        if y >= area.height {
            break;
        }
        let ago = newest.saturating_sub(mark.at) / SECOND;
        let when = match ago {
            0 if present => "now".to_owned(),
            0 => "last".to_owned(),
            ago => format!("-{}", units::span(ago * SECOND)),
        };
        screen.pen.text_end(area, 6, y, &when, dim);
        let sign = mark_look(mark.kind).sign(&screen.pen.theme);
        screen.pen.text(area, 8, y, &sign.content, sign.style);
        let pid = pid_of(screen, mark);
        let x = screen.pen.text(area, 10, y, &pid, dim);
        screen
            .pen
            .clipped(area, x, y, &sentence(mark), area.width.saturating_sub(x), Style::new());
        y += 1;
    }
    if y > 1 && !present {
        let text = "what happened until the last known figures, and how long before them";
        screen.pen.clipped(area, 0, 0, text, area.width, dim);
    }
    if y == 1 {
        let reaches = |until: Nanos| until / window.bucket >= window.first.max(1);
        let text = match publishes(screen, device) {
            // Some that gave way were of this span.
            _ if reaches(device.history.dropped_until) => {
                "No event of this span was kept: there were more than can be."
            }
            // What they told may have been just that.
            _ if reaches(device.history.lost_until) => {
                "What was taken and returned is not known: events were overwritten unread."
            }
            true => "No event in this span: nobody who publishes took or returned memory.",
            false => "No process here publishes events: what is taken and returned is not known.",
        };
        screen.pen.clipped(area, 0, 1, text, area.width, dim);
    }
}

/// Whether any process tells of what it does on a device, or told until it ended.
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

/// What happened, in words.
fn sentence(mark: &Mark) -> String {
    let bytes = units::bytes(mark.bytes);
    let mut text = match mark.kind {
        MarkKind::OutOfMemory => format!("a request of {bytes} failed"),
        MarkKind::Retry => format!("a request of {bytes} was retried after making room"),
        MarkKind::SegmentTaken => format!("took {bytes} from the driver"),
        MarkKind::SegmentFreed => format!("gave {bytes} back to the driver"),
        MarkKind::CacheReleased => format!("released its cache: {bytes} came free"),
        MarkKind::Remapped => format!("joined its holes by remapping: {bytes} are contiguous now"),
        MarkKind::Monitor => return format!("its monitor: {}", mark.text),
        MarkKind::Phase => "began a phase".to_owned(),
    };
    if !mark.text.is_empty() {
        text.push_str(&format!(" ({})", mark.text));
    }
    text
}
