//! Real mounts of clients (P-238, P-239), where root runs the tests and the kernel has FUSE.

use std::fs::{File, OpenOptions};
use std::io::ErrorKind::NotFound;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use fuse_wire::{BlockDevice, Unmount};
use stere_client::identities::Ids;
use stere_client::{LinkOptions, Mount};
use stere_fuse::MountOptions;

use crate::site::{POOL, Site, key_of, until};

/// A mount with its directory, which goes with it.
struct Mounted {
    mount: Option<Mount>,
    path: PathBuf,
}

impl Mounted {
    fn end(mut self) {
        let mount = self.mount.take().expect("mounted");
        mount.unmounter().unmount(Unmount::Normal).expect("nothing is open");
        mount.wait().expect("everything is durable");
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        drop(self.mount.take());
        drop(std::fs::remove_dir(&self.path));
    }
}

fn can_mount() -> bool {
    // SAFETY: takes nothing and cannot fail.
    let is_root = unsafe { libc::geteuid() } == 0;
    is_root && Path::new("/dev/fuse").exists()
}

fn mount(site: &Site, name: &str, machine: u8) -> Mounted {
    let path = std::env::temp_dir().join(format!("stere-far-{}-{name}-{machine}", std::process::id()));
    std::fs::create_dir(&path).expect("a directory of ours");
    let options =
        MountOptions { shared: true, sync_requests: BlockDevice::No, source: name.into(), ..MountOptions::default() };
    let (pool_name, key) = ("test".to_owned(), key_of(machine));
    let (users, groups) = (Ids::Same, Ids::Same);
    let now_ms = crate::site::now_ms;
    let own = LinkOptions { pool: POOL, pool_name, machine: [machine; 16], key, users, groups, now_ms };
    let mount = Mount::new(Box::new(site.finder()), own, (None, None), &path, &options.wire(true)).expect("it mounts");
    Mounted { mount: Some(mount), path }
}

#[test]
fn programs_on_two_machines_see_what_the_other_has_closed() {
    if !can_mount() {
        return;
    }
    let site = Site::new();
    let serving = site.serve();
    let (one, other) = (mount(&site, "two", 1), mount(&site, "two", 2));
    std::fs::create_dir(one.path.join("folder")).expect("made");
    for round in 0..20 {
        let text = format!("round {round}, {}", "x".repeat(round * 1000));
        std::fs::write(one.path.join("folder/file"), &text).expect("written");
        assert_eq!(std::fs::read_to_string(other.path.join("folder/file")).expect("read"), text);
        let text = text.to_uppercase();
        std::fs::write(other.path.join("folder/file"), &text).expect("written");
        assert_eq!(std::fs::read_to_string(one.path.join("folder/file")).expect("read"), text);
        assert_eq!(std::fs::metadata(one.path.join("folder/file")).expect("there").size(), text.len() as u64);
    }
    std::fs::rename(other.path.join("folder/file"), other.path.join("moved")).expect("renamed");
    assert!(!one.path.join("folder/file").exists() && one.path.join("moved").exists());
    std::fs::remove_file(one.path.join("moved")).expect("removed");
    assert!(File::open(other.path.join("moved")).is_err());
    one.end();
    other.end();
    site.hand_over(serving);
}

#[test]
fn the_owners_own_programs_and_those_of_others_see_the_same() {
    if !can_mount() {
        return;
    }
    let site = Site::new();
    let path = std::env::temp_dir().join(format!("stere-own-{}", std::process::id()));
    std::fs::create_dir(&path).expect("a directory of ours");
    let (mut owner, mut session) = site.serve_mounted(&path);
    let far = mount(&site, "own", 1);
    for round in 0..20 {
        let text = format!("round {round}");
        std::fs::write(path.join("file"), &text).expect("written");
        assert_eq!(std::fs::read_to_string(far.path.join("file")).expect("read"), text);
        std::fs::write(far.path.join("file"), text.to_uppercase()).expect("written");
        assert_eq!(std::fs::read_to_string(path.join("file")).expect("read"), text.to_uppercase());
        assert_eq!(std::fs::metadata(path.join("other")).map(drop).map_err(|error| error.kind()), Err(NotFound));
        std::fs::rename(far.path.join("file"), far.path.join("other")).expect("renamed");
        std::fs::rename(path.join("other"), path.join("file")).expect("renamed back");
    }
    // What another machine has written to a file of its own, and has open.
    for round in 0..20_u64 {
        let name = format!("gathered {round}");
        let file = File::create(far.path.join(&name)).expect("made");
        (0..50).for_each(|at| file.write_all_at(b"a line of it\n", at * 13).expect("written"));
        let seen = match round % 4 {
            0 => std::fs::metadata(path.join(&name)).expect("there").len(),
            1 => std::fs::read(path.join(&name)).expect("read").len() as u64,
            2 => {
                let listed = std::fs::read_dir(&path).expect("listed").flatten();
                let found = listed.filter(|entry| entry.file_name() == name.as_str());
                found.map(|entry| entry.metadata().expect("there").len()).sum()
            }
            _ => {
                std::fs::rename(path.join(&name), path.join("renamed")).expect("renamed");
                std::fs::copy(path.join("renamed"), path.join("copied")).expect("copied")
            }
        };
        assert_eq!(seen, 650, "round {round}");
    }
    // What is open is told of what changes.
    let open = File::open(path.join("file")).expect("opened");
    let read = |file: &File| {
        let mut bytes = [0; 5];
        file.read_exact_at(&mut bytes, 0).map(|()| bytes)
    };
    read(&open).expect("read");
    OpenOptions::new()
        .write(true)
        .open(far.path.join("file"))
        .and_then(|file| file.write_all_at(b"CHANGED", 0))
        .expect("written");
    until("the owner's kernel was told", || read(&open).expect("read") == *b"CHANG");
    // SAFETY: descriptors of open files.
    let flock = |file: &File, how| unsafe { libc::flock(file.as_raw_fd(), how) };
    assert_eq!(flock(&open, libc::LOCK_EX), 0);
    let of_far = File::open(far.path.join("file")).expect("opened");
    assert_eq!(flock(&of_far, libc::LOCK_EX | libc::LOCK_NB), -1);
    drop(open);
    until("the lock went with the file", || flock(&of_far, libc::LOCK_EX | libc::LOCK_NB) == 0);
    drop(of_far);
    far.end();
    session.before_end(Box::new(move || owner.end()));
    session.unmount(Unmount::Normal).expect("nothing is open");
    session.wait(|| true).expect("all is durable");
    std::fs::remove_dir(&path).expect("unmounted");
}

