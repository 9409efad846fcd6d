//! The end of a heap: everything goes back to the driver, whoever held it.
//!
//! Nobody is left who could try again what fails then, and a process may go on for long. So it is tried again for a moment, as a driver
//! refuses to be waited for while somebody else captures a graph. What does not go even so is said, kept, and tried again whenever an
//! allocator begins, ends, runs out of memory or is told to give its cache back.

use std::sync::Arc;
use std::time::Duration;

use gpumem_channel::{Process, SegmentKind};
use gpumem_text::units::bytes_to_pib;

use crate::device::Driver;
use crate::error::DeviceError;
use crate::heap::Heap;
use crate::heap::segment::Chunk;
use crate::lock::Shared;
use crate::process::{say, sleep};

/// How often it is tried in a row, waiting twice as long each time: for an eighth of a second altogether.
const TRIES: u32 = 8;
const FIRST_WAIT: Duration = Duration::from_millis(1);

/// Of heaps that have ended, but for what somebody just [tries](give_back_remains). Locked for moments.
static REMAINS: Shared<Vec<Remains>> = Shared::new(Vec::new());

/// What an ended heap has yet to give back.
#[derive(Debug)]
struct Remains {
    /// Whose it is: a forked child has none of it.
    process: Process,
    driver: Arc<dyn Driver>,
    /// Most bytes of memory that it is.
    reserved: u64,
    /// Whether the device was waited for since the heap ended: no queued work uses any of it then.
    waited: bool,
    left: Vec<Left>,
    /// Why the driver did not take something.
    error: Option<DeviceError>,
}

#[derive(Debug)]
enum Left {
    /// Chunks that are mapped here, too, or were before they moved.
    Mapped { addr: u64, bytes: u64 },
    /// A plain segment.
    Plain { addr: u64, bytes: u64 },
    /// A chunk, and where it is mapped.
    Chunk { chunk: Chunk, at: Option<u64> },
    /// Address space, once nothing is mapped there.
    Range { addr: u64, bytes: u64 },
}

impl Left {
    /// Where queued work may use it.
    fn usable_at(&self) -> Option<u64> {
        match self {
            Left::Mapped { addr, .. } | Left::Plain { addr, .. } => Some(*addr),
            Left::Chunk { at, .. } => *at,
            Left::Range { .. } => None,
        }
    }

    fn bytes(&self) -> u64 {
        match self {
            Left::Mapped { bytes, .. } | Left::Plain { bytes, .. } => *bytes,
            Left::Chunk { chunk, .. } => chunk.size,
            Left::Range { .. } => 0,
        }
    }

    fn go(&mut self, driver: &dyn Driver) -> Result<(), DeviceError> {
        match self {
            Left::Mapped { addr, bytes } => driver.unmap(*addr, *bytes),
            Left::Plain { addr, .. } => driver.free(*addr),
            Left::Chunk { chunk, at } => {
                if let Some(addr) = *at {
                    driver.unmap(addr, chunk.size)?;
                    *at = None;
                }
                driver.release(chunk.handle)
            }
            Left::Range { addr, bytes } => driver.unreserve(*addr, *bytes),
        }
    }
}

impl Remains {
    /// Gives back what the driver takes. Whether that was all.
    fn go(&mut self) -> bool {
        self.error = None;
        if !self.waited && self.left.iter().any(|left| left.usable_at().is_some()) {
            let waited = self.driver.synchronize();
            self.waited = self.note(waited);
        }
        let mut left = std::mem::take(&mut self.left);
        left.retain_mut(|left| {
            let stays = matches!(left, Left::Range { .. }) || left.usable_at().is_some() && !self.waited;
            stays || !self.note(left.go(&*self.driver))
        });
        let there: Vec<u64> = left.iter().filter_map(Left::usable_at).collect();
        left.retain_mut(|left| match left {
            Left::Range { addr, bytes } => {
                let end = *addr + *bytes;
                there.iter().any(|at| (*addr..end).contains(at)) || !self.note(left.go(&*self.driver))
            }
            _ => true,
        });
        self.left = left;
        if self.error.as_ref().is_some_and(DeviceError::is_gone) {
            self.left.clear();
        }
        self.left.is_empty()
    }

    /// Whether something went well; if not, why.
    fn note(&mut self, result: Result<(), DeviceError>) -> bool {
        match result {
            Ok(()) => true,
            Err(error) => {
                self.error.get_or_insert(error);
                false
            }
        }
    }

