//! Chunks for other processes. Who shares memory has a thread from then on that hands out the chunks which an allocation lies in, as
//! descriptors by a socket whose name is in the handle that they were given: to processes of its user, which take none of another's.
//!
//! The socket has no file: it goes with the process and its forked children, and is in the network namespace. The thread does nothing until
//! somebody asks. It answers one after another, and who does not go on is not waited for as long as the next one waits.

use std::io::{self, IoSlice, IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use gpumem::{Allocator, Imported, SharedMemory, Unsignalled};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};
use rustix::process::Pid;

use crate::devices;
use crate::failure::Failure;

/// How long who asks waits for all of the answer.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long who answers waits for the question, and how long the answer may take.
const QUESTION: Duration = Duration::from_secs(1);
const ANSWER: Duration = Duration::from_secs(8);
/// What an answer goes on with, and what the reason follows why it does not.
const GOES_ON: u8 = 0;
const REFUSED: u8 = 1;
/// Descriptors in a message, fewer than the kernel's 253: a process may have a thousand open, and a user as many under way.
const AT_A_TIME: usize = 64;
/// Chunks of an allocation. More are no honest answer.
const MOST_CHUNKS: usize = 1 << 20;
/// Bytes of an allocation, as an address has no more bits.
const MOST_BYTES: u64 = 1 << 48;

/// Where an allocation is, for other processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Handle {
    /// Of whom to ask.
    socket: [u8; 16],
    pub(crate) device: u32,
    addr: u64,
    bytes: u64,
}

impl Handle {
    pub(crate) const BYTES: usize = 36;

    pub(crate) fn to_bytes(self) -> [u8; Handle::BYTES] {
        let mut bytes = [0; Handle::BYTES];
        bytes[..16].copy_from_slice(&self.socket);
        bytes[16..20].copy_from_slice(&self.device.to_le_bytes());
        bytes[20..28].copy_from_slice(&self.addr.to_le_bytes());
        bytes[28..].copy_from_slice(&self.bytes.to_le_bytes());
        bytes
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Handle> {
        let bytes: &[u8; Handle::BYTES] = bytes.try_into().ok()?;
        Some(Handle {
            socket: *bytes.first_chunk()?,
            device: u32::from_le_bytes(*bytes[16..].first_chunk()?),
            addr: u64::from_le_bytes(*bytes[20..].first_chunk()?),
            bytes: u64::from_le_bytes(*bytes[28..].first_chunk()?),
        })
    }
}

/// The socket's name in the abstract namespace.
fn abstract_name(socket: &[u8; 16]) -> String {
    let name: String = socket.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("gpumem-{name}")
}

/// The name of this process's socket, once the thread is there that answers.
static SOCKET: Mutex<Option<[u8; 16]>> = Mutex::new(None);

/// What other processes find an allocation by that lies in chunks.
pub(crate) fn handle(device: u32, addr: u64, shared: &SharedMemory) -> Result<Handle, Failure> {
    devices::not_forked()?;
    // Where none can be had, the other process could not say why.
    if let Some(first) = shared.export(0) {
        drop(first.map_err(gpumem::Error::from)?);
    }
    let mut socket = SOCKET.lock().unwrap_or_else(PoisonError::into_inner);
    let name = match *socket {
        Some(name) => name,
        None => *socket.insert(answer().map_err(|error| {
            Failure::misuse(format!("no process can be told of memory that it is to have: {error}"))
        })?),
    };
    Ok(Handle {
        socket: name,
        device,
        addr,
        bytes: shared.bytes(),
    })
}

/// Begins to answer. The name of the socket.
fn answer() -> io::Result<[u8; 16]> {
    let mut name = [0; 16];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut name)?;
    let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(abstract_name(&name))?)?;
    let _unsignalled = Unsignalled::begin();
    let thread = std::thread::Builder::new().name("gpumem-share".to_owned());
    thread.spawn(move || {
        loop {
            match listener.accept() {
                // Who does not listen any more wants nothing. A panic has said what it is, and the next one is answered.
                Ok((asking, _)) => drop(std::panic::catch_unwind(|| serve(asking))),
                // Out of descriptors, say.
                Err(_) => std::thread::sleep(Duration::from_millis(100)),
            }
        }
    })?;
    Ok(name)
}

/// One conversation, which is over at a certain time.
struct Talk {
    socket: UnixStream,
    until: Instant,
}

impl Talk {
    /// With a process of this user.
    fn begin(socket: UnixStream, patience: Duration) -> io::Result<Talk> {
        if peer(&socket)?.uid != rustix::process::geteuid().as_raw() {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let until = Instant::now() + patience;
        Ok(Talk { socket, until })
    }

    /// What a call on the socket comes to that a signal may interrupt: where there is a timeout none goes on by itself.
    fn wait<T, E: Into<io::Error>>(&self, mut call: impl FnMut(&UnixStream) -> Result<T, E>) -> io::Result<T> {
        loop {
            let left = self.until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            self.socket.set_read_timeout(Some(left))?;
            self.socket.set_write_timeout(Some(left))?;
            match call(&self.socket).map_err(E::into) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(io::ErrorKind::TimedOut.into()),
                done => return done,
            }
        }
    }

