//! The library with the real binary on a real mount (P-90, P-91): needs root and /dev/fuse, and says loudly when it skips.

use crate::support;

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use stere::{Options, Piece, Pool, PoolOptions};
use support::{NOBODY, World, can_mount};

const MIB: usize = 1 << 20;

fn both() -> Options {
    Options::new().read(true).write(true)
}

#[track_caller]
fn is_refused<T>(outcome: Result<T, stere::Error>, errno: i32, word: &str) {
    let error = outcome.err().expect("it is refused");
    assert_eq!(error.errno(), errno, "{error}");
    assert!(error.to_string().contains(word), "says '{error}', without '{word}'");
}

/// Numbers that look random, the same in each run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }

    fn bytes(&mut self, length: usize) -> Vec<u8> {
        (0..length.div_ceil(4)).flat_map(|_| (self.below(1 << 31) as u32).to_le_bytes()).take(length).collect()
    }
}

/// A length that is short, near a page, or longer than one request.
fn length(numbers: &mut Numbers) -> usize {
    let longest = [64, 5000, 70_000, 3 * MIB][numbers.below(4) as usize];
    numbers.below(longest as u64) as usize + 1
}

fn put(model: &mut Vec<u8>, offset: usize, bytes: &[u8]) {
    if model.len() < offset + bytes.len() {
        model.resize(offset + bytes.len(), 0);
    }
    model[offset..offset + bytes.len()].copy_from_slice(bytes);
}

/// Both ways in turn on one file, compared with what is in memory here.
fn work_both_ways(numbers: &mut Numbers, path: &Path, model: &mut Vec<u8>, steps: usize) {
    const END: u64 = 8 << 20;
    let file = stere::File::open(path, both().create(true)).unwrap();
    let through = File::options().read(true).write(true).open(path).unwrap();
    let mut appending = File::options().append(true).open(path).unwrap();
    for step in 0..steps {
        let (offset, length) = (numbers.below(END) as usize, length(numbers));
        match numbers.below(10) {
            0..=2 => {
                let bytes = numbers.bytes(length);
                assert_eq!(file.write_at(&bytes, offset as u64).unwrap(), length);
                put(model, offset, &bytes);
            }
            3 | 4 => {
                let bytes = numbers.bytes(length);
                through.write_all_at(&bytes, offset as u64).unwrap();
                put(model, offset, &bytes);
            }
            5 => {
                let bytes = numbers.bytes(length.min(5000));
                appending.write_all(&bytes).unwrap();
                put(model, model.len(), &bytes);
            }
            6 => {
                let size = numbers.below(END) as usize;
                through.set_len(size as u64).unwrap();
                model.resize(size, 0);
            }
            7 => file.sync().unwrap(),
            _ => {}
        }
        // What was just done is seen both ways, here and around.
        let (start, length) = (offset.saturating_sub(5000), length + 10_000);
        let wanted = &model[start.min(model.len())..(start + length).min(model.len())];
        let mut bytes = vec![0xee; length];
        let count = file.read_at(&mut bytes, start as u64).unwrap();
        assert!(bytes[..count] == *wanted, "step {step}: {count} bytes by the library at {start}");
        let mut bytes = vec![0xee; wanted.len()];
        through.read_exact_at(&mut bytes, start as u64).unwrap();
        assert!(bytes == *wanted, "step {step}: {length} bytes through the mount at {start}");
        let sizes = (file.size().unwrap(), through.metadata().unwrap().len());
        assert_eq!(sizes, (model.len() as u64, model.len() as u64), "step {step}");
    }
    file.close().unwrap();
}

