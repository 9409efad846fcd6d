use super::*;

const M: u64 = 1 << 20;

#[test]
fn a_small_part_is_never_shown_as_nothing() {
    assert_eq!(
        (gib(0).as_str(), gib(M).as_str(), gib(480 * M).as_str()),
        ("0.0", "<0.1", "0.5")
    );
}

#[test]
fn a_short_count_takes_four_columns_whatever_it_is() {
    for (n, text) in [
        (0, "0"),
        (9_999, "9999"),
        (12_446, "12k"),
        (999_999, "999k"),
        (17_999_999, "17M"),
        (u64::MAX, ">1G"),
    ] {
        assert_eq!(count_short(n), text);
    }
    for power in 0..20 {
        let n = 10u64.pow(power);
        assert!(fits(&count_short(n), 4) && fits(&count_short(n - 1), 4), "{n}");
    }
}

#[test]
fn round_sizes_have_no_decimals() {
    for (bytes, text) in [
        (256 << 10, "256 KiB"),
        (2 * M, "2 MiB"),
        (3 * M / 2, "1.5 MiB"),
        (5 * M / 4, "1.25 MiB"),
        (512, "512 B"),
        (M + 1, "1.0 MiB"),
    ] {
        assert_eq!(round_size(bytes), text);
    }
}

#[test]
fn a_command_loses_the_folder_of_its_program_and_nothing_else() {
    for (command, shown) in [
        ("/usr/bin/python3 /data/train.py", "python3 /data/train.py"),
        ("python train.py", "python train.py"),
        ("/bin/", "/bin/"),
        ("", ""),
    ] {
        assert_eq!(program(command), shown);
    }
}

#[test]
fn a_command_is_told_in_the_words_that_fit() {
    let replay = "/opt/bin/gpumem-tui replay /data/traces/llm.csv.gz --device sim";
    for (command, room, shown) in [
        ("/usr/bin/python3 /data/train.py", 22, "python3 /data/train.py"),
        ("/usr/bin/python3 /data/train.py", 21, "python3 train.py"),
        // An option is not a path, and a folder has no other name.
        ("run --conf=a/b /data/ /c/d", 10, "run --conf=a/b /data/ d"),
        (replay, 60, "gpumem-tui replay /data/traces/llm.csv.gz --device sim"),
        (replay, 41, "gpumem-tui replay llm.csv.gz --device sim"),
        (replay, 40, "replay llm.csv.gz --device sim"),
        ("gpumem-tui", 4, "gpumem-tui"),
        ("", 0, ""),
    ] {
        assert_eq!(command_in(command, room), shown, "{room}");
    }
}

#[test]
fn rates_and_counts() {
    for (bytes, text) in [
        (0, "0"),
        (999, "0"),
        (12_000, "12 kB/s"),
        (830_000_000, "830 MB/s"),
        (1_234_000_000, "1.2 GB/s"),
    ] {
        assert_eq!(rate(bytes), text);
    }
    for (n, text) in [(7, "7"), (1024, "1,024"), (1_234_567, "1,234,567")] {
        assert_eq!(count(n), text);
    }
    assert_eq!(
        (plural(1, "block"), plural(2000, "block")),
        ("1 block".into(), "2,000 blocks".into())
    );
}

#[test]
fn what_must_be_enough_is_rounded_up() {
    let cases = [
        (0, "0 B"),
        (1023, "1023 B"),
        (2 << 30, "2.0 GiB"),
        ((2 << 30) + 1, "2.1 GiB"),
        ((1 << 30) - 1, "1.0 GiB"),
        (u64::MAX, "16.0 EiB"),
    ];
    for (n, text) in cases {
        assert_eq!(bytes_at_least(n, u64::MAX), text);
    }
    // A tenth of a GiB would be more than all that is left.
    let less = (10 << 30) - (50 << 20);
    assert_eq!(bytes_at_least(less, 25 << 20), "10190.0 MiB");
    assert_eq!(bytes_at_least(less + 1, 0), format!("{} B", less + 1));
}

#[test]
fn bytes_round_to_one_decimal_and_carry() {
    let cases = [
        (0, "0 B", "0"),
        (1023, "1023 B", "1023"),
        (1024, "1.0 KiB", "1.0K"),
        (1024 * 1024 - 1, "1.0 MiB", "1.0M"),
        (512 << 20, "512.0 MiB", "512.0M"),
        (u64::MAX, "16.0 EiB", "16.0E"),
    ];
    for (n, long, short) in cases {
        assert_eq!((bytes(n).as_str(), bytes_short(n).as_str()), (long, short));
    }
}

#[test]
fn durations_keep_two_units() {
    let cases = [
        (340_000_000, "340 ms"),
        (4_290_000_000, "4.2 s"),
        (200_000_000_000, "3 m 20 s"),
    ];
    for (nanos, text) in cases {
        assert_eq!(duration(nanos), text);
    }
    assert_eq!(duration(7_500_000_000_000), "2 h 05 m");
}

#[test]
fn a_figure_is_told_from_its_neighbour() {
    const M: u64 = 1 << 20;
    let cases = [
        (5 * 1024 * M + 200 * M, 4 * 1024 * M, "5.2G"),
        (5 * 1024 * M + 200 * M, 128 * M, "5.2G"),
        (5 * 1024 * M + 200 * M, 100 * M, "5,320.0M"),
        (5 * 1024 * M, 30 << 10, "5,242,880.0K"),
        (1023 * M + 1008 * 1024, 1024 * M, "1.0G"),
        (25, 1, "25"),
        (4096, 1, "4,096"),
        (u64::MAX, u64::MAX, "16.0E"),
    ];
    for (n, step, text) in cases {
        assert_eq!(bytes_apart(n, step), text);
    }
    for step in [512, 40 << 10, 3 * M, 700 * M] {
        let texts: Vec<String> = (1..2000).map(|i| bytes_apart(i * step, step)).collect();
        assert!(texts.windows(2).all(|two| two[0] != two[1]), "{step}");
    }
}

#[test]
fn a_sentence_begins_with_a_capital() {
    assert_eq!(sentence("see `dmesg`"), "See `dmesg`");
    assert_eq!(sentence("Reboot"), "Reboot");
    assert_eq!(sentence(""), "");
}

#[test]
fn ages_move_by_the_minute() {
    let cases = [
        (0, "just now"),
        (59, "just now"),
        (61, "1 min ago"),
        (3599, "59 min ago"),
        (7500, "2 h ago"),
    ];
    for (seconds, text) in cases {
        assert_eq!(ago(seconds * 1_000_000_000), text);
    }
}
