#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod demo;
pub(super) mod fixture;
mod gallery;
mod labels;
mod legends;
mod messages;
mod names;
mod ranks;
mod rules;
mod screens;
