//! Names and attributes are answered before they are committed, and not lost with the owner (P-290).
//!
//! A machine has the next owner do once more what was lost. What it was told of others' changes, and whatever of its own came of these, is
//! committed: so nobody else's loss takes anything from it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use fuse_wire::abi::structs::{AttrOut, GetattrIn, SetattrIn, split};
use fuse_wire::abi::{fattr, opcode};
use zerocopy::IntoBytes;

use crate::site::{Kernel, PATIENCE, ROOT, Site, until};

/// Much longer than what is answered before it.
const SLOW_COMMIT: Duration = Duration::from_millis(400);
const GRACE: Duration = Duration::from_secs(20);

fn set_attributes(kernel: &Kernel, node: u64, set: &SetattrIn) -> Result<(), i32> {
    kernel.call(opcode::SETATTR, node, &[set.as_bytes()]).map(drop)
}

fn set_mtime(kernel: &Kernel, node: u64, seconds: u64) -> Result<(), i32> {
    set_attributes(kernel, node, &SetattrIn { valid: fattr::MTIME, mtime: seconds, ..SetattrIn::default() })
}

fn set_mode(kernel: &Kernel, node: u64, mode: u32) -> Result<(), i32> {
    set_attributes(kernel, node, &SetattrIn { valid: fattr::MODE, mode, ..SetattrIn::default() })
}

/// What a kernel is told of an inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Told {
    node: u64,
    mode: u32,
    size: u64,
    mtime: (u64, u32),
    ctime: (u64, u32),
    links: u32,
}

fn told(kernel: &Kernel, node: u64) -> Told {
    let bytes = kernel.call(opcode::GETATTR, node, &[GetattrIn::default().as_bytes()]).expect("it is there");
    let attr = split::<AttrOut>(&bytes).expect("attributes").0.attr;
    Told {
        node: attr.ino,
        mode: attr.mode,
        size: attr.size,
        mtime: (attr.mtime, attr.mtimensec),
        ctime: (attr.ctime, attr.ctimensec),
        links: attr.nlink,
    }
}

#[test]
fn what_was_answered_before_its_commit_is_there_at_the_next_owner() {
    let site = Site::new();
    let first = site.serve();
    let kernel = site.client(1);
    let (removed, _) = kernel.create(ROOT, "removed", libc::O_WRONLY).expect("a file");
    kernel.fsync(removed, 0).expect("durable");
    site.delay_commits(SLOW_COMMIT);
    let begun = Instant::now();
    let folder = kernel.mkdir(ROOT, "folder").expect("a directory");
    let (file, handle) = kernel.create(folder, "file", libc::O_RDWR).expect("a file");
    kernel.write(file, handle, 0, b"some bytes").expect("written");
    set_mtime(&kernel, file, 77).expect("set");
    set_mode(&kernel, file, 0o100_600).expect("set");
    kernel.call(opcode::SYMLINK, folder, &[b"link\0", b"target\0"]).expect("a link");
    kernel.unlink(ROOT, "removed").expect("removed");
    let (again, _) = kernel.create(ROOT, "removed", libc::O_WRONLY).expect("another one of the name");
    kernel.mkdir(folder, "gone").expect("made");
    kernel.call(opcode::RMDIR, folder, &[b"gone\0"]).expect("removed");
    assert!(begun.elapsed() < SLOW_COMMIT / 2, "nothing waited for the commit: {:?}", begun.elapsed());
    assert!(kernel.link.has_unsynced());
    // Removing a name changes its directory, and the answer does not tell when.
    kernel.mkdir(folder, "last").expect("made");
    let before = [folder, file, again].map(|node| told(&kernel, node));
    site.crash(first);
    let second = site.serve_with_grace(GRACE);
    assert_eq!([folder, file, again].map(|node| told(&kernel, node)), before, "also the times");
    assert_eq!(kernel.read(file, handle, 0, 100), Ok(b"some bytes".to_vec()));
    assert_eq!(kernel.lookup(ROOT, "removed"), Ok((again, 0)));
    assert_eq!(kernel.lookup(folder, "gone"), Err(libc::ENOENT));
    // All of it is durable now.
    site.crash(second);
    let third = site.serve();
    let other = site.client(2);
    assert_eq!(other.lookup(ROOT, "folder").map(|(node, _)| node), Ok(folder));
    assert!(other.lookup(folder, "link").is_ok());
    let (made, _) = other.create(folder, "new", libc::O_WRONLY).expect("a file");
    assert!(![folder, file, again, removed].contains(&made), "no number is given twice");
    site.hand_over(third);
}

