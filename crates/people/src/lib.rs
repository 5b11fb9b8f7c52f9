//! Users and groups by name, as this machine's user database knows them (whatever `nsswitch.conf` says).
//!
//! Rules name people; the core knows numbers alone. A name that was found means the same number until the mount ends, so that
//! rules are read anew without asking again; one that was not found is asked for each time.

pub mod processes;

use std::collections::HashMap;
use std::ffi::{CStr, CString};
use std::sync::{Arc, Mutex, PoisonError};

use stere_policy::People;

/// Room for what the database says of one user or group; a group has all its members in it.
const ANSWER_BYTES: usize = 1 << 20;

/// The user database of this machine.
#[derive(Debug, Default)]
pub struct System {
    known: Mutex<HashMap<(bool, String), u32>>,
}

/// For a mount.
pub fn system() -> Option<Arc<dyn People>> {
    Some(Arc::new(System::default()))
}

impl System {
    fn find(&self, is_group: bool, name: &str) -> Option<u32> {
        let of = (is_group, name.to_owned());
        let known = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(number) = known().get(&of) {
            return Some(*number);
        }
        let number = if is_group { group(name) } else { user(name) }?;
        known().insert(of, number);
        Some(number)
    }
}

impl People for System {
    fn user(&self, name: &str) -> Option<u32> {
        self.find(false, name)
    }

    fn group(&self, name: &str) -> Option<u32> {
        self.find(true, name)
    }
}

/// What a user or group is called here, or the number.
pub fn name(is_group: bool, number: u32) -> String {
    let mut room = vec![0; ANSWER_BYTES];
    let room_bytes = room.len();
    let found = if is_group {
        // SAFETY: all zeros is a valid group: numbers and null pointers.
        let mut entry: libc::group = unsafe { std::mem::zeroed() };
        let mut found = std::ptr::null_mut();
        // SAFETY: all pointers are to what lives until the call returns, and `room` is as long as it is said to be.
        unsafe { libc::getgrgid_r(number, &mut entry, room.as_mut_ptr(), room_bytes, &mut found) };
        (!found.is_null()).then_some(entry.gr_name)
    } else {
        // SAFETY: all zeros is a valid passwd: numbers and null pointers.
        let mut entry: libc::passwd = unsafe { std::mem::zeroed() };
        let mut found = std::ptr::null_mut();
        // SAFETY: all pointers are to what lives until the call returns, and `room` is as long as it is said to be.
        unsafe { libc::getpwuid_r(number, &mut entry, room.as_mut_ptr(), room_bytes, &mut found) };
        (!found.is_null()).then_some(entry.pw_name)
    };
    // SAFETY: the name of an entry that was found is a string in `room`, which is still there.
    let name = found.map(|name| unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned());
    name.unwrap_or_else(|| number.to_string())
}

/// The number of a user or group of this name here.
pub fn number(is_group: bool, name: &str) -> Option<u32> {
    if is_group { group(name) } else { user(name) }
}

/// All users or groups that this machine's database lists, at most so many. A directory service may list fewer than it finds by name.
pub fn all(is_group: bool, max: usize) -> Vec<(String, u32)> {
    /// The database has one place where its list is read.
    static READING: Mutex<()> = Mutex::new(());
    let _reading = READING.lock().unwrap_or_else(PoisonError::into_inner);
    let mut found = Vec::new();
    // SAFETY: nobody else reads the list meanwhile.
    unsafe { if is_group { libc::setgrent() } else { libc::setpwent() } };
    while found.len() < max {
        // SAFETY: as above; an entry, and its name, live until the next one is read.
        let next = unsafe {
            match is_group {
                true => libc::getgrent().as_ref().map(|entry| (entry.gr_name, entry.gr_gid)),
                false => libc::getpwent().as_ref().map(|entry| (entry.pw_name, entry.pw_uid)),
            }
        };
        let Some((name, number)) = next else { break };
        // SAFETY: the name of an entry is a string.
        found.push((unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned(), number));
    }
    // SAFETY: as above.
    unsafe { if is_group { libc::endgrent() } else { libc::endpwent() } };
    found
}

fn user(name: &str) -> Option<u32> {
    let name = CString::new(name).ok()?;
    let mut room = vec![0; ANSWER_BYTES];
    // SAFETY: all zeros is a valid passwd: numbers and null pointers.
    let mut entry: libc::passwd = unsafe { std::mem::zeroed() };
    let mut found = std::ptr::null_mut();
    // SAFETY: all pointers are to what lives until the call returns, and `room` is as long as it is said to be.
    let code = unsafe { libc::getpwnam_r(name.as_ptr(), &mut entry, room.as_mut_ptr(), room.len(), &mut found) };
    (code == 0 && !found.is_null()).then_some(entry.pw_uid)
}

fn group(name: &str) -> Option<u32> {
    let name = CString::new(name).ok()?;
    let mut room = vec![0; ANSWER_BYTES];
    // SAFETY: all zeros is a valid group: numbers and null pointers.
    let mut entry: libc::group = unsafe { std::mem::zeroed() };
    let mut found = std::ptr::null_mut();
    // SAFETY: all pointers are to what lives until the call returns, and `room` is as long as it is said to be.
    let code = unsafe { libc::getgrnam_r(name.as_ptr(), &mut entry, room.as_mut_ptr(), room.len(), &mut found) };
    (code == 0 && !found.is_null()).then_some(entry.gr_gid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_knows_root_and_not_everybody() {
        let system = System::default();
        assert_eq!((system.user("root"), system.group("root")), (Some(0), Some(0)));
        assert_eq!((system.user("root"), system.user("no such user")), (Some(0), None));
        assert_eq!(
            (name(false, 0), name(true, 0), name(false, 4_000_000_001)),
            ("root".into(), "root".into(), "4000000001".into())
        );
        assert_eq!((system.group("no such group"), system.user("a\0b")), (None, None));
        for is_group in [false, true] {
            let all = all(is_group, 10_000);
            assert!(all.contains(&("root".into(), 0)));
            assert!(all.iter().all(|(name, _)| number(is_group, name).is_some()), "what is listed is found");
            assert_eq!(super::all(is_group, 1).len(), 1);
        }
    }
}
