//! The steps of a demo: those before in one line each, the current one in full, and the choices.

use gpumem_text::units;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span, Text};

use crate::model::{Choice, Demo, DemoPhase, DemoStep, Target, TextGeometry};
use crate::view::Screen;
use crate::view::layout::clip;
use crate::view::theme::Ink;
use crate::wrap::{width, wrap, wrap_to};

/// Returns a line made of styled pieces.
fn line(pieces: impl IntoIterator<Item = (String, Style)>) -> Line<'static> {
    let spans = pieces.into_iter().map(|(text, style)| Span::styled(text, style));
    Line::from_iter(spans)
}

/// Cuts a line to `room` columns. An ellipsis stands for what is missing.
pub(super) fn fit(line: Line<'static>, mut room: u16) -> Line<'static> {
    let cut = |span: Span<'static>| {
        let content = clip(&span.content, room);
        room -= width(&content);
        Span::styled(content, span.style)
    };
    Line::from_iter(line.spans.into_iter().map(cut)).style(line.style)
}

/// Draws the steps. When there are too many lines, the oldest are left out; the user can scroll to them.
pub(super) fn draw(screen: &mut Screen<'_>, area: Rect, demo: &Demo) {
    let all = usize::from(area.height);
    let shown = demo.steps_up_to(screen.model.ui.demo_back);
    let mut now = present(screen, demo, area.width, None);
    let mut whole = now.clone();
    if now.len() > all {
        whole = present(screen, demo, area.width, Some(usize::MAX));
        now = present(screen, demo, area.width, Some(0));
        // The remaining lines go to the report first, then to earlier steps.
        if now.len() < all {
            now = present(screen, demo, area.width, Some(all - now.len()));
        }
    }
    let before = shown.split_last().map_or(&[][..], |(_, before)| before);
    let past: Vec<Line<'static>> = before.iter().map(|step| past_line(screen, step)).collect();
    let above = past.len().saturating_sub(all.saturating_sub(now.len()));
    whole.splice(0..0, past.iter().cloned());
    let below = whole.len().saturating_sub(above + all);
    let first: Vec<Line<'static>> = past[above..].iter().cloned().chain(now).take(all).collect();
    // The brief form differs from the full one from some line on.
    let alike = first.iter().zip(&whole[above..]).take_while(|(a, b)| a == b).count();
    let (lines, page) = match screen.model.ui.demo_scroll.clamp(-(above as i32), below as i32) {
        0 => (first, alike),
        by => (whole.split_off(above.saturating_add_signed(by as isize)), all),
    };
    screen.hits.told = TextGeometry {
        above: above as u16,
        below: below as u16,
        page: page.saturating_sub(1).max(1) as u16,
    };
    let lines = lines.into_iter().take(all).map(|line| fit(line, area.width));
    screen.render(Text::from_iter(lines), area);
    if demo.stepped() && demo.phase == DemoPhase::Waiting && demo.choices.is_empty() {
        screen.hit(area, Target::Next);
    }
}

