//! The screen: a buffer of some lines to draw into, and of what the terminal shows only what is needed to send what
//! changed.
//!
//! A cell of the buffer takes 48 bytes, half a megabyte for a large screen, which would be as much as all else that this
//! program holds. So a large screen is drawn in bands, one after the other: three for 200x50, which take a sixth longer
//! than one would.

use std::io;

use ratatui::backend::{Backend, CrosstermBackend};
use ratatui::buffer::Buffer;
use ratatui::crossterm::style::force_color_output;
use ratatui::layout::Rect;

use super::shown::Shown;
use crate::model::{Colors, Hits, Model, Term};
use crate::terminal::{self, Frame, Output};
use crate::view;

pub(super) struct Screen {
    output: Output,
    backend: CrosstermBackend<Frame>,
    /// One band.
    buffer: Buffer,
    area: Rect,
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
        let area = area(term);
        Ok(Screen {
            backend: CrosstermBackend::new(output.frame()),
            output,
            buffer: Buffer::default(),
            shown: Shown::blank(area),
            area,
            forgotten: false,
        })
    }

    /// Draws the model; what the view found out. Nothing is written when nothing changed.
    pub(super) fn draw(&mut self, model: &Model) -> io::Result<Hits> {
        let area = area(model.ui.term);
        if self.forgotten || area != self.area {
            self.output.clear();
            self.buffer = Buffer::default();
            self.shown = Shown::blank(area);
            self.area = area;
            self.forgotten = false;
        }
        let mut hits = Hits::default();
        for band in bands(area) {
            self.buffer.resize(band);
            self.buffer.reset();
            hits = view::draw(&mut self.buffer, model);
            let mut changes = self.shown.changes(&self.buffer).peekable();
            if changes.peek().is_some() {
                self.backend.draw(changes)?;
            }
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

/// Most columns and lines that are drawn, in the corner of what is larger: more than any screen shows that can be read, and
/// what a terminal may claim to be (65535 of each) would take all memory there is.
const MOST: (u16, u16) = (1000, 400);

/// Columns and lines to draw.
pub(super) fn size() -> (u16, u16) {
    let (width, height) = terminal::size();
    (width.min(MOST.0), height.min(MOST.1))
}

/// Most cells of a band; a band has at least one line.
const BAND: u16 = 4000;

/// The lines of a screen in bands of about the same height, at least one.
fn bands(area: Rect) -> impl Iterator<Item = Rect> {
    let most = (BAND / area.width.max(1)).max(1);
    let count = area.height.div_ceil(most).max(1);
    let tall = area.height.div_ceil(count);
    (0..count).map(move |i| {
        let y = (i * tall).min(area.height);
        let height = tall.min(area.height - y);
        Rect { y, height, ..area }
    })
}

fn area(term: Term) -> Rect {
    Rect::new(0, 0, term.width, term.height)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bands_cover_every_line_once_and_are_small() {
        for (width, height) in [
            (0, 0),
            (1, 1),
            (80, 24),
            (120, 40),
            (200, 50),
            (500, 200),
            (9000, 3),
            (0, 7),
            (7, 0),
        ] {
            let bands: Vec<Rect> = bands(Rect::new(0, 0, width, height)).collect();
            assert!(!bands.is_empty(), "{width}x{height}");
            let lines: Vec<u16> = bands.iter().flat_map(|b| b.top()..b.bottom()).collect();
            assert_eq!(lines, (0..height).collect::<Vec<_>>());
            assert!(bands.iter().all(|b| b.height <= 1 || b.area() <= u32::from(BAND)));
        }
        assert_eq!(
            bands(Rect::new(0, 0, 80, 24)).count(),
            1,
            "an ordinary screen is drawn at once"
        );
    }
}
