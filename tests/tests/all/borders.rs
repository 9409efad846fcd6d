//! Rules of the workspace: which crate and which module may depend on which, and where `unsafe` and the wall clock may be used.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

/// Returns every crate's normal dependencies, from `cargo metadata`.
fn dependencies() -> BTreeMap<String, BTreeSet<String>> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    let packages = metadata["packages"].as_array().unwrap().iter();
    let normal = |package: &serde_json::Value| {
        let all = package["dependencies"].as_array().unwrap().iter();
        all.filter(|d| d["kind"].is_null()).map(|d| text(&d["name"])).collect()
    };
    packages
        .map(|package| (text(&package["name"]), normal(package)))
        .collect()
}

#[test]
fn crates_have_the_allowed_dependencies_only() {
    let of = dependencies();
    // The allowed dependencies among our own crates and those for the GPU, the screen and the main loop.
    let allowed: [(&str, &[&str]); 11] = [
        ("gpumem-text", &[]),
        ("gpumem-channel", &["gpumem-text"]),
        ("gpumem-snapshot", &[]),
        ("gpumem-probe", &["gpumem-text"]),
        ("gpumem-triage", &["gpumem-text"]),
        ("gpumem-torch", &["gpumem-channel", "gpumem-snapshot", "gpumem-text"]),
        (
            "gpumem-alloc",
            &["gpumem-channel", "gpumem-snapshot", "gpumem-text", "cudarc"],
        ),
        ("gpumem-alloc-c", &["gpumem-alloc"]),
        (
            "gpumem-demo",
            &[
                "gpumem-alloc",
                "gpumem-channel",
                "gpumem-snapshot",
                "gpumem-text",
                "cudarc",
            ],
        ),
        // No `cudarc`: the dashboard does not use the GPU.
        (
            "gpumem-tui",
            &[
                "gpumem-channel",
                "gpumem-probe",
                "gpumem-demo",
                "gpumem-text",
                "gpumem-torch",
                "gpumem-triage",
                "ratatui",
                "tokio",
            ],
        ),
        // It does not depend on the program, whose tests depend on it.
        ("gpumem-tests", &["gpumem-channel", "gpumem-fake-nvml"]),
    ];
    for (who, whom) in allowed {
        let told =
            |name: &&String| name.starts_with("gpumem") || ["cudarc", "ratatui", "tokio"].contains(&name.as_str());
        let broken: Vec<_> = of[who]
            .iter()
            .filter(told)
            .filter(|name| !whom.contains(&name.as_str()))
            .collect();
        assert!(broken.is_empty(), "{who} must not depend on {broken:?}");
    }
    // Every crate depends on it, and so would depend on its dependencies.
    assert_eq!(of["gpumem-text"], BTreeSet::new());
}

/// Only `gpumem-text` cleans text and writes sizes. A second implementation would miss a case.
#[test]
fn text_is_cleaned_and_sizes_are_written_in_one_crate() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let signs = ["fn clean", "is_control()", "\"KiB\"", "\"TiB\""];
    let mut found = 0;
    for dir in ["src", "demo/src"] {
        for (path, text) in sources(&root.join(dir)) {
            let path = path.strip_prefix(root.to_str().unwrap()).unwrap();
            let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
            let used: Vec<_> = signs.iter().filter(|sign| text.contains(**sign)).collect();
            let allowed = path.starts_with("/src/text/") || path.contains("test") || used.is_empty();
            found += u32::from(path.starts_with("/src/text/") && !used.is_empty());
            assert!(allowed, "{path} has {used:?}, which belongs in gpumem-text");
        }
    }
    assert!(found > 1, "this test looks at nothing");
}

/// Returns the paths and texts of the Rust files under `dir`.
fn sources(dir: &Path) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push((path.display().to_string(), std::fs::read_to_string(&path).unwrap()));
        }
    }
    found
}

/// Returns the first segment of a path, or of each path of a list.
fn heads(paths: &str) -> Vec<&str> {
    let ends_name = |c: char| !c.is_alphanumeric() && !"_*".contains(c);
    let head = |path| str::trim_start(path).split(ends_name).next().unwrap();
    let Some(list) = paths.strip_prefix('{') else {
        return vec![head(paths)];
    };
    let mut depth = 0;
    let ends_path = |c| {
        depth += i32::from(c == '{') - i32::from(c == '}');
        c == ',' && depth == 0
    };
    let heads = list.split(';').next().unwrap().split(ends_path).map(head);
    heads.filter(|head| !head.is_empty()).collect()
}

/// Returns, for each module below a crate's root, the modules that it uses outside of tests and comments. A use of an item that the root
/// re-exports counts as a use of the module that defines it.
fn modules(root: &Path) -> BTreeMap<String, BTreeSet<String>> {
    let (mut uses, mut given) = (BTreeMap::<_, BTreeSet<_>>::new(), BTreeMap::new());
    for (path, text) in sources(root) {
        let path = path.strip_prefix(root.to_str().unwrap()).unwrap();
        let module = path.split(['/', '.']).nth(1).unwrap().to_owned();
        let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
        let code: String = code.lines().filter_map(|line| line.split("//").next()).collect();
        if module == "lib" {
            for rest in code.split("pub use ").skip(1) {
                let (from, names) = rest.split(';').next().unwrap().split_once("::").unwrap();
                given.extend(heads(names).into_iter().map(|name| (name.to_owned(), from.to_owned())));
            }
        } else if module != "main" && !path.contains("test") {
            let paths = code.split("crate::").skip(1).flat_map(heads);
            uses.entry(module).or_default().extend(paths.map(str::to_owned));
        }
    }
    for (module, used) in &mut uses {
        let of_all = |name: &str| given.get("*").filter(|_| name.starts_with(char::is_uppercase));
        let home = |name: &String| given.get(name).or_else(|| of_all(name)).unwrap_or(name).clone();
        *used = used.iter().map(home).collect();
        used.remove(module);
    }
    uses
}

