//! Files with several names: of each key the strictest of what their names would give holds (P-147), and what is noted of where their names lie is
//! right after any changes, across crashes, and in pools from before (P-148).

use crate::support;

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use stere_format::{InodeValue, Key, NamedInValue, key};
use stere_naming::{FileSystem, Io, RENAME_EXCHANGE, ROOT, SetMode};
use support::edits::{Random, fact, set};
use support::files::{assert_clean, directory, make, mkdir};
use support::{Rig, caller, reconcile};

const DEVICE_BYTES: u64 = 96 << 20;

/// Keys of which what holds is compared, the values that directories get, and all there are, the strictest last.
const KEYS: [(&str, &[&str], &[&str]); 6] = [
    ("copies", &["1", "2", "3"], &["1", "2", "3"]),
    ("compress", &["none", "lz4", "zstd"], &["zstd:3", "zstd", "lz4", "none"]),
    ("record", &["8K", "16K", "1M"], &["1M", "128K", "16K", "8K"]),
    ("checksum", &["none", "xxh3", "blake3"], &["none", "crc32c", "xxh3", "blake3"]),
    ("backup", &["yes", "no"], &["no", "yes"]),
    ("class", &["scratch", "normal", "precious", "archive"], &["scratch", "archive", "normal", "precious"]),
];

fn parent_of(fs: &FileSystem, inode: u64) -> u64 {
    let bytes = fs.store().view(Io::BLOCKING, |view| view.get(&Key::inode(inode))).unwrap().unwrap();
    InodeValue::decode(&bytes).unwrap().parent
}

fn noted(fs: &FileSystem, inode: u64) -> BTreeMap<u64, u32> {
    fs.store().view(Io::BLOCKING, |view| stere_file::named_in::named_in(view, inode)).unwrap()
}

fn source(fs: &FileSystem, inode: u64, key: &str) -> String {
    fact(fs, inode, &format!("source.{key}"))
}

fn holds(fs: &FileSystem, inode: u64, key: &str) -> String {
    fact(fs, inode, &format!("effective.{key}"))
}

fn link(fs: &FileSystem, inode: u64, directory: u64, name: &str) {
    fs.link(&caller(4), inode, directory, name.as_bytes()).unwrap();
}

fn move_name(fs: &FileSystem, from: (u64, &str), to: (u64, &str)) {
    fs.rename(&caller(4), from.0, from.1.as_bytes(), to.0, to.1.as_bytes(), 0).unwrap();
}

/// Directories, in each of which a file with one name tells what a name there gives, and files with names everywhere.
struct Tree {
    /// A directory, and its file.
    directories: Vec<(u64, u64)>,
    names: BTreeMap<(u64, String), u64>,
}

impl Tree {
    fn new(fs: &FileSystem) -> Tree {
        let tree = Tree { directories: vec![(ROOT, make(fs, ROOT, "probe", b"x"))], names: BTreeMap::new() };
        fs.syncfs(&caller(4)).unwrap();
        tree
    }

    fn any(&self, random: &mut Random) -> u64 {
        self.directories[random.next(self.directories.len() as u64) as usize].0
    }

    fn pick(&self, random: &mut Random) -> Option<((u64, String), u64)> {
        let at = random.next(self.names.len().max(1) as u64) as usize;
        self.names.iter().nth(at).map(|(place, inode)| (place.clone(), *inode))
    }