#[test]
fn what_is_done_one_way_is_seen_the_other_way() {
    if !can_mount("what_is_done_one_way_is_seen_the_other_way") {
        return;
    }
    let world = World::with_pool();
    world.ok("mount tank mount");
    let path = world.mountpoint().join("file");
    let (mut numbers, mut model) = (Numbers(1), Vec::new());
    work_both_ways(&mut numbers, &path, &mut model, 300);
    assert!(fs::read(&path).unwrap() == model);
    // Whole, and from pieces read at a time.
    let file = stere::File::open(&path, Options::new().read(true)).unwrap();
    let mut whole = vec![0; model.len() + 100];
    assert_eq!(file.read_at(&mut whole, 0).unwrap(), model.len());
    assert!(whole[..model.len()] == model);
    let mut rooms = vec![vec![0; 4096]; 100];
    let offsets: Vec<u64> = (0..100).map(|_| numbers.below(model.len() as u64 + 8192)).collect();
    let mut pieces: Vec<Piece<'_>> = Vec::new();
    for (room, offset) in rooms.iter_mut().zip(&offsets) {
        pieces.push(Piece { offset: *offset, bytes: room, read: 0 });
    }
    file.read_many(&mut pieces).unwrap();
    for piece in &pieces {
        let start = (piece.offset as usize).min(model.len());
        assert!(piece.bytes[..piece.read] == model[start..(start + 4096).min(model.len())]);
    }
    is_refused(file.write_at(b"x", 0), libc::EBADF, "not open for writing");
    is_refused(file.read_at(&mut [0; 10], u64::MAX - 5), libc::EINVAL, "no file has");
    file.close().unwrap();
    // And by several threads through one session, each in its part.
    let file = stere::File::open(&path, both()).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..8_usize {
            let file = &file;
            scope.spawn(move || {
                let mut numbers = Numbers(thread as u64);
                for turn in 0..40 {
                    let (bytes, offset) = (numbers.bytes(30_000), (thread * MIB + turn * 7000) as u64);
                    assert_eq!(file.write_at(&bytes, offset).unwrap(), bytes.len());
                    let mut again = vec![0; bytes.len()];
                    assert_eq!(file.read_at(&mut again, offset).unwrap(), bytes.len());
                    assert!(again == bytes, "thread {thread}, turn {turn}");
                }
            });
        }
    });
    let mut model = vec![0; file.size().unwrap() as usize];
    assert_eq!(file.read_at(&mut model, 0).unwrap(), model.len());
    file.sync().unwrap();
    drop(file);
    world.ok("umount mount");
    world.ok("check a.img b.img");
    world.ok("mount tank mount");
    assert!(fs::read(&path).unwrap() == model, "all of it is durable");
    world.ok("umount mount");
}

#[test]
fn what_the_kernel_does_not_allow_the_daemon_does_not() {
    if !can_mount("what_the_kernel_does_not_allow_the_daemon_does_not") {
        return;
    }
    let world = World::with_pool();
    world.ok("mount tank mount");
    let path = world.mountpoint().join("file");
    fs::write(&path, b"content").unwrap();
    let reading = stere::File::from_file(File::open(&path).unwrap()).unwrap();
    is_refused(reading.write_at(b"x", 0), libc::EBADF, "not open for writing");
    let writing = stere::File::from_file(File::options().write(true).open(&path).unwrap()).unwrap();
    is_refused(writing.read_at(&mut [0; 4], 0), libc::EBADF, "not open for reading");
    let open = |flags: i32| File::options().read(true).custom_flags(flags).open(&path).unwrap();
    is_refused(stere::File::from_file(open(libc::O_PATH)), libc::EACCES, "O_PATH");
    let appending = File::options().append(true).open(&path).unwrap();
    is_refused(stere::File::from_file(appending), libc::EACCES, "O_APPEND");
    is_refused(stere::File::from_file(File::open(world.mountpoint()).unwrap()), libc::EACCES, "regular files");
    fs::write(world.path("elsewhere"), b"x").unwrap();
    is_refused(stere::File::open(world.path("elsewhere"), both()), libc::EXDEV, "not on a stere mount");
    is_refused(stere::File::open(world.mountpoint().join("none"), both()), libc::ENOENT, "none");
    is_refused(stere::File::open(&path, Options::new()), libc::EINVAL, "for reading or for writing");
    assert_eq!(fs::read(&path).unwrap(), b"content");
    // Removed while it is open: it lives as long as the session.
    fs::remove_file(&path).unwrap();
    assert_eq!(writing.write_at(&[9; 100_000], 0).unwrap(), 100_000);
    let mut bytes = [0; 10];
    assert_eq!(reading.read_at(&mut bytes, 50_000).unwrap(), 10);
    assert_eq!(bytes, [9; 10]);
    // The mount is in use while a program has a file of it.
    assert_ne!(world.run("umount mount").code, 0);
    drop((reading, writing));
    world.ok("umount mount");
    world.ok("check a.img b.img");
    // A mount whose kernel keeps changes to itself is not written past it.
    world.ok("mount tank mount -o writeback");
    fs::write(&path, vec![5; 100_000]).unwrap();
    is_refused(stere::File::open(&path, both()), libc::EACCES, "writeback");
    let file = stere::File::open(&path, Options::new().read(true)).unwrap();
    let mut bytes = vec![0; 100_000];
    assert_eq!(file.read_at(&mut bytes, 0).unwrap(), 100_000);
    assert!(bytes.iter().all(|byte| *byte == 5), "what the kernel gathered was handed over first");
    drop(file);
    world.ok("umount mount");
    world.ok("mount tank mount -o ro");
    is_refused(stere::File::open(&path, both()), libc::EROFS, "file");
    let file = stere::File::open(&path, Options::new().read(true)).unwrap();
    assert_eq!(file.size().unwrap(), 100_000);
    drop(file);
    world.ok("umount mount");
}

