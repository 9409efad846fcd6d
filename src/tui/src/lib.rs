//! The dashboard: model, update and view, with the sources that feed it and the commands around it.
//!
//! Data flows one way: a source samples on its own thread, the main loop turns samples and keys into events,
//! [`update`] changes the [`model`], and [`view`] draws it. The view never changes the model, the model knows
//! neither clock nor terminal, and a source never sees a view.

pub mod app;
pub mod check;
pub mod cli;
pub mod clock;
pub mod demo;
pub mod doctor;
pub mod event;
pub mod input;
pub mod model;
pub mod report;
pub mod run;
pub mod source;
pub mod terminal;
pub mod update;
pub mod view;
pub mod words;
pub mod wrap;
