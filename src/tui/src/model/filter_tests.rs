#![allow(clippy::unwrap_used)]
use gpumem_probe::{Reading, Sensors};
use proptest::prelude::*;

use super::*;
use crate::model::{ChannelKey, DeviceKey, DeviceKind, DeviceState, History, Owner, PartOf, ProcessId, ProcessState};

fn process(pid: u32, user: &str, command: &str, state: ProcessState) -> Process {
    Process {
        id: ProcessId {
            device: DeviceKey::Uuid([0x6f; 16]),
            owner: Owner::Channel(ChannelKey(1, u64::from(pid))),
        },
        pid,
        device_label: "GPU 0".into(),
        user: user.into(),
        command: command.into(),
        label: String::new(),
        job: String::new(),
        rank: None,
        world_size: None,
        parent: None,
        nvml: Reading::Pending,
        figures: None,
        managed: Reading::Pending,
        state,
        stopped: None,
        mps: false,
        simulated: false,
        failing: None,
        ended: None,
        hints: [].into(),
    }
}

fn device(label: &str, kind: DeviceKind, uuid: u8) -> Device {
    Device {
        key: DeviceKey::Uuid([uuid; 16]),
        kind,
        label: label.into(),
        name: String::new(),
        uuid: Some([uuid; 16]),
        pci: String::new(),
        state: DeviceState::Present,
        memory: Reading::Pending,
        shared_with_host: false,
        sensors: Sensors::default(),
        host: None,
        part_of: None,
        publishers: 0,
        history: History::default(),
    }
}

/// Every state in every form in which it is shown.
fn in_every_state() -> Vec<Process> {
    use ProcessState::*;
    let states = [
        Publishing,
        NotPublishing,
        Exited,
        Died,
        Inconsistent("why".into()),
        Disputed("why".into()),
        OtherUser,
    ];
    let mut list = Vec::new();
    for state in states {
        for (stopped, mps) in [(false, false), (true, false), (false, true), (true, true)] {
            let mut process = process(7, "ana", "python train.py", state.clone());
            (process.stopped, process.mps) = (Some(stopped), mps);
            list.push(process);
        }
    }
    list
}

fn passes(filter: &str, process: &Process) -> bool {
    Filter::parse(filter).matches(process, None)
}

#[test]
fn word_is_a_part_of_the_label_or_of_the_command_line() {
    let mut process = process(
        7,
        "ana",
        "python -m vllm.entrypoints.openai.api_server",
        ProcessState::Publishing,
    );
    process.label = "vllm Llama-3-8B".into();
    for (text, matches) in [("llama", true), ("api_server", true), ("mistral", false)] {
        assert_eq!(Filter::parse(text).matches(&process, None), matches, "{text}");
    }
}

#[test]
fn every_shown_state_can_be_named() {
    for process in in_every_state() {
        let shown = process.state_text();
        let named: Vec<String> = states(&process).into_iter().filter(|word| word != "mps").collect();
        assert!(!named.is_empty(), "{shown}");
        for word in &named {
            assert!(
                STATES.contains(&word.as_str()),
                "{word:?} of {shown:?} is not in the list"
            );
            assert!(
                passes(word, &process) && passes(&format!("state:{word}"), &process),
                "{word}"
            );
        }
        for other in STATES.iter().filter(|state| !named.iter().any(|word| word == *state)) {
            assert!(!passes(other, &process), "{other:?} matches {shown:?}");
            assert!(
                passes(&format!("-{other}"), &process),
                "-{other} does not match {shown:?}"
            );
        }
        // As it is written on the screen.
        let beginning = shown.split([',', '(']).next().unwrap();
        assert!(passes(beginning, &process), "{beginning:?}");
        assert!(!process.mps || passes("mps", &process));
    }
}

