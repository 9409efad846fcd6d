//! Alerts at work: judges them with each sample, and runs the commands of those that fire.
//!
//! A command runs without a shell and beside everything else. It is killed, with what it has started, when it takes too long or when this
//! program ends.

use std::collections::BTreeSet;
use std::process::Stdio;
use std::time::Duration;

use gpumem_text::clean;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::{Child, Command};
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::model::{Alert, Alerts, Fired, Model};

/// How long a command may take.
const LIMIT: Duration = Duration::from_secs(30);

/// What is to be told after a sample.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Told {
    /// What happened, in a sentence for each alert; empty if nothing did.
    pub text: String,
    /// Whether the terminal's bell rings.
    pub bell: bool,
}

/// The alerts, and their commands that run.
pub(crate) struct Notifier {
    alerts: Alerts,
    /// The places of the alerts whose commands run.
    running: BTreeSet<usize>,
    sender: mpsc::UnboundedSender<(usize, Result<(), String>)>,
    results: mpsc::UnboundedReceiver<(usize, Result<(), String>)>,
}

impl Notifier {
    /// Arms the alerts. What happened before the model's time does not count. Needs a tokio runtime to run commands.
    pub(crate) fn new(alerts: Vec<Alert>, model: &Model) -> Notifier {
        // At most one command an alert runs, so there are few results.
        let (sender, results) = mpsc::unbounded_channel();
        Notifier {
            alerts: Alerts::new(alerts, model.now),
            running: BTreeSet::new(),
            sender,
            results,
        }
    }

    /// Judges the alerts by the newest samples, also while the dashboard is paused, and starts the commands of those that fire.
    pub(crate) fn judge(&mut self, model: &Model) -> Told {
        let (mut texts, mut bell) = (Vec::new(), false);
        for fired in self.alerts.judge(&model.live, model.now) {
            let Some(alert) = self.alerts.get(fired.alert) else {
                continue;
            };
            bell |= alert.bell;
            let mut text = fired.text.clone();
            if let Some((program, arguments)) = alert.command.split_first() {
                if self.running.insert(fired.alert) {
                    let mut command = Command::new(program);
                    command
                        .args(arguments)
                        .envs(environment(&fired, model.unix_ms(model.now)));
                    self.start(fired.alert, command);
                } else {
                    text += ". The command of this alert still runs, and is not run again";
                }
            }
            texts.push(text);
        }
        Told {
            text: texts.join(". "),
            bell,
        }
    }

    fn start(&self, alert: usize, mut command: Command) {
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0);
        let sender = self.sender.clone();
        let program = clean(&command.as_std().get_program().to_string_lossy());
        tokio::spawn(async move {
            let result = run(command)
                .await
                .map_err(|why| format!("alert {}: {program}: {why}", alert + 1));
            // The program may have ended.
            let _ = sender.send((alert, result));
        });
    }

    /// Waits until a command fails, and says why. Cancelling this loses nothing.
    pub(crate) async fn next(&mut self) -> String {
        loop {
            // We hold a sender ourselves.
            let Some((alert, result)) = self.results.recv().await else {
                return std::future::pending().await;
            };
            self.running.remove(&alert);
            if let Err(why) = result {
                return why;
            }
        }
    }
}

/// A running command, with what it has started. Dropping it before it was waited for kills all.
struct Group {
    child: Child,
    ended: bool,
}

impl Drop for Group {
    fn drop(&mut self) {
        let pid = self.child.id().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
        // A process that was not waited for keeps its number, so this is no other group.
        if let Some(pid) = pid.filter(|_| !self.ended) {
            let _ = kill_process_group(pid, Signal::KILL);
        }
    }
}

async fn run(mut command: Command) -> Result<(), String> {
    let child = command.spawn().map_err(|error| format!("cannot be run: {error}"))?;
    let mut group = Group { child, ended: false };
    let Ok(waited) = timeout(LIMIT, group.child.wait()).await else {
        return Err(format!("killed after {} s", LIMIT.as_secs()));
    };
    group.ended = true;
    match waited {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(status.to_string()),
        Err(error) => Err(error.to_string()),
    }
}

