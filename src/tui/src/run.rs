//! Runs a command line and returns an exit code.

use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use gpumem_demo::bench::hierarchy as bench;
use gpumem_demo::{Chosen, Demo as _, DeviceChoice, Entry, Replay, WITHOUT_GPU};

use crate::app::{self, Ended};
use crate::cli::{
    Cli, Command, DemoCli, DoctorCli, LookArgs, ReplayCli, RunCli, TriageCli, ViewArgs, completions, explain, page,
};
use crate::clock;
use crate::config::{Config, Interval};
use crate::demo::{DemoOptions, hierarchy};
use crate::model::{BlackBoxes, Demo, DemoInfo, Hierarchies, Model, Only, Setup, Sort, Term, Tracking, View};
use crate::source::{driver_root, in_driver, named_nvml, raise_descriptor_limit};
use crate::terminal::{self, Environment};
use crate::wrap::wrap;
use crate::{attach, doctor, report, run_command, triage, watch};

/// Exit code: something failed.
const FAILED: u8 = 1;
/// Exit code: bad arguments, or no terminal.
const USAGE: u8 = 2;
/// Exit code: no GPU.
const NO_GPU: u8 = 3;

/// Error for a demo that is shown but does not publish.
const SHOWN_IS_PUBLISHED: &str =
    "the dashboard shows what a demo publishes: leave publish:off out (of --conf, or of GPUMEM_ALLOC_CONF)";

/// Runs the program and returns its exit code. If the driver hangs, it ends the program itself.
pub fn main() -> u8 {
    let code = command();
    if in_driver() {
        terminal::exit_at_once(code);
    }
    code
}

/// Parses the command line and runs it.
fn command() -> u8 {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) if error.use_stderr() => {
            if let Some(why) = explain_demo(&error) {
                return fail(USAGE, &why);
            }
            // An unexpected argument may be the name of any file, so it is cleaned.
            let lines: Vec<_> = error.render().to_string().lines().map(gpumem_text::clean).collect();
            let _ = writeln!(io::stderr(), "{}", lines.join("\n"));
            return USAGE;
        }
        Err(help) => {
            // Help or the version. Errors of writing it are ignored.
            let _ = help.print();
            return 0;
        }
    };
    match cli.command {
        Some(Command::Doctor(args)) => examine(&args),
        Some(Command::Completions { shell }) => say(&completions(shell)),
        Some(Command::Man { command }) => manual_page(command.as_deref()),
        Some(Command::Run(run)) => run_program(&run),
        Some(Command::Triage(args)) => run_triage(&args),
        Some(Command::UvmHelper) => hold_trackers(),
        Some(Command::Attach(attach)) => attach::attach(&attach),
        Some(Command::Detach { pid }) => attach::detach(pid),
        Some(Command::Publisher { attached_to }) => {
            publish(attached_to);
            0
        }
        Some(Command::Bench(bench)) => gpumem_demo::bench::main(&bench),
        Some(Command::Replay(replay)) if replay.live() => look_at_replay(&replay),
        Some(Command::Replay(replay)) => gpumem_demo::replay::main(&replay.to_args()),
        Some(Command::Demo(mut demo)) => match demo.demo.take() {
            None => list_demos(),
            Some(chosen) => run_demo(&demo, chosen),
        },
        None => view(&cli.view),
    }
}

/// Shows the dashboard, or what takes its place.
fn view(args: &ViewArgs) -> u8 {
    let config = match settings(&args.look, args.interval) {
        Ok(config) => config,
        Err(code) => return code,
    };
    if args.print_config {
        return match config.to_toml() {
            Ok(text) => say(&text),
            Err(error) => fail(FAILED, &format!("the configuration cannot be written as TOML: {error}")),
        };
    }
    if args.watch {
        return watch_json(args, &config);
    }
    match args.once || args.json {
        true => report_once(args, &config),
        false => dashboard(args, &config),
    }
}