/// Without cycles, each module can be read after those that it uses.
#[test]
fn modules_have_no_cycles() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    for (folder, module, used) in [
        ("src/channel/src", "writer", "lane"),
        ("src/snapshot/src", "tables", "names"),
        ("src/probe/src", "nvml", "types"),
        ("src/tui/src", "view", "model"),
        ("demo/src", "run", "stage"),
    ] {
        let mut uses = modules(&root.join(folder));
        assert!(uses[module].contains(used), "this test looks at nothing in {folder}");
        // Removes modules that use no remaining module or that no remaining module uses, until only cycles are left.
        loop {
            let left: BTreeSet<String> = uses.keys().cloned().collect();
            let used: BTreeSet<String> = uses.values().flatten().cloned().collect();
            uses.retain(|module, uses| used.contains(module) && !uses.is_disjoint(&left));
            if uses.len() == left.len() {
                break;
            }
        }
        assert!(uses.is_empty(), "modules of {folder} that use each other: {uses:?}");
    }
}

#[test]
fn the_dashboards_modules_use_only_what_they_may() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let tui = root.join("src/tui/src");
    let pure = [
        "tokio",
        "std::fs",
        "Instant::now",
        "SystemTime",
        "crossterm",
        "crate::source",
    ];
    let and = |more: &[&'static str]| [&pure[..], more].concat();
    let rules = [
        (
            "model",
            and(&["ratatui", "std::io", "crate::view", "crate::update", "crate::report"]),
        ),
        ("update", and(&["ratatui", "std::io", "crate::view", "crate::report"])),
        ("view", and(&["crate::update", "gpumem_demo"])),
        (
            "source",
            vec![
                "ratatui",
                "crossterm",
                "crate::view",
                "crate::update",
                "crate::report",
                "crate::doctor",
            ],
        ),
    ];
    for (folder, words) in rules {
        let files = sources(&tui.join(folder));
        // Without the path of the checkout, which may contain "test".
        let is_test = |path: &str| path.strip_prefix(tui.to_str().unwrap()).unwrap().contains("test");
        let files: Vec<_> = files.iter().filter(|(path, _)| !is_test(path)).collect();
        assert!(files.len() > 2, "{folder} has moved: this test looks at nothing");
        for (path, text) in files {
            for word in &words {
                assert!(!text.contains(word), "{path} must not use {word}");
            }
        }
    }
}

/// The wall clock may be set at any time. It is used for dates that outlive a boot, and never for the age of something that is shown.
#[test]
fn the_wall_clock_is_read_for_dates_only() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let allowed = [
        "src/tui/src/clock.rs",
        "src/channel/src/identity.rs",
        "src/channel/src/sweep.rs",
        "src/probe/src/process/users.rs",
        // PyTorch's snapshots count from 1970.
        "src/alloc/src/history/recorder.rs",
        "src/torch/src/history.rs",
        // A report of `bench` is kept for months.
        "demo/src/bench/run.rs",
    ];
    let mut found = 0;
    for dir in ["src", "demo/src"] {
        for (path, text) in sources(&root.join(dir)) {
            let used = text.contains("SystemTime") || text.contains("ClockId::Realtime");
            // Without the path of the checkout, which may contain "test".
            let path = path.strip_prefix(root.to_str().unwrap()).unwrap();
            let is_allowed = allowed.iter().any(|file| path.ends_with(file)) || path.contains("test");
            found += u32::from(used && is_allowed);
            assert!(!used || is_allowed, "the wall clock in {path}");
        }
    }
    assert!(found > 2, "this test looks at nothing");
}

#[test]
fn unsafe_code_is_in_the_allowed_places_only() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let allowed = [
        "src/channel/src/map.rs",
        "src/channel/tests/common/mod.rs",
        "src/alloc/src/device/cuda",
        "src/alloc/src/lock/biased.rs",
        "src/alloc/src/process/",
        "src/alloc/src/stack/unwind",
        "src/alloc/c/src/",
        "src/alloc/tests/",
        "demo/src/gpu.rs",
        "demo/src/gpu/",
        "src/probe/src/attach/sys.rs",
        "src/probe/src/nvml/calls",
        "src/probe/src/process/users",
        "src/probe/src/uvm/sys.rs",
        "src/tui/src/terminal/last_resort.rs",
        "tests/tests/all/c_abi/",
        "tests/fake-nvml/",
        "tests/fake-cuda/",
        "tests/fake-uvm/",
    ];
    let mut found = 0;
    for dir in ["src", "demo", "tests"] {
        for (path, text) in sources(&root.join(dir)) {
            // The keyword in code, and not the word in attributes and prose.
            let used = text
                .lines()
                .any(|line| line.contains("unsafe {") || line.contains("unsafe impl") || line.contains("unsafe fn"));
            let is_allowed = allowed.iter().any(|place| path.contains(place));
            found += u32::from(used && is_allowed);
            assert!(
                !used || is_allowed || path.ends_with("borders.rs"),
                "unsafe code in {path}"
            );
        }
    }
    assert!(found > 0, "this test looks at nothing");
}
