//! The log of RMM's `logging_resource_adaptor`, as RMM 0.15 to 26 write it: `%t,%H:%M:%S.%f,ACTION,%p,%zu,STREAM` with a hexadecimal
//! stream handle. Up to 0.16 that was a decimal number: read as this it tells streams apart as well.
//!
//! A log may begin when its program had begun before: what is freed first is taken for live when it began, of the size and on the stream of its
//! free. Addresses name blocks, so they come again. A stream that frees another stream's block is not kept. RMM's guide once called a free
//! `deallocate`; both are read.

use super::builder::Builder;
use super::error::Problem;
use super::lines::{Field, Row};

pub(super) const HEADER: &[u8] = b"Thread,Time,Action,Pointer,Size,Stream";

const ACTIONS: &str = "allocate, free, deallocate or allocate failure";
const POINTER: &str = "an address such as 0x7f8a40000000";
const STREAM: &str = "a stream handle in hexadecimal";

pub(super) fn row(builder: &mut Builder, row: &mut Row<'_>) -> Result<(), Problem> {
    row.field("a thread")?;
    row.field("a time")?;
    let action = row.field(ACTIONS)?;
    if !matches!(action.text, b"allocate" | b"free" | b"deallocate" | b"allocate failure") {
        return Err(row.unexpected(action.column, ACTIONS, action.text));
    }
    let pointer = row.field(POINTER)?;
    let id = match pointer.text {
        b"(nil)" => 0,
        _ => hexadecimal(row, &pointer, POINTER)?,
    };
    let (bytes, bytes_at) = row.number("a size in bytes")?;
    let stream = row.field(STREAM)?;
    row.end()?;
    let stream_at = stream.column;
    let stream = hexadecimal(row, &stream, STREAM)?;
    let at = [pointer.column, bytes_at, stream_at];
    let name = || format!("the block at 0x{id:x}");
    match action.text {
        b"allocate failure" => {
            builder.recorded_failure();
            Ok(())
        }
        // Every block of 0 bytes may have the same address: none of them is kept.
        b"allocate" if bytes == 0 => {
            builder.zero_sized();
            Ok(())
        }
        // That of no block, unless it has no bytes.
        _ if id == 0 && bytes > 0 => Err(row.unexpected(pointer.column, POINTER, pointer.text)),
        b"allocate" => builder
            .alloc(id, bytes, stream)
            .map_err(|wrong| wrong.at(row, at, &name())),
        _ => builder
            .free_sized(id, bytes, stream)
            .map_err(|wrong| wrong.at(row, at, &name())),
    }
}

/// A hexadecimal number with or without `0x`.
fn hexadecimal(row: &Row<'_>, field: &Field<'_>, expected: &str) -> Result<u64, Problem> {
    let digits = field.text.strip_prefix(b"0x").unwrap_or(field.text);
    if digits.is_empty() {
        return Err(row.unexpected(field.column, expected, field.text));
    }
    let mut number = 0u64;
    for byte in digits {
        let digit = match byte {
            b'0'..=b'9' => byte - b'0',
            b'a'..=b'f' => byte - b'a' + 10,
            b'A'..=b'F' => byte - b'A' + 10,
            _ => return Err(row.unexpected(field.column, expected, field.text)),
        };
        if number >> 60 != 0 {
            return Err(row.too_large(field, expected));
        }
        number = number << 4 | u64::from(digit);
    }
    Ok(number)
}
