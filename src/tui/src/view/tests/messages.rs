//! Messages about what is missing, hidden or too long.

use gpumem_probe::NvmlState;

use super::fixture;
use super::gallery::drawn;
use super::rules::at_80x24;
use super::screens::text;
use crate::model::*;

#[test]
fn black_box_with_unread_blocks_says_so() {
    let mut model = fixture::h100();
    model.ui.view = View::Blocks;
    model.map = None;
    model.live.processes[0].state = ProcessState::Died;
    let shown_text = at_80x24(&model);
    assert!(
        shown_text.contains("4121 died (black box): its map is being read."),
        "{shown_text}"
    );
    model.frozen = Some(Box::new(model.live.clone()));
    assert!(at_80x24(&model).contains("when p resumes"));
}

/// Without a driver the free memory is unknown, and the rest is called `not published`. Screen and report use the same words.
#[test]
fn screen_and_report_name_the_rest_alike() {
    for (model, name) in [(fixture::simulated(), "not published"), (fixture::h100(), "free")] {
        let (screen, report) = (at_80x24(&model), crate::report::text(&model, u16::MAX));
        let legend = screen.lines().find(|line| line.contains(" allocated ")).unwrap();
        let sum = report.lines().find(|line| line.contains(" = ")).unwrap();
        assert!(
            legend.contains(&format!("· {name} ")) && sum.contains(&format!("+ {name} ")),
            "{legend}{sum}"
        );
    }
}

#[test]
fn timeline_without_publishers_says_events_are_unknown() {
    let mut model = fixture::h100();
    model.ui.view = View::Timeline;
    model.live.devices[0].history.marks.clear();
    let shown_text = |model: &Model| {
        let text = text(&drawn(model.clone(), 120, 40, Colors::Mono, false).0);
        let line = text.lines().find(|line| line.contains("No "));
        line.unwrap_or_default().trim_matches(['│', ' ']).to_owned()
    };
    assert_eq!(
        shown_text(&model),
        "No event in this span: no publisher took or returned memory."
    );
    model.live.past = model.live.processes[3..].iter().map(|p| p.id).collect();
    model.live.processes.drain(..2);
    model.ui.process = None;
    model.rows = vec![0];
    assert_eq!(
        shown_text(&model),
        "No process here publishes events: memory taken and returned is not known."
    );
}

/// The process is in another container, or has just ended.
#[test]
fn unknown_names_are_shown_as_question_marks() {
    let mut model = fixture::h100();
    let process = &mut model.live.processes[2];
    (process.label, process.command, process.user) = Default::default();
    for (width, unknown) in [(80, "    6011  ?  "), (200, "    6011  ?         ?  ")] {
        let screen = text(&drawn(model.clone(), width, 50, Colors::Mono, false).0);
        assert!(screen.contains(unknown), "{screen}");
    }
}

/// The GPU was lost before the dashboard started.
#[test]
fn gpu_lost_from_the_start_has_no_last_figures() {
    let mut model = fixture::several();
    let device = &mut model.live.devices[1];
    device.memory = gpumem_probe::Reading::Failed("GPU is lost".into());
    (device.sensors, device.history) = Default::default();
    for (w, h) in [(120, 60), (200, 50)] {
        let screen = text(&drawn(model.clone(), w, h, Colors::Mono, false).0);
        assert!(screen.contains("LOST") && screen.contains("not known"), "{screen}");
        assert!(
            !screen.contains("last known figures") && !screen.contains("not asked yet"),
            "{screen}"
        );
    }
}

/// The reason is cut only with an ellipsis, and shown once if it is the same for both directions.
#[test]
fn reason_for_missing_pcie_figures_fits() {
    use gpumem_probe::Reading;
    let link = |pcie_rx: Reading<u64>, pcie_tx: Reading<u64>| {
        let mut model = fixture::several();
        let sensors = &mut model.live.devices[2].sensors;
        (sensors.pcie_rx, sensors.pcie_tx) = (pcie_rx, pcie_tx);
        let screen = text(&drawn(model, 120, 60, Colors::Mono, false).0);
        let lines: Vec<&str> = screen
            .lines()
            .filter_map(|line| Some(line.split_once("PCIe")?.1))
            .collect();
        lines[2].trim_matches(['│', ' ']).to_owned()
    };
    assert_eq!(link(Reading::NotSupported, Reading::NotSupported), "not supported");
    assert_eq!(link(Reading::Value(0), Reading::Value(0)), "H>D 0  D>H 0");
    assert_eq!(
        link(Reading::NoPermission, Reading::Failed("no".into())),
        "H>D no permission  D>H failed"
    );
}

