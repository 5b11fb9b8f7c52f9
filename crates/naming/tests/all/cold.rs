//! P-152: names that nobody used for as long as `names=` says are put away by themselves, and nothing else is.

use crate::support;

use std::ops::ControlFlow;

use stere_format::{Key, NamesUse};
use stere_naming::{FileSystem, OpenFlags, ROOT, SetMode};
use stere_store::Io;
use support::cold::{DIRECTORIES, FILES, assert_all_there, find, listed, release, resident_keys, world};
use support::edits::set;
use support::files::{assert_clean, make, mkdir};
use support::{Rig, caller, reconcile};

const ATTRIBUTE: &[u8] = b"user.stere.names";
/// Of a directory with two names.
const KEYS_LEFT: u64 = 4;

fn say(fs: &FileSystem, seconds: i64, directory: u64, value: &str) {
    fs.setxattr(&caller(seconds), directory, ATTRIBUTE, value.as_bytes(), SetMode::Any, false).unwrap();
}

/// Background work at this moment, to its end.
fn pass(fs: &FileSystem, seconds: i64) {
    for _ in 0..10_000 {
        // News are looked at in a round of their own.
        if !fs.step(&caller(seconds), 1000).unwrap() && !fs.step(&caller(seconds), 1000).unwrap() {
            return;
        }
    }
    panic!("the work at {seconds} does not end");
}

fn pass_through(fs: &FileSystem, seconds: std::ops::RangeInclusive<i64>) {
    seconds.step_by(5).for_each(|at| pass(fs, at));
}

fn notes(fs: &FileSystem) -> Vec<(u64, NamesUse)> {
    let read = fs.store().view(Io::BLOCKING, |view| {
        let mut notes = Vec::new();
        view.scan(Key::names_use(0), Key::names_use(u64::MAX), |key, bytes| {
            notes.push((key.position, NamesUse::decode(bytes).unwrap()));
            ControlFlow::Continue(())
        })?;
        Ok::<_, stere_store::Error>(notes)
    });
    read.unwrap()
}

fn is_away(fs: &FileSystem, directory: u64) -> bool {
    fs.store().offload().is_folded(&Key::dirent_hash(directory, 0))
}

/// They go when they are old enough and not before, as far as a command would put them away; what comes back by use goes again, and
/// only that came back.
#[test]
fn they_go_come_back_and_go_again() {
    let (rig, fs, volume, cold) = world();
    release(&fs, cold);
    let before = resident_keys(&fs);
    say(&fs, 100, cold, "100s");
    assert_eq!(fs.getxattr(&caller(101), cold, b"user.stere.effective.names").unwrap(), b"100s");
    pass_through(&fs, 101..=195);
    assert_eq!(resident_keys(&fs), before, "nobody knows of a use for less than that");
    assert_eq!(notes(&fs).len(), 2 * DIRECTORIES, "{:?}", notes(&fs));
    pass_through(&fs, 200..=215);
    // The two names of each entry would not be worth a bundle.
    assert!(resident_keys(&fs) < 60, "{} of {before}", resident_keys(&fs));
    assert_eq!(notes(&fs).len(), DIRECTORIES, "what is away has no note");
    let left = fs.offload().offload_below(&caller(216), cold).unwrap();
    assert_eq!((left.keys, left.staying), (KEYS_LEFT * DIRECTORIES as u64, 0));
    release(&fs, cold);
    assert_clean(&fs);
    let (requests, away) = (volume.requests(), resident_keys(&fs));
    assert_eq!(listed(&fs, cold).unwrap().len(), DIRECTORIES + 1);
    pass_through(&fs, 220..=900);
    assert_eq!((volume.requests(), resident_keys(&fs)), (requests, away), "the work itself uses nothing");

    let deep = |fs: &FileSystem, number: &str| find(fs, cold, &[number, "deep"]);
    let used = deep(&fs, "3");
    let mut names = 0;
    fs.readdir(&caller(1000), used, 0, false, &mut |_| {
        names += 1;
        ControlFlow::Continue(())
    })
    .unwrap();
    assert_eq!(names, FILES + 2);
    assert!(!is_away(&fs, used) && resident_keys(&fs) < before / 2);
    pass_through(&fs, 1001..=1095);
    assert!(!is_away(&fs, used));
    // What came back is remembered, and what was used, by the next mount too.
    fs.close(&caller(1096)).unwrap();
    let fs = rig.reopen(fs, false);
    fs.store().tier.media.attach_volume(0, volume.clone(), None, true).unwrap();
    pass(&fs, 1097);
    assert!(!is_away(&fs, used));
    pass_through(&fs, 1100..=1210);
    assert!(is_away(&fs, used));
    assert_eq!(resident_keys(&fs), away, "this time with what is above it");
    release(&fs, cold);
    let fs = rig.reopen(fs, true);
    fs.store().tier.media.attach_volume(0, volume, None, true).unwrap();
    assert_all_there(&fs, cold);
    assert_clean(&fs);
}

