//! The modules of this crate use each other in one direction.
#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Adds what the files below `dir` name as `crate::MODULE`, without their tests, to the module that each file is of.
fn collect(dir: &Path, of: Option<&str>, uses: &mut BTreeMap<String, BTreeSet<String>>) {
    for path in std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()) {
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let module = of.unwrap_or(&name).to_owned();
        if path.is_dir() {
            collect(&path, Some(&module), uses);
            continue;
        }
        if name.ends_with("tests") || module == "lib" {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
        let found = uses.entry(module).or_default();
        for rest in code.split("crate::").skip(1) {
            let named = rest.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap();
            // `use crate::{a, b}` would be overlooked.
            assert!(!named.is_empty(), "{}: one path a `use` of the crate", path.display());
            found.insert(named.to_owned());
        }
    }
}

#[test]
fn no_circle_of_modules() {
    let mut uses = BTreeMap::new();
    collect(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), None, &mut uses);
    assert!(
        uses.len() > 15 && uses["run"].contains("stage"),
        "this test looks at nothing"
    );
    // What uses nothing that is left goes, until nothing is left but circles.
    loop {
        let left: BTreeSet<String> = uses.keys().cloned().collect();
        uses.retain(|module, used| used.iter().any(|other| other != module && left.contains(other)));
        if uses.len() == left.len() {
            break;
        }
    }
    assert!(uses.is_empty(), "modules that use each other: {uses:?}");
}
