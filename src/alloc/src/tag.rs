//! Who allocates: a name that a thread carries for the length of a scope.
//!
//! A tag is a small number; its text is looked up once per allocator and never on the hot path.

use std::cell::{Cell, RefCell};
use std::marker::PhantomData;

use crate::lock::Shared;

/// Distinct names a process may use. Names are meant to be few ("optimizer", not "step 17"); further ones share
/// [`OTHER`].
const MAX_TAGS: usize = 4096;
const OTHER: &str = "(other tags)";

/// A name's number; 0 is no name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tag(pub(crate) u32);

thread_local! {
    static CURRENT: Cell<u32> = const { Cell::new(0) };
    /// The open scopes and their tags, the innermost last. Each has a number that is higher than those before it.
    static OPEN: RefCell<Vec<(u64, Tag)>> = const { RefCell::new(Vec::new()) };
}

static NAMES: Shared<Vec<Box<str>>> = Shared::new(Vec::new());

/// The calling thread's tag.
#[inline]
pub(crate) fn current() -> Tag {
    Tag(CURRENT.with(Cell::get))
}

/// A tag's text; empty for tag 0.
pub(crate) fn name(tag: Tag) -> String {
    let Some(names) = NAMES.lock() else {
        return String::new();
    };
    let index = (tag.0 as usize).checked_sub(1);
    index
        .and_then(|i| names.get(i))
        .map_or_else(String::new, |name| name.to_string())
}

fn number(name: &str) -> Tag {
    if name.is_empty() {
        return Tag(0);
    }
    let Some(mut names) = NAMES.lock() else { return Tag(0) };
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

/// Names what this thread allocates until the guard is dropped; scopes nest, the innermost counts, whatever the order in which they end. A
/// guard that is forgotten (`std::mem::forget`) never ends.
///
/// It is the thread that has the name, not the task: in async code a guard belongs between two `.await`s. Held across one it names what other
/// tasks of the thread allocate meanwhile, where the guard can be held at all: a future that has one is not `Send`.
///
/// ```
/// let _scope = gpumem_alloc::scope("optimizer");
/// ```
pub fn scope(name: &str) -> Scope {
    let tag = number(name);
    let number = OPEN.try_with(|open| {
        let mut open = open.borrow_mut();
        let number = open.last().map_or(0, |(last, _)| last + 1);
        open.push((number, tag));
        CURRENT.with(|current| current.set(tag.0));
        number
    });
    Scope {
        number: number.ok(),
        here: PhantomData,
    }
}

/// Ends its scope when dropped. It belongs to the thread that made it.
#[derive(Debug)]
#[must_use = "the name holds until the guard is dropped"]
pub struct Scope {
    /// Its number; none where the thread was about to end.
    number: Option<u64>,
    here: PhantomData<*const ()>,
}

impl Drop for Scope {
    fn drop(&mut self) {
        // A guard may outlive its thread's locals during thread exit; there is nothing left to restore then.
        let _ = OPEN.try_with(|open| {
            let mut open = open.borrow_mut();
            open.retain(|(number, _)| Some(*number) != self.number);
            let innermost = open.last().map_or(Tag(0), |(_, tag)| *tag);
            CURRENT.with(|current| current.set(innermost.0));
        });
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

    #[test]
    fn scopes_that_do_not_end_in_their_order_leave_the_innermost_that_is_open() {
        let [first, second, third] = ["first", "second", "third"].map(scope);
        drop(first);
        assert_eq!(name(current()), "third");
        drop(third);
        assert_eq!(name(current()), "second");
        let fourth = scope("fourth");
        drop(second);
        assert_eq!(name(current()), "fourth");
        drop(fourth);
        assert_eq!(name(current()), "");
    }
}
