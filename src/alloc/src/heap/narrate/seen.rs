//! A block as the channel shows it.

use gpumem_channel::{Facts, PoolId, StringId};

use crate::heap::block::Block;
use crate::heap::streams::Streams;
use crate::publish::DEVICE;
use crate::stream::Stream;

pub(super) struct Seen<'a> {
    block: &'a Block,
    stream: Stream,
}

impl<'a> Seen<'a> {
    #[inline(always)]
    pub(super) fn of(block: &'a Block, streams: &Streams) -> Seen<'a> {
        let stream = streams.name(block.stream);
        Seen { block, stream }
    }
}

impl Facts for Seen<'_> {
    #[inline(always)]
    fn addr(&self) -> u64 {
        self.block.addr
    }
    #[inline(always)]
    fn size(&self) -> u64 {
        self.block.size
    }
    #[inline(always)]
    fn requested(&self) -> u64 {
        self.block.requested
    }
    #[inline(always)]
    fn stream(&self) -> u64 {
        self.stream.0
    }
    #[inline(always)]
    fn device(&self) -> u8 {
        DEVICE
    }
    #[inline(always)]
    fn pool(&self) -> PoolId {
        self.block.pool
    }
    #[inline(always)]
    fn segment(&self) -> u32 {
        self.block.segment
    }
    #[inline(always)]
    fn tag(&self) -> StringId {
        self.block.tag
    }
}
