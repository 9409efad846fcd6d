//! PyTorch's GPU memory snapshots (`torch.cuda.memory._snapshot()`), read and written.
//!
//! - [`Snapshot`] is the data: segments with their blocks, the traces of events, the allocator's settings. Field names
//!   are PyTorch's. Call stacks, frames and texts are stored once, in its [`Tables`].
//! - [`Snapshot::read`] reads pickles of protocol 2 to 5 and JSON, plain or gzipped. **No code of a pickle is ever
//!   run**: an opcode that would import or call something is an error that names it; `OrderedDict` and `defaultdict`
//!   are read as plain dicts. Memory is bounded by [`Limits`], whatever the file claims.
//! - [`Snapshot::from_damaged`] reads what it can of a file that is truncated or has malformed entries, and reports
//!   what is missing.
//! - [`Snapshot::write_pickle`] and [`Snapshot::write_json`] write formats that PyTorch's web viewer and `python -m
//!   torch.cuda._memory_viz` read.
//! - [`Snapshot::check`] reports inconsistencies. [`Snapshot::requests`] returns the requests that the program made to
//!   its allocator.
//!
//! ```no_run
//! use gpumem_snapshot::{RequestKind, Snapshot};
//!
//! let snapshot = Snapshot::read("snapshot.pickle".as_ref())?;
//! for problem in snapshot.check() {
//!     eprintln!("{problem}");
//! }
//! let asked = snapshot.requests(0).filter(|request| request.kind == RequestKind::Alloc);
//! println!("{} bytes asked for", asked.map(|request| request.size).sum::<u64>());
//! snapshot.write_json(std::fs::File::create("snapshot.json")?)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Texts are untrusted and kept as they are: clean them before they reach a terminal.

#![forbid(unsafe_code)]

mod check;
mod ids;
mod names;
mod read;
mod requests;
mod tables;
mod types;
mod write;

pub use check::Problem;
pub use ids::{FrameId, StackId, TextId, ValueId};
pub use read::{Bound, Damage, Limits, Opcode, PickleError, ReadError};
pub use requests::{Request, RequestKind, Requests};
pub use tables::{Frame, Tables, Value};
pub use types::{Action, Annotation, Block, BlockState, Segment, SegmentType, Snapshot, TraceEntry};
pub use write::WriteError;