/// The notice has it already, so its line below goes to another finding.
#[test]
fn driver_failure_is_shown_once() {
    let mut model = fixture::h100();
    model.live.nvml = fixture::failing().live.nvml;
    let text = model.live.nvml_failure().unwrap();
    model.live.findings.insert(
        0,
        Finding {
            severity: Severity::Error,
            process: None,
            about: Default::default(),
            text,
        },
    );
    let overview = at_80x24(&model);
    assert_eq!(overview.matches("version mismatch").count(), 1, "{overview}");
    assert!(overview.contains(" ! 4121: 17.1 GiB cached"), "{overview}");
    model.ui.view = View::Blocks;
    assert!(at_80x24(&model).contains("NVML: Driver/library version mismatch"));
}

#[test]
fn filter_is_shown_in_the_overview_only() {
    let mut model = fixture::h100();
    model.ui.filter.text = "train.py".into();
    model.rows = vec![1, 3];
    let last = |model: &Model| at_80x24(model).lines().last().unwrap().to_owned();
    assert!(
        last(&model).starts_with(" /train.py 2 of 4 match  Esc clear"),
        "{}",
        last(&model)
    );
    assert!(last(&model).ends_with("? help  q quit"), "{}", last(&model));
    model.ui.filter.editing = true;
    assert!(
        last(&model).starts_with(" /train.py   2 of 4 match  Enter keep"),
        "{}",
        last(&model)
    );
    (model.ui.filter.editing, model.ui.view) = (false, View::Timeline);
    assert!(!last(&model).contains("match"));
}

#[test]
fn filter_line_says_why_a_value_makes_no_sense() {
    let mut model = fixture::h100();
    model.ui.filter.text = "train gpu:x".into();
    model.ui.filter.editing = true;
    model.rows.clear();
    let last = |model: &Model| at_80x24(model).lines().last().unwrap().to_owned();
    let why = "gpu:x is not an index (0, 0:1), a UUID (GPU-6f5a) or sim";
    assert!(
        last(&model).contains(&format!(" /train gpu:x   {why}")),
        "{}",
        last(&model)
    );
    model.ui.filter.editing = false;
    let line = last(&model);
    assert!(
        line.contains("/train gpu:x gpu:x is not an index") && line.contains("… "),
        "{line}"
    );
    assert!(line.contains("Esc clear") && line.ends_with("? help  q quit"), "{line}");
    let words = at_80x24(&model).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains(&format!("matches the filter, since {why}")), "{words}");
}

#[test]
fn list_of_one_device_is_named() {
    let mut model = fixture::several();
    model.ui.one_device = true;
    model.rows = vec![1];
    let label = model.selected_device().unwrap().label.clone();
    let all = model.listable();
    let large = text(&drawn(model.clone(), 120, 40, Colors::Mono, false).0);
    assert!(large.contains(&format!("─ Processes on {label} ─")), "{large}");
    assert!(large.contains(&format!(" 1 row, d lists all {all} ")), "{large}");
    let small = at_80x24(&model);
    let last = small.lines().last().unwrap();
    assert!(
        last.starts_with(&format!(" {label} only 1 of {all}  d all devices")),
        "{last}"
    );
    model.ui.filter.text = "train".into();
    let small = at_80x24(&model);
    let last = small.lines().last().unwrap();
    let expected = format!(" {label} only  /train 1 of {all} match  Esc clear  d all devices");
    assert!(last.starts_with(&expected), "{last}");
    (model.rows, model.ui.filter.text) = (vec![], String::new());
    assert!(at_80x24(&model).contains(&format!("No process is listed on {label}. d lists")));
}

