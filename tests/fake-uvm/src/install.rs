//! Installs the fake driver into a folder.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::device::{TOOLS, UVM};
use crate::{scenario, tracker};

const FILE: &str = "libgpumem_fake_uvm_preload.so";
/// Path of the file with the driver's version, below the folder.
pub(crate) const VERSION: &str = "proc/driver/nvidia/version";
const PARAMETERS: &str = "sys/module/nvidia_uvm/parameters";
/// Size of the device's sparse file in bytes. Every address at which a process maps it is an offset in it.
const DEVICE_BYTES: u64 = 1 << 47;

/// UUIDs of the GPUs that are registered in each address space.
pub(crate) const GPUS: [[u8; 16]; 2] = [*b"fake-uvm-gpu-one", *b"fake-uvm-gpu-two"];

/// Makes a new folder in memory. The device is a file as long as the address space, which file systems on disks do not allow.
///
/// # Errors
/// Those of making it.
pub fn folder() -> io::Result<PathBuf> {
    static FOLDERS: AtomicU32 = AtomicU32::new(0);
    let number = FOLDERS.fetch_add(1, Ordering::Relaxed);
    let path = PathBuf::from(format!("/dev/shm/gpumem-fake-uvm-{}-{number}", std::process::id()));
    let _ = fs::remove_dir_all(&path);
    fs::create_dir(&path)?;
    Ok(path)
}

/// The fake driver in a folder that stands for `/`.
#[derive(Clone, Debug)]
pub struct FakeUvm {
    root: PathBuf,
}

impl FakeUvm {
    /// Installs a driver of this version into a folder. Its module's parameters are those of a machine with an H200.
    ///
    /// # Errors
    /// Those of writing the files.
    pub fn install(root: &Path, version: &str) -> io::Result<FakeUvm> {
        let fake = FakeUvm { root: root.to_owned() };
        let parameters = root.join(PARAMETERS);
        fs::create_dir_all(root.join("dev"))?;
        fs::create_dir_all(&parameters)?;
        fs::create_dir_all(root.join("proc/driver/nvidia"))?;
        File::create(root.join(UVM))?.set_len(DEVICE_BYTES)?;
        File::create(root.join(TOOLS))?;
        for line in include_str!("../fixtures/parameters.txt").lines() {
            if let Some((name, value)) = line.split_once(':') {
                fs::write(parameters.join(name), format!("{value}\n"))?;
            }
        }
        fake.set_version(version)?;
        Ok(fake)
    }

    /// Changes the driver's version.
    ///
    /// # Errors
    /// Those of writing a file.
    pub fn set_version(&self, version: &str) -> io::Result<()> {
        let text = include_str!("../fixtures/version.txt").replace("580.159.04", version);
        fs::write(self.root.join(VERSION), text)
    }

    /// Sets the scenario of trackers that are made from now on.
    ///
    /// # Errors
    /// If the scenario does not parse, or cannot be written.
    pub fn play(&self, text: &str) -> io::Result<()> {
        scenario::Scenario::parse(text).map_err(|line| io::Error::other(format!("not understood: {line}")))?;
        let path = scenario::path(&self.root);
        let fresh = path.with_extension("new");
        fs::write(&fresh, text)?;
        fs::rename(&fresh, path)
    }

    /// Returns the folder that stands for `/`.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the path of the device on which trackers are made.
    pub fn tools(&self) -> PathBuf {
        self.root.join(TOOLS)
    }

    /// Returns the path of the shared object. A test's executable is in `<target>/<profile>/deps`, and so is every library that was built
    /// as its dependency. A program in `<target>/<profile>` finds it one folder down.
    ///
    /// # Errors
    /// If neither folder has it: the calling crate does not have `gpumem-fake-uvm-preload` as a (dev-)dependency.
    pub fn library() -> io::Result<PathBuf> {
        let program = std::env::current_exe()?;
        let folder = program.parent().unwrap_or(Path::new("."));
        let places = [
            folder.join(FILE),
            folder.join("deps").join(FILE),
            folder.join("../deps").join(FILE),
        ];
        let found = places.into_iter().find(|place| place.is_file());
        found.ok_or_else(|| io::Error::other(format!("{FILE} is not beside {}", program.display())))
    }

    /// Counts the open trackers of all processes.
    ///
    /// # Errors
    /// Those of reading the state of the tools device.
    pub fn open_trackers(&self) -> io::Result<usize> {
        tracker::count_open(&self.root)
    }

    /// Returns the requests that the driver got so far.
    ///
    /// # Errors
    /// If the record cannot be read.
    pub fn requests(&self) -> io::Result<Vec<Request>> {
        match fs::read_to_string(requests_file(&self.root)) {
            Ok(text) => Ok(text.lines().filter_map(Request::of_line).collect()),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(e) => Err(e),
        }
    }
}

pub(crate) fn requests_file(root: &Path) -> PathBuf {
    root.join(format!("{TOOLS}.requests"))
}

/// A recorded request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The process that sent it.
    pub pid: u32,
    /// Whether it was sent on the tools device.
    pub tools: bool,
    /// Its number.
    pub number: u32,
    /// Its argument before the driver answered, with the length of this driver series. Empty for an unknown request.
    pub argument: Vec<u8>,
}

impl Request {
    pub(crate) fn to_line(&self) -> String {
        let hex: String = self.argument.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{} {} {} {hex}\n", self.pid, self.tools, self.number)
    }

    fn of_line(line: &str) -> Option<Request> {
        let mut words = line.split(' ');
        let mut next = || words.next();
        Some(Request {
            pid: next()?.parse().ok()?,
            tools: next()? == "true",
            number: next()?.parse().ok()?,
            argument: next()?
                .as_bytes()
                .chunks(2)
                .filter_map(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok())
                .collect(),
        })
    }
}
