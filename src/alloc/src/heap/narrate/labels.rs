//! Which names the channel has room for: who uses up many leaves some to the others.
//!
//! Marks, of which there may be another one each step, take no more than three quarters of its table, names of pools, which come and go, no
//! more than seven eighths, and tags the rest but for the last few, of which advice leaves one. What finds no place is told as one of the others.

use gpumem_channel::StringId;

use crate::publish::{Outlet, Publish};
use crate::tag;

const OTHER_POOLS: &str = "(other pools)";

/// How full the channel's table of strings is.
#[derive(Debug)]
pub(in crate::heap) struct Labels {
    room: u32,
    used: u32,
    /// That of tags which found no place, once there is such a one.
    other_tags: Option<StringId>,
}

impl Labels {
    pub(in crate::heap) fn new(publish: &Publish) -> Labels {
        let room = match publish {
            Publish::On(options) => options.strings,
            Publish::Off => 0,
        };
        Labels {
            room,
            used: 1,
            other_tags: None,
        }
    }

    /// The channel's number of a text, if it is known or less than so many places are taken; `None` without a channel.
    fn intern(&mut self, outlet: &mut Outlet, text: &str, places: u32) -> Option<StringId> {
        let id = match self.used < places {
            true => outlet.intern(text)?,
            // More than marks may take: it finds what is there.
            false => outlet.intern_mark(text)?,
        };
        self.used = self.used.max(id.0 + 1);
        Some(id).filter(|id| *id != StringId(0))
    }

    /// That of a mark's name.
    pub(super) fn mark(&mut self, outlet: &mut Outlet, name: &str) -> Option<StringId> {
        let id = outlet.intern_mark(name)?;
        self.used = self.used.max(id.0 + 1);
        Some(id)
    }

    /// That of a pool's name.
    pub(in crate::heap) fn pool(&mut self, outlet: &mut Outlet, name: &str) -> StringId {
        let its = self.intern(outlet, name, self.room - self.room / 8);
        let other = its.or_else(|| self.intern(outlet, OTHER_POOLS, self.room));
        other.unwrap_or_default()
    }

    /// That of advice, of which there are ten.
    pub(super) fn advice(&mut self, outlet: &mut Outlet, words: &str) -> Option<StringId> {
        let one_for_tags = u32::from(self.other_tags.is_none());
        self.intern(outlet, words, self.room.saturating_sub(one_for_tags))
    }

    /// That of a tag's name.
    pub(super) fn tag(&mut self, outlet: &mut Outlet, name: &str) -> Option<StringId> {
        self.intern(outlet, name, self.room.saturating_sub(1) - self.room / 64)
    }

    /// That of tags whose names have no place.
    pub(super) fn other_tag(&mut self, outlet: &mut Outlet) -> Option<StringId> {
        self.other_tags = self.intern(outlet, tag::OTHER, self.room);
        self.other_tags
    }

    /// The same, if there is such a tag.
    pub(in crate::heap) fn other_tags(&self) -> Option<StringId> {
        self.other_tags
    }
}
