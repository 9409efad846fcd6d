//! Where rounds begin: a program that holds just what it held before most likely does what it did then.

/// Beginnings that are known.
const KNOWN: usize = 1024;

/// Large blocks that the heap counts itself as a request comes, their bytes and what was asked for of these, and its free counter.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::heap) struct Moment {
    pub(in crate::heap) blocks: u64,
    pub(in crate::heap) bytes: u64,
    pub(in crate::heap) requested: u64,
    pub(in crate::heap) frees: u64,
}

impl Moment {
    /// What tells it from others. Where that is the same the same blocks are held, most likely.
    #[inline(always)]
    fn digest(self) -> u64 {
        let mix = |digest: u64, number: u64| (digest ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
        [self.blocks, self.bytes, self.requested].into_iter().fold(1, mix)
    }
}

/// Where the sequences were when a round began, by stream.
#[derive(Clone, Debug)]
struct Beginning {
    digest: u64,
    bytes: u64,
    ends: Vec<usize>,
}

/// The requests that came when little was held, after something was given back.
#[derive(Debug, Default)]
pub(super) struct Beginnings {
    /// By digest. None before the first.
    known: Vec<Beginning>,
    now: Moment,
    /// The most bytes that were ever held.
    most: u64,
    /// The free counter, and one more, when the last request was noted.
    frees: u64,
}

impl Beginnings {
    /// A request comes.
    #[inline(always)]
    pub(super) fn comes(&mut self, now: Moment) {
        self.most = self.most.max(now.bytes);
        self.now = now;
    }

    /// Whether it may begin a round: little is held, and something came free since the last one.
    #[inline(always)]
    fn may_begin(&self) -> bool {
        (self.now.bytes <= self.most / 2) & (self.now.frees + 1 != self.frees)
    }

    /// Where the sequences were when it began one before.
    #[inline(always)]
    pub(super) fn known(&self) -> Option<&[usize]> {
        if !self.may_begin() {
            return None;
        }
        let digest = self.now.digest();
        let beginning = self.known.get(digest as usize % KNOWN)?;
        (beginning.digest == digest && !beginning.ends.is_empty()).then_some(&beginning.ends)
    }

    /// It is noted, where the sequences are now. What is in the middle of a round that came before is known from then, but for where
    /// hardly anything is held: sequences forget what was long ago.
    #[inline(always)]
    pub(super) fn note(&mut self, in_round: bool, ends: impl Iterator<Item = usize>) {
        if self.may_begin() && (!in_round | (self.now.bytes <= self.most / 8)) {
            self.add(ends);
        }
        self.frees = self.now.frees + 1;
    }

    /// Of two beginnings that want the same place the one that holds less has it: less is where rounds begin.
    #[inline(never)]
    fn add(&mut self, ends: impl Iterator<Item = usize>) {
        let digest = self.now.digest();
        if self.known.is_empty() {
            let none = Beginning {
                digest: 0,
                bytes: u64::MAX,
                ends: Vec::new(),
            };
            self.known = vec![none; KNOWN];
        }
        let place = &mut self.known[digest as usize % KNOWN];
        if self.now.bytes <= place.bytes {
            (place.digest, place.bytes) = (digest, self.now.bytes);
            place.ends.clear();
            place.ends.extend(ends);
        }
    }
}
