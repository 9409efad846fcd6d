//! The messages of the PyTorch process, and the answers to it.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

/// A message of the PyTorch process. Fields that are not known are ignored.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Message {
    /// The first one.
    Hello(Hello),
    /// A device, before its first figures.
    Device(Device),
    /// `torch.cuda.memory_stats()` of a device.
    Stats {
        /// PyTorch's number of the device.
        device: u8,
        /// Figures by name.
        stats: HashMap<String, i64>,
    },
    /// A pickle of `torch.cuda.memory._snapshot()` follows, or of its segments only.
    Map {
        /// Its bytes.
        bytes: u64,
        /// Why it lacks a history that the program records; empty if it has it, or there is none.
        #[serde(default)]
        events_skipped: String,
    },
    /// A map was wanted and is not sent.
    MapSkipped {
        /// Why, in a sentence.
        reason: String,
    },
    /// A mark on the timeline.
    Mark(Mark),
    /// Libraries and features that take memory outside of PyTorch's allocator.
    Users {
        /// Their names, in a list for people.
        names: String,
    },
    /// A request failed.
    Oom(Oom),
    /// The program ends in order.
    Bye,
}

/// Who publishes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Hello {
    /// The version of these messages.
    pub version: u32,
    /// The process's id in its own pid namespace, which has to be this one's.
    pub pid: u32,
    /// Name of the script or module.
    pub program: String,
    /// Label of the job; empty if there is none.
    pub job: String,
    /// Its number among all processes of a distributed job.
    pub rank: Option<u32>,
    /// Its number among those on this machine.
    pub local_rank: Option<u32>,
    /// The number of processes of that job.
    pub world_size: Option<u32>,
    /// The folder of PyTorch's Python files.
    pub torch_folder: String,
}

/// A mark on the timeline.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Mark {
    /// Its name.
    pub name: String,
    /// A number that belongs to the name: that of a step, say.
    pub number: Option<u64>,
    /// The tag that begins with it; empty if one ends. `None`: it is about no tag.
    pub tag: Option<String>,
    /// Microseconds since 1970.
    pub at: u64,
}

/// A device as PyTorch describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Device {
    /// PyTorch's number of it.
    pub index: u8,
    /// Its UUID as NVML writes it.
    pub uuid: String,
    /// Marketing name.
    pub name: String,
    /// Memory in bytes.
    pub total: u64,
    /// The most that PyTorch takes of it (`set_per_process_memory_fraction`), in bytes.
    pub limit: Option<u64>,
}

/// A request that failed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Oom {
    /// PyTorch's number of the device.
    pub device: u8,
    /// Bytes that were asked for.
    pub requested: u64,
    /// Bytes of the device that were free.
    pub free: u64,
    /// What PyTorch says.
    pub message: String,
    /// The line of Python that asked.
    #[serde(rename = "where")]
    pub place: String,
}

/// What this process says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// Whether somebody wants to see the block map.
    Watched(bool),
    /// Why nothing is published.
    Error(String),
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn messages_are_read_as_they_are_written() {
        let read = |text: &str| serde_json::from_str::<Message>(text).unwrap();
        assert_eq!(
            read(
                r#"{"type":"hello","version":1,"pid":7,"program":"train.py","job":"","rank":null,"local_rank":1,"world_size":4,"later":[1]}"#
            ),
            Message::Hello(Hello {
                version: 1,
                pid: 7,
                program: "train.py".into(),
                job: String::new(),
                rank: None,
                local_rank: Some(1),
                world_size: Some(4),
                torch_folder: String::new(),
            })
        );
        let map = |bytes, why: &str| Message::Map {
            bytes,
            events_skipped: why.into(),
        };
        assert_eq!(read(r#"{"type":"map","bytes":12}"#), map(12, ""));
        assert_eq!(
            read(r#"{"type":"map","bytes":1,"events_skipped":"many"}"#),
            map(1, "many")
        );
        let mark = Mark {
            name: "step".into(),
            number: Some(4),
            ..Mark::default()
        };
        assert_eq!(read(r#"{"type":"mark","name":"step","number":4}"#), Message::Mark(mark));
        assert_eq!(read(r#"{"type":"bye"}"#), Message::Bye);
        let Message::Stats { device, stats } = read(r#"{"type":"stats","device":1,"stats":{"num_ooms":3}}"#) else {
            unreachable!("it is one")
        };
        assert_eq!((device, stats["num_ooms"]), (1, 3));
        let oom = read(r#"{"type":"oom","device":0,"requested":5,"free":2,"message":"m","where":"a.py:3"}"#);
        assert!(matches!(oom, Message::Oom(oom) if oom.place == "a.py:3"));
        for bad in [
            r#"{"type":"later"}"#,
            r#"{"type":"map","bytes":-1}"#,
            r#"{"type":"stats","device":256,"stats":{}}"#,
        ] {
            assert!(serde_json::from_str::<Message>(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn answers_are_single_keys() {
        let text = |answer: &Answer| serde_json::to_string(answer).unwrap();
        assert_eq!(text(&Answer::Watched(true)), r#"{"watched":true}"#);
        assert_eq!(text(&Answer::Error("no".into())), r#"{"error":"no"}"#);
    }
}