    /// Sends all of it, without a signal where nobody reads.
    fn send(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.wait(|socket| rustix::net::send(socket, bytes, SendFlags::NOSIGNAL))? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                sent => bytes = &bytes[sent..],
            }
        }
        Ok(())
    }

    fn receive(&self, mut bytes: &mut [u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.wait(|mut socket| socket.read(bytes))? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                read => bytes = &mut bytes[read..],
            }
        }
        Ok(())
    }

    fn receive_number(&self) -> io::Result<usize> {
        let mut number = [0; 4];
        self.receive(&mut number)?;
        Ok(u32::from_le_bytes(number) as usize)
    }

    /// Why there is no answer, after what says that there is none.
    fn refuse(&self, why: &str) -> io::Result<()> {
        self.send(&[&[REFUSED], &(why.len() as u32).to_le_bytes()[..], why.as_bytes()].concat())
    }

    fn refused<T>(&self) -> io::Result<T> {
        let mut text = vec![0; self.receive_number()?.min(1 << 12)];
        self.receive(&mut text)?;
        Err(io::Error::other(String::from_utf8_lossy(&text).into_owned()))
    }

    fn send_descriptors(&self, descriptors: &[OwnedFd]) -> io::Result<()> {
        let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(AT_A_TIME))];
        let mut beside = SendAncillaryBuffer::new(&mut room);
        let descriptors: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
        beside.push(SendAncillaryMessage::ScmRights(&descriptors));
        // They go with a byte.
        let byte = [IoSlice::new(&[GOES_ON])];
        let sent = self.wait(|socket| rustix::net::sendmsg(socket, &byte, &mut beside, SendFlags::NOSIGNAL))?;
        match sent {
            1 => Ok(()),
            _ => Err(io::ErrorKind::WriteZero.into()),
        }
    }

    fn receive_descriptors(&self) -> io::Result<Vec<OwnedFd>> {
        let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(AT_A_TIME))];
        let mut beside = RecvAncillaryBuffer::new(&mut room);
        let mut byte = [0];
        let flags = RecvFlags::CMSG_CLOEXEC;
        let message =
            self.wait(|socket| rustix::net::recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut beside, flags))?;
        let received = beside.drain().filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
            _ => None,
        });
        let received: Vec<OwnedFd> = received.flatten().collect();
        if message.bytes == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if byte == [REFUSED] {
            return self.refused();
        }
        if message.flags.contains(ReturnFlags::CTRUNC) || received.is_empty() {
            return Err(io::Error::other("this process may have no more open files (ulimit -n)"));
        }
        Ok(received)
    }
}

/// Answers one question.
fn serve(asking: UnixStream) -> io::Result<()> {
    let mut talk = Talk::begin(asking, QUESTION)?;
    let mut question = [0; Handle::BYTES];
    talk.receive(&mut question)?;
    talk.until = Instant::now() + ANSWER;
    let shared = match find(&question) {
        Ok(shared) => shared,
        Err(why) => return talk.refuse(&why.text),
    };
    let chunks = shared.chunks();
    let mut answer = vec![GOES_ON];
    answer.extend((chunks.len() as u32).to_le_bytes());
    answer.extend(shared.offset().to_le_bytes());
    answer.extend(chunks.flat_map(u64::to_le_bytes));
    talk.send(&answer)?;
    let mut at = 0;
    while at < shared.chunks().len() {
        let some = (at..).take(AT_A_TIME).map_while(|at| shared.export(at));
        match some.collect::<Result<Vec<OwnedFd>, _>>() {
            Ok(exported) => {
                talk.send_descriptors(&exported)?;
                at += exported.len();
            }
            Err(error) => return talk.refuse(&error.to_string()),
        }
        // So that few are under way: a user may have as many of these as a process may have open files.
        talk.receive(&mut [0])?;
    }
    // What was exported is what is there only if that was so all the time.
    match find(&question) {
        Ok(now) if now.is_same(&shared) => talk.send(&[GOES_ON]),
        Ok(_) => talk.refuse("the memory was given back meanwhile"),
        Err(why) => talk.refuse(&why.text),
    }
}

