//! Tests of the real program, in a pseudo-terminal and in pipes, with fake drivers and real channels.
#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

mod allocator;
mod attach;
mod bench;
mod claims;
mod cli;
mod config;
mod containers;
mod cuda;
mod demo;
mod doctor;
mod driver;
mod files;
mod filters;
mod foreign_text;
mod gpu;
mod hierarchy;
mod input;
mod manual;
mod many;
mod namesake;
mod nogpu;
mod path;
mod places;
mod pools;
mod python;
mod replay;
mod reports;
mod several;
mod signals;
mod sizes;
mod stalled;
mod torch;
mod triage;
mod unified;
mod watch;
