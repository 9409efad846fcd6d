//! The driver calls of a request: made now, or found made already, or to be made when the request is suspended.

use crate::device::MemoryInfo;
use crate::error::{DeviceError, Error};
use crate::heap::Heap;
use crate::heap::allocate::Request;
use crate::heap::grow::place::Place;
use crate::heap::release::going::{Going, Staying};
use crate::heap::segment::Chunk;
use crate::heap::stitch::map::places;
use crate::heap::turn::call::{Ask, Call, Gave};
use crate::heap::turn::{Calls, suspended};

impl Heap {
    /// Makes a call, or finds what it gave already, or else suspends the request.
    fn perform(&mut self, request: &Request, mut call: Call) -> Result<Gave, DeviceError> {
        let failed = self.progress.iter().flat_map(|progress| &progress.failed);
        if let Some((_, error)) = failed.into_iter().find(|(made, _)| made.is_like(&call)) {
            return Err(error.clone());
        }
        if self.calls == Calls::Suspends {
            let progress = self.progress.get_or_insert_default();
            // Much may have changed when it is made.
            (progress.polled, progress.probed) = (false, Vec::new());
            progress.wanted = Some((call, *request));
            return Err(suspended());
        }
        self.prepare(&mut call);
        let (gave, result) = call.run(&*self.driver);
        match result {
            Ok(()) => Ok(gave),
            Err(error) => {
                self.undo(&call, gave);
                Err(error)
            }
        }
    }

    /// Takes out of the heap what a call is about.
    pub(in crate::heap) fn prepare(&mut self, call: &mut Call) {
        match call {
            Call::Map { sizes, spare, .. } => {
                for size in sizes {
                    let known = self.orphans.iter().position(|orphan| orphan.size == *size);
                    let known = known.map(|known| self.orphans.swap_remove(known));
                    if let Some(chunk) = known {
                        // It is counted anew where it ends up.
                        self.forget_loose(chunk.size, 0);
                        spare.push(chunk);
                    }
                }
            }
            Call::GiveBack(going) => self.set_apart(going),
            _ => {}
        }
    }

    /// Remembers what a call that failed could not undo.
    pub(in crate::heap) fn undo(&mut self, call: &Call, gave: Gave) {
        match (call, gave) {
            (Call::Map { segment, .. }, Gave::Chunks { loose, stale, .. }) => {
                self.keep_loose(loose);
                self.tell_figures();
                if let Some(segment) = self.segments.get_mut(*segment) {
                    segment.stale.extend(stale);
                }
            }
            (_, Gave::Range(Some(stale))) => self.views.stale.push(stale),
            (Call::Extend { view, chunks, .. }, Gave::Mapped(mapped)) if mapped > 0 => {
                let homes = chunks.iter().map(|(home, _)| *home);
                self.views.leave(*view, mapped, homes);
            }
            _ => {}
        }
    }

    /// Makes what a call gave part of the heap.
    pub(in crate::heap) fn keep(&mut self, request: &Request, call: &Call, gave: Gave) {
        match (call, gave) {
            (Call::Alloc { bytes }, Gave::Addr(addr)) => self.add_plain(request, addr, *bytes),
            (Call::Reserve { bytes }, Gave::Addr(addr)) => {
                self.add_range(request, addr, *bytes);
            }
            (Call::Map { segment, addr, .. }, Gave::Chunks { mapped, loose, .. }) => {
                self.keep_loose(loose);
                let bytes = mapped.iter().map(|(_, chunk)| chunk.size).sum();
                let place = Place {
                    segment: *segment,
                    addr: *addr,
                    missing: bytes,
                    room: bytes,
                };
                self.add_chunks(request, place, bytes, mapped);
            }
            (Call::Extend { view, chunks, .. }, Gave::Mapped(_)) => {
                self.layouts.mapped(chunks.len());
                self.views.extend(*view, places(chunks));
            }
            (Call::View { chunks, .. }, Gave::Range(Some(stale))) => {
                self.layouts.mapped(chunks.len());
                self.views.insert(stale.range, stale.bytes, places(chunks));
            }
            (Call::Synchronize { .. }, Gave::Frees(frees)) => {
                self.note_waited();
                self.settled(frees);
            }
            (Call::Memory, Gave::Memory(memory)) => self.note_memory(memory),
            (Call::Ask(ask), _) => self.note_asked(ask),
            (Call::GiveBack(_), Gave::Went(went)) => {
                self.note_gone(went.refused.iter().map(Going::key));
                self.account_for(went);
            }
            _ => {}
        }
    }

    /// Memory for a plain segment.
    pub(in crate::heap) fn take_plain(&mut self, request: &Request, bytes: u64) -> Result<u64, DeviceError> {
        self.perform(request, Call::Alloc { bytes }).map(Gave::addr)
    }

    /// Address space.
    pub(in crate::heap) fn take_range(&mut self, request: &Request, bytes: u64) -> Result<u64, DeviceError> {
        self.perform(request, Call::Reserve { bytes }).map(Gave::addr)
    }

    /// New chunks, mapped side by side. All or nothing.
    pub(in crate::heap) fn take_chunks(
        &mut self,
        request: &Request,
        (segment, addr): (u32, u64),
        sizes: Vec<u64>,
    ) -> Result<Vec<(u64, Chunk)>, DeviceError> {
        let call = Call::Map {
            segment,
            addr,
            sizes,
            spare: Vec::new(),
            rdma: self.gpu_direct_rdma,
        };
        match self.perform(request, call)? {
            Gave::Chunks { mapped, loose, .. } => {
                self.keep_loose(loose);
                Ok(mapped)
            }
            _ => Ok(Vec::new()),
        }
    }

