//! The block of a record as the channel shows it.

use gpumem_channel::{Facts, Place, PoolId, StringId};

use super::Record;
use crate::publish::DEVICE;
use crate::size::pool_of;
use crate::stream::Stream;

pub(super) struct Seen<'a> {
    pub(super) record: &'a Record,
    pub(super) stream: Stream,
}

impl Facts for Seen<'_> {
    #[inline(always)]
    fn addr(&self) -> u64 {
        self.record.addr
    }
    #[inline(always)]
    fn size(&self) -> u64 {
        self.record.size
    }
    #[inline(always)]
    fn requested(&self) -> u64 {
        self.record.requested
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
        pool_of(self.record.size)
    }
    #[inline(always)]
    fn segment(&self) -> u32 {
        self.record.place.parts().2
    }
    #[inline(always)]
    fn tag(&self) -> StringId {
        self.record.tag
    }
    #[inline(always)]
    fn place(&self) -> Place {
        self.record.place
    }
}
