//! Where a block lies in what the driver gave.

use gpumem_channel::SegmentKind;

use super::Heap;
use crate::raw::Base;

impl Heap {
    /// The plain segment of a block.
    pub(crate) fn base_of(&self, b: u32) -> Option<Base> {
        let segment = self.segments.get(self.blocks[b].segment);
        segment
            .filter(|segment| segment.kind == SegmentKind::Plain)
            .map(|segment| Base {
                addr: segment.addr,
                bytes: segment.size,
            })
    }
}
