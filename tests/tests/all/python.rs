//! Call stacks of Python in the library's histories, on machines with Python. What else the package does with the library is tested with
//! the package (`src/python/tests`), and `tests/gpu/c_abi.sh` tests it with the real torch on a GPU.

use std::fs;
use std::path::Path;
use std::process::Command;

use gpumem_tests::{World, said};
use tempfile::TempDir;

/// A folder with a program and a simulated driver.
struct Programs(TempDir);

impl Programs {
    /// Makes the folder. Prints a line and returns `None` if there is no Python that is new enough.
    fn new() -> Option<Programs> {
        let new_enough = "import sys; sys.exit(sys.version_info < (3, 9))";
        let found = Command::new("python3").args(["-c", new_enough]).status();
        if !found.is_ok_and(|status| status.success()) {
            eprintln!("SKIPPED: there is no Python 3.9");
            return None;
        }
        let programs = Programs(tempfile::tempdir().unwrap());
        gpumem_fake_cuda::install(programs.0.path()).unwrap();
        Some(programs)
    }

    /// Returns the output of a program that uses the library.
    #[track_caller]
    fn uses(&self, text: &str) -> String {
        let begin = "import gpumem, os\nallocator = gpumem.allocator\nlibrary = allocator.library\n";
        let program = self.0.path().join("program.py");
        fs::write(&program, format!("{begin}{text}")).unwrap();
        let ran = Command::new("timeout")
            // Later versions warn of forks in a process with threads.
            .args(["60", "python3", "-B", "-W", "ignore"])
            .arg(program)
            .env(
                "PYTHONPATH",
                Path::new(env!("CARGO_MANIFEST_DIR")).join("../src/python"),
            )
            .env("GPUMEM_LIBRARY", gpumem_tests::libgpumem_alloc())
            .env("LD_LIBRARY_PATH", self.0.path())
            .envs(World::without_gpu().environment())
            .output()
            .unwrap();
        let (stdout, stderr) = (said(&ran.stdout), said(&ran.stderr));
        assert!(ran.status.success() && stderr.is_empty(), "{stdout}{stderr}");
        stdout
    }
}

#[test]
fn histories_have_pythons_stacks() {
    let Some(programs) = Programs::new() else { return };
    let said = programs.uses(
        "
import threading
allocator.python_stacks()
allocator.python_stacks()
assert library.gpumem_record_history(0, 2, 1000) == 0
def take(bytes):
    return library.gpumem_alloc(bytes, 0, None)
class Layer:
    def _call_impl(self): return self.forward()
    def forward(self): return take(3 << 20)
held = Layer()._call_impl()
thread = threading.Thread(target=lambda: take(1 << 20), name='other')
thread.start()
thread.join()
def stacks():
    for part in allocator.peak_report().split('MiB'):
        yield [line.strip() for line in part.splitlines()[1:] if '/program.py:' in line]
for stack in filter(None, stacks()):
    print([line.split('/')[0] + line.split(':')[-1] for line in stack])
def anew():
    library.gpumem_record_history(0, 1, 1000)
    return take(512)
anew()
allocator.snapshot(os.environ['LD_LIBRARY_PATH'] + '/snapshot.json')
import json
trace, = json.load(open(os.environ['LD_LIBRARY_PATH'] + '/snapshot.json'))['device_traces']
print([(frame['name'], frame['line']) for frame in trace[-1]['frames']])
",
    );
    let line = |of: &str| {
        let text = fs::read_to_string(programs.0.path().join("program.py")).unwrap();
        text.lines().position(|line| line.contains(of)).unwrap() + 1
    };
    let [taken, forward, made] = ["return library.gpumem_alloc", "take(3 << 20)", "held ="].map(line);
    let [thread, again, anew] = ["lambda", "return take(512)", "anew()"].map(line);
    let anew = anew + 3;
    // Methods have their class in their names from Python 3.11 on.
    let said = said.replace("Layer.forward", "forward");
    assert_eq!(
        said,
        format!(
            "['take ({taken})', 'forward ({forward})', '<module> ({made})']\n\
             ['take ({taken})', '<lambda> ({thread})']\n\
             [('take', {taken}), ('anew', {again}), ('<module>', {anew})]\n"
        )
    );
}