/// What is looked up, opened or changed stays, and what cannot go is not tried again before an eighth of the age is over.
#[test]
fn what_is_used_or_not_on_volumes_only_stays() {
    let (_rig, fs, _volume, cold) = world();
    release(&fs, cold);
    say(&fs, 100, cold, "160s");
    let deep: Vec<u64> = (0..DIRECTORIES).map(|number| find(&fs, cold, &[&number.to_string(), "deep"])).collect();
    let open = find(&fs, deep[1], &["file 5"]);
    let handle = fs.open(&caller(100), open, OpenFlags::default()).unwrap();
    fs.link(&caller(100), find(&fs, deep[2], &["file 0"]), ROOT, b"second name").unwrap();
    for at in (101..=400).step_by(5) {
        fs.lookup(&caller(at), deep[0], b"file 9").unwrap();
        pass(&fs, at);
    }
    let away: Vec<bool> = deep.iter().map(|directory| is_away(&fs, *directory)).collect();
    assert_eq!(away, [false, false, false, true, true, true]);
    let look = |fs: &FileSystem| notes(fs).into_iter().find(|(inode, _)| *inode == deep[2]).unwrap().1.look_seconds;
    let next = look(&fs);
    assert!((397..=416).contains(&next), "{next}");
    pass(&fs, next as i64 - 1);
    assert_eq!(look(&fs), next);
    fs.release(&caller(421), open, handle).unwrap();
    fs.unlink(&caller(421), ROOT, b"second name").unwrap();
    reconcile(&fs);
    pass_through(&fs, 421..=560);
    assert!(!is_away(&fs, deep[1]), "it was closed not long ago");
    pass_through(&fs, 565..=640);
    assert!(deep.iter().all(|directory| is_away(&fs, *directory)));
    assert_clean(&fs);
    assert_all_there(&fs, cold);
}

/// What is used while it is being gathered stays, with all that is above it.
#[test]
fn a_file_that_is_made_meanwhile_has_its_directory() {
    let (_rig, fs, _volume, cold) = world();
    release(&fs, cold);
    let deep = find(&fs, cold, &["4", "deep"]);
    say(&fs, 100, cold, "100s");
    pass(&fs, 101);
    for budget in 1.. {
        // So little at a time that something is gathered and not put away yet.
        let at = 300 + budget;
        if !fs.step(&caller(at), 1).unwrap() || is_away(&fs, deep) {
            break;
        }
        make(&fs, deep, &format!("new {budget}"), b"on devices");
        assert!(!is_away(&fs, deep));
    }
    pass_through(&fs, 900..=905);
    let made = listed(&fs, deep).unwrap();
    for (name, (_, _, inode)) in made.iter().filter(|(name, _)| name.starts_with("new")) {
        assert!(!fs.store().offload().is_folded(&Key::inode(*inode)), "{name}");
    }
    assert_clean(&fs);
    assert_all_there_but(&fs, deep, made.len());
}

fn assert_all_there_but(fs: &FileSystem, deep: u64, names: usize) {
    assert_eq!(listed(fs, deep).unwrap().len(), names);
    assert!(names > FILES, "some were made");
}

/// A directory that is moved there goes with all below it; where `names=no` says so, and where nobody says anything any more, all stays.
#[test]
fn what_is_moved_and_what_is_said_anew() {
    let (_rig, fs, _volume, cold) = world();
    release(&fs, cold);
    let inner = find(&fs, cold, &["0", "deep"]);
    for wrong in ["0s", "soon", "-1d", "yes", "20000y"] {
        let set = fs.setxattr(&caller(99), cold, ATTRIBUTE, wrong.as_bytes(), SetMode::Any, false);
        assert_eq!(set.unwrap_err().errno(), libc::EINVAL, "{wrong}");
    }
    let file = find(&fs, cold, &["direct"]);
    assert!(fs.setxattr(&caller(99), file, ATTRIBUTE, b"1d", SetMode::Any, false).is_err());
    let target = mkdir(&fs, ROOT, "target");
    set(&fs, target, "tier", "cold");
    reconcile(&fs);
    say(&fs, 100, target, "100s");
    pass_through(&fs, 101..=400);
    assert!(!fs.store().offload().has_folds());
    fs.rename(&caller(400), cold, b"0", target, b"0", 0).unwrap();
    fs.rename(&caller(400), ROOT, b"cold", target, b"cold", 0).unwrap();
    reconcile(&fs);
    say(&fs, 401, find(&fs, target, &["cold", "5"]), "no");
    pass_through(&fs, 402..=620);
    assert!(is_away(&fs, inner));
    let away = |number: &str| is_away(&fs, find(&fs, cold, &[number]));
    assert!(!away("5"));
    assert!(!is_away(&fs, cold), "5 is known otherwise than by its name");
    assert_eq!(fs.getxattr(&caller(621), cold, b"user.stere.source.names").unwrap(), b"inherited from /target");
    fs.offload().reload_below(&caller(700), target).unwrap();
    fs.removexattr(&caller(700), target, ATTRIBUTE).unwrap();
    pass_through(&fs, 701..=1000);
    assert!(!fs.store().offload().has_folds());
    assert_eq!(notes(&fs), []);
    assert_clean(&fs);
}

