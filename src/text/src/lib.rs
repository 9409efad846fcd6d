//! Text formatting shared by all parts of gpumem.
//!
//! - [`clean()`] and [`clean_line`] make untrusted strings safe for a terminal;
//! - [`units`] formats figures (sizes, counts, shares, durations), and parses sizes that users write;
//! - [`uuid`] reads the UUIDs of GPUs.
//!
//! Each format is defined here once. If there are two formats of a quantity, they are two functions, and their docs say
//! where each is used.
#![forbid(unsafe_code)]

mod clean;
pub mod units;
pub mod uuid;

pub use clean::{MARKS_MAX, REPLACEMENT, clean, clean_line, is_harmful};
