//! The model against the driver's figures, and against naive models.

use proptest::prelude::*;

use super::*;

const FREE: u64 = 1 << 40;

fn block(index: usize) -> Range<usize> {
    index * PAGES..(index + 1) * PAGES
}

/// Makes memory of `blocks` blocks, all of which are at one processor.
fn at(who: Processor, blocks: usize, capacity: usize) -> Uvm {
    let mut uvm = Uvm::new(blocks as u64 * BLOCK, capacity as u64 * BLOCK);
    uvm.prefetch(who, 0..blocks * PAGES, &mut |_| {});
    uvm.counters = Counters::default();
    uvm
}

/// What a driver of series 580 does on an H100: 576 faults for 96 blocks.
#[test]
fn cpu_takes_six_faults_for_a_block_on_the_gpu() {
    let mut uvm = at(Processor::Gpu, 96, 96);
    uvm.touch(Processor::Cpu, block(0), Access::Write, &mut |_| {});
    let by = |uvm: &Uvm, cause| uvm.counters.moves(Direction::ToCpu, cause);
    assert_eq!(uvm.counters.cpu_faults, 6);
    assert_eq!(
        (by(&uvm, Cause::Fault).migrations, by(&uvm, Cause::Fault).bytes),
        (6, 6 * PAGE)
    );
    let added = [60, 60, 124, 252, 508, 1020].map(|kib: u64| kib << 10);
    assert_eq!(
        (by(&uvm, Cause::Prefetch).migrations, by(&uvm, Cause::Prefetch).bytes),
        (6, added.iter().sum())
    );
    uvm.touch(Processor::Cpu, PAGES..96 * PAGES, Access::Read, &mut |_| {});
    assert_eq!(uvm.counters.cpu_faults, 576);
    assert_eq!(uvm.counters.bytes(Direction::ToCpu), 96 * BLOCK);
    assert_eq!(uvm.used(), 0);
}

/// An H100 counted about 48,000 faults for 96 blocks: 500 a block.
#[test]
fn kernel_faults_on_every_page_of_a_block_in_two_batches() {
    let mut uvm = at(Processor::Cpu, 4, 4);
    uvm.touch(Processor::Gpu, 0..4 * PAGES, Access::Write, &mut |_| {});
    assert_eq!((uvm.counters.gpu_faults, uvm.counters.batches), (4 * 512, 8));
    assert_eq!(uvm.counters.bytes(Direction::ToGpu), 4 * BLOCK);
    assert_eq!(uvm.counters.moves(Direction::ToGpu, Cause::Prefetch).bytes, 0);
}

#[test]
fn first_touch_and_prefetch_of_untouched_memory_move_nothing() {
    for who in [Processor::Cpu, Processor::Gpu] {
        let mut uvm = Uvm::new(3 * BLOCK, FREE);
        uvm.touch(who, block(0), Access::Write, &mut |_| {});
        uvm.prefetch(who, block(1), &mut |_| {});
        assert_eq!(
            [Direction::ToGpu, Direction::ToCpu].map(|to| uvm.counters.bytes(to)),
            [0, 0]
        );
        assert_eq!(uvm.residency(2 * PAGES), Residency::Nowhere);
        let faults = uvm.counters.cpu_faults + uvm.counters.gpu_faults;
        uvm.touch(who, block(1), Access::Write, &mut |_| {});
        assert_eq!(uvm.counters.cpu_faults + uvm.counters.gpu_faults, faults);
    }
}

#[test]
fn evicted_block_is_mapped_again_by_one_fault() {
    let mut uvm = at(Processor::Cpu, 3, 2);
    uvm.prefetch(Processor::Gpu, 0..3 * PAGES, &mut |_| {});
    assert_eq!(uvm.counters.moves(Direction::ToCpu, Cause::Eviction).bytes, BLOCK);
    assert_eq!(uvm.residency(0), Residency::Cpu);
    uvm.touch(Processor::Cpu, block(0), Access::Read, &mut |_| {});
    assert_eq!(
        (uvm.counters.cpu_faults, uvm.counters.bytes(Direction::ToCpu)),
        (1, BLOCK)
    );
}