    /// The same, for a moment.
    fn go_soon(&mut self) -> bool {
        (0..TRIES).any(|tried| {
            if let Some(tried) = tried.checked_sub(1) {
                sleep(FIRST_WAIT * 2u32.pow(tried));
            }
            self.go()
        })
    }

    fn tell(&self) {
        let bytes: u64 = self.left.iter().map(Left::bytes).sum();
        // Address space alone is nothing that anybody misses.
        if bytes > 0 {
            let why = self
                .error
                .as_ref()
                .map_or_else(String::new, |error| format!(" ({error})"));
            say(&format!(
                "gpumem: {} of device {} could not be given back when an allocator ended{why}: it is tried again when another one begins, \
                ends, runs out of memory or gives its cache back",
                bytes_to_pib(bytes.min(self.reserved)),
                self.driver.info().ordinal,
            ));
        }
    }
}

/// What somebody tries to give back. The rest joins the others again, also where a driver panics.
struct Tried(Vec<Remains>);

impl Drop for Tried {
    fn drop(&mut self) {
        if !self.0.is_empty()
            && let Some(mut all) = REMAINS.lock()
        {
            all.append(&mut self.0);
        }
    }
}

/// Tries again what was left of heaps that have ended. Who comes while somebody else does leaves it to them, and who has more to leave waits
/// for no driver: it may be another device's.
pub(crate) fn give_back_remains() {
    let own = |remains: &mut Remains| remains.process.is_current();
    let taken = REMAINS.lock().map(|mut all| all.extract_if(.., own).collect());
    Tried(taken.unwrap_or_default()).0.retain_mut(|remains| !remains.go());
}

/// Whether a device has yet to take something of a heap that has ended. Not while somebody just tries.
pub(in crate::heap) fn has_remains(ordinal: u32) -> bool {
    let of = |remains: &Remains| remains.process.is_current() && remains.driver.info().ordinal == ordinal;
    REMAINS.lock().is_some_and(|all| all.iter().any(of))
}

/// Nothing is left on the device, if it takes everything: blocks that are still allocated have no owner any more.
impl Drop for Heap {
    fn drop(&mut self) {
        self.forget_captures();
        let mut remains = Remains {
            process: Process::current(),
            driver: Arc::clone(&self.driver),
            reserved: self.ledger.reserved(),
            waited: false,
            left: self.take_all(),
            error: None,
        };
        if remains.go_soon() {
            return;
        }
        remains.tell();
        if let Some(mut all) = REMAINS.lock() {
            all.push(remains);
        }
    }
}

impl Heap {
    /// All that is the driver's.
    fn take_all(&mut self) -> Vec<Left> {
        let mut all = Vec::new();
        let mapped = |addr, bytes| (bytes > 0).then_some(Left::Mapped { addr, bytes });
        for stale in &self.views.stale {
            all.extend(mapped(stale.range, stale.mapped));
        }
        for (_, view) in self.views.iter() {
            match view.pieces_left() {
                None => all.extend(mapped(view.range, view.mapped)),
                Some(parts) => {
                    let parts = parts.iter();
                    all.extend(parts.filter_map(|part| mapped(view.range + part.offset, part.bytes)));
                }
            }
        }
        let stale = self.views.stale.iter().map(|stale| (stale.range, stale.bytes));
        let views = self.views.iter().map(|(_, view)| (view.range, view.room));
        let ranges = stale.chain(views).filter(|(_, bytes)| *bytes > 0);
        all.extend(ranges.map(|(addr, bytes)| Left::Range { addr, bytes }));
        for (_, segment) in self.segments.iter() {
            let (addr, bytes) = (segment.addr, segment.reservation);
            if segment.kind != SegmentKind::Virtual {
                all.push(Left::Plain { addr, bytes });
                continue;
            }
            all.extend(segment.stale.iter().filter_map(|(addr, bytes)| mapped(*addr, *bytes)));
            all.extend(segment.chunks.iter().map(|(addr, chunk)| Left::Chunk {
                chunk: *chunk,
                at: Some(*addr),
            }));
            all.push(Left::Range { addr, bytes });
        }
        all.extend(self.orphans.drain(..).map(|chunk| Left::Chunk { chunk, at: None }));
        all
    }
}

#[cfg(test)]
#[path = "end_tests.rs"]
mod tests;
