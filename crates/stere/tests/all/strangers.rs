//! Strangers at a mount's public socket (P-180, P-181): open files that never let go, slow and silent clients, mounts that are not for them. Needs
//! root and /dev/fuse, and says loudly when it skips.

use crate::support;

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use fuse_wire::{Attributes, Entry, Filesystem, Operation, Request, Session, TransportChoice, Unmount};
use stere_client_wire::{handles, meet};
use support::{NOBODY, World, can_mount};

/// One at a time: a process that is forked by one would have the open files of the others.
static ALONE: Mutex<()> = Mutex::new(());

const FIND: &str = r#"{"question":"capabilities"}"#;

/// A file system of a stranger with one file, which answers all but that its file is closed.
#[derive(Clone, Default)]
struct Silent {
    held: Arc<Mutex<Vec<Request>>>,
}

impl Silent {
    fn attributes(node: u64) -> Attributes {
        let mode = if node == 1 { libc::S_IFDIR | 0o755 } else { libc::S_IFREG | 0o666 };
        Attributes { inode: node, mode, links: 1, ..Attributes::default() }
    }

    fn let_go(&self) {
        self.held.lock().unwrap().drain(..).for_each(Request::reply_ok);
    }
}

impl Filesystem for Silent {
    fn handle(&self, request: Request) {
        let ttl = Duration::from_secs(3600);
        enum Way {
            Entry,
            Attributes(u64),
            Open,
            Hold,
            Done,
            Nothing,
            Unknown,
        }
        let way = match request.operation() {
            Operation::Lookup { .. } => Way::Entry,
            Operation::Getattr { node, .. } => Way::Attributes(node),
            Operation::Open { .. } => Way::Open,
            Operation::Flush { .. } => Way::Hold,
            Operation::Release { .. } | Operation::Destroy => Way::Done,
            Operation::Forget { .. } | Operation::BatchForget { .. } => Way::Nothing,
            _ => Way::Unknown,
        };
        match way {
            Way::Entry => {
                let attributes = Silent::attributes(2);
                request.reply_entry(&Entry { node: 2, generation: 0, entry_ttl: ttl, attributes_ttl: ttl, attributes });
            }
            Way::Attributes(node) => request.reply_attributes(&Silent::attributes(node), ttl),
            Way::Open => request.reply_open(1, 0),
            Way::Hold => self.held.lock().unwrap().push(request),
            Way::Done => request.reply_ok(),
            Way::Nothing => request.reply_none(),
            Way::Unknown => request.reply_error(libc::ENOSYS),
        }
    }
}

/// Connects to the mount's socket.
fn connect(world: &World) -> UnixStream {
    let handle = File::options().read(true).custom_flags(libc::O_PATH).open(world.mountpoint()).unwrap();
    let stream = meet::connect(&handle).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream
}

fn answer(stream: &UnixStream) -> String {
    let mut line = String::new();
    match BufReader::new(stream).read_line(&mut line) {
        Ok(_) => line,
        Err(error) => error.to_string(),
    }
}

/// Runs what must end within so many seconds.
fn within(world: &World, line: &str, seconds: u64) {
    let mut child = world.command(line).stdout(Stdio::null()).spawn().unwrap();
    let deadline = Instant::now() + Duration::from_secs(seconds);
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            assert!(status.success(), "stere {line}: {status}");
            return;
        }
        assert!(Instant::now() < deadline, "stere {line} takes longer than {seconds} s");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Passes the file in all ways: as the only handle, beside a good one, behind a question, and far more often than there are places.
fn attack(world: &World, point: &std::path::Path) {
    let stuck = File::open(point.join("file")).unwrap();
    let good = File::options().read(true).custom_flags(libc::O_PATH).open(world.mountpoint()).unwrap();
    let mut streams = Vec::new();
    for turn in 0..80 {
        let Ok(stream) = meet::connect(&good) else { continue };
        let sent = match turn % 4 {
            0 => handles::send(&stream, &[stuck.as_fd()]),
            1 => handles::send(&stream, &[good.as_fd(), stuck.as_fd()]),
            2 => handles::send(&stream, &[stuck.as_fd(), stuck.as_fd(), stuck.as_fd(), stuck.as_fd()]),
            _ => handles::send(&stream, &[good.as_fd()]),
        };
        let sent = sent.and_then(|()| (&stream).write_all(format!("{FIND}\n").as_bytes()));
        let sent = sent.and_then(|()| handles::send(&stream, &[stuck.as_fd()]));
        if turn % 2 == 0 {
            streams.push((stream, sent.is_ok()));
        }
    }
    // Open handles would keep the mount busy, which is everybody's right.
    drop(good);
    std::mem::forget((streams, stuck));
}

