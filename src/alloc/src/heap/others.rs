//! Room on the device for others: CUDA's own libraries and kernels, and other programs.
//!
//! What a cache serves is not missed by who uses it, but by cuBLAS, cuDNN or NCCL, which take their memory from the driver and fail where it
//! has none. PyTorch's allocator gives all of its cache back when the driver has no more. Here, where a request finds room in the cache then,
//! a part of the device goes back, and the cache serves before new memory does from there on.

use super::Heap;
use super::allocate::Request;
use crate::device::DeviceInfo;
use crate::error::Error;
use crate::size::Class;

/// The part of the device that is left to others: 1.2 of 80 GiB.
const PART: u64 = 64;

/// What is others' of the device.
#[derive(Debug)]
pub(super) struct Others {
    room: u64,
    /// Reserved bytes from which on memory is others': all but their room, or what the driver gave before it had no more, less what went back
    /// since.
    full_at: u64,
    /// Whether their room is to go back once the cache has it.
    owed: bool,
}

impl Others {
    pub(super) fn on(device: &DeviceInfo) -> Others {
        let room = device.total / PART / device.granularity * device.granularity;
        Others {
            room,
            full_at: device.total - room,
            owed: false,
        }
    }
}

impl Heap {
    /// Bytes that may be reserved before memory is others'.
    pub(super) fn all_but_others(&self) -> u64 {
        self.others.full_at
    }

    /// Whether so much more memory would be.
    pub(super) fn is_others(&self, bytes: u64) -> bool {
        self.ledger.reserved() + bytes > self.others.full_at
    }

    /// The driver has no memory for a request.
    pub(super) fn note_full(&mut self) {
        if self.release_on_oom && self.others.room > 0 {
            self.others.full_at = self.ledger.reserved();
            self.others.owed = true;
        }
    }

    /// The driver had some: if more than others were left, there is more than there was.
    pub(super) fn note_grown(&mut self) {
        if self.ledger.reserved() > self.others.full_at.saturating_add(self.others.room) {
            self.others = Others::on(self.driver.info());
        }
    }

    /// Whether others are to get their room back now: the cache has twice as much beyond what a request takes.
    pub(super) fn owes_room(&self, request: &Request) -> bool {
        let cached = || self.ledger.reserved().saturating_sub(self.allocated_bytes());
        self.others.owed && !self.capturing() && cached() >= 2 * self.others.room + request.size
    }

    /// Gives it back, if so.
    pub(super) fn leave_room(&mut self, request: &Request) -> Result<(), Error> {
        if !self.owes_room(request) {
            return Ok(());
        }
        self.learn_for(request, &[request.stream])?;
        let chunks = self.spare_chunked(self.others.room, |class| class == Class::Chunked);
        // The request may come back once they went, and finds no more owed.
        self.others.owed = false;
        self.others.full_at = self.ledger.reserved().saturating_sub(self.others.room);
        self.give_back_for(request, chunks)?;
        Ok(())
    }
}
