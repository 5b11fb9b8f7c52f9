//! Searches find what walking finds, and show no more (P-85).

use crate::support;

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use stere_naming::{Attributes, Caller, FileSystem, Found, OpenFlags, ROOT, SetAttributes, SetMode};
use support::edits::{Random, set};
use support::files::{acl, create, make, mkdir};
use support::{Rig, caller};

const NOW: i64 = 100_000;
const ACCESS: &[u8] = b"system.posix_acl_access";

fn who(uid: u32, groups: &'static [u32]) -> Caller<'static> {
    Caller { uid, gid: uid, groups, ..caller(NOW) }
}

fn find(fs: &FileSystem, who: &Caller<'_>, start: u64, search: &str) -> Vec<Found> {
    let search = fs.search().parse_search(search).unwrap_or_else(|error| panic!("{search}: {error}"));
    let mut find = fs.search().find(who, start, b"start", search).unwrap();
    let mut all = Vec::new();
    while let Some(found) = find.step(who).unwrap() {
        all.extend(found);
    }
    all
}

fn paths(found: &[Found]) -> BTreeSet<String> {
    let paths: BTreeSet<String> = found.iter().map(|one| String::from_utf8(one.path.clone()).unwrap()).collect();
    assert_eq!(paths.len(), found.len(), "everything is found once");
    paths
}

fn found(fs: &FileSystem, who: &Caller<'_>, start: u64, search: &str) -> BTreeSet<String> {
    paths(&find(fs, who, start, search))
}

fn may_list(who: &Caller<'_>, directory: &Attributes) -> bool {
    let shift = match directory {
        _ if who.uid == 0 => return true,
        _ if who.uid == directory.uid => 6,
        _ if who.gid == directory.gid || who.groups.contains(&directory.gid) => 3,
        _ => 0,
    };
    directory.mode >> shift & 5 == 5
}

/// What walking comes to, as a program would.
fn walk(fs: &FileSystem, who: &Caller<'_>, inode: u64, path: &str, out: &mut Vec<(String, Attributes)>) {
    let attributes = fs.getattr(who, inode).unwrap();
    out.push((path.to_owned(), attributes));
    if attributes.mode & libc::S_IFMT != libc::S_IFDIR || !may_list(who, &attributes) {
        return;
    }
    let mut names = Vec::new();
    fs.readdir(who, inode, 0, false, &mut |entry| {
        names.push((entry.inode, String::from_utf8(entry.name.to_vec()).unwrap()));
        ControlFlow::Continue(())
    })
    .unwrap();
    for (inode, name) in names.into_iter().filter(|(_, name)| name != "." && name != "..") {
        walk(fs, who, inode, &if path.is_empty() { name } else { format!("{path}/{name}") }, out);
    }
}

type Says = fn(&str, &Attributes) -> bool;

/// Searches, and the same in other words.
const SEARCHES: [(&str, Says); 8] = [
    ("*", |_, _| true),
    ("size>4K type=file", |_, file| file.size > 4096 && file.mode & libc::S_IFMT == libc::S_IFREG),
    ("type=symlink or type=fifo", |_, file| [libc::S_IFLNK, libc::S_IFIFO].contains(&(file.mode & libc::S_IFMT))),
    ("type=file and links>1", |_, file| file.mode & libc::S_IFMT == libc::S_IFREG && file.nlink > 1),
    ("not (mode&4 or depth>1)", |path, file| file.mode & 4 == 0 && path.matches('/').count() <= 1),
    ("*3* and age<2d", |path, file| {
        path.rsplit('/').next().unwrap().contains('3') && NOW - file.mtime.seconds < 172_800
    }),
    ("owner=1000 or group=100", |_, file| file.uid == 1000 || file.gid == 100),
    ("path=**/d1*/**", |path, _| path.split('/').rev().skip(1).any(|part| part.starts_with("d1"))),
];

fn compare(fs: &FileSystem, starts: &[u64]) {
    for who in [who(0, &[]), who(1000, &[100]), who(2000, &[])] {
        for start in starts {
            if fs.getattr(&who, *start).is_err() {
                continue;
            }
            let mut walked = Vec::new();
            walk(fs, &who, *start, "", &mut walked);
            for (search, says) in SEARCHES {
                // What the start itself is called only the search knows.
                let is_of_path = search.contains("path=") || search.contains("*3*");
                let met = walked.iter().filter(|(path, _)| !is_of_path || !path.is_empty());
                let expected: BTreeSet<String> =
                    met.filter(|(path, file)| says(path, file)).map(|(path, _)| path.clone()).collect();
                let mut told = found(fs, &who, *start, search);
                if is_of_path {
                    told.remove("");
                }
                assert_eq!(told, expected, "{search} by {} below {start}", who.uid);
            }
        }
    }
}

struct Tree {
    directories: Vec<u64>,
    files: Vec<u64>,
    names: Vec<(u64, String)>,
}

impl Tree {
    fn change(&mut self, fs: &FileSystem, random: &mut Random, number: usize) {
        let c = caller(NOW - random.next(400_000) as i64);
        let directory = self.directories[random.next(self.directories.len() as u64) as usize];
        let name = format!("{}{number}", ["f", "d", "x"][random.next(3) as usize]);
        let named = |tree: &mut Tree, inode: u64| {
            tree.names.push((directory, name.clone()));
            tree.files.push(inode);
        };
        match random.next(12) {
            0..=2 => self.directories.push(mkdir(fs, directory, &name)),
            3..=5 => {
                let bytes = vec![7; random.next(10_000) as usize];
                let inode = make(fs, directory, &name, &bytes);
                named(self, inode);
            }
            6 => drop(fs.symlink(&c, directory, name.as_bytes(), b"elsewhere").unwrap()),
            7 => drop(fs.mknod(&c, directory, name.as_bytes(), libc::S_IFIFO | 0o640, 0).unwrap()),
            8 if !self.files.is_empty() => {
                let inode = self.files[random.next(self.files.len() as u64) as usize];
                // It may be removed already.
                if fs.link(&c, inode, directory, name.as_bytes()).is_ok() {
                    named(self, inode);
                }
            }
            9 if !self.names.is_empty() => {
                let (old, old_name) = self.names.swap_remove(random.next(self.names.len() as u64) as usize);
                if random.next(2) == 0 {
                    fs.unlink(&c, old, old_name.as_bytes()).unwrap();
                } else {
                    fs.rename(&c, old, old_name.as_bytes(), directory, name.as_bytes(), 0).unwrap();
                    self.names.push((directory, name));
                }
            }
            _ => {
                let inode =
                    *[directory, *self.files.last().unwrap_or(&directory)].get(random.next(2) as usize).unwrap();
                let mode = [0o755, 0o750, 0o711, 0o744, 0o700, 0o555][random.next(6) as usize];
                let (uid, gid) = ([0, 1000, 2000][random.next(3) as usize], [0, 100, 2000][random.next(3) as usize]);
                let changed =
                    SetAttributes { mode: Some(mode), uid: Some(uid), gid: Some(gid), ..SetAttributes::default() };
                drop(fs.setattr(&c, inode, &changed));
            }
        }
    }
}

#[test]
fn what_is_found_is_what_walking_meets() {
    for seed in 0..12 {
        let (rig, mut fs) = Rig::new(2, 64 << 20);
        let mut random = Random(seed + 1);
        let mut tree = Tree { directories: vec![ROOT], files: Vec::new(), names: Vec::new() };
        if seed % 3 == 0 {
            // What becomes a version is found no more.
            set(&fs, ROOT, "versions", "5");
        }
        for round in 0..3 {
            for number in 0..60 {
                tree.change(&fs, &mut random, round * 60 + number);
            }
            let starts = [ROOT, tree.directories[1], tree.directories[tree.directories.len() / 2]];
            compare(&fs, &starts);
            fs.syncfs(&caller(NOW)).unwrap();
            if round == 1 {
                fs = rig.reopen(fs, true);
                compare(&fs, &starts);
            }
        }
    }
}

#[test]
fn large_directories_and_files_are_read_in_steps() {
    let (_rig, fs) = Rig::new(2, 256 << 20);
    let (many, deep) = (mkdir(&fs, ROOT, "many"), mkdir(&fs, ROOT, "deep"));
    for number in 0..3000 {
        let directory = mkdir(&fs, many, &format!("d{number}"));
        if number % 100 == 0 {
            make(&fs, directory, "file", b"x");
        }
    }
    for number in 0..5000 {
        fs.symlink(&caller(2), deep, format!("l{number}").as_bytes(), b"x").unwrap();
    }
    // A file of many pieces, whose keys are jumped over.
    let (holes, handle) = create(&fs, deep, "holes");
    for piece in 0..200 {
        fs.write(&caller(2), holes, piece << 20, b"piece", false).unwrap();
    }
    fs.release(&caller(2), holes, handle).unwrap();
    fs.syncfs(&caller(3)).unwrap();
    let root = who(0, &[]);
    assert_eq!(found(&fs, &root, ROOT, "type=file").len(), 31);
    assert_eq!(found(&fs, &root, ROOT, "type=directory d*").len(), 3001);
    assert_eq!(found(&fs, &root, ROOT, "type=symlink").len(), 5000);
    assert_eq!(found(&fs, &root, many, "path=d2900/*"), BTreeSet::from(["d2900/file".to_owned()]));
    assert_eq!(found(&fs, &root, ROOT, "size>100M"), BTreeSet::from(["deep/holes".to_owned()]));
    assert_eq!(found(&fs, &root, holes, "size>100M"), BTreeSet::from([String::new()]), "a file is searched alone");
    assert_eq!(found(&fs, &root, holes, "size<100M"), BTreeSet::new());
}

#[test]
fn acls_decide_who_may_walk_and_modes_who_may_read_attributes() {
    const NOBODY: u32 = u32::MAX;
    let (_rig, fs) = Rig::new(1, 64 << 20);
    let c = caller(5);
    let directory = mkdir(&fs, ROOT, "private");
    let file = make(&fs, directory, "file", b"x");
    for (name, value) in [(&b"user.kind"[..], &b"letter"[..]), (b"user.year", b"1927")] {
        fs.setxattr(&c, file, name, value, SetMode::Any, false).unwrap();
    }
    let private = SetAttributes { mode: Some(0o700), ..SetAttributes::default() };
    fs.setattr(&c, directory, &private).unwrap();
    let sees = |who: &Caller<'_>, search: &str| found(&fs, who, ROOT, search).contains("private/file");
    assert!(sees(&who(0, &[]), "file") && !sees(&who(7, &[]), "file"));
    for (entries, seven, of_group, others) in [
        // A named user, cut by the mask or not.
        ([(1, 7, NOBODY), (2, 5, 7), (4, 0, NOBODY), (0x10, 7, NOBODY), (0x20, 0, NOBODY)], true, false, false),
        ([(1, 7, NOBODY), (2, 5, 7), (4, 0, NOBODY), (0x10, 1, NOBODY), (0x20, 5, NOBODY)], false, false, true),
        // A named group; the user who is named with nothing gets nothing.
        ([(1, 7, NOBODY), (4, 0, NOBODY), (8, 5, 100), (0x10, 5, NOBODY), (0x20, 0, NOBODY)], false, true, false),
        ([(1, 7, NOBODY), (2, 0, 7), (4, 0, NOBODY), (0x10, 5, NOBODY), (0x20, 5, NOBODY)], false, true, true),
    ] {
        fs.setxattr(&c, directory, ACCESS, &acl(&entries), SetMode::Any, false).unwrap();
        let told = (sees(&who(7, &[]), "file"), sees(&who(8, &[100]), "file"), sees(&who(9, &[]), "file"));
        let group = of_group || (others && entries[2].0 == 4 && entries[1].0 == 2);
        assert_eq!(told, (seven, group, others), "{entries:?}");
    }
    let root = who(0, &[]);
    for (search, is_found) in [
        ("user.kind=l*r", true),
        ("user.kind=letters", false),
        ("user.year=19?? and user.kind", true),
        ("user.none", false),
    ] {
        assert_eq!(sees(&root, search), is_found, "{search}");
    }
    assert!(sees(&who(9, &[]), "user.kind=letter"));
    let unreadable = SetAttributes { mode: Some(0o600), ..SetAttributes::default() };
    fs.setattr(&c, file, &unreadable).unwrap();
    assert!(
        sees(&who(9, &[]), "file") && !sees(&who(9, &[]), "user.kind"),
        "who may not read may not ask what is written on it"
    );
}

#[test]
fn what_policy_says_and_what_is_so_is_asked_by_its_words() {
    let (_rig, fs) = Rig::new(2, 64 << 20);
    let directory = mkdir(&fs, ROOT, "papers");
    set(&fs, directory, "class", "precious");
    set(&fs, directory, "compress", "zstd:7");
    let single = mkdir(&fs, ROOT, "single");
    set(&fs, single, "copies", "1");
    let (open, _handle) = create(&fs, single, "open");
    fs.write(&caller(2), open, 0, &[7; 50_000], false).unwrap();
    make(&fs, directory, "paper", &[7; 50_000]);
    make(&fs, single, "draft", &[7; 50_000]);
    fs.syncfs(&caller(3)).unwrap();
    fs.write(&caller(4), open, 50_000, &[7; 50_000], false).unwrap();
    // Not reconciled: what is stored is as it was asked for then.
    set(&fs, single, "copies", "2");
    let root = who(0, &[]);
    for (search, expected) in [
        ("type=file class=precious", &["papers/paper"][..]),
        ("type=file compress=zstd", &["papers/paper"]),
        ("type=file compress=zstd:7", &["papers/paper"]),
        ("type=file compress=zstd:8", &[]),
        ("type=file compress=none and size=97K", &[]),
        ("type=file size=100000", &["single/open"]),
        ("type=file copies=2 scheme=1+0", &["single/draft", "single/open"]),
        ("wanted=1+1 and survives=0", &["single/draft", "single/open"]),
        ("state=pending", &["single/draft", "single/open"]),
        ("state=impossible", &["papers/paper"]),
        ("on=d0 and on=d1", &["papers/paper"]),
        ("type=file stored<40K", &["papers/paper"]),
        ("residency!=online and type=file", &[]),
        ("type=file tier=none", &["papers/paper", "single/draft", "single/open"]),
    ] {
        let expected: BTreeSet<String> = expected.iter().map(|path| (*path).to_owned()).collect();
        assert_eq!(found(&fs, &root, ROOT, search), expected, "{search}");
    }
}

#[test]
fn searching_leaves_no_trace_and_finds_nothing_without_a_name() {
    let (_rig, fs) = Rig::new(1, 64 << 20);
    let file = make(&fs, ROOT, "file", b"x");
    let before = (fs.getattr(&caller(5), file).unwrap(), fs.getattr(&caller(5), ROOT).unwrap());
    assert_eq!(found(&fs, &who(0, &[]), ROOT, "type=file survives<9").len(), 1);
    assert_eq!((fs.getattr(&caller(5), file).unwrap(), fs.getattr(&caller(5), ROOT).unwrap()), before);
    let removed = fs.unlink(&caller(6), ROOT, b"file");
    assert!(removed.is_ok());
    let flags = OpenFlags { write: true, ..OpenFlags::default() };
    let (_, _open) = fs.tmpfile(&caller(6), ROOT, 0o600, flags).unwrap();
    assert_eq!(found(&fs, &who(0, &[]), ROOT, "type=file"), BTreeSet::new(), "what has no name is not found");
}
