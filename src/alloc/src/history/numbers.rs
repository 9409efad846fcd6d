//! Texts that come again and again, kept once and known by a number.

use std::collections::HashMap;
use std::sync::Arc;

/// Texts that are kept; number 0 stands for all further ones.
const MOST: usize = 65_536;

/// Texts, each once.
#[derive(Debug)]
pub(crate) struct Numbers {
    texts: Vec<Arc<str>>,
    numbers: HashMap<Arc<str>, u32>,
}

impl Numbers {
    /// `other` is number 0.
    pub(crate) fn new(other: &str) -> Numbers {
        Numbers {
            texts: vec![other.into()],
            numbers: HashMap::new(),
        }
    }

    pub(crate) fn number(&mut self, text: &str) -> u32 {
        if let Some(number) = self.numbers.get(text) {
            return *number;
        }
        if self.texts.len() >= MOST {
            return 0;
        }
        let number = self.texts.len() as u32;
        let text: Arc<str> = text.into();
        self.texts.push(Arc::clone(&text));
        self.numbers.insert(text, number);
        number
    }

    /// All of them, by number.
    pub(crate) fn texts(&self) -> &[Arc<str>] {
        &self.texts
    }

    /// Bytes of host memory.
    pub(crate) fn bytes(&self) -> usize {
        let texts: usize = self.texts.iter().map(|text| text.len()).sum();
        texts + self.texts.len() * (2 * size_of::<Arc<str>>() + 2 * size_of::<usize>() + size_of::<u32>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beyond_the_limit_all_are_the_same() {
        let mut numbers = Numbers::new("");
        let given: Vec<u32> = (0..MOST + 5).map(|n| numbers.number(&n.to_string())).collect();
        assert_eq!((given[0], given[MOST - 2], given[MOST - 1]), (1, MOST as u32 - 1, 0));
        assert_eq!((numbers.number("3"), numbers.texts().len()), (4, MOST));
    }
}