#[test]
fn limits_seals_and_keys_hold_as_through_the_mount() {
    if !can_mount("limits_seals_and_keys_hold_as_through_the_mount") {
        return;
    }
    let world = World::with_pool();
    world.ok("mount tank mount");
    let mount = world.mountpoint();
    // A limit, in the middle of a write.
    world.ok("volume create mount/home bytes=2M");
    let file = stere::File::open(mount.join("home/f"), both().create(true)).unwrap();
    assert_eq!(file.write_at(&vec![7; 3 * MIB], 0).unwrap(), 2 * MIB);
    is_refused(file.write_at(b"more", 2 * MIB as u64), libc::EDQUOT, "quota");
    assert_eq!(file.write_at(&[8; 4096], 4096).unwrap(), 4096, "what is there can be overwritten");
    file.sync().unwrap();
    drop(file);
    assert_eq!(fs::metadata(mount.join("home/f")).unwrap().len(), 2 * MIB as u64);
    // A file that comes to be retained while it is open.
    let sealed = mount.join("sealed");
    let file = stere::File::open(&sealed, both().create(true)).unwrap();
    file.write_at(b"before", 0).unwrap();
    world.ok("policy set mount/sealed retain=2099-12-31");
    is_refused(file.write_at(b"after", 0), libc::EPERM, "before 2099-12-31");
    drop(file);
    is_refused(stere::File::open(&sealed, both()), libc::EPERM, "sealed");
    assert_eq!(fs::read(&sealed).unwrap(), b"before");
    // A key that is locked while the file is open.
    let vault = mount.join("vault");
    fs::create_dir(&vault).unwrap();
    fs::write(world.path("pass"), "open sesame\n").unwrap();
    world.ok("key create tank family --passphrase-file pass");
    world.ok("policy set mount/vault encrypt=yes");
    let file = stere::File::open(vault.join("secret"), both().create(true)).unwrap();
    file.write_at(&vec![3; 300_000], 0).unwrap();
    file.sync().unwrap();
    world.ok("key lock tank");
    is_refused(file.read_at(&mut vec![0; 1000], 0), libc::ENOKEY, "key");
    is_refused(file.write_at(b"x", 0), libc::ENOKEY, "key");
    is_refused(stere::File::open(vault.join("secret"), both()), libc::ENOKEY, "secret");
    world.ok("key unlock tank --passphrase-file pass");
    let mut bytes = vec![0; 300_000];
    assert_eq!(file.read_at(&mut bytes, 0).unwrap(), 300_000);
    assert!(bytes.iter().all(|byte| *byte == 3));
    drop(file);
    world.ok("umount mount");
    world.ok("check a.img b.img");
}

