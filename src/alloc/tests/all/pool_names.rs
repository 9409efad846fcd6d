//! By what name and id a pool is known to who looks from outside: the channel, a snapshot.

use std::os::unix::fs::PermissionsExt;

use gpumem_alloc::device::{Sim, SimConfig};
use gpumem_alloc::{Allocator, Config, MempoolId, Options, PoolConfig, Publish, Snapshot, Stream};
use gpumem_channel::Reader;
use gpumem_snapshot::Value;

const MIB: usize = 1 << 20;
const S: Stream = Stream(1);

#[test]
fn who_looks_from_outside_sees_which_pool_memory_is_of() {
    let dir = tempfile::Builder::new()
        .permissions(std::fs::Permissions::from_mode(0o700))
        .tempdir_in("/dev/shm")
        .unwrap();
    let options = Options {
        dir: Some(dir.path().to_owned()),
        ..Options::default()
    };
    let config = Config {
        publish: Publish::On(options),
        ..Config::default()
    };
    let alloc = Allocator::new(Sim::new(SimConfig::default()).device(), config).unwrap();
    let tenant = alloc.pool("tenant \x1b[31ma", PoolConfig::default()).unwrap();
    let graph = alloc.private_pool().unwrap();
    let theirs = alloc.private_pool_with_id(MempoolId(2, 7)).unwrap();
    let _held = [
        alloc.alloc::<u8>(3 * MIB, S).unwrap(),
        tenant.alloc::<u8>(3 * MIB, S).unwrap(),
        graph.alloc::<u8>(3 * MIB, S).unwrap(),
        theirs.alloc::<u8>(3000, S).unwrap(),
    ];

    let mut reader = Reader::open(&alloc.channel().unwrap()).unwrap();
    let seen = reader.refresh().unwrap();
    let segments = &seen.devices[0].segments;
    let mut names: Vec<&str> = segments.iter().map(|map| seen.string(map.segment.pool_name)).collect();
    names.sort_unstable();
    assert_eq!(names, ["", "pool (2, 7)", "private pool 2", "tenant \u{fffd}[31ma"]);

    let snapshot = alloc.snapshot().unwrap();
    assert_eq!(snapshot.check(), []);
    let mut pickle = Vec::new();
    snapshot.write_pickle(&mut pickle).unwrap();
    let mut json = Vec::new();
    snapshot.write_json(&mut json).unwrap();
    let read = |bytes: &[u8]| Snapshot::from_bytes(bytes).unwrap();
    for snapshot in [&snapshot, &read(&pickle), &read(&json)] {
        let mut pools: Vec<_> = snapshot
            .segments
            .iter()
            .map(|segment| {
                let named = segment.extra.and_then(|extra| snapshot.lookup(extra, "pool_name"));
                let name = named.map(|name| match name {
                    Value::Text(text) => snapshot.tables.get_text(*text),
                    other => panic!("{other:?}"),
                });
                (segment.segment_pool_id, name)
            })
            .collect();
        pools.sort_unstable();
        let expected = [
            ((0, 0), None),
            ((0, 1), Some("tenant \x1b[31ma")),
            ((2, 0), Some("private pool 2")),
            ((2, 7), Some("pool (2, 7)")),
        ];
        assert_eq!(pools, expected);
    }
}

#[test]
fn no_two_pools_have_the_same_id() {
    let config = Config {
        publish: Publish::Off,
        ..Config::default()
    };
    let alloc = Allocator::new(Sim::new(SimConfig::default()).device(), config).unwrap();
    let given = alloc.private_pool_with_id(MempoolId(2, 0)).unwrap();
    let error = alloc.private_pool_with_id(MempoolId(2, 0)).unwrap_err().to_string();
    assert_eq!(error, "pool: there is a pool of id (2, 0) already");
    let error = alloc.private_pool_with_id(MempoolId(0, 0)).unwrap_err().to_string();
    assert_eq!(
        error,
        "pool: the id (0, 0) is that of memory which is no pool's: use another one"
    );
    let next = alloc.private_pool().unwrap();
    assert_eq!((given.id(), next.id()), (MempoolId(2, 0), MempoolId(3, 0)));
    // A label of ours stands in nobody's way.
    let named = alloc.pool(next.name(), PoolConfig::default()).unwrap();
    assert_eq!((named.name(), named.id()), ("private pool 2", MempoolId(0, 3)));
    assert_eq!(given.name(), "pool (2, 0)");
    drop(given);
    assert_eq!(
        alloc.private_pool_with_id(MempoolId(2, 0)).unwrap().id(),
        MempoolId(2, 0)
    );
}

#[test]
fn what_was_given_up_is_free_while_somebody_has_a_clone() {
    let config = Config {
        publish: Publish::Off,
        ..Config::default()
    };
    let alloc = Allocator::new(Sim::new(SimConfig::default()).device(), config).unwrap();
    let old = alloc.private_pool_with_id(MempoolId(2, 0)).unwrap();
    old.give_up_name();
    let new = alloc.private_pool_with_id(MempoolId(2, 0)).unwrap();
    let held = [&old, &new].map(|pool| pool.alloc::<u8>(3 * MIB, S).unwrap());
    assert_eq!(
        [&old, &new].map(|pool| pool.stats().allocation.current),
        [1, 1],
        "they are two"
    );
    drop((old, held));
    let error = alloc.private_pool_with_id(new.id()).unwrap_err().to_string();
    assert_eq!(error, "pool: there is a pool of id (2, 0) already");
}
