//! `completions` and `man`.

use std::process::Command;

use gpumem_tests::{World, said};

/// Completes a command line as bash does: it sources the script and calls the function for the last word.
fn complete(script: &str, words: &[&str]) -> Vec<String> {
    let last = words.len() - 1;
    let program = format!(
        "{script}\nCOMP_WORDS=(\"$@\")\nCOMP_CWORD={last}\n_gpumem_tui gpumem-tui \"${{COMP_WORDS[{last}]}}\" \"${{COMP_WORDS[{last}-1]}}\"\n\
         printf '%s\\n' \"${{COMPREPLY[@]}}\""
    );
    let output = Command::new("bash")
        .args(["-c", &program, "bash"])
        .args(words)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", said(&output.stderr));
    said(&output.stdout).lines().map(str::to_owned).collect()
}

#[test]
fn bash_completes_subcommands_and_flags() {
    let world = World::without_gpu();
    let output = world.command(&["completions", "bash"]).output().unwrap();
    assert_eq!((output.status.code(), said(&output.stderr).as_str()), (Some(0), ""));
    let script = said(&output.stdout);
    assert!(script.contains("complete -F _gpumem_tui -o nosort -o bashdefault -o default gpumem-tui\n"));
    assert_eq!(complete(&script, &["gpumem-tui", "doc"]), ["doctor"]);
    assert_eq!(complete(&script, &["gpumem-tui", "doctor", "--b"]), ["--bundle"]);
    assert_eq!(complete(&script, &["gpumem-tui", "demo", "fragm"]), ["fragmentation"]);
    assert!(complete(&script, &["gpumem-tui", "--color", ""]).contains(&"mono".to_owned()));
}

#[test]
fn an_unknown_shell_or_page_is_refused() {
    let world = World::without_gpu();
    for (args, expected) in [
        (&["completions", "csh"][..], "bash"),
        (&["completions"], "SHELL"),
        (&["man", "publisher"], "there is no subcommand \"publisher\""),
        (&["man", "x\u{1b}[2J"], "there is no subcommand"),
    ] {
        let output = world.command(args).output().unwrap();
        let complaint = said(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {complaint}");
        assert!(
            complaint.contains(expected) && !complaint.contains('\u{1b}'),
            "{args:?}: {complaint:?}"
        );
        assert!(output.stdout.is_empty());
    }
}
