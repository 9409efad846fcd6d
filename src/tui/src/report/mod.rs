//! The one-shot reports: `--once` prints text, `--json` prints JSON. Both are derived from the dashboard's model after one
//! sample. Nothing is simulated unless `--device sim` asks for it.

mod json;
mod processes;
mod shape;
mod table;
mod text;

use std::time::Duration;

use gpumem_probe::NvmlState;

use crate::demo::{DemoChild, DemoOptions};
use crate::event::{DemoEvent, Event};
use crate::model::{Demo, Model, Only, ProblemKind, Setup, Sort};
use crate::source;
use crate::update::update;
use crate::words;

pub(crate) use json::document;
pub(crate) use text::text;

/// How long a simulated program may take until its first step.
const SIMULATE: Duration = Duration::from_secs(10);

/// Returns the model of a report before its first sample. `black_boxes` also lists the black boxes of programs that ended.
pub(crate) fn model(setup: Setup, filter: &str, sort: Sort, black_boxes: bool) -> Model {
    let mut model = Model {
        setup: Setup { no_demo: true, ..setup },
        ..Model::default()
    };
    model.ui.filter.text = filter.to_owned();
    model.ui.sort = sort;
    model.ui.black_boxes = black_boxes;
    model.ui.unfolded = true;
    model
}

/// Samples everything once.
///
/// # Errors
/// When a simulated device was asked for and its demo cannot be started or fails.
pub(crate) fn collect(mut model: Model) -> std::io::Result<Model> {
    if !model.setup.only.contains(&Only::Simulated) {
        sample(&mut model);
        return Ok(model);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let options = DemoOptions {
            shared: vec!["--pace".into(), "100ms".into()],
            ..DemoOptions::default()
        };
        let mut child = DemoChild::spawn(&model.setup.without_gpu, true, &options)?;
        let mut demo = Demo::default();
        let first = tokio::time::timeout(SIMULATE, first_step(&mut child, &mut demo)).await;
        let first = first.unwrap_or_else(|_| Err("it published nothing within 10 s".into()));
        sample(&mut model);
        model.demo = Some(demo);
        child.stop().await;
        first.map_err(|why| std::io::Error::other(format!("the simulated training run failed: {why}")))
    })?;
    Ok(model)
}

async fn first_step(child: &mut DemoChild, demo: &mut Demo) -> Result<(), String> {
    loop {
        match child.next().await {
            DemoEvent::Step(..) => return Ok(()),
            DemoEvent::Start(start) => demo.unpublished = demo.unpublished.take().or(start.unpublished),
            DemoEvent::Unpublished(why) => demo.unpublished = Some(why),
            DemoEvent::Failed(why) | DemoEvent::Exited(why) => return Err(why),
            _ => {}
        }
    }
}

/// Samples every source once. The request to each follows from the samples before it.
pub(crate) fn sample(model: &mut Model) {
    for mut source in source::all() {
        if source.is_wanted(&model.setup) {
            let sampled = source::take_once(&mut *source, &model.setup, &model.request());
            update(model, sampled.taken.at, Event::Sampled(Box::new(sampled)));
        }
    }
}

/// Says which of the chosen devices are not in the report; `None` when all are.
pub(crate) fn missing(model: &Model) -> Option<String> {
    let simulated = model.setup.only.contains(&Only::Simulated) && !model.simulated();
    model
        .missing_devices()
        .or_else(|| simulated.then(|| nothing_simulated(model)))
}

/// Says why there is nothing to report; `None` when there is a device.
pub(crate) fn nothing(model: &Model) -> Option<String> {
    if !model.world().devices.is_empty() {
        return None;
    }
    Some(match (&model.inputs.nvml.state, model.missing_devices()) {
        (NvmlState::Failed { error, hint }, _) => format!("NVML fails: {error}. {}", words::sentence(hint)),
        _ if model.setup.only_simulated() => nothing_simulated(model),
        (NvmlState::Missing, Some(missing)) => format!(
            "{missing}. There is {}, so devices are known only from programs that publish, by UUID. Without --device \
             all are reported",
            no_library(model)
        ),
        (NvmlState::Missing, _) => {
            let world = model.world();
            let failed = world.processes.iter().filter(|p| p.has_just_failed()).count();
            let past = match world.past.len() + failed {
                0 => String::new(),
                n => format!(". Black boxes of programs that ended: {n} (--json and the dashboard's b list them)"),
            };
            let failed = model.findings().find(|finding| finding.process.is_some());
            let failed = failed.map_or(String::new(), |finding| format!(". {}", finding.text));
            let refused: String = world
                .problems
                .iter()
                .filter_map(|p| match p.kind {
                    ProblemKind::File => None,
                    ProblemKind::Directory => Some(format!(
                        ". {} is refused, and nothing in it is read: {}",
                        p.file, p.text
                    )),
                    ProblemKind::Overflow | ProblemKind::Removed => Some(format!(". {}: {}", p.file, p.text)),
                })
                .collect();
            format!(
                "{} and no program that publishes: nothing to report{refused}{past}{failed}. \
                 `gpumem-tui doctor` says what to check, `--device sim` reports on a simulated device",
                no_library(model)
            )
        }
        (_, Some(missing)) => format!("{missing}. Without --device all are reported"),
        _ => "the NVIDIA driver lists no GPU. `gpumem-tui doctor` says what to check".into(),
    })
}

