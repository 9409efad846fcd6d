//! While one thread is in a driver call, others allocate and free: none is made under the heap's lock.

mod asking;
mod bench;
mod operations;
mod requests;
