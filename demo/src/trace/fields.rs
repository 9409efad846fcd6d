//! The fields of a line: CSV as programs write it, and as pandas and spreadsheets rewrite it.

use super::error::Problem;
use super::lines::Row;
use super::show;

/// The most fields of a line that are read. The widest format has 12, and a table may add some.
const MOST: usize = 16;
/// The separators of fields.
pub(super) const SEPARATORS: [u8; 3] = [b',', b';', b'\t'];

/// A field, without the blanks and quotes around it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Field<'a> {
    pub(super) text: &'a [u8],
    /// The position of its first byte in the line, from 1.
    pub(super) column: usize,
}

/// The fields of one line.
pub(super) struct Fields<'a> {
    row: Row<'a>,
    fields: [Field<'a>; MOST],
    count: usize,
}

impl<'a> Fields<'a> {
    pub(super) fn of(row: Row<'a>, separator: u8) -> Fields<'a> {
        let mut fields = Fields {
            row,
            fields: [Field::default(); MOST],
            count: 0,
        };
        let (text, mut at) = (row.text(), 0);
        while fields.count < MOST
            && let Some(rest) = text.get(at..)
        {
            let (field, length) = field(rest, at, separator);
            fields.fields[fields.count] = field;
            fields.count += 1;
            at += length + 1;
        }
        fields
    }

    pub(super) fn row(&self) -> &Row<'a> {
        &self.row
    }

    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Returns the column of a header with one of these names, ignoring case.
    pub(super) fn find(&self, names: &[&str]) -> Option<usize> {
        let is = |field: &Field<'_>| {
            names
                .iter()
                .any(|name| field.text.eq_ignore_ascii_case(name.as_bytes()))
        };
        self.fields[..self.count].iter().position(is)
    }

    /// Returns the field in a column, if the line has that column.
    pub(super) fn get(&self, column: usize) -> Option<Field<'a>> {
        self.fields[..self.count].get(column).copied()
    }

    /// Returns the field in a column, or the problem that the line ends before it.
    pub(super) fn field(&self, column: usize, expected: &str) -> Result<Field<'a>, Problem> {
        let ends = || {
            self.row
                .at(self.row.text().len() + 1, format!("the line ends; expected {expected}"))
        };
        self.get(column).ok_or_else(ends)
    }

    /// Parses a field as a decimal number of 64 bits. pandas writes the numbers of a column with gaps as `512.0`.
    pub(super) fn number(&self, column: usize, expected: &str) -> Result<(u64, usize), Problem> {
        let field = self.field(column, expected)?;
        let wrong = || self.row.unexpected(field.column, expected, field.text);
        let mut bytes = field.text.iter();
        let (mut number, mut digits) = (0u64, 0);
        for byte in bytes.by_ref() {
            let digit = byte.wrapping_sub(b'0');
            if digit > 9 {
                let is_whole = *byte == b'.' && digits > 0 && bytes.all(|byte| *byte == b'0');
                return if is_whole {
                    Ok((number, field.column))
                } else {
                    Err(wrong())
                };
            }
            let next = number.checked_mul(10).and_then(|n| n.checked_add(u64::from(digit)));
            number = next.ok_or_else(|| self.too_large(&field, expected))?;
            digits += 1;
        }
        if digits == 0 {
            return Err(wrong());
        }
        Ok((number, field.column))
    }

    /// Parses a hexadecimal number with or without `0x`.
    pub(super) fn hexadecimal(&self, field: &Field<'_>, expected: &str) -> Result<u64, Problem> {
        let digits = field.text.strip_prefix(b"0x").unwrap_or(field.text);
        let wrong = || self.row.unexpected(field.column, expected, field.text);
        if digits.is_empty() {
            return Err(wrong());
        }
        let mut number = 0u64;
        for byte in digits {
            let digit = char::from(*byte).to_digit(16).ok_or_else(wrong)?;
            if number >> 60 != 0 {
                return Err(self.too_large(field, expected));
            }
            number = number << 4 | u64::from(digit);
        }
        Ok(number)
    }

    /// Checks that a field is empty or missing.
    pub(super) fn empty(&self, column: usize) -> Result<(), Problem> {
        match self.get(column) {
            Some(field) if !field.text.is_empty() => {
                Err(self.row.unexpected(field.column, "the end of the line", field.text))
            }
            _ => Ok(()),
        }
    }

    /// Checks that only empty fields follow the first `columns`.
    pub(super) fn end(&self, columns: usize) -> Result<(), Problem> {
        (columns..self.count).try_for_each(|column| self.empty(column))
    }

    /// Returns the problem that a number does not fit into 64 bits.
    fn too_large(&self, field: &Field<'_>, expected: &str) -> Problem {
        self.row.at(
            field.column,
            format!("{} does not fit into 64 bits; expected {expected}", show(field.text)),
        )
    }
}

