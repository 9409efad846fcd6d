//! Programs on CUDA, with a fake driver: from the allocator to the row beside NVML's figures, and drivers that fail.

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};

use gpumem_alloc::{Allocator, Config, Error, Stream, device};
use gpumem_tests::{Ended, Terminal, World, said};

const MIB: usize = 1 << 20;
/// Set in the environment of the process that runs [`embedding_program`].
const PROGRAM: &str = "GPUMEM_TESTS_CUDA_PROGRAM";

/// Is the program of the test below, on the driver's second device. Does nothing as a test of its own.
#[test]
fn embedding_program() {
    if std::env::var_os(PROGRAM).is_none() {
        return;
    }
    let alloc = Allocator::new(device::cuda(1).unwrap(), Config::default()).unwrap();
    let held = alloc.alloc::<u8>(100 * MIB, Stream::DEFAULT).unwrap();
    drop(alloc.alloc::<u8>(30 * MIB, Stream::DEFAULT).unwrap());
    // The default stream's other handle, and the handle that means another stream in each thread.
    assert!(matches!(alloc.retire_stream(Stream(1)), Err(Error::DefaultStream)));
    assert!(matches!(alloc.retire_stream(Stream(2)), Err(Error::PerThreadStream)));
    assert!(matches!(
        alloc.retire_stream(Stream::per_thread()),
        Err(Error::DefaultStream)
    ));
    println!("\nready");
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
    drop(held);
}

#[test]
fn a_program_on_cuda_has_its_row_beside_nvmls_figures() {
    let driver = tempfile::tempdir().unwrap();
    gpumem_fake_cuda::install(driver.path()).unwrap();
    // NVML numbers the two the other way round.
    let uuids = "gpu0.uuid=GPU-66616b65-2d63-7564-612d-757569640001;gpu1.uuid=GPU-66616b65-2d63-7564-612d-757569640000";
    let world = World::with_nvml(&format!("gpus=2;{uuids}"));
    let mut program = Command::new(std::env::current_exe().unwrap());
    program.args(["--exact", "cuda::embedding_program", "--nocapture"]);
    program.env(PROGRAM, "1").env("LD_LIBRARY_PATH", driver.path());
    program.env("FAKE_CUDA_DEVICES", "2").envs(world.environment());
    let mut program = program.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(program.stdout.take().unwrap()).lines();
    assert!(
        lines.any(|line| line.unwrap() == "ready"),
        "it ended before it was ready"
    );
    let pid = program.id();
    world.play(&format!(
        "gpus=2;{uuids};gpu0.used=600M;gpu0.process={pid}:600M:compute"
    ));

    let document = world.json();
    let row = &document["processes"][0];
    let mib = |n: usize| serde_json::Value::from(n * MIB);
    assert_eq!(
        (&row["pid"], &row["device"], &row["state"], &row["nvml"]),
        (&pid.into(), &"GPU 0".into(), &"publishing".into(), &mib(600))
    );
    let figures = &row["allocator"];
    assert_eq!(
        (&figures["allocated"], &figures["cached"], &row["simulated"]),
        (&mib(100), &mib(30), &false.into())
    );
    let memory = &document["devices"][0]["memory"];
    assert_eq!(
        (&memory["allocated"], &memory["cached"], &memory["other"]),
        (&mib(100), &mib(30), &mib(470))
    );
    assert_eq!(document["devices"][1]["memory"]["allocated"], 0);

    drop(program.stdin.take());
    assert!(program.wait().unwrap().success());
    let states = world.json()["processes"].as_array().unwrap().clone();
    assert!(states.iter().any(|row| row["state"] == "exited"), "{states:?}");
}

/// Checks the message and the exit code of a demo. Without `--device sim` it never simulates.
#[test]
fn a_demo_on_a_driver_that_fails_says_so() {
    let driver = tempfile::tempdir().unwrap();
    gpumem_fake_cuda::install(driver.path()).unwrap();
    let world = World::without_gpu();
    let cases = [
        ("100", 3, "CUDA_ERROR_NO_DEVICE"),
        ("803", 3, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"),
        ("0", 1, "loading a kernel (drivers from R525 on take it) failed"),
    ];
    for (init, code, expected) in cases {
        let environment = [
            ("LD_LIBRARY_PATH", driver.path().to_str().unwrap()),
            ("FAKE_CUDA_INIT", init),
        ];
        let mut command = world.command(&["demo", "fragmentation", "--headless", "--device", "cuda"]);
        let output = command.envs(environment).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{expected}: {}", said(&output.stderr));
        assert!(
            said(&output.stderr).contains(expected),
            "{expected}: {}",
            said(&output.stderr)
        );
        assert!(output.stdout.is_empty(), "{}", said(&output.stdout));
        let args = ["demo", "fragmentation", "--device", "cuda"];
        let mut terminal = Terminal::start_with(&world, &args, 160, 40, &environment);
        terminal.wait_for(&["failed", expected]);
        assert!(!terminal.text().contains("SIMULATED"));
        terminal.keys("q");
        assert_eq!(terminal.ended(), Ended::Code(code as u32));
    }
}
