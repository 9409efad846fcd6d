//! Python programs that use the library, on machines with Python. Unchanged scripts run on it, with a stub of torch that counts how often
//! its allocator was replaced. `tests/gpu/c_abi.sh` tests the real torch on a GPU. Histories have Python's call stacks.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use gpumem_tests::{World, said};
use tempfile::TempDir;

/// A stub with the parts of torch that the example uses. `on` counts how often its allocator was replaced.
const TORCH: &str = "
import ctypes, sys, types
__version__ = '2.11.0+cu130'
_C = types.ModuleType('torch._C')
class OutOfMemoryError(RuntimeError): pass
class Allocator:
    def __init__(self, path, take, give): self.functions = [getattr(ctypes.CDLL(path), name) for name in (take, give)]
    def allocator(self): return self
    def __getattr__(self, name): return lambda address: None
    def __del__(self, say=sys.stdout.write): say('it ended')
on = 0
def change(allocator):
    global on
    on += 1
cuda = types.SimpleNamespace(is_initialized=lambda: False)
cuda.memory = types.SimpleNamespace(CUDAPluggableAllocator=Allocator, change_current_allocator=change)
backends = types.SimpleNamespace(cuda=types.SimpleNamespace(is_built=lambda: True))
";

/// A folder with that stub and files for a script.
struct Scripts(TempDir);

impl Scripts {
    /// Makes the folder. Prints a line and returns `None` if there is no Python that is new enough.
    fn new() -> Option<Scripts> {
        let new_enough = "import sys; sys.exit(sys.version_info < (3, 10))";
        let found = Command::new("python3").args(["-c", new_enough]).status();
        if !found.is_ok_and(|status| status.success()) {
            eprintln!("SKIPPED: there is no Python 3.10");
            return None;
        }
        let scripts = Scripts(tempfile::tempdir().unwrap());
        scripts.put("torch.py", TORCH);
        Some(scripts)
    }

    fn put(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path
    }

    /// Runs Python with this `run.py` and these arguments, with `folders` on its path.
    fn run_at(&self, run: &Path, folders: &[&str], arguments: &[&str]) -> Output {
        self.run_with(run, folders, arguments, &[])
    }

    /// The same with more in its environment.
    fn run_with(&self, run: &Path, folders: &[&str], arguments: &[&str], environment: &[(&str, &str)]) -> Output {
        let folders = folders.iter().map(|folder| self.0.path().join(folder));
        let path = std::env::join_paths(folders.chain([self.0.path().to_owned()])).unwrap();
        Command::new("python3")
            .arg("-B")
            .arg(run)
            .args(arguments)
            .current_dir(self.0.path())
            .env("PYTHONPATH", path)
            .envs(World::without_gpu().environment())
            .envs(environment.iter().copied())
            .output()
            .unwrap()
    }

    /// Returns the output of a program that uses the library through gpumem.py, on a simulated driver.
    #[track_caller]
    fn uses(&self, text: &str) -> String {
        gpumem_fake_cuda::install(self.0.path()).unwrap();
        let begin = "import gpumem, os\nlibrary = gpumem.load(os.environ['LIBRARY'])\n";
        let program = self.put("program.py", &format!("{begin}{text}"));
        let ran = Command::new("timeout")
            // Later versions warn of forks in a process with threads.
            .args(["60", "python3", "-B", "-W", "ignore"])
            .arg(program)
            .env("PYTHONPATH", run().with_file_name(""))
            .env("LIBRARY", gpumem_tests::libgpumem_alloc())
            .env("LD_LIBRARY_PATH", self.0.path())
            .envs(World::without_gpu().environment())
            .output()
            .unwrap();
        assert_eq!(said(&ran.stderr), "");
        said_of(&ran)
    }

    /// Returns the output of a script that run.py runs on the library.
    #[track_caller]
    fn says(&self, folders: &[&str], text: &str) -> String {
        self.put("script.py", text);
        let library = gpumem_tests::libgpumem_alloc();
        said_of(&self.run_at(
            &run(),
            folders,
            &[library.to_str().unwrap(), "script.py", "an argument"],
        ))
    }
}

#[track_caller]
fn said_of(ran: &Output) -> String {
    let (stdout, stderr) = (said(&ran.stdout), said(&ran.stderr));
    assert!(ran.status.success(), "{stdout}{stderr}");
    stdout
}

fn run() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../demo/python/run.py")
}

