//! The log of RMM's `logging_resource_adaptor`, as RMM 0.15 to 26 write it: `%t,%H:%M:%S.%f,ACTION,%p,%zu,STREAM` with a hexadecimal
//! stream handle. Up to 0.16 the stream was a decimal number; read as hexadecimal it still tells streams apart. Before 0.15 the
//! log had other columns (`Event Type,Device ID,Address,Stream,Size (bytes),...`). Columns are found by their names.
//!
//! A log may begin after its program. A block that is freed first is assumed to be live when the log began, with the size and
//! stream of its free. Addresses identify blocks, so they repeat. The stream of a free is otherwise ignored. RMM's guide once
//! called a free `deallocate`; both are read. A free of 0 bytes has an unknown size, which old versions did not log.
//!
//! RMM logs a free after it is done. By then another thread may have got the address and logged its allocation. The first free
//! after that is then the late free of the previous block.

use super::builder::{Builder, Wrong};
use super::error::Problem;
use super::fields::{Field, Fields};

pub(super) const HEADER: &str = "Thread,Time,Action,Pointer,Size,Stream";

const ACTIONS: &str = "allocate, free, deallocate or allocate failure";
const POINTER: &str = "an address such as 0x7f8a40000000";
const STREAM: &str = "a stream handle in hexadecimal";

/// CUDA's handles of the default stream and of the per-thread default stream (`cudaStreamLegacy`, `cudaStreamPerThread`).
const LEGACY: u64 = 1;
const PER_THREAD: u64 = 2;

/// The columns of a file.
#[derive(Clone, Debug)]
pub(super) struct Columns {
    thread: Option<usize>,
    /// Logs before 0.15 have the operations of all devices.
    device: Option<usize>,
    /// The device of the first row.
    first_device: Option<Vec<u8>>,
    action: usize,
    pointer: usize,
    size: usize,
    stream: usize,
    /// The number of columns; `None` if the last one is text that may have commas.
    all: Option<usize>,
}

enum Action {
    Allocate,
    Free,
    Failure,
}

impl Action {
    fn of(name: &[u8]) -> Option<Action> {
        let is = |other: &str| name.eq_ignore_ascii_case(other.as_bytes());
        match () {
            () if is("allocate") || is("alloc") => Some(Action::Allocate),
            () if is("free") || is("deallocate") => Some(Action::Free),
            () if is("allocate failure") => Some(Action::Failure),
            () => None,
        }
    }
}

impl Columns {
    pub(super) fn of(header: &Fields<'_>) -> Option<Columns> {
        let location = header.find(&["Location"]);
        Some(Columns {
            thread: header.find(&["Thread"]),
            device: header.find(&["Device ID"]),
            first_device: None,
            action: header.find(&["Action", "Event Type"])?,
            pointer: header.find(&["Pointer", "Address"])?,
            size: header.find(&["Size", "Size (bytes)"])?,
            stream: header.find(&["Stream"])?,
            all: location.is_none().then_some(header.count()),
        })
    }

    /// Returns the usual columns if the first line is a row, because the log's beginning with its header is missing.
    pub(super) fn of_row(row: &Fields<'_>) -> Option<Columns> {
        let columns = Columns {
            thread: Some(0),
            device: None,
            first_device: None,
            action: 2,
            pointer: 3,
            size: 4,
            stream: 5,
            all: Some(6),
        };
        let is_row = row.count() == 6
            && Action::of(row.get(2)?.text).is_some()
            && pointer(row, &row.get(3)?).is_ok()
            && row.number(4, "").is_ok();
        is_row.then_some(columns)
    }

    /// Reads a row. Returns the problem of a row that is replayed in spite of it.
    pub(super) fn row(&mut self, builder: &mut Builder, fields: &Fields<'_>) -> Result<Option<Problem>, Problem> {
        let row = fields.row();
        let action = fields.field(self.action, ACTIONS)?;
        let Some(kind) = Action::of(action.text) else {
            return Err(row.unexpected(action.column, ACTIONS, action.text));
        };
        let address = fields.field(self.pointer, POINTER)?;
        if matches!(kind, Action::Failure) {
            builder.recorded_failure();
            return Ok(None);
        }
        let id = pointer(fields, &address)?;
        let (bytes, bytes_at) = fields.number(self.size, "a size in bytes")?;
        let stream = fields.field(self.stream, STREAM)?;
        if let Some(all) = self.all {
            fields.end(all)?;
        }
        let stream_at = stream.column;
        let stream = self.stream(fields, &stream)?;
        self.check_device(fields)?;
        let at = |wrong: Wrong| {
            wrong.at(
                row,
                [address.column, bytes_at, stream_at],
                &format!("the block at 0x{id:x}"),
            )
        };
        match kind {
            // All blocks of 0 bytes may have the same address, so none of them is kept.
            Action::Allocate if bytes == 0 => {
                builder.zero_sized();
                Ok(None)
            }
            // Only blocks of 0 bytes may have a null pointer.
            _ if id == 0 && bytes > 0 => Err(row.unexpected(address.column, POINTER, address.text)),
            Action::Allocate => builder.alloc_again(id, bytes, stream).map(|()| None).map_err(at),
            _ => builder.free_sized(id, bytes, stream).map(|odd| odd.map(at)).map_err(at),
        }
    }

    /// Returns a stream's number: its handle, or a number made of the thread for a per-thread stream.
    fn stream(&self, fields: &Fields<'_>, field: &Field<'_>) -> Result<u64, Problem> {
        let handle = fields.hexadecimal(field, STREAM).or_else(|error| {
            let name = field.text.to_ascii_lowercase();
            match name.strip_prefix(b"cuda_stream_").unwrap_or(&name) {
                b"(nil)" | b"default" | b"legacy" => Ok(0),
                b"per_thread" | b"per-thread" => Ok(PER_THREAD),
                _ => Err(error),
            }
        })?;
        match handle {
            LEGACY => Ok(0),
            PER_THREAD => {
                let thread = self.thread.and_then(|column| fields.number(column, "").ok());
                Ok(of_thread(thread.map_or(0, |(thread, _)| thread)))
            }
            handle => Ok(handle),
        }
    }

    /// Checks that the row is of the first row's device, because only one device is replayed.
    fn check_device(&mut self, fields: &Fields<'_>) -> Result<(), Problem> {
        let Some(field) = self.device.and_then(|column| fields.get(column)) else {
            return Ok(());
        };
        let first = self.first_device.get_or_insert_with(|| field.text.to_vec());
        if field.text != &first[..] {
            let expected = "the device of the first row, the only one that is replayed";
            return Err(fields.row().unexpected(field.column, expected, field.text));
        }
        Ok(())
    }
}

/// Returns the number of a thread's default stream. Handles are addresses or small numbers, so none has the highest bit.
fn of_thread(thread: u64) -> u64 {
    1 << 63 | thread << 2 | PER_THREAD
}

fn pointer(fields: &Fields<'_>, field: &Field<'_>) -> Result<u64, Problem> {
    match field.text {
        b"(nil)" => Ok(0),
        _ => fields.hexadecimal(field, POINTER),
    }
}
