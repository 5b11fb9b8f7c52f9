//! P-154: `pin`, `unit` and `names` are said by rules and classes too, for files and directories that match and all below them.

use crate::support;

use std::collections::BTreeMap;

use stere_naming::{Error, FileSystem, Io, OpenFlags, ROOT, SetMode};
use stere_store::TierMarks;
use support::edits::{Random, fact, set};
use support::files::{assert_clean, make, mkdir};
use support::volume::{add_volume, segments_of};
use support::{Rig, caller, reconcile};

/// More than a segment.
const LENGTH: usize = 1_300_000;

fn content(number: u64, length: usize) -> Vec<u8> {
    (0..length).map(|at| (at / 700 * 13 + at + number as usize * 31) as u8).collect()
}

fn settle(fs: &FileSystem) {
    while fs.store().tier.step(true, &|_| Vec::new()).unwrap().is_busy {}
}

fn is_here(fs: &FileSystem, inode: u64) -> bool {
    fs.tiers().tier_file(&caller(3), inode).unwrap().residency() == "online"
}

/// Everything goes down, and as much of it goes from devices as may.
fn press(fs: &FileSystem) {
    fs.syncfs(&caller(1000)).unwrap();
    reconcile(fs);
    settle(fs);
    (0..3).for_each(|_| fs.store().checkpoint().unwrap());
    fs.store().tier.media.set_tier_marks(TierMarks::new(2, 1).unwrap()).unwrap();
    fs.eviction().keep_room(&caller(2000)).unwrap();
}

fn classes(settings: &[(&str, &str)]) -> Vec<(String, String)> {
    settings.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect()
}

#[test]
fn what_rules_pin_stays_and_goes_when_they_go() {
    let (rig, fs) = Rig::new(2, 96 << 20);
    let volume = add_volume(&fs);
    let top = mkdir(&fs, ROOT, "top");
    set(&fs, top, "tier", "cold");
    set(&fs, top, "rules", "*.index: pin=yes; kept/**: pin=yes; kept: pin=yes; *.tmp: pin=no; size>3M: pin=yes");
    let kept = mkdir(&fs, top, "kept");
    let below = mkdir(&fs, kept, "below");
    let files: Vec<(u64, bool)> = [
        (top, "a.index", LENGTH, true),
        (top, "a.data", LENGTH, false),
        (below, "file", LENGTH, true),
        (below, "file.tmp", LENGTH, true),
        (top, "large", 4 << 20, true),
        (top, "b.tmp", LENGTH, false),
    ]
    .into_iter()
    .map(|(directory, name, length, stays)| (make(&fs, directory, name, &content(length as u64, length)), stays))
    .collect();
    for (inode, stays) in &files {
        assert_eq!(fact(&fs, *inode, "effective.pin") == "yes", *stays, "{inode}");
    }
    assert_eq!(fact(&fs, files[0].0, "source.pin"), "rule of /top: *.index: pin=yes");
    assert_eq!(fact(&fs, files[2].0, "source.pin"), "rule of /top: kept/**: pin=yes");
    assert!(fact(&fs, below, "source.pin").contains("kept/**"));
    press(&fs);
    let here = |fs: &FileSystem| files.iter().map(|(inode, _)| is_here(fs, *inode)).collect::<Vec<_>>();
    // Neighbours that share a segment with what stays may stay too: what is pinned is here, and something went.
    assert!(files.iter().zip(here(&fs)).all(|((_, stays), here)| here || !stays), "{:?}", here(&fs));
    assert!(here(&fs).contains(&false), "{:?}", here(&fs));
    let all: std::collections::BTreeSet<u64> = segments_of(&fs, top).into_iter().collect();
    let pinned = fs.eviction().staying_among(&caller(2001), &all, Some(top)).unwrap().pinned;
    for (inode, _) in files.iter().filter(|(_, stays)| *stays) {
        assert!(segments_of(&fs, *inode).iter().all(|segment| pinned.contains(segment)));
    }
    fs.syncfs(&caller(3)).unwrap();
    let fs = rig.reopen(fs, true);
    fs.store().tier.media.attach_volume(0, volume, None, true).unwrap();
    assert!(is_here(&fs, files[0].0) && is_here(&fs, files[2].0));
    fs.eviction().keep_room(&caller(2002)).unwrap();
    assert!(is_here(&fs, files[0].0) && is_here(&fs, files[2].0), "after a crash too");
    set(&fs, top, "rules", "");
    fs.eviction().keep_room(&caller(2003)).unwrap();
    assert!(!here(&fs).contains(&true), "nobody says so any more: {:?}", here(&fs));
    assert_clean(&fs);
}

