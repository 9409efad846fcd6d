//! Names in the rows of the table: rows can be shown_text apart at every size.

use super::fixture;
use super::gallery::drawn;
use super::rules::{SIZES, at_80x24};
use super::screens::text;
use crate::model::*;

#[test]
fn rows_of_one_program_name_their_devices() {
    let mut model = fixture::several();
    let alone = at_80x24(&model);
    assert!(alone.contains("FRAG") && !alone.contains("DEVICE"), "{alone}");
    let mut other = model.live.processes[0].clone();
    other.id.device = model.live.devices[1].key;
    other.device_label = model.live.devices[1].label.clone();
    model.live.processes[1] = other;
    let both = at_80x24(&model);
    let devices =
        ["GPU 0", "GPU 1"].map(|label| both.lines().any(|row| row.starts_with(&format!("    4121  {label} "))));
    assert_eq!(devices, [true; 2], "{both}");
}

/// The number of the GPU is shown where space is short, and costs no other column.
#[test]
fn rows_name_their_gpu_at_80_columns() {
    let mut model = fixture::h100();
    let mut second = model.live.devices[0].clone();
    (second.key, second.label) = (DeviceKey::Uuid([8; 16]), "GPU 12".into());
    (model.live.processes[1].id.device, model.live.processes[1].device_label) = (second.key, second.label.clone());
    model.live.devices.push(second);
    let drawn = at_80x24(&model);
    let rows = [
        "     PID  GPU  JOB/",
        "    4121    0  serve",
        "    5570   12  train.py ",
    ]
    .map(|row| drawn.contains(row));
    assert_eq!(rows, [true; 3], "{drawn}");
    assert!(drawn.contains("FRAG") && !drawn.contains("DEVICE"), "{drawn}");
}

/// Their command lines begin alike; only the job's name differs.
#[test]
fn replays_are_distinguished_by_their_jobs() {
    let mut model = fixture::h100();
    for (process, trace) in model.live.processes.iter_mut().zip(["moe", "gan"]) {
        process.command = "gpumem-tui demo replay --headless --json --steer --parent 77 --device sim".into();
        process.label = "demo replay".into();
        process.job = format!("replay torch211_{trace}.csv.gz");
    }
    for (w, h) in SIZES {
        let drawn = text(&drawn(model.clone(), w, h, Colors::Mono, false).0);
        for trace in ["moe", "gan"] {
            assert!(drawn.contains(&format!("torch211_{trace}")), "{w}x{h}:\n{drawn}");
        }
        let alone = drawn.contains(" JOB ");
        assert_eq!((alone, drawn.contains("JOB/COMMAND")), (w == 200, w < 200), "{drawn}");
        assert_eq!(drawn.contains("replay --headless"), alone, "{drawn}");
    }
    model.ui.view = View::Blocks;
    assert!(at_80x24(&model).contains("GPU 0: replay torch211_moe.csv.gz"));
}

/// The rank follows the name, which is cut if it is too long.
#[test]
fn rank_is_shown_after_a_long_job_name() {
    let mut model = fixture::h100();
    for (process, rank) in model.live.processes.iter_mut().zip([3, 12]) {
        process.job = "finetune-llama-3-70b-instruct-with-adapters-of-rank-64".into();
        process.rank = Some(rank);
    }
    for (w, h) in SIZES.into_iter().filter(|(w, _)| *w >= 80) {
        let drawn = text(&drawn(model.clone(), w, h, Colors::Mono, false).0);
        for rank in [":3 ", ":12 "] {
            assert!(drawn.contains(&format!("…{rank}")), "{w}x{h}:\n{drawn}");
        }
    }
    let report = crate::report::text(&model, 80);
    assert!(report.contains("..:3 ") && report.contains("..:12 "), "{report}");
}

/// `torchrun` sets ranks but no job.
#[test]
fn ranks_are_shown_without_a_job() {
    let mut model = fixture::h100();
    for (process, rank) in model.live.processes.iter_mut().zip([3, 12]) {
        (process.job, process.rank) = (String::new(), Some(rank));
    }
    for (w, h) in SIZES.into_iter().filter(|(w, _)| *w >= 80) {
        let drawn = text(&drawn(model.clone(), w, h, Colors::Mono, false).0);
        for rank in ["rank 3 ", "rank 12 "] {
            assert!(drawn.contains(rank), "{w}x{h}:\n{drawn}");
        }
    }
    let report = crate::report::text(&model, 80);
    assert!(
        report.contains(" rank 3 serve.py ") && report.contains(" rank 12 train.py "),
        "{report}"
    );
    model.ui.view = View::Blocks;
    assert!(at_80x24(&model).contains("GPU 0: rank 3 serve.py"));
}

/// No process publishes, so every other column would hold dashes.
#[test]
fn rows_name_their_device_when_nothing_else_is_known() {
    let mut model = fixture::several();
    model.live.processes.iter_mut().for_each(|p| p.figures = None);
    let shown_text = at_80x24(&model);
    assert!(
        shown_text.contains("DEVICE") && !shown_text.contains("FRAG"),
        "{shown_text}"
    );
}

/// Fills a model with `rows` processes, more than a table has lines.
fn many(model: &mut Model, rows: usize) {
    let row = model.live.processes[0].clone();
    let numbered = |n| Process {
        pid: 1000 + n as u32,
        id: ProcessId {
            owner: Owner::Pid(n as u32, 1),
            ..row.id
        },
        ..row.clone()
    };
    model.live.processes = (0..rows).map(numbered).collect();
    model.rows = (0..rows).collect();
}

