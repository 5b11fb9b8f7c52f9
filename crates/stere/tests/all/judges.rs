//! A file's plugins are asked whatever call changes or reads it (P-171), with the real binary: every kind of call against every kind of
//! event that a plugin can deny, through the mount and through the library. Needs root and /dev/fuse, and says loudly when it skips.

use crate::support;

use std::fs::{self, File};
use std::io::{Error, Result};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use stere::Options;
use support::{World, can_mount};

const LENGTH: usize = 300_000;
const EVENTS: [&str; 7] = ["create", "open", "read", "write", "close", "rename", "delete"];

/// A plugin that denies the event of this number, and hears of no other.
fn denying(event: usize) -> String {
    let events = 1 << event;
    format!(
        r#"(module (memory (export "memory") 2) (global $top (mut i32) (i32.const 1024))
        (data (i32.const 16) "\01never")
        (func (export "stere_abi") (result i32) (i32.const 1))
        (func (export "stere_allocate") (param $bytes i32) (result i32) (local $at i32)
          (local.set $at (global.get $top))
          (global.set $top (i32.add (global.get $top) (local.get $bytes)))
          (local.get $at))
        (func (export "stere_events") (result i32) (i32.const {events}))
        (func (export "stere_event") (param i32 i32 i32 i32) (result i64) (i64.const 0x0000_0010_0000_0006)))"#
    )
}

fn content() -> Vec<u8> {
    (0..LENGTH).map(|at| (at / 4096 * 31 + at) as u8).collect()
}

/// The file that a call is about, which was opened before anybody was asked, and a place outside.
struct Subject<'a> {
    path: &'a Path,
    file: &'a File,
    outside: &'a Path,
}

