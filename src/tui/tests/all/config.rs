//! The configuration file, and the alerts in it.

use std::path::PathBuf;
use std::process::{Output, Stdio};

use gpumem_tests::{Ended, Terminal, World, said, until};
use rustix::process::{Pid, Signal};

/// A folder for `XDG_CONFIG_HOME` with this configuration.
fn home(text: &str) -> tempfile::TempDir {
    let home = tempfile::tempdir().unwrap();
    std::fs::create_dir(home.path().join("gpumem")).unwrap();
    std::fs::write(home.path().join("gpumem/config.toml"), text).unwrap();
    home
}

fn run(world: &World, home: &tempfile::TempDir, args: &[&str]) -> Output {
    let mut command = world.command(args);
    command.env("XDG_CONFIG_HOME", home.path()).output().unwrap()
}

#[test]
fn command_line_wins_over_the_file() {
    let world = World::without_gpu();
    let home = home("interval = \"3s\"\ncolor = \"16\"\nascii = true\n");
    let printed = |args: &[&str]| said(&run(&world, &home, &[&["--print-config"], args].concat()).stdout);
    assert_eq!(printed(&[]), "interval = \"3s\"\ncolor = \"16\"\nascii = true\n");
    let args = ["--interval", "250ms", "--color", "auto", "--ascii=false"];
    assert_eq!(
        printed(&args),
        "interval = \"250ms\"\ncolor = \"auto\"\nascii = false\n"
    );
    let other = home.path().join("other.toml");
    std::fs::write(&other, "").unwrap();
    let defaults = "interval = \"1s\"\ncolor = \"auto\"\nascii = false\n";
    assert_eq!(printed(&["--config", other.to_str().unwrap()]), defaults);
    // Without the variable it is in ~/.config.
    let mut command = world.command(&["--print-config"]);
    command.env_remove("XDG_CONFIG_HOME").env("HOME", home.path());
    std::fs::create_dir(home.path().join(".config")).unwrap();
    std::fs::rename(home.path().join("gpumem"), home.path().join(".config/gpumem")).unwrap();
    assert!(said(&command.output().unwrap().stdout).starts_with("interval = \"3s\""));
}

#[test]
fn wrong_configuration_is_refused_with_its_line() {
    let world = World::with_nvml("h100");
    let home = home("ascii = true\nintervall = \"3s\"\n");
    for args in [
        &["--once"][..],
        &["--json"],
        &["--json", "--watch"],
        &[],
        &["--print-config"],
    ] {
        let output = run(&world, &home, args);
        let complaint = said(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {complaint}");
        assert!(
            complaint.contains("gpumem/config.toml:2: unknown field `intervall`"),
            "{args:?}: {complaint}"
        );
        assert!(output.stdout.is_empty(), "{args:?}");
    }
    let doctor = run(&world, &home, &["doctor"]);
    assert_eq!(doctor.status.code(), Some(1));
    let text = said(&doctor.stdout);
    assert!(text.contains("BAD  config") && text.contains("ok   NVML"), "{text}");
}

/// A configuration whose alert writes what it is told into a file.
fn with_alert(rest: &str) -> (tempfile::TempDir, PathBuf) {
    let home = home("");
    let file = home.path().join("told");
    let text = format!(
        "interval = \"100ms\"\n[[alert]]\ndevice = 0\nfree_below = \"20GiB\"\n{rest}\ncommand = [\"sh\", \"-c\", 'echo \"$GPUMEM_ALERT_FREE\" >> \"$0\"', {file:?}]\n"
    );
    std::fs::write(home.path().join("gpumem/config.toml"), text).unwrap();
    (home, file)
}

#[test]
fn alert_fires_while_documents_are_printed() {
    let world = World::with_nvml("gpu0.used=4G");
    let (home, file) = with_alert("for = \"500ms\"");
    let mut command = world.command(&["--json", "--watch"]);
    command
        .env("XDG_CONFIG_HOME", home.path())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    let told = || std::fs::read_to_string(&file).unwrap_or_default();
    std::thread::sleep(std::time::Duration::from_secs(1));
    assert_eq!(told(), "");
    world.play("gpu0.used=70G");
    until("the command has run", || told().lines().count() == 1);
    // It goes on, so it does not fire again.
    std::thread::sleep(std::time::Duration::from_secs(1));
    assert_eq!(told().lines().count(), 1);
    world.play("gpu0.used=4G");
    std::thread::sleep(std::time::Duration::from_millis(1500));
    world.play("gpu0.used=71G");
    until("the command has run again", || told().lines().count() == 2);
    rustix::process::kill_process(Pid::from_raw(child.id() as i32).unwrap(), Signal::TERM).unwrap();
    let complaint = said(&child.wait_with_output().unwrap().stderr);
    assert_eq!(complaint.lines().count(), 2, "{complaint}");
    assert!(
        complaint.starts_with("gpumem-tui: GPU 0: less than 20 GiB was free for "),
        "{complaint}"
    );
}

#[test]
fn alert_is_a_message_on_the_screen_and_rings_the_bell() {
    let world = World::with_nvml("gpu0.used=4G");
    let (home, file) = with_alert("bell = true");
    let config = home.path().join("gpumem/config.toml");
    let mut terminal = Terminal::start(&world, &["--config", config.to_str().unwrap()], 120, 30);
    terminal.wait_for(&["4.0"]);
    assert!(!terminal.raw().contains(&7));
    world.play("gpu0.used=70G");
    terminal.wait_for(&["GPU 0: less than 20 GiB was free"]);
    until("the command has run", || {
        std::fs::read_to_string(&file).unwrap_or_default().lines().count() == 1
    });
    until("the bell has rung", || terminal.raw().contains(&7));
    terminal.keys("q");
    assert_eq!(terminal.ended(), Ended::Code(0));
}
