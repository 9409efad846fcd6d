#![allow(clippy::unwrap_used)]

use clap::CommandFactory;

use super::*;

fn parse(args: &[&str]) -> Result<Cli, clap::Error> {
    Cli::try_parse_from([&["gpumem-tui"], args].concat())
}

#[test]
fn clap_finds_no_fault() {
    Cli::command().debug_assert();
}

#[test]
fn times_have_units_and_bounds() {
    for (text, millis) in [
        ("500ms", 500),
        ("2s", 2000),
        ("1.5s", 1500),
        ("1", 1000),
        ("1m", 60_000),
        ("1h", 3_600_000),
    ] {
        assert_eq!(
            parse(&["--interval", text]).unwrap().view.interval.unwrap().as_millis(),
            millis,
            "{text}"
        );
    }
    for text in [
        "",
        "ms",
        "10ms",
        "2h",
        "1.2.3s",
        "-1s",
        "0",
        "1e9",
        "99999999999999999999s",
        "inf",
        "NaN",
    ] {
        assert!(parse(&[&format!("--interval={text}")]).is_err(), "{text:?}");
    }
}

#[test]
fn devices_are_chosen_by_index_or_uuid() {
    let device = |text: &str| parse(&["--device", text]).map(|cli| cli.view.device[0].clone());
    assert_eq!(device("auto").unwrap(), Device::Auto);
    assert_eq!(device("sim").unwrap(), Device::Only(Only::Simulated));
    assert_eq!(device("12").unwrap(), Device::Only(Only::Index(12)));
    assert_eq!(device("GPU-6f5a").unwrap(), Device::Only(Only::Uuid("GPU-6f5a".into())));
    assert_eq!(
        device("12345678-9").unwrap(),
        Device::Only(Only::Uuid("12345678-9".into()))
    );
    for text in ["MIG-6f5ae4c5-0000", "MIG-GPU-6f5ae4c5-0000/1/0"] {
        assert_eq!(device(text).unwrap(), Device::Only(Only::Uuid(text.into())));
    }
    assert_eq!(device("0:12").unwrap(), Device::Only(Only::Part(0, 12)));
    for text in [
        "", "gpu", "-1", "GPU-", "GPU-xyz0", "cuda:0", "MIG-", "0:", ":1", "0:x", "GPU-/1/0",
    ] {
        assert!(device(text).is_err(), "{text:?}");
    }
}

#[test]
fn several_devices_are_taken() {
    let only = |args: &[&str]| parse(args).map(|cli| cli.view.only());
    let two = vec![Only::Index(0), Only::Part(1, 2)];
    assert_eq!(only(&["--device", "0", "--device", "1:2"]).unwrap(), two);
    assert_eq!(only(&["--device", "0,1:2"]).unwrap(), two);
    assert_eq!(only(&[]).unwrap(), []);
    assert_eq!(only(&["--device", "0,auto"]).unwrap(), [], "auto is all of them");
    assert!(only(&["--device", "0,first"]).is_err());
    assert!(only(&["--device", "0,"]).is_err());
}

#[test]
fn users_and_pids_are_terms_of_the_filter() {
    let filter = |args: &[&str]| parse(args).map(|cli| cli.view.filter());
    for (args, expected) in [
        (&[][..], ""),
        (&["--filter", "train -publishing"], "train -publishing"),
        (&["--filter", "-publishing"], "-publishing"),
        (&["--user", "ana"], "user:ana"),
        (
            &["--user", "ana", "--user", "bob", "--pid", "1,2", "--pid", "3"],
            "user:ana,bob pid:1,2,3",
        ),
        (&["--pid", "7", "--filter", "x"], "pid:7 x"),
    ] {
        let text = filter(args).unwrap();
        assert_eq!(text, expected);
        assert_eq!(Filter::parse(&text).problem(), None);
    }
    for args in [
        &["--filter", "pid:x"][..],
        &["--filter", "state:dead"],
        &["--pid", "x"],
        &["--pid", "-1"],
        &["--user", ""],
        &["--user", "a b"],
    ] {
        assert!(filter(args).is_err(), "{args:?}");
    }
    // Text from outside may not control the terminal.
    assert!(!filter(&["--filter", "a\x1b[2J"]).unwrap().contains('\x1b'));
}

