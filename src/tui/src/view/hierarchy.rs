//! Hierarchy: the levels of a card's memory as a ladder, the curve of latency over the working set, and what a level is.

mod curve;
mod explain;
mod ladder;

use gpumem_text::units::duration;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::Modifier;
use ratatui::text::{Span, Text};
use ratatui::widgets::{Paragraph, Wrap};

use crate::model::{Hierarchy, Measuring, Rung, Whose};
use crate::view::Screen;
use crate::view::layout::{clip, split_left, split_top};
use crate::view::panel::Panel;
use crate::view::theme::Ink;
use crate::view::widgets::Meter;
use crate::wrap::width;

/// Draws the view.
pub(super) fn draw(screen: &mut Screen<'_>, area: Rect) {
    let model = screen.model;
    let measuring = model.hierarchies.measuring.as_ref();
    let (top, area) = split_top(area, u16::from(measuring.is_some()));
    if let Some(measuring) = measuring {
        progress(screen, top, measuring);
    }
    let Some((shown, whose)) = model.hierarchy() else {
        let inside = screen.panel(area, "Memory hierarchy", "");
        let text = Text::styled(
            "There are no figures: r measures the selected GPU.",
            screen.theme.ink(Ink::Dim),
        );
        screen.render(Paragraph::new(text).wrap(Wrap { trim: true }), inside);
        return;
    };
    let levels = shown.levels.len() as u16;
    let selected = model.ui.hierarchy.level.min(shown.levels.len().saturating_sub(1));
    // The frame, the axis, and a line or more a level.
    let frame = 3;
    match (area.width, area.height) {
        (150.., 30..) => {
            let [left, right] = Layout::horizontal([Constraint::Percentage(56), Constraint::Fill(1)]).areas(area);
            let lines = (area.height - 16).saturating_sub(frame) / levels.max(1);
            let ladder = frame + levels * lines.clamp(1, 3);
            let [ladder, explained] = Layout::vertical([Constraint::Length(ladder), Constraint::Fill(1)]).areas(left);
            draw_ladder(screen, ladder, (shown, whose), selected);
            explain::draw(screen, explained, shown, selected);
            curve::draw(screen, right, shown);
        }
        (100.., 28..) => {
            let lines = if area.height >= frame + 2 * levels + 10 { 2 } else { 1 };
            let ladder = frame + levels * lines;
            let [ladder, below] = Layout::vertical([Constraint::Length(ladder), Constraint::Fill(1)]).areas(area);
            let [left, right] = Layout::horizontal([Constraint::Fill(1), Constraint::Fill(1)]).areas(below);
            draw_ladder(screen, ladder, (shown, whose), selected);
            curve::draw(screen, left, shown);
            explain::draw(screen, right, shown, selected);
        }
        _ => {
            let ladder = (frame + levels).min(area.height);
            let [ladder, below] = Layout::vertical([Constraint::Length(ladder), Constraint::Fill(1)]).areas(area);
            draw_ladder(screen, ladder, (shown, whose), selected);
            match model.ui.hierarchy.explained {
                true => explain::draw(screen, below, shown, selected),
                false => curve::draw(screen, below, shown),
            }
        }
    }
}

/// Draws the frame with whose figures these are, and the ladder in it.
fn draw_ladder(screen: &mut Screen<'_>, area: Rect, (shown, whose): (&Hierarchy, Whose), selected: usize) {
    let theme = screen.theme;
    let (day, driver) = (date(shown.date), &shown.driver);
    let note = match whose {
        Whose::Card => format!("measured {day}, driver {driver}"),
        Whose::OtherDriver => format!("measured {day} with driver {driver}: r measures again"),
        Whose::Example => "not measured here".to_owned(),
    };
    let room = area.width.saturating_sub(6);
    let label = (whose == Whose::Example)
        .then(|| Span::styled(" EXAMPLE ", theme.ink(Ink::Warning).add_modifier(Modifier::REVERSED)));
    let label_room = label.as_ref().map_or(0, |label| label.width() as u16 + 1);
    let long = format!("{}, {} SMs at {:.0} MHz", shown.card, shown.sms, shown.sm_mhz);
    let title = [long, shown.card.clone()]
        .into_iter()
        .find(|title| width(title) + label_room <= room)
        .unwrap_or_else(|| clip(&shown.card, room.saturating_sub(label_room)));
    let left = room.saturating_sub(width(&title) + label_room);
    let note = Some(Span::styled(note, theme.ink(Ink::Dim))).filter(|note| note.width() as u16 + 2 <= left);
    let panel = Panel::new(theme).title(title).label(label).note(note);
    let inside = panel.inner(area);
    screen.render(panel, area);
    ladder::draw(screen, inside, shown, selected);
}

/// Draws how far a measurement is.
fn progress(screen: &mut Screen<'_>, area: Rect, measuring: &Measuring) {
    let (done, of) = measuring.done;
    let left = match measuring.left {
        0 => String::new(),
        left => format!(", {} left", duration(left)),
    };
    let text = format!("measuring {}: {done} of {of}{left}. r stops it", measuring.what);
    let share = if of == 0 {
        0.0
    } else {
        (done as f64 / of as f64).min(1.0)
    };
    let theme = screen.theme;
    let words = width(&text).saturating_add(3).min(area.width);
    let (line, rest) = split_left(area, words);
    let text = Span::styled(
        format!(" {}", clip(&text, words.saturating_sub(1))),
        theme.ink(Ink::Accent),
    );
    screen.render(text, line);
    let meter = Meter {
        theme,
        ink: Ink::Accent,
        share,
    };
    screen.render(
        meter,
        Rect {
            width: rest.width.saturating_sub(1),
            ..rest
        },
    );
}

/// Returns the colour of a level.
fn ink_of(rung: Rung) -> Ink {
    match rung {
        Rung::Registers | Rung::Shared | Rung::L1 => Ink::Good,
        Rung::L2Near => Ink::Cached,
        Rung::L2Far => Ink::Pending,
        Rung::Device => Ink::Allocated,
        Rung::Peer | Rung::PinnedHost | Rung::PageableHost => Ink::Other,
        Rung::Disk => Ink::Driver,
    }
}

/// Returns the day of a time in seconds since 1970, as `2026-11-28`, in UTC. (Days of the civil calendar, by H. Hinnant's
/// `civil_from_days`.)
fn date(seconds: u64) -> String {
    let days = (seconds / 86_400).min(10_000_000) + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (seconds, day) in [
            (0, "1970-01-01"),
            (951_782_399, "2000-02-28"),
            (951_782_400, "2000-02-29"),
            (951_868_800, "2000-03-01"),
            (1_795_910_399, "2026-11-28"),
            (4_107_542_400, "2100-03-01"),
        ] {
            assert_eq!(date(seconds), day);
        }
    }
}
