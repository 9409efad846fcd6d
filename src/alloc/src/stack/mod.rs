//! Call stacks: captured as addresses, or as frames that an interpreter names, kept once by content, given names only when somebody looks.

mod demangle;
mod kept;
mod named;
mod symbols;
mod table;
mod unwind;

pub use kept::Kept;
pub(crate) use kept::kept_or_captured;
pub use named::StackSource;
pub use symbols::StackFrame;
pub(crate) use symbols::Symbols;
pub use table::Stack;
pub(crate) use table::kept;
pub(crate) use unwind::{capture, unwind};
