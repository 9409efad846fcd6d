//! The lines of a file, with their numbers.

use std::cell::Cell;
use std::io::{ErrorKind, Read};

use gpumem_text::units::count;

use super::builder::MOST_OPERATIONS;
use super::error::Problem;
use super::packed::most_rows;
use super::show;

/// The longest line in bytes, many times what any format needs. It bounds the memory for a file without line ends.
const LONGEST: usize = 4096;
/// The longest line that is skipped as invalid, such as output of a program in its log. A longer one is an error.
const LONGEST_ODD: usize = 1 << 20;
/// The byte order mark that some editors put at the start of a file.
pub(super) const MARK: &[u8] = b"\xef\xbb\xbf";
/// Bytes read at a time.
const CHUNK: usize = 1 << 17;

/// The most lines: a header, and as many rows as a trace may have operations. Rows without an operation count, because they
/// take time, too.
const MOST: u64 = MOST_OPERATIONS as u64 + 1;

/// The lines of a file.
pub(super) struct Lines<'a> {
    from: &'a mut dyn Read,
    bytes: Vec<u8>,
    /// The unread part of `bytes`.
    start: usize,
    end: usize,
    line: u64,
    /// The most lines.
    most: u64,
    /// Bytes read so far of a compressed file.
    packed: Option<&'a Cell<u64>>,
    ended: bool,
    /// The compressed data ends early, after the last returned line.
    cut: bool,
    /// The newest line has no line end: the file ends within it.
    open: bool,
    /// The newest line is longer than [`LONGEST`] and was skipped.
    long: bool,
}

impl<'a> Lines<'a> {
    /// Reads lines from `from`. `packed` is the number of bytes read so far of a compressed file.
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

    /// Returns the last complete line if the compressed data ends early.
    pub(super) fn cut_after(&self) -> Option<u64> {
        self.cut.then_some(self.line)
    }

    /// Returns the next line that is not empty, without its end (`\n` or `\r\n`). A line that is too long is returned empty, or
    /// as its beginning if it is the first ([`Row::check_length`]).
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

    /// Checks the number of rows. The limit of a compressed file depends on the bytes read of it.
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
            // The beginning of a file is enough to recognise its format.
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
            // The missing part of an incomplete line in compressed data is unknown, so it is dropped.
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

    /// Skips a line that is too long, and returns an empty range for it.
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

    /// Reads more bytes, and returns the index at which they begin.
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
            // The lines before it are complete.
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
    /// Whether the file ends within it.
    open: bool,
    long: bool,
}

impl<'a> Row<'a> {
    /// Returns its number, from 1.
    pub(super) fn line(&self) -> u64 {
        self.line
    }

    /// Returns the whole line.
    pub(super) fn text(&self) -> &'a [u8] {
        self.text
    }

    /// Returns whether the file ends within it.
    pub(super) fn is_open(&self) -> bool {
        self.open
    }

    /// Checks that it is not too long.
    pub(super) fn check_length(&self) -> Result<(), Problem> {
        if self.long {
            let what = format!("the line is longer than {LONGEST} bytes; expected its end");
            return Err(self.at(LONGEST + 1, what));
        }
        Ok(())
    }

    /// Returns the problem that something unexpected was found at a column.
    pub(super) fn unexpected(&self, column: usize, expected: &str, found: &[u8]) -> Problem {
        let what = match found {
            [] => format!("nothing here; expected {expected}"),
            found => format!("found {}; expected {expected}", show(found)),
        };
        self.at(column, what)
    }

    /// Returns a problem at a column.
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

    /// Empty lines count as well: a file of nothing else could go on forever.
    #[test]
    fn number_of_rows_is_limited() {
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

    /// The limit grows as more of the file is read.
    #[test]
    fn rows_of_a_compressed_file_are_limited_by_its_size() {
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