/// Who stored something need not be who has it.
#[test]
fn what_is_shared_with_something_pinned_stays() {
    for (is_removed, is_changed) in [(false, false), (true, false), (false, true)] {
        let (_rig, fs) = Rig::new(2, 96 << 20);
        add_volume(&fs);
        let (first, second) = (mkdir(&fs, ROOT, "first"), mkdir(&fs, ROOT, "second"));
        set(&fs, ROOT, "tier", "cold");
        let original = make(&fs, first, "original", &content(1, LENGTH));
        fs.syncfs(&caller(3)).unwrap();
        let copy = make(&fs, second, "copy", b"");
        assert_eq!(fs.copy_range(&caller(3), original, 0, copy, 0, LENGTH as u64).unwrap(), LENGTH as u64);
        // Both lie on the volume too, in segments that tell of the first.
        fs.syncfs(&caller(3)).unwrap();
        reconcile(&fs);
        settle(&fs);
        if is_removed {
            fs.unlink(&caller(3), first, b"original").unwrap();
        }
        if is_changed {
            fs.write(&caller(3), original, 0, &content(9, LENGTH), false).unwrap();
        }
        set(&fs, ROOT, "rules", "second/*: pin=yes");
        press(&fs);
        assert!(is_here(&fs, copy), "{is_removed} {is_changed}");
        set(&fs, ROOT, "rules", "");
        fs.eviction().keep_room(&caller(2003)).unwrap();
        assert!(!is_here(&fs, copy));
        assert_clean(&fs);
    }
}

#[test]
fn rules_make_units_of_directories() {
    let (rig, fs) = Rig::new(2, 128 << 20);
    let volume = add_volume(&fs);
    let projects = mkdir(&fs, ROOT, "projects");
    fs.policy().load_rules(&caller(2), "/projects/*: unit=yes; /projects/*/apart: unit=no").unwrap();
    set(&fs, projects, "tier", "cold");
    let (one, two) = (mkdir(&fs, projects, "one"), mkdir(&fs, projects, "two"));
    let (deep, apart) = (mkdir(&fs, one, "deep"), mkdir(&fs, one, "apart"));
    let at = [(one, "a"), (deep, "b"), (two, "c"), (apart, "d"), (one, "e"), (projects, "f"), (deep, "g")];
    let files: Vec<u64> = at.iter().map(|(directory, name)| make(&fs, *directory, name, &content(1, LENGTH))).collect();
    let unit_of = |fs: &FileSystem, inode| fs.units().unit_of(Io::BLOCKING, inode).unwrap();
    let units = |fs: &FileSystem| files.iter().map(|inode| unit_of(fs, *inode)).collect::<Vec<_>>();
    assert_eq!(units(&fs), [Some(one), Some(one), Some(two), None, Some(one), None, Some(one)]);
    assert_eq!(fact(&fs, files[1], "effective.unit"), "yes");
    assert_eq!(
        fact(&fs, files[1], "source.unit"),
        "rule of the pool: /projects/*: unit=yes, which matches /projects/one"
    );
    assert_eq!(
        (fact(&fs, files[3], "effective.unit"), fact(&fs, files[5], "effective.unit")),
        ("no".into(), "NoAttribute".into())
    );
    fs.syncfs(&caller(3)).unwrap();
    reconcile(&fs);
    settle(&fs);
    fs.tiers().release_segments(&caller(3), &segments_of(&fs, projects)).unwrap();
    fs.store().commit(Io::BLOCKING).unwrap();
    let fs = rig.reopen(fs, true);
    fs.store().tier.media.attach_volume(0, volume, None, true).unwrap();
    let mut bytes = [0; 5000];
    fs.read(&caller(4), files[1], 700_000, &mut bytes).unwrap();
    assert!(fs.units().stage_units(&caller(4)).unwrap() > 2);
    settle(&fs);
    assert!([0, 1, 4, 6].into_iter().all(|at| is_here(&fs, files[at])), "all of the unit");
    assert!(!is_here(&fs, files[2]), "and nothing of another one");
    // A directory that is named otherwise is none any more.
    fs.rename(&caller(5), projects, b"one", ROOT, b"one", 0).unwrap();
    assert_eq!((unit_of(&fs, files[0]), unit_of(&fs, files[2])), (None, Some(two)));
    fs.policy().load_rules(&caller(6), "").unwrap();
    assert_eq!(units(&fs), [None; 7]);
    assert_clean(&fs);
}

