//! What threads do that meet at lanes.

use std::ops::Range;

use super::*;

/// Their search begins at the same place.
const FIRST: Stream = Stream(1);
const SECOND: Stream = Stream(90);
/// Neither is one of the sizes that requests by class get.
const SIZE: u64 = 9 * 512 + 8192;
const TAG: Tag = Tag(0);

/// Opens a stream's lane, which is to have this number.
fn open(stream: Stream, number: u8) {
    assert_eq!(front().open(stream, 0, || Some(None)), Some(number));
}

/// Lends a block to a lane, which the program holds then. `leave`: for how many blocks more.
fn lend(number: u8, block: u32, leave: u64) -> Held {
    let grant = front().with(number, |lane| {
        lane.learn(TAG, StringId(0));
        allow(lane, leave);
        lane.adopt(Record::new(block, addr_of(block), SIZE, 0, SIZE, StringId(0)))
    });
    grant.flatten().unwrap().held
}

/// Allows a lane to count so many blocks more.
fn allow(lane: &mut Lane, blocks: u64) {
    for row in [0, BOTH] {
        (0..FIGURES).for_each(|figure| lane.counts.allow(row, figure, blocks * SIZE));
    }
}

fn addr_of(block: u32) -> u64 {
    (1 << 40) + u64::from(block) * SIZE
}

/// A block of a lane is set aside.
fn set_aside(number: u8, block: u32) {
    assert!(front().free(lend(number, block, 4), false));
}

/// Threads are going to look for a stream's lane.
fn share_search(streams: Range<usize>) {
    prepare(|| {
        for place in streams {
            front().streams[place].load(atomic::Ordering::Relaxed);
            front().numbers[place].load(atomic::Ordering::Relaxed);
        }
    });
}

/// Threads are going to meet at a lane, which is empty.
fn share_lane(number: u8) {
    prepare(|| {
        let small = &front().lists_of(number)[0];
        drop(front().lock(number));
        assert!(small.takes(SIZE) && small.first(SIZE).is_none() && small.is_empty());
    });
}

/// What a request gets.
fn ask(stream: Stream) -> Option<Lent> {
    front().allocate((SIZE, SIZE), stream, TAG, false).ok()
}

/// The heap has what a lane has set aside come back (`Heap::drain`): the blocks.
fn drain(number: u8) -> Vec<u32> {
    if !front().has_aside(number, 0) {
        return Vec::new();
    }
    let taken = front().with(number, |lane| std::iter::from_fn(|| lane.take_aside(0)).collect());
    let taken: Vec<Record> = taken.unwrap();
    taken.iter().map(|record| record.block).collect()
}

#[test]
fn a_stream_that_is_found_has_its_own_number() {
    fn model() {
        open(FIRST, 0);
        let place = place_of(SECOND);
        share_search(place..place + 2);
        let opens = thread::spawn(|| open(SECOND, 1));
        let looks = thread::spawn(|| {
            if let Some(number) = front().number_of(SECOND) {
                assert_eq!(number, 1, "another lane's number");
            }
            assert_eq!(front().number_of(FIRST), Some(0));
        });
        opens.join().unwrap();
        looks.join().unwrap();
    }
    assert_eq!(place_of(FIRST), place_of(SECOND));
    needs(model, "another lane's number", &[Without::Release, Without::Acquire]);
}

/// Two threads want the one block that is there, and give it back.
#[test]
fn a_block_is_held_by_one_thread_at_a_time() {
    thread_local! {
        static HELD: Cell<u32> = const { Cell::new(0) };
    }
    fn ask_and_give_back() {
        if let Some(lent) = ask(FIRST) {
            assert_eq!(HELD.replace(HELD.get() + 1), 0, "held twice");
            // Others may ask meanwhile.
            thread::yield_now();
            HELD.set(HELD.get() - 1);
            assert!(front().free(lent.held, false), "held twice");
        }
    }
    fn model() {
        HELD.set(0);
        let place = place_of(FIRST);
        share_search(place..place + 1);
        share_lane(0);
        open(FIRST, 0);
        set_aside(0, 7);
        let threads = [(); 2].map(|()| thread::spawn(ask_and_give_back));
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(drain(0), [7], "held twice");
    }
    needs(model, "held twice", &[Without::Unlock, Without::Lock]);
}

/// A request of a stream, while its lane goes from the first one to the second.
fn handing_over(stream: Stream) {
    let place = place_of(FIRST);
    share_search(place..place + 2);
    share_lane(0);
    open(FIRST, 0);
    set_aside(0, 1);
    let asks = thread::spawn(move || ask(stream).map(|lent| lent.addr));
    // `Heap::take_from_lane`, then `Heap::open_lane` and `Heap::lend` for the other stream.
    let heap = thread::spawn(|| {
        front().with(0, |lane| lane.open = false);
        let back = drain(0).len();
        let held = front().with(0, |lane| lane.held()).unwrap();
        if !held.is_empty() {
            assert!(front().with(0, |lane| lane.recall(0)).is_some());
        }
        front().leave(0);
        open(SECOND, 0);
        set_aside(0, 2);
        (back, held.len())
    });
    let (got, (back, held)) = (asks.join().unwrap(), heap.join().unwrap());
    let [firsts, seconds] = [1, 2].map(|block| usize::from(got == Some(addr_of(block))));
    assert_eq!(got.is_some(), firsts + seconds == 1);
    assert!(seconds == 0 || stream == SECOND, "another stream's block");
    assert!(firsts == 0 || stream == FIRST, "another stream's block");
    assert_eq!((held, back), (firsts, 1 - firsts), "lost, or held twice");
    assert_eq!(drain(0).len(), 1 - seconds, "lost, or held twice");
}