/// Names the missing library.
fn no_library(model: &Model) -> String {
    match &model.setup.nvml {
        Some(file) => format!("no file {file} (GPUMEM_NVML names it)"),
        None => "no NVIDIA driver library (libnvidia-ml.so.1)".to_owned(),
    }
}

/// Says why the run that was started for this report is not shown: the reason that the run reported, else the first problem
/// with a channel.
fn nothing_simulated(model: &Model) -> String {
    let reported = model.demo.as_ref().and_then(|demo| demo.unpublished.clone());
    let found = model
        .world()
        .problems
        .first()
        .map(|p| format!("{}: {}", p.file, p.text));
    let why = reported.or(found).unwrap_or_else(|| "its channel was not found".into());
    format!("the simulated training run cannot be seen: {why}. `gpumem-tui doctor` says what to check")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::model::{ChannelKey, DeviceKey, Owner, ProcessId};

    #[test]
    fn empty_report_mentions_black_boxes() {
        let mut model = Model::default();
        model.inputs.nvml.state = NvmlState::Missing;
        let text = nothing(&model).unwrap();
        assert!(
            text.contains("nothing to report. ") && !text.contains("Black box"),
            "{text}"
        );
        model.live.past.insert(ProcessId {
            device: DeviceKey::NvmlIndex(0),
            owner: Owner::Channel(ChannelKey(1, 2)),
        });
        let text = nothing(&model).unwrap();
        assert!(
            text.contains("report. Black boxes of programs that ended: 1 ("),
            "{text}"
        );
    }

    /// Programs may publish there.
    #[test]
    fn empty_report_names_a_refused_directory() {
        let mut model = Model::default();
        model.inputs.nvml.state = NvmlState::Missing;
        assert!(!nothing(&model).unwrap().contains("refused"));
        model.live.problems.push(crate::model::Problem {
            file: "/dev/shm/x".into(),
            kind: ProblemKind::Directory,
            text: "it belongs to another user".into(),
        });
        let text = nothing(&model).unwrap();
        assert!(
            text.contains(". /dev/shm/x is refused, and nothing in it is read: it belongs to another user. "),
            "{text}"
        );
    }

    #[test]
    fn missing_simulated_device_is_explained() {
        let mut model = Model::default();
        model.setup.only = vec![Only::Simulated];
        assert!(nothing(&model).unwrap().contains("its channel was not found"));
        model.live.problems.push(crate::model::Problem {
            file: "/tmp/x".into(),
            text: "others may read it".into(),
            kind: ProblemKind::Directory,
        });
        let text = nothing(&model).unwrap();
        assert!(text.contains("cannot be seen: /tmp/x: others may read it."), "{text}");
        model.demo = Some(Demo {
            unpublished: Some("no room".into()),
            ..Demo::default()
        });
        assert!(nothing(&model).unwrap().contains("cannot be seen: no room."));
    }

    /// The driver's own library may exist.
    #[test]
    fn missing_library_is_reported_by_its_name() {
        let mut model = Model::default();
        model.inputs.nvml.state = NvmlState::Missing;
        model.setup.nvml = Some("/opt/nvml.so".into());
        for only in [vec![], vec![Only::Index(5)]] {
            model.setup.only = only;
            let text = nothing(&model).unwrap();
            assert!(
                text.contains("no file /opt/nvml.so (GPUMEM_NVML names it)") && !text.contains("libnvidia-ml"),
                "{text}"
            );
        }
    }

    /// Programs may publish on other devices.
    #[test]
    fn missing_device_says_nothing_about_other_devices() {
        let mut model = Model::default();
        model.inputs.nvml.state = NvmlState::Missing;
        model.setup.only = vec![Only::Index(5)];
        let text = nothing(&model).unwrap();
        assert!(
            text.starts_with("no such device: 5. ") && !text.contains("no program"),
            "{text}"
        );
    }
}