#[test]
fn lines_that_two_machines_append_are_all_there() {
    if !can_mount() {
        return;
    }
    let site = Site::new();
    let serving = site.serve();
    let mounts = [mount(&site, "append", 1), mount(&site, "append", 2)];
    std::fs::write(mounts[0].path.join("log"), "").expect("made");
    std::thread::scope(|scope| {
        for (mount, line) in mounts.iter().zip(["first\n", "other\n"]) {
            let path = mount.path.join("log");
            scope.spawn(move || {
                let mut file = OpenOptions::new().append(true).open(path).expect("opened");
                (0..200).for_each(|_| file.write_all(line.as_bytes()).expect("appended"));
            });
        }
    });
    for mount in &mounts {
        let text = std::fs::read_to_string(mount.path.join("log")).expect("read");
        let count = |line| text.lines().filter(|found| *found == line).count();
        assert_eq!((text.len(), count("first"), count("other")), (2400, 200, 200));
    }
    mounts.into_iter().for_each(Mounted::end);
    site.hand_over(serving);
}

#[test]
fn a_program_goes_on_when_the_owner_is_replaced() {
    if !can_mount() {
        return;
    }
    let site = Site::new();
    let mut serving = site.serve();
    let far = mount(&site, "owners", 1);
    let path = far.path.join("file");
    let mut file = OpenOptions::new().create_new(true).read(true).write(true).open(&path).expect("made");
    let mut expected = Vec::new();
    for round in 0..4_u8 {
        let part = vec![round + 1; 300_000];
        file.write_all(&part).expect("written");
        expected.extend_from_slice(&part);
        site.crash(serving);
        serving = site.serve();
    }
    let mut found = Vec::new();
    file.seek(SeekFrom::Start(0)).expect("there");
    file.read_to_end(&mut found).expect("read");
    assert!(found == expected, "{} bytes of {}", found.len(), expected.len());
    file.sync_all().expect("durable");
    file.write_all_at(b"the end", 0).expect("written");
    drop(file);
    assert_eq!(std::fs::read_dir(&far.path).expect("listed").count(), 1);
    far.end();
    site.crash(serving);
    let last = site.serve();
    let again = mount(&site, "owners", 2);
    let read = std::fs::read(again.path.join("file")).expect("read");
    assert!(read.starts_with(b"the end") && read.len() == expected.len());
    again.end();
    site.hand_over(last);
}

#[test]
fn locks_hold_on_the_other_machine() {
    if !can_mount() {
        return;
    }
    let site = Site::new();
    let serving = site.serve();
    let (one, other) = (mount(&site, "locks", 1), mount(&site, "locks", 2));
    let held = File::create(one.path.join("file")).expect("made");
    let wanted = File::open(other.path.join("file")).expect("opened");
    // SAFETY: descriptors of open files.
    let flock = |file: &File, how| unsafe { libc::flock(file.as_raw_fd(), how) };
    assert_eq!(flock(&held, libc::LOCK_EX), 0);
    assert_eq!(flock(&wanted, libc::LOCK_EX | libc::LOCK_NB), -1);
    let waits = std::thread::scope(|scope| {
        let waits = scope.spawn(|| flock(&wanted, libc::LOCK_EX));
        std::thread::sleep(Duration::from_millis(200));
        assert!(!waits.is_finished());
        drop(held);
        waits.join().expect("no panic")
    });
    assert_eq!(waits, 0);
    drop(wanted);
    one.end();
    other.end();
    site.hand_over(serving);
}

#[test]
fn a_mount_without_an_owner_can_be_ended() {
    if !can_mount() {
        return;
    }
    let site = Site::new();
    let far = mount(&site, "alone", 1);
    let path = far.path.join("file");
    let waits = std::thread::spawn(move || std::fs::metadata(path).map_err(|error| error.raw_os_error()));
    std::thread::sleep(Duration::from_millis(300));
    assert!(!waits.is_finished());
    let mut far = far;
    let mounted = far.mount.take().expect("mounted");
    mounted.unmounter().unmount(Unmount::Force).expect("by force");
    until("who waited is told", || waits.is_finished());
    assert!(waits.join().expect("no panic").is_err());
    drop(mounted.wait());
}