/// Returns the lines of the current step and of what follows it. `brief` leaves out blank lines and figures, and limits the
/// report of a failure to that many lines.
fn present(screen: &Screen<'_>, demo: &Demo, width: u16, brief: Option<usize>) -> Vec<Line<'static>> {
    let mut lines = vec![];
    let shown = demo.steps_up_to(screen.model.ui.demo_back);
    if let Some(current) = shown.last() {
        current_lines(screen, &mut lines, demo, current, width, brief);
    } else if demo.phase == DemoPhase::Starting {
        let text = format!("{} is starting ...", demo.name);
        lines.push(Line::styled(text, screen.theme.ink(Ink::Dim)));
    }
    if shown.len() == demo.steps.len() {
        lines.extend(closing_lines(screen, demo, width, Choice::text));
    }
    if brief.is_some() {
        lines.retain(|line| !line.spans.is_empty());
    }
    lines
}

fn past_line(screen: &Screen<'_>, step: &DemoStep) -> Line<'static> {
    let theme = screen.theme;
    let (mark, ink) = if step.oom.is_some() {
        ("✗", Ink::Warning)
    } else {
        ("✓", Ink::Good)
    };
    line([
        (format!("{mark} "), theme.ink(ink)),
        (format!("{:>2}  {}", step.number, step.title), theme.ink(Ink::Dim)),
    ])
}

/// Returns at most `most` lines of a report. If they do not hold all of it, they begin at what would have helped.
fn report(text: &str, width: u16, most: Option<usize>) -> Vec<String> {
    let all = wrap(text, width);
    match most {
        Some(0) => vec![],
        Some(most) if all.len() > most => {
            let advice = text.find("what would have helped").unwrap_or(0);
            wrap_to(&text[advice..], width, most)
        }
        _ => all,
    }
}

fn current_lines(
    screen: &Screen<'_>,
    out: &mut Vec<Line<'static>>,
    demo: &Demo,
    step: &DemoStep,
    width: u16,
    brief: Option<usize>,
) {
    let theme = screen.theme;
    let (dim, plain, strong) = (theme.ink(Ink::Dim), Style::new(), theme.ink(Ink::Strong));
    let (mark, mark_ink) = match demo.phase {
        _ if again(screen, demo) => ("◂ ", Ink::Accent),
        DemoPhase::Done { .. } if step.oom.is_none() => ("✓ ", Ink::Good),
        DemoPhase::Done { .. } | DemoPhase::Failed(_) => ("✗ ", Ink::Warning),
        DemoPhase::Stopped => ("▸ ", Ink::Dim),
        DemoPhase::Starting | DemoPhase::Running | DemoPhase::Waiting => ("▸ ", Ink::Accent),
    };
    let lead = format!("{}  ", number(screen, demo, step));
    let room = width.saturating_sub(lead.len() as u16 + 2);
    for (i, part) in wrap(&step.title, room).into_iter().enumerate() {
        let (mark, lead) = match i {
            0 => (mark.to_owned(), lead.clone()),
            _ => (" ".into(), " ".repeat(lead.len() + 1)),
        };
        out.push(line([(mark, theme.ink(mark_ink)), (lead, strong), (part, strong)]));
    }
    let inner = width.saturating_sub(2);
    let indent = |lines: Vec<String>, style: Style| -> Vec<Line<'static>> {
        let indented = |text| line([("  ".into(), plain), (text, style)]);
        lines.into_iter().map(indented).collect()
    };
    out.push(Line::default());
    out.extend(indent(wrap(&step.detail, inner), plain));
    out.push(Line::default());
    if let Some(oom) = &step.oom {
        let text = format!(
            "failed: {} requested, {} free in total, {} in one piece",
            units::bytes(oom.requested),
            units::bytes(oom.free_total),
            units::bytes(oom.largest_free)
        );
        out.extend(indent(wrap(&text, inner), theme.ink(Ink::Warning)));
        out.extend(indent(report(&oom.report, inner, brief), dim));
        out.push(Line::default());
    }
    match step.verified {
        Some(true) => out.push(line([
            ("  ✓ ".into(), theme.ink(Ink::Good)),
            ("every live block kept its pattern".into(), plain),
        ])),
        Some(false) => out.push(line([
            ("  ✗ ".into(), theme.ink(Ink::Warning)),
            ("a live block lost its pattern".into(), plain),
        ])),
        None => {}
    }
    for (name, allocated) in &step.phases {
        out.push(line([
            (format!("  {name:<12}"), dim),
            (format!("{:>10} allocated", units::bytes(*allocated)), plain),
        ]));
    }
    if brief.is_some() || demo.paced() {
        // The memory panel shows the same figures. Those of a replay, which goes on, are newer there.
        return;
    }
    if screen.model.managed_demo().is_some() {
        // The allocator has none of its memory, and the memory panel shows where that is.
        return;
    }
    if demo.running() && !demo.stepped() {
        // The demo goes on, and the memory panel shows what it holds now.
        out.push(Line::styled("  and at the step's end", dim));
    }
    let s = &step.stats;
    let pairs = [
        ("reserved", units::bytes_short(s.reserved)),
        ("allocated", units::bytes_short(s.allocated)),
        ("cached", units::bytes_short(s.cached)),
        ("largest free", units::bytes_short(s.largest_free)),
    ];
    let mut figures = Line::default();
    for (label, text) in pairs {
        let pair = line([(format!("  {label} "), dim), (text, plain)]);
        if figures.width() + pair.width() > usize::from(width) && !figures.spans.is_empty() {
            out.push(std::mem::take(&mut figures));
        }
        figures.spans.extend(pair.spans);
    }
    out.push(figures);
}

/// Checks whether an earlier step is shown again.
fn again(screen: &Screen<'_>, demo: &Demo) -> bool {
    demo.steps_up_to(screen.model.ui.demo_back).len() < demo.steps.len()
}

/// Returns the number of the shown step, and how many there are: `3 of 7, seen again`.
pub(super) fn number(screen: &Screen<'_>, demo: &Demo, step: &DemoStep) -> String {
    let of = match demo.total_steps {
        0 => String::new(),
        steps => format!(" of {steps}"),
    };
    let again = if again(screen, demo) { ", seen again" } else { "" };
    format!("{:>2}{of}{again}", step.number)
}

/// Returns all that is known of the shown step, after the titles of those before.
pub(super) fn whole(screen: &Screen<'_>, demo: &Demo, width: u16) -> Vec<Line<'static>> {
    let shown = demo.steps_up_to(screen.model.ui.demo_back);
    let before = shown.split_last().map_or(&[][..], |(_, before)| before);
    let past = before.iter().map(|step| fit(past_line(screen, step), width));
    past.chain(present(screen, demo, width, None)).collect()
}

/// Returns the choices, as `text` words them, the notice and the outcome.
pub(super) fn closing_lines(
    screen: &Screen<'_>,
    demo: &Demo,
    width: u16,
    text: fn(&Choice) -> String,
) -> Vec<Line<'static>> {
    let mut out = vec![];
    let theme = screen.theme;
    let (dim, plain) = (theme.ink(Ink::Dim), Style::new());
    let warning = |text: String| Line::styled(text, theme.ink(Ink::Warning));
    if !demo.choices.is_empty() {
        out.push(Line::default());
        out.push(line([
            ("f".into(), theme.ink(Ink::Accent)),
            (" chooses a fix:".into(), plain),
        ]));
        for choice in &demo.choices {
            let name = format!("  {:<10}", choice.name);
            let room = width.saturating_sub(name.len() as u16);
            for (i, part) in wrap(&text(choice), room).into_iter().enumerate() {
                let lead = if i == 0 { name.clone() } else { " ".repeat(name.len()) };
                out.push(line([(lead, theme.ink(Ink::Strong)), (part, dim)]));
            }
        }
    }
    if let Some(notice) = &demo.notice {
        out.push(Line::default());
        out.extend(wrap(notice, width).into_iter().map(warning));
    }
    if let DemoPhase::Failed(why) = &demo.phase {
        out.push(Line::default());
        out.extend(wrap(why, width).into_iter().map(warning));
    }
    let Some(outcome) = &demo.outcome else { return out };
    out.push(Line::default());
    let fix = outcome.fix.as_deref().unwrap_or("the fix");
    let lines = [
        (
            outcome.failed_before,
            "the large request failed before the fix".to_owned(),
        ),
        (outcome.succeeded_after, format!("it succeeded after {fix}")),
        (outcome.patterns_verified, "every pattern was intact".to_owned()),
    ];
    for (held, text) in lines {
        let (mark, ink, text) = match held {
            Some(true) => ("✓ ", Ink::Good, text),
            Some(false) => ("✗ ", Ink::Warning, format!("not so: {text}")),
            None => continue,
        };
        let marks = std::iter::once(mark).chain(std::iter::repeat("  "));
        let parts = marks.zip(wrap(&text, width.saturating_sub(2)));
        out.extend(parts.map(|(mark, part)| line([(mark.into(), theme.ink(ink)), (part, plain)])));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cut_line_keeps_its_styles() {
        let dim = Style::new().dim();
        let cut = fit(Line::styled("abcdef", dim), 4);
        assert_eq!(cut, Line::styled("abc…", dim));
        let strong = Style::new().bold();
        let pieces = fit(line([("ab".into(), strong), ("cdef".into(), dim)]), 4);
        assert_eq!(pieces, line([("ab".into(), strong), ("c…".into(), dim)]));
    }
}