/// What is asked for, if it is still there.
fn find(question: &[u8]) -> Result<SharedMemory, Failure> {
    let gone = || Failure::misuse("the memory was given back before it was asked for");
    let handle = Handle::from_bytes(question).ok_or_else(gone)?;
    let device = i32::try_from(handle.device).map_err(|_| gone())?;
    let allocator = devices::place(device)?.allocator().ok_or_else(gone)?;
    let shared = allocator.share_raw(handle.addr).map_err(|_| gone())?;
    match shared.bytes() == handle.bytes && shared.chunks().len() > 0 {
        true => Ok(shared),
        false => Err(gone()),
    }
}

/// What another process's allocation lies in, mapped here.
pub(crate) fn fetch(allocator: &Allocator, handle: &Handle) -> Result<Imported, Failure> {
    fetch_from(allocator, handle).map_err(|error| {
        let why = match error.kind() {
            io::ErrorKind::ConnectionRefused => {
                "the process that has it has ended, or is in another network namespace".to_owned()
            }
            io::ErrorKind::TimedOut => format!("the process that has it did not answer within {PATIENCE:?}"),
            io::ErrorKind::PermissionDenied => "the process that answers is another user's".to_owned(),
            io::ErrorKind::UnexpectedEof => {
                "the process that has it ended the connection: is it another user's?".to_owned()
            }
            _ => error.to_string(),
        };
        Failure::misuse(format!("memory of another process cannot be had: {why}"))
    })
}

/// Connects to a process, unless so many wait for it that it would take long.
fn connect(to: &str) -> io::Result<UnixStream> {
    let until = Instant::now() + PATIENCE;
    let socket = UnixStream::from(rustix::net::socket_with(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
        None,
    )?);
    let to = SocketAddrUnix::new_abstract_name(to.as_bytes())?;
    loop {
        match rustix::net::connect(&socket, &to) {
            Ok(()) => break,
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) if Instant::now() < until => std::thread::sleep(Duration::from_millis(20)),
            Err(Errno::AGAIN) => return Err(io::ErrorKind::TimedOut.into()),
            Err(error) => return Err(error.into()),
        }
    }
    if is_left(&socket) {
        return Err(io::ErrorKind::ConnectionRefused.into());
    }
    socket.set_nonblocking(false)?;
    Ok(socket)
}

/// Whether the process is gone that listens, and only children that it forked have its socket yet: nobody answers there.
fn is_left(socket: &UnixStream) -> bool {
    let listens = peer(socket).ok().and_then(|it| Pid::from_raw(it.pid));
    listens.is_some_and(|pid| rustix::process::test_kill_process(pid) == Err(Errno::SRCH))
}

/// Who is, or listens, at the other end. Its number is 0 where it is in another namespace of numbers, which is none for [`Pid`].
fn peer(socket: &UnixStream) -> io::Result<libc::ucred> {
    let mut found = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut bytes = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the option fills in as much as there is room for.
    let failed = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut found).cast(),
            &raw mut bytes,
        )
    };
    match failed {
        0 => Ok(found),
        _ => Err(io::Error::last_os_error()),
    }
}

fn fetch_from(allocator: &Allocator, handle: &Handle) -> io::Result<Imported> {
    let odd = || io::Error::new(io::ErrorKind::InvalidData, "its answer makes no sense");
    let talk = Talk::begin(connect(&abstract_name(&handle.socket))?, PATIENCE)?;
    talk.send(&handle.to_bytes())?;
    let mut status = [0];
    talk.receive(&mut status)?;
    if status == [REFUSED] {
        return talk.refused();
    }
    let count = talk.receive_number()?;
    if !(1..=MOST_CHUNKS).contains(&count) {
        return Err(odd());
    }
    let mut words = vec![0; 8 * (count + 1)];
    talk.receive(&mut words)?;
    let mut words = words.chunks_exact(8).map(|word| {
        let word: Option<&[u8; 8]> = word.first_chunk();
        word.map_or(0, |word| u64::from_le_bytes(*word))
    });
    let offset = words.next().unwrap_or_default();
    let sizes: Vec<u64> = words.collect();
    let unit = allocator.device().info().granularity;
    let whole = sizes.iter().all(|size| *size > 0 && size.is_multiple_of(unit));
    let total = sizes.iter().try_fold(0, |sum: u64, size| sum.checked_add(*size));
    let total = total.filter(|total| whole && *total <= MOST_BYTES).ok_or_else(odd)?;
    if offset.checked_add(handle.bytes).is_none_or(|end| end > total) {
        return Err(odd());
    }
    let mut imported = allocator.import(total).map_err(io::Error::other)?;
    let mut sizes = sizes.into_iter();
    while sizes.len() > 0 {
        for chunk in talk.receive_descriptors()? {
            let size = sizes.next().ok_or_else(odd)?;
            imported.add(chunk, size).map_err(io::Error::other)?;
        }
        talk.send(&[GOES_ON])?;
    }
    talk.receive(&mut status)?;
    if status == [REFUSED] {
        return talk.refused();
    }
    imported.open().map_err(io::Error::other)?;
    Ok(imported)
}
