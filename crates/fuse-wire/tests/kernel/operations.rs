//! The operations ordinary programs seldom use: what the kernel sends is decoded as it was meant, and what is
//! answered reaches the caller. A catalogue of canned answers keeps a log of what it was asked.

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use fuse_wire::abi::{init, opcode};
use fuse_wire::{
    Attributes, BlockDevice, Entry, Filesystem, Lock, Operation, Options, Request, Session, Statfs, Timestamp,
    TransportChoice, Unmount,
};
use parking_lot::Mutex;

use crate::support::{Watchdog, eventually, mount_point, options, say, transports};

const FILE: u64 = 2;
const LINK: u64 = 3;
const MADE: u64 = 10;
const GROUP: u32 = 4321;
const BORN: Timestamp = Timestamp { seconds: 1_234_567_890, nanoseconds: 42 };
const SHORT: Duration = Duration::ZERO;

#[derive(Default)]
struct Catalogue {
    log: Mutex<Vec<String>>,
    /// Answer ENOSYS to the newer form of copy_file_range.
    old_copy: bool,
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn attributes(node: u64, mode: u32) -> Attributes {
    let size = if node == FILE { 1 << 20 } else { 10 };
    Attributes { inode: node, size, mode, links: 1, gid: GROUP, block_size: 4096, ..Attributes::default() }
}

fn entry(node: u64, mode: u32) -> Entry {
    Entry { node, attributes: attributes(node, mode), ..Entry::default() }
}

fn mode_of(node: u64) -> u32 {
    match node {
        1 => libc::S_IFDIR | 0o777,
        LINK => libc::S_IFLNK | 0o777,
        _ => libc::S_IFREG | 0o666,
    }
}

impl Catalogue {
    fn note(&self, what: String) {
        self.log.lock().push(what);
    }

    fn told(&self, what: &str) -> bool {
        self.log.lock().iter().any(|line| line == what)
    }

    fn names(&self, request: Request) {
        match request.operation() {
            Operation::Lookup { name: b"file", .. } => request.reply_entry(&entry(FILE, mode_of(FILE))),
            Operation::Lookup { name: b"link", .. } => request.reply_entry(&entry(LINK, mode_of(LINK))),
            Operation::Lookup { .. } => request.reply_error(libc::ENOENT),
            Operation::Readlink { .. } => request.reply_bytes(b"the/target"),
            Operation::Symlink { name, target, .. } => {
                self.note(format!("symlink {} {}", text(name), text(target)));
                request.reply_entry(&entry(MADE, libc::S_IFLNK | 0o777));
            }
            Operation::Mknod { name, mode, umask, rdev, .. } => {
                self.note(format!("mknod {} {mode:o} {umask:o} {rdev:x}", text(name)));
                request.reply_entry(&entry(MADE, mode));
            }
            Operation::Link { node, new_parent, new_name } => {
                self.note(format!("link {node} {new_parent} {}", text(new_name)));
                request.reply_entry(&entry(node, mode_of(node)));
            }
            Operation::Rename { name, new_name, flags, .. } => {
                self.note(format!("rename {} {} {flags}", text(name), text(new_name)));
                request.reply_ok();
            }
            Operation::Create { name, flags, .. } => {
                let groups: Vec<u32> = request.supplementary_groups().collect();
                let exclusive = flags & libc::O_EXCL.cast_unsigned() != 0;
                let (pid, uid) = (request.context().pid, request.context().uid);
                let name = text(name);
                self.note(format!("create {name} {exclusive} groups={groups:?} uid={uid} pid={pid}"));
                request.reply_create(&entry(MADE, mode_of(MADE)), 55, 0);
            }
            Operation::Tmpfile { parent, mode, .. } => {
                self.note(format!("tmpfile {parent} {mode:o}"));
                request.reply_create(&entry(MADE + 1, mode_of(MADE)), 56, 0);
            }
            _ => self.xattrs(request),
        }
    }

    fn xattrs(&self, request: Request) {
        match request.operation() {
            Operation::Setxattr { node, name, value, flags, .. } => {
                self.note(format!("setxattr {node} {} {} {flags}", text(name), text(value)));
                request.reply_ok();
            }
            Operation::Getxattr { name: b"user.color", size, .. } => answer_sized(request, size, b"blue"),
            Operation::Getxattr { .. } => request.reply_error(libc::ENODATA),
            Operation::Listxattr { size, .. } => answer_sized(request, size, b"user.color\0user.x\0"),
            Operation::Removexattr { node, name } => {
                self.note(format!("removexattr {node} {}", text(name)));
                request.reply_ok();
            }
            _ => self.handles(request),
        }
    }