/// Its log may be away because somebody else has the pool.
#[test]
fn an_owner_that_cannot_commit_answers_nothing_early_after_a_second() {
    let site = Site::new();
    let serving = site.serve();
    let kernel = site.client(1);
    let folder = kernel.mkdir(ROOT, "folder").expect("made");
    kernel.fsync(folder, 0).expect("durable");
    site.delay_commits(Duration::from_secs(3));
    kernel.mkdir(folder, "early").expect("made");
    std::thread::sleep(Duration::from_millis(1200));
    let late = kernel.ask(opcode::MKDIR, folder, &[&[0xed, 1, 0, 0, 0, 0, 0, 0], b"late\0"]);
    assert!(!late.is_there_within(Duration::from_millis(500)));
    late.wait().expect("made, and committed");
    site.hand_over(serving);
}

#[test]
fn what_others_have_made_is_seen_when_it_is_committed() {
    let site = Site::new();
    let first = site.serve();
    let (one, other) = (site.client(1), site.client(2));
    let (shared, own) = (one.mkdir(ROOT, "shared").expect("made"), other.mkdir(ROOT, "own").expect("made"));
    other.fsync(shared, 0).expect("durable");
    site.delay_commits(SLOW_COMMIT);
    one.mkdir(shared, "first").expect("made");
    let looks = other.ask(opcode::LOOKUP, shared, &[b"first\0"]);
    let makes = other.ask(opcode::MKDIR, shared, &[&[0xed, 1, 0, 0, 0, 0, 0, 0], b"second\0"]);
    other.mkdir(own, "unrelated").expect("made");
    assert!(!looks.is_there_within(SLOW_COMMIT / 4), "it may be lost with the owner and its machine");
    assert!(!makes.is_there_within(SLOW_COMMIT / 4), "where it lies is another's");
    // Both are lost together.
    one.link.give_up();
    drop(one);
    site.crash(first);
    let second = site.serve_with_grace(Duration::from_secs(1));
    assert_eq!(looks.wait().map(|entry| entry[..8] == [0; 8]), Ok(true), "there is no such name");
    makes.wait().expect("made");
    assert!(other.lookup(own, "unrelated").is_ok() && other.lookup(shared, "second").is_ok());
    site.hand_over(second);
}

/// Machines that are lost together with their owner take nothing with them that others saw, or built on.
#[test]
fn what_was_seen_stays_when_its_machine_and_the_owner_are_lost() {
    let site = Site::new();
    let mut serving = site.serve();
    let stays = site.client(2);
    let mut seen = BTreeSet::new();
    for round in 0..12_u64 {
        let goes = site.client(1);
        site.delay_commits(Duration::from_millis(round % 4 * 7));
        std::thread::scope(|scope| {
            let makes = scope.spawn(|| {
                let all = (0..40).map(|at| goes.mkdir(ROOT, &format!("r{round} n{at}")));
                all.take_while(Result::is_ok).count()
            });
            let deadline = Instant::now() + Duration::from_millis(20 + round * 5);
            for at in (0..40).cycle() {
                let name = format!("r{round} n{at}");
                if !seen.contains(&name) && stays.lookup(ROOT, &name).is_ok() {
                    let own = format!("{name} was seen");
                    stays.mkdir(ROOT, &own).expect("made");
                    seen.extend([name, own]);
                }
                if Instant::now() > deadline {
                    break;
                }
            }
            goes.link.give_up();
            makes.join().expect("no panic");
        });
        drop(goes);
        site.crash(serving);
        serving = site.serve_with_grace(Duration::from_millis(300));
        for name in &seen {
            assert!(stays.lookup(ROOT, name).is_ok(), "round {round}: {name} was seen");
        }
    }
    assert!(seen.len() > 20, "only {} names were seen", seen.len());
    site.hand_over(serving);
}