#[test]
fn bouncing_page_is_throttled_then_pinned_then_free_again() {
    let mut uvm = at(Processor::Cpu, 1, 2);
    let round = |uvm: &mut Uvm| {
        uvm.touch(Processor::Gpu, 0..1, Access::Write, &mut |_| {});
        uvm.touch(Processor::Cpu, 0..1, Access::Write, &mut |_| {});
        uvm.counters
    };
    assert_eq!(round(&mut uvm).throttled, 0);
    assert_eq!(round(&mut uvm).throttled, 2);
    let pinned = (0..10).map(|_| round(&mut uvm)).last().unwrap_or_default();
    assert_eq!((pinned.throttled, pinned.remote), (10, 1));
    let later = round(&mut uvm);
    assert_eq!(
        (later.gpu_faults, later.cpu_faults),
        (pinned.gpu_faults, pinned.cpu_faults)
    );
    uvm.counters.ns += 151_000_000;
    let after = round(&mut uvm);
    assert_eq!(
        (after.throttled, after.gpu_faults),
        (10, later.gpu_faults + 1),
        "it moves again"
    );
}

#[test]
fn memory_preferred_at_the_cpu_stays_there() {
    let mut uvm = at(Processor::Cpu, 2, 2);
    uvm.advise(0..2 * PAGES, Advice::PreferCpu(true));
    for _ in 0..3 {
        uvm.touch(Processor::Gpu, 0..2 * PAGES, Access::Write, &mut |_| {});
        uvm.touch(Processor::Cpu, 0..2 * PAGES, Access::Write, &mut |_| {});
    }
    assert_eq!(
        [Direction::ToGpu, Direction::ToCpu].map(|to| uvm.counters.bytes(to)),
        [0, 0]
    );
    assert_eq!((uvm.counters.cpu_faults, uvm.counters.gpu_faults), (0, 2 * 256));
    // A prefetch call is stronger than advice.
    uvm.prefetch(Processor::Gpu, block(0), &mut |_| {});
    assert_eq!(uvm.residency(0), Residency::Gpu);
}

#[test]
fn write_takes_the_other_copy_away_page_by_page() {
    let mut uvm = at(Processor::Cpu, 1, 2);
    uvm.advise(block(0), Advice::ReadMostly(true));
    uvm.touch(Processor::Gpu, block(0), Access::Read, &mut |_| {});
    uvm.touch(Processor::Cpu, block(0), Access::Read, &mut |_| {});
    assert_eq!((uvm.counters.duplicated, uvm.counters.cpu_faults), (512, 0));
    assert_eq!(uvm.residency(9), Residency::Both);
    uvm.touch(Processor::Cpu, 9..10, Access::Write, &mut |_| {});
    assert_eq!((uvm.residency(8), uvm.residency(9)), (Residency::Both, Residency::Cpu));
    assert_eq!((uvm.counters.invalidated, uvm.counters.cpu_faults), (1, 1));
    uvm.advise(block(0), Advice::ReadMostly(false));
    assert_eq!((uvm.residency(8), uvm.used()), (Residency::Cpu, 0));
}

/// A step of the program.
#[derive(Clone, Debug)]
enum Op {
    Touch(Processor, Range<usize>, Access),
    Prefetch(Processor, Range<usize>),
    Advise(Advice),
}

fn processor() -> impl Strategy<Value = Processor> {
    prop_oneof![Just(Processor::Cpu), Just(Processor::Gpu)]
}

fn op() -> impl Strategy<Value = Op> {
    let pages = || (0..PAGES, 1..=PAGES).prop_map(|(first, count)| first..(first + count).min(PAGES));
    let access = prop_oneof![Just(Access::Read), Just(Access::Write)];
    prop_oneof![
        5 => (processor(), pages(), access).prop_map(|(who, pages, access)| Op::Touch(who, pages, access)),
        2 => (processor(), pages()).prop_map(|(to, pages)| Op::Prefetch(to, pages)),
        1 => any::<bool>().prop_map(|on| Op::Advise(Advice::PreferCpu(on))),
        1 => any::<bool>().prop_map(|on| Op::Advise(Advice::ReadMostly(on))),
    ]
}

