//! One allocator per device, made at first use and there until the process ends.

use std::ffi::c_int;
use std::mem::ManuallyDrop;
use std::sync::atomic::{self, AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use gpumem::device::{self, Device};
use gpumem::{Allocator, Origin, SegmentMode, Uncancelled};

use crate::failure::{self, Failure};
use crate::pools::Pools;
use crate::{config, exit};

/// Devices of a process. PyTorch numbers them with one signed byte.
pub(crate) const MOST: usize = 128;

/// A device's place.
pub(crate) struct Place {
    allocator: OnceLock<Allocator>,
    /// Locked while the allocator is made.
    making: Mutex<()>,
    /// The fraction of the device's memory that was asked for last, as its bits; 0 for none. Not behind a lock: before the first allocation
    /// a program may fork, and its child would wait for a thread that it does not have.
    fraction: AtomicU64,
    pub(crate) pools: Pools,
}

static PLACES: [Place; MOST] = [const {
    Place {
        allocator: OnceLock::new(),
        making: Mutex::new(()),
        fraction: AtomicU64::new(0),
        pools: Pools::none(),
    }
}; MOST];

/// The process that made the first allocator, or tried to.
static ORIGIN: Origin = Origin::new();

/// Locked while a device is connected with the others.
static CONNECTING: Mutex<()> = Mutex::new(());

/// Has two devices reach each other's memory. Programs enable peer access by asking CUDA for it, PyTorch at the first copy from one device
/// to the other: nobody tells an allocator, and mapped memory stays out of reach.
///
/// Where it cannot be, copies by way of the host could be, but for those that do not name the devices, as PyTorch's do not here.
fn connect(one: &Device, other: &Device) {
    static SAID: AtomicBool = AtomicBool::new(false);
    let ways = [(one, other), (other, one)];
    let refused = ways.into_iter().find_map(|(memory, user)| {
        let why = match memory.enable_peer_access(user) {
            Ok(true) => return None,
            Ok(false) => "they have no peer access to each other".to_owned(),
            Err(error) => error.to_string(),
        };
        Some(why)
    });
    if let Some(why) = refused
        && !SAID.swap(true, Ordering::Relaxed)
    {
        let [one, other] = [one, other].map(|device| device.info().ordinal);
        gpumem::say(&format!(
            "gpumem: copies between devices {one} and {other} can fail: {why}\n\
             gpumem: a program that makes some needs GPUMEM_ALLOC_CONF=segments:plain"
        ));
    }
}

/// The place of a device by its number in this process.
#[inline]
pub(crate) fn place(device: c_int) -> Result<&'static Place, Failure> {
    usize::try_from(device)
        .ok()
        .and_then(|device| PLACES.get(device))
        .ok_or_else(|| {
            Failure::misuse(format!(
                "there is no device {device}: devices are numbered from 0 to {}",
                MOST - 1
            ))
        })
}