/// Numbers that look random and are the same each time.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

/// What there has to be.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Expected {
    node: u64,
    is_directory: bool,
    mode: u32,
    mtime: Option<u64>,
    content: Vec<u8>,
}

type Tree = BTreeMap<(u64, String), Expected>;

/// One change by one machine, noted as it was answered.
fn change(kernel: &Kernel, tree: &mut Tree, directories: &[u64], numbers: &mut Numbers) {
    let directory = directories[numbers.below(directories.len() as u64) as usize];
    let name = format!("n{}", numbers.below(6));
    let key = (directory, name.clone());
    let found = tree.get(&key).cloned();
    match (numbers.below(8), found) {
        (0..3, None) => {
            let (node, handle) = kernel.create(directory, &name, libc::O_RDWR).expect("made");
            kernel.release(node, handle).expect("closed");
            tree.insert(key, Expected { node, is_directory: false, mode: 0o100_644, mtime: None, content: Vec::new() });
        }
        (3, None) => {
            let node = kernel.mkdir(directory, &name).expect("made");
            tree.insert(key, Expected { node, is_directory: true, mode: 0o40_755, mtime: None, content: Vec::new() });
        }
        (0 | 1, Some(known)) => {
            match known.is_directory {
                true => kernel.call(opcode::RMDIR, directory, &[format!("{name}\0").as_bytes()]).map(drop),
                false => kernel.unlink(directory, &name),
            }
            .expect("removed");
            tree.remove(&key);
        }
        (2 | 3, Some(known)) if !known.is_directory => {
            let text = format!("{}", numbers.below(1 << 40)).into_bytes();
            kernel.write(known.node, 0, 0, &text).expect("written");
            let mut content = known.content.clone();
            content.splice(..text.len().min(content.len()), text);
            tree.insert(key, Expected { content, mtime: None, ..known });
        }
        (4, Some(known)) => {
            let mtime = numbers.below(1 << 30);
            set_mtime(kernel, known.node, mtime).expect("set");
            tree.insert(key, Expected { mtime: Some(mtime), ..known });
        }
        (5, Some(known)) => {
            let mode = known.mode & libc::S_IFMT | numbers.below(0o1000) as u32;
            set_mode(kernel, known.node, mode).expect("set");
            tree.insert(key, Expected { mode, ..known });
        }
        (6, Some(known)) if !known.is_directory => {
            let target = (directory, format!("m{}", numbers.below(6)));
            kernel.rename(directory, &name, directory, &target.1).expect("renamed");
            tree.remove(&key);
            tree.insert(target, known);
        }
        (7, Some(known)) if !known.is_directory && !known.content.is_empty() => {
            let size = numbers.below(known.content.len() as u64 + 1);
            let cut = SetattrIn { valid: fattr::SIZE, size, ..SetattrIn::default() };
            set_attributes(kernel, known.node, &cut).expect("cut");
            let content = known.content[..size as usize].to_vec();
            tree.insert(key, Expected { content, mtime: None, ..known });
        }
        _ => {}
    }
}

