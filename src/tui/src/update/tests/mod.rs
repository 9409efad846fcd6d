#![allow(clippy::unwrap_used, clippy::panic)]

mod demo;
mod join;
mod keys;
mod list;
mod map;
mod sample;
