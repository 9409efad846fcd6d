//! A fake driver of unified memory, processes that use it, and dashboards that look at them.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};
use std::time::{Duration, Instant};

use gpumem_fake_uvm::{FakeUvm, Managed};
use gpumem_tests::{Terminal, World, lives, said, until};
use rustix::process::{PTracer, set_ptracer};
use rustix::thread::{CapabilitySet, remove_capability_from_bounding_set};

/// Where processes have their managed memory.
pub(super) const START: u64 = 0x7000_0000_0000;
/// Pages of a block, the 2 MiB that the driver moves as one.
pub(super) const BLOCK: u64 = 512;

/// In the environment of a watched process: the folder that stands for `/`.
const ROOT: &str = "GPUMEM_TEST_UVM_ROOT";
/// In its environment too: the number that scenarios call it by.
const SPACE: &str = "GPUMEM_TEST_UVM_SPACE";
/// Set for a process that nobody may look into without the right to trace every process.
const PROTECTED: &str = "GPUMEM_TEST_UVM_PROTECTED";

/// In the environment of a program that is to become the dashboard: the rights that it gives up.
const RIGHTS: &str = "GPUMEM_TEST_WITHOUT_RIGHTS";

/// A machine with one GPU, whose driver plays a scenario.
pub(super) struct Stage {
    pub(super) fake: FakeUvm,
    pub(super) world: World,
}

impl Stage {
    pub(super) fn new(scenario: &str) -> Stage {
        let root = gpumem_fake_uvm::folder().unwrap();
        let fake = FakeUvm::install(&root, "580.159.04").unwrap();
        fake.play(scenario).unwrap();
        let world = World::with_nvml("");
        Stage { fake, world }
    }

    /// Starts processes that each have so many pages of managed memory. NVML lists them with 1 GiB each, and 5 GiB of nobody.
    pub(super) fn watched(&self, count: usize, pages: u64) -> Vec<Watched> {
        self.watched_with(count, pages, &[])
    }

    /// The same with more in their environment.
    fn watched_with(&self, count: usize, pages: u64, environment: &[(&str, &str)]) -> Vec<Watched> {
        let start = |space: usize| Watched::start(self, space, environment);
        let mut all: Vec<Watched> = (0..count).map(start).collect();
        for process in &mut all {
            process.hear("ready");
            process.say(&format!("map {START} {pages}"));
        }
        self.list(&all);
        all
    }

    /// Starts one that nobody may look into without the right to trace every process.
    pub(super) fn protected(&self, pages: u64) -> Watched {
        self.watched_with(1, pages, &[(PROTECTED, "1")]).remove(0)
    }

    /// Has NVML list these processes.
    pub(super) fn list(&self, processes: &[Watched]) {
        let mut scenario = format!("gpu0.used={}G", 5 + processes.len());
        for process in processes {
            scenario += &format!("\ngpu0.process={}:1G:compute", process.pid());
        }
        self.world.play(&scenario);
    }

    fn environment(&self) -> [(&'static str, String); 2] {
        let library = FakeUvm::library().unwrap();
        [
            ("GPUMEM_UVM", self.fake.root().to_str().unwrap().to_owned()),
            ("LD_PRELOAD", library.to_str().unwrap().to_owned()),
        ]
    }

    /// Starts the dashboard on a terminal of 120x40. Without colours the glyphs tell the places of pages apart.
    pub(super) fn dashboard(&self, args: &[&str]) -> Terminal {
        let program = gpumem_tests::gpumem_tui();
        let args = [&["--interval", "200ms", "--color", "mono"], args].concat();
        self.terminal(&program, &args, &[])
    }

    /// Starts it without rights that root has: to `trace` every process, to `profile` every process.
    pub(super) fn dashboard_without(&self, rights: &str) -> Terminal {
        let program = std::env::current_exe().unwrap();
        let args = ["--exact", "unified::without_rights", "--ignored", "--nocapture"];
        self.terminal(&program, &args, &[(RIGHTS, rights)])
    }

    fn terminal(&self, program: &std::path::Path, args: &[&str], environment: &[(&str, &str)]) -> Terminal {
        let own = self.environment();
        let own = own.iter().map(|(name, value)| (*name, value.as_str()));
        let environment: Vec<_> = own.chain(environment.iter().copied()).collect();
        Terminal::start_program(program, &self.world, args, 120, 40, &environment)
    }

    /// Runs a report.
    pub(super) fn report(&self, args: &[&str]) -> String {
        let output = self.world.command(args).envs(self.environment()).output();
        let Output { status, stdout, stderr } = output.unwrap();
        assert!(status.success(), "{}", said(&stderr));
        said(&stdout)
    }

    pub(super) fn trackers(&self) -> usize {
        self.fake.open_trackers().unwrap()
    }

    #[track_caller]
    pub(super) fn wait_for_trackers(&self, count: usize) {
        until(&format!("{count} trackers are open"), || self.trackers() == count);
    }

    /// How long it takes until no tracker is open.
    pub(super) fn until_released(&self) -> Duration {
        let begin = Instant::now();
        while self.trackers() > 0 && begin.elapsed() < Duration::from_secs(5) {
            std::thread::sleep(Duration::from_millis(1));
        }
        begin.elapsed()
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(self.fake.root());
    }
}

/// A process with managed memory, which does what it is told, line by line.
pub(super) struct Watched {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Watched {
    fn start(stage: &Stage, space: usize, environment: &[(&str, &str)]) -> Watched {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "unified::watched_process", "--ignored", "--nocapture"])
            .env(ROOT, stage.fake.root())
            .env(SPACE, space.to_string())
            .envs(environment.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        Watched {
            stdin: child.stdin.take().unwrap(),
            stdout: BufReader::new(child.stdout.take().unwrap()),
            child,
        }
    }

