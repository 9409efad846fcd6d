use super::*;

#[test]
fn program_loses_only_its_directory() {
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
fn command_is_shortened_until_it_fits() {
    let replay = "/opt/bin/gpumem-tui replay /data/traces/llm.csv.gz --device sim";
    for (command, room, shown) in [
        ("/usr/bin/python3 /data/train.py", 22, "python3 /data/train.py"),
        ("/usr/bin/python3 /data/train.py", 21, "python3 train.py"),
        // Options and directories are not shortened.
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
fn sentence_begins_with_a_capital() {
    assert_eq!(sentence("see `dmesg`"), "See `dmesg`");
    assert_eq!(sentence("Reboot"), "Reboot");
    assert_eq!(sentence(""), "");
}