#[test]
fn missing_device_is_reported() {
    let mut model = fixture::h100();
    model.setup.only = vec![Only::Index(0), Only::Index(7)];
    let shown_text = at_80x24(&model);
    assert!(
        shown_text.contains("No such device: 7") && shown_text.contains("H100"),
        "{shown_text}"
    );
    model.setup.only.pop();
    assert!(!at_80x24(&model).contains("No such device"));
}

/// Texts below the table take only the lines that the table leaves empty.
#[test]
fn long_sentences_take_the_tables_empty_lines() {
    let words = |n: usize| vec!["word"; n].join(" ");
    let mut model = fixture::h100();
    model.live.findings[0].text = words(80);
    model.ui.toast = Some(Toast {
        text: words(20),
        severity: Severity::Info,
        until: 0,
    });
    let lines = |model: &Model| -> Vec<String> { at_80x24(model).lines().map(str::to_owned).collect() };
    let full = |lines: &[String]| lines.iter().filter(|line| line.contains("word")).count();
    let crowded = lines(&model);
    assert_eq!(
        crowded[20],
        format!(" ! {}…  m +1 more", &words(80)[..64]),
        "{crowded:#?}"
    );
    assert_eq!((full(&crowded), &crowded[22][..]), (3, &format!("   {}", words(5))[..]));
    model.rows = vec![0];
    let alone = lines(&model);
    assert_eq!(full(&alone), 5, "three lines and two: {alone:#?}");
    assert!(
        alone[19].ends_with("…  m more") && alone[21].starts_with(" i word") && alone[23].contains("q quit"),
        "{alone:#?}"
    );
    let above = |lines: &[String]| lines[..17].join("\n");
    let short = {
        let mut model = model.clone();
        model.live.findings[0].text = words(1);
        model.ui.toast = None;
        lines(&model)
    };
    assert_eq!(above(&alone), above(&short), "nothing moves");
    for view in [View::Blocks, View::Timeline, View::Demo] {
        model.ui.view = view;
        assert_eq!(
            full(&lines(&model)),
            3,
            "without empty lines a finding takes one: {view:?}"
        );
        let small = text(&drawn(model.clone(), 80, 23, Colors::Mono, false).0);
        assert_eq!(small.lines().filter(|line| line.contains("word")).count(), 2, "{small}");
    }
    // The sentence gets its further line in advance, and the view does not move when it is needed.
    let top = |n: usize| {
        let mut model = model.clone();
        (model.ui.view, model.ui.toast) = (View::Timeline, None);
        model.live.findings[0].text = words(n);
        lines(&model)[..20].join("\n")
    };
    assert_ne!(top(11), top(15));
    assert_eq!(top(15), top(16));
}

/// The tallest devices fill the space that the table leaves, and shrink for a long sentence.
#[test]
fn tall_device_shrinks_for_a_long_sentence() {
    let mut model = fixture::h100();
    model.rows = vec![0];
    model.live.findings.truncate(1);
    model.live.findings[0].text = ["word"; 40].join(" ");
    for (w, h) in [(120, 40), (120, 39), (200, 50)] {
        let drawn = text(&drawn(model.clone(), w, h, Colors::Mono, false).0);
        let said: usize = drawn.lines().map(|line| line.matches("word").count()).sum();
        assert_eq!(said, 40, "{w}x{h}:\n{drawn}");
    }
}

#[test]
fn events_of_a_gone_device_are_dated_from_its_last_figures() {
    let mut model = fixture::simulated();
    model.ui.view = View::Timeline;
    let device = &mut model.live.devices[0];
    let newest = device.history.long.back().unwrap().at;
    let failed = device.history.marks.iter().find(|m| m.kind == MarkKind::OutOfMemory);
    let failed = Mark {
        at: newest,
        ..failed.unwrap().clone()
    };
    device.history.marks.push_back(failed);
    let screen = |model: &Model| text(&drawn(model.clone(), 120, 40, Colors::Mono, false).0);
    let line = |model: &Model, when: &str| {
        let screen = screen(model);
        screen
            .lines()
            .any(|line| line.trim_matches(['│', ' ']).starts_with(when))
    };
    assert!(
        line(&model, "now ") && !line(&model, "events until"),
        "{}",
        screen(&model)
    );
    model.live.devices[0].state = DeviceState::Gone;
    assert!(
        line(&model, "last ") && line(&model, "events until"),
        "{}",
        screen(&model)
    );
    assert!(!line(&model, "-0 s"));
}

