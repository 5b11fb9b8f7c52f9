//! The index of searches finds what a pass over all inodes finds, no more and no less, whatever is done before and across crashes (P-135).

use crate::support;

use std::collections::BTreeSet;

use stere_format::{FindIndexValue, Key, key};
use stere_naming::{Caller, FileSystem, Io, OpenFlags, ROOT, SetAttributes, SetMode};
use support::edits::Random;
use support::files::{assert_clean, make, mkdir};
use support::{Rig, caller};

const MIB: u64 = 1 << 20;

/// Searches that an index may serve, alone or beside others, and some that it must not.
const SEARCHES: [&str; 18] = [
    "size>1M",
    "size>=1M type=file",
    "size=3M",
    "size>900K",
    "size>2M or user.color=red",
    "size>2M or user.color=red or f1*",
    "user.color=red",
    "user.color",
    "user.color=r* and size<4M",
    "not user.color=red and size>1M",
    "class=precious",
    "class=precious size>1M",
    "class=normal and links>1",
    "class=scratch",
    "class=precious and links>1",
    "class=scratch or user.shape=round",
    "tier=none",
    "not size>1M",
];

fn who(uid: u32) -> Caller<'static> {
    Caller { uid, gid: uid, ..caller(9) }
}

fn paths(fs: &FileSystem, who: &Caller<'_>, start: u64, search: &str, by_index: bool) -> (BTreeSet<Vec<u8>>, u64) {
    let parsed = fs.search().parse_search(search).unwrap_or_else(|error| panic!("{search}: {error}"));
    let mut find = match by_index {
        true => fs.search().find(who, start, b"start", parsed).unwrap(),
        false => fs.search().find_without_index(who, start, b"start", parsed).unwrap(),
    };
    let mut all = BTreeSet::new();
    while let Some(found) = find.step(who).unwrap() {
        for one in found {
            assert!(all.insert(one.path), "{search} finds something twice");
        }
    }
    (all, find.looked_at)
}

fn compare(fs: &FileSystem, starts: &[u64]) {
    for uid in [0, 1000] {
        for start in starts.iter().filter(|start| fs.getattr(&who(0), **start).is_ok()) {
            for search in SEARCHES {
                let (indexed, _) = paths(fs, &who(uid), *start, search, true);
                let (passed, _) = paths(fs, &who(uid), *start, search, false);
                assert_eq!(indexed, passed, "{search} by {uid} below {start}");
            }
        }
    }
}

fn set(fs: &FileSystem, inode: u64, name: &str, value: &str) {
    fs.setxattr(&caller(3), inode, name.as_bytes(), value.as_bytes(), SetMode::Any, false).unwrap();
}

fn resize(fs: &FileSystem, inode: u64, size: u64) {
    fs.setattr(&caller(4), inode, &SetAttributes { size: Some(size), ..SetAttributes::default() }).unwrap();
}

struct Tree {
    directories: Vec<u64>,
    names: Vec<(u64, String, u64)>,
}

