//! The screen: ratatui over [`Output`], with a size that is told rather than asked for.

use std::io;

use crossterm::style::force_color_output;
use ratatui::backend::CrosstermBackend;
use ratatui::layout::Rect;
use ratatui::{Terminal, TerminalOptions, Viewport};

use crate::model::{Colors, Hits, Model, Term};
use crate::terminal::{Frame, Output};
use crate::view;

pub(super) struct Screen {
    output: Output,
    terminal: Terminal<CrosstermBackend<Frame>>,
    size: (u16, u16),
    /// What is on the terminal is not known: clear it and draw everything.
    forgotten: bool,
}

impl Screen {
    /// A screen that is blank now.
    pub(super) fn new(term: Term) -> io::Result<Screen> {
        // Our colour step already knows about NO_COLOR; crossterm would look again and drop what --color asked for.
        force_color_output(term.colors != Colors::Mono);
        let output = Output::new()?;
        let size = (term.width, term.height);
        Ok(Screen {
            terminal: blank(&output, size)?,
            output,
            size,
            forgotten: false,
        })
    }

    /// Draws the model; what the view found out.
    pub(super) fn draw(&mut self, model: &Model) -> io::Result<Hits> {
        let size = (model.ui.term.width, model.ui.term.height);
        if self.forgotten || size != self.size {
            self.output.clear();
            self.terminal = blank(&self.output, size)?;
            (self.size, self.forgotten) = (size, false);
        }
        let mut hits = Hits::default();
        self.terminal.draw(|frame| hits = view::draw(frame, model))?;
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

/// A terminal of this size that takes the screen for blank. Its viewport is fixed: a full-screen one asks for the size
/// with every frame, in the worst case by starting `tput`.
fn blank(output: &Output, (width, height): (u16, u16)) -> io::Result<Terminal<CrosstermBackend<Frame>>> {
    let viewport = Viewport::Fixed(Rect::new(0, 0, width, height));
    Terminal::with_options(CrosstermBackend::new(output.frame()), TerminalOptions { viewport })
}