/// P-152 across crashes: wherever the work is cut off, nothing is lost, and it goes on.
#[test]
fn crashes_in_between() {
    let (rig, mut fs, volume, cold) = world();
    release(&fs, cold);
    say(&fs, 100, cold, "100s");
    fs.store().commit(Io::BLOCKING).unwrap();
    let mut at = 101;
    for crash in 0..12 {
        for _ in 0..crash {
            at += 7;
            fs.step(&caller(at), 3).unwrap();
            if crash % 3 == 0 {
                fs.store().commit(Io::BLOCKING).unwrap();
            }
        }
        fs = reopen(&rig, fs, &volume);
        assert_clean(&fs);
    }
    pass_through(&fs, at..=at + 300);
    release(&fs, cold);
    assert!(resident_keys(&fs) < 60, "{}", resident_keys(&fs));
    let fs = reopen(&rig, fs, &volume);
    assert_all_there(&fs, cold);
    assert_clean(&fs);
}

fn reopen(rig: &Rig, fs: FileSystem, volume: &std::sync::Arc<stere_device::MemoryVolume>) -> FileSystem {
    let fs = rig.reopen(fs, true);
    fs.store().tier.media.attach_volume(0, volume.clone(), None, true).unwrap();
    fs
}

/// P-154: a rule that matches a directory says it of the names below, when it is made and when it goes, after a crash too.
#[test]
fn names_go_where_rules_or_classes_say_so() {
    type Say = fn(&FileSystem, i64, &str);
    let by_directory: Say = |fs, at, text| {
        fs.setxattr(&caller(at), ROOT, b"user.stere.rules", text.as_bytes(), SetMode::Any, false).unwrap();
    };
    let by_pool: Say = |fs, at, text| assert!(fs.policy().load_rules(&caller(at), text).unwrap() > 0);
    let by_class: Say = |fs, at, text| {
        let settings = |value: &str| vec![("names".to_owned(), value.to_owned())];
        match text.is_empty() {
            true => assert!(fs.policy().change_class(&caller(at), "cold", &settings("no")).unwrap()),
            false => {
                fs.policy().create_class(&caller(at), "cold", &settings("100s")).unwrap();
                let text = "/cold: class=cold; /cold/5: names=no";
                fs.setxattr(&caller(at), ROOT, b"user.stere.rules", text.as_bytes(), SetMode::Any, false).unwrap();
            }
        }
    };
    for say in [by_directory, by_pool, by_class] {
        let (rig, fs, volume, cold) = world();
        release(&fs, cold);
        let deep = |fs: &FileSystem, number: &str| find(fs, cold, &[number, "deep"]);
        let directories: Vec<u64> = (0..DIRECTORIES).map(|number| deep(&fs, &number.to_string())).collect();
        say(&fs, 100, "/cold: names=100s; /cold/5: names=no");
        fs.syncfs(&caller(100)).unwrap();
        let fs = rig.reopen(fs, true);
        fs.store().tier.media.attach_volume(0, volume.clone(), None, true).unwrap();
        pass_through(&fs, 101..=195);
        assert!(
            !directories.iter().any(|directory| is_away(&fs, *directory)),
            "nobody knows of a use for less than that"
        );
        pass_through(&fs, 200..=215);
        let away: Vec<bool> = directories.iter().map(|directory| is_away(&fs, *directory)).collect();
        assert_eq!(away, [true, true, true, true, true, false], "but where a rule says no");
        let used = deep(&fs, "3");
        fs.readdir(&caller(216), used, 0, false, &mut |_| ControlFlow::Continue(())).unwrap();
        say(&fs, 217, "");
        pass_through(&fs, 218..=500);
        assert!(!is_away(&fs, used), "nobody says so any more");
        assert_all_there(&fs, cold);
        assert_clean(&fs);
    }
}

/// P-154: a directory that comes under a rule by its name is noted then.
#[test]
fn what_is_renamed_comes_under_rules() {
    let (rig, fs, volume, cold) = world();
    release(&fs, cold);
    fs.policy().load_rules(&caller(100), "/old: names=100s").unwrap();
    pass_through(&fs, 101..=300);
    assert!(notes(&fs).is_empty(), "where nothing is said nothing is noted");
    fs.syncfs(&caller(300)).unwrap();
    let fs = rig.reopen(fs, true);
    fs.store().tier.media.attach_volume(0, volume, None, true).unwrap();
    let deep = find(&fs, cold, &["2", "deep"]);
    assert!(!is_away(&fs, deep));
    fs.rename(&caller(301), ROOT, b"cold", ROOT, b"old", 0).unwrap();
    pass_through(&fs, 305..=420);
    assert!(is_away(&fs, deep));
    assert_clean(&fs);
}
