//! Draws the model. Pure: the same model gives the same cells, with no clock and no I/O.
//!
//! A screen is a header line, one of the views, the findings, and a line of keys; a popup may lie over it. Every
//! view has a room of its own; what they share are the widgets (`bar`, `legend`, `graph`, `strips`, `pen`) and the
//! `theme`, which alone knows colours and glyphs.

mod badge;
mod bar;
mod blocks;
mod chrome;
mod demo;
mod graph;
mod history;
mod legend;
mod overview;
mod panel;
mod pen;
mod popup;
mod strips;
mod theme;
mod timeline;
mod widgets;

#[cfg(test)]
mod tests;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::widgets::{StatefulWidget, Widget};

use crate::model::{Area, Hit, Hits, Model, Target, View};
use pen::Pen;
use theme::Theme;

/// What every part of a screen draws with.
struct Screen<'a> {
    pen: Pen<'a>,
    model: &'a Model,
    hits: Hits,
}

impl Screen<'_> {
    /// Draws a widget on the part of an area that is on the screen.
    fn render(&mut self, widget: impl Widget, area: Rect) {
        let area = area.intersection(self.pen.screen());
        widget.render(area, self.pen.buffer());
    }

    fn render_stateful<W: StatefulWidget>(&mut self, widget: W, area: Rect, state: &mut W::State) {
        let area = area.intersection(self.pen.screen());
        widget.render(area, self.pen.buffer(), state);
    }

    /// Notes that an area answers a click.
    fn hit(&mut self, area: Rect, target: Target) {
        let area = area.intersection(self.pen.screen());
        if !area.is_empty() {
            let area = Area {
                x: area.x,
                y: area.y,
                width: area.width,
                height: area.height,
            };
            self.hits.areas.push(Hit { area, target });
        }
    }
}

/// Draws a view into the area that it has.
type Draw = fn(&mut Screen<'_>, Rect);

/// How each view is drawn. Its key, title and keys are in [`crate::model::VIEWS`].
const VIEWS: [(View, Draw); 4] = [
    (View::Overview, overview::draw),
    (View::Blocks, blocks::draw),
    (View::Timeline, timeline::draw),
    (View::Demo, demo::draw),
];

/// Draws `model` into a blank buffer of the terminal's size and tells which areas answer a click.
pub fn draw(buffer: &mut Buffer, model: &Model) -> Hits {
    let area = buffer.area;
    let theme = Theme::of(&model.ui.term);
    let mut screen = Screen {
        pen: Pen::new(buffer, theme),
        model,
        hits: Hits {
            first: model.ui.hits.first,
            ..Hits::default()
        },
    };
    let body = chrome::draw(&mut screen, area);
    let draw = VIEWS.iter().find(|(view, _)| *view == model.ui.view);
    if let Some((_, draw)) = draw {
        draw(&mut screen, body);
    }
    badge::make_sure(&mut screen, body);
    if let Some(popup) = &model.ui.popup {
        popup::draw(&mut screen, area, popup);
    }
    let hits = screen.hits;
    theme.spell(buffer);
    hits
}
