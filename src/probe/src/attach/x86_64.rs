//! What attaching is on x86-64: finding the functions of CPython, calling them, and cleaning up.

use std::fs::File;
use std::path::Path;
use std::time::{Duration, Instant};

use super::inject::{self, Addresses, Injected};
use super::remote::Remote;
use super::target::{Library, Mapped, mapped};
use super::{Route, rights};
use crate::Root;
use crate::stat::Stat;

/// `Py_Version` of CPython 3.16, with which nobody has tried it.
const TOO_NEW: u64 = 0x0310_0000;
/// How long the started thread may take to end once the text has answered.
const PATIENCE: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(5);

/// A process that can be attached to.
pub struct Attach {
    pid: u32,
    own_pid: u32,
    start_time: u64,
    python: String,
    version: Option<(u8, u8)>,
    addresses: Addresses,
    /// Its own way to execute something, from CPython 3.14 on.
    remote: Option<Remote>,
    /// Its `/proc/PID/auxv`: addresses that another program would have elsewhere.
    image: Vec<u8>,
    uses_torch: bool,
}

impl Attach {
    /// Looks at a process, without stopping it.
    ///
    /// # Errors
    /// A sentence that says why it cannot be attached to, and what to do about it.
    pub fn examine(pid: u32) -> Result<Attach, String> {
        let root = Root::default();
        let stat = Stat::read(&root, pid).map_err(|_| format!("there is no process {pid} here"))?;
        let own_pid = rights::check(&root, pid, &stat)?;
        // Before its mappings are read.
        let image = inject::image(pid).map_err(|error| rights::refused(&root, &error))?;
        let memory = File::open(format!("/proc/{pid}/mem")).map_err(|error| rights::refused(&root, &error))?;
        let files = mapped(&root, pid).map_err(|error| rights::refused(&root, &error))?;
        if files.iter().any(|file| file_name(file).starts_with("ld-musl")) {
            return Err("it runs on musl, which is not supported".to_owned());
        }
        let open = |file: &Mapped| Library::open(&root, pid, file, &memory);
        let executable = std::fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
        let may_be_python = |file: &&Mapped| {
            let name = file_name(file);
            name.starts_with("libpython3") || Path::new(&file.path) == executable
        };
        // A shared library before the program, which may be small.
        let mut candidates: Vec<&Mapped> = files.iter().filter(may_be_python).collect();
        candidates.sort_by_key(|file| !file_name(file).starts_with("libpython"));
        let mut found = None;
        for file in candidates {
            let library = open(file)?;
            if let Some(address) = library.address("Py_AddPendingCall") {
                found = Some((file, library, address));
                break;
            }
        }
        let Some((file, python, add_pending_call)) = found else {
            return Err("it is no CPython, or one without names of functions".to_owned());
        };
        // CPython 3.8 and newer.
        if python.address("PyConfig_InitPythonConfig").is_none() {
            return Err("its Python is older than 3.8".to_owned());
        }
        let version = python.address("Py_Version").and_then(|at| read_word(&memory, at));
        if version.is_some_and(|version| version >= TOO_NEW) {
            return Err("its Python is 3.16 or newer, which is not supported yet".to_owned());
        }
        let remote = Remote::examine(&memory, python.address("_PyRuntime"), version)?;
        let of_python = |name: &str| python.address(name).ok_or_else(|| format!("its Python lacks {name}"));
        let c: Vec<Library> = ["libc.so.6", "libpthread.so.0"]
            .iter()
            .filter_map(|name| files.iter().find(|file| file_name(file) == *name))
            .map(open)
            .collect::<Result<_, _>>()?;
        let of_c = |name: &str| {
            let found = c.iter().find_map(|library| library.address(name));
            found.ok_or_else(|| format!("its C library lacks {name}"))
        };
        let addresses = Addresses {
            system_call: c
                .first()
                .and_then(Library::system_call)
                .ok_or("its C library is not glibc's")?,
            add_pending_call,
            run_string: of_python("PyRun_SimpleString")?,
            ensure: of_python("PyGILState_Ensure")?,
            release: of_python("PyGILState_Release")?,
            create: of_c("pthread_create")?,
            detach: of_c("pthread_detach")?,
            this_thread: of_c("pthread_self")?,
        };
        Ok(Attach {
            pid,
            own_pid,
            start_time: stat.start_time,
            python: file.path.clone(),
            version: version.map(|version| ((version >> 24) as u8, (version >> 16) as u8)),
            addresses,
            remote,
            image,
            uses_torch: files.iter().any(|file| file_name(file).starts_with("libc10_cuda.so")),
        })
    }

