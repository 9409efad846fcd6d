//! Things that come again and again, kept once and known by a number.

use std::collections::HashMap;
use std::sync::Arc;

/// Things of one kind that are kept; number 0 stands for all further ones.
const MOST: usize = 65_536;

/// Slices of `T`, each once.
#[derive(Debug)]
pub(crate) struct Numbers<T: ?Sized> {
    things: Vec<Arc<T>>,
    numbers: HashMap<Arc<T>, u32>,
}

impl<T: ?Sized + std::hash::Hash + Eq> Numbers<T> {
    /// `other` is number 0.
    pub(crate) fn new(other: Arc<T>) -> Numbers<T> {
        Numbers {
            things: vec![other],
            numbers: HashMap::new(),
        }
    }

    pub(crate) fn number<'a>(&mut self, thing: &'a T) -> u32
    where
        Arc<T>: From<&'a T>,
    {
        if let Some(number) = self.numbers.get(thing) {
            return *number;
        }
        if self.things.len() >= MOST {
            return 0;
        }
        let number = self.things.len() as u32;
        let thing: Arc<T> = thing.into();
        self.things.push(Arc::clone(&thing));
        self.numbers.insert(thing, number);
        number
    }

    /// All of them, by number.
    pub(crate) fn things(&self) -> &[Arc<T>] {
        &self.things
    }

    /// Bytes of host memory.
    pub(crate) fn bytes(&self) -> usize {
        let things: usize = self.things.iter().map(|thing| size_of_val(&**thing)).sum();
        things + self.things.len() * (2 * size_of::<Arc<T>>() + 2 * size_of::<usize>() + size_of::<u32>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beyond_the_limit_all_are_the_same() {
        let mut numbers: Numbers<[u64]> = Numbers::new(Arc::new([]));
        let given: Vec<u32> = (0..MOST as u64 + 5).map(|n| numbers.number(&[n])).collect();
        assert_eq!((given[0], given[MOST - 2], given[MOST - 1]), (1, MOST as u32 - 1, 0));
        assert_eq!((numbers.number(&[3]), numbers.things().len()), (4, MOST));
    }
}
