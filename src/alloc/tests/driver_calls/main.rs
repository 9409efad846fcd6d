//! While one thread is in a driver call, others allocate and free: none is made under the heap's lock.
#![allow(clippy::unwrap_used, clippy::panic)]

mod asking;
mod bench;
#[path = "../common/mod.rs"]
mod common;
mod operations;
mod requests;
