//! User names by number.
//!
//! `/etc/passwd` is read first. It lacks the users of a directory service (LDAP, SSSD). The C library knows them, but
//! may wait for a server, so it is called on its own thread, and the user id is shown until it answers.
#![allow(unsafe_code)]

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::SystemTime;

use gpumem_text::clean_line;

use crate::Root;

/// Bounds: bytes read of `/etc/passwd`, names remembered, and characters of a name.
const MAX_PASSWD: u64 = 8 << 20;
const MAX_NAMES: usize = 4096;
const NAME_LENGTH: usize = 32;

/// Finds the names of users by user id, and remembers them.
pub struct Users {
    root: Root,
    names: HashMap<u32, String>,
    /// Modification time of `/etc/passwd` when `names` was last cleared.
    passwd: Option<SystemTime>,
    service: Option<Service>,
}

/// The thread that calls the C library.
struct Service {
    ask: Sender<u32>,
    answers: Receiver<(u32, String)>,
}

impl Default for Users {
    fn default() -> Self {
        Users::new(Root::default())
    }
}

impl Users {
    pub(super) fn new(root: Root) -> Self {
        Users {
            root,
            names: HashMap::new(),
            passwd: None,
            service: None,
        }
    }

    /// Returns the user's name, or the user id if there is no name (yet).
    pub fn name(&mut self, uid: u32) -> String {
        self.take_answers();
        if let Some(name) = self.names.get(&uid) {
            return name.clone();
        }
        self.forget_if_changed();
        let name = self.in_passwd(uid).unwrap_or_else(|| {
            self.ask_service(uid);
            uid.to_string()
        });
        self.names.insert(uid, name.clone());
        name
    }

    fn take_answers(&mut self) {
        if let Some(service) = &self.service {
            self.names.extend(service.answers.try_iter());
        }
    }

    fn forget_if_changed(&mut self) {
        let changed = std::fs::metadata(self.root.path("etc/passwd"))
            .and_then(|m| m.modified())
            .ok();
        if changed != self.passwd || self.names.len() >= MAX_NAMES {
            self.names.clear();
            self.passwd = changed;
        }
    }

    fn in_passwd(&self, uid: u32) -> Option<String> {
        let file = self.root.open("etc/passwd").ok()?;
        let mut lines = BufReader::new(file.take(MAX_PASSWD)).split(b'\n');
        lines.find_map(|line| {
            let line = line.ok()?;
            let mut fields = line.split(|&b| b == b':');
            let name = fields.next().filter(|n| !n.is_empty())?;
            let number = std::str::from_utf8(fields.nth(1)?).ok()?;
            (number.parse() == Ok(uid)).then(|| clean_line(name, NAME_LENGTH))
        })
    }

    fn ask_service(&mut self, uid: u32) {
        if !self.root.is_real() {
            return;
        }
        if self.service.is_none() {
            self.service = Service::start();
        }
        // If the thread has ended, the user id stays.
        if let Some(service) = &self.service
            && service.ask.send(uid).is_err()
        {
            self.service = None;
        }
    }
}

impl Service {
    fn start() -> Option<Self> {
        let (ask, asked) = channel::<u32>();
        let (tell, answers) = channel();
        let serve = move || {
            for uid in asked {
                if let Some(name) = directory_name(uid)
                    && tell.send((uid, name)).is_err()
                {
                    break;
                }
            }
        };
        std::thread::Builder::new()
            .name("gpumem-users".into())
            .spawn(serve)
            .ok()?;
        Some(Service { ask, answers })
    }
}

/// Asks the C library, which may query a server over the network.
fn directory_name(uid: u32) -> Option<String> {
    // 64 KiB hold the longest entry of a directory service (getpw_r(3) suggests 1 KiB).
    let mut buffer = vec![0 as libc::c_char; 64 << 10];
    let mut entry = std::mem::MaybeUninit::<libc::passwd>::uninit();
    let mut found = std::ptr::null_mut();
    // SAFETY: all pointers are valid for the call, and the buffer has the given length.
    let error = unsafe { libc::getpwuid_r(uid, entry.as_mut_ptr(), buffer.as_mut_ptr(), buffer.len(), &mut found) };
    if error != 0 || found.is_null() {
        return None;
    }
    // SAFETY: the call succeeded with a result, so the entry is filled, and its name is a string within `buffer`, which
    // is still alive.
    let name = unsafe { std::ffi::CStr::from_ptr((*found).pw_name) };
    Some(clean_line(name.to_bytes(), NAME_LENGTH)).filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn users(passwd: &[u8]) -> (tempfile::TempDir, Users) {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("etc")).unwrap();
        std::fs::write(dir.path().join("etc/passwd"), passwd).unwrap();
        let root = Root::at(dir.path());
        (dir, Users::new(root))
    }

    #[test]
    fn names_come_from_passwd_else_the_user_id_is_shown() {
        let (_dir, mut users) =
            users(b"root:x:0:0::/root:/bin/sh\nana:x:70001:1::/:/bin/false\nbad\n:x:5:\n\xff\xfe:x:6:6::/:\n");
        assert_eq!(users.name(0), "root");
        assert_eq!(users.name(70001), "ana");
        assert_eq!(users.name(5), "5");
        assert_eq!(users.name(6), "\u{fffd}\u{fffd}");
        assert_eq!(users.name(4_000_000_000), "4000000000");
    }

    #[test]
    fn control_characters_in_a_name_are_replaced() {
        let (_dir, mut users) = users(b"a\x1b[31m:x:7:7::/:\n");
        assert_eq!(users.name(7), "a\u{fffd}[31m");
    }

    #[test]
    fn new_user_gets_a_name() {
        let (dir, mut users) = users(b"root:x:0:0::/root:/bin/sh\n");
        assert_eq!(users.name(7), "7");
        std::fs::write(dir.path().join("etc/passwd"), b"new:x:7:7::/:\n").unwrap();
        let later = SystemTime::now() + std::time::Duration::from_secs(5);
        std::fs::File::options()
            .write(true)
            .open(dir.path().join("etc/passwd"))
            .unwrap()
            .set_modified(later)
            .unwrap();
        // A look-up of another unknown user makes it check the file again.
        users.name(8);
        assert_eq!(users.name(7), "new");
    }

    #[test]
    fn missing_passwd_shows_the_user_id() {
        let mut users = Users::new(Root::at("/nonexistent-root"));
        assert_eq!(users.name(3), "3");
    }

    #[test]
    fn c_library_knows_root_and_not_an_unused_id() {
        // Minimal images may have no users at all; then only the absence can be checked.
        if std::fs::read_to_string("/etc/passwd").is_ok_and(|text| text.starts_with("root:")) {
            assert_eq!(directory_name(0).as_deref(), Some("root"));
        }
        assert_eq!(directory_name(3_999_999_999), None);
    }
}