/// Reads the configuration, over which the arguments win. An error is reported, and is the exit code.
fn settings(look: &LookArgs, interval: Option<Duration>) -> Result<Config, u8> {
    match Config::load(look.config.as_deref()) {
        Ok(config) => Ok(with_arguments(config, look, interval)),
        Err(wrong) => Err(fail(USAGE, &wrong.to_string())),
    }
}

fn with_arguments(config: Config, look: &LookArgs, interval: Option<Duration>) -> Config {
    Config {
        interval: interval.map_or(config.interval, Interval),
        color: look.color.unwrap_or(config.color),
        ascii: look.ascii.unwrap_or(config.ascii),
        ..config
    }
}

/// Explains an error in a command line of `demo` better than clap does, if that is possible.
fn explain_demo(error: &clap::Error) -> Option<String> {
    let mut words = std::env::args_os()
        .skip(1)
        .map(|word| word.to_string_lossy().into_owned());
    let demo = words.next().is_some_and(|word| word == "demo");
    let why = explain(error, &words.collect::<Vec<_>>()).filter(|_| demo)?;
    Some(gpumem_text::clean(&why))
}

/// Runs the helper that holds the driver's trackers, until the dashboard that started it is gone.
fn hold_trackers() -> u8 {
    match gpumem_probe::run_helper(&driver_root()) {
        Ok(()) => 0,
        Err(error) => fail(FAILED, &format!("this is for a dashboard to run: {error}")),
    }
}

/// Publishes what comes from stdin.
fn publish(attached_to: Option<u32>) {
    let attached = attached_to.map(|pid| gpumem_torch::Attached {
        pid,
        stop: attach::stop_flag(),
    });
    gpumem_torch::run(
        io::BufReader::new(io::stdin()),
        &mut io::stdout(),
        &used_by,
        attached.as_ref(),
    );
}

/// Returns the bytes of a device that a process uses, as NVML counts them. NVML is loaded for this one question: a publisher asks a few times
/// at its start and then runs for as long as its program.
fn used_by(device: [u8; 16], pid: u32) -> Option<u64> {
    gpumem_probe::Nvml::load(None).ok()?.used_by(device, pid)
}

/// Replaces this process by a command whose Python processes publish, or use the allocator. Returns only if it cannot be run.
fn run_program(run: &RunCli) -> u8 {
    let environment = if run.allocator {
        match run_command::with_allocator(run.library.as_deref()) {
            Ok(environment) => environment,
            Err(error) => return fail(USAGE, &format!("run --allocator: {error}")),
        }
    } else {
        run_command::environment("1").unwrap_or_else(|error| {
            complain(&format!("gpumem-tui: the command runs without publishing: {error}"));
            Vec::new()
        })
    };
    let error = run_command::run(&run.command, environment);
    fail(error.exit_code(), &error.to_string())
}

fn examine(args: &DoctorCli) -> u8 {
    raise_descriptor_limit();
    let (config, wrong) = match Config::load(args.look.config.as_deref()) {
        Ok(config) => (with_arguments(config, &args.look, None), None),
        Err(wrong) => (Config::default(), Some(wrong)),
    };
    let term = term(&config);
    let mut model = report::model(setup(&config), "", Sort::default(), true);
    let mut checks = doctor::examine(&mut model, &Environment::read(), term.colors, term.ascii);
    checks.extend(wrong.map(|wrong| doctor::configuration(&wrong.to_string())));
    if let Some(file) = &args.bundle {
        return match doctor::bundle(file, &checks, &model) {
            Ok(said) => say(&said),
            Err(error) => fail(FAILED, &error),
        };
    }
    let text = match args.json {
        true => doctor::json(&checks).map(|json| json + "\n"),
        false => Ok(doctor::text(&checks, terminal::columns(io::stdout()))),
    };
    match text {
        Ok(text) => match say(&text) {
            0 => doctor::exit_code(&checks),
            failed => failed,
        },
        Err(error) => fail(FAILED, &format!("the checks cannot be written as JSON: {error}")),
    }
}

fn manual_page(command: Option<&str>) -> u8 {
    match page(command) {
        Some(Ok(page)) => say(&page),
        Some(Err(error)) => fail(FAILED, &format!("the manual page cannot be made: {error}")),
        None => {
            let name = gpumem_text::clean(command.unwrap_or_default());
            fail(
                USAGE,
                &format!("there is no subcommand {name:?}: gpumem-tui --help lists them"),
            )
        }
    }
}

