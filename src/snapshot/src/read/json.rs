//! The JSON form: the same dicts and lists. PyTorch's web viewer tries it before pickle.
//!
//! JSON cannot share, so a file repeats its call stacks. Segments and events are therefore converted one at a time, and only
//! one of them is in memory as a document.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use super::convert::no_snapshot;
use super::document::{Document, Node, Number, Object};
use super::error::ReadError;
use super::values::Converter;
use crate::names;
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
    read.map_err(|error| match loader.failure.take() {
        Some(failure) => failure.before(error.line(), error.column()),
        None => ReadError::Json(error),
    })
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

    fn forget(&mut self) {
        self.document.clear(self.converter.meter);
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
                    snapshot.device_traces = traces.inspect_err(|_| loader.within(|| "device_traces".to_owned()))?;
                }
                _ => {
                    let value = json.next_value_seed(Any(loader))?;
                    let part = loader.converter.part(&mut snapshot, &loader.document, (key, value));
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
            let kept = element.and_then(|element| loader.converter.meter.push(&mut elements, element));
            kept.map_err(|error| loader.fail(error.within(|| format!("[{}]", elements.len()))))?;
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
                Ok(Some(trace)) => {
                    let kept = loader.converter.meter.push(&mut traces, trace);
                    kept.map_err(|error| loader.fail(error))?;
                }
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