    /// Reads on until it says so. The test harness that it runs in says things too.
    fn hear(&mut self, wanted: &str) {
        let mut line = String::new();
        while !line.ends_with(&format!("{wanted}\n")) {
            line.clear();
            assert!(self.stdout.read_line(&mut line).unwrap() > 0, "it ended");
        }
    }

    /// Tells it to do something, and waits until it has.
    pub(super) fn say(&mut self, line: &str) {
        writeln!(self.stdin, "{line}").unwrap();
        self.hear("done");
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(super) fn kill(&mut self) {
        self.child.kill().unwrap();
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a watched process does until its input ends.
pub(super) fn play_watched() {
    let Some(root) = std::env::var_os(ROOT) else { return };
    let space = std::env::var(SPACE).unwrap().parse().unwrap();
    // Where Yama lets a process trace its own children only.
    let _ = set_ptracer(PTracer::Any);
    if std::env::var_os(PROTECTED).is_some() {
        let not_dumpable = rustix::process::DumpableBehavior::NotDumpable;
        rustix::process::set_dumpable_behavior(not_dumpable).unwrap();
    }
    let managed = Managed::open(root.as_ref(), space).unwrap();
    let mut memory = None;
    println!("ready");
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |n: usize| words[n].parse::<u64>().unwrap();
        match (words[0], &memory) {
            ("map", _) => memory = Some(managed.map(number(1), number(2)).unwrap()),
            ("touch", Some(memory)) => memory.touch(number(1)..number(2)),
            ("leave", Some(memory)) => memory.leave(number(1)..number(2)).unwrap(),
            _ => panic!("{line}"),
        }
        println!("done");
    }
}

/// Gives up rights and becomes the dashboard.
pub(super) fn run_without_rights() {
    let Ok(rights) = std::env::var(RIGHTS) else { return };
    for right in rights.split(' ') {
        let sets = match right {
            "trace" => &[CapabilitySet::SYS_PTRACE][..],
            _ => &[CapabilitySet::PERFMON, CapabilitySet::SYS_ADMIN],
        };
        for set in sets {
            // Whoever is not root has none of them.
            let _ = remove_capability_from_bounding_set(*set);
        }
    }
    panic!("{}", Command::new(gpumem_tests::gpumem_tui()).exec());
}

/// The helpers of a dashboard. They are children of a thread that is not its first.
pub(super) fn helpers(dashboard: u32) -> Vec<u32> {
    let threads = std::fs::read_dir(format!("/proc/{dashboard}/task")).unwrap();
    let of_thread = |thread: std::fs::DirEntry| std::fs::read_to_string(thread.path().join("children")).ok();
    let children: Vec<String> = threads.flatten().filter_map(of_thread).collect();
    let children = children.iter().flat_map(|list| list.split_whitespace());
    children.filter_map(|pid| pid.parse().ok()).collect()
}

/// Waits for the one helper of a dashboard.
#[track_caller]
pub(super) fn helper(dashboard: u32) -> u32 {
    until("there is a helper", || helpers(dashboard).len() == 1);
    let helper = helpers(dashboard)[0];
    let command = std::fs::read_to_string(format!("/proc/{helper}/cmdline")).unwrap();
    assert!(command.contains("uvm-helper"), "{command}");
    helper
}

#[track_caller]
pub(super) fn wait_until_gone(helper: u32) {
    until("the helper is gone", || !lives(helper));
}

/// The words of a screen, without the lines around them: a sentence may go on in the next line.
pub(super) fn words(screen: &str) -> String {
    let text = screen.replace(['│', '─', '╭', '╮', '╰', '╯'], " ");
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Waits until the screen says a sentence, over as many lines as it takes.
#[track_caller]
pub(super) fn wait_for_sentence(terminal: &Terminal, sentence: &str) {
    terminal.wait(sentence, |screen| words(screen).contains(sentence));
}

/// The cells of the map: what stands between the labels and the frame, in the lines above the legend.
pub(super) fn cells(screen: &str) -> String {
    let lines = screen.lines().skip_while(|line| !line.contains(" managed in "));
    let lines = lines.skip(1).take_while(|line| !line.contains("1 cell ="));
    // `│ 700000000000   64.0M ◆░░░ │`
    lines
        .map(|line| line.chars().skip(2 + 21).take(120 - 2 * 2 - 21).collect::<String>())
        .collect::<String>()
        .replace(' ', "")
}
