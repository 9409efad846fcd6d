//! A device's memory, split into parts that add up to its total.

use gpumem_probe::Memory;

/// The source of a device's figures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Basis {
    /// NVML, so that `other` and `free` are known.
    Driver,
    /// Only publishers (simulated, or no NVML). On a real device `free` then includes what other programs use.
    #[default]
    Publishers,
}

impl Basis {
    /// Returns the name of what is left of a device beside the known parts.
    pub(crate) fn rest(self) -> &'static str {
        match self {
            Basis::Driver => "free",
            Basis::Publishers => "not published",
        }
    }
}

/// A device's memory in bytes. `allocated + cached + other + managed + host + driver + free == total` always holds exactly, where a
/// part that is `None` counts 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Partition {
    /// The whole memory.
    pub total: u64,
    /// Held by publishing programs.
    pub allocated: u64,
    /// Reserved but not held by publishing programs: their caches.
    pub cached: u64,
    /// Used by anything else: programs that do not publish, CUDA contexts, graphics, and the driver if `driver` is
    /// `None`.
    pub other: u64,
    /// At most this much is managed memory that lives on the device: it is used, and no process that the driver lists has it.
    pub managed: u64,
    /// Used by the host's programs, on a GPU that uses the host's memory; `None` if that is not known separately.
    pub host: Option<u64>,
    /// Held by driver and firmware for themselves; `None` if that is not known separately.
    pub driver: Option<u64>,
    /// Free, as the driver reports it. On a GPU that uses the host's memory, what is available to a new program
    /// (`MemAvailable`).
    pub free: u64,
    /// The source of the figures.
    pub basis: Basis,
    /// Whether parts were clamped because publishers claim more than the driver counts. The two samples differ in age.
    pub skewed: bool,
}

impl Partition {
    /// Joins the driver's figures with the sums over the live publishers.
    ///
    /// `free` is what the driver says; what its figures do not account for is part of `other`. Where the publishers reserved
    /// more than is not free, their claim is the newer one and takes from `free`. If the driver reports only the total, the
    /// publishers' figures are used alone.
    pub(crate) fn of_driver(memory: &Memory, allocated: u64, reserved: u64) -> Partition {
        let total = memory.total;
        let driver = memory.reserved.map(|driver| driver.min(total));
        let rest = total - driver.unwrap_or(0);
        let free = memory.free.or(memory.used.map(|used| rest.saturating_sub(used)));
        let Some(free) = free else {
            return Partition::of_publishers(total, allocated, reserved);
        };
        let used = rest - free.min(rest);
        let mut parts = Partition::of_publishers(rest, allocated, reserved);
        let published = parts.allocated + parts.cached;
        parts.skewed |= published > used;
        parts.other = used.saturating_sub(published);
        parts.free -= parts.other;
        parts.total = total;
        parts.driver = driver;
        parts.basis = Basis::Driver;
        parts
    }

    /// Does the same for a GPU that uses the host's memory. There the driver's used memory is that of GPU processes; what is
    /// neither theirs nor available belongs to the host's programs. If the figures contradict each other, those of the processes
    /// win and take from `free`.
    pub(crate) fn of_host(memory: &Memory, allocated: u64, reserved: u64) -> Partition {
        let (Some(used), Some(available)) = (memory.used, memory.free) else {
            return Partition::of_driver(memory, allocated, reserved);
        };
        let parts = Partition::of_publishers(memory.total, allocated, reserved);
        let other = used.saturating_sub(parts.reserved()).min(parts.free);
        let rest = parts.free - other;
        let free = available.min(rest);
        Partition {
            other,
            host: Some(rest - free),
            free,
            basis: Basis::Driver,
            ..parts
        }
    }

    /// Splits a device of `total` bytes by the publishers' figures alone.
    pub(crate) fn of_publishers(total: u64, allocated: u64, reserved: u64) -> Partition {
        let reserved = reserved.max(allocated);
        let shown = reserved.min(total);
        let allocated_shown = allocated.min(shown);
        Partition {
            total,
            allocated: allocated_shown,
            cached: shown - allocated_shown,
            free: total - shown,
            skewed: shown < reserved,
            ..Partition::default()
        }
    }

    /// Returns the same device with other sums of the publishers. What others hold is assumed to be unchanged.
    pub(crate) fn holding(&self, allocated: u64, reserved: u64) -> Partition {
        let mut parts = Partition::of_publishers(self.total - self.driver.unwrap_or(0), allocated, reserved);
        parts.other = self.others().min(parts.free);
        parts.free -= parts.other;
        parts.set_managed(self.managed);
        parts.host = self.host.map(|host| host.min(parts.free));
        parts.free -= parts.host.unwrap_or(0);
        Partition {
            total: self.total,
            driver: self.driver,
            basis: self.basis,
            ..parts
        }
    }

    /// Returns what is used by anything but publishers, managed memory included.
    pub(crate) fn others(&self) -> u64 {
        self.other + self.managed
    }

    /// Sets how much of what others use is at most managed memory.
    pub(crate) fn set_managed(&mut self, at_most: u64) {
        let others = self.others();
        self.managed = at_most.min(others);
        self.other = others - self.managed;
    }

    /// Returns the tops of the stack that graphs show: allocated, reserved, used.
    pub(crate) fn tops(&self) -> [u64; 3] {
        [self.allocated, self.reserved(), self.used()]
    }

    /// Returns a key that orders moments of a device: by what is used, then by what programs hold.
    pub(crate) fn fullness(&self) -> (u64, u64) {
        (self.used(), self.allocated)
    }

    /// Returns the name of `free`. On a GPU that uses the host's memory it is the kernel's term, since available is not the same
    /// as free there.
    pub(crate) fn rest(&self) -> &'static str {
        match self.host {
            Some(_) => "available",
            None => self.basis.rest(),
        }
    }

    /// Returns allocated + cached + other: all that is not free, the driver's or the host's.
    pub(crate) fn used(&self) -> u64 {
        self.allocated + self.cached + self.others()
    }

    /// Returns allocated + cached: what publishers took from the driver.
    pub(crate) fn reserved(&self) -> u64 {
        self.allocated + self.cached
    }
}

#[cfg(test)]
#[path = "partition_tests.rs"]
mod tests;
