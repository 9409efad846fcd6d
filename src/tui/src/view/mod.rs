//! Draws the model. Pure: the same model gives the same cells, with no clock and no I/O.
//!
//! A screen has a header line, one of the views, the findings, and a line of keys; a popup may lie over it. Every view is a
//! module. Views share the `widgets`, the `panel` around them, and the `theme`, the only module that knows colours and glyphs.

mod badge;
mod blocks;
mod chrome;
mod demo;
mod hierarchy;
mod history;
mod layout;
mod overview;
mod panel;
mod popup;
mod theme;
mod timeline;
mod triage;
mod unified;
mod widgets;

#[cfg(test)]
mod tests;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Span;
use ratatui::widgets::{StatefulWidget, Widget};

use crate::model::{Area, DeviceKind, Hit, Hits, Model, Target, View};
use layout::clip;
use panel::Panel;
use theme::{Ink, Theme};

/// The state that the parts of a screen share while they draw.
struct Screen<'a> {
    buffer: &'a mut Buffer,
    theme: Theme,
    model: &'a Model,
    hits: Hits,
    /// Whether a label on the screen says that the view is simulated.
    labelled: bool,
}

impl Screen<'_> {
    /// Draws a widget on the part of an area that is on the screen.
    fn render(&mut self, widget: impl Widget, area: Rect) {
        let area = area.intersection(self.buffer.area);
        widget.render(area, self.buffer);
    }

    fn render_stateful<W: StatefulWidget>(&mut self, widget: W, area: Rect, state: &mut W::State) {
        let area = area.intersection(self.buffer.area);
        widget.render(area, self.buffer, state);
    }

    /// Draws a frame with a title, and a note where both fit; returns the area inside.
    fn panel(&mut self, area: Rect, title: &str, note: &str) -> Rect {
        let note = (!note.is_empty()).then(|| Span::styled(note.to_owned(), self.theme.ink(Ink::Dim)));
        let title = clip(title, area.width.saturating_sub(6));
        let panel = Panel::new(self.theme).title(title).note(note);
        let inside = panel.inner(area);
        self.render(panel, area);
        inside
    }

    /// Records that an area answers a click.
    fn hit(&mut self, area: Rect, target: Target) {
        let area = area.intersection(self.buffer.area);
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

/// How a view is drawn. Its key, title and keys are in [`crate::model::VIEWS`].
struct Drawing {
    view: View,
    /// Draws the view into its area.
    draw: fn(&mut Screen<'_>, Rect),
    /// Checks whether the view shows something simulated, which must be labelled.
    is_simulated: fn(&Model) -> bool,
}

const VIEWS: [Drawing; 7] = [
    Drawing {
        view: View::Overview,
        draw: overview::draw,
        // If only some devices are simulated, each has a label of its own.
        is_simulated: badge::all_simulated,
    },
    Drawing {
        view: View::Blocks,
        draw: blocks::draw,
        is_simulated: |model| model.selected_process().is_some_and(|process| process.simulated),
    },
    Drawing {
        view: View::Timeline,
        draw: timeline::draw,
        is_simulated: |model| {
            let device = model.selected_device();
            device.is_some_and(|device| device.kind == DeviceKind::Simulated)
        },
    },
    Drawing {
        view: View::Hierarchy,
        draw: hierarchy::draw,
        // It shows measured figures, of this card or, labelled, of another one.
        is_simulated: |_| false,
    },
    Drawing {
        view: View::Unified,
        draw: unified::draw,
        is_simulated: |model| {
            let shown = model.managed_selected();
            shown.is_some_and(|target| model.world().managed.is_simulated(target))
        },
    },
    Drawing {
        view: View::Triage,
        draw: triage::draw,
        is_simulated: |model| model.triaged().is_some_and(|process| process.simulated),
    },
    Drawing {
        view: View::Demo,
        draw: demo::draw,
        is_simulated: |model| model.demo.as_ref().is_some_and(|demo| demo.simulated),
    },
];

/// Draws `model` into a blank buffer of the terminal's size and returns the areas that answer a click.
pub(crate) fn draw(buffer: &mut Buffer, model: &Model) -> Hits {
    let area = buffer.area;
    let theme = Theme::of(&model.ui.term);
    let mut screen = Screen {
        buffer,
        theme,
        model,
        labelled: false,
        hits: Hits {
            first: model.ui.hits.first,
            ..Hits::default()
        },
    };
    let body = chrome::draw(&mut screen, area);
    if let Some(view) = VIEWS.iter().find(|row| row.view == model.ui.view) {
        (view.draw)(&mut screen, body);
        badge::ensure_labelled(&mut screen, body, (view.is_simulated)(model));
    }
    if let Some(popup) = &model.ui.popup {
        popup::draw(&mut screen, area, popup);
    }
    let hits = screen.hits;
    theme.replace_non_ascii(buffer);
    hits
}
