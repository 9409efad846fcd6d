//! What this library must not do to the process that it lives in: have it ended for a line or a file that nobody takes, or leave a thread
//! that is ended in the middle.

mod cancel;
mod origin;
mod raise;
mod say;
mod started;
mod trouble;

pub use cancel::Uncancelled;
pub(crate) use cancel::sleep;
pub use origin::Origin;
pub(crate) use raise::Unraised;
pub use raise::Unsignalled;
pub use say::say;
pub(crate) use started::started_by_another;
pub(crate) use trouble::tell_trouble;
pub use trouble::tell_trouble_to;
