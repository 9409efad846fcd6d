//! Reads the JSON form, which has the same dicts and lists as the pickle. PyTorch's web viewer tries it before pickle.
//!
//! JSON has no references, so a file repeats its call stacks. Segments and events are therefore converted one at a
//! time, and only one of them is in memory as a document.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use super::convert::{is_snapshot, no_snapshot, several};
use super::damage::Damage;
use super::document::{Document, Node, Number, Object};
use super::error::ReadError;
use super::values::Converter;
use crate::names;
use crate::types::{Snapshot, TraceEntry};

/// Reads JSON. Returns everything except the tables.
pub(crate) fn load(bytes: &[u8], converter: Converter<'_>) -> Result<(Snapshot, Option<Damage>), ReadError> {
    let mut loader = Loader {
        converter,
        document: Document::default(),
        traces: Vec::new(),
        failure: None,
    };
    let mut json = serde_json::Deserializer::from_slice(bytes);
    let read = Root(&mut loader).deserialize(&mut json);
    let failure = loader.failure.take();
    let mut damage = loader.converter.damage.take();
    let snapshot = match (read, failure, &mut damage) {
        (Ok(snapshot), _, damage) => {
            match (json.end(), damage) {
                (Ok(()), _) => {}
                (Err(_), Some(damage)) => damage.more = true,
                (Err(error), None) => return Err(ReadError::Json(error)),
            }
            snapshot
        }
        (Err(error), Some(failure), _) => return Err(failure.before(error.line(), error.column())),
        (Err(error), None, Some(damage)) if error.is_eof() => {
            damage.cut.get_or_insert_with(|| ReadError::Json(error).to_string());
            Snapshot {
                device_traces: loader.traces,
                ..Snapshot::default()
            }
        }
        (Err(error), None, _) => return Err(ReadError::Json(error)),
    };
    Ok((snapshot, damage))
}

struct Loader<'a> {
    converter: Converter<'a>,
    document: Document,
    /// The events of each device so far; kept here so that they remain if the file ends early.
    traces: Vec<Vec<TraceEntry>>,
    /// The error that serde's error type cannot carry.
    failure: Option<ReadError>,
}

impl Loader<'_> {
    fn fail<E: Error>(&mut self, error: ReadError) -> E {
        self.failure = Some(error);
        E::custom("")
    }

    /// Adds the enclosing level to the position of the stored error.
    fn within(&mut self, outer: impl FnOnce() -> String) {
        self.failure = self.failure.take().map(|error| error.within(outer));
    }

    fn forget(&mut self) {
        self.document.clear(self.converter.meter);
        self.converter.next_document();
    }
}

/// Deserializes the outermost value.
struct Root<'l, 'a>(&'l mut Loader<'a>);

impl<'de> DeserializeSeed<'de> for Root<'_, '_> {
    type Value = Snapshot;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Snapshot, D::Error> {
        json.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Root<'_, '_> {
    type Value = Snapshot;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a snapshot")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, json: A) -> Result<Snapshot, A::Error> {
        let elements = Elements {
            loader: self.0,
            convert: Converter::segment,
        };
        Ok(Snapshot {
            segments: elements.visit_seq(json)?,
            ..Snapshot::default()
        })
    }

    fn visit_map<A: MapAccess<'de>>(self, mut json: A) -> Result<Snapshot, A::Error> {
        let loader = self.0;
        let mut snapshot = Snapshot::default();
        let mut known = false;
        // For a dict that is not a snapshot itself but may contain one.
        let (mut within, mut snapshots) = (None, 0);
        while let Some(key) = json.next_key_seed(Any(loader))? {
            known |= matches!(key, Node::Text(names::SEGMENTS | names::DEVICE_TRACES));
            match key {
                Node::Text(names::SEGMENTS) => {
                    let convert = Converter::segment;
                    let segments = json.next_value_seed(Elements { loader, convert });
                    snapshot.segments = segments.inspect_err(|_| loader.within(|| "segments".to_owned()))?;
                }
                Node::Text(names::DEVICE_TRACES) => {
                    let traces = json.next_value_seed(Traces(loader));
                    traces.inspect_err(|_| loader.within(|| "device_traces".to_owned()))?;
                }
                _ => {
                    let value = json.next_value_seed(Any(loader))?;
                    if !known && is_snapshot(&loader.document, value) {
                        let whole = loader.converter.snapshot(&loader.document, value);
                        within = Some(whole.map_err(|error| loader.fail(error))?);
                        snapshots += 1;
                        loader.forget();
                        continue;
                    }
                    let part = loader.converter.part(&mut snapshot, &loader.document, (key, value));
                    part.map_err(|error| loader.fail(error))?;
                    loader.forget();
                }
            }
        }
        snapshot.device_traces = std::mem::take(&mut loader.traces);
        match within {
            _ if known => Ok(snapshot),
            Some(within) if snapshots == 1 => Ok(within),
            Some(_) => Err(loader.fail(several(snapshots))),
            None => Err(loader.fail(no_snapshot())),
        }
    }
}