impl Place {
    /// The device's allocator, if one was made.
    #[inline]
    pub(crate) fn allocator(&'static self) -> Option<&'static Allocator> {
        self.allocator.get()
    }

    /// The device's allocator.
    #[inline]
    pub(crate) fn open(&'static self, device: c_int) -> Result<&'static Allocator, Failure> {
        match self.allocator.get() {
            Some(allocator) => Ok(allocator),
            None => self.make(device),
        }
    }

    #[cold]
    fn make(&'static self, device: c_int) -> Result<&'static Allocator, Failure> {
        let _undisturbed = Uncancelled::begin();
        ORIGIN.begin();
        // The lock may be held for ever by a thread that does not exist in a forked child.
        not_forked()?;
        gpumem::tell_trouble_to(failure::beside);
        // Not under our lock: the driver and what it loads wait for the dynamic loader, and who has that may be a library's constructor
        // that allocates and waits for us.
        let opened = device::cuda(device.unsigned_abs())?;
        let making = self.making.lock().unwrap_or_else(PoisonError::into_inner);
        // Where two threads opened it, or it cannot be made: its context, which takes long to make, stays for who tries again.
        let opened = ManuallyDrop::new(opened);
        if let Some(allocator) = self.allocator.get() {
            return Ok(allocator);
        }
        let asked = self.fraction.load(Ordering::Relaxed);
        let (made, segments) = config::allocator((*opened).clone(), fraction(asked))?;
        // One device at a time, so that of any two one finds the other; and before it is used.
        let connecting = CONNECTING.lock().unwrap_or_else(PoisonError::into_inner);
        if segments != SegmentMode::Plain {
            in_use().for_each(|(_, other)| connect(made.device(), other.device()));
        }
        let allocator = self.allocator.get_or_init(|| made);
        // Before anything that asks for a call stack, which may wait for who waits for these.
        drop((connecting, making));
        exit::watch();
        self.limit_as_asked(allocator, asked)?;
        Ok(allocator)
    }

    /// Sees to what was asked for while the allocator was made with another fraction, by who found none to tell.
    fn limit_as_asked(&self, allocator: &Allocator, mut known: u64) -> Result<(), Failure> {
        loop {
            atomic::fence(Ordering::SeqCst);
            let asked = self.fraction.load(Ordering::Relaxed);
            match fraction(asked) {
                Some(to) if asked != known => allocator.set_memory_fraction(to)?,
                _ => return Ok(()),
            }
            known = asked;
        }
    }

    /// Limits the allocator to a fraction of the device's memory, now or when it is made.
    pub(crate) fn limit(&'static self, to: f64) -> Result<(), Failure> {
        // As in `make`.
        not_forked()?;
        self.fraction.store(to.to_bits(), Ordering::Relaxed);
        // Either this finds the allocator, or who makes it finds that.
        atomic::fence(Ordering::SeqCst);
        match self.allocator.get() {
            Some(allocator) => Ok(allocator.set_memory_fraction(to)?),
            None => Ok(()),
        }
    }
}

/// What was asked for, by its bits. No fraction that may be asked for is 0.
fn fraction(bits: u64) -> Option<f64> {
    (bits != 0).then(|| f64::from_bits(bits))
}

/// Whether the allocators, if there are any, are those of a process that this one was forked from.
pub(crate) fn is_forked() -> bool {
    ORIGIN.is_elsewhere()
}

/// The same as what a call says that has to do with a device.
pub(crate) fn not_forked() -> Result<(), Failure> {
    match is_forked() {
        true => Err(Failure::forked()),
        false => Ok(()),
    }
}

/// Those that a number means which may be -1, for all.
pub(crate) fn chosen(device: c_int) -> Result<impl Iterator<Item = &'static Allocator>, Failure> {
    Ok(chosen_places(device)?.map(|(_, allocator)| allocator))
}

/// The same with their places.
pub(crate) fn chosen_places(
    device: c_int,
) -> Result<impl Iterator<Item = (&'static Place, &'static Allocator)>, Failure> {
    not_forked()?;
    if device != -1 {
        place(device)?;
    }
    let chosen = in_use().filter(move |(number, _)| device == -1 || usize::try_from(device) == Ok(*number));
    Ok(chosen.map(|(number, allocator)| (&PLACES[number], allocator)))
}

/// The allocator of a device that is in use.
pub(crate) fn used(device: c_int) -> Result<&'static Allocator, Failure> {
    not_forked()?;
    let none = || Failure::misuse(format!("nothing was allocated on device {device} yet"));
    place(device)?.allocator().ok_or_else(none)
}

/// The devices that have an allocator, by number.
pub(crate) fn in_use() -> impl Iterator<Item = (usize, &'static Allocator)> {
    let made = |(number, place): (usize, &'static Place)| Some((number, place.allocator.get()?));
    PLACES.iter().enumerate().filter_map(made)
}

/// Whose live allocation an address is.
pub(crate) fn owner(addr: u64) -> Option<(usize, &'static Allocator)> {
    in_use().find(|(_, allocator)| allocator.owns_raw(addr))
}