/// Starts this very test program again, to run one of the tests below for somebody else.
fn child(program: &Path, test: &str, path: &Path) -> Command {
    let mut command = Command::new(program);
    command.args(["--exact", test, "--test-threads=1"]).env("STERE_LIBRARY_CHILD", path);
    command
}

fn path_of_child() -> Option<PathBuf> {
    std::env::var_os("STERE_LIBRARY_CHILD").map(PathBuf::from)
}

/// Run as a program of its own by the tests that need one.
#[test]
fn child_writes_for_ever() {
    let Some(path) = path_of_child() else { return };
    let file = stere::File::open(path, both()).unwrap();
    for turn in 0_u64.. {
        file.write_at(&vec![turn as u8; 3 * MIB], turn % 5 * 100_000).unwrap();
    }
}

/// The same.
#[test]
fn child_writes_once() {
    let Some(path) = path_of_child() else { return };
    let file = stere::File::open(path, both()).unwrap();
    assert_eq!(file.write_at(b"new", 0).unwrap(), 3);
}

/// The same, where a device hangs.
#[test]
fn child_opens_a_pool_of_which_a_device_hangs() {
    let Some(folder) = path_of_child() else { return };
    let devices = [folder.join("a.img"), folder.join("b.img")];
    is_refused(Pool::open(&devices, PoolOptions::default()).map(drop), libc::EIO, "b.img");
}

/// P-229: the library does not wait for a device that answers nothing.
#[test]
fn a_pool_of_which_a_device_hangs_is_not_opened_directly() {
    let world = World::with_pool();
    let test = "library::child_opens_a_pool_of_which_a_device_hangs";
    let begun = Instant::now();
    fs::write(world.path("b.img.hang"), "read").unwrap();
    let this = std::env::current_exe().unwrap();
    let opened = child(&this, test, &world.path("")).env("STERE_TEST_FAULTS", "1").status();
    fs::remove_file(world.path("b.img.hang")).unwrap();
    assert!(opened.unwrap().success());
    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
}

#[test]
fn a_write_takes_set_id_bits_and_capabilities_away() {
    if !can_mount("a_write_takes_set_id_bits_and_capabilities_away") {
        return;
    }
    let world = World::with_pool();
    world.ok("mount tank mount -o allow_other");
    let (mine, theirs) = (world.mountpoint().join("mine"), world.mountpoint().join("theirs"));
    // Version 2 of the attribute, with one permission in it.
    let capability = [1, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    for (path, owner) in [(&mine, 0), (&theirs, NOBODY)] {
        fs::write(path, b"old").unwrap();
        std::os::unix::fs::chown(path, Some(owner), Some(owner)).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o6755)).unwrap();
        rustix::fs::setxattr(path, "security.capability", &capability, rustix::fs::XattrFlags::empty()).unwrap();
        assert_eq!(fs::metadata(path).unwrap().mode() & 0o7777, 0o6755);
    }
    let has_capability = |path: &Path| rustix::fs::getxattr(path, "security.capability", &mut [0_u8; 64][..]).is_ok();
    assert!(has_capability(&mine) && has_capability(&theirs));
    let before = fs::metadata(&theirs).unwrap();
    let program = world.path("child");
    fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    fs::set_permissions(&world.folder, fs::Permissions::from_mode(0o755)).unwrap();
    let status = child(&program, "library::child_writes_once", &theirs).uid(NOBODY).gid(NOBODY).status().unwrap();
    assert!(status.success());
    stere::File::open(&mine, both()).unwrap().write_at(b"new", 0).unwrap();
    for path in [&mine, &theirs] {
        assert_eq!(fs::read(path).unwrap(), b"new");
        assert!(!has_capability(path), "{}", path.display());
    }
    let after = fs::metadata(&theirs).unwrap();
    assert_eq!(after.mode() & 0o7777, 0o755);
    assert_eq!(fs::metadata(&mine).unwrap().mode() & 0o7777, 0o6755, "root may keep them, as through the mount");
    let time = |facts: &fs::Metadata| (facts.mtime(), facts.mtime_nsec());
    assert!(time(&after) > time(&before), "times change as with any write");
    world.ok("umount mount");
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(300), "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn kill(mut child: Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_client_that_is_killed_leaves_nothing_behind() {
    if !can_mount("a_client_that_is_killed_leaves_nothing_behind") {
        return;
    }
    let world = World::with_pool();
    world.ok("mount tank mount");
    let path = world.mountpoint().join("file");
    fs::write(&path, b"").unwrap();
    for round in 0..20 {
        let child = child(&std::env::current_exe().unwrap(), "library::child_writes_for_ever", &path).spawn().unwrap();
        until("it writes", || fs::metadata(&path).unwrap().len() >= 3 * MIB as u64);
        std::thread::sleep(Duration::from_millis(10 + round));
        kill(child);
        File::options().write(true).open(&path).unwrap().set_len(0).unwrap();
    }
    // More than one user may have at a time: so each of them was given back.
    let mut files = Vec::new();
    until("the last ones are given back", || {
        files.extend(stere::File::open(&path, both()).ok());
        files.len() == 16
    });
    is_refused(stere::File::open(&path, both()), libc::EACCES, "too many files");
    drop(files);
    world.ok("umount mount");
    world.ok("check a.img b.img");
}