#[test]
fn rows_are_sorted_by_any_column_in_both_orders() {
    let sort = |text: &str| parse(&["--sort", text]).map(|cli| cli.view.sort);
    for column in Column::ALL {
        let (plain, reversed) = (
            sort(&column.name()).unwrap(),
            sort(&format!("-{}", column.name())).unwrap(),
        );
        assert_eq!((plain.column, reversed.column), (column, column));
        assert_eq!(
            (plain.descending, reversed.descending),
            (column.descends(), !column.descends())
        );
    }
    assert_eq!(parse(&[]).unwrap().view.sort, Sort::default());
    assert_eq!(sort("Largest-Free").unwrap().column, Column::LargestFree);
    for text in ["", "-", "size", "--pid", "largest free"] {
        assert!(sort(text).is_err(), "{text:?}");
    }
    let all = Cli::command();
    let help = all
        .get_arguments()
        .find(|argument| argument.get_id() == "sort")
        .unwrap()
        .get_help()
        .unwrap()
        .to_string();
    let missing: Vec<String> = Column::ALL
        .into_iter()
        .map(Column::name)
        .filter(|name| !help.contains(name))
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn contradicting_arguments_are_refused() {
    for args in [
        &["--nonsense"][..],
        &["nonsense"],
        &["--once", "demo"],
        &["demo", "train", "--json"],
        &["demo", "train", "--steer"],
        &["demo", "train", "--budget", "lots"],
        &["demo", "train", "--layers", "0"],
        &["demo", "train", "--snapshot", "x.pickle"],
        &["demo", "train", "--fix", "prayer"],
        &["doctor", "who"],
    ] {
        assert!(parse(args).is_err(), "{args:?}");
    }
}

/// The error must not say that there is no flag `-1`.
#[test]
fn invalid_numbers_are_explained() {
    let replay: &[&str] = &["replay", "x.csv"];
    let train: &[&str] = &["demo", "train"];
    for (command, flag, most) in [
        (replay, "--passes", "1 to 1000000"),
        (train, "--layers", "1 to 1000"),
        (train, "--batch", "1 to 65536"),
        (train, "--steps", "0 to 18446744073709551615"),
        (train, "--seed", "0 to 18446744073709551615"),
    ] {
        for wrong in ["abc", "", "1.5", "-1", "1e3", "18446744073709551616"] {
            let said = parse(&[command, &[flag, wrong]].concat()).unwrap_err().to_string();
            let expected = format!("for '{flag} <N>': say a whole number from {most}\n");
            assert!(said.contains(&expected), "{said}");
        }
        let (least, most) = most.split_once(" to ").unwrap();
        for right in [least, most] {
            assert!(parse(&[command, &[flag, right]].concat()).is_ok(), "{flag} {right}");
        }
    }
}

fn demo(args: &[&str]) -> DemoCli {
    match parse(&[&["demo"], args].concat()).unwrap().command {
        Some(Command::Demo(demo)) => demo,
        other => unreachable!("{other:?}"),
    }
}

#[test]
fn flags_reach_the_child_unchanged() {
    let user = demo(&[
        "--seed",
        "9",
        "train",
        "--budget",
        "1G",
        "--layers",
        "7",
        "--pace",
        "250ms",
        "--steps=3",
        "--leak",
    ]);
    let own = user.demo.as_ref().unwrap().flags().iter();
    let own = own.map(|flag| flag.to_str().unwrap().to_owned());
    let flags: Vec<String> = user.run.shared_flags().into_iter().chain(own).collect();
    let again: Vec<&str> = ["train"].into_iter().chain(flags.iter().map(String::as_str)).collect();
    let child = demo(&again);
    assert_eq!(format!("{:?}", user.run), format!("{:?}", child.run));
    assert_eq!(format!("{:?}", user.demo), format!("{:?}", child.demo));
    assert_eq!(flags[4..], ["--seed", "9", "--layers=7", "--steps=3", "--leak"]);
}

/// Returns the explanation for a refused command line of `demo`.
fn refused(args: &[&str]) -> String {
    let error = parse(&[&["demo"], args].concat()).unwrap_err();
    let words: Vec<String> = args.iter().map(|word| (*word).to_owned()).collect();
    explain(&error, &words).unwrap_or_else(|| error.to_string())
}

#[test]
fn flags_of_another_demo_are_explained() {
    let leave_out = |flag: &str, of: &str| format!("{flag} is for demo {of}: leave it out");
    let snapshot = refused(&["fragmentation", "--headless", "--snapshot", "x.pickle"]);
    assert_eq!(snapshot, leave_out("--snapshot", "train"));
    assert_eq!(refused(&["fragmentation", "--leak"]), leave_out("--leak", "train"));
    assert_eq!(
        refused(&["train", "--fix", "remap"]),
        leave_out("--fix", "fragmentation or unified")
    );
    assert_eq!(
        refused(&["--leak", "train"]),
        "--leak is for demo train: put it after the demo's name"
    );
    assert!(refused(&["train", "--nonsense"]).contains("unexpected argument '--nonsense'"));
    demo(&["train", "--headless", "--snapshot", "x.pickle"]);
}

#[test]
fn unknown_demo_is_reported_with_a_similar_name() {
    assert_eq!(
        refused(&["nonsense"]),
        "there is no demo \"nonsense\": gpumem-tui demo lists them"
    );
    assert_eq!(
        refused(&["trian", "--headless"]),
        "there is no demo \"trian\", but \"train\": gpumem-tui demo lists them"
    );
}

/// Each demo of the list is a subcommand with its own arguments and help.
#[test]
fn every_demo_is_a_subcommand() {
    let mut all = Cli::command();
    all.build();
    let demos = all.find_subcommand("demo").unwrap();
    for entry in gpumem_demo::list() {
        let own = demos.find_subcommand(entry.name).unwrap();
        assert_eq!(own.get_about().unwrap().to_string(), entry.summary);
        assert!(
            own.get_arguments()
                .any(|argument| argument.get_long() == Some("device"))
        );
        assert_eq!(demo(&[entry.name]).demo.unwrap().entry().name, entry.name);
    }
}

/// A watched replay runs as a demo in a child, which must get the user's arguments.
#[test]
fn flags_of_a_watched_replay_reach_the_child() {
    let args = [
        "replay",
        "my trace.csv",
        "--watch",
        "--device",
        "sim",
        "--limit",
        "1G",
        "--passes",
        "7",
        "--speed",
        "250",
        "--segments",
        "virtual",
        "--conf",
        "max_chunk_mb:8, job:my run",
    ];
    let Some(Command::Replay(replay)) = parse(&args).unwrap().command else {
        unreachable!()
    };
    assert!(replay.live());
    let flags = replay.child_flags();
    let flags = flags.iter().map(|flag| flag.to_str().unwrap());
    let again: Vec<&str> = ["demo", "replay", "--device", "sim"].into_iter().chain(flags).collect();
    let Some(Command::Demo(child)) = parse(&again).unwrap().command else {
        unreachable!()
    };
    let (replay, run) = replay.to_demo().unwrap();
    assert_eq!((replay.passes, run.budget), (7, Some(1 << 30)));
    assert_eq!(format!("{run:?}"), format!("{:?}", child.run));
    let there = format!("{:?}", child.demo);
    assert!(there.contains(&format!("{replay:?}")), "{there}");
}

#[test]
fn replay_is_measured_or_live() {
    let replay_of = |trace: &str, args: &[&str]| match parse(&[&["replay", trace], args].concat())
        .map(|cli| cli.command)
    {
        Ok(Some(Command::Replay(replay))) => Some((replay.live(), replay.to_args().passes, replay.to_demo().is_ok())),
        _ => None,
    };
    let replay = |args: &[&str]| replay_of("x", args);
    assert_eq!(replay(&[]), Some((false, 3, true)));
    assert_eq!(replay(&["--speed", "max", "--json", "--steer"]), Some((true, 3, true)));
    assert_eq!(
        replay(&["--watch", "--allocator", "cudamalloc"]),
        Some((true, 3, false))
    );
    assert_eq!(replay(&["--watch", "--interval", "500ms"]), Some((true, 3, true)));
    assert_eq!(replay(&["--watch", "--conf", "publish:off"]), Some((true, 3, false)));
    // Steering commands come on stdin, too.
    for stdin in ["-", "/dev/stdin"] {
        assert_eq!(replay_of(stdin, &["--watch"]), Some((true, 3, false)));
        assert_eq!(replay_of(stdin, &["--speed", "2", "--steer"]), Some((true, 3, false)));
        assert_eq!(replay_of(stdin, &["--speed", "2"]), Some((true, 3, true)));
    }
    for bad in [
        &["--watch", "--json"][..],
        &["--watch", "--no-publish"],
        &["--speed", "2", "--no-publish"],
        &["--speed", "0"],
        &["--interval", "500ms"],
        &["--steer"],
    ] {
        assert_eq!(replay(bad), None, "{bad:?}");
    }
}

#[test]
fn demo_takes_an_interval_only_with_the_dashboard() {
    let interval = |args: &[&str]| match parse(args).map(|cli| cli.command) {
        Ok(Some(Command::Demo(demo))) => Some(demo.interval.map(|interval| interval.as_millis())),
        _ => None,
    };
    assert_eq!(interval(&["demo", "train", "--interval", "500ms"]), Some(Some(500)));
    assert_eq!(interval(&["demo", "train", "--headless"]), Some(None));
    assert_eq!(interval(&["demo", "train", "--headless", "--interval", "500ms"]), None);
    assert_eq!(interval(&["demo", "train", "--interval", "1ms"]), None);
}

/// All commands use the same parser.
#[test]
fn help_of_every_interval_names_its_bounds() {
    let all = Cli::command();
    let commands = [&all].into_iter().chain(all.get_subcommands());
    let helps: Vec<String> = commands
        .flat_map(|command| {
            command
                .get_arguments()
                .filter(|argument| argument.get_id() == "interval")
        })
        .filter_map(|argument| argument.get_help().map(ToString::to_string))
        .collect();
    assert_eq!(helps.len(), 3, "{helps:?}");
    assert!(helps.iter().all(|help| help.contains("from 50ms to 1h")), "{helps:?}");
}
