//! The tests of the crate, one module for each idea.
#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

#[path = "../common/mod.rs"]
mod common;

mod advice;
mod behind;
mod candle;
mod channel;
mod cuda;
mod driver_calls;
mod ended_streams;
mod everything;
mod first_forked;
mod free_memory;
mod giving_way;
mod heeded;
mod history;
mod history_forked;
mod host_memory;
mod late;
mod managed;
mod monitor_says;
mod named_frames;
mod named_frames_locks;
mod out_of_memory;
mod overflowing;
mod placement;
mod pool_ends;
mod pool_names;
mod pools;
mod public_types;
mod room_for_others;
mod sandbox;
mod shown;
mod size_classes;
mod snapshot_file;
mod snapshot_on_oom;
mod snapshot_told;
mod streams;
mod surface;
mod thread_streams;
mod threads;
mod untold_streams;
mod viewer;
mod waiting;