#[test]
fn a_daemon_that_is_killed_ends_sessions_and_hangs_nobody() {
    if !can_mount("a_daemon_that_is_killed_ends_sessions_and_hangs_nobody") {
        return;
    }
    let world = World::with_pool();
    world.ok("mount tank mount");
    let path = world.mountpoint().join("file");
    let file = stere::File::open(&path, both().create(true)).unwrap();
    file.write_at(&vec![1; 2 * MIB], 0).unwrap();
    file.sync().unwrap();
    file.write_at(&vec![2; 2 * MIB], 0).unwrap();
    let daemon = world.daemon();
    // SAFETY: a signal to the process that this test started.
    assert_eq!(unsafe { libc::kill(daemon, libc::SIGKILL) }, 0);
    until("it dies, and does not wait for itself", || !Path::new(&format!("/proc/{daemon}/fd")).exists());
    is_refused(file.read_at(&mut [0; 10], 0), libc::ENOTCONN, "session");
    is_refused(file.sync(), libc::ENOTCONN, "open the file again");
    drop(file);
    world.ok("mount tank mount");
    let bytes = fs::read(&path).unwrap();
    assert_eq!(bytes.len(), 2 * MIB);
    assert!(bytes.chunks(MIB).all(|part| part.iter().all(|byte| *byte == part[0] && matches!(*byte, 1 | 2))));
    world.ok("umount mount");
}