fn run_triage(args: &TriageCli) -> u8 {
    let collect = || {
        raise_descriptor_limit();
        report::collect(report::model(setup(&Config::default()), "", Sort::default(), true))
    };
    match triage::run(args, collect, terminal::columns(io::stdout())) {
        Ok(answer) => match say(&answer.text) {
            0 if answer.found => triage::FOUND,
            code => code,
        },
        Err(why) => fail(FAILED, &why),
    }
}

fn list_demos() -> u8 {
    say(&demos(terminal::columns(io::stdout())))
}

/// Lists the demos with their summaries in lines of at most `room` columns.
fn demos(room: u16) -> String {
    const MARGIN: u16 = 17;
    let mut text = String::from("demos:\n");
    for demo in gpumem_demo::list() {
        let indent = format!("\n{:1$}", "", MARGIN.into());
        // At least 20 columns, so that words are not broken into letters.
        let summary = wrap(demo.summary, room.saturating_sub(MARGIN).max(20)).join(&indent);
        text.push_str(&format!("  {:<14} {summary}\n", demo.name));
    }
    let usage = "gpumem-tui demo NAME shows one in the dashboard, --headless runs it here, --device sim without a GPU";
    text + "\n" + &in_lines(usage, room) + "\n"
}

fn run_demo(demo: &DemoCli, chosen: Chosen) -> u8 {
    if demo.run.headless {
        return gpumem_demo::main(chosen, &demo.run);
    }
    if !gpumem_demo::publishes(demo.run.conf.as_ref()) {
        return fail(USAGE, SHOWN_IS_PUBLISHED);
    }
    if !io::stdout().is_terminal() {
        return fail(
            USAGE,
            "stdout is not a terminal: use --headless (and --json for programs) to run the demo without one",
        );
    }
    // Errors are reported before the dashboard starts, so that they stay readable after it is closed.
    let code = gpumem_demo::check(&chosen, &demo.run);
    if code != 0 {
        return code;
    }
    let config = match settings(&demo.look, demo.interval) {
        Ok(config) => config,
        Err(code) => return code,
    };
    let demo_of = chosen.entry();
    let options = DemoOptions {
        shared: demo.run.shared_flags().into_iter().map(OsString::from).collect(),
        own: Some((demo_of.name.to_owned(), chosen.flags().to_vec())),
        device: demo.run.device.map(|device| device.to_string()),
    };
    show_demo(demo_of, setup(&config), options, &config)
}

fn look_at_replay(replay: &ReplayCli) -> u8 {
    let (demo, args) = match replay.to_demo() {
        Ok(args) => args,
        Err(why) => return fail(USAGE, why),
    };
    if !replay.watch {
        return gpumem_demo::main(demo, &args);
    }
    if !io::stdout().is_terminal() {
        return fail(
            USAGE,
            "stdout is not a terminal: leave out --watch, and use --speed N to replay at a pace without one",
        );
    }
    // Errors in the trace are reported before the dashboard starts, so that they stay readable after it is closed.
    let code = gpumem_demo::replay::check(&replay.to_args());
    if code != 0 {
        return code;
    }
    let options = DemoOptions {
        // No shared arguments: its limit and number of passes would be the budget and steps of another demo.
        shared: Vec::new(),
        own: Some((Replay::NAME.to_owned(), replay.child_flags())),
        device: Some(replay.device.to_string()),
    };
    let config = match settings(&replay.look, replay.interval) {
        Ok(config) => config,
        Err(code) => return code,
    };
    let mut setup = setup(&config);
    setup.demos.splice(0..0, again(replay));
    show_demo(Chosen::from(demo).entry(), setup, options, &config)
}

