//! The question whether to measure a card that other programs use, with what that costs them.

use gpumem_text::units::{bytes, plural};
use ratatui::layout::Rect;
use ratatui::text::Line;
use ratatui::widgets::Paragraph;

use crate::model::{CONTEXT, MEASURED_IN, MEASURED_WITH};
use crate::view::Screen;
use crate::wrap::wrap;

/// Draws it.
pub(super) fn draw(screen: &mut Screen<'_>, area: Rect) {
    let model = screen.model;
    let users = model.users_of_selected() as u64;
    let name = model.measurable().map_or("the device", |device| device.label.as_str());
    let verb = if users == 1 { "uses" } else { "use" };
    let text = format!(
        "{} {verb} {name}. Measuring takes about {MEASURED_IN} s and up to {} with its context, and its kernels fill the card meanwhile: \
         others run slower, and the figures may come out worse than on an idle card. A demo that runs is ended.",
        plural(users, "program"),
        bytes(MEASURED_WITH + CONTEXT)
    );
    let wide = area.width.min(70);
    let mut lines: Vec<Line<'_>> = wrap(&text, wide.saturating_sub(4)).into_iter().map(Line::raw).collect();
    lines.extend(super::choice(screen, "measures"));
    let (inside, scroll) = super::page(screen, area, wide, lines.len() as u16, "Measure this card?", 0);
    screen.render(Paragraph::new(lines).scroll((scroll, 0)), inside);
}