#[test]
fn a_script_and_its_children_run_as_they_are() {
    let Some(scripts) = Scripts::new() else { return };
    let said = scripts.says(
        &[],
        "
import importlib.util, multiprocessing, os, subprocess, sys
def child():
    import torch
    print('child', torch.on, flush=True)
if __name__ == '__main__':
    print(sys.argv, os.path.basename(__file__), importlib.util.find_spec('torch') is not None, 'gpumem' in sys.modules)
    import torch
    print('on', torch.on, [entry for entry in sys.path if entry.endswith('demo/python')], flush=True)
    spawned = multiprocessing.get_context('spawn').Process(target=child)
    spawned.start()
    spawned.join()
    subprocess.run([sys.executable, '-c', 'import torch; print(torch.on)'])
    subprocess.run([sys.executable, '-c', 'import sys; print(\"gpumem\" in sys.modules)'])
",
    );
    assert_eq!(
        said,
        "['script.py', 'an argument'] script.py True False\non 1 []\nchild 1\n1\nFalse\n"
    );
}

#[test]
fn other_sitecustomize_modules_still_run() {
    let Some(scripts) = Scripts::new() else { return };
    // A module that replaces another one, as tracers do, and then runs the one after it.
    scripts.put(
        "tracer/sitecustomize.py",
        "
import os, sys
print('tracer')
sys.path.remove(os.path.dirname(__file__))
del sys.modules['sitecustomize']
import sitecustomize
",
    );
    scripts.put("last/sitecustomize.py", "print('last')\nname = 'the last one'\n");
    let script = "import sitecustomize, torch\nprint(sitecustomize.name, torch.on)\n";
    let both = scripts.says(&["tracer", "last"], script);
    // Once in the Python that runs run.py, and once in the one that it becomes for the script.
    assert_eq!(both, "tracer\nlast\ntracer\nlast\nthe last one 1\n");
    assert_eq!(scripts.says(&["last"], script), "last\nlast\nthe last one 1\n");
}

#[test]
fn finders_that_ask_all_finders_do_not_recurse_forever() {
    let Some(scripts) = Scripts::new() else { return };
    let said = scripts.says(
        &[],
        "
import importlib.util, sys
class Finder:
    asking = False
    def find_spec(self, name, path=None, target=None):
        if self.asking or name != 'torch':
            return None
        self.asking = True
        spec = importlib.util.find_spec(name)
        spec.loader = Loader(spec.loader)
        return spec
class Loader:
    def __init__(self, loader): self.loader = loader
    def create_module(self, spec): return None
    def exec_module(self, module): self.loader.exec_module(module)
# Before and behind the one that waits for torch.
sys.meta_path.insert(0, Finder())
sys.meta_path.insert(2, Finder())
import torch
print(torch.on)
",
    );
    assert_eq!(said, "1\n");
}

#[test]
fn a_torch_that_was_imported_before_uses_the_library() {
    let Some(scripts) = Scripts::new() else { return };
    scripts.put("early/sitecustomize.py", "import torch\n");
    let said = scripts.says(&["early"], "import torch\nprint(torch.on)\n");
    assert_eq!(said, "1\n");
    // Imported before gpumem's sitecustomize, as a .pth file may do.
    let library = gpumem_tests::libgpumem_alloc();
    let every = run().with_file_name("every_python");
    let early = format!(
        "import sys; sys.path.insert(0, {:?}); import torch; sys.path.insert(0, {every:?}); import sitecustomize; print(torch.on)",
        scripts.0.path()
    );
    let ran = Command::new("python3")
        .args(["-B", "-S", "-c", &early])
        .env("GPUMEM_PYTHON", library)
        .env_remove("PYTHONPATH")
        .envs(World::without_gpu().environment())
        .output()
        .unwrap();
    assert_eq!(said_of(&ran), "1\n");
}

#[test]
fn arguments_that_would_bypass_the_library_are_refused() {
    let Some(scripts) = Scripts::new() else { return };
    scripts.put("script.py", "import torch\nprint(torch.on)\n");
    let library = gpumem_tests::libgpumem_alloc();
    let library = library.to_str().unwrap();
    let refused = |run: &Path, arguments: &[&str], why: &str| {
        let ran = scripts.run_at(run, &[], arguments);
        let stderr = said(&ran.stderr);
        assert!(!ran.status.success() && stderr.contains(why), "{stderr}");
        assert_eq!(said(&ran.stdout), "");
    };
    refused(
        &run(),
        &[library, "-E", "script.py"],
        "options of Python go before run.py",
    );
    refused(&run(), &[library], "run.py target/embed/libgpumem_alloc.so train.py");
    refused(
        &run(),
        &["/nowhere/lib.so", "script.py"],
        "/nowhere/lib.so: cannot open",
    );
    let apart = scripts.put("a:b/run.py", &fs::read_to_string(run()).unwrap());
    refused(&apart, &[library, "script.py"], "cannot be in PYTHONPATH");
    // It works through a link with another name.
    let link = scripts.0.path().join("link.py");
    std::os::unix::fs::symlink(fs::canonicalize(run()).unwrap(), &link).unwrap();
    assert_eq!(said_of(&scripts.run_at(&link, &[], &[library, "script.py"])), "1\n");
}