#[test]
fn halted_replay_is_not_shown_as_running() {
    let mut model = fixture::simulated();
    model.ui.view = View::Demo;
    let demo = model.demo.as_mut().unwrap();
    demo.phase = DemoPhase::Running;
    assert!(at_80x24(&model).contains("running"));
    model.demo.as_mut().unwrap().steps.last_mut().unwrap().halted = true;
    let shown_text = at_80x24(&model);
    assert!(
        shown_text.contains("paused") && !shown_text.contains("running"),
        "{shown_text}"
    );
}

/// If the memory is the host's, the driver reports nothing about the process either.
#[test]
fn known_memory_is_shown_in_place_of_a_map() {
    for (mut model, known) in [
        (fixture::h100(), "the driver counts 2.1 GiB, no more is known."),
        (fixture::shared(), "nothing of its memory is known."),
    ] {
        (model.ui.view, model.map) = (View::Blocks, None);
        model.ui.process = Some(model.live.processes[2].id);
        let shown_text = at_80x24(&model);
        assert!(
            shown_text.contains(&format!("6011 does not publish: {known}")),
            "{shown_text}"
        );
    }
}

#[test]
fn process_without_a_map_has_its_hints() {
    use gpumem_probe::{Hint, HintKind, HintSource, Share};
    let mut model = fixture::h100();
    (model.ui.view, model.map) = (View::Blocks, None);
    model.ui.process = Some(model.live.processes[2].id);
    let vllm = HintKind::Vllm {
        share: Share::parse("0.9"),
        kv_cache: None,
        sleeps: false,
    };
    let visible = HintKind::Variable {
        name: "CUDA_VISIBLE_DEVICES",
        value: "3".into(),
    };
    let sources = [HintSource::CommandLine(6000), HintSource::Environment(6011)];
    let hints = sources.into_iter().zip([vllm, visible]);
    model.live.processes[2].hints = hints.map(|(source, kind)| Hint { source, kind }).collect();
    let shown = |model: &Model| text(&drawn(model.clone(), 160, 40, Colors::Mono, false).0);
    let expected = [
        "6011 does not publish: the driver counts 2.1 GiB.",
        "vLLM fills 0.9 of the GPU with weights and KV cache when it starts (--gpu-memory-utilization) (from its parent 6000)",
        "CUDA_VISIBLE_DEVICES=3",
        "a looks into it if it is a PyTorch program.",
    ];
    let screen = shown(&model);
    let lines: Vec<usize> = expected
        .iter()
        .filter_map(|line| screen.lines().position(|l| l.contains(line)))
        .collect();
    assert!(
        lines.len() == 4 && lines.windows(2).all(|pair| pair[0] + 1 == pair[1]),
        "{screen}"
    );
    assert!(at_80x24(&model).contains("CUDA_VISIBLE_DEVICES=3"));
    model.live.processes[2].state = ProcessState::OtherUser;
    assert!(shown(&model).contains("CUDA_VISIBLE_DEVICES=3"));
    // A publisher has its own figures.
    model.live.processes[2].state = ProcessState::Publishing;
    assert!(!shown(&model).contains("CUDA_VISIBLE_DEVICES=3"));
}

/// Narrow screens drop the number of blocks before the process.
#[test]
fn map_names_its_process() {
    for mut model in [fixture::simulated(), fixture::h100()] {
        model.ui.view = View::Blocks;
        let process = model.live.processes.iter_mut().find(|p| Some(p.id) == model.ui.process);
        let process = process.unwrap();
        process.state = ProcessState::Died;
        let who = format!(" {} died", process.pid);
        for width in 26..=80 {
            let screen = text(&drawn(model.clone(), width, 24, Colors::Mono, false).0);
            let title = screen.lines().nth(1).unwrap();
            assert!(title.contains(&who), "{width}: {title}");
        }
    }
}

