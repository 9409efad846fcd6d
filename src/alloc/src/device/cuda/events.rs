//! Events: recorded in the context of their stream, and kept to be used again.

use std::collections::HashSet;
use std::ffi::c_int;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::api::{Api, Opaque};
use super::bound::Bound;
use super::{Cuda, Result, handle_of};
use crate::device::EventHandle;
use crate::error::DeviceError;
use crate::stream::Stream;

const DISABLE_TIMING: u32 = 2;
const INVALID_HANDLE: c_int = 400;
/// Spare events kept for reuse; creating one costs more than recording it. Beyond these each that is recorded has another one destroyed.
const MOST_SPARE: usize = 256;

#[derive(Debug, Default)]
pub(super) struct Events(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    /// To be used again.
    spare: Vec<EventHandle>,
    /// To be destroyed by who calls the driver next.
    surplus: Vec<EventHandle>,
    /// Those of other devices' contexts that are in use.
    abroad: HashSet<u64>,
    /// The contexts of other devices that have streams which the program named.
    contexts: HashSet<usize>,
}

impl Events {
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes an event back. Calls nobody.
    pub(super) fn retire(&self, event: EventHandle) {
        let mut kept = self.kept();
        let list = match kept.abroad.remove(&event.0) || kept.spare.len() >= MOST_SPARE {
            true => &mut kept.surplus,
            false => &mut kept.spare,
        };
        list.push(event);
    }

    pub(super) fn add_context(&self, context: Opaque) {
        self.kept().contexts.insert(context.expose_provenance());
    }

    pub(super) fn forget_context(&self, context: Opaque) {
        self.kept().contexts.remove(&context.addr());
    }

    /// The contexts of other devices whose work is to be waited for, too.
    pub(super) fn contexts(&self) -> Vec<Opaque> {
        let contexts = self.kept().contexts.clone();
        contexts
            .into_iter()
            .map(std::ptr::with_exposed_provenance_mut)
            .collect()
    }

    /// All that nobody uses.
    pub(super) fn take_all(&self) -> Vec<EventHandle> {
        let mut kept = self.kept();
        let mut all = std::mem::take(&mut kept.spare);
        all.append(&mut kept.surplus);
        all
    }
}

impl Cuda {
    /// Records an event on a stream, in the context that is current, which is ours.
    pub(super) fn record_here(&self, stream: Stream) -> Result<EventHandle> {
        let recorded = self.record_by("cuEventRecord", |event| {
            // SAFETY: an event that is alive; so is the stream (see `cuda`).
            unsafe { (self.api.event_record)(event.0 as Opaque, handle_of(stream)) }
        });
        match recorded {
            Err(error) if error.code == INVALID_HANDLE => self.record_abroad(stream).unwrap_or(Err(error)),
            recorded => recorded,
        }
    }

    /// Has an event of our context recorded, which is current.
    pub(super) fn record_by(
        &self,
        call: &'static str,
        record: impl FnOnce(EventHandle) -> c_int,
    ) -> Result<EventHandle> {
        let (surplus, spare) = {
            let mut kept = self.events.kept();
            (kept.surplus.pop(), kept.spare.pop())
        };
        if let Some(surplus) = surplus {
            // SAFETY: nobody uses it. Should it fail, the context's end frees it.
            unsafe { (self.api.event_destroy)(surplus.0 as Opaque) };
        }
        let event = spare.map_or_else(|| self.api.new_event(), Ok)?;
        let recorded = self.api.check(call, record(event));
        recorded.map(|()| event).inspect_err(|_| self.events.retire(event))
    }

    /// The same for a stream of another device, which takes events of its own context only. `None`: it is none.
    fn record_abroad(&self, stream: Stream) -> Option<Result<EventHandle>> {
        let context = self.context_abroad(stream)?;
        let record = || {
            let _bound = Bound::to(&self.api, context)?;
            let event = self.api.new_event()?;
            self.events.kept().abroad.insert(event.0);
            self.api
                .record(event, stream)
                .inspect_err(|_| self.events.retire(event))?;
            Ok(event)
        };
        Some(record())
    }

    /// The context of a stream of another device. To be called in ours, which a default stream is in.
    pub(super) fn context_abroad(&self, stream: Stream) -> Option<Opaque> {
        let mut context: Opaque = std::ptr::null_mut();
        // SAFETY: writes one pointer; the stream lives (see `cuda`).
        let code = unsafe { (self.api.stream_get_ctx)(handle_of(stream), &mut context) };
        (code == 0 && context != self.primary.context()).then_some(context)
    }
}

impl Api {
    fn new_event(&self) -> Result<EventHandle> {
        let mut event: Opaque = std::ptr::null_mut();
        // SAFETY: writes one handle.
        let code = unsafe { (self.event_create)(&mut event, DISABLE_TIMING) };
        self.check("cuEventCreate", code)?;
        Ok(EventHandle(event as u64))
    }

    fn record(&self, event: EventHandle, stream: Stream) -> std::result::Result<(), DeviceError> {
        // SAFETY: an event that is alive; so is the stream (see `cuda`).
        let code = unsafe { (self.event_record)(event.0 as Opaque, handle_of(stream)) };
        self.check("cuEventRecord", code)
    }
}
