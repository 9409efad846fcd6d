//! `gpumem-tui run --allocator`: unchanged scripts run on the library, with a stub of torch that counts how often its allocator was
//! replaced. What the Python package does with the library is tested in `src/python/tests/test_allocator.py`.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use gpumem_tests::{World, said};
use tempfile::TempDir;

/// A stub with the parts of torch that the package uses. `on` counts how often its allocator was replaced.
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
    allocator.allocator()
    on += 1
cuda = types.SimpleNamespace(is_initialized=lambda: False, _lazy_call=lambda function: None)
memory = {'CUDAPluggableAllocator': Allocator, 'change_current_allocator': change, 'get_allocator_backend': lambda: 'native'}
cuda.memory = types.SimpleNamespace(**memory)
version = types.SimpleNamespace(hip=None)
backends = types.SimpleNamespace(cuda=types.SimpleNamespace(is_built=lambda: True))
";

/// A folder with that stub, files for a script, and the user's cache.
struct Scripts(TempDir);

impl Scripts {
    fn new() -> Scripts {
        let scripts = Scripts(tempfile::tempdir().unwrap());
        scripts.put("torch.py", TORCH);
        scripts
    }

    fn put(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path
    }

    /// Runs a command by `gpumem-tui run --allocator` and these options, with `folders` on Python's path.
    fn run(&self, options: &[&str], folders: &[&str], command: &[&str], environment: &[(&str, &str)]) -> Output {
        let folders = folders.iter().map(|folder| self.0.path().join(folder));
        let path = std::env::join_paths(folders.chain([self.0.path().to_owned()])).unwrap();
        World::without_gpu()
            .command(&[&["run", "--allocator"], options, &["--"], command].concat())
            .current_dir(self.0.path())
            .env("XDG_CACHE_HOME", self.0.path().join("cache"))
            .env("PYTHONPATH", path)
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .env_remove("GPUMEM_LIBRARY")
            .envs(environment.iter().copied())
            .output()
            .unwrap()
    }

    /// Returns the output of a script that runs on the library.
    #[track_caller]
    fn says(&self, folders: &[&str], text: &str) -> String {
        self.put("script.py", text);
        said_of(&self.run(
            &["--library", &library()],
            folders,
            &["python3", "script.py", "an argument"],
            &[],
        ))
    }
}

#[track_caller]
fn said_of(ran: &Output) -> String {
    let (stdout, stderr) = (said(&ran.stdout), said(&ran.stderr));
    assert!(ran.status.success(), "{stdout}{stderr}");
    stdout
}

fn library() -> String {
    gpumem_tests::libgpumem_alloc().to_str().unwrap().to_owned()
}

#[test]
fn a_script_and_its_children_run_as_they_are() {
    let scripts = Scripts::new();
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
    print('on', torch.on, 'gpumem' in sys.modules, flush=True)
    spawned = multiprocessing.get_context('spawn').Process(target=child)
    spawned.start()
    spawned.join()
    subprocess.run([sys.executable, '-c', 'import torch; print(torch.on)'])
    subprocess.run([sys.executable, '-c', 'import sys; print(\"gpumem\" in sys.modules)'])
",
    );
    assert_eq!(
        said,
        "['script.py', 'an argument'] script.py True False\non 1 False\nchild 1\n1\nFalse\n"
    );
}

#[test]
fn other_sitecustomize_modules_still_run() {
    let scripts = Scripts::new();
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
    assert_eq!(both, "tracer\nlast\nthe last one 1\n");
    assert_eq!(scripts.says(&["last"], script), "last\nthe last one 1\n");
}

#[test]
fn finders_that_ask_all_finders_do_not_recurse_forever() {
    let scripts = Scripts::new();
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
sys.meta_path.insert(3, Finder())
import torch
print(torch.on)
",
    );
    assert_eq!(said, "1\n");
}

#[test]
fn a_torch_that_was_imported_before_uses_the_library() {
    let scripts = Scripts::new();
    scripts.put("early/sitecustomize.py", "import torch\n");
    let said = scripts.says(&["early"], "import torch\nprint(torch.on)\n");
    assert_eq!(said, "1\n");
    // Imported before gpumem's sitecustomize, as a .pth file may do.
    let early = "import os, sys; sys.path.insert(0, os.environ['FIRST']); import torch
sys.path.insert(0, os.environ['PYTHONPATH'].split(':')[0]); import sitecustomize; print(torch.on)";
    let first = scripts.0.path().to_str().unwrap();
    let ran = scripts.run(
        &["--library", &library()],
        &[],
        &["python3", "-S", "-c", early],
        &[("FIRST", first)],
    );
    assert_eq!(said_of(&ran), "1\n");
}

