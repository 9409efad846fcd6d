//! The dashboard: model, update and view, with the sources that feed it and the commands around it.
//!
//! Data flows one way: a source samples on its own thread, the main loop turns samples and keys into events,
//! `update` changes the `model`, and `view` draws it. The view never changes the model, the model knows
//! neither clock nor terminal, and a source never sees a view.

mod app;
mod attach;
mod check;
mod cli;
mod clock;
mod config;
mod demo;
mod doctor;
mod event;
mod input;
mod library;
mod model;
mod notify;
mod python;
mod report;
pub mod run;
mod run_command;
mod source;
mod terminal;
mod triage;
mod update;
mod view;
mod watch;
mod words;
mod wrap;