    fn handles(&self, request: Request) {
        match request.operation() {
            Operation::Open { .. } => request.reply_open(77, 0),
            Operation::Opendir { .. } => request.reply_open(78, 0),
            Operation::Fsync { handle, data_only, .. } => {
                self.note(format!("fsync {handle} {data_only}"));
                request.reply_ok();
            }
            Operation::Fsyncdir { handle, data_only, .. } => {
                self.note(format!("fsyncdir {handle} {data_only}"));
                request.reply_ok();
            }
            Operation::Release { handle, .. } => {
                self.note(format!("release {handle}"));
                request.reply_ok();
            }
            Operation::Lseek { handle, offset, whence, .. } => {
                self.note(format!("lseek {handle} {offset} {whence}"));
                request.reply_lseek(if whence == libc::SEEK_DATA.cast_unsigned() { 4096 } else { 8192 });
            }
            Operation::Fallocate { handle, offset, length, mode, .. } => {
                self.note(format!("fallocate {handle} {offset} {length} {mode}"));
                request.reply_ok();
            }
            Operation::CopyFileRange(_) if self.old_copy && request.opcode() == opcode::COPY_FILE_RANGE_64 => {
                request.reply_error(libc::ENOSYS);
            }
            Operation::CopyFileRange(copy) => {
                let (from, to, length) = (copy.offset_in, copy.offset_out, copy.length);
                self.note(format!("copy {} {from} {to} {length}", request.opcode()));
                request.reply_copied(length);
            }
            _ => self.rest(request),
        }
    }

    fn rest(&self, request: Request) {
        match request.operation() {
            Operation::Getattr { node, .. } => request.reply_attributes(&attributes(node, mode_of(node)), SHORT),
            Operation::Setattr { node, .. } => request.reply_attributes(&attributes(node, mode_of(node)), SHORT),
            Operation::Statx { node, .. } => request.reply_statx(&attributes(node, mode_of(node)), Some(BORN), SHORT),
            Operation::Statfs { .. } => request.reply_statfs(&Statfs {
                blocks: 1000,
                blocks_free: 500,
                blocks_available: 400,
                files: 30,
                files_free: 20,
                block_size: 4096,
                name_length_max: 200,
                fragment_size: 4096,
            }),
            Operation::Access { mask, .. } => {
                self.note(format!("access {mask}"));
                request.reply_error(libc::EACCES);
            }
            Operation::Getlk { lock, .. } => {
                self.note(format!("getlk {} {}", lock.start, lock.end));
                request.reply_lock(&Lock { start: 5, end: 9, kind: libc::F_WRLCK as u32, pid: 0 });
            }
            Operation::Setlk { lock, wait, .. } => {
                self.note(format!("setlk {} {} {wait}", lock.start, lock.end));
                request.reply_ok();
            }
            Operation::Bmap { block, block_size, .. } => {
                self.note(format!("bmap {block} {block_size}"));
                request.reply_bmap(block + 100);
            }
            Operation::Ioctl(ioctl) => {
                self.note(format!("ioctl {:x} {}", ioctl.command, text(ioctl.input)));
                request.reply_ioctl(7, b"answered");
            }
            Operation::Poll { events, .. } => {
                self.note(format!("poll {}", events & 1));
                request.reply_poll(libc::POLLIN as u32);
            }
            Operation::Malformed { opcode } => {
                self.note(format!("malformed {opcode}"));
                request.reply_error(libc::EIO);
            }
            Operation::Destroy | Operation::Syncfs { .. } | Operation::Releasedir { .. } => request.reply_ok(),
            _ => request.reply_error(libc::ENOSYS),
        }
    }
}

fn answer_sized(request: Request, size: usize, value: &[u8]) {
    if size == 0 {
        request.reply_xattr_size(u32::try_from(value.len()).unwrap());
    } else if size < value.len() {
        request.reply_error(libc::ERANGE);
    } else {
        request.reply_bytes(value);
    }
}

impl Filesystem for Catalogue {
    fn handle(&self, request: Request) {
        match request.operation() {
            Operation::Forget { .. } | Operation::BatchForget { .. } => request.reply_none(),
            _ => self.names(request),
        }
    }
}

/// Mounts a catalogue, lets `work` use it and unmounts.
fn with_catalogue(
    choice: TransportChoice,
    old_copy: bool,
    change: impl FnOnce(&mut Options),
    work: impl FnOnce(&Catalogue, &Path),
) {
    let mut options = options(choice);
    change(&mut options);
    let path = mount_point();
    let catalogue = Arc::new(Catalogue { old_copy, ..Catalogue::default() });
    let session = Session::mount(Arc::clone(&catalogue), &path, &options).unwrap();
    let _watchdog = Watchdog::new(&session);
    work(&catalogue, &path);
    assert!(!catalogue.log.lock().iter().any(|line| line.starts_with("malformed")), "{:?}", catalogue.log.lock());
    session.unmounter().unmount(Unmount::Normal).unwrap();
    session.join().unwrap();
    fs::remove_dir(&path).unwrap();
}

fn c(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).unwrap()
}