#[test]
fn a_lane_that_changes_hands_gives_nothing_of_one_stream_to_another() {
    needs(
        || handing_over(FIRST),
        "lost, or held twice",
        &[Without::Unlock, Without::Lock],
    );
    holds(|| handing_over(SECOND));
}

/// A lane is closed while its block is given back: either the heap finds it there, or is given it.
fn closing(looks_first: bool) {
    share_lane(0);
    open(FIRST, 0);
    let held = lend(0, 7, 4);
    let gives_back = thread::spawn(move || front().free(held, true));
    // `Heap::set_lending`, `Heap::take_from_lane`.
    let heap = thread::spawn(move || {
        let early = if looks_first { drain(0) } else { Vec::new() };
        front().with(0, |lane| lane.open = false);
        let late = if looks_first { Vec::new() } else { drain(0) };
        [early, late].concat()
    });
    let (taken, found) = (gives_back.join().unwrap(), heap.join().unwrap());
    assert_eq!(found.len(), usize::from(taken), "left in a closed lane");
}

#[test]
fn nothing_is_left_in_a_lane_that_is_closed() {
    needs(
        || closing(false),
        "left in a closed lane",
        &[Without::Unlock, Without::Lock],
    );
    fails(Without::Nothing, || closing(true), "left in a closed lane");
}

/// A lane begins to go by class while a block of another size is given back and asked for.
#[test]
fn no_block_of_another_size_stays_in_a_lane_that_goes_by_class() {
    fn model() {
        let place = place_of(FIRST);
        share_search(place..place + 1);
        share_lane(0);
        open(FIRST, 0);
        let held = lend(0, 7, 4);
        let gives_back = thread::spawn(move || {
            let taken = front().free(held, false);
            (usize::from(taken), usize::from(ask(FIRST).is_some()))
        });
        // `Heap::judge_classes`.
        let heap = thread::spawn(|| {
            front().set_by_class(0, true);
            drain(0).len()
        });
        let ((taken, asked), found) = (gives_back.join().unwrap(), heap.join().unwrap());
        assert_eq!(found + asked, taken, "left in a lane that goes by class");
    }
    assert_ne!(class_size(SIZE), SIZE);
    needs(
        model,
        "left in a lane that goes by class",
        &[Without::Unlock, Without::Lock],
    );
}

/// `Heap::lend_wished`, with leave for everybody. `blind`: it takes others' marks away and does not look what they are for.
fn lend_wished(wish: &Wish, blind: bool) -> Option<Lent> {
    let _heap = heap().lock();
    let mut own = None;
    let mut serve = |lane: u8| {
        let taken = front().with(lane, |lane| {
            let its = lane.wish()?;
            allow(lane, 1);
            lane.serve(its, StringId(0));
            lane.take_wished(wish, false)
        });
        own = own.or(taken.flatten().flatten());
    };
    while let Some(lane) = front().next_wishing() {
        if !blind || front().number_of(wish.stream) == Some(lane) {
            serve(lane);
        }
    }
    own.or_else(|| front().take_wished(wish, false))
}

/// Two requests of two lanes have no leave, and each goes to the heap, which serves all that wait.
fn wishing(blind: bool) {
    let place = place_of(FIRST);
    share_search(place..place + 2);
    [0, 1].into_iter().for_each(share_lane);
    open(FIRST, 0);
    open(SECOND, 1);
    prepare(|| {
        drop(heap().lock());
        assert_eq!(front().next_wishing(), None);
    });
    for lane in [0, 1] {
        set_aside(lane, u32::from(lane));
        let spend = |lane: &mut Lane| while lane.counts.allocate(0, SIZE, SIZE) {};
        front().with(lane, spend);
    }
    let asks = |stream| {
        thread::spawn(move || {
            let size = front().allocate((SIZE, SIZE), stream, TAG, false).unwrap_err();
            let wish = Wish {
                requested: SIZE,
                size,
                stream,
                tag: TAG,
            };
            lend_wished(&wish, blind).map(|lent| lent.addr)
        })
    };
    let got = [asks(FIRST), asks(SECOND)].map(|asks| asks.join().unwrap());
    assert_eq!(got, [0, 1].map(|block| Some(addr_of(block))), "a wish was lost");
}

#[test]
fn who_wishes_is_served() {
    holds(|| wishing(false));
    fails(Without::Nothing, || wishing(true), "a wish was lost");
}

/// The last handle goes while buffers do (`Handle::drop`, `Home::take_back`): one of them sees that nothing is left. `early`: the handle's
/// counts buffers before it has closed the lanes.
fn ending(early: bool) {
    share_lane(0);
    open(FIRST, 0);
    prepare(|| {
        drop(heap().lock());
        assert_eq!(front().numbers(), 0..1);
    });
    let held = [1, 2].map(|block| lend(0, block, 4));
    front().with(0, |lane| lane.buffers = 2);
    let is_done = |tenant: &Tenant| tenant.orphaned && tenant.buffers + front().buffers() == 0;
    let buffers = thread::spawn(move || {
        let give_back = |held| {
            if front().free(held, true) {
                return 0;
            }
            let mut tenant = heap().lock();
            tenant.buffers -= 1;
            u32::from(is_done(&tenant))
        };
        held.map(give_back)
    });
    let handle = thread::spawn(move || {
        let mut tenant = heap().lock();
        tenant.orphaned = true;
        let before = is_done(&tenant);
        front().each(|lane| lane.open = false);
        u32::from(if early { before } else { is_done(&tenant) })
    });
    let [first, second] = buffers.join().unwrap();
    assert_eq!(first + second + handle.join().unwrap(), 1, "who is the last?");
}

#[test]
fn one_sees_that_nothing_is_left() {
    holds(|| ending(false));
    fails(Without::Nothing, || ending(true), "who is the last?");
}