/// Ends the attacker, whose files are let go of meanwhile: whoever closes one would wait for ever.
struct Attacker {
    process: i32,
    silent: Silent,
}

impl Drop for Attacker {
    fn drop(&mut self) {
        // SAFETY: a child of this process that nobody waited for yet.
        unsafe { libc::kill(self.process, libc::SIGKILL) };
        for _ in 0..1000 {
            self.silent.let_go();
            // SAFETY: as above.
            if unsafe { libc::waitpid(self.process, std::ptr::null_mut(), libc::WNOHANG) } != 0 {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        // Those that the receiver and its children hold.
        for _ in 0..100 {
            self.silent.let_go();
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

#[test]
fn a_file_that_never_closes_hangs_nobody_but_who_passes_it() {
    if !can_mount("a_file_that_never_closes_hangs_nobody_but_who_passes_it") {
        return;
    }
    let _turn = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let world = World::with_pool();
    world.ok("mount tank mount");
    let (silent, point) = (Silent::default(), world.path("other"));
    std::fs::create_dir(&point).unwrap();
    let mut options = fuse_wire::Options::default();
    options.transport.choice = TransportChoice::Device;
    let session = Session::mount(silent.clone(), &point, &options).unwrap();
    // A process of its own has the file: whatever closes it waits, so this one must never have it, nor start others while it does.
    // SAFETY: the child makes system calls only and ends without unwinding.
    let attacker = unsafe { libc::fork() };
    if attacker == 0 {
        attack(&world, &point);
        loop {
            std::thread::sleep(Duration::from_secs(1));
        }
    }
    assert!(attacker > 0);
    let attacker = Attacker { process: attacker, silent: silent.clone() };
    std::thread::sleep(Duration::from_secs(2));
    std::thread::sleep(Duration::from_secs(1));
    assert!(!silent.held.lock().unwrap().is_empty(), "somebody closes the files, and waits");
    // Everybody else is served, and the mount ends and begins again.
    let said = world.command_of_nobody("find name=nothing mount");
    let said = { said }.output().unwrap();
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    within(&world, "umount mount", 30);
    within(&world, "mount tank mount", 30);
    within(&world, "capabilities mount", 30);
    within(&world, "umount mount", 30);
    drop(attacker);
    session.unmounter().unmount(Unmount::Force).unwrap();
    drop(session);
    world.ok("check a.img b.img");
}

#[test]
fn open_files_that_come_with_requests_end_their_session() {
    if !can_mount("open_files_that_come_with_requests_end_their_session") {
        return;
    }
    let _turn = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let world = World::with_pool();
    world.ok("mount tank mount");
    let path = world.mountpoint().join("file");
    std::fs::write(&path, vec![1; 100_000]).unwrap();
    let file = File::options().read(true).write(true).open(&path).unwrap();
    let memory = rustix::fs::memfd_create(c"test", rustix::fs::MemfdFlags::ALLOW_SEALING).unwrap();
    rustix::fs::ftruncate(&memory, 1 << 20).unwrap();
    rustix::fs::fcntl_add_seals(&memory, rustix::fs::SealFlags::SHRINK | rustix::fs::SealFlags::GROW).unwrap();
    let stream = connect(&world);
    handles::send(&stream, &[file.as_fd(), memory.as_fd()]).unwrap();
    (&stream).write_all(b"{\"question\":\"library\",\"version\":1}\n").unwrap();
    assert!(answer(&stream).contains(r#""answer":"library""#));
    let before = std::fs::read_dir(format!("/proc/{}/fd", world.daemon())).unwrap().count();
    // The kernel may refuse it already.
    drop(handles::send(&stream, &[file.as_fd()]));
    let said = answer(&stream);
    assert!(said.is_empty() || said.contains("reset"), "the session is over: {said}");
    drop((stream, file));
    let after = std::fs::read_dir(format!("/proc/{}/fd", world.daemon())).unwrap().count();
    assert!(after <= before, "the daemon got none of them: {before} and {after}");
    within(&world, "umount mount", 30);
}

#[test]
fn slow_and_silent_clients_take_places_of_their_own_user_only() {
    if !can_mount("slow_and_silent_clients_take_places_of_their_own_user_only") {
        return;
    }
    let _turn = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let world = World::with_pool();
    world.ok("mount tank mount");
    std::fs::set_permissions(&world.folder, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let silent: Vec<UnixStream> = (0..60).map(|_| connect(&world)).collect();
    let slow = connect(&world);
    let begun = Instant::now();
    // One with the right handle that sends a byte now and then has so long for the whole of it.
    let good = File::options().read(true).custom_flags(libc::O_PATH).open(world.mountpoint()).unwrap();
    let said = world.command_of_nobody("find name=nothing mount").output().unwrap();
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    let refused = world.run("find name=nothing mount");
    assert_ne!(refused.code, 0, "this user has no place left");
    assert!(refused.err.contains("try again"), "told why: {}", refused.err);
    drop((silent, slow));
    let slow = loop {
        let stream = connect(&world);
        if handles::send(&stream, &[good.as_fd()]).is_ok() && begun.elapsed() > Duration::from_secs(1) {
            break stream;
        }
        std::thread::sleep(Duration::from_millis(200));
    };
    drop(good);
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(40) && (&slow).write_all(b" ").is_ok() {
        std::thread::sleep(Duration::from_millis(500));
    }
    assert!(
        begun.elapsed() < Duration::from_secs(25),
        "the whole question has one limit of time: {:?}",
        begun.elapsed()
    );
    drop(slow);
    within(&world, "umount mount", 30);
}

/// Whether an ordinary user can mount here. Says what is missing.
fn users_can_mount(test: &str) -> bool {
    use std::os::unix::fs::PermissionsExt;
    let has_helper = Command::new("fusermount3").arg("-V").stdout(Stdio::null()).status().is_ok();
    let is_open = std::fs::metadata("/dev/fuse").is_ok_and(|fuse| fuse.permissions().mode() & 0o006 == 0o006);
    if !has_helper || !is_open {
        eprintln!("SKIPPED: {test} needs fusermount3 and /dev/fuse open to users (mode 0666), which are not here");
    }
    has_helper && is_open
}

/// What the daemon of nobody's mount answers to a thread of another user that has a handle of the mount.
fn asked_as(user: u32, world: &World) -> String {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let point = world.mountpoint().display().to_string();
    let line = mounts.lines().find(|line| line.split(' ').nth(4) == Some(&point)).unwrap();
    let number = line.split(' ').nth(2).unwrap();
    let places = [format!("/run/user/{NOBODY}/stere/{number}"), format!("/tmp/stere-{NOBODY}/{number}")];
    let handle = File::options().read(true).custom_flags(libc::O_PATH).open(&point).unwrap();
    let ask = move || {
        // SAFETY: the system call itself, unlike the library's function, changes this thread only, which ends here.
        let code = unsafe { libc::syscall(libc::SYS_setresuid, user, user, user) };
        assert_eq!(code, 0);
        let stream = places.iter().find_map(|place| UnixStream::connect(place).ok()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        // Who is refused may find the other end shut already.
        let sent = handles::send(&stream, &[handle.as_fd()]);
        drop(sent.and_then(|()| (&stream).write_all(format!("{FIND}\n").as_bytes())));
        answer(&stream)
    };
    std::thread::spawn(ask).join().unwrap()
}

#[test]
fn a_private_mount_answers_its_owner_and_root_only() {
    if !can_mount("a_private_mount_answers_its_owner_and_root_only") {
        return;
    }
    let _turn = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if !users_can_mount("a_private_mount_answers_its_owner_and_root_only") {
        return;
    }
    let world = World::new();
    std::os::unix::fs::chown(&world.folder, Some(NOBODY), Some(NOBODY)).unwrap();
    std::os::unix::fs::chown(world.mountpoint(), Some(NOBODY), Some(NOBODY)).unwrap();
    let nobody = |line: &str| {
        let said = world.command_of_nobody(line).output().unwrap();
        assert!(said.status.success(), "stere {line}: {}", String::from_utf8_lossy(&said.stderr));
    };
    nobody("create mine a.img,size=128M");
    nobody("mount mine mount");
    nobody("find name=nothing mount");
    // A stranger gets as far as an O_PATH handle of the mount point, and no further.
    let mut stranger = world.command_of_nobody("find name=nothing mount");
    let said = stranger.uid(NOBODY - 1).gid(NOBODY - 1).output().unwrap();
    assert!(!said.status.success());
    let told = String::from_utf8_lossy(&said.stderr).into_owned();
    assert!(told.contains("only") || told.contains("does not answer"), "{told}");
    // One who got a handle from somebody else, and asks past the checks of our own client, is refused by the daemon.
    let told = asked_as(NOBODY - 1, &world);
    assert!(told.contains("for the user who made it only"), "{told}");
    let told = asked_as(NOBODY, &world);
    assert!(told.contains(r#""answer":"capabilities""#), "{told}");
    nobody("umount mount");
}
