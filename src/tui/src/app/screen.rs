//! The screen: one buffer to draw into, and of what the terminal shows only what is needed to send what changed.

use std::io;

use crossterm::style::force_color_output;
use ratatui::backend::{Backend, CrosstermBackend};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::shown::Shown;
use crate::model::{Colors, Hits, Model, Term};
use crate::terminal::{Frame, Output};
use crate::view;

pub(super) struct Screen {
    output: Output,
    backend: CrosstermBackend<Frame>,
    buffer: Buffer,
    shown: Shown,
    /// What is on the terminal is not known: clear it and draw everything.
    forgotten: bool,
}

impl Screen {
    /// A screen that is blank now.
    pub(super) fn new(term: Term) -> io::Result<Screen> {
        // Our colour step already knows about NO_COLOR; crossterm would look again and drop what --color asked for.
        force_color_output(term.colors != Colors::Mono);
        let output = Output::new()?;
        let buffer = Buffer::empty(area(term));
        Ok(Screen {
            backend: CrosstermBackend::new(output.frame()),
            output,
            shown: Shown::blank(buffer.content.len()),
            buffer,
            forgotten: false,
        })
    }

    /// Draws the model; what the view found out. Nothing is written when nothing changed.
    pub(super) fn draw(&mut self, model: &Model) -> io::Result<Hits> {
        let area = area(model.ui.term);
        if self.forgotten || area != self.buffer.area {
            self.output.clear();
            self.buffer = Buffer::empty(area);
            self.shown = Shown::blank(self.buffer.content.len());
            self.forgotten = false;
        } else {
            self.buffer.reset();
        }
        let hits = view::draw(&mut self.buffer, model);
        let mut changes = self.shown.changes(&self.buffer).peekable();
        if changes.peek().is_some() {
            self.backend.draw(changes)?;
        }
        self.output.send()?;
        Ok(hits)
    }

    pub(super) fn forget(&mut self) {
        self.forgotten = true;
    }

    pub(super) fn busy(&self) -> bool {
        self.output.busy()
    }

    pub(super) async fn drain(&mut self) -> io::Result<()> {
        self.output.drain().await
    }
}

fn area(term: Term) -> Rect {
    Rect::new(0, 0, term.width, term.height)
}