    /// Returns its number in its own pid namespace.
    pub fn own_pid(&self) -> u32 {
        self.own_pid
    }

    /// Returns the file that has its interpreter, in its mount namespace.
    pub fn python(&self) -> &str {
        &self.python
    }

    /// Returns the version of its interpreter; `None` before 3.11, which does not tell.
    pub fn version(&self) -> Option<(u8, u8)> {
        self.version
    }

    /// Checks whether it has loaded PyTorch with CUDA.
    pub fn uses_torch(&self) -> bool {
        self.uses_torch
    }

    /// Has the process execute a text of Python: the two parts, with the number of the descriptor of its end of a socket pair between them.
    /// Returns once it is going to, and has let the process go on.
    ///
    /// # Errors
    /// A sentence: the text will not be executed, and the process goes on as before.
    pub fn inject(&self, text: [&str; 2]) -> Result<Injected, String> {
        let stat = Stat::read(&Root::default(), self.pid).map_err(|_| "it has ended".to_owned())?;
        if stat.start_time != self.start_time {
            return Err("it has ended, and another process has its number".to_owned());
        }
        let executed = self
            .remote
            .and_then(|remote| remote.execute((self.pid, &self.image), text));
        if let Some(socket) = executed {
            return Ok(Injected::without_stop(socket));
        }
        // Only the thread that traces may make requests, and the process goes on if that thread ends, whatever happened.
        std::thread::scope(|scope| {
            let traces = scope.spawn(|| inject::inject((self.pid, &self.image), &self.addresses, text));
            traces.join().unwrap_or_else(|_| Err("attaching failed".to_owned()))
        })
    }

    /// Takes back the memory that the text was in, once it has been executed. The main thread stops for a moment.
    ///
    /// # Errors
    /// A sentence: the memory stays, which is some kilobytes.
    pub fn take_back(&self, injected: &Injected) -> Result<(), String> {
        if injected.route == Route::Remote {
            return Ok(());
        }
        if let Some(at) = injected.thread_id_at() {
            self.wait_for_thread(at)?;
        }
        std::thread::scope(|scope| {
            let traces = scope.spawn(|| inject::take_back((self.pid, &self.image), &self.addresses, injected));
            traces.join().unwrap_or_else(|_| Err("cleaning up failed".to_owned()))
        })
    }

    /// Waits until the started thread, whose id is at an address, has ended. Its code is in the memory.
    fn wait_for_thread(&self, at: u64) -> Result<(), String> {
        let memory = File::open(format!("/proc/{}/mem", self.pid)).map_err(|error| error.to_string())?;
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until {
            let id = read_word(&memory, at).map_or(0, |word| word as u32);
            if id != 0 && !Path::new(&format!("/proc/{}/task/{id}", self.pid)).exists() {
                return Ok(());
            }
            std::thread::sleep(LOOK);
        }
        Err("the thread that was started has not ended".to_owned())
    }
}

fn file_name(file: &Mapped) -> &str {
    file.path.rsplit('/').next().unwrap_or_default()
}

pub(super) fn read_word(memory: &File, at: u64) -> Option<u64> {
    use std::os::unix::fs::FileExt;
    let mut word = [0; 8];
    memory.read_exact_at(&mut word, at).ok()?;
    Some(u64::from_le_bytes(word))
}