/// The error comes even for a script that uses neither PyTorch nor CuPy.
#[test]
fn an_unusable_library_is_an_error_before_the_script_begins() {
    let Some(scripts) = Scripts::new() else { return };
    scripts.put("script.py", "print('it ran')\n");
    let library = fs::read(gpumem_tests::libgpumem_alloc()).unwrap();
    let put = |name: &str, bytes: &[u8]| fs::write(scripts.0.path().join(name), bytes).unwrap();
    let patched = |at: usize, byte: u8| {
        let mut bytes = library.clone();
        bytes[at] = byte;
        bytes
    };
    // The machine field of the header: aarch64, or x86-64 if this machine is aarch64.
    let foreign = if cfg!(target_arch = "aarch64") { 62 } else { 183 };
    put("foreign.so", &patched(18, foreign));
    // The type field: a program that is not position-independent, or an object file.
    put("program", &patched(16, 2));
    put("cut.so", &library[..4096]);
    put("text.so", b"INPUT(libgpumem_alloc.so)\n");
    put("empty.so", b"");
    fs::create_dir(scripts.0.path().join("folder.so")).unwrap();
    rustix::fs::mkfifoat(
        rustix::fs::CWD,
        scripts.0.path().join("pipe.so"),
        rustix::fs::Mode::RWXU,
    )
    .unwrap();
    for (library, why) in [
        ("./missing.so", "missing.so: cannot open it: No such file"),
        ("libmissing_of_gpumem.so", "libmissing_of_gpumem.so: cannot open"),
        ("folder.so", "folder.so is a folder"),
        ("pipe.so", "pipe.so is not a file"),
        ("text.so", "text.so is not a shared library"),
        ("empty.so", "empty.so is not a shared library"),
        ("program", "program is not a shared library"),
        ("cut.so", "cut.so"),
        ("foreign.so", "foreign.so is a library for "),
        (
            "libm.so.6",
            "libm.so.6 is not gpumem's library, or an old one: it lacks gpumem_alloc",
        ),
    ] {
        let ran = scripts.run_at(&run(), &[], &[library, "script.py"]);
        let stderr = said(&ran.stderr);
        assert!(
            stderr.starts_with("run.py: ") && stderr.contains(why),
            "{library}: {stderr}"
        );
        assert_eq!(
            (ran.status.code(), stderr.lines().count(), &*said(&ran.stdout)),
            (Some(1), 1, ""),
            "{library}: {stderr}"
        );
    }
}

#[test]
fn the_library_and_its_options_are_announced_once() {
    let Some(scripts) = Scripts::new() else { return };
    scripts.put(
        "script.py",
        "import os, subprocess, sys\nif len(sys.argv) == 1: subprocess.run([sys.executable, __file__, 'child'])\nprint('it ran')\n",
    );
    let path = gpumem_tests::libgpumem_alloc();
    let path = path.to_str().unwrap();
    let says = |library: &str, environment: &[(&str, &str)]| {
        let ran = scripts.run_with(&run(), &[], &[library, "script.py"], environment);
        assert_eq!(said_of(&ran), "it ran\nit ran\n");
        said(&ran.stderr).clone()
    };
    let on = format!("gpumem: on for PyTorch and CuPy: {path}, ");
    assert_eq!(says(path, &[]), format!("{on}default options\n"));
    let options = ("GPUMEM_ALLOC_CONF", "budget_mb:64,\n history:on");
    assert_eq!(
        says(path, &[options]),
        format!("{on}GPUMEM_ALLOC_CONF=budget_mb:64, history:on\n")
    );
    assert_eq!(says(path, &[options, ("GPUMEM_QUIET", "1")]), "");
    // A name without a folder, which the dynamic loader searches for.
    let folder = Path::new(path).parent().unwrap().to_str().unwrap();
    let found = says("libgpumem_alloc.so", &[("LD_LIBRARY_PATH", folder)]);
    assert_eq!(
        found,
        "gpumem: on for PyTorch and CuPy: libgpumem_alloc.so, default options\n"
    );

    let wrong = ("GPUMEM_ALLOC_CONF", "max_split_size_mb=512");
    for environment in [&[wrong][..], &[wrong, ("GPUMEM_QUIET", "1")]] {
        let ran = scripts.run_with(&run(), &[], &[path, "script.py"], environment);
        assert_eq!((ran.status.code(), &*said(&ran.stdout)), (Some(1), ""));
        assert_eq!(
            said(&ran.stderr),
            "run.py: GPUMEM_ALLOC_CONF, column 18: expected a colon between an option and its value, found '=': write max_split_size_mb:512\n"
        );
    }
}

