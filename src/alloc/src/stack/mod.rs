//! Call stacks: captured as addresses, kept once by content, given names only when somebody looks.

mod symbols;
mod table;
mod unwind;

pub use symbols::StackFrame;
pub(crate) use symbols::Symbols;
pub use table::Stack;
pub(crate) use table::kept;
pub(crate) use unwind::capture;