/// The values are parts of the command line, too, which must not match.
#[test]
fn terms_match_their_own_field() {
    let mut rank = process(4121, "ana", "python 7 bob 5", ProcessState::NotPublishing);
    (rank.job, rank.rank) = ("Pretrain 7b".into(), Some(3));
    let yes = [
        "pid:4121",
        "pid:1,4121",
        "pid:4121,",
        "PID:4121",
        "user:ana",
        "user:bob,ANA",
        "job:train",
        "job:x,7B",
        "rank:3",
        "rank:0,3",
        "state:not",
        "state:exited,not-publishing",
        "not publishing",
        "not-publishing",
        "NOT Publishing ana",
        "ana 7b:3",
        "-publishing",
        "!pid:7",
        "-user:bob",
        "-rank:0",
        "",
        "  ",
        "!-",
    ];
    for filter in yes {
        assert!(passes(filter, &rank), "{filter:?}");
    }
    let no = [
        "pid:412",
        "pid:7",
        "user:an",
        "user:bob",
        "job:python",
        "rank:7",
        "publishing",
        "state:publishing",
        "publishing not",
        "-ana",
        "!pid:4121",
        "-not publishing",
        "pid:4121 user:bob",
        "-state:n",
        "-",
    ];
    for filter in no {
        assert!(!passes(filter, &rank), "{filter:?}");
    }
    rank.rank = None;
    assert!(!passes("rank:0", &rank) && passes("-rank:0", &rank));
}

#[test]
fn devices_are_found_by_index_part_and_uuid() {
    let gpu = device("GPU 0", DeviceKind::Nvml, 0x6f);
    let mut part = device("GPU 0:1", DeviceKind::Nvml, 0x33);
    part.part_of = Some(PartOf {
        gpu: gpu.key,
        index: 1,
        profile: "1g.10gb".into(),
        uuid: "MIG-33333333".into(),
    });
    let other = device("GPU 10", DeviceKind::Nvml, 0x22);
    let simulated = device("SIM 7", DeviceKind::Simulated, 0);
    let found = |filter: &str| -> Vec<&str> {
        let devices = [&gpu, &part, &other, &simulated];
        let passes = |device: &&&Device| {
            let mut process = process(7, "ana", "a", ProcessState::Publishing);
            process.device_label.clone_from(&device.label);
            Filter::parse(filter).matches(&process, Some(device))
        };
        devices
            .iter()
            .filter(passes)
            .map(|device| device.label.as_str())
            .collect()
    };
    for (filter, labels) in [
        ("gpu:0", vec!["GPU 0", "GPU 0:1"]),
        ("gpu:0:1", vec!["GPU 0:1"]),
        ("gpu:1", vec![]),
        ("gpu:10,0:1", vec!["GPU 0:1", "GPU 10"]),
        ("GPU:gpu-6f6f", vec!["GPU 0", "GPU 0:1"]),
        ("gpu:6F6F", vec!["GPU 0", "GPU 0:1"]),
        ("gpu:MIG-3333", vec!["GPU 0:1"]),
        ("gpu:sim", vec!["SIM 7"]),
        ("-gpu:sim,10", vec!["GPU 0", "GPU 0:1"]),
        // Words are parts of the label.
        ("0", vec!["GPU 0", "GPU 0:1", "GPU 10"]),
    ] {
        assert_eq!(found(filter), labels, "{filter}");
    }
    // The device of a black box may be gone.
    let mut gone = process(7, "ana", "a", ProcessState::Died);
    assert!(!passes("gpu:sim", &gone) && !passes("gpu:0", &gone));
    gone.simulated = true;
    assert!(passes("gpu:sim", &gone));
}

#[test]
fn value_that_makes_no_sense_is_explained() {
    let a_gpu = "an index (0, 0:1), a UUID (GPU-6f5a) or sim";
    for (filter, why) in [
        ("pid:x", "pid:x is not a number".to_owned()),
        ("ana -pid:7,-1", "pid:-1 is not a number".to_owned()),
        ("pid:4294967296", "pid:4294967296 is not a number".to_owned()),
        ("rank:", "rank: needs a number".to_owned()),
        ("user:,", "user: needs a name".to_owned()),
        ("job:", "job: needs a name".to_owned()),
        ("gpu:GPU-6", format!("gpu:gpu-6 is not {a_gpu}")),
        ("gpu:", format!("gpu: needs {a_gpu}")),
        ("state:dead", format!("state:dead is not one of {}", STATES.join(", "))),
    ] {
        let parsed = Filter::parse(filter);
        assert_eq!(parsed.problem(), Some(why.as_str()), "{filter}");
        for process in in_every_state() {
            assert!(!parsed.matches(&process, None), "{filter}");
        }
    }
    for filter in ["cuda:0", "train:3", "a:", ":", "::", "--lr", "http://x"] {
        assert_eq!(Filter::parse(filter).problem(), None, "{filter}: another key is a word");
    }
}