/// What is old in a unit is kept as long as something in it is young, where a rule makes the unit too.
#[test]
fn a_unit_of_rules_is_as_old_as_its_youngest_member() {
    for is_unit in [false, true] {
        let (_rig, fs) = Rig::new(2, 192 << 20);
        add_volume(&fs);
        set(&fs, ROOT, "rules", if is_unit { "/unit: unit=yes" } else { "/unit: unit=no" });
        let (directory, elsewhere) = (mkdir(&fs, ROOT, "unit"), mkdir(&fs, ROOT, "elsewhere"));
        let old = make(&fs, directory, "old", &content(1, 10 << 20));
        let other = make(&fs, elsewhere, "other", &content(2, 40 << 20));
        let young = make(&fs, directory, "young", b"");
        for (inode, seconds) in [(other, 500), (young, 1000)] {
            fs.write(&caller(seconds), inode, 0, b"later", false).unwrap();
        }
        fs.syncfs(&caller(1000)).unwrap();
        for inode in [old, other] {
            set(&fs, inode, "tier", "cold");
        }
        reconcile(&fs);
        settle(&fs);
        (0..3).for_each(|_| fs.store().checkpoint().unwrap());
        let used = fs.store().space().used_percent();
        fs.store().tier.media.set_tier_marks(TierMarks::new(used, used - 1).unwrap()).unwrap();
        assert!(fs.eviction().keep_room(&caller(2000)).unwrap().unwrap() > 0);
        // A segment that both have a part of may go.
        let stays = fs.tiers().tier_file(&caller(3), old).unwrap().local_bytes > 8 << 20;
        assert_eq!((stays, is_here(&fs, other)), (is_unit, false));
    }
}

#[test]
fn classes_say_it_where_they_are_set_and_by_rules() {
    let (rig, fs) = Rig::new(2, 96 << 20);
    fs.policy()
        .create_class(&caller(2), "films", &classes(&[("pin", "yes"), ("unit", "yes"), ("names", "90d")]))
        .unwrap();
    fs.policy().create_class(&caller(2), "plain", &classes(&[("compress", "lz4")])).unwrap();
    let (top, other) = (mkdir(&fs, ROOT, "top"), mkdir(&fs, ROOT, "other"));
    let below = mkdir(&fs, top, "below");
    let file = make(&fs, below, "file", b"some");
    let film = make(&fs, other, "a.film", b"some");
    set(&fs, top, "class", "films");
    let said =
        |fs: &FileSystem, inode| ["pin", "unit", "names"].map(|key| fact(fs, inode, &format!("effective.{key}")));
    assert_eq!(said(&fs, file), ["yes", "yes", "90d"]);
    assert_eq!(fact(&fs, file, "source.names"), "inherited from /top");
    assert_eq!(fs.units().unit_of(Io::BLOCKING, file).unwrap(), Some(top));
    // Of one class the nearest speaks; a key speaks louder.
    set(&fs, below, "class", "plain");
    assert_eq!(said(&fs, file), ["NoAttribute", "NoAttribute", "NoAttribute"]);
    set(&fs, below, "unit", "no");
    set(&fs, below, "class", "");
    assert_eq!(said(&fs, file), ["yes", "no", "90d"]);
    set(&fs, other, "rules", "*.film: class=films");
    assert_eq!(fact(&fs, film, "effective.pin"), "yes");
    assert_eq!(fact(&fs, film, "source.pin"), "rule of /other: *.film: class=films");
    let fs = rig.reopen(
        {
            fs.syncfs(&caller(5)).unwrap();
            fs
        },
        true,
    );
    assert_eq!(said(&fs, file), ["yes", "no", "90d"]);
    let settings =
        fs.classes().list_classes(Io::BLOCKING).unwrap().into_iter().find(|one| one.name == "films").unwrap().settings;
    assert!(settings.contains(&("names", "90d".into())) && settings.contains(&("pin", "yes".into())), "{settings:?}");
    fs.policy().change_class(&caller(2), "films", &classes(&[("pin", ""), ("names", "never")])).unwrap();
    assert_eq!(said(&fs, file), ["NoAttribute", "no", "no"]);
    assert!(fs.policy().change_class(&caller(2), "films", &classes(&[("unit", "perhaps")])).is_err());
    assert_clean(&fs);
}

