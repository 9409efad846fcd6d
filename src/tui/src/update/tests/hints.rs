//! Findings that explain the memory of processes that do not publish, and contexts on other GPUs.

use gpumem_channel::BlockState::Allocated;
use gpumem_probe::{
    Gpu, GpuProcess, Hint, HintKind, HintSource, KvCached, NvmlSample, NvmlState, Preallocation, Reading, Share,
};

use super::sample::*;
use crate::event::Event;
use crate::model::*;

fn texts(model: &Model) -> Vec<&str> {
    let findings = model.world().findings.iter();
    findings.map(|f| f.text.as_str()).collect()
}

/// The findings about processes of the card of 80 GiB, which have these hints and GiB.
fn said(hints: &[HintKind], list: &[(u32, u64)]) -> Vec<String> {
    let mut model = model();
    let users: Vec<(u32, &str, u64)> = list.iter().map(|&(pid, _)| (pid, "ml", 5)).collect();
    let mut people = people(&users);
    for person in &mut people {
        let source = HintSource::Libraries;
        person.hints = hints
            .iter()
            .map(|kind| Hint {
                source,
                kind: kind.clone(),
            })
            .collect();
    }
    let held: Vec<(u32, u64)> = list.iter().map(|&(pid, gib)| (pid, gib * GIB)).collect();
    let used = held.iter().map(|(_, bytes)| bytes).sum();
    let people = Event::sampled(SECOND, Sample::Processes(people));
    feed(
        &mut model,
        [channels(SECOND, vec![]), nvml(SECOND, used, &held), people],
    );
    assert!(model.world().findings.iter().all(|f| f.severity == Severity::Info));
    texts(&model).into_iter().map(str::to_owned).collect()
}

fn vllm(share: &str) -> HintKind {
    HintKind::Vllm {
        share: Share::parse(share),
        kv_cache: None,
        sleeps: false,
    }
}

#[test]
fn preallocation_is_a_finding() {
    let jax = HintKind::Jax(Preallocation::Share(Share::JAX));
    for (hints, expected) in [
        (
            vec![HintKind::PyTorch, vllm("0.9")],
            "label 7 (7): vLLM fills 0.9 of the GPU with weights and KV cache when it starts (--gpu-memory-utilization). NVML's 61.0 GiB say \
             nothing of what is in use",
        ),
        (
            vec![jax],
            "label 7 (7): JAX preallocates 75 % of the GPU when it starts (XLA_PYTHON_CLIENT_PREALLOCATE=false turns that off). NVML's 61.0 GiB \
             say nothing of what is in use",
        ),
        (
            vec![HintKind::TensorFlow { grows: None }],
            "label 7 (7): TensorFlow takes nearly all memory of a GPU when it starts (TF_FORCE_GPU_ALLOW_GROWTH=true turns that off). NVML's \
             61.0 GiB say nothing of what is in use",
        ),
    ] {
        assert_eq!(said(&hints, &[(7, 61)]), [expected]);
    }
}

#[test]
fn figures_that_contradict_a_hint_make_no_finding() {
    let jax = || HintKind::Jax(Preallocation::Share(Share::JAX));
    let tensorflow = || HintKind::TensorFlow { grows: None };
    for (hints, gib) in [
        (vec![jax()], 50),
        (vec![vllm("0.9")], 30),
        (vec![tensorflow()], 50),
        (vec![HintKind::PyTorch, tensorflow()], 70),
        (vec![HintKind::Jax(Preallocation::Unknown)], 70),
        (vec![HintKind::PyTorch, HintKind::NoPermission], 70),
        (vec![vllm("")], 0),
        (vec![], 70),
    ] {
        assert_eq!(said(&hints, &[(7, gib)]), [""; 0], "{hints:?}");
    }
}

#[test]
fn workers_of_an_engine_share_a_finding() {
    let [text] = <[String; 1]>::try_from(said(&[vllm("0.3")], &[(7, 20), (8, 20), (9, 20)])).unwrap_or_default();
    assert!(text.starts_with("label 7 (7) and 2 more: vLLM fills 0.3"), "{text}");
    assert!(text.contains("NVML's 60.0 GiB"), "{text}");
}

/// With kvcached the cache is not preallocated, whatever the options say.
#[test]
fn record_of_kvcached_goes_before_the_options() {
    let record = KvCached {
        limit: 40 * GIB,
        used: 12 * GIB,
        preallocated: GIB,
    };
    let text =
        "label 7 (7): KV cache (kvcached): 12.0 GiB used, 1.0 GiB preallocated, limit 40.0 GiB. NVML counts 61.0 GiB";
    assert_eq!(said(&[vllm("0.9"), HintKind::KvCached(record)], &[(7, 61)]), [text]);
}

