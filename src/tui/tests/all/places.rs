//! Folders that cannot hold channels: programs go on without a channel, and the dashboard and `doctor` say what is wrong.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Output};

use gpumem_tests::{Background, Ended, Terminal, World, said, unshared, until};
use serde_json::Value;

const DEMO: [&str; 10] = [
    "demo",
    "fragmentation",
    "--headless",
    "--json",
    "--device",
    "sim",
    "--budget",
    "256M",
    "--fix",
    "remap",
];

/// Returns folders that cannot hold channels, each with what has to be said about it.
fn unusable(world: &World) -> Vec<(PathBuf, &'static str)> {
    let inside = |name: &str| world.channels().join(name);
    fs::write(inside("file"), "").unwrap();
    fs::create_dir(inside("open")).unwrap();
    fs::set_permissions(inside("open"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::create_dir(inside("private")).unwrap();
    fs::set_permissions(inside("private"), fs::Permissions::from_mode(0o700)).unwrap();
    symlink(inside("private"), inside("link")).unwrap();
    vec![
        (inside("file"), "Not a directory"),
        (inside("open"), "0700"),
        (inside("link"), "it is a symbolic link: name the directory itself"),
        (inside("missing/deep"), "cannot make it"),
        ("/proc/nothing".into(), "cannot make it"),
    ]
}

#[test]
fn a_program_without_a_place_for_its_channel_works_on() {
    let world = World::without_gpu();
    for (dir, why) in unusable(&world) {
        let output = world.command(&DEMO).env("GPUMEM_DIR", &dir).output().unwrap();
        let complaint = said(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{}: {complaint}", dir.display());
        assert!(
            complaint.contains(why) && complaint.contains(dir.to_str().unwrap()),
            "{}: {complaint}",
            dir.display()
        );
        assert_eq!(complaint.trim_end().lines().count(), 1, "once: {complaint}");
        let lines = said(&output.stdout);
        let start: Value = serde_json::from_str(lines.lines().next().unwrap()).unwrap();
        let last: Value = serde_json::from_str(lines.lines().last().unwrap()).unwrap();
        assert!(start["channel"].is_null(), "{start}");
        assert_eq!(last["result"]["succeeded_after"], true, "{last}");
    }
}

/// No file size is allowed at all, so that no channel can be made.
#[test]
fn a_limit_on_file_sizes_does_not_harm_the_program() {
    let world = World::without_gpu();
    let mut command = Command::new("sh");
    let run = world.command(&DEMO);
    command
        .args(["-c", "ulimit -f 0 && exec \"$0\" \"$@\""])
        .arg(run.get_program())
        .args(run.get_args());
    let output = command.envs(world.environment()).output().unwrap();
    assert_eq!(
        output.status.code(),
        Some(0),
        "{:?}: {}",
        output.status,
        said(&output.stderr)
    );
    assert!(said(&output.stdout).contains("\"succeeded_after\":true"));
    let complaint = said(&output.stderr);
    assert!(
        complaint.contains("may have 0 bytes (ulimit -f)") && complaint.contains("raise the limit"),
        "{complaint}"
    );
    assert!(complaint.contains("publish:off"), "{complaint}");
}

/// A dashboard that finds no usable folder runs, and `doctor` names the folder.
#[test]
fn a_dashboard_without_a_channel_folder_runs() {
    let world = World::with_nvml("gpu0.used=4G");
    let unusable = unusable(&world);
    for (dir, _) in &unusable {
        let dir = dir.to_str().unwrap();
        let mut terminal = Terminal::start_with(&world, &[], 100, 30, &[("GPUMEM_DIR", dir)]);
        terminal.wait_for(&["4.0 of 79.6 GiB used"]);
        terminal.keys("q");
        assert_eq!(terminal.ended(), Ended::Code(0), "{dir}");
    }
    for (dir, why) in &unusable[..3] {
        let doctor = world.command(&["doctor"]).env("GPUMEM_DIR", dir).output().unwrap();
        let text = said(&doctor.stdout);
        assert_eq!(doctor.status.code(), Some(1), "{}: {text}", dir.display());
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        // Of a directory it says what its programs would say.
        let told = !dir.is_dir() || text.contains(why) && !text.contains("ok channel dir");
        assert!(told, "{}: {text}", dir.display());
        let advised = text.contains("GPUMEM_DIR must name a directory of this user");
        assert!(advised, "{}: {text}", dir.display());
    }
}

/// Runs the command in this world as if no folder were named, in a mount namespace after `setup`. Returns `None` where that is not
/// permitted.
fn outside(world: &World, setup: &str, args: &[&str]) -> Option<Output> {
    let mut command = world.command(args);
    // An empty value names none.
    command.env("GPUMEM_DIR", "").env_remove("XDG_RUNTIME_DIR");
    unshared(&["-rmpf"], setup, &command).map(|mut command| command.output().unwrap())
}

/// Returns the output of `doctor` on one line.
fn in_one_line(doctor: &Output) -> String {
    said(&doctor.stdout).split_whitespace().collect::<Vec<_>>().join(" ")
}

/// With `GPUMEM_DIR` unset or empty, a reader also finds a channel in another folder.
#[test]
fn an_empty_folder_variable_counts_as_unset() {
    let world = World::without_gpu();
    let (demo, _) = Background::fragmented(&world);
    for named in [None, Some("")] {
        // The default place has the channels of other tests, too. Of many not all are shown.
        until("its row", || {
            let mut command = world.command(&["--json"]);
            command
                .env_remove("GPUMEM_DIR")
                .envs(named.map(|name| ("GPUMEM_DIR", name)));
            let document: Value = serde_json::from_slice(&command.output().unwrap().stdout).unwrap();
            let rows = document["processes"].as_array().unwrap().iter();
            rows.filter(|row| row["pid"] == demo.pid()).count() == 1
        });
    }
}

/// `doctor` warns exactly where a program finds too little room, and the room that it asks for is enough.
#[test]
fn doctor_knows_how_much_room_a_channel_needs() {
    let world = World::without_gpu();
    // A channel takes less on a small file system, but not on a large one that others filled.
    for (size, others, enough) in [(64, 61, false), (64, 60, true), (9, 0, true)] {
        let setup =
            format!("mount -t tmpfs -o size={size}M none /dev/shm && head -c {others}M /dev/zero > /dev/shm/others");
        let Some(doctor) = outside(&world, &setup, &["doctor"]) else {
            return;
        };
        let text = in_one_line(&doctor);
        assert_eq!(text.contains("ok channel dir"), enough, "{setup}: {text}");
        assert_eq!(
            text.contains("a program needs up to 4 MiB there"),
            !enough,
            "{setup}: {text}"
        );
        let demo = outside(&world, &setup, &DEMO).unwrap();
        let complaint = said(&demo.stderr);
        assert_eq!(
            complaint.contains("no room for a channel"),
            !enough,
            "{setup}: {complaint}"
        );
        for advice in ["make room there", "GPUMEM_DIR", "publish:off"] {
            assert_eq!(complaint.contains(advice), !enough, "{setup}: {complaint}");
        }
    }
}

/// The programs run one after the other in as much shared memory as Docker gives a container. Their black boxes keep neither them nor
/// other programs from publishing, and `doctor` agrees.
#[test]
fn programs_that_end_leave_room_for_those_that_begin() {
    let world = World::without_gpu();
    let demo = world.command(&DEMO);
    let in_turn = |runs: &str| {
        let mut command = Command::new("sh");
        let script = format!(
            "for run in {runs}; do \"$0\" \"$@\" || exit; done >&2; df -k --output=avail /dev/shm; \"$0\" doctor"
        );
        command.args(["-c", &script]).arg(demo.get_program());
        command.args(demo.get_args()).envs(world.environment());
        // A folder in which no other test looks: a reader that has a black box open keeps its memory in use.
        command.env("GPUMEM_DIR", "/dev/shm/channels");
        command
    };
    for (size, runs) in [("64m", "1 2 3 4 5 6 7 8"), ("12m", "1 2")] {
        let setup = format!("mount -t tmpfs -o size={size} none /dev/shm");
        let Some(mut programs) = unshared(&["-rmpf"], &setup, &in_turn(runs)) else {
            return;
        };
        let output = programs.output().unwrap();
        let complaint = said(&output.stderr);
        assert!(!complaint.contains("not publishing"), "{size}: {complaint}");
        let text = in_one_line(&output);
        assert!(text.contains("ok channel dir"), "{size}: {text}");
        let free = text.split_whitespace().find_map(|word| word.parse::<u64>().ok());
        assert!(size == "12m" || free.unwrap() > 40 << 10, "{size}: {text}");
    }
}

/// None of the default places is usable. Checks the messages and the exit codes of the publisher and of `doctor`.
#[test]
fn a_machine_without_a_place_for_channels_is_reported() {
    let world = World::without_gpu();
    let cases = [
        (
            "mount -t tmpfs none /dev/shm && mount -o remount,ro /dev/shm",
            "/dev/shm/gpumem-0: cannot make it: Read-only file system (os error 30)",
            "/dev/shm/gpumem-0: Read-only file system (os error 30)",
        ),
        (
            "mount -t tmpfs -o mode=0755 none /dev && touch /dev/null",
            "/dev/shm/gpumem-0: cannot make it: No such file or directory (os error 2)",
            "/dev/shm/gpumem-0: there is no such place",
        ),
        (
            "mount -t proc none /dev/shm",
            "/dev/shm/gpumem-0: cannot make it: No such file or directory (os error 2)",
            "/dev/shm/gpumem-0: not in memory (tmpfs)",
        ),
    ];
    for (setup, publisher_says, doctor_says) in cases {
        let run = |args: &[&str]| outside(&world, setup, args);
        let Some(demo) = run(&DEMO) else { continue };
        assert_eq!(demo.status.code(), Some(0), "{setup}: {}", said(&demo.stderr));
        let complaint = format!("gpumem: not publishing: no directory for the channel: {publisher_says}\n");
        assert_eq!(said(&demo.stderr), complaint, "{setup}");
        assert!(said(&demo.stdout).contains("\"succeeded_after\":true"), "{setup}");
        let Some(document) = run(&["--json"]) else { continue };
        assert_eq!(document.status.code(), Some(3), "{setup}: {}", said(&document.stderr));
        let Some(doctor) = run(&["doctor"]) else { continue };
        assert_eq!(doctor.status.code(), Some(1), "{setup}: {}", said(&doctor.stdout));
        let text = in_one_line(&doctor);
        assert!(
            text.contains(&format!("none can be used: {doctor_says}")),
            "{setup}: {text}"
        );
    }
}

/// Runs the program in this world as a user that owns nothing here. Needs root, which owns the test's own files.
fn as_nobody(world: &World, args: &[&str]) -> Output {
    // The binary's folder may be closed to other users.
    let copy = world.channels().join("gpumem-tui");
    if !copy.exists() {
        // Copied by another process. A child that another thread forks would inherit a descriptor that is open for writing, and a file
        // that is open for writing cannot be executed.
        let copied = Command::new("cp").arg(gpumem_tests::gpumem_tui()).arg(&copy).status();
        assert!(copied.unwrap().success());
    }
    fs::set_permissions(world.channels(), fs::Permissions::from_mode(0o711)).unwrap();
    let mut command = Command::new(&copy);
    command
        .args(args)
        .envs(world.environment())
        .env("GPUMEM_DIR", world.channels().join("root"))
        .current_dir("/");
    command.uid(65534).gid(65534).output().unwrap()
}

#[test]
fn another_users_channels_are_closed_to_all_but_root() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: only root can be two users");
        return;
    }
    let world = World::without_gpu();
    let root = world.channels().join("root");
    fs::create_dir(&root).unwrap();
    fs::set_permissions(&root, fs::Permissions::from_mode(0o700)).unwrap();
    let output = as_nobody(&world, &DEMO);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output.stderr));
    assert!(
        said(&output.stderr).contains("Permission denied"),
        "{}",
        said(&output.stderr)
    );
    let doctor = as_nobody(&world, &["doctor"]);
    assert_eq!(doctor.status.code(), Some(1));
    assert!(
        said(&doctor.stdout).contains("cannot be read"),
        "{}",
        said(&doctor.stdout)
    );

    // The other way round: root reads what belongs to a user.
    let world = World::without_gpu();
    let (demo, says) = Background::fragmented(&world);
    let channel = world.channel_files().remove(0);
    std::os::unix::fs::chown(&channel, Some(65534), None).unwrap();
    std::os::unix::fs::chown(world.channels(), Some(65534), None).unwrap();
    let document = world.json();
    assert_eq!(document["unreadable_channels"], Value::Array(vec![]));
    let process = &document["processes"][0];
    assert_eq!(
        (&process["pid"], &process["allocator"]["cached"]),
        (&demo.pid().into(), &says["cached"])
    );
}