/// Returns the entry of a replay in the list of demos. `None` if the trace is not a regular file, which can be read only once.
fn again(replay: &ReplayCli) -> Option<DemoInfo> {
    let file = std::fs::metadata(&replay.trace).is_ok_and(|file| file.is_file());
    let name = replay.trace.file_name().unwrap_or_default().to_string_lossy();
    file.then(|| DemoInfo {
        name: Replay::NAME.into(),
        summary: format!("{} once more, from its first pass on", gpumem_text::clean(&name)),
        simulated: Some(replay.device == DeviceChoice::Sim),
    })
}

/// Shows a demo in the dashboard.
fn show_demo(demo: Entry, setup: Setup, options: DemoOptions, config: &Config) -> u8 {
    let mut model = Model {
        setup,
        ..Model::default()
    };
    model.ui.term = term(config);
    model.ui.view = View::Demo;
    model.ui.follow_demo = true;
    model.demo = Some(Demo {
        name: demo.name.to_owned(),
        simulated: options.device.as_deref() == Some("sim"),
        asked_for: true,
        ..Demo::default()
    });
    show(model, options, config, demo.command)
}

/// Returns the model of a report before its first sample.
fn report_model(args: &ViewArgs, config: &Config) -> Model {
    let mut setup = setup(config);
    setup.only = args.only();
    setup.tracking = args.uvm.tracking();
    if args.no_black_boxes {
        setup.black_boxes = BlackBoxes::None;
    }
    report::model(setup, &args.filter(), args.sort, args.json && !args.no_black_boxes)
}

fn report_once(args: &ViewArgs, config: &Config) -> u8 {
    raise_descriptor_limit();
    let model = match report::collect(report_model(args, config)) {
        Ok(model) => model,
        Err(error) => return fail(FAILED, &error.to_string()),
    };
    let nothing = report::nothing(&model);
    if let Some(missing) = report::missing(&model).filter(|_| nothing.is_none()) {
        complain(&format!("gpumem-tui: {missing}"));
    }
    if args.json {
        let code = match report::document(&model) {
            Ok(document) => say(&format!("{document}\n")),
            Err(error) => return fail(FAILED, &format!("the report cannot be written as JSON: {error}")),
        };
        if code != 0 {
            return code;
        }
    }
    match nothing {
        Some(why) => fail(NO_GPU, &why),
        None if args.json => 0,
        None => say(&report::text(&model, terminal::columns(io::stdout()))),
    }
}

/// Prints a JSON document a sample.
fn watch_json(args: &ViewArgs, config: &Config) -> u8 {
    if args.once {
        return fail(
            USAGE,
            "--once prints one report: leave out --watch, or use --json --watch for a document a sample",
        );
    }
    if !args.json {
        return fail(
            USAGE,
            "--watch is for --json: without both the dashboard watches, and --json --watch prints a document a sample",
        );
    }
    raise_descriptor_limit();
    match watch::run(report_model(args, config), config.alerts(), &complain) {
        Ok(code) => code,
        Err(error) => fail(FAILED, &error.to_string()),
    }
}

fn dashboard(args: &ViewArgs, config: &Config) -> u8 {
    let only = args.only();
    let simulate = only.contains(&Only::Simulated);
    if simulate && !gpumem_demo::publishes(None) {
        return fail(USAGE, SHOWN_IS_PUBLISHED);
    }
    if !io::stdout().is_terminal() {
        return fail(
            USAGE,
            "stdout is not a terminal: use --once for a report or --json for a document",
        );
    }
    let mut setup = setup(config);
    setup.only = only;
    setup.tracking = args.uvm.tracking();
    setup.read_only = args.readonly;
    if args.no_black_boxes {
        setup.black_boxes = BlackBoxes::SeenAlive;
    }
    if args.readonly {
        // The driver's counters are attached to processes, too.
        setup.tracking = Tracking::Never;
    }
    let mut model = Model {
        setup,
        ..Model::default()
    };
    model.ui.term = term(config);
    model.ui.filter.text = args.filter();
    model.ui.sort = args.sort;
    if simulate {
        model.ui.follow_demo = true;
        model.demo = Some(Demo {
            name: WITHOUT_GPU.into(),
            simulated: true,
            ..Demo::default()
        });
    }
    show(model, DemoOptions::default(), config, "demo")
}

