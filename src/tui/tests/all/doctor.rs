//! `doctor --json` and `doctor --bundle`.

use std::io::Read;

use flate2::read::GzDecoder;
use gpumem_tests::{Background, World, said};
use serde_json::Value;

#[test]
fn checks_are_one_document() {
    for (world, code) in [(World::without_gpu(), 3), (World::with_nvml("h100"), 3)] {
        let output = world.command(&["doctor", "--json"]).output().unwrap();
        let document: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(document["schema"], "gpumem-doctor/1");
        let checks = document["checks"].as_array().unwrap();
        let text = said(&world.command(&["doctor"]).output().unwrap().stdout);
        for check in checks {
            assert!(text.contains(check["name"].as_str().unwrap()), "{check} is in {text}");
            let needs = check["verdict"] != "ok";
            assert_eq!(check["todo"].is_string(), needs, "{check}");
        }
        let is = |verdict: &str| checks.iter().any(|check| check["verdict"] == verdict);
        let expected = match (is("bad"), is("no-gpu")) {
            (true, _) => 1,
            (false, true) => code,
            (false, false) => 0,
        };
        assert_eq!(output.status.code(), Some(expected), "{document}");
    }
}

/// The program, its job and the environment are real, and so is everything that the archive reads.
#[test]
fn bundle_of_this_machine_has_nothing_private() {
    let world = World::without_gpu();
    let mut command = world.command(&[
        "demo",
        "train",
        "--headless",
        "--json",
        "--device",
        "sim",
        "--pace",
        "200ms",
        "--seed",
        "98765432",
    ]);
    command.env("GPUMEM_JOB", "merger of acme");
    let mut demo = Background::run(command);
    demo.step();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("bundle.tar.gz");
    let run = || {
        let mut command = world.command(&["doctor", "--bundle", file.to_str().unwrap()]);
        command.envs([
            ("HOME", "/srv/anastasia"),
            ("USER", "anastasia"),
            ("API_TOKEN", "s3cr3t-t0ken"),
        ]);
        command.output().unwrap()
    };
    let output = run();
    assert_eq!(output.status.code(), Some(0), "{}", said(&output.stderr));
    let listed = said(&output.stdout);
    let mut archive = tar::Archive::new(GzDecoder::new(std::fs::File::open(&file).unwrap()));
    let mut all = String::new();
    for entry in archive.entries().unwrap() {
        let mut entry = entry.unwrap();
        let name = entry.path().unwrap().file_name().unwrap().to_str().unwrap().to_owned();
        assert!(listed.contains(&name), "{name} is in {listed}");
        entry.read_to_string(&mut all).unwrap();
    }
    let host = rustix::system::uname().nodename().to_str().unwrap().to_owned();
    let channels = world.channels().display().to_string();
    for secret in ["merger", "acme", "anastasia", "s3cr3t", "98765432", channels.as_str()] {
        assert!(!all.contains(secret), "{secret}: {all}");
    }
    // It may be short, and part of another word.
    assert!(
        all.split(|c: char| !c.is_alphanumeric()).all(|word| word != host),
        "{host}: {all}"
    );
    for needed in [
        "job-1",
        " argument-1 argument-2 ",
        "Max open files",
        env!("CARGO_PKG_VERSION"),
    ] {
        assert!(all.contains(needed), "{needed}: {all}");
    }
    let again = run();
    assert_eq!(again.status.code(), Some(1));
    assert!(
        said(&again.stderr).contains("is not overwritten"),
        "{}",
        said(&again.stderr)
    );
}
