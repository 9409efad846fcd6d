//! Lines of a file and the fields in them, with their places.

use std::cell::Cell;
use std::io::{ErrorKind, Read};

use gpumem_text::units::count;

use super::builder::MOST_OPERATIONS;
use super::error::Problem;
use super::packed::most_rows;
use super::{headers, show};

/// Longest line: many times what any format needs, so that a file without line ends takes no memory.
const LONGEST: usize = 4096;
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
    /// An empty line, which only the end of the file may follow.
    blank: Option<u64>,
    ended: bool,
    /// The newest line has no end of its own: the file ends within it.
    open: bool,
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
            blank: None,
            ended: false,
            open: false,
        }
    }

    /// The next line that is not empty, without its end (`\n` or `\r\n`). Of a first line that is too long there is the beginning.
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
            if from == to {
                self.blank = self.blank.or(Some(self.line));
            } else {
                break (from, to);
            }
        };
        match self.blank {
            Some(line) => Err(Problem::At {
                line,
                column: 1,
                what: match line {
                    1 => format!("an empty line; expected {}", headers()),
                    _ => "an empty line; expected an operation".to_owned(),
                },
            }),
            None => Ok(Some(Row {
                line: self.line,
                text: &self.bytes[from..to],
                at: 0,
                open: self.open,
            })),
        }
    }

    /// That there are no more rows than may be, of a compressed file by what was read of it.
    fn check_rows(&self) -> Result<(), Problem> {
        if self.line > self.most {
            let rows = count(self.most - 1);
            return Err(Problem::At {
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
                return Err(Problem::At {
                    line: self.line + 1,
                    column: LONGEST + 1,
                    what: format!("the line is longer than {LONGEST} bytes; expected its end"),
                });
            }
            if found.is_none() && !self.ended {
                searched = self.refill()?;
                continue;
            }
            if found.is_none() && from == to {
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

/// One line, and how far it was read.
#[derive(Debug)]
pub(super) struct Row<'a> {
    line: u64,
    text: &'a [u8],
    /// Where the next field begins; one past the end when there is none.
    at: usize,
    /// The file ends within it.
    open: bool,
}

/// A field of a line.
#[derive(Clone, Copy, Debug)]
pub(super) struct Field<'a> {
    pub(super) text: &'a [u8],
    /// Its first byte, from 1.
    pub(super) column: usize,
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

    /// The next field, up to a comma or the end of the line.
    pub(super) fn field(&mut self, expected: &str) -> Result<Field<'a>, Problem> {
        let column = self.at + 1;
        let Some(rest) = self.text.get(self.at..) else {
            return Err(self.at(self.text.len() + 1, format!("the line ends; expected {expected}")));
        };
        let text = match rest.iter().position(|byte| *byte == b',') {
            Some(comma) => &rest[..comma],
            None => rest,
        };
        self.at += text.len() + 1;
        Ok(Field { text, column })
    }

    /// A field that is a decimal number of 64 bits.
    pub(super) fn number(&mut self, expected: &str) -> Result<(u64, usize), Problem> {
        let field = self.field(expected)?;
        let mut number = 0u64;
        for byte in field.text {
            let digit = byte.wrapping_sub(b'0');
            if digit > 9 {
                return Err(self.unexpected(field.column, expected, field.text));
            }
            let next = number.checked_mul(10).and_then(|n| n.checked_add(u64::from(digit)));
            number = next.ok_or_else(|| self.too_large(&field, expected))?;
        }
        if field.text.is_empty() {
            return Err(self.unexpected(field.column, expected, field.text));
        }
        Ok((number, field.column))
    }

    /// That a field is a number, but not one of 64 bits.
    pub(super) fn too_large(&self, field: &Field<'_>, expected: &str) -> Problem {
        self.at(
            field.column,
            format!("{} does not fit into 64 bits; expected {expected}", show(field.text)),
        )
    }

    /// Checks that no field follows; empty ones are none.
    pub(super) fn end(&mut self) -> Result<(), Problem> {
        let rest = self.text.get(self.at..).unwrap_or_default();
        match rest.iter().position(|byte| *byte != b',') {
            Some(at) => Err(self.unexpected(self.at + at + 1, "the end of the line", &rest[at..])),
            None => Ok(()),
        }
    }

    /// A problem with what stands at a column.
    pub(super) fn unexpected(&self, column: usize, expected: &str, found: &[u8]) -> Problem {
        let what = match found {
            [] => format!("nothing here; expected {expected}"),
            found => format!("found {}; expected {expected}", show(found)),
        };
        self.at(column, what)
    }

    /// A problem at a column. Programs that are killed leave a part of their last line; what is wrong with a first one makes it no trace.
    pub(super) fn at(&self, column: usize, what: String) -> Problem {
        let cut = match self.open && self.line > 1 {
            true => "; the file ends within this line: if it was cut off, take the line out",
            false => "",
        };
        Problem::At {
            line: self.line,
            column,
            what: what + cut,
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