    /// One random change; what is not possible is none.
    fn change(&mut self, fs: &FileSystem, random: &mut Random, number: usize) {
        let (directory, name) = (self.any(random), format!("f{number}"));
        match random.next(18) {
            0 if self.directories.len() < 10 => {
                let made = mkdir(fs, directory, &format!("d{number}"));
                self.directories.push((made, make(fs, made, "probe", b"x")));
            }
            1 | 2 => drop(self.names.insert((directory, name.clone()), make(fs, directory, &name, b"some content"))),
            3..=5 => {
                let Some((_, inode)) = self.pick(random) else { return };
                fs.link(&caller(4), inode, directory, name.as_bytes()).unwrap();
                self.names.insert((directory, name), inode);
            }
            6 | 7 => {
                let Some(((from, old), inode)) = self.pick(random) else { return };
                move_name(fs, (from, &old), (directory, &name));
                self.names.remove(&(from, old));
                self.names.insert((directory, name), inode);
            }
            8 => {
                // Over another name, maybe of the same file: then both stay.
                let picked = self.pick(random).zip(self.pick(random));
                let Some((((from, old), inode), ((to, new), other))) = picked else { return };
                move_name(fs, (from, &old), (to, &new));
                if inode != other {
                    self.names.remove(&(from, old));
                    self.names.insert((to, new), inode);
                }
            }
            9 => {
                let picked = self.pick(random).zip(self.pick(random));
                let Some(((one, inode), (two, other))) = picked else { return };
                let (a, b) = (one.1.as_bytes(), two.1.as_bytes());
                fs.rename(&caller(4), one.0, a, two.0, b, RENAME_EXCHANGE).unwrap();
                self.names.insert(one, other);
                self.names.insert(two, inode);
            }
            10 | 11 => {
                let Some((place, _)) = self.pick(random) else { return };
                fs.unlink(&caller(4), place.0, place.1.as_bytes()).unwrap();
                self.names.remove(&place);
            }
            12..=16 => {
                let (key, values, _) = KEYS[random.next(KEYS.len() as u64) as usize];
                let value = if random.next(3) == 0 { "" } else { values[random.next(values.len() as u64) as usize] };
                let name = format!("user.stere.{key}");
                let _may_be_unset =
                    fs.setxattr(&caller(4), directory, name.as_bytes(), value.as_bytes(), SetMode::Any, false);
            }
            _ => {
                let moved = self.any(random);
                let name = format!("d{number}").into_bytes();
                let old = fs.path_of(Io::BLOCKING, moved).unwrap();
                let old_name = old.rsplit(|byte| *byte == b'/').next().unwrap().to_vec();
                if moved != ROOT {
                    // Not below itself.
                    let _ = fs.rename(&caller(4), parent_of(fs, moved), &old_name, directory, &name, 0);
                }
            }
        }
    }

    /// The plain definition: what holds for a file is the strictest of what holds for files with one name in its directories. Tells how many
    /// files have names in several where not the same holds.
    fn compare(&self, fs: &FileSystem) -> usize {
        let mut differing = 0;
        let mut places: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        self.names.iter().for_each(|((directory, _), inode)| places.entry(*inode).or_default().push(*directory));
        for (inode, directories) in places {
            let mut differs = false;
            for (key, _, order) in KEYS {
                let probe = |directory: &u64| self.directories.iter().find(|(at, _)| at == directory).unwrap().1;
                let given = directories.iter().map(|directory| holds(fs, probe(directory), key));
                let rank = |text: &String| order.iter().position(|one| one == text).unwrap_or_else(|| panic!("{text}"));
                let given: Vec<String> = given.collect();
                differs |= given.iter().any(|one| *one != given[0]);
                let strictest = given.iter().max_by_key(|text| rank(text)).unwrap().clone();
                assert_eq!(holds(fs, inode, key), strictest, "{key} of {inode} in {directories:?}");
            }
            assert!(directories.contains(&parent_of(fs, inode)), "{inode}");
            differing += usize::from(differs);
        }
        differing
    }

