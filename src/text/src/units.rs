//! Formats figures as text, in the same way everywhere.

mod count;
mod form;
mod share;
mod size;
mod time;

pub use count::{count, count_short, decimals, entries, plural};
pub use form::Form;
pub use share::percent;
pub use size::{
    MIB, bytes, bytes_apart, bytes_at_least, bytes_at_least_to_pib, bytes_short, bytes_to_pib, parse_bytes, rate,
    round_size,
};
pub use time::{age, ago, ago_short, duration, measured, nanoseconds, span};