fn checked(result: i64) -> i64 {
    assert!(result >= 0, "{}", io::Error::last_os_error());
    result
}

fn open(path: &Path) -> fs::File {
    fs::OpenOptions::new().read(true).write(true).open(path).unwrap()
}

#[test]
fn names_of_every_kind() {
    for choice in transports("names_of_every_kind") {
        with_catalogue(
            choice,
            false,
            |_| {},
            |catalogue, root| {
                assert_eq!(fs::read_link(root.join("link")).unwrap(), PathBuf::from("the/target"));
                std::os::unix::fs::symlink("some/where", root.join("new-link")).unwrap();
                assert!(catalogue.told("symlink new-link some/where"));
                fs::hard_link(root.join("file"), root.join("hard")).unwrap();
                assert!(catalogue.told("link 2 1 hard"));
                let device = libc::makedev(1, 3);
                // SAFETY: a NUL-terminated path.
                checked(unsafe { libc::mknod(c(&root.join("node")).as_ptr(), libc::S_IFCHR | 0o600, device) }.into());
                let line = catalogue.log.lock().iter().find(|line| line.starts_with("mknod node 20600")).cloned();
                assert!(line.is_some_and(|line| line.ends_with(" 103")), "{:?}", catalogue.log.lock());
                let (old, new) = (c(&root.join("file")), c(&root.join("link")));
                // SAFETY: two NUL-terminated paths.
                let renamed = unsafe {
                    libc::renameat2(libc::AT_FDCWD, old.as_ptr(), libc::AT_FDCWD, new.as_ptr(), libc::RENAME_EXCHANGE)
                };
                checked(renamed.into());
                assert!(catalogue.told("rename file link 2"));
                let mut file = fs::OpenOptions::new();
                let unnamed = file.write(true).mode(0o600).custom_flags(libc::O_TMPFILE).open(root).unwrap();
                assert!(catalogue.told("tmpfile 1 100600"), "{:?}", catalogue.log.lock());
                drop(unnamed);
                assert!(eventually(|| catalogue.told("release 56")));
            },
        );
    }
}

#[test]
fn the_caller_is_known() {
    for choice in transports("the_caller_is_known") {
        let change = |options: &mut Options| options.init.flags |= init::CREATE_SUPP_GROUP;
        with_catalogue(choice, false, change, |catalogue, root| {
            let path = root.join("owned");
            let caller = std::thread::spawn(move || {
                let groups = [GROUP];
                // SAFETY: the raw system call changes this thread alone; the list is live.
                checked(unsafe { libc::syscall(libc::SYS_setgroups, 1, groups.as_ptr()) });
                fs::File::create_new(path).unwrap();
                // SAFETY: takes nothing, cannot fail.
                unsafe { libc::gettid() }
            });
            let expected = format!("create owned true groups=[4321] uid=0 pid={}", caller.join().unwrap());
            assert!(catalogue.told(&expected), "{:?}", catalogue.log.lock());
        });
    }
}

