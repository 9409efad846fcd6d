//! Our own format: `a,ID,BYTES,STREAM` and `f,ID`.

use super::builder::Builder;
use super::error::Problem;
use super::lines::Row;

pub(super) const HEADER: &[u8] = b"op,id,bytes,stream";

pub(super) fn row(builder: &mut Builder, row: &mut Row<'_>) -> Result<(), Problem> {
    let op = row.field("a or f")?;
    match op.text {
        b"a" => {
            let (id, id_at) = row.number("the id of a block")?;
            let (bytes, bytes_at) = row.number("a size in bytes")?;
            let (stream, stream_at) = row.number("the number of a stream")?;
            row.end()?;
            let done = builder.alloc(id, bytes, stream);
            done.map_err(|wrong| wrong.at(row, [id_at, bytes_at, stream_at], &format!("id {id}")))
        }
        b"f" => {
            let (id, at) = row.number("the id of a block")?;
            row.end()?;
            builder
                .free(id)
                .map_err(|wrong| wrong.at(row, [at; 3], &format!("id {id}")))
        }
        other => Err(row.unexpected(op.column, "a or f", other)),
    }
}
