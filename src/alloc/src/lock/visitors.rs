//! Who is in what has locks that are not ours. Nobody waits for anybody; but in a forked child those locks may be held for ever, by threads of
//! the parent's that were in there.

use std::sync::atomic::{AtomicU64, Ordering};

use gpumem_channel::Process;

/// How many there are, and of which process.
#[derive(Debug)]
pub(crate) struct Visitors(AtomicU64);

/// One, until it is dropped.
pub(crate) struct Visitor<'a> {
    all: &'a Visitors,
    process: u64,
}

/// Of a word: the process's number is above it.
const COUNT: u64 = (1 << 32) - 1;

impl Visitors {
    pub(crate) const fn new() -> Visitors {
        Visitors(AtomicU64::new(0))
    }

    /// One more. None in a forked child where one of its parent's threads was in there.
    pub(crate) fn enter(&self) -> Option<Visitor<'_>> {
        let process = Process::current().number();
        let one_more = |word: u64| match word & COUNT {
            0 => Some(process << 32 | 1),
            _ if word >> 32 == process & COUNT => Some(word + 1),
            _ => None,
        };
        let entered = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more);
        entered.is_ok().then(|| Visitor { all: self, process })
    }
}

impl Drop for Visitor<'_> {
    fn drop(&mut self) {
        // Who was forked in there is not counted there.
        if Process::current().number() == self.process {
            self.all.0.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_does_not_enter_where_its_parent_was() {
        let visitors = Visitors::new();
        let [a, b] = [visitors.enter(), visitors.enter()];
        assert!(a.is_some() && b.is_some());
        drop((a, b));
        let number = Process::current().number();
        let of_a_parent = |count: u64| Visitors(AtomicU64::new((number + 7) << 32 | count));
        assert!(of_a_parent(0).enter().is_some());
        let left_alone = of_a_parent(2);
        assert!(left_alone.enter().is_none() && left_alone.enter().is_none());
        assert_eq!(left_alone.0.load(Ordering::Relaxed) & COUNT, 2);
    }
}