#[test]
fn extended_attributes() {
    for choice in transports("extended_attributes") {
        with_catalogue(
            choice,
            false,
            |_| {},
            |catalogue, root| {
                let path = c(&root.join("file"));
                let mut buffer = [0_u8; 64];
                let get = |name: &std::ffi::CStr, buffer: &mut [u8]| {
                    // SAFETY: NUL-terminated strings and a live buffer of the length given.
                    unsafe { libc::getxattr(path.as_ptr(), name.as_ptr(), buffer.as_mut_ptr().cast(), buffer.len()) }
                };
                assert_eq!(get(c"user.color", &mut []), 4);
                assert_eq!(get(c"user.color", &mut buffer), 4);
                assert_eq!(&buffer[..4], b"blue");
                assert_eq!(get(c"user.color", &mut buffer[..2]), -1);
                assert_eq!(io::Error::last_os_error().raw_os_error(), Some(libc::ERANGE));
                assert_eq!(get(c"user.none", &mut buffer), -1);
                assert_eq!(io::Error::last_os_error().raw_os_error(), Some(libc::ENODATA));
                // SAFETY: as above.
                let listed = unsafe { libc::listxattr(path.as_ptr(), buffer.as_mut_ptr().cast(), buffer.len()) };
                assert_eq!(&buffer[..usize::try_from(listed).unwrap()], b"user.color\0user.x\0");
                // SAFETY: as above.
                checked(unsafe {
                    let flags = libc::XATTR_CREATE;
                    libc::setxattr(path.as_ptr(), c"user.new".as_ptr(), b"value".as_ptr().cast(), 5, flags).into()
                });
                assert!(catalogue.told("setxattr 2 user.new value 1"));
                let long = vec![b'v'; 60_000];
                // SAFETY: as above.
                checked(unsafe {
                    libc::setxattr(path.as_ptr(), c"user.long".as_ptr(), long.as_ptr().cast(), long.len(), 0).into()
                });
                assert!(catalogue.told(&format!("setxattr 2 user.long {} 0", text(&long))));
                // SAFETY: as above.
                checked(unsafe { libc::removexattr(path.as_ptr(), c"user.color".as_ptr()) }.into());
                assert!(catalogue.told("removexattr 2 user.color"));
            },
        );
    }
}

#[test]
fn open_files() {
    for choice in transports("open_files") {
        with_catalogue(
            choice,
            false,
            |_| {},
            |catalogue, root| {
                let file = open(&root.join("file"));
                let fd = file.as_raw_fd();
                // SAFETY: a live descriptor and plain numbers, in all calls here.
                unsafe {
                    assert_eq!(libc::lseek(fd, 1000, libc::SEEK_DATA), 4096);
                    assert_eq!(libc::lseek(fd, 5000, libc::SEEK_HOLE), 8192);
                    checked(libc::fallocate(fd, libc::FALLOC_FL_KEEP_SIZE, 10, 20).into());
                }
                assert!(catalogue.told("lseek 77 1000 3") && catalogue.told("lseek 77 5000 4"));
                assert!(catalogue.told("fallocate 77 10 20 1"));
                file.sync_all().unwrap();
                file.sync_data().unwrap();
                assert!(catalogue.told("fsync 77 false") && catalogue.told("fsync 77 true"));
                fs::File::open(root).unwrap().sync_all().unwrap();
                assert!(catalogue.told("fsyncdir 78 false"), "{:?}", catalogue.log.lock());
                let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
                // SAFETY: one live pollfd.
                assert_eq!(unsafe { libc::poll(&raw mut poll, 1, 1000) }, 1);
                assert!(poll.revents == libc::POLLIN && catalogue.told("poll 1"));
                // _IOWR('F', 1, [u8; 8]): the kernel takes the sizes of both directions from the number.
                let (command, mut data) = (0xc008_4601_u32, *b"question");
                // SAFETY: eight live bytes, as the command says.
                assert_eq!(unsafe { libc::ioctl(fd, command.into(), data.as_mut_ptr()) }, 7);
                assert_eq!(&data, b"answered");
                assert!(catalogue.told("ioctl c0084601 question"));
            },
        );
    }
}

#[test]
fn copies_in_both_forms() {
    for choice in transports("copies_in_both_forms") {
        for old_copy in [false, true] {
            with_catalogue(
                choice,
                old_copy,
                |_| {},
                |catalogue, root| {
                    let (from, to) = (open(&root.join("file")), open(&root.join("file")));
                    let (mut from_offset, mut to_offset) = (0_i64, 500_000_i64);
                    // SAFETY: live descriptors and offsets.
                    let copied = unsafe {
                        let (from_fd, to_fd) = (from.as_raw_fd(), to.as_raw_fd());
                        libc::copy_file_range(from_fd, &raw mut from_offset, to_fd, &raw mut to_offset, 10_000, 0)
                    };
                    assert_eq!(copied, 10_000);
                    let number = if old_copy { opcode::COPY_FILE_RANGE } else { opcode::COPY_FILE_RANGE_64 };
                    let (newer, older) = (format!("copy {number} 0 500000 10000"), "copy 47 0 500000 10000");
                    // A kernel before 6.18 knows only the older form.
                    assert!(catalogue.told(&newer) || catalogue.told(older), "{:?}", catalogue.log.lock());
                },
            );
        }
    }
}