/// As the wheel has it, and as cargo builds it.
#[test]
fn library_near_the_program_is_found() {
    let scripts = Scripts::new();
    scripts.put("script.py", "import torch\nprint(torch.on)\n");
    let runs = |program: &Path, environment: &[(&str, &str)]| {
        Command::new(program)
            .args(["run", "--allocator", "python3", "script.py"])
            .current_dir(scripts.0.path())
            .env("XDG_CACHE_HOME", scripts.0.path().join("cache"))
            .env_remove("GPUMEM_LIBRARY")
            .envs(environment.iter().copied())
            .output()
            .unwrap()
    };
    let program = scripts.put("gpumem/bin/gpumem-tui", "");
    fs::copy(gpumem_tests::gpumem_tui(), &program).unwrap();
    fs::set_permissions(&program, Permissions::from_mode(0o755)).unwrap();
    let missing = runs(&program, &[]);
    assert_eq!((missing.status.code(), &*said(&missing.stdout)), (Some(2), ""));
    assert_eq!(
        said(&missing.stderr),
        "gpumem-tui: run --allocator: libgpumem_alloc.so is not beside this program: build it with \
         `cargo build --profile embed -p gpumem-alloc-c`, or name it with --library or GPUMEM_LIBRARY\n"
    );
    assert_eq!(said_of(&runs(&program, &[("GPUMEM_LIBRARY", &library())])), "1\n");
    for folder in ["gpumem/bin", "gpumem/lib", "gpumem/embed"] {
        let link = scripts.0.path().join(folder).join("libgpumem_alloc.so");
        fs::create_dir_all(link.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink(library(), &link).unwrap();
        let ran = runs(&program, &[]);
        assert_eq!(said_of(&ran), "1\n", "{folder}");
        assert!(said(&ran.stderr).contains(&format!("/{folder}/libgpumem_alloc.so")));
        fs::remove_file(link).unwrap();
    }
}

#[test]
fn command_that_would_bypass_the_library_is_refused() {
    let scripts = Scripts::new();
    let library = library();
    let command = ["python3", "-c", "print('it ran')"];
    let colon = ("XDG_CACHE_HOME", "/tmp/a:b");
    let ran = scripts.run(&["--library", &library], &[], &command, &[colon]);
    assert_eq!((ran.status.code(), &*said(&ran.stdout)), (Some(2), ""));
    assert!(said(&ran.stderr).contains("which PYTHONPATH cannot have"));
    // A library alone does not say that it is to be used.
    let ran = World::without_gpu()
        .command(&["run", "--library", &library, "--", "true"])
        .output()
        .unwrap();
    assert_eq!(ran.status.code(), Some(2));
}

/// The error comes even for a script that uses neither PyTorch nor CuPy.
#[test]
fn an_unusable_library_is_an_error_before_the_script_begins() {
    let scripts = Scripts::new();
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
    // A shared library that every process has loaded.
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let other = maps.split_whitespace().find(|word| word.ends_with("/libc.so.6"));
    let other = other.unwrap_or("/lib/libc.so.6").to_owned();
    for (library, why) in [
        ("./missing.so", "missing.so: cannot open it: No such file"),
        ("folder.so", "folder.so is a folder"),
        ("pipe.so", "pipe.so is not a file"),
        ("text.so", "text.so is not a shared library"),
        ("empty.so", "empty.so is not a shared library"),
        ("program", "program is not a shared library"),
        ("cut.so", "cut.so is cut off"),
        ("foreign.so", "foreign.so is a library for another processor"),
        (
            other.as_str(),
            "libc.so.6 is not gpumem's library, or an old one: it lacks gpumem_alloc",
        ),
    ] {
        let ran = scripts.run(&["--library", library], &[], &["python3", "script.py"], &[]);
        let stderr = said(&ran.stderr);
        assert!(
            stderr.starts_with("gpumem-tui: run --allocator: ") && stderr.contains(why),
            "{library}: {stderr}"
        );
        assert_eq!(
            (ran.status.code(), stderr.lines().count(), &*said(&ran.stdout)),
            (Some(2), 1, ""),
            "{library}: {stderr}"
        );
    }
}

#[test]
fn the_library_and_its_options_are_announced_once() {
    let scripts = Scripts::new();
    scripts.put(
        "script.py",
        "import os, subprocess, sys\nif len(sys.argv) == 1: subprocess.run([sys.executable, __file__, 'child'])\nprint('it ran')\n",
    );
    let path = library();
    let run =
        |environment: &[(&str, &str)]| scripts.run(&["--library", &path], &[], &["python3", "script.py"], environment);
    let says = |environment: &[(&str, &str)]| {
        let ran = run(environment);
        assert_eq!(said_of(&ran), "it ran\nit ran\n");
        said(&ran.stderr)
    };
    let on = format!("gpumem: on for PyTorch and CuPy: {path}, ");
    assert_eq!(says(&[]), format!("{on}default options\n"));
    let options = ("GPUMEM_ALLOC_CONF", "budget_mb:64,\n history:on");
    assert_eq!(
        says(&[options]),
        format!("{on}GPUMEM_ALLOC_CONF=budget_mb:64, history:on\n")
    );
    assert_eq!(says(&[options, ("GPUMEM_QUIET", "1")]), "");

    let wrong = ("GPUMEM_ALLOC_CONF", "max_split_size_mb=512");
    for environment in [&[wrong][..], &[wrong, ("GPUMEM_QUIET", "1")]] {
        let ran = run(environment);
        assert_eq!((ran.status.code(), &*said(&ran.stdout)), (Some(2), ""));
        assert_eq!(
            said(&ran.stderr),
            "gpumem-tui: run --allocator: GPUMEM_ALLOC_CONF, column 18: expected a colon between an option and its value, found '=': write max_split_size_mb:512\n"
        );
    }
}
