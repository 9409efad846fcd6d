//! Opens a channel: the whole layout is checked before anything in the file is trusted.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use super::Reader;
use super::rings::Ring;
use crate::error::OpenError;
use crate::format::{IDENTITY, IDENTITY_WORDS};
use crate::found::{Access, Found};
use crate::identity;
use crate::layout::Layout;
use crate::map::Map;
use crate::replica::Replica;
use crate::snapshot::Life;
use crate::source::Source;

impl Found {
    /// Opens the channel if it is still the file that was found. This user's files in this user's directories are
    /// mapped; any other file is read with `pread`.
    ///
    /// # Errors
    /// See [`OpenError`]. Nothing in the file is trusted before it is checked.
    pub fn open(&self) -> Result<Reader, OpenError> {
        Reader::of_file(self.file()?, self.access)
    }
}

impl Reader {
    /// Opens a channel file whose path the caller trusts: it is mapped if it belongs to this user. As root, the files
    /// of other users are read with `pread`. Files that were [found](crate::discover()) are opened with
    /// [`Found::open`].
    ///
    /// # Errors
    /// See [`OpenError`]. Nothing in the file is trusted before it is checked.
    pub fn open(path: &Path) -> Result<Reader, OpenError> {
        Found::named(path)?.open()
    }

    /// Reads a channel from a file that is already open.
    pub(crate) fn of_file(file: File, access: Access) -> Result<Reader, OpenError> {
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(OpenError::NotAChannel);
        }
        let us = rustix::process::geteuid();
        if metadata.uid() != us.as_raw() && !us.is_root() {
            return Err(OpenError::NotYours { uid: metadata.uid() });
        }
        // One descriptor for both ways of reading: a program may have 1,024 descriptors, and a machine hundreds of
        // channels.
        let file = Arc::new(file);
        let by_pread = Source::by_pread(file.clone());
        let read = |start: usize, out: &mut [u64]| by_pread.copy(start, out).map_err(|_| OpenError::NotAChannel);
        let mut head = [0; IDENTITY];
        read(0, &mut head)?;
        let layout = Layout::check(&head, metadata.len(), read)?;
        // A publisher allocates all of its file's memory at creation. A file with holes would cost its owner nothing,
        // but cost this reader as much memory as it claims to hold; there could be thousands of such files.
        if metadata.blocks().saturating_mul(512) < layout.bytes() {
            return Err(OpenError::Malformed("parts of it were never written"));
        }
        let mut who = [0; IDENTITY_WORDS];
        read(IDENTITY, &mut who)?;
        let source = match access {
            Access::Own if metadata.uid() == us.as_raw() => Source::Mapped(Map::read_only(&file, layout.len)?),
            Access::Own | Access::Foreign => Source::by_pread(file.clone()),
        };
        let identity = identity::unpack(&who, metadata.uid());
        Ok(Reader {
            same_boot: identity::may_be_of_this_boot(&identity),
            identity: Arc::new(identity),
            file,
            source,
            copied: by_pread,
            layout,
            life: Life::Alive,
            replica: Replica::default(),
            devices: Vec::new(),
            figures: Vec::new(),
            of_one_moment: false,
            doubts: Vec::new(),
            devices_most: usize::MAX,
            rings: vec![Ring::of_publisher(&layout)],
            lanes: Vec::new(),
            strings: Arc::new([Arc::from("")]),
            shown: Vec::new(),
            unsorted: true,
            malformed: 0,
            events_lost: 0,
            copy: Vec::new(),
        })
    }
}