#[test]
fn options_of_command_lines_are_not_negated() {
    let process = process(7, "ana", "python train.py --lr 0.1 -x", ProcessState::Publishing);
    for (filter, expected) in [
        ("--lr", true),
        ("--mu", false),
        ("!--lr", false),
        ("-x", false),
        ("!-x", false),
    ] {
        assert_eq!(passes(filter, &process), expected, "{filter}");
    }
}

/// Letters of states, keys and values, so that many texts come near to a term.
fn texts() -> impl Strategy<Value = String> {
    let terms = prop_oneof![
        "[a-c]{1,2}",
        "[-!]?(pid|user|job|rank|gpu|state|cuda):[a-d0-3,]{0,3}",
        "[-!]{0,2}(publishing|not|stopped|died|exited|PUBLISHING|Not-Publishing)",
        "\\PC{0,4}",
    ];
    prop::collection::vec(terms, 0..5).prop_map(|terms| terms.join(" "))
}

fn any_process() -> impl Strategy<Value = Process> {
    let names = ("[a-c]{0,3}", "[a-c ]{0,6}", "[a-d]{0,3}");
    (0..4u32, names, prop::option::of(0..4u32), 0..in_every_state().len()).prop_map(
        |(pid, (user, command, job), rank, state)| {
            let mut process = Process {
                pid,
                user,
                command,
                ..in_every_state().swap_remove(state)
            };
            (process.job, process.rank) = (job, rank);
            process
        },
    )
}

/// The filter of old: every word is a part of some field.
fn contains_words(text: &str, process: &Process) -> bool {
    let has = |word: &str| {
        fields(process)
            .iter()
            .any(|field| field.to_lowercase().contains(&word.to_lowercase()))
    };
    text.split_whitespace().all(has)
}

proptest! {
    #[test]
    fn words_are_parts_of_fields(text in "[a-c0-9 ]{0,8}", process in any_process()) {
        prop_assert_eq!(passes(&text, &process), contains_words(&text, &process));
    }

    /// Also for texts that nobody would type.
    #[test]
    fn terms_are_independent(text in texts(), process in any_process()) {
        let filter = Filter::parse(&text);
        let one_by_one = filter.terms.iter().all(|term| {
            let alone = Filter { terms: vec![term.clone()] };
            alone.matches(&process, None)
        });
        prop_assert_eq!(filter.matches(&process, None), one_by_one);
        prop_assert!(filter.problem().is_none() || !one_by_one, "what makes no sense matches nothing");
        prop_assert_eq!(filter.is_empty(), text.trim().is_empty());
    }

    #[test]
    fn case_does_not_matter(text in "[ -~]{0,16}", process in any_process()) {
        prop_assert_eq!(passes(&text, &process), passes(&text.to_ascii_uppercase(), &process));
    }

    #[test]
    fn negation_is_the_opposite(text in texts(), process in any_process()) {
        let word = text.split_whitespace().next().unwrap_or("a");
        prop_assume!(!word.starts_with(['-', '!']));
        let (filter, negated) = (Filter::parse(word), Filter::parse(&format!("!{word}")));
        prop_assert_eq!(filter.problem(), negated.problem());
        let expected = filter.problem().is_none() && !filter.matches(&process, None);
        prop_assert_eq!(negated.matches(&process, None), expected);
    }

    #[test]
    fn one_value_of_a_list_must_match(
        key in prop::sample::select(vec!["pid", "rank", "user", "job"]),
        values in prop::collection::vec("[0-3]", 1..4),
        process in any_process(),
    ) {
        let any = values.iter().any(|value| passes(&format!("{key}:{value}"), &process));
        prop_assert_eq!(passes(&format!("{key}:{}", values.join(",")), &process), any);
    }
}
