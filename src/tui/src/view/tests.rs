#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod fixture;
mod gallery;
mod rules;
mod screens;