    /// What a crash took away.
    fn forget_lost(&mut self, fs: &FileSystem) {
        self.directories
            .retain(|(inode, probe)| [inode, probe].iter().all(|one| fs.getattr(&caller(5), **one).is_ok()));
        let is_there = |(parent, name): &(u64, String), inode: &mut u64| {
            fs.lookup(&caller(5), *parent, name.as_bytes()).is_ok_and(|found| found.inode == *inode)
        };
        self.names.retain(is_there);
        let has_all = |inode: u64, names: &BTreeMap<(u64, String), u64>| {
            let count = names.values().filter(|one| **one == inode).count();
            fs.getattr(&caller(5), inode).is_ok_and(|found| found.nlink as usize == count)
        };
        let names = self.names.clone();
        self.names.retain(|_, inode| has_all(*inode, &names));
    }
}

/// P-147, P-148.
#[test]
fn the_strictest_name_holds_after_any_changes_and_crashes() {
    let mut differing = 0;
    for seed in 0..5 {
        let random = &mut Random(seed);
        let (rig, mut fs) = Rig::new(4, DEVICE_BYTES);
        let mut tree = Tree::new(&fs);
        for number in 0..260 {
            tree.change(&fs, random, number);
            if number % 20 == 19 {
                differing += tree.compare(&fs);
            }
            if number % 65 == 64 {
                fs.syncfs(&caller(4)).unwrap();
                (0..random.next(8) as usize).for_each(|more| tree.change(&fs, random, number + 1000 * (more + 1)));
                fs = rig.reopen(fs, random.next(2) == 0);
                tree.forget_lost(&fs);
                tree.compare(&fs);
            }
        }
        fs.syncfs(&caller(4)).unwrap();
        assert_clean(&fs);
        // Whatever was asked for, what is stored follows.
        reconcile(&fs);
        for inode in tree.names.values() {
            assert_eq!(fact(&fs, *inode, "state"), "compliant", "{inode}");
        }
    }
    assert!(differing > 60, "{differing}");
}

/// P-148: whichever of the writes after the last flush reach the devices.
#[test]
fn a_crash_at_any_write_leaves_what_is_noted_right() {
    for kept in 0..10 {
        for ends in 0..6 {
            let (rig, fs) = Rig::new(2, 64 << 20);
            let [one, two] = ["one", "two"].map(|name| mkdir(&fs, ROOT, name));
            let file = make(&fs, one, "a", b"x");
            fs.store().commit(Io::BLOCKING).unwrap();
            let steps: [&dyn Fn(); 6] = [
                &|| link(&fs, file, two, "b"),
                &|| fs.unlink(&caller(4), one, b"a").unwrap(),
                &|| link(&fs, file, one, "c"),
                &|| move_name(&fs, (one, "c"), (ROOT, "c")),
                &|| move_name(&fs, (two, "b"), (ROOT, "b")),
                &|| fs.unlink(&caller(4), ROOT, b"c").unwrap(),
            ];
            for (at, step) in steps.iter().enumerate().take(ends + 1) {
                step();
                if at < ends {
                    fs.store().commit(Io::BLOCKING).unwrap();
                }
            }
            // The last change is on its way.
            let _begun = fs.store().step(true);
            let fs = rig.crash(fs, |index| index < kept);
            assert_clean(&fs);
            let names = [(one, "a"), (two, "b"), (one, "c"), (ROOT, "c"), (ROOT, "b")];
            let homes: Vec<u64> = names
                .into_iter()
                .filter(|(at, name)| fs.lookup(&caller(5), *at, name.as_bytes()).is_ok())
                .map(|(at, _)| at)
                .collect();
            assert!(homes.contains(&parent_of(&fs, file)), "{homes:?}");
        }
    }
}