#[test]
fn a_locked_class_goes_before_all_and_may_not_be_contradicted() {
    let (_rig, fs) = Rig::new(2, 96 << 20);
    fs.policy().create_class(&caller(2), "kept", &classes(&[("pin", "yes")])).unwrap();
    let top = mkdir(&fs, ROOT, "top");
    let file = make(&fs, top, "file", b"some");
    set(&fs, file, "pin", "no");
    fs.setxattr(&caller(3), top, b"trusted.stere.class", b"kept", SetMode::Any, false).unwrap();
    assert_eq!(fact(&fs, file, "effective.pin"), "yes");
    assert_eq!(fact(&fs, file, "source.pin"), "locked by the administrator at /top");
    let refused = |inode, key: &[u8], value: &[u8]| fs.setxattr(&caller(3), inode, key, value, SetMode::Any, false);
    assert!(matches!(refused(file, b"user.stere.pin", b"no"), Err(Error::NotPermitted(_))));
    assert!(matches!(refused(top, b"user.stere.rules", b"*: pin=no"), Err(Error::NotPermitted(_))));
    refused(file, b"user.stere.pin", b"yes").unwrap();
    refused(top, b"user.stere.rules", b"*: pin=yes; type=directory *: unit=yes").unwrap();
}

/// Of several names what keeps it is what counts.
#[test]
fn of_several_names_the_one_that_is_pinned_counts() {
    let (_rig, fs) = Rig::new(2, 96 << 20);
    set(&fs, ROOT, "rules", "*.keep: pin=yes; *.go: pin=no");
    let (one, two) = (mkdir(&fs, ROOT, "one"), mkdir(&fs, ROOT, "two"));
    let file = make(&fs, one, "a.go", b"some");
    assert_eq!(fact(&fs, file, "effective.pin"), "no");
    fs.link(&caller(3), file, two, b"a.keep").unwrap();
    assert_eq!(fact(&fs, file, "effective.pin"), "yes");
    assert_eq!(fact(&fs, file, "source.pin"), "rule of /: *.keep: pin=yes");
    fs.unlink(&caller(3), two, b"a.keep").unwrap();
    assert_eq!(fact(&fs, file, "effective.pin"), "no");
}

#[test]
fn directories_are_matched_by_owner_and_mode_as_they_are_now() {
    use stere_naming::SetAttributes;
    let (_rig, fs) = Rig::new(2, 96 << 20);
    set(&fs, ROOT, "rules", "type=directory owner=7 *: unit=yes");
    let top = mkdir(&fs, ROOT, "top");
    let file = make(&fs, top, "file", b"some");
    assert_eq!(fs.units().unit_of(Io::BLOCKING, file).unwrap(), None);
    for (uid, unit) in [(7, Some(top)), (8, None)] {
        fs.setattr(&caller(3), top, &SetAttributes { uid: Some(uid), ..SetAttributes::default() }).unwrap();
        assert_eq!(fs.units().unit_of(Io::BLOCKING, file).unwrap(), unit);
    }
}

/// What somebody said, written down plainly.
#[derive(Default, Clone)]
struct Node {
    parent: usize,
    name: String,
    is_directory: bool,
    own: BTreeMap<&'static str, &'static str>,
    class: Option<&'static str>,
    /// Pattern and settings each.
    rules: Vec<(&'static str, Vec<(&'static str, &'static str)>)>,
}

const KEYS: [&str; 3] = ["pin", "unit", "names"];
const CLASSES: [(&str, &[(&str, &str)]); 2] =
    [("ones", &[("pin", "yes"), ("unit", "no")]), ("others", &[("names", "8d"), ("unit", "yes")])];

fn of_class(class: &str, key: &str) -> Option<&'static str> {
    let (_, settings) = CLASSES.iter().find(|(name, _)| *name == class)?;
    settings.iter().find(|(known, _)| *known == key).map(|(_, value)| *value)
}

