//! While one thread is in a driver call that takes long, others allocate and free: no such call is made under the heap's lock.
#![allow(clippy::unwrap_used, clippy::panic)]

mod bench;
#[path = "../common/mod.rs"]
mod common;
mod operations;
mod requests;
