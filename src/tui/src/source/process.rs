//! Looks up the processes of the table: their users and commands.

use std::collections::HashMap;
use std::time::Duration;

use gpumem_probe::{Facts, HintReader, Process, Processes, PtraceScope};

use super::{Requests, Source};
use crate::check::{Check, Verdict, good, not};
use crate::model::{Inputs, Request, Sample};

/// The processes that the driver lists, and those that publish.
#[derive(Default)]
pub(super) struct ProcessTable {
    processes: Processes,
    hints: HintReader,
    /// The pids of the newest sample.
    asked: Vec<u32>,
    /// The processes of the newest sample.
    known: Vec<Process>,
}

/// How many processes are read for hints in one sample. Each is read once; many that start together take some samples.
const HINTS: usize = 8;
/// The same for the only sample of a report.
const HINTS_OF_A_REPORT: usize = 256;

impl Source for ProcessTable {
    fn name(&self) -> &'static str {
        "processes"
    }

    fn sample(&mut self, request: &Request) -> Sample {
        self.sample_with(request, HINTS)
    }

    fn sample_once(&mut self, request: &Request) -> Sample {
        self.sample_with(request, HINTS_OF_A_REPORT)
    }

    /// Wakes early when the requested pids change, so that a new row has its name at once.
    fn wait(&mut self, pace: Duration, requests: &Requests) -> bool {
        requests.sleep_unless(pace, |request| request.pids() != self.asked);
        true
    }

    fn checks(&self, facts: &Facts, _: &Inputs) -> Vec<Check> {
        vec![permissions(facts)]
    }
}

impl ProcessTable {
    /// Looks up the requested pids, and at most `hints` of them for hints. A process that has ended keeps its last entry while it is still requested: the driver and
    /// the channels are sampled at other moments, and its row or its black box keeps its name.
    fn sample_with(&mut self, request: &Request, hints: usize) -> Sample {
        self.asked = request.pids();
        let mut before: HashMap<u32, Process> = self.known.drain(..).map(|p| (p.pid, p)).collect();
        let found = self.processes.look_up(&self.asked);
        let each = self.asked.iter().zip(found);
        self.known = each
            .filter_map(|(pid, found)| found.ok().or_else(|| before.remove(pid)))
            .collect();
        self.hints.fill(&mut self.known, hints);
        Sample::Processes(self.known.clone())
    }
}

/// Checks which users' channels and processes can be read.
fn permissions(facts: &Facts) -> Check {
    let name = "permissions";
    let root = rustix::process::geteuid().is_root();
    let mut seen = vec![
        if root {
            "root: every user's channels"
        } else {
            "our own channels only"
        }
        .to_owned(),
    ];
    if let Ok(false) = facts.host_pids {
        seen.push("pids here are a container's own: NVML may list others".into());
    }
    match &facts.ptrace_scope {
        Ok(PtraceScope::AdminOnly | PtraceScope::Nobody) => seen.push("other processes' memory cannot be read".into()),
        Ok(_) => {}
        Err(why) => seen.push(why.clone()),
    }
    if let Ok(capabilities) = &facts.capabilities
        && capabilities.sys_ptrace
        && !root
    {
        seen.push("CAP_SYS_PTRACE".into());
    }
    let seen = seen.join("; ");
    if root {
        good(name, seen)
    } else {
        not(name, Verdict::Note, seen, "run as root to see other users' channels")
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::process::Command;

    use super::*;

    fn sample(table: &mut ProcessTable, pids: &[u32]) -> Vec<Process> {
        let request = Request {
            listed: pids.to_vec(),
            publishers: pids.to_vec(),
            ..Request::default()
        };
        match table.sample(&request) {
            Sample::Processes(processes) => processes,
            _ => unreachable!("it looks up processes"),
        }
    }

    /// Its channel is read a moment later, and its black box still needs the command.
    #[test]
    fn ended_process_is_kept_while_it_is_requested() {
        let mut table = ProcessTable::default();
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        let pids = [child.id()];
        let alive = sample(&mut table, &pids);
        assert_eq!(alive.len(), 1, "once, though it is listed and publishes");
        child.kill().unwrap();
        child.wait().unwrap();
        let commands = |list: Vec<Process>| list.into_iter().map(|p| p.command).collect::<Vec<_>>();
        assert_eq!(commands(sample(&mut table, &pids)), commands(alive));
        assert!(sample(&mut table, &[]).is_empty());
        assert!(sample(&mut table, &pids).is_empty());
    }

    #[test]
    fn processes_have_the_hints_of_their_variables() {
        let mut child = Command::new("sleep")
            .arg("1000")
            .env("CUDA_VISIBLE_DEVICES", "5")
            .spawn()
            .unwrap();
        let mut table = ProcessTable::default();
        // Spawning may return before the kernel has finished `exec`, and hints are read once.
        let environ = format!("/proc/{}/environ", child.id());
        while !String::from_utf8_lossy(&std::fs::read(&environ).unwrap()).contains("CUDA_VISIBLE_DEVICES=5") {
            std::thread::sleep(Duration::from_millis(5));
        }
        let found = sample(&mut table, &[child.id()]);
        child.kill().unwrap();
        child.wait().unwrap();
        let texts: Vec<String> = found[0]
            .hints
            .iter()
            .map(|h| crate::model::hint_text(h, child.id()))
            .collect();
        assert_eq!(texts, ["CUDA_VISIBLE_DEVICES=5"]);
    }
}
