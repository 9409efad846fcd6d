//! What gives way when memory runs out, and what a report says of that.

use gpumem_alloc::device::{Call, Sim, Timeline};
use gpumem_alloc::{Allocator, Config, Help, Overflow, PoolConfig, Stream};

use crate::common::{MIB, short};

const S: Stream = Stream(1);

fn start(total_mib: usize, budget_mib: u64) -> (Sim, Allocator) {
    let config = Config {
        budget: Some(budget_mib << 20),
        ..Config::default()
    };
    crate::common::start(total_mib * MIB, Timeline::default(), config)
}

fn of(priority: i32, budget_mib: Option<u64>, overflow: Overflow) -> PoolConfig {
    PoolConfig {
        budget: budget_mib.map(|mib| mib << 20),
        overflow,
        priority,
    }
}

/// Who asks for more than its budget leaves beside what it holds would wait for the others' work in vain, and they for it.
#[test]
fn a_tenant_that_holds_its_budget_waits_for_nobody() {
    let (sim, alloc) = start(1000, 500);
    let tenant = alloc.pool("tenant", of(0, Some(64), Overflow::Refuse)).unwrap();
    let _held = tenant.alloc::<u8>(60 * MIB, S).unwrap();
    let other = alloc.pool("other", of(-1, None, Overflow::Refuse)).unwrap();
    for _ in 0..3 {
        drop(other.alloc::<u8>(10 * MIB, S).unwrap());
        let report = short(tenant.alloc::<u8>(10 * MIB, S));
        assert_eq!(
            report.helps,
            [
                Help::RaisePoolBudget { bytes: 6 << 20 },
                Help::SmallerBy { bytes: 6 << 20 }
            ]
        );
    }
    assert_eq!((sim.calls(Call::Synchronize), sim.calls(Call::Free)), (0, 0));
}

/// The same of an allocator: what is cached stays, and no work is waited for.
#[test]
fn what_fits_in_no_cache_leaves_it_as_it_is() {
    let (sim, alloc) = start(1000, 200);
    let _held = alloc.alloc::<u8>(150 * MIB, S).unwrap();
    drop(alloc.alloc::<u8>(30 * MIB, S).unwrap());
    let before = alloc.stats().all().reserved_bytes.current;
    short(alloc.alloc::<u8>(60 * MIB, S));
    assert_eq!(alloc.stats().all().reserved_bytes.current, before);
    assert_eq!(sim.calls(Call::Synchronize), 0);
    let all = alloc.alloc::<u8>(50 * MIB, S);
    assert!(all.is_ok(), "what fits once the cache has gone back is served: {all:?}");
}

/// What can only be served outside of its pool is, at the cost of those that matter less than it.
#[test]
fn what_overflows_keeps_its_pools_cache_while_others_matter_less() {
    let (_sim, alloc) = start(1000, 200);
    let vip = alloc.pool("vip", of(5, Some(50), Overflow::Shared)).unwrap();
    let low = alloc.pool("low", of(-1, None, Overflow::Refuse)).unwrap();
    let reserved = |of: &gpumem_alloc::Pool| of.stats().reserved_bytes.current >> 20;
    let _held = vip.alloc::<u8>(20 * MIB, S).unwrap();
    drop(vip.alloc::<u8>(22 * MIB, S).unwrap());
    drop(low.alloc::<u8>(120 * MIB, S).unwrap());
    let _first = vip.alloc::<u8>(60 * MIB, S).unwrap();
    assert_eq!((reserved(&vip), reserved(&low)), (42, 0));
    // At last its own goes, too.
    let _second = vip.alloc::<u8>(110 * MIB, S).unwrap();
    assert_eq!(reserved(&vip), 20);
}

#[test]
fn a_larger_budget_is_advised_where_others_would_give_way_for_it() {
    let (_sim, alloc) = start(1000, 200);
    drop(alloc.alloc::<u8>(195 * MIB, S).unwrap());
    let tenant = alloc.pool("tenant", of(1, Some(9), Overflow::Refuse)).unwrap();
    let report = short(tenant.alloc::<u8>(18 * MIB, S));
    let help = Help::RaisePoolBudget { bytes: 9 << 20 };
    assert!(report.helps.contains(&help), "{report}");
    tenant.set_budget(Some(18 << 20)).unwrap();
    assert!(tenant.alloc::<u8>(18 * MIB, S).is_ok());

    let (_sim, alloc) = start(300, 200);
    let low = alloc.pool("low", of(-1, None, Overflow::Refuse)).unwrap();
    drop(low.alloc::<u8>(190 * MIB, S).unwrap());
    let report = short(alloc.alloc::<u8>(250 * MIB, S));
    assert_eq!(
        report.helps,
        [
            Help::RaiseBudget { bytes: 50 << 20 },
            Help::SmallerBy { bytes: 50 << 20 }
        ]
    );
    alloc.set_budget(Some(250 << 20)).unwrap();
    assert!(alloc.alloc::<u8>(250 * MIB, S).is_ok());
}
