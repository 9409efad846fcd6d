//! Lines of a file and the fields in them, with their places.

use std::cell::Cell;
use std::io::{ErrorKind, Read};

use gpumem_text::units::count;

use super::builder::MOST_OPERATIONS;
use super::error::Problem;
use super::packed::most_rows;
use super::show;

/// Longest line: many times what any format needs, so that a file without line ends takes no memory.
const LONGEST: usize = 4096;
/// Longest line that is left out as an odd one: what a program prints into its log. A file without line ends has no rows.
const LONGEST_ODD: usize = 1 << 20;
/// The byte order mark that people's editors begin a file with.
pub(super) const MARK: &[u8] = b"\xef\xbb\xbf";
/// Bytes read at a time.
const CHUNK: usize = 1 << 17;

/// Most lines: a header, and as many rows as a trace may have operations, be they ones or not. What makes no operation takes time, too.
const MOST: u64 = MOST_OPERATIONS as u64 + 1;

/// The lines of a file.
pub(super) struct Lines<'a> {
    from: &'a mut dyn Read,
    bytes: Vec<u8>,
    /// What is left of `bytes`.
    start: usize,
    end: usize,
    line: u64,
    /// Most lines.
    most: u64,
    /// Bytes read so far of a file that is compressed.
    packed: Option<&'a Cell<u64>>,
    ended: bool,
    /// The compressed data ends early, after the last line that is told.
    cut: bool,
    /// The newest line has no end of its own: the file ends within it.
    open: bool,
    /// The newest line is longer than [`LONGEST`], and was left out.
    long: bool,
}

impl<'a> Lines<'a> {
    /// `packed`: the bytes read so far of the file that is unpacked here.
    pub(super) fn new(from: &'a mut dyn Read, packed: Option<&'a Cell<u64>>) -> Lines<'a> {
        Lines {
            from,
            bytes: vec![0; CHUNK + LONGEST],
            start: 0,
            end: 0,
            line: 0,
            most: MOST,
            packed,
            ended: false,
            cut: false,
            open: false,
            long: false,
        }
    }

    /// The last whole line before the compressed data ends early.
    pub(super) fn cut_after(&self) -> Option<u64> {
        self.cut.then_some(self.line)
    }

    /// The next line that is not empty, without its end (`\n` or `\r\n`). Of a first line that is too long there is the beginning, of
    /// others nothing ([`Row::check_length`]).
    pub(super) fn next(&mut self) -> Result<Option<Row<'_>>, Problem> {
        let (from, to) = loop {
            let Some((from, to)) = self.find()? else {
                return Ok(None);
            };
            self.line += 1;
            self.check_rows()?;
            let from = match self.line == 1 && self.bytes[from..to].starts_with(MARK) {
                true => from + MARK.len(),
                false => from,
            };
            if from < to || self.long {
                break (from, to);
            }
        };
        Ok(Some(Row {
            line: self.line,
            text: &self.bytes[from..to],
            open: self.open,
            long: self.long,
        }))
    }

    /// That there are no more rows than may be, of a compressed file by what was read of it.
    fn check_rows(&self) -> Result<(), Problem> {
        if self.line > self.most {
            let rows = count(self.most - 1);
            return Err(Problem::Limit {
                line: self.line,
                column: 1,
                what: format!("more than {rows} rows, empty ones among them; expected the end of the file"),
            });
        }
        match self.packed.map(Cell::get) {
            Some(bytes) if self.line - 1 > most_rows(bytes) => Err(Problem::Packed {
                rows: most_rows(bytes),
                bytes,
            }),
            _ => Ok(()),
        }
    }

    fn find(&mut self) -> Result<Option<(usize, usize)>, Problem> {
        self.long = false;
        let mut searched = self.start;
        loop {
            let found = self.bytes[searched..self.end].iter().position(|byte| *byte == b'\n');
            let to = found.map_or(self.end, |at| searched + at);
            let from = self.start;
            // What a file begins with says what it is, or that it is nothing known, without the rest of the line.
            if to - from > LONGEST && self.line == 0 {
                return Ok(Some((from, from + LONGEST)));
            }
            if to - from > LONGEST {
                return self.skip().map(Some);
            }
            if found.is_none() && !self.ended {
                searched = self.refill()?;
                continue;
            }
            // Of a line that is not whole in compressed data nobody knows how much is lacking.
            if found.is_none() && (from == to || self.cut) {
                return Ok(None);
            }
            self.open = found.is_none();
            self.start = (to + 1).min(self.end);
            let to = if self.bytes[from..to].ends_with(b"\r") {
                to - 1
            } else {
                to
            };
            return Ok(Some((from, to)));
        }
    }

    /// Passes over a line that is too long. None of it is told.
    fn skip(&mut self) -> Result<(usize, usize), Problem> {
        self.long = true;
        let mut length = 0;
        loop {
            let rest = &self.bytes[self.start..self.end];
            let found = rest.iter().position(|byte| *byte == b'\n');
            length += found.unwrap_or(rest.len());
            if length > LONGEST_ODD {
                return Err(Problem::Limit {
                    line: self.line + 1,
                    column: LONGEST_ODD + 1,
                    what: format!(
                        "the line is longer than {} bytes; expected its end",
                        count(LONGEST_ODD as u64)
                    ),
                });
            }
            self.start = found.map_or(self.end, |at| self.start + at + 1);
            self.open = found.is_none();
            if found.is_some() || self.ended {
                return Ok((self.start, self.start));
            }
            self.refill()?;
        }
    }

    /// Reads on; where what is new begins.
    fn refill(&mut self) -> Result<usize, Problem> {
        self.bytes.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        let before = self.end;
        let read = loop {
            match self.from.read(&mut self.bytes[before..]) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                read => break read,
            }
        };
        match read {
            Ok(0) => self.ended = true,
            Ok(count) => self.end += count,
            // What came before it is whole.
            Err(source) if source.kind() == ErrorKind::UnexpectedEof && self.line > 0 => {
                self.ended = true;
                self.cut = true;
            }
            Err(source)
                if matches!(
                    source.kind(),
                    ErrorKind::UnexpectedEof | ErrorKind::InvalidInput | ErrorKind::InvalidData
                ) =>
            {
                return Err(Problem::Damaged {
                    line: self.line,
                    source,
                });
            }
            Err(error) => return Err(error.into()),
        }
        Ok(before)
    }
}

