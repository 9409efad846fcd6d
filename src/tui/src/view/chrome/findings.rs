//! The lines below a view: the findings and, for a few seconds, a message.

use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span, Text};

use crate::model::{Finding, Severity, Target, Toast, View};
use crate::view::chrome::severity;
use crate::view::layout::{clip, split_bottom};
use crate::view::theme::Ink;
use crate::view::{Screen, overview};
use crate::wrap::{width, wrap, wrap_to};

/// The most lines of one sentence.
const SENTENCE: u16 = 3;
/// A sentence that leaves fewer columns of its last line gets one more line in advance, if the view has to give it up. A
/// figure that grows by a digit then moves nothing on the screen.
const SLACK: u16 = 8;
/// The most findings below a view that has empty lines.
const MOST: usize = 5;

/// How the lines below the view are used.
pub(super) struct Foot {
    /// Lines of each shown finding.
    pub(super) lines: Vec<u16>,
    /// Lines of the message, without the line it shares with the keys.
    pub(super) message: u16,
    /// How many of these lines the view gives up.
    pub(super) taken: u16,
}

/// Divides the lines below the view. `certain` findings have one line each. Longer texts take more of the lines that the view
/// leaves empty: the message first, because it disappears soon, and so that the keys keep their line where possible.
pub(super) fn plan(screen: &Screen<'_>, area: Rect, view: Rect, findings: &[&Finding], certain: usize) -> Foot {
    let model = screen.model;
    let overview = model.ui.view == View::Overview;
    let room = room_of(area).saturating_sub(if overview { 0 } else { SLACK });
    let shown = match (overview, certain) {
        (true, 1..) => findings.len().min(certain.max(MOST)),
        _ => certain,
    };
    let beyond = |i: usize| u16::from(i >= certain);
    let longer = |(i, finding): (usize, &&Finding)| {
        // The count of hidden findings takes a part of the last line.
        let tail = match i + 1 == shown {
            true => tail(findings.len() - shown, false),
            false => None,
        };
        lines(&finding.text, room, tail_width(tail.as_deref())).clamp(1, SENTENCE) - 1
    };
    let wanted: Vec<u16> = findings[..shown].iter().enumerate().map(longer).collect();
    let message = match area.height >= 5 && overview && !model.ui.filter.editing {
        true => model
            .ui
            .toast
            .as_ref()
            .map_or(0, |toast| message_lines(&toast.text, area)),
        false => 0,
    };
    let more: u16 = wanted.iter().enumerate().map(|(i, more)| beyond(i) + more).sum();
    let given = match area.height {
        _ if overview && message + more > 0 => overview::spare(screen, view, message + more),
        // The other views have no empty lines. Tall ones give some up, but not to a message.
        _ if overview => 0,
        ..24 => 0,
        24..30 => more.min(1),
        _ => more.min(SENTENCE),
    };
    let message = message.min(given);
    let mut left = given - message;
    let mut lines = Vec::with_capacity(shown);
    for (i, wanted) in wanted.into_iter().enumerate() {
        if beyond(i) > left {
            break;
        }
        let more = wanted.min(left - beyond(i));
        left -= beyond(i) + more;
        lines.push(1 + more);
    }
    Foot {
        lines,
        message,
        taken: given - left,
    }
}

/// Draws a finding with its mark, and the number of hidden findings behind the last one.
pub(super) fn draw(screen: &mut Screen<'_>, area: Rect, finding: &Finding, hidden: usize) {
    let style = match finding.severity {
        Severity::Error => severity(screen, finding.severity).1,
        _ => Style::new(),
    };
    let full = room_of(area);
    // A sentence that got one more line in advance is wrapped over it.
    let less = match screen.model.ui.view {
        View::Overview => full,
        _ => full.saturating_sub(SLACK),
    };
    let needed = tail_width(tail(hidden, false).as_deref());
    let fits = |room: u16| lines(&finding.text, room, needed.saturating_sub(full - room)) <= area.height;
    let several = area.height > 1;
    let room = [less, full]
        .into_iter()
        .find(|&room| (several || room == full) && fits(room));
    let tail = tail(hidden, room.is_none());
    let room = room.unwrap_or(full.saturating_sub(tail_width(tail.as_deref())));
    sentence(screen, area, finding.severity, &finding.text, (room, style));
    if let Some(tail) = tail {
        let [accent, dim] = [Ink::Accent, Ink::Dim].map(|ink| screen.theme.ink(ink));
        let blank = Span::raw(" ");
        let spans = [
            Span::styled(MORE, accent),
            blank.clone(),
            Span::styled(tail, dim),
            blank,
        ];
        let last = split_bottom(area, 1).1;
        screen.render(Line::from_iter(spans).right_aligned(), last);
    }
    screen.hit(area, Target::Findings);
}

/// Returns the lines of a sentence of `room` columns, the last of which has space for a tail.
fn lines(text: &str, room: u16, tail: u16) -> u16 {
    let lines = wrap(text, room);
    let last = lines.last().map_or(0, |line| width(line));
    lines.len() as u16 + u16::from(last + tail > room)
}

/// The key that shows all findings in full.
const MORE: &str = "m";

/// Returns what that key would add: the hidden findings, or the rest of a cut one.
fn tail(hidden: usize, cut: bool) -> Option<String> {
    match (hidden, cut) {
        (0, false) => None,
        (0, true) => Some("more".to_owned()),
        (n, _) => Some(format!("+{n} more")),
    }
}

/// Returns the columns of a tail with its key and the blank before them.
fn tail_width(tail: Option<&str>) -> u16 {
    tail.map_or(0, |tail| 2 + width(MORE) + 1 + width(tail))
}

/// Returns the columns of a sentence beside its mark.
fn room_of(area: Rect) -> u16 {
    area.width.saturating_sub(4)
}

/// Returns the lines of a message.
pub(super) fn message_lines(text: &str, area: Rect) -> u16 {
    (wrap(text, room_of(area)).len() as u16).clamp(1, SENTENCE)
}

/// Draws a message.
pub(super) fn message(screen: &mut Screen<'_>, area: Rect, toast: &Toast) {
    let look = (room_of(area), Style::new());
    sentence(screen, area, toast.severity, &toast.text, look);
}

/// Draws a sentence with its mark, wrapped at `room` columns. What does not fit into the area's lines is cut.
fn sentence(screen: &mut Screen<'_>, area: Rect, how: Severity, text: &str, (room, style): (u16, Style)) {
    let (mark, mark_style) = severity(screen, how);
    let parts = wrap_to(text, room, area.height.into()).into_iter().enumerate();
    let lines = parts.map(|(i, part)| {
        let mark = match i {
            0 => Span::styled(mark, mark_style),
            _ => Span::raw(" "),
        };
        Line::from_iter([
            Span::raw(" "),
            mark,
            Span::raw(" "),
            Span::styled(clip(&part, room), style),
        ])
    });
    screen.render(Text::from_iter(lines), area);
}