/// Returns the first field of `text`, which begins at byte `at` of the line, and the number of bytes up to its end.
fn field(text: &[u8], at: usize, separator: u8) -> (Field<'_>, usize) {
    let is_blank = |byte: &u8| *byte == b' ' || *byte == b'\t' && separator != b'\t';
    let end = text.iter().position(|byte| *byte == separator).unwrap_or(text.len());
    // Fast path for nearly all fields.
    if let (Some(first), Some(last)) = (text[..end].first(), text[..end].last())
        && !is_blank(first)
        && !is_blank(last)
        && *first != b'"'
    {
        let field = Field {
            text: &text[..end],
            column: at + 1,
        };
        return (field, end);
    }
    let begin = text.iter().position(|byte| !is_blank(byte)).unwrap_or(text.len());
    let quoted = text[begin..].strip_prefix(b"\"");
    let close = quoted.and_then(|text| text.iter().position(|byte| *byte == b'"'));
    let (from, to) = match close {
        Some(length) => (begin + 1, begin + 1 + length),
        None => (begin, begin),
    };
    let end = text[to..].iter().position(|byte| *byte == separator);
    let end = end.map_or(text.len(), |length| to + length);
    let mut content = match close {
        Some(_) => &text[from..to],
        None => &text[from.min(end)..end],
    };
    if close.is_none() {
        while let [rest @ .., last] = content
            && is_blank(last)
        {
            content = rest;
        }
    }
    let field = Field {
        text: content,
        column: at + from.min(end) + 1,
    };
    (field, end)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::trace::lines::Lines;

    fn fields(line: &str, separator: u8) -> Vec<(String, usize)> {
        let mut from = line.as_bytes();
        let mut lines = Lines::new(&mut from, None);
        let fields = Fields::of(lines.next().unwrap().unwrap(), separator);
        let text = |field: &Field<'_>| (String::from_utf8_lossy(field.text).into_owned(), field.column);
        fields.fields[..fields.count].iter().map(text).collect()
    }

    #[test]
    fn blanks_and_quotes_are_not_part_of_a_field() {
        for (line, separator, expected) in [
            ("a,bc,,d", b',', &[("a", 1), ("bc", 3), ("", 6), ("d", 7)][..]),
            (" a , b\t,c ", b',', &[("a", 2), ("b", 6), ("c", 9)]),
            ("\"a\", \"b,c\" ,\"\"", b',', &[("a", 2), ("b,c", 7), ("", 14)]),
            ("a;b,c", b';', &[("a", 1), ("b,c", 3)]),
            ("a\t\tb", b'\t', &[("a", 1), ("", 3), ("b", 4)]),
            // Unclosed quotes are part of the text.
            ("\"a,b", b',', &[("\"a", 1), ("b", 4)]),
            ("a,", b',', &[("a", 1), ("", 3)]),
            ("  ", b',', &[("", 3)]),
        ] {
            let expected: Vec<_> = expected.iter().map(|(text, at)| ((*text).to_owned(), *at)).collect();
            assert_eq!(fields(line, separator), expected, "{line:?}");
        }
        assert_eq!(fields(&"x,".repeat(100), b',').len(), MOST);
    }
}