impl Subject<'_> {
    /// A path beside it.
    fn beside(&self, name: &str) -> std::path::PathBuf {
        let own = self.path.file_name().unwrap().to_string_lossy();
        self.path.with_file_name(format!("{own}-{name}"))
    }

    /// The kernel has nothing of its content in memory.
    fn forget(&self) {
        // SAFETY: a plain system call on a file that is open.
        unsafe { libc::posix_fadvise(self.file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
    }
}

fn done(outcome: i64) -> Result<()> {
    if outcome < 0 { Err(Error::last_os_error()) } else { Ok(()) }
}

fn allocate(subject: &Subject<'_>, mode: i32) -> Result<()> {
    // SAFETY: a plain system call on a file that is open.
    done(unsafe { libc::fallocate(subject.file.as_raw_fd(), mode, 8192, LENGTH as i64) }.into())
}

fn copy(from: &File, to: &File) -> Result<()> {
    let (mut start, mut end) = (0, 131_072);
    // SAFETY: files that are open, and two live variables.
    done(unsafe { libc::copy_file_range(from.as_raw_fd(), &mut start, to.as_raw_fd(), &mut end, 65_536, 0) } as i64)
}

fn store_through_mapping(subject: &Subject<'_>) -> Result<()> {
    let (read_write, shared) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
    // SAFETY: a mapping of our own of a file that is longer, unmapped before anybody else knows of it.
    unsafe {
        let at = libc::mmap(std::ptr::null_mut(), 4096, read_write, shared, subject.file.as_raw_fd(), 0);
        assert_ne!(at, libc::MAP_FAILED);
        at.cast::<u8>().write_volatile(b'!');
        let outcome = done(libc::msync(at, 4096, libc::MS_SYNC).into());
        libc::munmap(at, 4096);
        outcome
    }
}

fn library(subject: &Subject<'_>) -> std::result::Result<stere::File, stere::Error> {
    stere::File::from_file(subject.file.try_clone().unwrap())
}

fn of_library<T>(outcome: std::result::Result<T, stere::Error>) -> Result<()> {
    outcome.map(drop).map_err(|error| Error::from_raw_os_error(error.errno()))
}

fn c_path(path: &Path) -> std::ffi::CString {
    std::ffi::CString::new(path.to_str().unwrap()).unwrap()
}

fn exchange(one: &Path, other: &Path) -> Result<()> {
    let (one, other) = (c_path(one), c_path(other));
    let here = libc::AT_FDCWD;
    // SAFETY: two strings that end in NUL.
    done(unsafe { libc::renameat2(here, one.as_ptr(), here, other.as_ptr(), libc::RENAME_EXCHANGE) }.into())
}

fn special(path: &Path) -> Result<()> {
    // SAFETY: a string that ends in NUL.
    done(unsafe { libc::mknod(c_path(path).as_ptr(), libc::S_IFIFO | 0o600, 0) }.into())
}

/// A call, the events of which each that is denied refuses it, and itself.
type Call = (&'static str, &'static [&'static str], fn(&Subject<'_>) -> Result<()>);

const CALLS: &[Call] = &[
    ("read", &["read"], |subject| {
        subject.forget();
        subject.file.read_at(&mut [0; 5000], 10_000).map(drop)
    }),
    ("read-direct", &["open", "read"], |subject| {
        let file = File::options().read(true).custom_flags(libc::O_DIRECT).open(subject.path)?;
        let mut page = vec![0_u8; 8192];
        let start = page.as_ptr().align_offset(4096);
        file.read_at(&mut page[start..start + 4096], 0).map(drop)
    }),
    ("sendfile", &["read"], |subject| {
        subject.forget();
        let to = File::create(subject.outside.join("sent"))?;
        // SAFETY: files that are open; no offset is given.
        done(unsafe { libc::sendfile(to.as_raw_fd(), subject.file.as_raw_fd(), std::ptr::null_mut(), 9000) } as i64)
    }),
    ("copy-from", &["read"], |subject| copy(subject.file, &File::create(subject.outside.join("copied"))?)),
    ("copy-within", &["read", "write"], |subject| copy(subject.file, subject.file)),
    ("copy-to", &["write"], |subject| copy(&File::open(subject.outside.join("source"))?, subject.file)),
    ("write", &["write"], |subject| subject.file.write_all_at(b"changed", 5000)),
    ("write-direct", &["open", "write"], |subject| {
        let file = File::options().write(true).custom_flags(libc::O_DIRECT).open(subject.path)?;
        let page = vec![b'!'; 8192];
        let start = page.as_ptr().align_offset(4096);
        file.write_all_at(&page[start..start + 4096], 4096)
    }),
    ("append", &["open", "write"], |subject| {
        std::io::Write::write_all(&mut File::options().append(true).open(subject.path)?, b"more")
    }),
    ("mapping", &["write"], store_through_mapping),
    ("ftruncate", &["write"], |subject| subject.file.set_len(1000)),
    ("truncate-longer", &["write"], |subject| subject.file.set_len(1_000_000)),
    ("open-truncating", &["open", "write"], |subject| {
        File::options().write(true).truncate(true).open(subject.path).map(drop)
    }),
    ("allocate", &["write"], |subject| allocate(subject, 0)),
    ("allocate-keep", &["write"], |subject| allocate(subject, libc::FALLOC_FL_KEEP_SIZE)),
    ("punch", &["write"], |subject| allocate(subject, libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE)),
    ("zero", &["write"], |subject| allocate(subject, libc::FALLOC_FL_ZERO_RANGE)),
    ("zero-keep", &["write"], |subject| allocate(subject, libc::FALLOC_FL_ZERO_RANGE | libc::FALLOC_FL_KEEP_SIZE)),
    ("library-read", &["open", "read"], |subject| {
        of_library(library(subject).and_then(|file| file.read_at(&mut [0; 5000], 10_000)))
    }),
    ("library-write", &["open", "write"], |subject| {
        of_library(library(subject).and_then(|file| file.write_at(b"changed", 5000)))
    }),
    ("library-open", &["open"], |subject| of_library(stere::File::open(subject.path, Options::new().read(true)))),
    ("open", &["open"], |subject| File::open(subject.path).map(drop)),
    ("create", &["create"], |subject| File::create_new(subject.beside("new")).map(drop)),
    ("create-nameless", &["create"], |subject| {
        let directory = subject.path.parent().expect("a file lies in a directory");
        File::options().read(true).write(true).custom_flags(libc::O_TMPFILE).open(directory).map(drop)
    }),
    ("mkdir", &["create"], |subject| fs::create_dir(subject.beside("new"))),
    ("symlink", &["create"], |subject| std::os::unix::fs::symlink("target", subject.beside("new"))),
    ("mknod", &["create"], |subject| special(&subject.beside("new"))),
    ("link", &["create"], |subject| fs::hard_link(subject.path, subject.beside("new"))),
    ("rename", &["rename"], |subject| fs::rename(subject.path, subject.beside("new"))),
    ("rename-out", &["rename"], |subject| fs::rename(subject.path, subject.outside.join("renamed"))),
    ("rename-in", &["create"], |subject| {
        let incoming = subject.outside.join("incoming");
        fs::write(&incoming, b"from elsewhere")?;
        fs::rename(incoming, subject.beside("new"))
    }),
    ("exchange-in", &["create", "rename"], |subject| {
        let incoming = subject.outside.join("exchanged");
        fs::write(&incoming, content())?;
        exchange(&incoming, subject.path)
    }),
    ("rename-over", &["rename", "delete"], |subject| fs::rename(subject.path, subject.beside("second"))),
    ("exchange", &["rename"], |subject| exchange(subject.path, &subject.beside("second"))),
    ("unlink", &["delete"], |subject| fs::remove_file(subject.path)),
    ("rmdir", &["delete"], |subject| fs::remove_dir(subject.beside("empty"))),
];

#[test]
fn whatever_changes_or_reads_a_file_is_put_before_its_plugins() {
    if !can_mount("whatever_changes_or_reads_a_file_is_put_before_its_plugins") {
        return;
    }
    let world = World::new();
    world.ok("create tank a.img,size=256M b.img,size=256M");
    world.ok("mount tank mount");
    let mut wrong = Vec::new();
    for (number, event) in EVENTS.iter().enumerate() {
        fs::write(world.path(&format!("{event}.wat")), denying(number)).unwrap();
        world.ok(&format!("plugin add tank {event} {event}.wat"));
        let judged = world.mountpoint().join(event);
        let outside = world.mountpoint().join(format!("outside-{event}"));
        fs::create_dir(&judged).unwrap();
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("source"), vec![b'?'; LENGTH]).unwrap();
        let open = |name: &str| {
            fs::write(judged.join(name), content()).unwrap();
            fs::write(judged.join(format!("{name}-second")), b"second").unwrap();
            fs::create_dir(judged.join(format!("{name}-empty"))).unwrap();
            let file = File::options().read(true).write(true).open(judged.join(name)).unwrap();
            // So that a store through a mapping reads nothing any more.
            file.read_at(&mut [0; 1], 0).unwrap();
            file
        };
        let files: Vec<File> = CALLS.iter().map(|(name, ..)| open(name)).collect();
        world.ok(&format!("policy set mount/{event} plugins={event}"));
        for ((name, asked, call), file) in CALLS.iter().zip(&files) {
            let path = judged.join(name);
            let outcome = call(&Subject { path: &path, file, outside: &outside });
            let is_right = match (&outcome, asked.contains(event)) {
                (Ok(()), false) => true,
                (Err(error), true) => error.raw_os_error() == Some(libc::EPERM),
                _ => false,
            };
            if !is_right {
                wrong.push(format!("{name} while {event} is denied: {outcome:?}"));
            }
        }
        drop(files);
        world.ok(&format!("policy set mount/{event} plugins=none --wait"));
        for (name, asked, _) in CALLS {
            if asked.contains(event) && fs::read(judged.join(name)).ok().as_deref() != Some(&content()[..]) {
                wrong.push(format!("{name} while {event} is denied: refused, and the file is another"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    world.ok("umount mount");
    assert!(world.ok("check tank").contains("clean"));
}
