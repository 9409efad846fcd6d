//! Our own format: `a,ID,BYTES,STREAM` and `f,ID`.

use super::builder::Builder;
use super::error::Problem;
use super::fields::Fields;

pub(super) const HEADER: &str = "op,id,bytes,stream";

/// The columns of a file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Columns {
    op: usize,
    id: usize,
    bytes: usize,
    stream: usize,
    all: usize,
}

impl Columns {
    pub(super) fn of(header: &Fields<'_>) -> Option<Columns> {
        Some(Columns {
            op: header.find(&["op"])?,
            id: header.find(&["id"])?,
            bytes: header.find(&["bytes"])?,
            stream: header.find(&["stream"])?,
            all: header.count(),
        })
    }

    pub(super) fn row(&self, builder: &mut Builder, fields: &Fields<'_>) -> Result<(), Problem> {
        let op = fields.field(self.op, "a or f")?;
        match op.text {
            b"a" => {
                let (id, id_at) = fields.number(self.id, "the id of a block")?;
                let (bytes, bytes_at) = fields.number(self.bytes, "a size in bytes")?;
                let (stream, stream_at) = fields.number(self.stream, "the number of a stream")?;
                fields.end(self.all)?;
                let done = builder.alloc(id, bytes, stream);
                done.map_err(|wrong| wrong.at(fields.row(), [id_at, bytes_at, stream_at], &format!("id {id}")))
            }
            b"f" => {
                let (id, at) = fields.number(self.id, "the id of a block")?;
                fields.empty(self.bytes)?;
                fields.empty(self.stream)?;
                fields.end(self.all)?;
                let done = builder.free(id);
                done.map_err(|wrong| wrong.at(fields.row(), [at; 3], &format!("id {id}")))
            }
            other => Err(fields.row().unexpected(op.column, "a or f", other)),
        }
    }
}
