#![allow(clippy::unwrap_used)]

use gpumem_probe::Reading;

use super::*;
use crate::model::{ChannelKey, Figures, Owner, ProcessState};

const G: u64 = 1 << 30;

fn card(number: u8) -> DeviceKey {
    DeviceKey::Uuid([number; 16])
}

/// A process of ana's that publishes 40 GiB on the card of its rank. Its parent is process 500.
fn rank(pid: u32, rank: u32) -> Process {
    Process {
        id: ProcessId {
            device: card(rank as u8),
            owner: Owner::Channel(ChannelKey(1, pid.into())),
        },
        pid,
        device_label: format!("GPU {rank}"),
        user: "ana".into(),
        command: format!("/usr/bin/python3 -u /data/train.py --local-rank={rank}"),
        label: "train.py".into(),
        job: String::new(),
        rank: Some(rank),
        world_size: Some(8),
        parent: Some(500),
        nvml: Reading::Value(41 * G),
        figures: Some(Figures {
            reserved: 40 * G,
            allocated: 30 * G,
            peak_allocated: 35 * G,
            ..Figures::default()
        }),
        managed: Reading::Pending,
        state: ProcessState::Publishing,
        stopped: Some(false),
        mps: false,
        simulated: false,
        failing: None,
        ended: None,
        hints: [].into(),
    }
}

/// A row of a rank on another card, where it does not publish.
fn context(of: &Process, number: u8, nvml: Reading<u64>) -> Process {
    Process {
        id: ProcessId {
            device: card(number),
            owner: Owner::Pid(of.pid, 7),
        },
        device_label: format!("GPU {number}"),
        figures: None,
        nvml,
        ..of.clone()
    }
}

/// The pids of each job.
fn jobs(processes: &[Process]) -> Vec<Vec<u32>> {
    let jobs = Jobs::of(processes);
    let pids = |job: &Job| job.ranks.iter().map(|rank| rank.pid).collect();
    jobs.iter().map(pids).collect()
}

#[test]
fn ranks_of_one_launcher_are_a_job() {
    let processes = [rank(12, 2), rank(11, 1), rank(10, 0)];
    assert_eq!(jobs(&processes), [[10, 11, 12]], "in the order of ranks");
    let found = Jobs::of(&processes);
    let (job, its) = found.get(processes[1].id).unwrap();
    assert_eq!((job.name.as_str(), job.world_size, its.rank), ("train.py", Some(8), 1));
    assert_eq!(job.place(its), 1);
    assert_eq!(job.median.reserved, Some(40 * G));
    assert_eq!(jobs(&processes[..1]), [[0; 0]; 0], "one rank is no job");
}

#[test]
fn what_differs_between_jobs_keeps_them_apart() {
    type Change = fn(&mut Process);
    let changes: [(&str, Change); 6] = [
        ("user", |p| p.user = "kim".into()),
        ("program", |p| p.command = "python3 eval.py".into()),
        ("number of ranks", |p| p.world_size = Some(4)),
        ("label", |p| p.job = "pretrain".into()),
        ("launcher", |p| p.parent = Some(501)),
        ("no rank", |p| p.rank = None),
    ];
    for (what, change) in changes {
        let mut processes = [rank(10, 0), rank(11, 1), rank(12, 2), rank(13, 3)];
        processes[2..].iter_mut().for_each(change);
        let expected: &[&[u32]] = if what == "no rank" {
            &[&[10, 11]]
        } else {
            &[&[10, 11], &[12, 13]]
        };
        let mut found = jobs(&processes);
        found.sort();
        assert_eq!(found, expected, "{what}");
    }
}

#[test]
fn jobs_that_run_the_same_ranks_are_not_merged() {
    let two = |label: &str, parents: [Option<u32>; 4]| {
        let mut processes = [rank(10, 0), rank(11, 1), rank(20, 0), rank(21, 1)];
        for (process, parent) in processes.iter_mut().zip(parents) {
            (process.job, process.parent) = (label.into(), parent);
        }
        jobs(&processes)
    };
    for label in ["", "pretrain"] {
        let launchers = [Some(500), Some(500), Some(600), Some(600)];
        assert_eq!(two(label, launchers), [[10, 11], [20, 21]]);
        let none: [[u32; 2]; 0] = [];
        assert_eq!(two(label, [Some(500); 4]), none, "one shell started both");
        assert_eq!(two(label, [None; 4]), none);
        assert_eq!(two(label, [Some(1); 4]), none, "both launchers have ended");
    }
}