/// P-147: what is set where the second name lies reaches the file, and goes with that name.
#[test]
fn each_directory_with_a_name_decides() {
    let (_rig, fs) = Rig::new(4, DEVICE_BYTES);
    let [one, two, deep] = ["one", "two", "deep"].map(|name| mkdir(&fs, ROOT, name));
    let file = make(&fs, one, "a", &[7; 50_000]);
    assert!(noted(&fs, file).is_empty(), "what has one name costs nothing");
    fs.link(&caller(4), file, two, b"b").unwrap();
    assert_eq!(noted(&fs, file), BTreeMap::from([(one, 1), (two, 1)]));
    fs.syncfs(&caller(4)).unwrap();
    for (directory, path) in [(one, "/one"), (two, "/two")] {
        set(&fs, directory, "copies", "3");
        assert_eq!(
            (holds(&fs, file, "copies"), source(&fs, file, "copies")),
            ("3".into(), format!("inherited from {path}"))
        );
        reconcile(&fs);
        assert_eq!((fact(&fs, file, "survives"), fact(&fs, file, "state")), ("2".into(), "compliant".into()));
        set(&fs, directory, "copies", "");
        reconcile(&fs);
        assert_eq!(fact(&fs, file, "survives"), "1");
    }
    // Less than what nobody asked for is not given by one name alone; by all it is.
    set(&fs, one, "copies", "1");
    assert_eq!(
        (holds(&fs, file, "copies"), source(&fs, file, "copies")),
        ("2".into(), "default class of the pool".into())
    );
    set(&fs, two, "copies", "1");
    assert_eq!(holds(&fs, file, "copies"), "1");
    set(&fs, two, "copies", "3");
    reconcile(&fs);
    assert_eq!(fact(&fs, file, "survives"), "2");
    // A directory above one of the names moves, and the name goes.
    move_name(&fs, (ROOT, "two"), (deep, "two"));
    assert_eq!(source(&fs, file, "copies"), "inherited from /deep/two");
    fs.unlink(&caller(4), two, b"b").unwrap();
    assert_eq!((holds(&fs, file, "copies"), parent_of(&fs, file)), ("1".into(), one));
    assert!(noted(&fs, file).is_empty());
    reconcile(&fs);
    assert_eq!(fact(&fs, file, "survives"), "0", "nobody asks for more any more");
    // What is said of the file itself goes before what is said of directories, whatever its names.
    fs.link(&caller(4), file, two, b"b").unwrap();
    set(&fs, file, "copies", "2");
    assert_eq!((holds(&fs, file, "copies"), source(&fs, file, "copies")), ("2".into(), "set here".into()));
    fs.syncfs(&caller(4)).unwrap();
    assert_clean(&fs);
}

/// P-148: the name that its directory was known by goes, by being removed, renamed or renamed over.
#[test]
fn a_file_lies_where_a_name_of_it_is() {
    let (_rig, fs) = Rig::new(3, DEVICE_BYTES);
    let [one, two] = ["one", "two"].map(|name| directory(&fs, name, "copies", if name == "one" { "1" } else { "3" }));
    let goes: [&dyn Fn(); 4] = [
        &|| fs.unlink(&caller(4), two, b"b").unwrap(),
        &|| move_name(&fs, (two, "b"), (one, "c")),
        &|| {
            make(&fs, ROOT, "over", b"y");
            move_name(&fs, (ROOT, "over"), (two, "b"));
        },
        &|| {
            make(&fs, ROOT, "other", b"y");
            fs.rename(&caller(4), two, b"b", ROOT, b"other", RENAME_EXCHANGE).unwrap();
            fs.unlink(&caller(4), ROOT, b"other").unwrap();
        },
    ];
    for (round, goes) in goes.iter().enumerate() {
        let name = format!("a{round}");
        let file = make(&fs, one, &name, b"x");
        fs.link(&caller(4), file, two, b"b").unwrap();
        assert_eq!(holds(&fs, file, "copies"), "3");
        goes();
        assert_eq!((parent_of(&fs, file), holds(&fs, file, "copies")), (one, "1".into()), "{round}");
        let _may_be_gone = (fs.unlink(&caller(4), two, b"b"), fs.unlink(&caller(4), one, b"c"));
        fs.syncfs(&caller(4)).unwrap();
        assert_clean(&fs);
    }
}

