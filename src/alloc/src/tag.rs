//! Who allocates: a name that a thread carries for the length of a scope.
//!
//! A tag is a small number; its text is looked up once per allocator and never on the hot path.

use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::{Mutex, PoisonError};

/// Distinct names a process may use. Names are meant to be few ("optimizer", not "step 17"); further ones share
/// [`OTHER`].
const MAX_TAGS: usize = 4096;
const OTHER: &str = "(other tags)";

/// A name's number; 0 is no name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tag(pub(crate) u32);

thread_local! {
    static CURRENT: Cell<u32> = const { Cell::new(0) };
}

static NAMES: Mutex<Vec<Box<str>>> = Mutex::new(Vec::new());

/// The calling thread's tag.
#[inline]
pub(crate) fn current() -> Tag {
    Tag(CURRENT.with(Cell::get))
}

/// A tag's text; empty for tag 0.
pub(crate) fn name(tag: Tag) -> String {
    let names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    let index = (tag.0 as usize).checked_sub(1);
    index
        .and_then(|i| names.get(i))
        .map_or_else(String::new, |name| name.to_string())
}

fn number(name: &str) -> Tag {
    if name.is_empty() {
        return Tag(0);
    }
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    let full = names.len() >= MAX_TAGS - 1;
    let known = |names: &[Box<str>], name: &str| names.iter().position(|n| **n == *name);
    let at = known(&names, name)
        .or_else(|| if full { known(&names, OTHER) } else { None })
        .unwrap_or_else(|| {
            names.push(if full { OTHER.into() } else { name.into() });
            names.len() - 1
        });
    Tag(at as u32 + 1)
}

/// Names what this thread allocates until the guard is dropped; scopes nest, the innermost counts.
///
/// ```
/// let _scope = gpumem_alloc::scope("optimizer");
/// ```
#[must_use = "the name holds until the guard is dropped"]
pub fn scope(name: &str) -> Scope {
    let outer = CURRENT.with(|current| current.replace(number(name).0));
    Scope {
        outer,
        here: PhantomData,
    }
}

/// Restores the outer name when dropped. It belongs to the thread that made it.
#[derive(Debug)]
pub struct Scope {
    outer: u32,
    here: PhantomData<*const ()>,
}

impl Drop for Scope {
    fn drop(&mut self) {
        // A guard may outlive its thread's locals during thread exit; there is nothing left to restore then.
        let _ = CURRENT.try_with(|current| current.set(self.outer));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scopes_nest_and_belong_to_their_thread() {
        assert_eq!(name(current()), "");
        let _outer = scope("forward");
        {
            let _inner = scope("attention");
            assert_eq!(name(current()), "attention");
            assert!(
                std::thread::spawn(|| name(current()).is_empty())
                    .join()
                    .is_ok_and(|empty| empty)
            );
        }
        assert_eq!(name(current()), "forward");
        assert_eq!(number("forward"), current(), "the same text is the same tag");
    }
}
