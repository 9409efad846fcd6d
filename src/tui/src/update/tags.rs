//! Follows what the selected process allocates for.

use crate::model::{Model, TagPast, View};

/// Up to so many blocks it is followed whatever is looked at, so that the timeline has a past when it is opened; summing
/// up more takes too long to be done unasked.
const CHEAP: usize = 20_000;

/// Takes the map of the selected process, if it is newer than the last one.
pub(super) fn refresh(model: &mut Model) {
    let Some(map) = &model.map else { return };
    let asked = model.ui.view == View::Timeline && model.ui.timeline.by_tag;
    if map.blocks > CHEAP && !asked {
        return;
    }
    let past = model.tags.take().filter(|past| past.process == map.process);
    let mut past = past.unwrap_or_else(|| TagPast::new(map.process));
    past.push(map);
    model.tags = Some(past);
}