/// The value of a key at a node by looking at everything in the order in which it counts.
fn plainly(nodes: &[Node], pool: &Node, at: usize, key: &str) -> Option<&'static str> {
    // Units and names are of directories.
    let at = if nodes[at].is_directory || key == "pin" { at } else { nodes[at].parent };
    let mut way = vec![at];
    while *way.last().unwrap() != 0 {
        way.push(nodes[*way.last().unwrap()].parent);
    }
    let rank = |value: &&str| match *value {
        "yes" | "no" if key != "names" => u64::from(*value == "yes"),
        "no" => u64::MAX,
        days => days.trim_end_matches('d').parse().unwrap(),
    };
    let by_rules = |rules: &Node, objects: &[usize], has_class: &mut bool| {
        for object in objects {
            let node = &nodes[*object];
            let matching = rules.rules.iter().filter(|(pattern, settings)| {
                let is_it = *pattern == "*" || node.name == *pattern;
                // Rules that say nothing of files do not match them.
                is_it && (node.is_directory || settings.iter().any(|(key, _)| matches!(*key, "pin" | "class")))
            });
            let matching: Vec<_> = matching.collect();
            let values = matching.iter().filter_map(|(_, settings)| {
                let find = |wanted: &str| settings.iter().find(|(key, _)| *key == wanted).map(|(_, value)| *value);
                find(key).or_else(|| of_class(find("class")?, key))
            });
            if let Some(value) = values.max_by_key(rank) {
                return Some(value);
            }
            *has_class |= matching.iter().any(|(_, settings)| settings.iter().any(|(key, _)| *key == "class"));
        }
        None
    };
    let mut has_class = false;
    for (up, place) in way.iter().enumerate() {
        if let Some(value) = by_rules(&nodes[*place], &way[..up], &mut has_class) {
            return Some(value);
        }
        if let Some(value) = nodes[*place].own.get(key) {
            return Some(value);
        }
        if let Some(class) = nodes[*place].class {
            if let Some(value) = of_class(class, key).filter(|_| !has_class) {
                return Some(value);
            }
            has_class = true;
        }
    }
    by_rules(pool, &way[..way.len() - 1], &mut has_class)
}

fn random_rules(random: &mut Random) -> Vec<(&'static str, Vec<(&'static str, &'static str)>)> {
    let settings: [(&str, &str); 9] = [
        ("pin", "yes"),
        ("pin", "no"),
        ("unit", "yes"),
        ("unit", "no"),
        ("names", "3d"),
        ("names", "no"),
        ("class", "ones"),
        ("class", "others"),
        ("names", "40d"),
    ];
    (0..random.next(4))
        .map(|_| {
            let pattern = ["*", "a", "b", "c"][random.next(4) as usize];
            let first = settings[random.next(9) as usize];
            let second = settings[random.next(9) as usize];
            (pattern, if first.0 == second.0 { vec![first] } else { vec![first, second] })
        })
        .collect()
}

fn text_of(rules: &[(&str, Vec<(&str, &str)>)]) -> String {
    let one = |(pattern, settings): &(&str, Vec<(&str, &str)>)| {
        let settings: Vec<String> = settings.iter().map(|(key, value)| format!("{key}={value}")).collect();
        format!("{pattern}: {}", settings.join(", "))
    };
    rules.iter().map(one).collect::<Vec<_>>().join("; ")
}

