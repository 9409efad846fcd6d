//! The JSON form: the same dicts and lists. PyTorch's web viewer tries it before pickle.
//!
//! JSON cannot share, so a file repeats its call stacks. Segments and events are therefore converted one at a time, and only
//! one of them is in memory as a document.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use super::convert::no_snapshot;
use super::document::{Document, Node, Object};
use super::error::ReadError;
use super::values::Converter;
use crate::names;
use crate::tables::TextId;
use crate::types::Snapshot;

/// Reads JSON. Everything but the tables is in the answer.
pub(crate) fn load(bytes: &[u8], converter: Converter<'_>) -> Result<Snapshot, ReadError> {
    let mut loader = Loader {
        converter,
        document: Document::default(),
        failure: None,
    };
    let mut json = serde_json::Deserializer::from_slice(bytes);
    let read = Root(&mut loader).deserialize(&mut json);
    let read = read.and_then(|snapshot| json.end().map(|()| snapshot));
    read.map_err(|error| loader.failure.take().unwrap_or(ReadError::Json(error)))
}

struct Loader<'a> {
    converter: Converter<'a>,
    document: Document,
    /// What serde's errors have no room for.
    failure: Option<ReadError>,
}

impl Loader<'_> {
    fn fail<E: Error>(&mut self, error: ReadError) -> E {
        self.failure = Some(error);
        E::custom("")
    }

    /// The error that is kept happened further in.
    fn within(&mut self, outer: impl FnOnce() -> String) {
        self.failure = self.failure.take().map(|error| error.within(outer));
    }

    fn text(&mut self, text: &str) -> Result<TextId, ReadError> {
        self.converter.meter.charge(size_of::<[usize; 8]>() + text.len())?;
        Ok(self.converter.tables.text(text))
    }

    fn forget(&mut self) {
        self.document.clear();
        self.converter.next_document();
    }
}

/// The outermost value.
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
        while let Some(key) = json.next_key::<String>()? {
            let key = loader.text(&key).map_err(|error| loader.fail(error))?;
            known |= matches!(key, names::SEGMENTS | names::DEVICE_TRACES);
            match key {
                names::SEGMENTS => {
                    let convert = Converter::segment;
                    let segments = json.next_value_seed(Elements { loader, convert });
                    snapshot.segments = segments.inspect_err(|_| loader.within(|| "segments".to_owned()))?;
                }
                names::DEVICE_TRACES => {
                    let traces = json.next_value_seed(Traces(loader));
                    snapshot.device_traces = traces.inspect_err(|_| loader.within(|| "device_traces".to_owned()))?;
                }
                _ => {
                    let value = json.next_value_seed(Any(loader))?;
                    let pair = (Node::Text(key), value);
                    let part = loader.converter.part(&mut snapshot, &loader.document, pair);
                    part.map_err(|error| loader.fail(error))?;
                    loader.forget();
                }
            }
        }
        if !known {
            return Err(loader.fail(no_snapshot()));
        }
        Ok(snapshot)
    }
}

/// A list whose elements become something one after the other.
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
            let charged = element.and_then(|element| loader.converter.meter.charge(size_of::<T>()).map(|()| element));
            match charged {
                Ok(element) => elements.push(element),
                Err(error) => {
                    let place = format!("[{}]", elements.len());
                    return Err(loader.fail(error.within(|| place)));
                }
            }
            loader.forget();
        }
        Ok(elements)
    }
}

/// One list of events per device.
struct Traces<'l, 'a>(&'l mut Loader<'a>);

impl<'de> DeserializeSeed<'de> for Traces<'_, '_> {
    type Value = Vec<Vec<crate::TraceEntry>>;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Self::Value, D::Error> {
        json.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Traces<'_, '_> {
    type Value = Vec<Vec<crate::TraceEntry>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list with one list of events per device")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut json: A) -> Result<Self::Value, A::Error> {
        let loader = self.0;
        let mut traces = Vec::new();
        loop {
            let convert = Converter::entry;
            match json.next_element_seed(Elements { loader, convert }) {
                Ok(Some(trace)) => traces.push(trace),
                Ok(None) => return Ok(traces),
                Err(error) => {
                    loader.within(|| format!("[{}]", traces.len()));
                    return Err(error);
                }
            }
        }
    }
}

/// Any value, into the document.
struct Any<'l, 'a>(&'l mut Loader<'a>);

impl<'de> DeserializeSeed<'de> for Any<'_, '_> {
    type Value = Node;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Node, D::Error> {
        json.deserialize_any(self)
    }
}

impl Any<'_, '_> {
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
        Ok(Node::Int(value))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Node, E> {
        Ok(i64::try_from(value).map_or(Node::Unsigned(value), Node::Int))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Node, E> {
        Ok(Node::Float(value))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Node, E> {
        let loader = self.0;
        let text = loader.text(text).map_err(|error| loader.fail(error))?;
        Ok(Node::Text(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut json: A) -> Result<Node, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = json.next_element_seed(Any(self.0))? {
            items.push(item);
        }
        self.add(Object::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut json: A) -> Result<Node, A::Error> {
        let mut pairs = Vec::new();
        while let Some(key) = json.next_key_seed(Any(self.0))? {
            pairs.push((key, json.next_value_seed(Any(self.0))?));
        }
        self.add(Object::Dict(pairs))
    }
}
