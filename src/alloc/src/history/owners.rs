//! Who holds how much, now, at the peak and at the end of each step.
//!
//! The peak costs nothing while memory rises: an owner's figures are put aside when they change for the first time since the peak,
//! so a new peak is a new number and nothing more.

use std::collections::{HashMap, VecDeque};

use gpumem_channel::StringId;

use crate::stack::Stack;

/// Owners told apart; further ones share the first place.
const MOST: usize = 65_536;
/// Ends of steps whose figures are kept.
const STEPS: usize = 64;
/// Fewer steps tell nothing about growth.
const FEWEST_STEPS: usize = 8;

/// Blocks and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Owned {
    pub(crate) bytes: u64,
    pub(crate) blocks: u64,
}

#[derive(Debug)]
struct Account {
    tag: StringId,
    stack: Stack,
    now: Owned,
    /// What it owned at the peak of this number.
    at_peak: Owned,
    peak: u64,
    /// Bytes at the end of the last steps, the last one last. What is missing in front was 0.
    steps: VecDeque<u64>,
}

/// How an owner's bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Grown {
    /// Bytes more a step.
    pub(crate) per_step: i64,
    /// Whether they grow all the time, as a leak does.
    pub(crate) steadily: bool,
}

/// All owners of a heap's blocks.
#[derive(Debug)]
pub(crate) struct Owners {
    accounts: Vec<Account>,
    numbers: HashMap<(StringId, Stack), u32>,
    /// The owner asked for last: programs allocate in loops.
    last: u32,
    /// How many peaks there were.
    peaks: u64,
}

impl Owners {
    pub(crate) fn new() -> Owners {
        let mut owners = Owners {
            accounts: Vec::new(),
            numbers: HashMap::new(),
            last: 0,
            peaks: 0,
        };
        owners.open(StringId(0), Stack::OTHER);
        owners
    }

    /// The owner that allocates with this tag at this place.
    pub(crate) fn number(&mut self, tag: StringId, stack: Stack) -> u32 {
        let last = &self.accounts[self.last as usize];
        if (last.tag, last.stack) == (tag, stack) {
            return self.last;
        }
        let known = self.numbers.get(&(tag, stack)).copied();
        self.last = match known {
            Some(number) => number,
            None if self.accounts.len() >= MOST => 0,
            None => self.open(tag, stack),
        };
        self.last
    }

    fn open(&mut self, tag: StringId, stack: Stack) -> u32 {
        let number = self.accounts.len() as u32;
        self.numbers.insert((tag, stack), number);
        self.accounts.push(Account {
            tag,
            stack,
            now: Owned::default(),
            at_peak: Owned::default(),
            peak: self.peaks,
            steps: VecDeque::new(),
        });
        number
    }

    /// Tag and place of an owner.
    pub(crate) fn who(&self, number: u32) -> (StringId, Stack) {
        let account = &self.accounts[number as usize];
        (account.tag, account.stack)
    }

    /// What an owner has.
    pub(crate) fn now(&self, number: u32) -> Owned {
        self.accounts[number as usize].now
    }

    pub(crate) fn took(&mut self, number: u32, bytes: u64) {
        let now = self.change(number);
        now.bytes += bytes;
        now.blocks += 1;
    }

    pub(crate) fn gave(&mut self, number: u32, bytes: u64) {
        let now = self.change(number);
        now.bytes -= bytes;
        now.blocks -= 1;
    }

    fn change(&mut self, number: u32) -> &mut Owned {
        let account = &mut self.accounts[number as usize];
        if account.peak != self.peaks {
            account.peak = self.peaks;
            account.at_peak = account.now;
        }
        &mut account.now
    }

    /// What everybody has now is the peak.
    pub(crate) fn peak(&mut self) {
        self.peaks += 1;
    }

    /// Who had what at the peak.
    pub(crate) fn at_peak(&self) -> impl Iterator<Item = (u32, Owned)> {
        let owned = |account: &Account| match account.peak == self.peaks {
            true => account.at_peak,
            false => account.now,
        };
        let all = self.accounts.iter().enumerate();
        all.map(move |(number, account)| (number as u32, owned(account)))
            .filter(|(_, owned)| owned.blocks > 0)
    }