/// Returns the variables that tell a command what happened.
fn environment(fired: &Fired, unix_ms: u64) -> Vec<(&'static str, String)> {
    let mut variables = vec![
        ("GPUMEM_ALERT", fired.text.clone()),
        ("GPUMEM_ALERT_CONDITION", fired.condition.to_owned()),
        ("GPUMEM_ALERT_DEVICE", fired.device.clone()),
        ("GPUMEM_ALERT_TIME_UNIX_MS", unix_ms.to_string()),
    ];
    if let Some(uuid) = &fired.uuid {
        variables.push(("GPUMEM_ALERT_UUID", uuid.clone()));
    }
    if let Some(memory) = &fired.memory {
        variables.push(("GPUMEM_ALERT_TOTAL", memory.total.to_string()));
        variables.push(("GPUMEM_ALERT_FREE", memory.free.to_string()));
    }
    if let Some(pid) = fired.pid {
        variables.push(("GPUMEM_ALERT_PID", pid.to_string()));
    }
    variables
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use gpumem_probe::{Gpu, Memory, NvmlSample, NvmlState, Reading};

    use super::*;
    use crate::event::Event;
    use crate::model::{Condition, SECOND, Sample};
    use crate::update::update;

    /// A model whose card has `free` of 100 bytes free.
    fn sample(model: &mut Model, second: u64, free: u64) {
        let memory = Memory {
            total: 100,
            used: Some(100 - free),
            free: Some(free),
            ..Memory::default()
        };
        let sample = NvmlSample {
            state: NvmlState::Ready,
            gpus: vec![Gpu {
                memory: Reading::Value(memory),
                ..Gpu::default()
            }],
            ..NvmlSample::default()
        };
        update(
            model,
            second * SECOND,
            Event::sampled(second * SECOND, Sample::Nvml(sample)),
        );
    }

    fn notifier(command: &[&str]) -> Notifier {
        let alert = Alert {
            device: None,
            condition: Condition::FreeBelow(10),
            hold: 0,
            bell: true,
            command: command.iter().map(|word| (*word).to_owned()).collect(),
        };
        Notifier::new(vec![alert], &Model::default())
    }

    fn run<T>(body: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(body)
    }

    #[test]
    fn command_is_told_what_happened() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("x");
        // Its name is an argument with a blank, which a shell would split.
        let script = "env | grep ^GPUMEM_ALERT | sort > \"$1\"; echo lost; exit 3";
        let words = ["sh", "-c", script, "two words", file.to_str().unwrap()];
        let why = run(async {
            let mut notifier = notifier(&words);
            let mut model = Model::default();
            sample(&mut model, 1, 50);
            assert_eq!(notifier.judge(&model), Told::default());
            sample(&mut model, 2, 5);
            let told = notifier.judge(&model);
            assert_eq!(told.text, "GPU 0: less than 10 B was free: 5 B of 100 B now");
            assert!(told.bell);
            notifier.next().await
        });
        assert_eq!(why, "alert 1: sh: exit status: 3");
        assert_eq!(
            std::fs::read_to_string(&file).unwrap(),
            "GPUMEM_ALERT=GPU 0: less than 10 B was free: 5 B of 100 B now\nGPUMEM_ALERT_CONDITION=free_below\n\
             GPUMEM_ALERT_DEVICE=GPU 0\nGPUMEM_ALERT_FREE=5\nGPUMEM_ALERT_TIME_UNIX_MS=2000\nGPUMEM_ALERT_TOTAL=100\n"
        );
    }

    #[test]
    fn program_that_is_not_there_is_named() {
        let why = run(async {
            let mut notifier = notifier(&["/nowhere/\u{1b}[2Jx"]);
            let mut model = Model::default();
            sample(&mut model, 1, 5);
            notifier.judge(&model);
            notifier.next().await
        });
        assert!(
            why.starts_with("alert 1: /nowhere/\u{fffd}[2Jx: cannot be run: No such file"),
            "{why}"
        );
    }

    /// A slow command holds nothing up, runs once at a time, and ends with this program, with all that it has started.
    #[test]
    fn one_command_of_an_alert_runs_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("pids");
        let script = "sleep 1000 & echo $! >> \"$0\"; wait";
        let pids = || std::fs::read_to_string(&file).unwrap_or_default();
        run(async {
            let mut notifier = notifier(&["sh", "-c", script, file.to_str().unwrap()]);
            let mut model = Model::default();
            sample(&mut model, 1, 5);
            assert!(!notifier.judge(&model).text.contains("still runs"));
            sample(&mut model, 2, 50);
            notifier.judge(&model);
            sample(&mut model, 3, 5);
            assert!(
                notifier
                    .judge(&model)
                    .text
                    .ends_with("still runs, and is not run again")
            );
            while !pids().ends_with('\n') {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        });
        let pids = pids();
        assert_eq!(pids.lines().count(), 1, "{pids}");
        let state = || std::fs::read_to_string(format!("/proc/{}/stat", pids.trim())).unwrap_or_default();
        // It is killed; a zombie is gone, too.
        let deadline = std::time::Instant::now() + Duration::from_secs(10);
        while state().contains(") S") {
            assert!(std::time::Instant::now() < deadline, "{}", state());
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}
