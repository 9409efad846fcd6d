//! A device's memory, divided into parts that add up to its total.

use gpumem_probe::Memory;

/// Where a device's total and use come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Basis {
    /// NVML's figures: `other` and `free` are known.
    Driver,
    /// Publishers' figures alone (simulated, or no NVML). On a real device `free` then includes what others use.
    #[default]
    Publishers,
}

impl Basis {
    /// What is left of a device beside what is known of it.
    pub(crate) fn rest(self) -> &'static str {
        match self {
            Basis::Driver => "free",
            Basis::Publishers => "not published",
        }
    }
}

/// A device's memory in bytes. `allocated + cached + other + host + driver + free == total`, always and exactly (a part
/// that is not told apart counts nothing).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Partition {
    /// All of it.
    pub total: u64,
    /// Held by publishing programs.
    pub allocated: u64,
    /// Reserved by publishing programs and not held: their caches.
    pub cached: u64,
    /// Used by anything else: programs that do not publish, CUDA contexts, graphics; and by the driver where that is not
    /// told apart.
    pub other: u64,
    /// Used by the host's programs, on a GPU that uses the host's memory; `None` where that is not told apart.
    pub host: Option<u64>,
    /// Held by driver and firmware for themselves; `None` where nobody tells it apart.
    pub driver: Option<u64>,
    /// Available, as the driver says; on a GPU that uses the host's memory what a new program could have
    /// (`MemAvailable`).
    pub free: u64,
    /// Where the figures come from.
    pub basis: Basis,
    /// Publishers claim more than the driver counts (the two samples differ in age), so parts were clamped.
    pub skewed: bool,
}

impl Partition {
    /// Joins the driver's figures with the sums over the live publishers.
    ///
    /// The driver's free stays what it says: what its figures leave over is part of `other`. Where the publishers'
    /// reserved exceeds what is not free, the newer claim wins and takes from `free`. Without any figure but the total
    /// the publishers' are all there is.
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

    /// The same for a GPU that uses the host's memory, of which the driver counts what its processes have. What is then
    /// neither theirs nor available is the host's programs'. Where both cannot be, what is counted process by process wins
    /// and takes from `free`.
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

    /// What the publishers alone say about a device of `total` bytes.
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

    /// The same device when publishers hold this much. What others hold is taken to be what it was.
    pub(crate) fn holding(&self, allocated: u64, reserved: u64) -> Partition {
        let mut parts = Partition::of_publishers(self.total - self.driver.unwrap_or(0), allocated, reserved);
        parts.other = self.other.min(parts.free);
        parts.free -= parts.other;
        parts.host = self.host.map(|host| host.min(parts.free));
        parts.free -= parts.host.unwrap_or(0);
        Partition {
            total: self.total,
            driver: self.driver,
            basis: self.basis,
            ..parts
        }
    }

    /// Orders moments of a device: by what is used, then by what programs hold of it.
    pub(crate) fn fullness(&self) -> (u64, u64) {
        (self.used(), self.allocated)
    }

    /// What `free` is called: on a GPU that uses the host's memory the kernel's word, which tells it from what nothing is
    /// in.
    pub(crate) fn rest(&self) -> &'static str {
        match self.host {
            Some(_) => "available",
            None => self.basis.rest(),
        }
    }

    /// Everything that is not free, not the driver's and not the host's: allocated + cached + other.
    pub(crate) fn used(&self) -> u64 {
        self.allocated + self.cached + self.other
    }

    /// What publishers took from the driver: allocated + cached.
    pub(crate) fn reserved(&self) -> u64 {
        self.allocated + self.cached
    }
}

#[cfg(test)]
#[path = "partition_tests.rs"]
mod tests;