/// One line.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row<'a> {
    line: u64,
    text: &'a [u8],
    /// The file ends within it.
    open: bool,
    long: bool,
}

impl<'a> Row<'a> {
    /// Its number, from 1.
    pub(super) fn line(&self) -> u64 {
        self.line
    }

    /// The whole line.
    pub(super) fn text(&self) -> &'a [u8] {
        self.text
    }

    /// Whether the file ends within it.
    pub(super) fn is_open(&self) -> bool {
        self.open
    }

    /// That it is no longer than lines may be.
    pub(super) fn check_length(&self) -> Result<(), Problem> {
        if self.long {
            let what = format!("the line is longer than {LONGEST} bytes; expected its end");
            return Err(self.at(LONGEST + 1, what));
        }
        Ok(())
    }

    /// A problem with what stands at a column.
    pub(super) fn unexpected(&self, column: usize, expected: &str, found: &[u8]) -> Problem {
        let what = match found {
            [] => format!("nothing here; expected {expected}"),
            found => format!("found {}; expected {expected}", show(found)),
        };
        self.at(column, what)
    }

    /// A problem at a column.
    pub(super) fn at(&self, column: usize, what: String) -> Problem {
        Problem::At {
            line: self.line,
            column,
            what,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    /// Those that are empty count like others: a file of nothing else would never end.
    #[test]
    fn so_many_rows_are_read_and_no_more() {
        let read = |text: &str| {
            let mut from = text.as_bytes();
            let mut lines = Lines {
                most: 4,
                ..Lines::new(&mut from, None)
            };
            let mut rows = 0;
            while lines.next()?.is_some() {
                rows += 1;
            }
            Ok::<_, Problem>(rows)
        };
        let more = "line 5, column 1: more than 3 rows, empty ones among them; expected the end of the file";
        for text in ["a\nb\nc\nd", "a\nb\nc\nd\n"] {
            assert_eq!(read(text).unwrap(), 4);
        }
        assert_eq!(read("a\nb\n\n\n").unwrap(), 2);
        for text in ["a\nb\nc\nd\ne", "a\nb\n\n\n\n", "\n\n\n\n\n\n"] {
            assert_eq!(read(text).unwrap_err().to_string(), more, "{text:?}");
        }
    }

    /// It may have more once more of it was read.
    #[test]
    fn a_compressed_file_has_as_many_rows_as_its_size_allows() {
        let packed = Cell::new(100);
        let mut from = "a\nb\nc".as_bytes();
        let mut lines = Lines {
            line: most_rows(100),
            ..Lines::new(&mut from, Some(&packed))
        };
        assert!(lines.next().unwrap().is_some());
        let said = lines.next().unwrap_err().to_string();
        let most = "has more than 4,195,104 rows once unpacked, too many for the 100 bytes of it that were read";
        assert!(said.starts_with(most), "{said}");
        packed.set(101);
        assert!(lines.next().unwrap().is_some());
    }
}
