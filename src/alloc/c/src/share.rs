//! Chunks for other processes. Who shares memory has a thread from then on that hands out the chunks which an allocation lies in, as
//! descriptors by a socket: to processes of its user that know the socket's random name, which is in the handle that they were given.
//!
//! The socket has no file: it goes with the process, and is in the network namespace. The thread does nothing until somebody asks. It answers
//! one after another, and who does not go on is not waited for as long as the next one waits.

use std::io::{self, IoSlice, IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use gpumem::{Allocator, Imported, Shared, Unsignalled};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
};

use crate::devices;
use crate::failure::Failure;

/// How long who asks waits for the next word.
const PATIENCE: Duration = Duration::from_secs(20);
/// And who answers.
const ANSWERING: Duration = Duration::from_secs(4);
/// Descriptors in a message, fewer than the kernel's 253: a process may have a thousand at the same time.
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

fn address(socket: &[u8; 16]) -> io::Result<SocketAddr> {
    let name: String = socket.iter().map(|byte| format!("{byte:02x}")).collect();
    SocketAddr::from_abstract_name(format!("gpumem-{name}"))
}

/// The name of this process's socket, once the thread is there that answers.
static SOCKET: Mutex<Option<[u8; 16]>> = Mutex::new(None);

/// What other processes find an allocation by that lies in chunks.
pub(crate) fn handle(device: u32, addr: u64, shared: &Shared) -> Result<Handle, Failure> {
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
    let listener = UnixListener::bind_addr(&address(&name)?)?;
    let _unsignalled = Unsignalled::begin();
    let thread = std::thread::Builder::new().name("gpumem-share".to_owned());
    thread.spawn(move || {
        loop {
            match listener.accept() {
                // Who does not listen any more wants nothing.
                Ok((asking, _)) => drop(serve(&asking)),
                // Out of descriptors, say.
                Err(_) => std::thread::sleep(Duration::from_millis(100)),
            }
        }
    })?;
    Ok(name)
}

fn patient(socket: &UnixStream, patience: Duration) -> io::Result<()> {
    socket.set_read_timeout(Some(patience))?;
    socket.set_write_timeout(Some(patience))
}

/// What a call comes to that a signal may interrupt: where there is a timeout none goes on by itself.
fn uninterrupted<T, E: Into<io::Error>>(mut call: impl FnMut() -> Result<T, E>) -> io::Result<T> {
    loop {
        match call().map_err(E::into) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}

/// Sends all of it, without a signal where nobody reads.
fn send(socket: &UnixStream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match uninterrupted(|| rustix::net::send(socket, bytes, SendFlags::NOSIGNAL))? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            sent => bytes = &bytes[sent..],
        }
    }
    Ok(())
}

/// Answers one question.
fn serve(asking: &UnixStream) -> io::Result<()> {
    patient(asking, ANSWERING)?;
    let user = rustix::net::sockopt::socket_peercred(asking)?.uid;
    if user != rustix::process::geteuid() {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    let mut question = [0; Handle::BYTES];
    (&mut &*asking).read_exact(&mut question)?;
    let shared = match find(&question) {
        Ok(shared) => shared,
        Err(why) => {
            let text = why.text.as_bytes();
            send(asking, &[&[1], &(text.len() as u32).to_le_bytes()[..], text].concat())?;
            return Ok(());
        }
    };
    let chunks = shared.chunks();
    let mut answer = vec![0];
    answer.extend((chunks.len() as u32).to_le_bytes());
    answer.extend(shared.offset().to_le_bytes());
    answer.extend(chunks.flat_map(u64::to_le_bytes));
    send(asking, &answer)?;
    let mut exported = Vec::new();
    for at in 0.. {
        let next = shared.export(at).transpose().map_err(io::Error::other)?;
        let ended = next.is_none();
        exported.extend(next);
        if exported.len() == AT_A_TIME || ended && !exported.is_empty() {
            send_descriptors(asking, &std::mem::take(&mut exported))?;
        }
        if ended {
            break;
        }
    }
    Ok(())
}

/// What is asked for, if it is still there.
fn find(question: &[u8]) -> Result<Shared, Failure> {
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

fn send_descriptors(socket: &UnixStream, descriptors: &[OwnedFd]) -> io::Result<()> {
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(AT_A_TIME))];
    let mut beside = SendAncillaryBuffer::new(&mut room);
    let descriptors: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
    beside.push(SendAncillaryMessage::ScmRights(&descriptors));
    // They go with a byte.
    let byte = [IoSlice::new(&[0])];
    let sent = uninterrupted(|| rustix::net::sendmsg(socket, &byte, &mut beside, SendFlags::NOSIGNAL))?;
    match sent {
        1 => Ok(()),
        _ => Err(io::ErrorKind::WriteZero.into()),
    }
}

fn receive_descriptors(socket: &UnixStream) -> io::Result<Vec<OwnedFd>> {
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(AT_A_TIME))];
    let mut beside = RecvAncillaryBuffer::new(&mut room);
    let mut byte = [0];
    let flags = RecvFlags::CMSG_CLOEXEC;
    uninterrupted(|| rustix::net::recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut beside, flags))?;
    let received = beside.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    });
    let received: Vec<OwnedFd> = received.flatten().collect();
    match received.is_empty() {
        true => Err(io::ErrorKind::UnexpectedEof.into()),
        false => Ok(received),
    }
}

/// What another process's allocation lies in, mapped here.
pub(crate) fn fetch(allocator: &Allocator, handle: &Handle) -> Result<Imported, Failure> {
    fetch_from(allocator, handle).map_err(|error| {
        let why = match error.kind() {
            io::ErrorKind::ConnectionRefused => {
                "the process that has it has ended, or is in another network namespace".to_owned()
            }
            io::ErrorKind::WouldBlock => format!("the process that has it did not answer within {PATIENCE:?}"),
            io::ErrorKind::UnexpectedEof => {
                "the process that has it ended the connection: is it another user's?".to_owned()
            }
            _ => error.to_string(),
        };
        Failure::misuse(format!("memory of another process cannot be had: {why}"))
    })
}

fn fetch_from(allocator: &Allocator, handle: &Handle) -> io::Result<Imported> {
    let odd = || io::Error::new(io::ErrorKind::InvalidData, "its answer makes no sense");
    let address = address(&handle.socket)?;
    let socket = uninterrupted(|| UnixStream::connect_addr(&address))?;
    patient(&socket, PATIENCE)?;
    send(&socket, &handle.to_bytes())?;
    let mut reader = &socket;
    let (mut status, mut count) = ([0], [0; 4]);
    reader.read_exact(&mut status)?;
    reader.read_exact(&mut count)?;
    let count = u32::from_le_bytes(count) as usize;
    if status != [0] {
        let mut text = vec![0; count.min(1 << 12)];
        reader.read_exact(&mut text)?;
        return Err(io::Error::other(String::from_utf8_lossy(&text).into_owned()));
    }
    if !(1..=MOST_CHUNKS).contains(&count) {
        return Err(odd());
    }
    let mut words = vec![0; 8 * (count + 1)];
    reader.read_exact(&mut words)?;
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
        for chunk in receive_descriptors(&socket)? {
            let size = sizes.next().ok_or_else(odd)?;
            imported.add(chunk, size).map_err(io::Error::other)?;
        }
    }
    imported.open().map_err(io::Error::other)?;
    Ok(imported)
}
