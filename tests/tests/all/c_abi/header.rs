//! The C header, read as text: its functions, and its structs as the words they are made of.

use std::collections::BTreeSet;

/// The header without comments.
fn text() -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../src/alloc/c/include/gpumem_alloc.h");
    let mut rest = std::fs::read_to_string(path).unwrap();
    let mut text = String::new();
    while let Some((code, comment)) = rest.split_once("/*") {
        text.push_str(code);
        rest = comment.split_once("*/").unwrap().1.to_owned();
    }
    text + &rest
}

/// The functions it declares.
pub(crate) fn functions() -> BTreeSet<String> {
    let text = text();
    let declarations = text
        .split(';')
        .filter_map(|part| part.split_once('('))
        .map(|(before, _)| before);
    let name = |before: &str| before.rsplit([' ', '*', '\n']).next().unwrap().to_owned();
    declarations
        .map(name)
        .filter(|name| name.starts_with("gpumem_"))
        .collect()
}

/// The fields of a struct, those of structs in it spelled out, in order. Each is 8 bytes.
pub(crate) fn fields(of: &str) -> Vec<String> {
    let text = text();
    let start = format!("struct {of} {{");
    let body = text.split_once(&start).unwrap_or_else(|| panic!("no {start}")).1;
    let body = body.split_once('}').unwrap().0;
    let mut found = Vec::new();
    for field in body.split(';').map(str::trim).filter(|field| !field.is_empty()) {
        match field.split_whitespace().collect::<Vec<_>>()[..] {
            ["uint64_t", name] => found.push(name.to_owned()),
            ["struct", inner, name] => found.extend(fields(inner).iter().map(|part| format!("{name}.{part}"))),
            _ => panic!("a field of another type: {field}"),
        }
    }
    found
}
