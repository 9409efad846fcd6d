//! Decides whether a sample changed anything on the screen. Most samples of an idle machine do not, and the dashboard spends
//! most of its time drawing.

use gpumem_channel::SegmentMap;
use gpumem_text::units;
use std::sync::Arc;

use crate::model::{DeviceKey, Model, ProcessId, SourceId, View, World};

/// What is compared before and after a sample, besides the worlds.
#[derive(Debug)]
pub(super) struct Look {
    /// The right edges of the devices' graphs, which move with time.
    edges: Vec<Option<u64>>,
    /// The sources that are marked as late.
    stale: Vec<SourceId>,
    selected: (Option<ProcessId>, Option<DeviceKey>),
    rows: Vec<usize>,
    segments: Vec<Arc<SegmentMap>>,
    /// The age of the block under the cursor, as the view shows it.
    age: String,
}

impl Look {
    /// Records the model before a sample.
    pub(super) fn of(model: &Model) -> Look {
        let map = model.map.as_ref().filter(|_| shows_map(model));
        Look {
            edges: edges(model),
            stale: stale(model),
            selected: (model.ui.process, model.ui.device),
            rows: model.rows.clone(),
            segments: map.map_or_else(Vec::new, |map| map.segments.clone()),
            age: age(model),
        }
    }

    /// Checks whether the sample since then changed nothing that the open view shows. `before` is the world before it.
    pub(super) fn holds(&self, before: &World, model: &Model) -> bool {
        // The timeline's window moves with every sample.
        model.ui.view != View::Timeline
            && self.stale == stale(model)
            && self.selected == (model.ui.process, model.ui.device)
            && self.rows == model.rows
            && self.edges == edges(model)
            && self.age == age(model)
            && self.same_map(model)
            && before.looks_like(&model.live)
    }

    /// Checks whether the block map is the same. A reader returns the same `Arc` for a segment that did not change.
    fn same_map(&self, model: &Model) -> bool {
        let map = model.map.as_ref().filter(|_| shows_map(model));
        let now = map.map_or(&[][..], |map| &map.segments);
        now.len() == self.segments.len() && now.iter().zip(&self.segments).all(|(a, b)| Arc::ptr_eq(a, b))
    }
}

fn shows_map(model: &Model) -> bool {
    matches!(model.ui.view, View::Blocks | View::Demo)
}

fn edges(model: &Model) -> Vec<Option<u64>> {
    model.live.devices.iter().map(|d| d.history.edge()).collect()
}

fn stale(model: &Model) -> Vec<SourceId> {
    model.live.stale(model.now)
}

fn age(model: &Model) -> String {
    match (model.ui.view, &model.map, model.cursor_block()) {
        (View::Blocks, Some(map), Some((_, block))) => map.age(block).map_or_else(String::new, units::age),
        _ => String::new(),
    }
}
