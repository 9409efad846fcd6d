//! Publishes what PyTorch's own allocator says of itself.
//!
//! A PyTorch process starts this as a process of its own (`gpumem-tui publisher`) and writes to its stdin what `torch` says:
//! `torch.cuda.memory_stats()` once a second, and `torch.cuda.memory_snapshot()` while somebody looks at the block map. This process
//! holds the [channel](gpumem_channel). So nothing native runs in the PyTorch process, and whatever goes wrong here leaves that
//! alone.
//!
//! # The messages
//! Each is a line of JSON with a `type` ([`Message`]); `map` is followed by as many bytes as it says, a pickle. On stdout this
//! process says whether somebody wants the block map ([`Answer`]), and why it cannot publish, if it cannot.
//!
//! # The life of the channel
//! The channel is about the PyTorch process, and this process is its life sign: it ends when its input ends, and when the PyTorch
//! process is gone. An input that ends without `bye` is that of a program that was killed: its channel is a black box.
//!
//! Whatever comes in is bounded, and taken as data: pickles are read by [`gpumem_snapshot`], which runs nothing.

mod history;
mod input;
mod line;
mod map;
mod message;
mod outside;
mod parent;
mod publish;
mod run;
mod slots;
mod stats;
mod tags;

pub use message::{Answer, Message};
pub use run::{Attached, Measure, run};