    /// Chunks of the home segment mapped side by side once more, in a range of `room` bytes: where.
    pub(in crate::heap) fn take_view(
        &mut self,
        request: &Request,
        chunks: &[(u64, Chunk)],
        room: u64,
    ) -> Result<u64, DeviceError> {
        let chunks = chunks.to_vec();
        match self.perform(request, Call::View { chunks, room })? {
            Gave::Range(Some(stale)) => Ok(stale.range),
            _ => Ok(0),
        }
    }

    /// The same at the end of a view.
    pub(in crate::heap) fn take_end(
        &mut self,
        request: &Request,
        (view, addr): (u32, u64),
        chunks: &[(u64, Chunk)],
    ) -> Result<(), DeviceError> {
        let chunks = chunks.to_vec();
        self.perform(request, Call::Extend { view, addr, chunks }).map(drop)
    }

    /// Gives back to the driver what is chosen for a request, but for what it refused already. Whether the device got memory.
    pub(in crate::heap) fn give_back_for(&mut self, request: &Request, going: Vec<Going>) -> Result<bool, DeviceError> {
        let (stays, mut going): (Vec<_>, Vec<_>) = going.into_iter().partition(|going| self.was_refused(going));
        // Nor what cannot go where that is still there.
        let mut staying = Staying::default();
        stays.iter().for_each(|stays| staying.add(stays));
        going.retain(|going| {
            let goes = !staying.keeps(going);
            if !goes {
                staying.add(going);
            }
            goes
        });
        if going.is_empty() {
            return Ok(false);
        }
        match self.perform(request, Call::GiveBack(going))? {
            Gave::Went(went) => Ok(self.account_for(went) > 0),
            _ => Ok(false),
        }
    }

    /// Completes pending blocks whose events are done.
    pub(in crate::heap) fn poll_for(&mut self, request: &Request) -> Result<(), Error> {
        let polled = self.progress.as_ref().is_some_and(|progress| progress.polled);
        match polled || self.streams.pending == 0 || self.capturing() {
            true => Ok(()),
            false => self.ask_for(request, Ask::Poll),
        }
    }

    /// Learns how far streams are done, each of them once.
    pub(in crate::heap) fn ask_how_far_for(&mut self, request: &Request, lines: &[u16]) -> Result<(), Error> {
        let probed = self
            .progress
            .iter()
            .flat_map(|progress| &progress.probed)
            .collect::<Vec<_>>();
        let left = lines
            .iter()
            .filter(|line| !probed.contains(line) && self.is_unknown(**line));
        let left: Vec<u16> = left.copied().collect();
        match left.is_empty() || self.capturing() {
            true => Ok(()),
            false => self.ask_for(request, Ask::Probe(left)),
        }
    }

    /// Learns that no queued work uses what is free of these lines, before memory is unmapped or goes back to the driver: by asking their
    /// streams, or by waiting for the device where those tell too little, since others may use what a stream has freed.
    pub(in crate::heap) fn learn_for(&mut self, request: &Request, lines: &[u16]) -> Result<(), Error> {
        if self.shares_across_streams {
            return self.ask_how_far_for(request, lines);
        }
        match lines.is_empty() || self.capturing() {
            true => Ok(()),
            false => Ok(self.settle_if_it_can(request)?),
        }
    }

    /// Whether something is to be asked first of how far a stream is, for which the request comes back.
    pub(in crate::heap) fn asks_first(&mut self, line: u16, request: &Request) -> bool {
        match self.calls {
            Calls::Wonders => self.wonder_how_far(line),
            _ => self.ask_how_far_for(request, &[line]).is_err(),
        }
    }

    fn ask_for(&mut self, request: &Request, ask: Ask) -> Result<(), Error> {
        if self.calls != Calls::Suspends {
            return ask.ask(self);
        }
        self.progress.get_or_insert_default().wanted = Some((Call::Ask(ask), *request));
        Err(suspended().into())
    }

    /// What the device says it has.
    pub(in crate::heap) fn device_memory(&mut self, request: &Request) -> Result<Option<MemoryInfo>, DeviceError> {
        if let Some(memory) = self.progress.as_mut().and_then(|progress| progress.memory.take()) {
            return Ok(Some(memory));
        }
        match self.perform(request, Call::Memory) {
            Ok(Gave::Memory(memory)) => Ok(Some(memory)),
            Err(error) if error.code == DeviceError::LATER => Err(error),
            _ => Ok(None),
        }
    }

    /// Waits for the turn if memory is on its way that another thread has set apart: it may come back.
    pub(in crate::heap) fn let_others_finish(&mut self, request: &Request) -> Result<(), DeviceError> {
        match self.apart {
            0 => Ok(()),
            _ => self.perform(request, Call::Nothing).map(drop),
        }
    }

    /// Waits for the device, for a request that may be suspended meanwhile. The free counter up to which it is done with everything; `None`
    /// if that was just done, and is known.
    pub(in crate::heap) fn wait(&mut self, request: &Request) -> Result<Option<u64>, DeviceError> {
        if self.has_waited() {
            return Ok(None);
        }
        let frees = self.frees;
        self.perform(request, Call::Synchronize { frees })?;
        Ok(Some(frees))
    }
}