/// States that take most of the map are named before those that are not in it.
#[test]
fn legend_of_a_map_names_the_drawn_states() {
    let mut model = fixture::h100();
    model.ui.view = View::Blocks;
    let map = model.map.as_mut().unwrap();
    let hole = gpumem_channel::Block {
        state: gpumem_channel::BlockState::Unmapped,
        ..map.segments[0].blocks[0]
    };
    let wide = map.segments[0].segment.size;
    let segment = gpumem_channel::SegmentMap::new(
        0,
        map.segments[0].segment,
        [gpumem_channel::Block { size: wide, ..hole }].into(),
        true,
    );
    map.segments[0] = std::sync::Arc::new(segment);
    model.ui.blocks.zoom = 3;
    let shown_text = at_80x24(&model);
    let legend = shown_text.lines().find(|l| l.contains("1 cell")).unwrap();
    assert!(legend.contains("lines 1-") && legend.contains("unmapped"), "{legend}");
    assert!(!legend.contains("pending"), "{legend}");
}

fn words(n: usize) -> String {
    vec!["word"; n].join(" ")
}

fn finding(n: usize) -> Finding {
    Finding {
        severity: Severity::Warning,
        process: None,
        about: Default::default(),
        text: words(n),
    }
}

/// More findings are shown on lines that the table leaves empty; the others are counted.
#[test]
fn hidden_findings_are_counted() {
    let mut model = fixture::h100();
    model.live.findings = vec![finding(1), finding(2), finding(3)];
    let lines = |model: &Model| -> Vec<String> { at_80x24(model).lines().map(str::to_owned).collect() };
    let shown_text = |lines: &[String]| lines.iter().filter(|line| line.starts_with(" ! word")).count();
    model.rows = vec![0];
    assert_eq!(shown_text(&lines(&model)), 3, "{:#?}", lines(&model));
    for view in [View::Blocks, View::Timeline, View::Demo] {
        model.ui.view = view;
        let lines = lines(&model);
        assert_eq!(shown_text(&lines), 1, "{lines:#?}");
        assert!(
            lines[22].starts_with(" ! word ") && lines[22].ends_with("  m +2 more"),
            "{lines:#?}"
        );
    }
    model.live.findings.truncate(1);
    assert!(!at_80x24(&model).contains("more"), "all are shown");
}

/// The popup has every word of every finding, over several pages.
#[test]
fn findings_can_be_read_in_full() {
    let mut model = fixture::h100();
    let numbered = |from: usize| {
        (from..from + 60)
            .map(|n| format!("w{n}."))
            .collect::<Vec<_>>()
            .join(" ")
    };
    for (finding, from) in model.live.findings.iter_mut().zip([100, 200]) {
        finding.text = numbered(from);
    }
    let reached = |screen: &str, from: usize| numbered(from).split(' ').filter(|word| screen.contains(word)).count();
    for (width, height) in [(80, 24), (60, 20), (30, 12), (20, 5)] {
        let cut = text(&drawn(model.clone(), width, height, Colors::Mono, false).0);
        assert!(reached(&cut, 200) < 60, "{width}x{height}:\n{cut}");
        let mut pages = String::new();
        for scroll in 0..120 {
            let mut model = model.clone();
            model.ui.popup = Some(Popup::Findings { chosen: None, scroll });
            pages += &text(&drawn(model, width, height, Colors::Mono, false).0);
        }
        let all = (reached(&pages, 100), reached(&pages, 200));
        assert_eq!(all, (60, 60), "{width}x{height}:\n{pages}");
    }
    model.live.findings.clear();
    model.ui.popup = Some(Popup::Findings {
        chosen: None,
        scroll: 3,
    });
    assert!(at_80x24(&model).contains("Nothing stands out now."));
}

