//! Text as every part of gpumem writes it.
//!
//! - [`clean`] and [`clean_line`] make strings of others fit for a terminal;
//! - [`units`] has the figures: sizes, counts, shares, durations, and the reading of sizes that people write.
//!
//! Each format is here once. Two formats of one thing are two functions, and their docs say who uses which.
#![forbid(unsafe_code)]

mod clean;
pub mod units;

pub use clean::{MARKS_MAX, REPLACEMENT, clean, clean_line, is_harmful};
