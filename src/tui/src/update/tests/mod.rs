#![allow(clippy::unwrap_used, clippy::panic)]

mod attach;
mod demo;
mod findings;
mod hierarchy;
mod hints;
mod join;
mod keys;
mod list;
mod look;
mod managed;
mod map;
mod ranks;
mod row;
mod sample;