const BLOCKS: usize = 5;

fn everywhere(uvm: &Uvm) -> Vec<Residency> {
    (0..uvm.pages()).map(|page| uvm.residency(page)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn bytes_are_those_of_the_pages_that_moved(
        capacity in 2..=BLOCKS,
        ops in proptest::collection::vec((0..BLOCKS, op()), 1..40),
    ) {
        let mut uvm = Uvm::new(BLOCKS as u64 * BLOCK, capacity as u64 * BLOCK);
        let mut read_mostly = [false; BLOCKS];
        for (index, op) in ops {
            let (before, old) = (everywhere(&uvm), uvm.counters);
            let there = |pages: Range<usize>| pages.start + index * PAGES..pages.end + index * PAGES;
            match op.clone() {
                Op::Touch(who, pages, access) => uvm.touch(who, there(pages), access, &mut |_| {}),
                Op::Prefetch(to, pages) => uvm.prefetch(to, there(pages), &mut |_| {}),
                Op::Advise(advice) => uvm.advise(block(index), advice),
            }
            if let Op::Advise(Advice::ReadMostly(on)) = op {
                read_mostly[index] = on;
            }
            let after = everywhere(&uvm);
            let (mut to_gpu, mut to_cpu) = (0, 0);
            for (page, (before, after)) in before.iter().zip(&after).enumerate() {
                use Residency::{Both, Cpu, Gpu, Nowhere};
                to_gpu += u64::from(*before == Cpu && matches!(after, Gpu | Both));
                to_cpu += u64::from(*before == Gpu && matches!(after, Cpu | Both));
                prop_assert!(*before == Nowhere || *after != Nowhere, "page {page} is lost");
                prop_assert!(*after != Both || read_mostly[page / PAGES], "page {page} is at both");
                if page / PAGES != index {
                    let evicted = matches!((before, after), (Gpu | Both, Cpu));
                    prop_assert!(before == after || evicted, "page {page} is of another block than {index}: {op:?}");
                }
            }
            prop_assert_eq!(uvm.counters.bytes(Direction::ToGpu) - old.bytes(Direction::ToGpu), to_gpu * PAGE);
            prop_assert_eq!(uvm.counters.bytes(Direction::ToCpu) - old.bytes(Direction::ToCpu), to_cpu * PAGE);
            prop_assert!(uvm.counters.ns >= old.ns);
            let at_gpu = after.chunks(PAGES).filter(|pages| pages.iter().any(|at| matches!(at, Residency::Gpu | Residency::Both)));
            prop_assert_eq!(at_gpu.count(), uvm.used());
            prop_assert!(uvm.used() <= capacity);
            if let Op::Touch(who, pages, access) = op {
                let reached = |page: &usize| uvm.blocks[index].reached(who, *page, access);
                prop_assert!(pages.clone().all(|page| reached(&page)), "a touched page is reached");
            }
        }
    }

    #[test]
    fn full_gpu_evicts_the_least_recently_faulted_block(
        capacity in 2..6_usize,
        touched in proptest::collection::vec(0..8_usize, 1..60),
    ) {
        let mut uvm = at(Processor::Cpu, 8, capacity);
        let (mut lru, mut misses, mut evicted) = (Vec::new(), 0, 0);
        for index in touched {
            if !lru.contains(&index) {
                misses += 1;
                if lru.len() == capacity {
                    lru.remove(0);
                    evicted += 1;
                }
                lru.push(index);
            }
            uvm.touch(Processor::Gpu, block(index), Access::Write, &mut |_| {});
            prop_assert_eq!(&uvm.lru, &lru);
        }
        prop_assert_eq!(uvm.counters.bytes(Direction::ToGpu), misses * BLOCK);
        prop_assert_eq!(uvm.counters.moves(Direction::ToCpu, Cause::Eviction).bytes, evicted * BLOCK);
        prop_assert_eq!(uvm.counters.evicted, evicted);
        prop_assert_eq!(uvm.counters.gpu_faults, misses * 512);
    }
}