#[test]
fn facts_about_files_and_the_whole() {
    for choice in transports("facts_about_files_and_the_whole") {
        with_catalogue(
            choice,
            false,
            |_| {},
            |_, root| {
                let metadata = fs::metadata(root.join("file")).unwrap();
                let born = metadata.created().unwrap().duration_since(UNIX_EPOCH).unwrap();
                assert_eq!((born.as_secs(), born.subsec_nanos()), (1_234_567_890, 42));
                // SAFETY: statvfs is plain data for the kernel to fill; the path is NUL-terminated.
                let whole = unsafe {
                    let mut whole: libc::statvfs = std::mem::zeroed();
                    checked(libc::statvfs(c(root).as_ptr(), &raw mut whole).into());
                    whole
                };
                assert_eq!((whole.f_blocks, whole.f_bfree, whole.f_bavail), (1000, 500, 400));
                assert_eq!((whole.f_files, whole.f_ffree, whole.f_namemax), (30, 20, 200));
            },
        );
    }
}

#[test]
fn access_is_asked_without_default_permissions() {
    for choice in transports("access_is_asked_without_default_permissions") {
        let change = |options: &mut Options| {
            options.mount.default_permissions = false;
            options.init.flags &= !init::POSIX_ACL;
        };
        with_catalogue(choice, false, change, |catalogue, root| {
            // SAFETY: a NUL-terminated path.
            assert_eq!(unsafe { libc::access(c(&root.join("file")).as_ptr(), libc::W_OK) }, -1);
            assert_eq!(io::Error::last_os_error().raw_os_error(), Some(libc::EACCES));
            assert!(catalogue.told("access 2"));
        });
    }
}

#[test]
fn locks_travel_when_negotiated() {
    for choice in transports("locks_travel_when_negotiated") {
        for remote in [true, false] {
            let change = |options: &mut Options| {
                if remote {
                    options.init.flags |= init::POSIX_LOCKS;
                }
            };
            with_catalogue(choice, false, change, |catalogue, root| {
                let file = open(&root.join("file"));
                // SAFETY: flock is plain data; the descriptor is live.
                let found = unsafe {
                    let mut lock: libc::flock = std::mem::zeroed();
                    (lock.l_type, lock.l_start, lock.l_len) = (libc::F_WRLCK as i16, 100, 50);
                    checked(libc::fcntl(file.as_raw_fd(), libc::F_SETLK, &raw mut lock).into());
                    checked(libc::fcntl(file.as_raw_fd(), libc::F_GETLK, &raw mut lock).into());
                    lock
                };
                assert_eq!(catalogue.told("setlk 100 149 false"), remote);
                assert_eq!(catalogue.told("getlk 100 149"), remote);
                if remote {
                    assert_eq!((found.l_start, found.l_len), (5, 5));
                }
            });
        }
    }
}

#[test]
fn block_maps_are_asked_at_block_device_mounts() {
    for choice in transports("block_maps_are_asked_at_block_device_mounts") {
        if !Path::new("/dev/loop-control").exists() {
            return say("SKIPPED: block_maps_are_asked_at_block_device_mounts: no loop devices");
        }
        let change = |options: &mut Options| options.mount.block_device = BlockDevice::Required;
        with_catalogue(choice, false, change, |catalogue, root| {
            let (file, mut block) = (open(&root.join("file")), 3_i32);
            const FIBMAP: libc::c_ulong = 1;
            // SAFETY: a live descriptor and number.
            checked(unsafe { libc::ioctl(file.as_raw_fd(), FIBMAP as _, &raw mut block) }.into());
            assert_eq!(block, 103);
            assert!(catalogue.told("bmap 3 4096"), "{:?}", catalogue.log.lock());
            let permissions = file.metadata().unwrap().permissions();
            assert_eq!(permissions.mode() & 0o777, 0o666);
        });
    }
}
