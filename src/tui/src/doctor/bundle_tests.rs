#![allow(clippy::unwrap_used)]

use std::io::Read;

use gpumem_channel::FreeSums;
use gpumem_probe::{Hint, HintKind, HintSource};

use super::*;
use crate::check::{Verdict, good, not};
use crate::model::{
    ChannelKey, DeviceKey, Figures, Finding, LeftOut, Owner, PoolShare, Problem, ProblemKind, Process, ProcessId,
    ProcessState, Severity,
};

/// What must not be in an archive. Each is also part of a longer text in the fixture.
const SECRETS: [&str; 22] = [
    "ana.lopez",
    "benjamin",
    "carla",
    "node17",
    "cluster.example",
    "merger",
    "acquisition",
    "hunter2",
    "s3cr3t",
    "hf_abcdef",
    "/data/private/train.py",
    "train.py",
    "--customer=acme",
    "acme",
    "/home/",
    "thesis",
    "/srv/people",
    "diary",
    "pool of the board",
    "/opt/hidden/place",
    "pt_secret_main",
    "model of the board",
];

fn process(pid: u32, user: &str, command: &str, job: &str) -> Process {
    Process {
        id: ProcessId {
            device: DeviceKey::NvmlIndex(0),
            owner: Owner::Channel(ChannelKey(1, pid.into())),
        },
        pid,
        device_label: "GPU 0".into(),
        user: user.into(),
        command: command.into(),
        label: "vllm model of the board".into(),
        job: job.into(),
        rank: None,
        world_size: None,
        parent: None,
        nvml: gpumem_probe::Reading::NotSupported,
        figures: Some(Figures {
            pools: vec![PoolShare {
                name: "pool of the board".into(),
                segments: 1,
                reserved: 0,
                free: FreeSums::default(),
            }],
            ..Figures::default()
        }),
        managed: gpumem_probe::Reading::NotSupported,
        state: ProcessState::Publishing,
        stopped: None,
        mps: false,
        simulated: false,
        failing: None,
        ended: None,
        hints: [
            HintKind::Variable {
                name: "HF_TOKEN",
                value: "hf_abcdef".into(),
            },
            HintKind::Vllm {
                share: None,
                kv_cache: Some("hunter2".into()),
                sleeps: false,
            },
        ]
        .map(|kind| Hint {
            source: HintSource::CommandLine(pid),
            kind,
        })
        .into(),
    }
}

fn model() -> Model {
    let mut model = Model::default();
    model.setup.host = "node17.cluster.example".into();
    let python = "/home/ana.lopez/env/bin/python3 -u /data/private/train.py --customer=acme --password hunter2 -n 8";
    model.live.processes = vec![
        process(4121, "ana.lopez", python, "merger and acquisition"),
        process(4122, "root", "nvidia-smi", ""),
    ];
    model.rows = vec![0, 1];
    let finding = |text: &str| Finding {
        about: crate::model::About::Machine,
        severity: Severity::Warning,
        process: None,
        text: text.into(),
    };
    model.live.findings = vec![
        finding("4121 (merger and acquisition, python3 train.py) of ana.lopez holds 8 GiB on node17"),
        finding("benjamin: /home/benjamin/my thesis/x.so is refused, and acme too"),
    ];
    model.live.problems = vec![Problem {
        file: "/opt/hidden/place/4121.gpumem".into(),
        kind: ProblemKind::File,
        text: "/opt/hidden/place belongs to carla".into(),
    }];
    model.live.left_out = vec![LeftOut {
        user: "carla".into(),
        uid: 1003,
        channels: 70,
        hidden_channels: 6,
        hidden_devices: 0,
    }];
    model
}

fn machine() -> Machine {
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    Machine {
        versions: "gpumem-tui 0.1.0\nLinux 6.8 x86_64\n".into(),
        driver: "/proc/driver/nvidia/version: NVRM version 580.159.04 (built by benjamin@node17)\n".into(),
        limits: "Max open files 1024\n".into(),
        log: Ok(vec![
            "[1.000000] NVRM: Xid (PCI:0000:01:00): 31, pid=4121, name=pt_secret_main, Ch 00000008".into(),
            "[2.000000] NVRM: node17: the API mismatch".into(),
        ]),
        users: vec!["ana.lopez".into(), "benjamin".into(), "root".into()],
        homes: vec!["/srv/people/benjamin".into()],
        hosts: vec!["node17".into()],
        environment: vec![
            pair("GPUMEM_DIR", "/opt/hidden/place"),
            pair("API_KEY", "s3cr3t"),
            pair("LD_LIBRARY_PATH", "/usr/lib/x:/opt/hidden/place/lib"),
            pair("OMP_NUM_THREADS", "8"),
        ],
    }
}