/// Such as the threads of a backward pass.
#[test]
fn without_python_frames_stacks_are_native_or_absent() {
    let Some(programs) = Programs::new() else { return };
    for (native, expected) in [("True", "True"), ("False", "False")] {
        // A function that is called while Python ends has no Python caller.
        let said = programs.uses(&format!(
            "
import atexit
allocator.python_stacks(native={native})
assert library.gpumem_record_history(0, 1, 1000) == 0
library.gpumem_alloc(1 << 20, 0, None)
@atexit.register
def show():
    report = allocator.peak_report()
    print('/program.py:' in report, 'ctypes' in report)
atexit.register(library.gpumem_alloc, 2 << 20, 0, None)
"
        ));
        assert_eq!(
            said,
            format!(
                "True {expected}
"
            )
        );
    }
}

/// Otherwise a program that keeps making functions would keep all of them in memory.
#[test]
fn code_objects_that_recur_are_released() {
    let Some(programs) = Programs::new() else { return };
    let said = programs.uses(
        "
import weakref
allocator.python_stacks()
assert library.gpumem_record_history(0, 2, 1000) == 0
made = []
for number in range(30_000):
    code = compile('library.gpumem_free(library.gpumem_alloc(512, 0, None), 512, 0, None)', f'made {number % 10}', 'exec')
    made.append(weakref.ref(code))
    exec(code)
left = sum(code() is not None for code in made)
print(0 < left <= 1 << 14, made[-2]() is not None)
library.gpumem_python_stacks(None, 0)
print(made[-2]() is None)
allocator.python_stacks()
library.gpumem_record_history(0, 2, 1000)
library.gpumem_alloc(512, 0, None)
print('/program.py:' in allocator.peak_report())
",
    );
    assert_eq!(said, "True True\nTrue\nTrue\n");
}

/// They do not crash it either. That needs several tries to show.
#[test]
fn threads_that_allocate_do_not_keep_python_from_ending() {
    let Some(programs) = Programs::new() else { return };
    for _ in 0..5 {
        let said = programs.uses(ENDS_WITH_THREADS);
        assert_eq!(said, "0\n");
    }
}

const ENDS_WITH_THREADS: &str = "
import sys, threading, time
allocator.python_stacks()
assert library.gpumem_record_history(0, 2, 1000) == 0
def forever():
    while True:
        library.gpumem_free(library.gpumem_alloc(512, 0, None), 512, 0, None)
for _ in range(4):
    threading.Thread(target=forever, daemon=True).start()
time.sleep(0.3)
child = os.fork()
if child == 0:
    sys.exit(library.gpumem_alloc(512, 0, None) is not None)
print(os.waitpid(child, 0)[1])
";

/// The objects of such a thread are released with Python's state of the thread, which must not be released twice.
#[test]
fn a_foreign_thread_may_allocate_while_it_ends() {
    let Some(programs) = Programs::new() else { return };
    let said = programs.uses(
        "
import ctypes, threading
allocator.python_stacks()
assert library.gpumem_record_history(0, 2, 1000) == 0
kept = threading.local()
class Last:
    def __del__(self): library.gpumem_alloc(512, 0, None)
@ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
def body(_):
    kept.last = Last()
libc = ctypes.CDLL(None)
for _ in range(20):
    thread = ctypes.c_void_p()
    assert libc.pthread_create(ctypes.byref(thread), None, body, None) == 0
    libc.pthread_join(thread, None)
print(allocator.stats().all.allocation.current)
",
    );
    assert_eq!(said, "20\n");
}

/// Whichever thread holds the interpreter's lock at that moment.
#[test]
fn each_thread_has_its_own_stack() {
    let Some(programs) = Programs::new() else { return };
    let said = programs.uses(
        "
import json, threading
allocator.python_stacks()
assert library.gpumem_record_history(0, 2, 100_000) == 0
def work(bytes):
    for _ in range(1000):
        library.gpumem_free(library.gpumem_alloc(bytes, 0, None), bytes, 0, None)
threads = [threading.Thread(target=work, args=(number << 10,)) for number in range(1, 5)]
for thread in threads: thread.start()
for thread in threads: thread.join()
path = os.environ['LD_LIBRARY_PATH'] + '/snapshot.json'
allocator.snapshot(path)
trace, = json.load(open(path))['device_traces']
of_them = [event for event in trace if event['action'] == 'alloc']
print(len(of_them), {event['frames'][0]['name'] for event in of_them})
",
    );
    assert_eq!(said, "4000 {'work'}\n");
}