/// Attributes, classes, rules of directories and of the pool come and go, directories move, power fails: what holds everywhere is what the
/// plain model says, which looks at everything each time.
#[test]
fn what_holds_is_what_a_plain_model_says() {
    for seed in 0..6 {
        let (rig, mut fs) = Rig::new(1, 64 << 20);
        let random = &mut Random(seed * 77 + 5);
        for (name, settings) in CLASSES {
            fs.policy().create_class(&caller(2), name, &classes(settings)).unwrap();
        }
        let mut pool = Node::default();
        let mut nodes = vec![Node { is_directory: true, ..Node::default() }];
        let mut inodes = vec![ROOT];
        for at in 1..24 {
            let directories: Vec<usize> = (0..at).filter(|at| nodes[*at].is_directory).collect();
            let parent = directories[random.next(directories.len() as u64) as usize];
            let is_directory = random.next(3) > 0;
            let free = ["a", "b", "c", "d", "e", "f", "g"]
                .into_iter()
                .filter(|name| !nodes.iter().skip(1).any(|node| node.parent == parent && node.name == *name));
            let free: Vec<&str> = free.collect();
            let name = free[random.next(free.len().min(4) as u64) as usize].to_owned();
            inodes.push(match is_directory {
                true => mkdir(&fs, inodes[parent], &name),
                false => make(&fs, inodes[parent], &name, b"x"),
            });
            nodes.push(Node { parent, name, is_directory, ..Node::default() });
        }
        for step in 0..60 {
            let at = random.next(nodes.len() as u64) as usize;
            match random.next(7) {
                0 | 1 => {
                    let key = KEYS[random.next(3) as usize];
                    let value = match key {
                        "names" => ["", "no", "9d"][random.next(3) as usize],
                        _ => ["", "no", "yes"][random.next(3) as usize],
                    };
                    if nodes[at].is_directory || key == "pin" {
                        set(&fs, inodes[at], key, value);
                        nodes[at].own.remove(key);
                        if !value.is_empty() {
                            nodes[at].own.insert(key, value);
                        }
                    }
                }
                2 => {
                    let class = ["", "ones", "others"][random.next(3) as usize];
                    set(&fs, inodes[at], "class", class);
                    nodes[at].class = Some(class).filter(|class| !class.is_empty());
                }
                3 if nodes[at].is_directory => {
                    let rules = random_rules(random);
                    set(&fs, inodes[at], "rules", &text_of(&rules));
                    nodes[at].rules = rules;
                }
                4 => {
                    let rules = random_rules(random);
                    fs.policy().load_rules(&caller(3), &text_of(&rules)).unwrap();
                    pool.rules = rules;
                }
                5 if at > 0 => {
                    let to = random.next(nodes.len() as u64) as usize;
                    let name = ["a", "b", "c"][random.next(3) as usize];
                    let is_taken = nodes.iter().skip(1).any(|node| node.parent == to && node.name == name);
                    if nodes[to].is_directory && !is_taken {
                        let (from, old) = (inodes[nodes[at].parent], nodes[at].name.clone());
                        let moved = fs.rename(&caller(4), from, old.as_bytes(), inodes[to], name.as_bytes(), 0);
                        if moved.is_ok() {
                            (nodes[at].parent, nodes[at].name) = (to, name.to_owned());
                        }
                    }
                }
                6 if step % 5 == 0 => {
                    fs.syncfs(&caller(5)).unwrap();
                    fs = rig.reopen(fs, true);
                }
                _ => {}
            }
            for (at, inode) in inodes.iter().copied().enumerate() {
                for key in KEYS {
                    let expected = plainly(&nodes, &pool, at, key).unwrap_or("NoAttribute");
                    let path = String::from_utf8(fs.path_of(Io::BLOCKING, inode).unwrap()).unwrap();
                    assert_eq!(
                        fact(&fs, inode, &format!("effective.{key}")),
                        expected,
                        "{key} of {path}, seed {seed}, step {step}"
                    );
                }
            }
        }
        assert_clean(&fs);
    }
}

#[test]
fn opening_a_file_that_rules_say_nothing_noted_of_changes_nothing() {
    let (_rig, fs) = Rig::new(1, 64 << 20);
    set(&fs, ROOT, "rules", "size>1K: pin=yes; /x: unit=yes");
    let file = make(&fs, ROOT, "file", &content(1, 5000));
    assert_eq!(fact(&fs, file, "effective.pin"), "yes");
    let before = fs.getattr(&caller(3), file).unwrap();
    let handle = fs.open(&caller(4), file, OpenFlags::default()).unwrap();
    fs.release(&caller(4), file, handle).unwrap();
    while fs.step(&caller(5), 100).unwrap() {}
    reconcile(&fs);
    assert_eq!(fs.getattr(&caller(6), file).unwrap().ctime, before.ctime);
}
