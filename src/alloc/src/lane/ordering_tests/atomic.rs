//! Stand-ins for the standard library's atomics.
//!
//! Most of a front's thousands are touched by one thread in a model, or by none: those are plain. Those that threads share are named by touching
//! them while the model [prepares](prepare), and are loom's from then on; it is an error if threads meet at another one. Each begins every
//! execution with its first value, so that one front serves all of them.

use std::cell::{Cell, RefCell, RefMut};
use std::rc::Rc;
pub(crate) use std::sync::atomic::Ordering;

use loom::sync::atomic as model;
use loom::thread::{self, ThreadId};

/// What is left out, wherever it is asked for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Without {
    Nothing,
    /// The table of streams: a store's release, a load's acquire.
    Release,
    Acquire,
    /// The same of locks.
    Unlock,
    Lock,
}

thread_local! {
    // Loom runs its threads as coroutines of one thread.
    static WITHOUT: Cell<Without> = const { Cell::new(Without::Nothing) };
    static EXECUTION: Cell<u64> = const { Cell::new(0) };
    static PREPARES: Cell<bool> = const { Cell::new(false) };
    static FIRST_THREAD: Cell<Option<ThreadId>> = const { Cell::new(None) };
}

/// From now on.
pub(super) fn leave_out(without: Without) {
    WITHOUT.set(without);
}

/// All stand-ins have their first values again. The calling thread prepares, begins the others and waits for them.
pub(super) fn begin_execution() {
    FIRST_THREAD.set(Some(thread::current().id()));
    EXECUTION.set(EXECUTION.get() + 1);
    PREPARES.set(false);
}

/// What this touches is shared.
pub(super) fn prepare<R>(work: impl FnOnce() -> R) -> R {
    PREPARES.set(true);
    let result = work();
    PREPARES.set(false);
    result
}

pub(super) fn execution() -> u64 {
    EXECUTION.get()
}

/// `order`, unless that is left out.
pub(super) fn unless(without: Without, order: Ordering) -> Ordering {
    if WITHOUT.get() == without {
        Ordering::Relaxed
    } else {
        order
    }
}

/// One of loom's.
pub(crate) trait Model {
    type Value: Copy + PartialEq;
    fn begin(value: Self::Value) -> Self;
    fn get(&self, order: Ordering) -> Self::Value;
    fn put(&self, value: Self::Value, order: Ordering);
}

macro_rules! models {
    ($($name:ident: $value:ty),*) => {$(
        impl Model for model::$name {
            type Value = $value;
            fn begin(value: $value) -> Self {
                model::$name::new(value)
            }
            fn get(&self, order: Ordering) -> $value {
                self.load(order)
            }
            fn put(&self, value: $value, order: Ordering) {
                self.store(value, order);
            }
        }

        pub(crate) type $name = StandIn<model::$name>;
    )*};
}

models!(AtomicBool: bool, AtomicU8: u8, AtomicU32: u32, AtomicU64: u64);

/// What stands in for an atomic.
pub(crate) struct StandIn<M: Model> {
    first: M::Value,
    now: RefCell<Now<M>>,
}

struct Now<M: Model> {
    execution: u64,
    /// If it is no thread's alone.
    shared: Option<Rc<M>>,
    value: M::Value,
    /// The thread's that has touched it.
    whose: Option<ThreadId>,
}

impl<M: Model> StandIn<M> {
    pub(crate) const fn new(first: M::Value) -> StandIn<M> {
        StandIn {
            first,
            now: RefCell::new(Now::new(0, first)),
        }
    }

    /// As it is in this execution.
    fn now(&self) -> RefMut<'_, Now<M>> {
        let mut now = self.now.borrow_mut();
        if now.execution != execution() {
            *now = Now::new(execution(), self.first);
        }
        if PREPARES.get() && now.shared.is_none() {
            now.shared = Some(Rc::new(M::begin(now.value)));
        }
        now
    }

    /// Loom's, if it is shared.
    pub(super) fn shared(&self) -> Option<Rc<M>> {
        self.now().shared.clone()
    }

    pub(crate) fn load(&self, order: Ordering) -> M::Value {
        if let Some(shared) = self.shared() {
            return shared.get(weaker(order));
        }
        let mut now = self.now();
        now.touch();
        now.value
    }

    pub(crate) fn store(&self, value: M::Value, order: Ordering) {
        if let Some(shared) = self.shared() {
            return shared.put(value, weaker(order));
        }
        let mut now = self.now();
        // Whoever stores what is there changes nothing.
        if now.value != value {
            now.touch();
            now.value = value;
        }
    }
}

impl<M: Model> Now<M> {
    const fn new(execution: u64, value: M::Value) -> Now<M> {
        Now {
            execution,
            shared: None,
            value,
            whose: None,
        }
    }

    /// What is not shared is one thread's, and that of the one that prepares, which waits for the others.
    fn touch(&mut self) {
        let this = thread::current().id();
        if FIRST_THREAD.get() != Some(this) {
            assert!(*self.whose.get_or_insert(this) == this, "shared and not prepared");
        }
    }
}

impl AtomicU8 {
    /// For counts that change under a lock.
    pub(crate) fn fetch_add(&self, more: u8, order: Ordering) -> u8 {
        let before = self.load(order);
        self.store(before + more, order);
        before
    }
}

impl<M: Model<Value: Default>> Default for StandIn<M> {
    fn default() -> StandIn<M> {
        StandIn::new(M::Value::default())
    }
}

impl<M: Model> std::fmt::Debug for StandIn<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("StandIn")
    }
}

fn weaker(order: Ordering) -> Ordering {
    match order {
        Ordering::Release => unless(Without::Release, order),
        Ordering::Acquire => unless(Without::Acquire, order),
        _ => order,
    }
}