/// P-58: a lock stays with a file whose locked name goes while it has others, and can be taken off the file then.
#[test]
fn what_was_locked_for_a_name_that_went_is_locked_for_the_file() {
    let (_rig, fs) = Rig::new(3, DEVICE_BYTES);
    let (top, outside) = (mkdir(&fs, ROOT, "top"), directory(&fs, "outside", "copies", "1"));
    let lock = |inode, value: &str| {
        fs.setxattr(&caller(3), inode, b"trusted.stere.copies", value.as_bytes(), SetMode::Any, false).unwrap();
    };
    lock(top, "3");
    let file = make(&fs, top, "a", b"x");
    fs.link(&caller(4), file, outside, b"b").unwrap();
    assert_eq!(source(&fs, file, "copies"), "locked by the administrator at /top");
    fs.unlink(&caller(4), top, b"a").unwrap();
    assert_eq!(
        (holds(&fs, file, "copies"), source(&fs, file, "copies")),
        ("3".into(), "locked here by the administrator".into())
    );
    move_name(&fs, (outside, "b"), (ROOT, "c"));
    assert_eq!(holds(&fs, file, "copies"), "3");
    lock(file, "");
    assert_eq!(holds(&fs, file, "copies"), "2");
    fs.syncfs(&caller(4)).unwrap();
    assert_clean(&fs);
}

/// Makes a pool one of before: nothing is noted, and files lie where they lay by older versions.
fn make_old(fs: &FileSystem, wrong: &[(u64, u64)]) {
    let (from, to) = (Key::new(key::tree::NAMES, 0, 0, 0), Key::new(key::tree::NAMES + 1, 0, 0, 0));
    let forget = |transaction: &mut stere_store::Transaction<'_>| {
        let mut keys = Vec::new();
        transaction.scan(from, to, |key, _| {
            keys.extend((key.kind == key::kind::NAMED_IN).then_some(*key));
            ControlFlow::Continue(())
        })?;
        keys.into_iter().for_each(|key| transaction.delete(key));
        transaction.delete(Key::named_in_known());
        for (inode, parent) in wrong {
            let value = stere_file::inode_if_any(transaction, *inode).unwrap().unwrap();
            stere_file::put_inode(transaction, *inode, &InodeValue { parent: *parent, ..value });
        }
        Ok::<_, stere_store::Error>(())
    };
    fs.store().update(Io::BLOCKING, forget).unwrap();
    fs.store().commit(Io::BLOCKING).unwrap();
}

/// P-148: a pool from before learns where names lie while it is used and crashes.
#[test]
fn a_pool_from_before_learns_where_names_lie() {
    for seed in 20..23 {
        let random = &mut Random(seed);
        let (rig, fs) = Rig::new(4, DEVICE_BYTES);
        let mut tree = Tree::new(&fs);
        (0..300).for_each(|number| tree.change(&fs, random, number));
        let mut wrong: Vec<(u64, u64)> =
            tree.names.values().filter(|_| random.next(3) == 0).map(|inode| (*inode, tree.directories[0].0)).collect();
        wrong.sort_unstable();
        wrong.dedup();
        make_old(&fs, &wrong);
        let mut fs = rig.reopen(fs, true);
        let known = |fs: &FileSystem| {
            let value = fs.store().view(Io::BLOCKING, |view| view.get(&Key::named_in_known())).unwrap();
            value.map(|value| NamedInValue::decode(&value).unwrap())
        };
        for number in 300..500 {
            tree.change(&fs, random, number);
            if number % 25 == 0 {
                fs.step(&caller(5), 1).unwrap();
            }
            if number % 70 == 0 {
                fs.syncfs(&caller(4)).unwrap();
                tree.change(&fs, random, number + 1000);
                fs = rig.reopen(fs, random.next(2) == 0);
                tree.forget_lost(&fs);
            }
        }
        while fs.step(&caller(5), 100).unwrap() {}
        assert_eq!(known(&fs), Some(NamedInValue::ALL));
        let differing = tree.compare(&fs);
        assert!(differing > 5, "{differing}");
        fs.syncfs(&caller(4)).unwrap();
        assert_clean(&fs);
        reconcile(&fs);
        for inode in tree.names.values() {
            assert_eq!(fact(&fs, *inode, "state"), "compliant", "{inode}");
        }
    }
}

