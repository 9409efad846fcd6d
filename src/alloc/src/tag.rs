//! Who allocates: a name that a thread carries for the length of a scope.
//!
//! A tag is a small number; its text is looked up once per allocator and never on the hot path.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::marker::PhantomData;
use std::sync::Arc;

use crate::lock::Shared;

/// Distinct names a process may use, as [`scope`] says; further ones share [`OTHER`].
const MAX_NAMES: usize = 4095;
pub(crate) const OTHER: &str = "(other tags)";

/// A name's number; 0 is no name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tag(pub(crate) u32);

thread_local! {
    static CURRENT: Cell<u32> = const { Cell::new(0) };
    /// The open scopes and their tags, the innermost last. Each has a number that is higher than those before it.
    static OPEN: RefCell<Vec<(u64, Tag)>> = const { RefCell::new(Vec::new()) };
}

static NAMES: Shared<Names> = Shared::new(Names::new());

/// The names, each once, and their numbers. Those are looked up whenever a scope begins, by every thread behind one lock.
#[derive(Debug)]
struct Names {
    texts: Vec<Arc<str>>,
    /// With a hasher that a constant can be made of: names are the program's own, and nobody chooses them to collide.
    tags: HashMap<Arc<str>, Tag, BuildHasherDefault<DefaultHasher>>,
}

impl Names {
    const fn new() -> Names {
        Names {
            texts: Vec::new(),
            tags: HashMap::with_hasher(BuildHasherDefault::new()),
        }
    }

    fn text(&self, tag: Tag) -> Option<&str> {
        let index = (tag.0 as usize).checked_sub(1)?;
        self.texts.get(index).map(|text| &**text)
    }

    fn tag(&mut self, name: &str) -> Tag {
        if let Some(tag) = self.tags.get(name) {
            return *tag;
        }
        if self.texts.len() < MAX_NAMES {
            return self.add(name);
        }
        let other = self.tags.get(OTHER).copied();
        other.unwrap_or_else(|| self.add(OTHER))
    }

    fn add(&mut self, name: &str) -> Tag {
        let name: Arc<str> = name.into();
        self.texts.push(Arc::clone(&name));
        let tag = Tag(self.texts.len() as u32);
        self.tags.insert(name, tag);
        tag
    }
}

/// The calling thread's tag.
#[inline]
pub(crate) fn current() -> Tag {
    Tag(CURRENT.with(Cell::get))
}

/// A tag's text; empty for tag 0.
pub(crate) fn name(tag: Tag) -> String {
    let names = NAMES.lock();
    let text = names.as_ref().and_then(|names| names.text(tag));
    text.unwrap_or_default().to_owned()
}

fn number(name: &str) -> Tag {
    if name.is_empty() {
        return Tag(0);
    }
    NAMES.lock().map_or(Tag(0), |mut names| names.tag(name))
}

/// Names what this thread allocates until the guard is dropped; scopes nest, the innermost counts, whatever the order in which they end. A
/// guard that is forgotten (`std::mem::forget`) never ends.
///
/// It is the thread that has the name, not the task: in async code a guard belongs between two `.await`s. Held across one it names what other
/// tasks of the thread allocate meanwhile, where the guard can be held at all: a future that has one is not `Send`.
///
/// Names are meant to be few ("optimizer", not "step 17"): after 4,095 different ones in a process, for all its allocators and until its
/// end, each further one counts as "(other tags)". A channel has room for 1,024 strings ([`Options::strings`](crate::Options)), with the names
/// of pools and marks: further tags are "(other tags)" to who looks from outside, and in snapshots, unless a history is recorded.
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

/// Does something while nobody can look up a name.
#[cfg(test)]
pub(crate) fn while_locked<R>(work: impl FnOnce() -> R) -> R {
    let _names = NAMES.lock();
    work()
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

    #[test]
    fn after_4095_names_each_new_one_is_the_same() {
        let mut names = Names::new();
        let tags: Vec<Tag> = (0..4100).map(|n| names.tag(&n.to_string())).collect();
        assert_eq!(names.text(tags[4094]), Some("4094"));
        assert_eq!((tags[4095], tags[4099]), (Tag(4096), Tag(4096)));
        assert_eq!(names.text(tags[4095]), Some(OTHER));
        assert_eq!([names.tag("0"), names.tag("4094")], [Tag(1), Tag(4095)]);
        // Who has its name before shares it.
        let mut names = Names::new();
        let other = names.tag(OTHER);
        let last = (0..4100).map(|n| names.tag(&n.to_string())).last();
        assert_eq!((last, names.texts.len()), (Some(other), 4095));
    }
}