fn check(kernel: &Kernel, tree: &Tree, directories: &[u64], round: usize) {
    for directory in directories {
        for name in (0..6).flat_map(|at| [format!("n{at}"), format!("m{at}")]) {
            let Some(expected) = tree.get(&(*directory, name.clone())) else {
                assert_eq!(kernel.lookup(*directory, &name), Err(libc::ENOENT), "round {round}: {name}");
                continue;
            };
            assert_eq!(
                kernel.lookup(*directory, &name),
                Ok((expected.node, told(kernel, expected.node).size)),
                "round {round}: {name}"
            );
            let found = told(kernel, expected.node);
            assert_eq!(found.mode, expected.mode, "round {round}: {name}");
            assert!(expected.mtime.is_none_or(|mtime| found.mtime.0 == mtime), "round {round}: {name}, {found:?}");
            assert_eq!(found.links, if expected.is_directory { 2 } else { 1 }, "round {round}: {name}");
            if !expected.is_directory {
                assert_eq!(
                    kernel.read(expected.node, 0, 0, 1000).as_ref(),
                    Ok(&expected.content),
                    "round {round}: {name}"
                );
            }
        }
    }
}

/// P-291: also the times that were set, whatever is written again.
#[test]
fn any_changes_come_to_the_same_at_the_next_owner() {
    for seed in 0..4 {
        let site = Site::new();
        let mut serving = site.serve();
        let kernel = site.client(1);
        let mut numbers = Numbers(seed);
        let directories: Vec<u64> = (0..3).map(|at| kernel.mkdir(ROOT, &format!("d{at}")).expect("made")).collect();
        let mut tree = Tree::new();
        for round in 0..8 {
            site.delay_commits(Duration::from_millis(numbers.below(40)));
            (0..60).for_each(|_| change(&kernel, &mut tree, &directories, &mut numbers));
            site.crash(serving);
            serving = site.serve_with_grace(GRACE);
            check(&kernel, &tree, &directories, round);
        }
        site.hand_over(serving);
    }
}

#[test]
fn an_answer_that_is_sent_again_is_not_kept_for_ever() {
    let site = Site::new();
    let serving = site.serve();
    let kernel = site.client(1);
    for round in 0..40 {
        let name = format!("n{round}\0");
        let made = kernel.ask(opcode::MKDIR, ROOT, &[&[0xed, 1, 0, 0, 0, 0, 0, 0], name.as_bytes()]);
        std::thread::sleep(Duration::from_micros(round * 50));
        kernel.link.cut();
        made.wait().expect("made");
        until("it is committed, and that is heard", || !kernel.link.has_unsynced());
    }
    site.hand_over(serving);
}

/// A machine that cannot tell whether it has all answers owes nothing: others' requests may have come of those that it lacks.
#[test]
fn connections_that_break_lose_nothing_either() {
    let site = Site::new();
    let mut serving = site.serve();
    let kernel = site.client(1);
    let mut made = 0;
    for round in 0..10 {
        site.delay_commits(Duration::from_millis(round * 5));
        let asked: Vec<_> = (0..30)
            .map(|at| {
                if at % 10 == 5 {
                    kernel.link.cut();
                }
                let name = format!("r{round} n{at}\0");
                kernel.ask(opcode::MKDIR, ROOT, &[&[0xed, 1, 0, 0, 0, 0, 0, 0], name.as_bytes()])
            })
            .collect();
        if round % 2 == 0 {
            asked.iter().for_each(|one| drop(one.wait().expect("made")));
        }
        site.crash(serving);
        serving = site.serve_with_grace(GRACE);
        if round % 2 == 1 {
            asked.iter().for_each(|one| drop(one.wait().expect("made")));
        }
        made += asked.len();
        for at in 0..30 {
            assert!(kernel.lookup(ROOT, &format!("r{round} n{at}")).is_ok(), "round {round}, name {at}");
        }
    }
    assert_eq!(made, 300);
    let deadline = Instant::now() + PATIENCE;
    while kernel.link.has_unsynced() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(!kernel.link.has_unsynced(), "all is committed before long");
    site.hand_over(serving);
}