/// A sample of NVML with these cards of 80 GiB, each with its processes and their MiB.
fn cards(cards: &[&[(u32, u64)]]) -> Event {
    let process = |&(pid, mib): &(u32, u64)| GpuProcess {
        pid,
        kind: gpumem_probe::ProcessKind::Compute,
        used: Reading::Value(mib * MIB),
        mig: None,
        mps: false,
    };
    let gpus = cards.iter().enumerate().map(|(n, list)| Gpu {
        index: n as u32,
        uuid: Some([CARD[0] + n as u8; 16]),
        processes: Reading::Value(list.iter().map(process).collect()),
        ..Gpu::default()
    });
    let sample = NvmlSample {
        state: NvmlState::Ready,
        gpus: gpus.collect(),
        ..NvmlSample::default()
    };
    Event::sampled(SECOND, Sample::Nvml(sample))
}

const ADVICE: &str =
    "set the device before the first CUDA call: torch.cuda.set_device(local_rank), or CUDA_VISIBLE_DEVICES";

/// A rank that allocates 10 GiB on the card of its number.
fn rank(pid: u32, rank: u32) -> Channel {
    let mut channel = channel(pid, &[&[(10 * GIB, Allocated)]]);
    let snapshot = std::sync::Arc::make_mut(&mut channel.snapshot);
    snapshot.devices[0].device.uuid = [CARD[0] + rank as u8; 16];
    let identity = std::sync::Arc::make_mut(&mut snapshot.identity);
    (identity.job, identity.rank, identity.world_size) = ("train".into(), Some(rank), Some(3));
    channel
}

#[test]
fn contexts_of_ranks_on_another_card_are_a_finding() {
    let mut model = model();
    let own = 10 * 1024 + 518;
    let all = vec![rank(10, 0), rank(11, 1), rank(12, 2)];
    let listed = cards(&[&[(10, own), (11, 518), (12, 518)], &[(11, own)], &[(12, own)]]);
    feed(&mut model, [channels(SECOND, all.clone()), listed]);
    let text = format!("2 ranks of train hold 1.0 GiB on GPU 0, which is rank 0's: contexts ({ADVICE})");
    assert_eq!(texts(&model), [text]);
    let one = cards(&[&[(10, own)], &[(11, own), (12, 518)], &[(12, own)]]);
    feed(&mut model, [one]);
    let text = format!("rank 2 of train holds 518 MiB on GPU 1, which is rank 1's: a context ({ADVICE})");
    assert_eq!(texts(&model), [text]);
    // Each has its own card, and a rank that holds more there uses it.
    for there in [None, Some(2048)] {
        let first: Vec<(u32, u64)> = [(10, own)].into_iter().chain(there.map(|mib| (11, mib))).collect();
        feed(&mut model, [cards(&[&first, &[(11, own)], &[(12, own)]])]);
        assert_eq!(texts(&model), [""; 0], "{there:?}");
    }
}

#[test]
fn context_of_a_plain_process_is_a_guess() {
    let mut model = model();
    feed(
        &mut model,
        [channels(SECOND, vec![]), cards(&[&[(5, 20_000)], &[(5, 518)]])],
    );
    let text = "5 on GPU 1 holds 518 MiB, and more on another GPU: probably only a context (CUDA_VISIBLE_DEVICES keeps it off)";
    assert_eq!(texts(&model), [text]);
    feed(
        &mut model,
        [cards(&[&[(5, 20_000), (6, 518)], &[(5, 518), (6, 9000), (7, 600)]])],
    );
    assert_eq!(texts(&model).len(), 2, "{:?}", texts(&model));
    feed(
        &mut model,
        [cards(&[&[(5, 20_000)], &[(5, 518), (6, 518)], &[(6, 3000)]])],
    );
    let text = format!("2 processes hold 1.0 GiB on GPU 1, and more on other GPUs: probably only contexts ({ADVICE})");
    assert_eq!(texts(&model), [text]);
    for none in [
        &[&[(5, 600)][..], &[(5, 518)]],
        &[&[(5, 20_000)][..], &[(5, 2000)]],
        &[&[][..], &[(5, 518)]],
    ] {
        feed(&mut model, [cards(none)]);
        assert_eq!(texts(&model), [""; 0], "{none:?}");
    }
}