/// P-148: `check` proves what is noted.
#[test]
fn what_is_noted_wrongly_is_found() {
    let (_rig, fs) = Rig::new(2, DEVICE_BYTES);
    let [one, two] = ["one", "two"].map(|name| mkdir(&fs, ROOT, name));
    let (file, single) = (make(&fs, one, "a", b"x"), make(&fs, one, "single", b"x"));
    fs.link(&caller(4), file, two, b"b").unwrap();
    fs.syncfs(&caller(4)).unwrap();
    assert_clean(&fs);
    let put = |key: Key, bytes: Option<&[u8]>| {
        let change = |transaction: &mut stere_store::Transaction<'_>| {
            match bytes {
                Some(bytes) => transaction.put(key, bytes),
                None => transaction.delete(key),
            }
            Ok::<_, stere_store::Error>(())
        };
        fs.store().update(Io::BLOCKING, change).unwrap();
    };
    let read = |key: Key| {
        fs.store()
            .view(Io::BLOCKING, |view| Ok::<_, stere_store::Error>(view.get(&key)?.map(|value| value.to_vec())))
            .unwrap()
    };
    let moved = |inode: u64, parent: u64| {
        let value = InodeValue::decode(&read(Key::inode(inode)).unwrap()).unwrap();
        Some(InodeValue { parent, ..value }.encode())
    };
    let spoilt: [(Key, Option<Vec<u8>>); 7] = [
        (Key::named_in(file, two), None),
        (Key::named_in(file, two), Some(2u32.to_le_bytes().to_vec())),
        (Key::named_in(file, two), Some(vec![1])),
        (Key::named_in(file, ROOT), Some(1u32.to_le_bytes().to_vec())),
        (Key::named_in(single, one), Some(1u32.to_le_bytes().to_vec())),
        (Key::inode(file), moved(file, ROOT)),
        (Key::inode(single), moved(single, two)),
    ];
    for (key, bytes) in spoilt {
        let before = read(key);
        put(key, bytes.as_deref());
        let found = stere_naming::check(fs.store()).unwrap();
        assert!(found.iter().any(|one| one.inode == Some(key.object)), "{key}: {found:?}");
        put(key, before.as_deref());
    }
    assert_clean(&fs);
}

/// P-147: pins, and which rule it was, by whichever name.
#[test]
fn pins_and_rules_of_any_name_count() {
    let (_rig, fs) = Rig::new(3, DEVICE_BYTES);
    let [one, two] = ["one", "two"].map(|name| mkdir(&fs, ROOT, name));
    let file = make(&fs, one, "a", b"x");
    set(&fs, two, "pin", "yes");
    set(&fs, two, "rules", "*.raw: copies=3");
    assert_eq!(holds(&fs, file, "pin"), "NoAttribute");
    link(&fs, file, two, "a.raw");
    // Named last elsewhere, so that it is not by that.
    link(&fs, file, one, "b");
    assert_eq!((holds(&fs, file, "pin"), source(&fs, file, "pin")), ("yes".into(), "inherited from /two".into()));
    assert_eq!(holds(&fs, file, "copies"), "3");
    assert_eq!(source(&fs, file, "copies"), "rule of /two: *.raw: copies=3");
    fs.unlink(&caller(4), two, b"a.raw").unwrap();
    fs.unlink(&caller(4), one, b"b").unwrap();
    reconcile(&fs);
    assert_eq!((holds(&fs, file, "pin"), holds(&fs, file, "copies")), ("NoAttribute".into(), "2".into()));
}
