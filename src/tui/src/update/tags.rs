//! Records what the selected process allocates by tag.

use crate::model::{Model, TagPast, View};

/// Most blocks that are summed up in every view, so that the Timeline has a history when it is opened. More are summed up
/// only while it is shown by tag, since that takes long.
const MAX_BLOCKS_IN_BACKGROUND: usize = 20_000;

/// Adds a point for the map of the selected process, if that is newer than the last one.
pub(super) fn refresh(model: &mut Model) {
    let Some(map) = &model.map else { return };
    let asked = model.ui.view == View::Timeline && model.ui.timeline.by_tag;
    if map.blocks > MAX_BLOCKS_IN_BACKGROUND && !asked {
        return;
    }
    let past = model.tags.take().filter(|past| past.process == map.process);
    let mut past = past.unwrap_or_else(|| TagPast::new(map.process));
    if past.push(map) {
        model.looks.add_tags(&past.largest());
    }
    model.tags = Some(past);
}
