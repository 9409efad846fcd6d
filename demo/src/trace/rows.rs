//! The formats made of lines: header, rows and invalid rows.

use std::cell::Cell;
use std::io::Read;

use super::builder::Builder;
use super::error::Problem;
use super::fields::{Fields, SEPARATORS};
use super::lines::{Lines, MARK, Row};
use super::odd::Odd;
use super::{Format, Trace, csv, headers, rmm};

/// The most lines before the header of a log that is mixed with other output.
const MOST_BEFORE: u64 = 1000;

/// Reads such a file. `packed` is the number of bytes read so far of a compressed one.
pub(super) fn rows(from: &mut dyn Read, packed: Option<&Cell<u64>>) -> Result<Trace, Problem> {
    let mut lines = Lines::new(from, packed);
    let mut reading = Reading::begin(&mut lines)?;
    while let Some(row) = lines.next()? {
        reading.row(&row)?;
    }
    if let Some(line) = lines.cut_after() {
        reading.odd.cut = Some(format!("the compressed data ends early, after line {line}"));
    }
    reading.finish()
}

/// The layout of a file's rows.
enum Layout {
    Ours(csv::Columns),
    Rmm(rmm::Columns),
}

/// The information of a header.
struct Header {
    layout: Layout,
    separator: u8,
    /// The line itself. Another log begins where it is repeated.
    text: Vec<u8>,
}

impl Header {
    fn of(row: Row<'_>) -> Option<Header> {
        SEPARATORS.into_iter().find_map(|separator| {
            let fields = Fields::of(row, separator);
            let ours = csv::Columns::of(&fields).map(Layout::Ours);
            Some(Header {
                layout: ours.or_else(|| rmm::Columns::of(&fields).map(Layout::Rmm))?,
                separator,
                text: row.text().to_vec(),
            })
        })
    }

    /// Returns the header of a log whose first line is a row, because its beginning is missing.
    fn of_row(row: Row<'_>) -> Option<Header> {
        Some(Header {
            layout: Layout::Rmm(rmm::Columns::of_row(&Fields::of(row, b','))?),
            separator: b',',
            text: rmm::HEADER.into(),
        })
    }

    /// Finds the header of a log that is mixed with other output, and returns it with the number of lines before it.
    fn within(lines: &mut Lines<'_>) -> Result<Option<(Header, u64)>, Problem> {
        for before in 1..MOST_BEFORE {
            let Some(row) = lines.next()? else { break };
            if let Some(header) = Header::of(row) {
                return Ok(Some((header, before)));
            }
        }
        Ok(None)
    }
}

/// The state of reading a file.
struct Reading {
    header: Header,
    builder: Builder,
    odd: Odd,
    /// Rows after the header.
    rows: u64,
    /// Lines before the header, which count as invalid.
    before: u64,
    first_odd: Option<Problem>,
    /// What is wrong with the last line, if the file ends within it.
    last: Option<Problem>,
}

impl Reading {
    fn new(header: Header) -> Reading {
        Reading {
            header,
            builder: Builder::default(),
            odd: Odd::default(),
            rows: 0,
            before: 0,
            first_odd: None,
            last: None,
        }
    }

    fn begin(lines: &mut Lines<'_>) -> Result<Reading, Problem> {
        let Some(first) = lines.next()? else {
            return Err(Problem::Empty);
        };
        if let Some(header) = Header::of(first) {
            return Ok(Reading::new(header));
        }
        if let Some(header) = Header::of_row(first) {
            let mut reading = Reading::new(header);
            reading.odd.headerless = true;
            reading.row(&first)?;
            return Ok(reading);
        }
        let problem = unknown(&first);
        let is_text = matches!(problem, Problem::At { .. });
        let Some((header, before)) = is_text.then(|| Header::within(lines)).transpose()?.flatten() else {
            return Err(problem);
        };
        let mut reading = Reading::new(header);
        reading.odd.row(&problem.to_string());
        (reading.odd.rows, reading.before) = (before, before);
        reading.first_odd = Some(problem);
        Ok(reading)
    }

    /// Reads a row, or counts it as invalid.
    fn row(&mut self, row: &Row<'_>) -> Result<(), Problem> {
        if row.text().strip_prefix(MARK).unwrap_or(row.text()) == self.header.text {
            let begun = self.builder.next_log();
            begun.map_err(|wrong| wrong.at(row, [1; 3], "the log before"))?;
            self.odd.more_logs += 1;
            return Ok(());
        }
        self.rows += 1;
        match self.parse(row) {
            Ok(None) => {}
            Ok(Some(size)) => self.odd.size(&size.to_string()),
            // A killed program leaves an incomplete last line.
            Err(problem @ Problem::At { .. }) if row.is_open() => {
                self.odd.cut = Some(format!("it ends within line {}", row.line()));
                self.last = Some(problem);
            }
            Err(problem @ Problem::At { .. }) => {
                self.odd.row(&problem.to_string());
                self.first_odd.get_or_insert(problem);
            }
            Err(problem) => return Err(problem),
        }
        Ok(())
    }

    /// Parses a row. Returns the problem of a row that is replayed in spite of it.
    fn parse(&mut self, row: &Row<'_>) -> Result<Option<Problem>, Problem> {
        row.check_length()?;
        let fields = Fields::of(*row, self.header.separator);
        match &mut self.header.layout {
            Layout::Ours(columns) => columns.row(&mut self.builder, &fields).map(|()| None),
            Layout::Rmm(columns) => columns.row(&mut self.builder, &fields),
        }
    }

    /// Returns the trace, unless too many rows are invalid.
    fn finish(self) -> Result<Trace, Problem> {
        let odd = self.odd;
        let trace = self.builder.finish(match self.header.layout {
            Layout::Ours(_) => Format::Csv,
            Layout::Rmm(_) => Format::RmmLog,
        });
        let means_nothing = trace.ops.is_empty() || (odd.rows - self.before) * 2 > self.rows;
        match self.first_odd.or(self.last) {
            Some(problem) if means_nothing && odd.rows <= 1 => Err(problem),
            Some(_) if means_nothing => Err(Problem::Odd {
                first: odd.first,
                odd: odd.rows,
                all: self.before + self.rows,
                rows: true,
            }),
            _ => Ok(Trace { odd, ..trace }),
        }
    }
}

/// Returns the problem of a file whose first line is of no known format.
fn unknown(first: &Row<'_>) -> Problem {
    let text = first.text();
    // The beginning of a line that is too long may end within a character.
    let is_text = str::from_utf8(text).map_or_else(|error| error.error_len().is_none(), |_| true);
    match is_text && !text.contains(&0) {
        true => first.unexpected(1, &headers(), text),
        false => Problem::Binary,
    }
}
