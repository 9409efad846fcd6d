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
/// All steps are told apart in half as many spans to so many, each of as many steps: what leaks seldom is seen over all of them only.
const SPANS: usize = 32;

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
    /// The least of them in each span that is over, likewise, and in the one that is not.
    spans: Vec<u64>,
    least: u64,
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
    /// Steps that ended.
    steps: u64,
    /// Steps of a span.
    span: u64,
}

impl Account {
    /// A step ends: the first one of a span, or the last one.
    fn step(&mut self, first: bool, last: bool) {
        let bytes = self.now.bytes;
        if bytes == 0 && self.steps.is_empty() {
            return;
        }
        if self.steps.len() == STEPS {
            self.steps.pop_front();
        }
        self.steps.push_back(bytes);
        self.least = if first { bytes } else { self.least.min(bytes) };
        if last {
            self.spans.push(self.least);
        }
        if self.steps.iter().all(|bytes| *bytes == 0) {
            (self.steps, self.spans, self.least) = Default::default();
        }
    }

    /// Two spans become one. There was an even number of them.
    fn merge_spans(&mut self) {
        if self.spans.len() % 2 == 1 {
            self.spans.insert(0, 0);
        }
        self.spans = self
            .spans
            .chunks(2)
            .filter_map(|two| two.iter().min().copied())
            .collect();
    }
}

/// The last of so many figures; what is missing in front was 0.
fn last<'a>(count: usize, kept: impl ExactSizeIterator<Item = &'a u64>) -> Vec<u64> {
    let missing = count.saturating_sub(kept.len());
    let left_out = kept.len().saturating_sub(count);
    std::iter::repeat_n(0, missing)
        .chain(kept.skip(left_out).copied())
        .collect()
}

/// The least of some figures in each part between these eighths of them; nothing if a part has none.
fn least_between<const N: usize>(all: &[u64], eighths: [usize; N]) -> Vec<u64> {
    let parts = eighths
        .windows(2)
        .map(|two| &all[two[0] * all.len() / 8..two[1] * all.len() / 8]);
    parts.filter_map(|part| part.iter().min().copied()).collect()
}

impl Owners {
    pub(crate) fn new() -> Owners {
        let mut owners = Owners {
            accounts: Vec::new(),
            numbers: HashMap::new(),
            last: 0,
            peaks: 0,
            steps: 0,
            span: 1,
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
            spans: Vec::new(),
            least: 0,
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
        let first = self.steps.is_multiple_of(self.span);
        self.steps += 1;
        let last = self.steps.is_multiple_of(self.span);
        self.accounts.iter_mut().for_each(|account| account.step(first, last));
        if self.steps == self.span * SPANS as u64 {
            self.accounts.iter_mut().for_each(Account::merge_spans);
            self.span *= 2;
        }
    }

    /// How an owner's bytes went; `None` while there were too few steps to tell.
    pub(crate) fn growth(&self, number: u32) -> Option<Grown> {
        let account = &self.accounts[number as usize];
        let recent = self.recent_growth(account)?;
        let all = self.growth_over_all(account).filter(|_| !recent.steadily);
        Some(all.unwrap_or(recent))
    }

    /// Over the last steps.
    ///
    /// The least that it had at the end of a step in each quarter of the time: what comes and goes does not count, and what was
    /// taken once stays the same. If it is more in each quarter than in the one before, it grows.
    fn recent_growth(&self, account: &Account) -> Option<Grown> {
        let window = usize::try_from(self.steps).unwrap_or(STEPS).min(STEPS);
        if window < FEWEST_STEPS {
            return None;
        }
        let least = least_between(&last(window, account.steps.iter()), [0, 2, 4, 6, 8]);
        let [first, _, _, last] = least[..] else { return None };
        Some(Grown {
            per_step: (last as i64 - first as i64) / (window * 3 / 4) as i64,
            steadily: least.is_sorted_by(|before, after| before < after),
        })
    }

    /// Over all steps, if it grows there: what leaks now and then. It has to grow in the end, too, as what was filled once and stays does not.
    fn growth_over_all(&self, account: &Account) -> Option<Grown> {
        let spans = usize::try_from(self.steps / self.span).ok()?;
        let least = least_between(&last(spans, account.spans.iter()), [0, 2, 4, 6, 7, 8]);
        let [first, _, _, _, last] = least[..] else { return None };
        let between = (spans * 7 / 8) as u64 * self.span;
        least.is_sorted_by(|before, after| before < after).then(|| Grown {
            per_step: (last - first).div_ceil(between).cast_signed(),
            steadily: true,
        })
    }

    /// Owners told apart.
    pub(crate) fn len(&self) -> usize {
        self.accounts.len() - 1
    }

    /// Bytes of host memory.
    pub(crate) fn bytes(&self) -> usize {
        let of_account = |account: &Account| account.steps.capacity() + account.spans.capacity();
        let steps: usize = self.accounts.iter().map(of_account).sum();
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
                assert_eq!(owners.growth(leak), None, "too early to tell");
            }
        }
        let grown = |number| owners.growth(number);
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
        assert_eq!(owners.growth(late).map(|grown| grown.steadily), Some(false));
    }

    /// A service that leaks with one request of some hundred has blocks of each time, and none of what it does else.
    #[test]
    fn what_leaks_seldom_grows_over_all_steps() {
        let (mut owners, leak, filled) = two();
        let comes_and_goes = owners.number(StringId(3), Stack::NONE);
        let steadily = |owners: &Owners, number| owners.growth(number).map(|grown| grown.steadily);
        for step in 0..40_000u64 {
            if step % 300 == 299 {
                owners.took(leak, 600);
            }
            if step < 3000 {
                owners.took(filled, 10);
            }
            match step % 500 {
                0 => (0..step / 1000).for_each(|_| owners.took(comes_and_goes, 100)),
                490 => (0..step / 1000).for_each(|_| owners.gave(comes_and_goes, 100)),
                _ => {}
            }
            owners.step();
            if step >= 4500 && step % 777 == 0 {
                assert_eq!(steadily(&owners, leak), Some(true), "{step}");
                for number in [filled, comes_and_goes] {
                    assert_eq!(steadily(&owners, number), Some(false), "{number}: {step}");
                }
            }
        }
        assert_eq!(owners.growth(leak).map(|grown| grown.per_step), Some(2));
        assert!(owners.accounts.iter().all(|account| account.spans.len() < SPANS));
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
