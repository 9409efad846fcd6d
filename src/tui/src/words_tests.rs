use super::*;

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
fn a_sentence_begins_with_a_capital() {
    assert_eq!(sentence("see `dmesg`"), "See `dmesg`");
    assert_eq!(sentence("Reboot"), "Reboot");
    assert_eq!(sentence(""), "");
}