/// The numbers of the rows above and below stand at the right of the heading.
#[test]
fn number_of_rows_out_of_view_is_shown() {
    let mut model = fixture::h100();
    many(&mut model, 200);
    for (w, h) in SIZES {
        for (selected, last) in [(0, false), (99, false), (199, true)] {
            model.ui.process = Some(model.live.processes[selected].id);
            let (buffer, hits) = drawn(model.clone(), w, h, Colors::Mono, false);
            let (drawn, page) = (text(&buffer), usize::from(hits.page));
            let end = (selected + 1).max(page);
            let shown_text = match (w, selected + 1 - page.min(selected + 1)) {
                (80, 0) => format!(" ↓{}\n", 200 - end),
                (80, above) if last => format!(" ↑{above}\n"),
                (80, above) => format!(" ↑{above} ↓{}\n", 200 - end),
                (_, above) => format!(" {}-{end} of 200 rows ", above + 1),
            };
            assert!(drawn.contains(&shown_text), "{w}x{h}: {shown_text:?}\n{drawn}");
            let pid = format!(" {} ", model.live.processes[selected].pid);
            assert!(drawn.contains(&pid), "{w}x{h}:\n{drawn}");
        }
    }
    many(&mut model, 20);
    model.ui.process = model.live.processes.last().map(|p| p.id);
    let few = at_80x24(&model);
    assert!(few.contains(" 6-20 of 20\n"), "{few}");
    many(&mut model, 200);
    let whole = at_80x24(&fixture::h100());
    assert!(!whole.contains(" of 4"), "{whole}");
    (model.ui.filter.text, model.ui.process) = ("serve".into(), None);
    let filtered = text(&drawn(model, 120, 40, Colors::Mono, false).0);
    assert!(filtered.contains("200 of 200 match \"serve\", 1-"), "{filtered}");
}

/// Findings, devices, notices and messages have what the table leaves.
#[test]
fn half_of_the_screen_is_for_the_table() {
    let mut model = fixture::h100();
    many(&mut model, 200);
    model.live.findings = (0..9)
        .map(|n| Finding {
            severity: Severity::Warning,
            process: None,
            about: About::Machine,
            text: format!(
                "finding {n} has a long text, which would take several lines of the screen if it could have them"
            ),
        })
        .collect();
    let card = model.live.devices[0].clone();
    for devices in [1, 2, 8, 16, 100] {
        let numbered = |n| Device {
            key: DeviceKey::Uuid([n; 16]),
            ..card.clone()
        };
        model.live.devices = (0..devices).map(numbered).collect();
        for width in [40, 80, 120, 200] {
            for height in 10..=60 {
                let (buffer, hits) = drawn(model.clone(), width, height, Colors::Mono, false);
                let framed = text(&buffer).contains(" rows ─");
                let lines = hits.page + if framed { 3 } else { 1 };
                assert!(
                    lines >= (height - 1).div_ceil(2),
                    "{devices} devices, {width}x{height}: {lines} lines"
                );
            }
        }
    }
}

/// The second click of a double click must hit the same row.
#[test]
fn selected_row_stays_in_place() {
    let mut model = fixture::h100();
    many(&mut model, 200);
    let card = model.live.devices[0].clone();
    let numbered = |n| Device {
        key: DeviceKey::Uuid([n; 16]),
        ..card.clone()
    };
    model.live.devices = (0..100).map(numbered).collect();
    let places = |hits: &Hits| -> Vec<_> {
        let rows = hits.areas.iter();
        rows.filter(|hit| matches!(hit.target, Target::Process(_) | Target::Device(_)))
            .copied()
            .collect()
    };
    for (w, h) in SIZES {
        let mut model = model.clone();
        model.ui.process = Some(model.live.processes[199].id);
        model.ui.device = Some(model.live.devices[99].key);
        model.ui.hits = drawn(model.clone(), w, h, Colors::Mono, false).1;
        let before = places(&model.ui.hits);
        model.ui.process = Some(model.live.processes[196].id);
        model.ui.device = Some(model.live.devices[94].key);
        // This holds even if another view was open in between.
        model.ui.view = View::Timeline;
        model.ui.hits = drawn(model.clone(), w, h, Colors::Mono, false).1;
        model.ui.view = View::Overview;
        let after = places(&drawn(model.clone(), w, h, Colors::Mono, false).1);
        assert_eq!(after, before, "{w}x{h}");
        model.ui.process = Some(model.live.processes[0].id);
        let hits = drawn(model.clone(), w, h, Colors::Mono, false).1;
        let first = Target::Process(model.live.processes[0].id);
        assert!(
            hits.areas.iter().any(|hit| hit.target == first),
            "{w}x{h}: it is in view"
        );
    }
}

/// If NVML counts no process, its column is left out and the rows are sorted by reserved memory.
#[test]
fn column_without_figures_is_left_out() {
    let headings = |model: &Model| {
        let drawn = at_80x24(model);
        let lines = drawn.lines().find(|line| line.contains(" PID ")).map(str::to_owned);
        lines.unwrap_or_default()
    };
    let shown_text = headings(&fixture::h100());
    assert!(
        shown_text.contains("NVML▾") && !shown_text.contains("RESERVED▾"),
        "{shown_text}"
    );
    let mut simulated = fixture::simulated();
    let shown_text = headings(&simulated);
    assert!(
        !shown_text.contains("NVML") && shown_text.contains("RESERVED▾"),
        "{shown_text}"
    );
    simulated.ui.popup = Some(Popup::Sort { selected: 0 });
    let menu = at_80x24(&simulated);
    let now = menu.lines().find(|line| line.contains("▾ now")).unwrap_or_default();
    assert!(now.contains(" reserved "), "{menu}");
}
