//! The legends of a device's memory: which parts they name, and which are dropped first.

use gpumem_probe::Reading;

use super::fixture;
use super::gallery::drawn;
use super::screens::text;
use crate::model::*;

/// Sets the memory of a model's first device, which has 80 GiB.
fn holding(mut model: Model, memory: Partition) -> Model {
    let total = 80 << 30;
    model.live.devices[0].memory = Reading::Value(Partition { total, ..memory });
    model
}

/// The free memory is the figure that users look for first.
#[test]
fn free_memory_is_the_last_to_leave_a_legend() {
    for (model, free) in [(fixture::h100(), "· free"), (fixture::simulated(), "· not published")] {
        let legend = |width| {
            let screen = text(&drawn(model.clone(), width, 24, Colors::Mono, false).0);
            let line = screen.lines().find(|line| line.contains(free));
            line.unwrap_or_else(|| panic!("{width}:\n{screen}")).to_owned()
        };
        (30..=120).for_each(|width| drop(legend(width)));
        assert!(
            legend(50).contains("allocated") && !legend(50).contains("driver"),
            "{}",
            legend(50)
        );
        assert!(legend(120).contains("cached"), "{}", legend(120));
    }
    let model = holding(
        fixture::h100(),
        Partition {
            basis: Basis::Driver,
            other: 70 << 30,
            driver: Some(1 << 29),
            free: 19 << 29,
            ..Partition::default()
        },
    );
    let screen = text(&drawn(model, 40, 24, Colors::Mono, false).0);
    assert!(screen.contains("other 70.0G  · free 9.5G"), "{screen}");
}

/// Several bars have the same colours, so one line names them.
#[test]
fn one_legend_names_the_colours_of_several_devices() {
    let names = |model: &Model, w, h| {
        let screen = text(&drawn(model.clone(), w, h, Colors::Mono, false).0);
        let named = screen.lines().filter(|line| line.contains("▓ cached")).count();
        (named, screen)
    };
    for (w, h) in [(80, 24), (120, 40), (200, 50)] {
        for model in [fixture::h100(), fixture::several()] {
            let (named, screen) = names(&model, w, h);
            assert_eq!(named, 1, "{w}x{h}:\n{screen}");
        }
    }
    let (_, screen) = names(&fixture::several(), 200, 50);
    let figures = "▇ 27.5 GiB   ▓ 21.7 GiB   ░ 3.1 GiB   ╱ 480 MiB   · 26.9 GiB";
    assert!(screen.contains(figures), "{screen}");
}

/// Returns a device most of whose memory belongs to other programs.
fn crowded() -> Model {
    holding(
        fixture::h100(),
        Partition {
            basis: Basis::Driver,
            allocated: 3 << 30,
            cached: 4 << 30,
            other: 69 << 30,
            driver: Some(1 << 29),
            free: 7 << 29,
            ..Partition::default()
        },
    )
}

/// The longest part of the bar tells where the memory went.
#[test]
fn largest_part_stays_in_the_legend() {
    let of = |allocated: u64, width| {
        let mut model = crowded();
        if let Reading::Value(memory) = &mut model.live.devices[0].memory {
            memory.cached = memory.reserved() - allocated;
            memory.allocated = allocated;
        }
        let screen = text(&drawn(model, width, 20, Colors::Mono, false).0);
        let line = screen.lines().find(|line| line.contains("· free"));
        line.unwrap_or_else(|| panic!("{width}:\n{screen}")).to_owned()
    };
    let legend = |width| of(3 << 30, width);
    for width in 32..=120 {
        assert!(legend(width).contains("░ other 69.0"), "{width}: {}", legend(width));
    }
    // A short unit is better than a missing figure, and so is a short name.
    assert!(
        legend(60).contains("▇ alloc 3.0G  ▓ cached 4.0G  ░ other 69.0G  · free 3.5G"),
        "{}",
        legend(60)
    );
    // The choice does not change with what a program allocates.
    assert!(
        of(1 << 30, 60).contains("▇ alloc 1.0G  ▓ cached 6.0G"),
        "{}",
        of(1 << 30, 60)
    );
}

/// At 60 columns two blanks once cost the cache its place.
#[test]
fn short_names_keep_the_cache_in_a_legend() {
    let model = holding(
        fixture::simulated(),
        Partition {
            basis: Basis::Publishers,
            allocated: 47 << 30,
            cached: 15 << 30,
            free: 18 << 30,
            ..Partition::default()
        },
    );
    for (width, expected) in [
        (80, "▇ allocated 47.0   ▓ cached 15.0   · not published 18.0 GiB"),
        (60, "▇ alloc 47.0  ▓ cached 15.0  · not published 18.0 GiB"),
    ] {
        let screen = text(&drawn(model.clone(), width, 24, Colors::Mono, false).0);
        assert!(screen.contains(expected), "{screen}");
    }
}

#[test]
fn timeline_legend_keeps_the_largest_part() {
    let mut model = crowded();
    model.ui.view = View::Timeline;
    for width in 20..=120 {
        let screen = text(&drawn(model.clone(), width, 20, Colors::Mono, false).0);
        let line = screen.lines().find(|line| line.contains("░ other 69.0"));
        let line = line.unwrap_or_else(|| panic!("{width}:\n{screen}"));
        for (swatch, entries) in [('▇', ["▇ alloc 3.0", "▇ allocated 3.0"]), ('▓', ["▓ cached 4.0"; 2])] {
            let written = |entry: &&str| {
                ["G", " GiB", "  "]
                    .iter()
                    .any(|unit| line.contains(&format!("{entry}{unit}")))
            };
            let whole = !line.contains(swatch) || entries.iter().any(written);
            assert!(whole, "{width}: {line}");
        }
    }
}

/// 0.2 and 0.3 of 0.4 GiB would not add up.
#[test]
fn small_parts_have_a_unit_of_their_own() {
    let mib = |n: u64| n << 20;
    let simulated = |allocated, cached| Partition {
        basis: Basis::Publishers,
        allocated: mib(allocated),
        cached: mib(cached),
        free: (80 << 30) - mib(allocated + cached),
        ..Partition::default()
    };
    for (memory, used, legend) in [
        (
            simulated(195, 261),
            "456 MiB of 80.0 GiB published",
            "▇ allocated 195 MiB   ▓ cached 261 MiB   · not published 79.6 GiB",
        ),
        (
            simulated(700, 324),
            "1.0 of 80.0 GiB published",
            "▇ allocated 700 MiB   ▓ cached 324 MiB   · not published 79.0 GiB",
        ),
        (
            simulated(0, 0),
            "0.0 of 80.0 GiB published",
            "▇ allocated 0.0   ▓ cached 0.0   · not published 80.0 GiB",
        ),
    ] {
        let model = holding(fixture::simulated(), memory);
        let screen = text(&drawn(model, 80, 24, Colors::Mono, false).0);
        assert!(screen.contains(used) && screen.contains(legend), "{screen}");
    }
}