/// Runs the dashboard. `command` is the subcommand in error messages of its demo.
fn show(mut model: Model, demo: DemoOptions, config: &Config, command: &str) -> u8 {
    raise_descriptor_limit();
    model.hierarchies = hierarchies();
    match app::run(model, demo, config.alerts()) {
        Ok(Ended { code, failed: None }) => code,
        // The screen that showed the error is gone.
        Ok(Ended {
            code,
            failed: Some(why),
        }) => {
            complain(&format!("gpumem-tui {command}: {why}"));
            code
        }
        Err(error) => fail(FAILED, &format!("the dashboard cannot use this terminal: {error}")),
    }
}

/// Reads the memory hierarchies that were measured before. A file that cannot be read is as good as none: `r` measures again.
fn hierarchies() -> Hierarchies {
    let mut kept = bench::kept().reports;
    kept.sort_by_key(|kept| std::cmp::Reverse(kept.report.date));
    Hierarchies {
        kept: kept.iter().map(|kept| Arc::new(hierarchy(&kept.report))).collect(),
        example: Some(Arc::new(hierarchy(&bench::example()))),
        ..Hierarchies::default()
    }
}

fn setup(config: &Config) -> Setup {
    let uid = rustix::process::geteuid();
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let info = |d: Entry| DemoInfo {
        name: d.name.into(),
        summary: d.summary.into(),
        simulated: None,
    };
    Setup {
        host: gpumem_text::clean(&host),
        user: our_name(),
        uid: uid.as_raw(),
        root: uid.is_root(),
        interval: config.interval.0.as_nanos() as u64,
        only: Vec::new(),
        tracking: Tracking::default(),
        demos: gpumem_demo::list().map(info).collect(),
        without_gpu: WITHOUT_GPU.into(),
        realtime_offset: clock::realtime_offset(),
        read_only: false,
        no_demo: !gpumem_demo::publishes(None),
        nvml: named_nvml(),
        black_boxes: BlackBoxes::default(),
        columns: config.columns.clone(),
    }
}

/// Returns our user's name as the process table shows it, so that the two can be compared.
fn our_name() -> String {
    let found = gpumem_probe::Processes::default().look_up(&[std::process::id()]);
    found
        .into_iter()
        .flatten()
        .next()
        .map_or_else(String::new, |process| process.user)
}

fn term(config: &Config) -> Term {
    let env = Environment::read();
    Term {
        colors: config.color.step().unwrap_or_else(|| terminal::colors(&env)),
        ascii: config.ascii || !terminal::utf8(&env),
        palette: config.theme,
        ..Term::default()
    }
}

/// Writes to stdout and returns an exit code. A closed pipe (`| head`) is not a failure.
fn say(text: &str) -> u8 {
    let mut out = gpumem_demo::stdout();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => 0,
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => 0,
        Err(error) => fail(FAILED, &format!("cannot write to stdout: {error}")),
    }
}

fn fail(code: u8, text: &str) -> u8 {
    complain(&format!("gpumem-tui: {text}"));
    code
}

/// Writes to stderr, wrapped to the terminal's width.
fn complain(text: &str) {
    // If stderr is closed, the message is lost.
    let _ = writeln!(io::stderr(), "{}", in_lines(text, terminal::columns(io::stderr())));
}

/// Wraps a text into lines of at most `room` columns. `u16::MAX` leaves it as it is.
fn in_lines(text: &str, room: u16) -> String {
    match room {
        u16::MAX => text.to_owned(),
        _ => wrap(text, room).join("\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_wraps_between_words() {
        assert_eq!(in_lines("gpumem-tui: one  two", u16::MAX), "gpumem-tui: one  two");
        assert_eq!(in_lines("gpumem-tui: one two", 15), "gpumem-tui: one\ntwo");
        let whole = demos(u16::MAX);
        let narrow = demos(60);
        assert!(narrow.lines().all(|line| line.chars().count() <= 60), "{narrow}");
        assert!(narrow.contains("\n                 "), "{narrow}");
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(words(&narrow), words(&whole));
    }
}
