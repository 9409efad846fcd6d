//! The program under load. Apart from the other tests, which would be slowed down: these take all of a machine's cores, and a thousand
//! open files.
#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

mod campaign;
mod crowd;