impl Tree {
    /// One random change; what is not possible is none.
    fn change(&mut self, fs: &FileSystem, random: &mut Random, number: usize) {
        let directory = self.directories[random.next(self.directories.len() as u64) as usize];
        let pick = |random: &mut Random, names: &[(u64, String, u64)]| {
            (!names.is_empty()).then(|| names[random.next(names.len() as u64) as usize].clone())
        };
        let name = format!("f{number}");
        match random.next(12) {
            0 => self.directories.push(mkdir(fs, directory, &format!("d{number}"))),
            1 | 2 => self.names.push((directory, name.clone(), make(fs, directory, &name, b"small"))),
            3 => {
                let inode = make(fs, directory, &name, b"");
                resize(fs, inode, random.next(5) * MIB + random.next(2));
                self.names.push((directory, name, inode));
            }
            4 => {
                let Some((_, _, inode)) = pick(random, &self.names) else { return };
                resize(fs, inode, random.next(6) * MIB);
            }
            5 => {
                let Some((_, _, inode)) = pick(random, &self.names) else { return };
                // It may stay in memory.
                let flags = OpenFlags { write: true, ..OpenFlags::default() };
                let handle = fs.open(&caller(4), inode, flags).unwrap();
                fs.write(&caller(4), inode, random.next(4) * MIB, b"end", false).unwrap();
                fs.release(&caller(4), inode, handle).unwrap();
            }
            6 => {
                let inode = pick(random, &self.names).map_or(directory, |(_, _, inode)| inode);
                let name = ["user.color", "user.shape", "user.other"][random.next(3) as usize];
                set(fs, inode, name, ["red", "round", "r,d"][random.next(3) as usize]);
            }
            7 => {
                let Some((_, _, inode)) = pick(random, &self.names) else { return };
                let _may_be_none = fs.removexattr(&caller(4), inode, b"user.color");
            }
            8 => {
                let is_directory = random.next(3) == 0;
                let picked = pick(random, &self.names).filter(|_| !is_directory);
                let inode = picked.map_or(directory, |(_, _, inode)| inode);
                if inode != ROOT {
                    let (key, value) = [("class", "precious"), ("class", ""), ("class", "scratch"), ("tier", "none")]
                        [random.next(4) as usize];
                    let name = format!("user.stere.{key}");
                    let _may_be_unset =
                        fs.setxattr(&caller(4), inode, name.as_bytes(), value.as_bytes(), SetMode::Any, false);
                }
            }
            9 => {
                let Some((_, _, inode)) = pick(random, &self.names) else { return };
                if fs.link(&caller(4), inode, directory, name.as_bytes()).is_ok() {
                    self.names.push((directory, name, inode));
                }
            }
            10 => {
                let Some((parent, old, inode)) = pick(random, &self.names) else { return };
                if fs.rename(&caller(4), parent, old.as_bytes(), directory, name.as_bytes(), 0).is_ok() {
                    self.names.retain(|(one, other, _)| (one, other) != (&parent, &old));
                    self.names.push((directory, name, inode));
                }
            }
            _ => {
                let Some((parent, old, _)) = pick(random, &self.names) else { return };
                fs.unlink(&caller(4), parent, old.as_bytes()).unwrap();
                self.names.retain(|(one, other, _)| (one, other) != (&parent, &old));
            }
        }
    }

    /// Names that a crash took away.
    fn forget_lost(&mut self, fs: &FileSystem) {
        self.directories.retain(|inode| fs.getattr(&caller(5), *inode).is_ok());
        let is_there = |(parent, name, inode): &(u64, String, u64)| {
            fs.lookup(&caller(5), *parent, name.as_bytes()).is_ok_and(|found| found.inode == *inode)
        };
        self.names.retain(is_there);
    }
}

/// P-135.
#[test]
fn an_index_finds_what_a_pass_finds_after_any_changes_and_crashes() {
    for seed in 0..6 {
        let random = &mut Random(seed);
        let (rig, mut fs) = Rig::new(2, 96 << 20);
        let mut tree = Tree { directories: vec![ROOT], names: Vec::new() };
        for number in 0..240 {
            tree.change(&fs, random, number);
            if number % 40 == 39 {
                compare(&fs, &tree.directories[..tree.directories.len().min(3)]);
            }
            if number % 60 == 59 {
                if random.next(2) == 0 {
                    fs.syncfs(&caller(4)).unwrap();
                }
                fs = rig.reopen(fs, random.next(2) == 0);
                tree.forget_lost(&fs);
                compare(&fs, &[ROOT]);
            }
        }
        fs.syncfs(&caller(4)).unwrap();
        assert_clean(&fs);
    }
}