#[test]
fn a_pool_that_is_not_mounted_is_used_directly() {
    if !can_mount("a_pool_that_is_not_mounted_is_used_directly") {
        return;
    }
    let world = World::with_pool();
    world.ok("mount tank mount");
    fs::create_dir(world.mountpoint().join("films")).unwrap();
    fs::write(world.mountpoint().join("films/old"), b"through the mount").unwrap();
    let devices = [world.path("a.img"), world.path("b.img")];
    is_refused(Pool::open(&devices, PoolOptions::default()).map(drop), libc::EBUSY, "a.img");
    world.ok("umount mount");
    is_refused(Pool::open(&devices[..1], PoolOptions::default()).map(drop), libc::EINVAL, "device 'b'");
    let pool = Pool::open(&devices, PoolOptions::default()).unwrap();
    is_refused(Pool::open(&devices, PoolOptions::default()).map(drop), libc::EBUSY, "a.img");
    assert_ne!(world.run("mount tank mount").code, 0, "it is in use");
    let old = pool.file("films/old", Options::new().read(true)).unwrap();
    let mut bytes = [0; 100];
    assert_eq!(old.read_at(&mut bytes, 8).unwrap(), 9);
    assert_eq!(&bytes[..9], b"the mount");
    is_refused(old.write_at(b"x", 0), libc::EBADF, "for writing");
    is_refused(pool.file("films/none", both()).map(drop), libc::ENOENT, "no such");
    is_refused(pool.file("films", both()).map(drop), libc::EISDIR, "directory");
    let (mut numbers, mut model) = (Numbers(2), Vec::new());
    let new = pool.file("/films/new", both().create(true).mode(0o640)).unwrap();
    for _ in 0..100 {
        let (offset, length) = (numbers.below(8 << 20) as usize, length(&mut numbers));
        let data = numbers.bytes(length);
        assert_eq!(new.write_at(&data, offset as u64).unwrap(), length);
        put(&mut model, offset, &data);
        let mut read = vec![0; length + 5000];
        let count = new.read_at(&mut read, offset as u64).unwrap();
        assert!(read[..count] == model[offset..(offset + length + 5000).min(model.len())]);
    }
    new.sync().unwrap();
    assert_eq!(new.size().unwrap(), model.len() as u64);
    old.close().unwrap();
    new.close().unwrap();
    pool.close().unwrap();
    world.ok("check a.img b.img");
    world.ok("mount tank mount");
    assert!(fs::read(world.mountpoint().join("films/new")).unwrap() == model);
    assert_eq!(fs::metadata(world.mountpoint().join("films/new")).unwrap().mode(), 0o100640);
    world.ok("umount mount");
    let pool = Pool::open(&devices, PoolOptions { read_only: true, ..PoolOptions::default() }).unwrap();
    is_refused(pool.file("films/new", both()).map(drop), libc::EROFS, "reading only");
    let file = pool.file("films/new", Options::new().read(true)).unwrap();
    let mut whole = vec![0; model.len()];
    assert_eq!(file.read_at(&mut whole, 0).unwrap(), model.len());
    assert!(whole == model);
    is_refused(pool.close(), libc::EBUSY, "close them first");
    drop(file);
    // The last file let go of the devices.
    Pool::open(&devices, PoolOptions::default()).unwrap().close().unwrap();
}

#[test]
fn a_c_program_copies_into_a_mounted_and_into_an_unmounted_pool() {
    if !can_mount("a_c_program_copies_into_a_mounted_and_into_an_unmounted_pool") {
        return;
    }
    if Command::new("cc").arg("--version").output().is_err() {
        eprintln!("SKIPPED: a_c_program_copies_into_a_mounted_and_into_an_unmounted_pool needs a C compiler");
        return;
    }
    let world = World::with_pool();
    let library = Path::new(env!("CARGO_MANIFEST_DIR")).join("../libstere");
    let built = std::env::current_exe().unwrap().parent().unwrap().to_owned();
    let mut compile = Command::new("cc");
    compile.args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic", "-o"]).arg(world.path("copy"));
    compile.arg(library.join("examples/copy.c")).arg("-I").arg(library.join("include"));
    compile.arg(built.join("libstere.so")).arg(format!("-Wl,-rpath,{}", built.display()));
    assert!(compile.status().unwrap().success());
    let content = Numbers(3).bytes(5 * MIB + 77);
    fs::write(world.path("source"), &content).unwrap();
    let copy =
        |words: &[&str]| Command::new(world.path("copy")).args(words).current_dir(&world.folder).output().unwrap();
    let done = copy(&["source", "direct", "a.img", "b.img"]);
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    world.ok("mount tank mount");
    let done = copy(&["source", "mount/mounted"]);
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    for name in ["direct", "mounted"] {
        assert!(fs::read(world.mountpoint().join(name)).unwrap() == content, "{name}");
    }
    let refused = copy(&["source", "direct", "a.img", "b.img"]);
    let told = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && told.contains("a.img") && told.contains("in use"), "{told}");
    let refused = copy(&["source", "elsewhere"]);
    assert!(!refused.status.success() && String::from_utf8_lossy(&refused.stderr).contains("not on a stere mount"));
    world.ok("umount mount");
}
