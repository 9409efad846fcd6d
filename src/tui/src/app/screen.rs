//! The screen: ratatui's terminal, over a backend that never waits.

use std::io;

use ratatui::Terminal;
use ratatui::backend::{Backend, ClearType, CrosstermBackend, WindowSize};
use ratatui::buffer::Cell;
use ratatui::crossterm::style::force_color_output;
use ratatui::layout::{Position, Size};

use crate::model::{Colors, Hits, Model, Term};
use crate::terminal::{self, Output};
use crate::view;

pub(super) struct Screen {
    terminal: Terminal<Frames>,
    /// What is on the terminal is not known: clear it and draw everything.
    forgotten: bool,
}

impl Screen {
    /// A screen that is blank now.
    pub(super) fn new(term: Term) -> io::Result<Screen> {
        // Our colour step already knows about NO_COLOR; crossterm would look again and drop what --color asked for.
        force_color_output(term.colors != Colors::Mono);
        Ok(Screen {
            terminal: Terminal::new(Frames::new(size_of(term))?)?,
            forgotten: false,
        })
    }

    /// Draws the model; what the view found out. Nothing is written when nothing changed.
    pub(super) fn draw(&mut self, model: &Model) -> io::Result<Hits> {
        self.terminal.backend_mut().size = size_of(model.ui.term);
        if std::mem::take(&mut self.forgotten) {
            self.terminal.clear()?;
        }
        let mut hits = Hits::default();
        self.terminal
            .draw(|frame| hits = view::draw(frame.buffer_mut(), model))?;
        Ok(hits)
    }

    pub(super) fn forget(&mut self) {
        self.forgotten = true;
    }

    pub(super) fn busy(&self) -> bool {
        self.terminal.backend().output.busy()
    }

    pub(super) async fn drain(&mut self) -> io::Result<()> {
        self.terminal.backend_mut().output.drain().await
    }
}

/// Most columns and lines that are drawn, in the corner of what is larger: more than any screen shows that can be read, and
/// what a terminal may claim to be (65535 of each) would take all memory there is.
const MOST: (u16, u16) = (640, 240);

/// Columns and lines to draw.
pub(super) fn size() -> (u16, u16) {
    let (width, height) = terminal::size();
    (width.min(MOST.0), height.min(MOST.1))
}

fn size_of(term: Term) -> Size {
    Size::new(term.width, term.height)
}

/// Ratatui's backend for crossterm, with frames that are collected and sent by one write that does not wait.
struct Frames {
    crossterm: CrosstermBackend<terminal::Frame>,
    output: Output,
    /// The model's: the terminal may have another one by now, of which an event tells.
    size: Size,
}

impl Frames {
    fn new(size: Size) -> io::Result<Frames> {
        let output = Output::new()?;
        Ok(Frames {
            crossterm: CrosstermBackend::new(output.frame()),
            output,
            size,
        })
    }
}

impl Backend for Frames {
    type Error = io::Error;

    fn draw<'a, I>(&mut self, content: I) -> io::Result<()>
    where
        I: Iterator<Item = (u16, u16, &'a Cell)>,
    {
        // Crossterm's resets the colours even if there is nothing to draw.
        let mut content = content.peekable();
        match content.peek() {
            Some(_) => self.crossterm.draw(content),
            None => Ok(()),
        }
    }

    /// The cursor is hidden as long as the terminal is ours.
    fn hide_cursor(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn show_cursor(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn get_cursor_position(&mut self) -> io::Result<Position> {
        Ok(Position::ORIGIN)
    }

    fn set_cursor_position<P: Into<Position>>(&mut self, _: P) -> io::Result<()> {
        Ok(())
    }

    fn clear(&mut self) -> io::Result<()> {
        self.clear_region(ClearType::All)
    }

    fn clear_region(&mut self, clear_type: ClearType) -> io::Result<()> {
        self.crossterm.clear_region(clear_type)
    }

    fn size(&self) -> io::Result<Size> {
        Ok(self.size)
    }

    fn window_size(&mut self) -> io::Result<WindowSize> {
        Ok(WindowSize {
            columns_rows: self.size,
            pixels: Size::ZERO,
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        self.output.send()
    }
}