/// P-135: few are looked at where few can be meant, and a small file costs no key.
#[test]
fn few_inodes_are_looked_at_and_small_files_have_no_entry() {
    let (rig, fs) = Rig::new(2, 96 << 20);
    let entries = |fs: &FileSystem| {
        let mut count = 0;
        let (from, to) = (Key::new(key::tree::INDEXES, 0, 0, 0), Key::new(key::tree::INDEXES + 1, 0, 0, 0));
        fs.store().for_each_key(from, to, |key, _| count += u64::from(stere_file::find_index::is_entry(key))).unwrap();
        count
    };
    let small: Vec<u64> = (0..600).map(|at| make(&fs, ROOT, &format!("s{at}"), b"small")).collect();
    fs.syncfs(&caller(4)).unwrap();
    assert_eq!(entries(&fs), 0);
    let large = make(&fs, ROOT, "large", &vec![1; 2 << 20]);
    set(&fs, small[7], "user.color", "red");
    set(&fs, small[8], "user.color", "green");
    set(&fs, small[9], "user.stere.class", "precious");
    fs.syncfs(&caller(4)).unwrap();
    assert_eq!(entries(&fs), 4);
    // Nothing is in memory of what was closed and saved.
    let fs = rig.reopen(fs, true);
    for (search, path, least) in [
        ("size>1M", "large", 1),
        ("size>1M and class=normal", "large", 1),
        ("user.color=red", "s7", 1),
        ("user.color=g*", "s8", 2),
        ("class=precious", "s9", 1),
        ("user.color=red and not size>1M", "s7", 1),
    ] {
        let (found, looked_at) = paths(&fs, &who(0), ROOT, search, true);
        assert_eq!(found, BTreeSet::from([path.as_bytes().to_vec()]), "{search}");
        assert_eq!(looked_at, least, "{search}");
        assert!(paths(&fs, &who(0), ROOT, search, false).1 > 600, "{search}");
    }
    // A class above decides for all below, by whichever name they lie there.
    let d = mkdir(&fs, ROOT, "d");
    set(&fs, d, "user.stere.class", "precious");
    make(&fs, mkdir(&fs, d, "deep"), "below", b"x");
    fs.link(&caller(4), small[11], d, b"linked").unwrap();
    fs.syncfs(&caller(4)).unwrap();
    let fs = rig.reopen(fs, true);
    let (found, looked_at) = paths(&fs, &who(0), ROOT, "class=precious type=file", true);
    let wanted = ["d/deep/below", "d/linked", "s11", "s9"].map(|path| path.as_bytes().to_vec());
    assert_eq!((found, looked_at), (BTreeSet::from(wanted), 5), "and both directories");
    // Where much lies below it, all inodes are looked at.
    let wide = mkdir(&fs, ROOT, "wide");
    for at in 0..1100 {
        fs.mknod(&caller(4), wide, format!("w{at}").as_bytes(), 0o644, 0).unwrap();
    }
    set(&fs, wide, "user.stere.class", "precious");
    assert_eq!(paths(&fs, &who(0), ROOT, "class=precious type=file", true).0.len(), 1104);
    set(&fs, wide, "user.stere.class", "scratch");
    fs.unlink(&caller(4), ROOT, b"large").unwrap();
    while fs.step(&caller(5), 100).unwrap() {}
    assert_eq!(paths(&fs, &who(0), ROOT, "size>1M", true), (BTreeSet::new(), 0));
    assert!(fs.getattr(&who(0), large).is_err());
    fs.syncfs(&caller(4)).unwrap();
    assert_clean(&fs);
}

/// P-135: a pool from before gets the index in the background, while it is used and crashes; until then there is a pass.
#[test]
fn a_pool_from_before_gets_its_index_while_it_is_used() {
    for how in [None, Some(FindIndexValue::Clearing)] {
        let random = &mut Random(11);
        let (rig, fs) = Rig::new(2, 96 << 20);
        let mut tree = Tree { directories: vec![ROOT], names: Vec::new() };
        (0..500).for_each(|number| tree.change(&fs, random, number));
        let marker = Key::find_index();
        fs.store()
            .update(Io::BLOCKING, |transaction| {
                match &how {
                    // As if there had never been one.
                    None => {
                        let mut entries = Vec::new();
                        let from = Key::new(key::tree::INDEXES, 0, 0, 0);
                        transaction.scan(from, Key::new(key::tree::INDEXES + 1, 0, 0, 0), |key, _| {
                            entries.extend(stere_file::find_index::is_entry(key).then_some(*key));
                            std::ops::ControlFlow::Continue(())
                        })?;
                        entries.into_iter().for_each(|key| transaction.delete(key));
                        transaction.delete(marker);
                    }
                    // As if it were wrong.
                    Some(clearing) => {
                        transaction.put(Key::find_size(20, 77_777), &[1]);
                        transaction.put(marker, &clearing.encode());
                    }
                }
                Ok::<_, stere_store::Error>(())
            })
            .unwrap();
        fs.syncfs(&caller(4)).unwrap();
        let mut fs = rig.reopen(fs, true);
        let is_complete = |fs: &FileSystem| {
            let value = fs.store().view(Io::BLOCKING, |view| view.get(&marker)).unwrap();
            value.is_some_and(|value| FindIndexValue::decode(&value) == Ok(FindIndexValue::COMPLETE))
        };
        for number in 500..1000 {
            tree.change(&fs, random, number);
            if number % 50 == 0 {
                fs.step(&caller(5), 1).unwrap();
                compare(&fs, &[ROOT]);
                fs.syncfs(&caller(4)).unwrap();
                assert_clean(&fs);
            }
            if number % 130 == 0 {
                fs = rig.reopen(fs, true);
                tree.forget_lost(&fs);
            }
        }
        while fs.step(&caller(5), 100).unwrap() {}
        assert!(is_complete(&fs), "with background work it comes to its end");
        compare(&fs, &[ROOT]);
        fs.syncfs(&caller(4)).unwrap();
        assert_clean(&fs);
    }
}