/// Deserializes a list, and converts its elements one at a time.
struct Elements<'l, 'a, F> {
    loader: &'l mut Loader<'a>,
    convert: F,
}

impl<'de, 'a, T, F> DeserializeSeed<'de> for Elements<'_, 'a, F>
where
    F: Fn(&mut Converter<'a>, &Document, Node) -> Result<T, ReadError>,
{
    type Value = Vec<T>;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Vec<T>, D::Error> {
        json.deserialize_seq(self)
    }
}

impl<'de, 'a, T, F> Visitor<'de> for Elements<'_, 'a, F>
where
    F: Fn(&mut Converter<'a>, &Document, Node) -> Result<T, ReadError>,
{
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of segments or events")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut json: A) -> Result<Vec<T>, A::Error> {
        let Elements { loader, convert } = self;
        let mut elements = Vec::new();
        while let Some(node) = json.next_element_seed(Any(loader))? {
            let element = convert(&mut loader.converter, &loader.document, node);
            let kept = element.and_then(|element| loader.converter.meter.push(&mut elements, element));
            kept.map_err(|error| loader.fail(error.within(|| format!("[{}]", elements.len()))))?;
            loader.forget();
        }
        Ok(elements)
    }
}

/// Deserializes one list of events per device.
struct Traces<'l, 'a>(&'l mut Loader<'a>);

impl<'de> DeserializeSeed<'de> for Traces<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Traces<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list with one list of events per device")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut json: A) -> Result<(), A::Error> {
        let loader = self.0;
        // The last of equal keys counts.
        loader.traces.clear();
        let mut device = 0;
        loop {
            match json.next_element_seed(Events { loader, device }) {
                Ok(Some(())) => device += 1,
                Ok(None) => return Ok(()),
                Err(error) => {
                    loader.within(|| format!("[{device}]"));
                    return Err(error);
                }
            }
        }
    }
}

/// Deserializes the events of one device.
struct Events<'l, 'a> {
    loader: &'l mut Loader<'a>,
    device: usize,
}

impl<'de> DeserializeSeed<'de> for Events<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Events<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of segments or events")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut json: A) -> Result<(), A::Error> {
        let Events { loader, device } = self;
        let kept = loader.converter.meter.push(&mut loader.traces, Vec::new());
        kept.map_err(|error| loader.fail(error))?;
        let mut number = 0;
        while let Some(node) = json.next_element_seed(Any(loader))? {
            let entry = loader.converter.entry(&loader.document, node);
            let entry = loader
                .converter
                .unless_odd(entry, || format!("device_traces[{device}][{number}]"));
            let kept = entry.and_then(|entry| match (entry, loader.traces.last_mut()) {
                (Some(entry), Some(trace)) => loader.converter.meter.push(trace, entry),
                _ => Ok(()),
            });
            kept.map_err(|error| loader.fail(error.within(|| format!("[{number}]"))))?;
            loader.forget();
            number += 1;
        }
        Ok(())
    }
}

/// Deserializes any value into the document.
struct Any<'l, 'a>(&'l mut Loader<'a>);

impl<'de> DeserializeSeed<'de> for Any<'_, '_> {
    type Value = Node;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Node, D::Error> {
        json.deserialize_any(self)
    }
}

impl Any<'_, '_> {
    fn number<E: Error>(self, number: Number) -> Result<Node, E> {
        let loader = self.0;
        let added = loader.document.add_number(number, loader.converter.meter);
        added.map_err(|error| loader.fail(error))
    }

    fn add<E: Error>(self, object: Object) -> Result<Node, E> {
        let loader = self.0;
        let added = loader.document.add(object, loader.converter.meter);
        added.map_err(|error| loader.fail(error))
    }
}

impl<'de> Visitor<'de> for Any<'_, '_> {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E: Error>(self) -> Result<Node, E> {
        Ok(Node::None)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Node, E> {
        Ok(Node::Bool(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Node, E> {
        self.number(Number::Int(value))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Node, E> {
        self.number(i64::try_from(value).map_or(Number::Unsigned(value), Number::Int))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Node, E> {
        self.number(Number::Float(value))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Node, E> {
        let loader = self.0;
        let converter = &mut loader.converter;
        let kept = converter.tables.charged_text(text, converter.meter);
        kept.map(Node::Text).map_err(|error| loader.fail(error))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut json: A) -> Result<Node, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = json.next_element_seed(Any(self.0))? {
            let kept = self.0.converter.meter.push(&mut items, item);
            kept.map_err(|error| self.0.fail(error))?;
        }
        self.add(Object::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut json: A) -> Result<Node, A::Error> {
        let mut pairs = Vec::new();
        while let Some(key) = json.next_key_seed(Any(self.0))? {
            let pair = (key, json.next_value_seed(Any(self.0))?);
            let kept = self.0.converter.meter.push(&mut pairs, pair);
            kept.map_err(|error| self.0.fail(error))?;
        }
        self.add(Object::Dict(pairs))
    }
}