    /// A step ends.
    pub(crate) fn step(&mut self) {
        for account in &mut self.accounts {
            if account.now.bytes == 0 && account.steps.is_empty() {
                continue;
            }
            if account.steps.len() == STEPS {
                account.steps.pop_front();
            }
            account.steps.push_back(account.now.bytes);
            if account.steps.iter().all(|bytes| *bytes == 0) {
                account.steps = VecDeque::new();
            }
        }
    }

    /// How an owner's bytes went over the last of `steps` steps; `None` while they are too few to tell.
    ///
    /// The least that it had at the end of a step in each quarter of the time: what comes and goes does not count, and what was
    /// taken once stays the same. If it is more in each quarter than in the one before, it grows.
    pub(crate) fn growth(&self, number: u32, steps: u64) -> Option<Grown> {
        let account = &self.accounts[number as usize];
        let window = usize::try_from(steps).unwrap_or(STEPS).min(STEPS);
        if window < FEWEST_STEPS {
            return None;
        }
        let kept = account.steps.len().min(window);
        let recent = account.steps.iter().skip(account.steps.len() - kept);
        let all: Vec<u64> = std::iter::repeat_n(0, window - kept).chain(recent.copied()).collect();
        let quarter = |n: usize| &all[n * window / 4..(n + 1) * window / 4];
        let least: Vec<u64> = (0..4).filter_map(|n| quarter(n).iter().min().copied()).collect();
        let [first, _, _, last] = least[..] else { return None };
        Some(Grown {
            per_step: (last as i64 - first as i64) / (window * 3 / 4) as i64,
            steadily: least.is_sorted_by(|before, after| before < after),
        })
    }

    /// Owners told apart.
    pub(crate) fn len(&self) -> usize {
        self.accounts.len() - 1
    }

    /// Bytes of host memory.
    pub(crate) fn bytes(&self) -> usize {
        let steps: usize = self.accounts.iter().map(|account| account.steps.capacity()).sum();
        self.accounts.capacity() * size_of::<Account>()
            + self.numbers.capacity() * size_of::<((StringId, Stack), u32)>()
            + steps * size_of::<u64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn two() -> (Owners, u32, u32) {
        let mut owners = Owners::new();
        let (a, b) = (
            owners.number(StringId(1), Stack::NONE),
            owners.number(StringId(2), Stack::NONE),
        );
        (owners, a, b)
    }

    #[test]
    fn what_grows_is_told_from_what_comes_and_goes_and_what_stays() {
        let (mut owners, leak, weights) = two();
        let busy = owners.number(StringId(3), Stack::NONE);
        owners.took(weights, 1000);
        for step in 0..40u64 {
            owners.took(busy, 100 * (step % 3));
            // Not in each step: every third one.
            if step % 3 == 0 {
                owners.took(leak, 30);
            }
            owners.step();
            owners.gave(busy, 100 * (step % 3));
            if step == 6 {
                assert_eq!(owners.growth(leak, 7), None, "too early to tell");
            }
        }
        let grown = |number| owners.growth(number, 40);
        assert_eq!(
            grown(leak),
            Some(Grown {
                per_step: 10,
                steadily: true
            })
        );
        for number in [weights, busy] {
            assert_eq!(
                grown(number),
                Some(Grown {
                    per_step: 0,
                    steadily: false
                })
            );
        }
    }

    #[test]
    fn what_was_taken_late_and_once_does_not_grow() {
        let (mut owners, late, _) = two();
        for step in 0..40 {
            if step == 20 {
                owners.took(late, 1 << 20);
            }
            owners.step();
        }
        assert_eq!(owners.growth(late, 40).map(|grown| grown.steadily), Some(false));
    }

    #[test]
    fn owners_are_limited() {
        let mut owners = Owners::new();
        for n in 0..MOST as u32 + 10 {
            owners.number(StringId(n), Stack::NONE);
        }
        assert_eq!(owners.len(), MOST - 1);
        assert_eq!(owners.number(StringId(u32::MAX), Stack::NONE), 0);
        assert_eq!(owners.number(StringId(5), Stack::NONE), 6);
    }
}