/// `srun` and `mpirun` may start a script for each rank, and a launcher in another container is not visible.
#[test]
fn ranks_without_a_common_parent_are_a_job() {
    for (parents, label) in [
        ([Some(501), Some(502)], ""),
        ([None, None], ""),
        ([Some(501), Some(502)], "pretrain"),
    ] {
        let mut processes = [rank(10, 0), rank(11, 1)];
        for (process, parent) in processes.iter_mut().zip(parents) {
            (process.job, process.parent) = (label.into(), parent);
        }
        assert_eq!(jobs(&processes), [[10, 11]], "{parents:?} {label}");
    }
}

#[test]
fn only_live_processes_are_ranks() {
    let with = |state: ProcessState| {
        let mut processes = [rank(10, 0), rank(11, 1), rank(12, 2)];
        processes[1].state = state;
        jobs(&processes)
    };
    assert_eq!(with(ProcessState::Inconsistent("torn".into())), [[10, 11, 12]]);
    for state in [
        ProcessState::Died,
        ProcessState::Exited,
        ProcessState::Disputed("kim".into()),
    ] {
        assert_eq!(with(state), [[10, 12]]);
    }
}

#[test]
fn rank_has_one_row_and_its_memory_elsewhere() {
    let (first, second) = (rank(10, 0), rank(11, 1));
    let left = context(&second, 0, Reading::Value(G / 2));
    let unknown = context(&second, 2, Reading::NotSupported);
    let mut idle = rank(11, 1);
    idle.id.device = card(3);
    idle.device_label = "GPU 3".into();
    (idle.figures, idle.nvml) = (Some(Figures::default()), Reading::Pending);
    let mut stranger = context(&second, 4, Reading::Value(G));
    stranger.user = "kim".into();
    let processes = [left.clone(), idle, first, second.clone(), unknown, stranger.clone()];
    let found = Jobs::of(&processes);
    let (job, rank) = found.get(second.id).unwrap();
    assert_eq!(job.ranks.len(), 2);
    assert_eq!((rank.id, rank.device_label.as_str()), (second.id, "GPU 1"));
    assert_eq!((rank.holds.reserved, rank.holds.nvml), (Some(40 * G), Some(41 * G)));
    let elsewhere: Vec<_> = rank
        .elsewhere
        .iter()
        .map(|e| (e.device_label.as_str(), e.bytes))
        .collect();
    assert_eq!(elsewhere, [("GPU 0", Some(G / 2)), ("GPU 2", None)]);
    assert_eq!(found.place(left.id), found.place(second.id));
    assert_eq!(found.place(stranger.id), None);
    let visitors: Vec<_> = job
        .visitors()
        .into_iter()
        .map(|v| (v.device_label, v.ranks, v.bytes))
        .collect();
    assert_eq!(
        visitors,
        [("GPU 0".to_owned(), vec![1], G / 2), ("GPU 2".to_owned(), vec![1], 0)]
    );
}

/// The allocator and PyTorch may publish in one process.
#[test]
fn two_channels_of_a_rank_are_added_up() {
    let mut second = rank(11, 1);
    second.id.owner = Owner::Channel(ChannelKey(2, 11));
    second.nvml = Reading::Failed(crate::model::COUNTED_ABOVE.into());
    let found = Jobs::of(&[rank(10, 0), rank(11, 1), second]);
    let job = found.iter().next().unwrap();
    assert_eq!(job.ranks[1].holds.reserved, Some(80 * G));
    assert_eq!(
        (job.ranks[1].holds.nvml, job.ranks[1].elsewhere.len()),
        (Some(41 * G), 0)
    );
}

#[test]
fn outlier_is_on_its_own_row_only() {
    let mut processes: Vec<Process> = (0..4).map(|n| rank(10 + n, n)).collect();
    processes[3].figures.as_mut().unwrap().reserved = 52 * G;
    let left = context(&processes[3], 0, Reading::Value(G / 2));
    processes.push(left.clone());
    let found = Jobs::of(&processes);
    assert_eq!(
        found.outlier(processes[3].id).map(|o| o.above_median),
        Some(12 * G as i64)
    );
    assert_eq!((found.outlier(left.id), found.outlier(processes[0].id)), (None, None));
}
