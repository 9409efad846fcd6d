//! While one thread is in a driver call that takes long, others allocate and free: no such call is made under the heap's lock.
#![allow(clippy::unwrap_used, clippy::panic)]

mod bench;
mod operations;
mod requests;
