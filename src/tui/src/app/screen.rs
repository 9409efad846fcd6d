//! The screen: ratatui's terminal over a backend that never blocks.

use std::io::{self, Write};

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
    /// Whether the contents of the terminal are not known, so that the next frame clears it and draws everything.
    forgotten: bool,
}

impl Screen {
    /// Creates the screen. The terminal must be blank.
    pub(super) fn new(term: Term) -> io::Result<Screen> {
        // NO_COLOR is already part of the choice of colours; crossterm would check it again and ignore --color.
        force_color_output(term.colors != Colors::Mono);
        Ok(Screen {
            terminal: Terminal::new(Frames::new(size_of(term))?)?,
            forgotten: false,
        })
    }

    /// Draws the model and returns the areas of the frame. Writes nothing if nothing changed.
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

    /// Rings the terminal's bell, with the next frame if the terminal is slow.
    pub(super) fn ring(&mut self) -> io::Result<()> {
        let output = &mut self.terminal.backend_mut().output;
        output.frame().write_all(b"\x07")?;
        match output.busy() {
            true => Ok(()),
            false => output.send(),
        }
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

/// Most columns and lines that are drawn, in the top left corner of a larger terminal. No readable screen has more, and a frame
/// of the largest size that a terminal may claim (65535 of each) would take all memory.
const MAX_SIZE: (u16, u16) = (640, 240);

/// Returns the columns and lines to draw.
pub(super) fn size() -> (u16, u16) {
    let (width, height) = terminal::size();
    (width.min(MAX_SIZE.0), height.min(MAX_SIZE.1))
}

fn size_of(term: Term) -> Size {
    Size::new(term.width, term.height)
}

/// Ratatui's crossterm backend, except that a frame is collected and sent with one write that does not block.
struct Frames {
    crossterm: CrosstermBackend<terminal::Frame>,
    output: Output,
    /// The size in the model. The terminal may have another one by now; an event reports it.
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
        // Crossterm's backend resets the colours even if there is nothing to draw.
        let mut content = content.peekable();
        match content.peek() {
            Some(_) => self.crossterm.draw(content),
            None => Ok(()),
        }
    }

    /// Does nothing: the cursor is hidden while the terminal is taken over.
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
