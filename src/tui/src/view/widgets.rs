//! Widgets that ratatui does not have. Each draws only inside its area, whatever its size; an area may be empty.
//!
//! Colours and glyphs come from the [`Theme`](super::theme::Theme) in each widget's `theme` field.

mod apportion;
mod axis;
mod bar;
mod block_map;
mod event_strip;
mod graph;
mod histogram;
mod history_graph;
mod legend;
mod phase_strip;
mod plain_bars;
mod residency_map;
mod spark;
#[cfg(test)]
pub(super) mod tests;

pub(super) use axis::ceiling;
pub(super) use bar::{MemoryBar, Meter, Part, swatch};
pub(super) use block_map::{BlockMapState, BlockMapWidget, LOOKS, LookCounts, ink_of, sign};
pub(super) use event_strip::{EventStrip, FailureLines, mark_look};
pub(super) use graph::{StackedGraph, at_times, shade};
pub(super) use histogram::SizeHistogram;
pub(super) use history_graph::{HistoryGraph, SECONDS, used_shares};
pub(super) use legend::{Entry, Legend, Says};
pub(super) use phase_strip::{PhaseBand, PhaseStrip, phase_look};
pub(super) use plain_bars::{PlainBar, PlainColumns};
pub(super) use residency_map::{PLACES, ResidencyMap, ResidencyState, place_sign};
pub(super) use spark::Spark;
