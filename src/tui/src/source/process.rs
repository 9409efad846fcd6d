//! Looks up the processes behind the rows: who runs them, and what they are.

use std::collections::HashMap;
use std::time::Duration;

use gpumem_probe::{Facts, Process, Processes, PtraceScope};

use super::{Requests, Source};
use crate::check::{Check, Verdict, good, not};
use crate::model::{Inputs, Request, Sample};

/// The processes that the driver lists, and those that publish.
#[derive(Default)]
pub(super) struct ProcessTable {
    processes: Processes,
    /// Whom the newest sample is about.
    asked: Vec<u32>,
    /// What it says.
    known: Vec<Process>,
}

impl Source for ProcessTable {
    fn name(&self) -> &'static str {
        "processes"
    }

    /// A process that has ended is told as it was for as long as somebody names it. The driver and the channels are sampled at
    /// other moments than this, and its row, or its black box, keeps the name that it had.
    fn sample(&mut self, request: &Request) -> Sample {
        self.asked = request.pids();
        let mut before: HashMap<u32, Process> = self.known.drain(..).map(|p| (p.pid, p)).collect();
        let found = self.processes.look_up(&self.asked);
        let each = self.asked.iter().zip(found);
        self.known = each
            .filter_map(|(pid, found)| found.ok().or_else(|| before.remove(pid)))
            .collect();
        Sample::Processes(self.known.clone())
    }

    /// A row that is new is not to wait for its name.
    fn rest(&mut self, pace: Duration, requests: &Requests) -> bool {
        requests.sleep_unless(pace, |request| request.pids() != self.asked);
        true
    }

    fn checks(&self, facts: &Facts, _: &Inputs) -> Vec<Check> {
        vec![permissions(facts)]
    }
}

/// Whom we may look at.
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
        Ok(PtraceScope::AdminOnly | PtraceScope::Nobody) => seen.push("other processes' memory is closed".into()),
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

    /// Its channel is read a moment later, and its black box is to say what ran there.
    #[test]
    fn who_has_ended_is_known_as_long_as_somebody_names_it() {
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
}
