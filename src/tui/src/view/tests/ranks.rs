//! The ranks of a job side by side, and the mark at the one that is unlike the others.

use gpumem_probe::Reading;

use super::fixture::ranks::{eight, many};
use super::fixture::{G, M};
use super::gallery::drawn;
use super::screens::text;
use crate::model::*;

fn at(model: &Model, width: u16, height: u16) -> String {
    text(&drawn(model.clone(), width, height, Colors::Mono, false).0)
}

/// A model in which the ranks are open, after its processes were changed.
fn opened(mut model: Model, change: impl FnOnce(&mut Vec<Process>)) -> Model {
    change(&mut model.live.processes);
    model.rows = (0..model.live.processes.len()).collect();
    model.live.jobs = Jobs::of(&model.live.processes);
    model.ui.popup = Some(Popup::Ranks);
    model
}

fn line_of<'a>(screen: &'a str, words: &str) -> &'a str {
    let mut lines = screen.lines();
    lines
        .find(|line| line.contains(words))
        .unwrap_or_else(|| panic!("{words}:\n{screen}"))
}

/// Neither depends on colours.
#[test]
fn outlier_is_marked_in_the_table_and_the_popup() {
    for (width, height) in [(40, 20), (80, 24), (120, 40), (200, 50)] {
        let table = at(&eight(), width, height);
        assert!(line_of(&table, "8103 ").starts_with(['!', '│']), "{table}");
        assert_eq!(
            table
                .lines()
                .filter(|line| line.contains("! ") && line.contains("8103"))
                .count(),
            1,
            "{table}"
        );
        let popup = at(&opened(eight(), |_| ()), width, height);
        assert_eq!(
            popup.matches("│ ! ").count(),
            if width >= 120 { 1 } else { 2 },
            "with its note:\n{popup}"
        );
        assert!(popup.contains("+12.1 GiB reserved"), "{popup}");
    }
}

#[test]
fn contexts_on_other_cards_are_shown() {
    let below = "GPU 0 also holds 3.5 GiB of 7 ranks that use other devices.";
    let model = opened(eight(), |_| ());
    for (width, height, beside) in [(80, 24, 0), (120, 40, 6), (200, 50, 7)] {
        let screen = at(&model, width, height);
        assert!(screen.contains(below), "{screen}");
        assert_eq!(screen.matches("also on GPU 0: 512 MiB").count(), beside, "{screen}");
    }
    let one = opened(eight(), |processes| processes.truncate(9));
    let screen = at(&one, 80, 24);
    assert!(
        screen.contains("GPU 0 also holds 512 MiB of rank 1, which uses another device."),
        "{screen}"
    );
    let three = at(&opened(eight(), |processes| processes.truncate(11)), 80, 24);
    assert!(
        three.contains("of ranks 1, 2 and 3, which use other devices."),
        "{three}"
    );
}

/// Whichever is selected: it may be far from the outlier.
#[test]
fn outlier_out_of_view_is_named_below() {
    for place in [0, 40, 63] {
        let mut model = opened(many(), |_| ());
        model.ui.process = Some(model.live.processes[place].id);
        for (width, height) in [(80, 24), (120, 40), (200, 50)] {
            let screen = at(&model, width, height);
            assert!(screen.contains("│ ! rank 40: +3.0 GiB reserved"), "{screen}");
            let selected = screen.lines().any(|line| line.contains(&format!(" {place}    0  ")));
            assert!(selected, "{place} is in view:\n{screen}");
        }
    }
}

#[test]
fn two_ranks_have_a_difference_and_no_outlier() {
    let two = |more: u64| {
        let model = opened(eight(), |processes| {
            processes.truncate(2);
            let figures = processes.iter_mut().map(|p| p.figures.as_mut().unwrap());
            for (figures, reserved) in figures.zip([40 * G, 40 * G + more]) {
                figures.reserved = reserved;
            }
        });
        let mut model = model;
        model.ui.process = Some(model.live.processes[0].id);
        at(&model, 80, 24)
    };
    let screen = two(12 * G);
    assert!(
        screen.contains("Rank 1 reserves 12.0 GiB more than rank 0.") && !screen.contains("│ ! "),
        "{screen}"
    );
    assert!(!two(0).contains("more than rank"), "{}", two(0));
}

#[test]
fn ranks_that_all_differ_are_called_uneven() {
    let screen = |some: usize| {
        let model = opened(eight(), |processes| {
            for process in &mut processes[..some] {
                let figures = process.figures.as_mut().unwrap();
                (figures.reserved, figures.allocated) = (20 * G, 15 * G);
                process.nvml = Reading::Value(20 * G);
            }
        });
        at(&model, 80, 24)
    };
    let uneven = "The ranks differ too much for one to stand out: 20.0 GiB to 52.3 GiB reserved.";
    assert!(screen(2).contains(&uneven[..60]), "{}", screen(2));
    assert!(!screen(0).contains("too much"), "{}", screen(0));
}

#[test]
fn missing_figure_of_a_rank_is_no_zero() {
    let model = opened(eight(), |processes| {
        processes[2].figures = None;
        processes[2].state = ProcessState::Inconsistent("torn".into());
        processes[5].figures.as_mut().unwrap().complete = false;
    });
    let screen = at(&model, 120, 40);
    let figures: Vec<&str> = line_of(&screen, " 2    2  ").split_whitespace().collect();
    assert_eq!(figures[3..8], ["-", "-", "-", "-", "40.5G"], "{screen}");
    assert!(
        line_of(&screen, " 5    5  ").contains(" 5.4G             -  "),
        "{screen}"
    );
}

#[test]
fn job_that_ends_while_it_is_shown_is_explained() {
    let model = opened(eight(), |processes| {
        for process in processes {
            process.state = ProcessState::Exited;
        }
    });
    assert!(at(&model, 80, 24).contains("The selected process is no rank of a job that runs here."));
}

#[test]
fn ranks_of_simulated_devices_are_labelled() {
    let model = opened(eight(), |processes| {
        for process in processes.iter_mut() {
            let Owner::Channel(key) = process.id.owner else {
                continue;
            };
            process.id.device = DeviceKey::Simulated(key, 0);
            process.device_label = format!("SIM {}", process.pid);
        }
        processes.truncate(8);
    });
    let mut model = model;
    model.ui.process = Some(model.live.processes[0].id);
    let screen = at(&model, 80, 24);
    assert!(
        screen.contains("SIMULATED, 8 of 16 ranks here") && screen.contains("SIM 8103"),
        "{screen}"
    );
}

/// A channel may have any figures and any name.
#[test]
fn hostile_figures_and_names_are_drawn_within_the_screen() {
    let model = opened(eight(), |processes| {
        for (n, process) in processes.iter_mut().enumerate() {
            process.job = "日本語 ".repeat(60);
            process.rank = Some(u32::MAX - n as u32);
            process.device_label = "GPU of a very long name".into();
            if let Some(figures) = &mut process.figures {
                let most = u64::MAX - n as u64 * M;
                (figures.reserved, figures.allocated, figures.cached) = (most, most, 0);
                figures.largest_free = u64::MAX;
            }
        }
    });
    for width in 0..130 {
        for height in [0, 1, 2, 3, 5, 8, 24] {
            at(&model, width, height);
        }
    }
}