#[test]
fn histories_have_pythons_stacks() {
    let Some(scripts) = Scripts::new() else { return };
    let said = scripts.uses(
        "
import threading
gpumem.python_stacks(library)
gpumem.python_stacks(library)
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
    for part in gpumem.peak_report(library).split('MiB'):
        yield [line.strip() for line in part.splitlines()[1:] if '/program.py:' in line]
for stack in filter(None, stacks()):
    print([line.split('/')[0] + line.split(':')[-1] for line in stack])
def anew():
    library.gpumem_record_history(0, 1, 1000)
    return take(512)
anew()
gpumem.snapshot(library, os.environ['LD_LIBRARY_PATH'] + '/snapshot.json')
import json
trace, = json.load(open(os.environ['LD_LIBRARY_PATH'] + '/snapshot.json'))['device_traces']
print([(frame['name'], frame['line']) for frame in trace[-1]['frames']])
",
    );
    let line = |of: &str| {
        let text = fs::read_to_string(scripts.0.path().join("program.py")).unwrap();
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
    let Some(scripts) = Scripts::new() else { return };
    for (native, expected) in [("True", "True"), ("False", "False")] {
        // A function that is called while Python ends has no Python caller.
        let said = scripts.uses(&format!(
            "
import atexit
gpumem.python_stacks(library, native={native})
assert library.gpumem_record_history(0, 1, 1000) == 0
library.gpumem_alloc(1 << 20, 0, None)
@atexit.register
def show():
    report = gpumem.peak_report(library)
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
    let Some(scripts) = Scripts::new() else { return };
    let said = scripts.uses(
        "
import weakref
gpumem.python_stacks(library)
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
gpumem.python_stacks(library)
library.gpumem_record_history(0, 2, 1000)
library.gpumem_alloc(512, 0, None)
print('/program.py:' in gpumem.peak_report(library))
",
    );
    assert_eq!(said, "True True\nTrue\nTrue\n");
}

/// They do not crash it either. That needs several tries to show.
#[test]
fn threads_that_allocate_do_not_keep_python_from_ending() {
    let Some(scripts) = Scripts::new() else { return };
    for _ in 0..5 {
        let said = scripts.uses(ENDS_WITH_THREADS);
        assert_eq!(said, "0\n");
    }
}

const ENDS_WITH_THREADS: &str = "
import sys, threading, time
gpumem.python_stacks(library)
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
    let Some(scripts) = Scripts::new() else { return };
    let said = scripts.uses(
        "
import ctypes, threading
gpumem.python_stacks(library)
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
print(gpumem.stats(library).all.allocation.current)
",
    );
    assert_eq!(said, "20\n");
}

/// Whichever thread holds the interpreter's lock at that moment.
#[test]
fn each_thread_has_its_own_stack() {
    let Some(scripts) = Scripts::new() else { return };
    let said = scripts.uses(
        "
import json, threading
gpumem.python_stacks(library)
assert library.gpumem_record_history(0, 2, 100_000) == 0
def work(bytes):
    for _ in range(1000):
        library.gpumem_free(library.gpumem_alloc(bytes, 0, None), bytes, 0, None)
threads = [threading.Thread(target=work, args=(number << 10,)) for number in range(1, 5)]
for thread in threads: thread.start()
for thread in threads: thread.join()
path = os.environ['LD_LIBRARY_PATH'] + '/snapshot.json'
gpumem.snapshot(library, path)
trace, = json.load(open(path))['device_traces']
of_them = [event for event in trace if event['action'] == 'alloc']
print(len(of_them), {event['frames'][0]['name'] for event in of_them})
",
    );
    assert_eq!(said, "4000 {'work'}\n");
}
