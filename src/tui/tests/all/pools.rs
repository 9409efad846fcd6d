//! A program with pools, seen from outside: reports name the pool that memory belongs to.

use gpumem_alloc::device::{Sim, SimConfig};
use gpumem_alloc::{Allocator, Config, Options, PoolConfig, Publish, Stream};
use gpumem_tests::{Terminal, World, said};
use serde_json::json;

const MIB: usize = 1 << 20;

#[test]
fn reports_and_the_block_map_name_the_pool() {
    let world = World::without_gpu();
    let options = Options {
        dir: Some(world.channels().to_owned()),
        ..Options::default()
    };
    let config = Config {
        publish: Publish::On(options),
        ..Config::default()
    };
    let allocator = Allocator::new(Sim::new(SimConfig::default()).device(), config).unwrap();
    let tenant = allocator.pool("tenant-a", PoolConfig::default()).unwrap();
    let _held = tenant.alloc::<u8>(30 * MIB, Stream::DEFAULT).unwrap();
    drop(tenant.alloc::<u8>(50 * MIB, Stream::DEFAULT).unwrap());

    let pool = json!({
        "name": "tenant-a", "reserved": 80 * MIB, "free_total": 50 * MIB, "largest_free": 50 * MIB, "segments": 2,
    });
    assert_eq!(world.json()["processes"][0]["allocator"]["pools"], json!([pool]));
    let report = said(&world.command(&["--once"]).output().unwrap().stdout);
    let line = format!(
        "({}) pool tenant-a: 80.0 MiB reserved, 50.0 MiB of it free, the largest block 50.0 MiB",
        std::process::id()
    );
    assert!(report.contains(&line), "{report}");
    for (columns, rows) in [(80, 24), (140, 40)] {
        let mut terminal = Terminal::start(&world, &["--interval", "100ms"], columns, rows);
        terminal.wait_for(&["publishing"]);
        terminal.keys("2");
        terminal.wait_for(&["tenant-a, large"]);
        terminal.keys("q");
    }
}