fn checks() -> Vec<Check> {
    vec![
        good(
            "channel place",
            "/opt/hidden/place, 8 files; root: every user's channels",
        ),
        not(
            "library",
            Verdict::Bad,
            "no file /srv/people/benjamin/diary (GPUMEM_NVML names it)",
            "unset GPUMEM_NVML=s3cr3t\nor ask carla",
        ),
    ]
}

fn fixture() -> (Vec<Entry>, Placeholders) {
    let report = serde_json::from_str(&report::document(&model()).unwrap()).unwrap();
    let mut placeholders = Placeholders::default();
    let entries = contents(&checks(), report, &machine(), &mut placeholders);
    (entries, placeholders)
}

fn text_of<'a>(entries: &'a [Entry], name: &str) -> &'a str {
    &entries.iter().find(|entry| entry.name == name).unwrap().text
}

/// The fixture has each of them, or the test would prove nothing.
#[test]
fn nothing_private_is_in_the_archive() {
    let before = format!("{} {:?} {:?}", report::document(&model()).unwrap(), machine(), checks());
    let (entries, placeholders) = fixture();
    let said = summary("x", 1, &entries, &placeholders);
    for secret in SECRETS {
        assert!(before.contains(secret), "{secret} is not in the fixture");
        for Entry { name, text, .. } in &entries {
            assert!(!text.contains(secret), "{secret} is in {name}: {text}");
        }
        assert!(!said.contains(secret), "{said}");
    }
}

#[test]
fn same_text_has_the_same_placeholder_in_every_file() {
    let (entries, _) = fixture();
    let report: Value = serde_json::from_str(text_of(&entries, "report.json")).unwrap();
    let process = &report["processes"][0];
    let [user, job] = ["user", "job"].map(|field| process[field].as_str().unwrap());
    assert_eq!((user, job), ("user-1", "job-1"));
    let finding = report["findings"][0]["text"].as_str().unwrap();
    assert!(finding.starts_with("4121 (job-1, python3 argument-"), "{finding}");
    assert!(finding.ends_with("of user-1 holds 8 GiB on host-1"), "{finding}");
    assert!(
        text_of(&entries, "driver.txt").contains("user-2@host-1"),
        "the log has the same names"
    );
    assert!(text_of(&entries, "doctor.txt").contains("value-1, 8 files; root: every user's channels"));
}

#[test]
fn what_a_bug_report_needs_stays() {
    let (entries, _) = fixture();
    let report: Value = serde_json::from_str(text_of(&entries, "report.json")).unwrap();
    let command = report["processes"][0]["command"].as_str().unwrap();
    assert!(
        command.starts_with("python3 argument-") && command.split(' ').count() == 8,
        "{command}"
    );
    assert_eq!(report["processes"][1]["command"], "nvidia-smi");
    assert_eq!(report["processes"][1]["user"], "root");
    assert_eq!(report["schema"], "gpumem/1");
    let hints = report["processes"][0]["hints"].to_string();
    assert!(hints.contains("HF_TOKEN=value-") && hints.contains("vLLM"), "{hints}");
    assert!(
        text_of(&entries, "kernel.txt").contains("Xid (PCI:0000:01:00): 31, pid=4121, name=program-1, Ch 00000008")
    );
    assert!(text_of(&entries, "driver.txt").contains("580.159.04"));
    let doctor: Value = serde_json::from_str(text_of(&entries, "doctor.json")).unwrap();
    assert_eq!(doctor["checks"][1]["verdict"], "bad");
}

#[test]
fn archive_has_the_files_it_names_and_overwrites_none() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("x.tar.gz");
    let said = bundle(&file, &checks(), &model()).unwrap();
    let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(std::fs::File::open(&file).unwrap()));
    let mut found = Vec::new();
    for entry in archive.entries().unwrap() {
        let mut entry = entry.unwrap();
        let path = entry.path().unwrap().display().to_string();
        let mut text = String::new();
        entry.read_to_string(&mut text).unwrap();
        let name = path.strip_prefix("gpumem-bundle/").unwrap().to_owned();
        assert!(!text.is_empty() && said.contains(&name), "{name}: {said}");
        found.push(name);
    }
    assert_eq!(found.len(), 8, "{found:?}");
    let before = std::fs::read(&file).unwrap();
    let refused = bundle(&file, &checks(), &model()).unwrap_err();
    assert!(
        refused.ends_with("exists, and is not overwritten: name another file"),
        "{refused}"
    );
    assert_eq!(std::fs::read(&file).unwrap(), before);
    // A link is a file that exists, too, also where it leads to none.
    let link = folder.path().join("link.tar.gz");
    std::os::unix::fs::symlink(folder.path().join("nowhere"), &link).unwrap();
    assert!(bundle(&link, &checks(), &model()).unwrap_err().contains("exists"));
}
