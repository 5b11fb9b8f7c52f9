//! What an owner has done and could not answer is not done again by the next one (P-266).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fuse_wire::abi::opcode;

use crate::site::{Kernel, Pending, ROOT, Serving, Site, caller, until};

const APPEND: i32 = libc::O_WRONLY | libc::O_APPEND;

#[test]
fn each_line_is_appended_once_whatever_owner_answers() {
    let site = Site::new();
    let mut serving = site.serve();
    let kernel = site.client(1);
    let (node, handle) = kernel.create(ROOT, "log", APPEND).expect("a file");
    let mut lines = Vec::new();
    for round in 0..20 {
        let asked: Vec<Pending> = (0..10)
            .map(|at| {
                lines.push(format!("{round:03} {at:03}\n"));
                kernel.ask_write(node, handle, 0, lines[lines.len() - 1].as_bytes(), APPEND)
            })
            .collect();
        std::thread::sleep(Duration::from_micros(round * 20));
        site.announce(None);
        serving.owner.cut_all();
        // What it did is durable, whoever has heard of it.
        serving.door.sync().expect("durable");
        site.crash(serving);
        serving = site.serve();
        asked.iter().for_each(|one| drop(one.wait().expect("appended")));
    }
    let all = kernel.read(node, handle, 0, 100_000).expect("read");
    let mut found: Vec<String> = all.chunks(8).map(|line| String::from_utf8_lossy(line).into_owned()).collect();
    found.sort();
    assert_eq!(found, lines, "each once");
    site.hand_over(serving);
}

/// A machine whose owner has done what it asked for, and which cannot hear so until it may connect again.
struct Deaf {
    kernel: Kernel,
    may_connect: Arc<AtomicBool>,
}

impl Deaf {
    fn new(site: &Site) -> Deaf {
        let may_connect = Arc::new(AtomicBool::new(true));
        let (find, may) = (site.finder(), Arc::clone(&may_connect));
        Deaf { kernel: site.client_with(1, move || find().filter(|_| may.load(Ordering::Acquire))), may_connect }
    }

    /// Asks, and hears nothing more once it is done.
    fn ask(&self, is_done: impl Fn() -> bool, ask: impl FnOnce(&Kernel) -> Pending) -> Pending {
        let pending = ask(&self.kernel);
        until("it is done", is_done);
        self.may_connect.store(false, Ordering::Release);
        self.kernel.link.cut();
        assert!(!pending.is_there_within(Duration::from_millis(10)), "a commit takes longer");
        pending
    }
}

/// Somebody else has changed the root just now, so that what is done there is answered when it is committed.
fn keep_busy(other: &Kernel, name: &str) {
    // The first one may have waited, and all is committed then.
    for round in 0..2 {
        other.mkdir(ROOT, &format!("{name} {round}")).expect("made");
    }
}

/// What the owner itself sees, committed or not.
fn is_gone(serving: &Serving, name: &str) -> bool {
    let found = serving.door.filesystem().lookup(&caller(), ROOT, name.as_bytes());
    matches!(found, Err(stere_naming::Error::NotFound))
}

/// Names that were answered nobody, and that somebody else has used since.
#[test]
fn a_name_that_another_machine_made_since_is_not_touched() {
    let site = Site::new();
    let first = site.serve();
    let (deaf, other) = (Deaf::new(&site), site.client(2));
    for name in ["removed", "source"] {
        deaf.kernel.create(ROOT, name, libc::O_WRONLY).expect("a file");
    }
    site.delay_commits(Duration::from_millis(200));
    keep_busy(&other, "one");
    let removing = deaf.ask(|| is_gone(&first, "removed"), |kernel| kernel.ask(opcode::UNLINK, ROOT, &[b"removed\0"]));
    let (node, handle) = other.create(ROOT, "removed", libc::O_WRONLY).expect("made again");
    other.write(node, handle, 0, b"of the other").expect("written");
    other.fsync(node, handle).expect("durable");
    site.crash(first);
    let second = site.serve();
    assert_eq!(other.lookup(ROOT, "removed"), Ok((node, 12)));
    deaf.may_connect.store(true, Ordering::Release);
    removing.wait().expect("it was removed");
    assert_eq!(other.lookup(ROOT, "removed"), Ok((node, 12)), "what was made since is another's");

    site.delay_commits(Duration::from_millis(200));
    let rename: [&[u8]; 2] = [&ROOT.to_ne_bytes(), b"source\0target\0"];
    keep_busy(&other, "two");
    let renaming = deaf.ask(|| is_gone(&second, "source"), |kernel| kernel.ask(opcode::RENAME, ROOT, &rename));
    let (node, _) = other.create(ROOT, "source", libc::O_WRONLY).expect("made again");
    site.crash(second);
    let third = site.serve();
    assert_eq!(other.lookup(ROOT, "source"), Ok((node, 0)));
    deaf.may_connect.store(true, Ordering::Release);
    renaming.wait().expect("it was renamed");
    assert_eq!(other.lookup(ROOT, "source"), Ok((node, 0)), "what was made since is not renamed");
    assert!(other.lookup(ROOT, "target").is_ok());
    site.hand_over(third);
}

/// A directory that was made and could not be answered is told as made; one that somebody else has made is not.
#[test]
fn who_made_a_directory_is_known() {
    let site = Site::new();
    let first = site.serve();
    let (deaf, other) = (Deaf::new(&site), site.client(2));
    deaf.kernel.mkdir(ROOT, "first").expect("it is connected");
    let mkdir = |kernel: &Kernel, name: &str| {
        kernel.ask(opcode::MKDIR, ROOT, &[&[0xed, 1, 0, 0, 0, 0, 0, 0], format!("{name}\0").as_bytes()])
    };
    site.delay_commits(Duration::from_millis(200));
    keep_busy(&other, "one");
    let is_made = || !is_gone(&first, "mine");
    let made = deaf.ask(is_made, |kernel| mkdir(kernel, "mine"));
    // Asked of no owner before the other makes it.
    let late = mkdir(&deaf.kernel, "others");
    other.mkdir(ROOT, "others").expect("made");
    site.crash(first);
    let second = site.serve();
    deaf.may_connect.store(true, Ordering::Release);
    made.wait().expect("it was made by this machine");
    assert_eq!(late.wait().map(drop), Err(libc::EEXIST));
    site.hand_over(second);
}