/// A finding with a further line in advance is wrapped over both.
#[test]
fn no_line_below_a_finding_is_empty() {
    let mut model = fixture::h100();
    model.ui.view = View::Timeline;
    model.live.findings = vec![finding(15)];
    let lines: Vec<String> = at_80x24(&model).lines().map(str::to_owned).collect();
    assert!(
        lines[21].starts_with(" ! word") && lines[22].trim() == "word word",
        "{lines:#?}"
    );
}

/// A message gets a line of its own if the view leaves one empty.
#[test]
fn message_leaves_the_keys_where_there_is_room() {
    let mut model = fixture::simulated();
    model.ui.toast = Some(Toast {
        text: words(3),
        severity: Severity::Info,
        until: 0,
    });
    let lines: Vec<String> = at_80x24(&model).lines().map(str::to_owned).collect();
    assert!(
        lines[22].starts_with(" i word") && lines[23].contains("q quit"),
        "{lines:#?}"
    );
}

#[test]
fn missing_simulation_is_explained() {
    let mut model = fixture::failing();
    model.live.nvml = NvmlState::Starting;
    assert!(at_80x24(&model).contains("Asking the driver ..."));
    model.setup.only = vec![Only::Simulated];
    model.demo = Some(Demo::default());
    assert!(at_80x24(&model).contains("Starting a simulated training run ..."));
    model.demo.as_mut().unwrap().unpublished = Some("/tmp/x may be read by others".into());
    let shown_text = at_80x24(&model);
    assert!(
        shown_text.contains("does not publish")
            && shown_text.contains("/tmp/x may be read by others. gpumem-tui doctor"),
        "{shown_text}"
    );
    model.demo.as_mut().unwrap().unpublished = None;
    model.demo.as_mut().unwrap().phase = DemoPhase::Failed("no room".into());
    assert!(at_80x24(&model).contains("no room"));
}

/// In 60 s there may be twenty phases of several columns each.
#[test]
fn too_many_phases_are_not_called_too_short() {
    let mut model = fixture::h100();
    model.ui.view = View::Timeline;
    let device = &mut model.live.devices[0];
    let newest = device.history.long.back().unwrap().at;
    let some = device.history.marks.iter().find(|m| m.kind == MarkKind::Phase).cloned();
    let every = |n: u64| Mark {
        at: newest - n * 2 * SECOND,
        number: 0,
        text: ["forward", "backward"][n as usize % 2].into(),
        ..some.clone().unwrap()
    };
    device.history.marks = (0..29).rev().map(every).collect();
    let shown_text = at_80x24(&model);
    assert!(
        shown_text.contains("+ shows less time: too many phases to tell apart (backward, forward)"),
        "{shown_text}"
    );
}

#[test]
fn missing_driver_is_explained() {
    let mut model = fixture::failing();
    model.live.nvml = NvmlState::Missing;
    assert!(at_80x24(&model).contains("gpumem-tui demo train --device sim shows"));
    model.setup.nvml = Some("/opt/nvml.so".into());
    let shown_text = at_80x24(&model);
    assert!(
        shown_text.contains("GPUMEM_NVML names /opt/nvml.so, which is not") && !shown_text.contains("libnvidia-ml"),
        "{shown_text}"
    );
    model.demo = Some(Demo {
        unpublished: Some("/tmp/x: it belongs to another user".into()),
        ..Demo::default()
    });
    let shown_text = at_80x24(&model);
    assert!(
        shown_text.contains("cannot be seen here: /tmp/x: it") && !shown_text.contains("shows everything"),
        "{shown_text}"
    );
}

/// A black box is not a process that a filter could have hidden.
#[test]
fn filter_is_mentioned_only_if_it_hides_something() {
    let mut model = fixture::simulated();
    let shown_text = |model: &Model| {
        let text = crate::report::text(model, u16::MAX);
        (
            text.contains("passes the filter"),
            text.contains("no process publishes"),
        )
    };
    model.rows.clear();
    model.ui.filter.text = "nobody".into();
    assert_eq!(shown_text(&model), (true, false));
    model.live.past.insert(model.live.processes[0].id);
    assert_eq!(shown_text(&model), (false, true));
    model.ui.filter.text.clear();
    assert_eq!(shown_text(&model), (false, true));
}
