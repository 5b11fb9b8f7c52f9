//! Rules: what they decide for new, renamed, linked and existing files, who goes before whom, and that exactly the files that
//! are affected are stored anew (P-52).

use crate::support;

use stere_naming::{FileSystem, Io, OpenFlags, ROOT, SetMode};
use support::edits::{Random, fact, set};
use support::files::{make, mkdir};
use support::{Rig, caller, reconcile};

const DEVICE_BYTES: u64 = 96 << 20;

fn effective(fs: &FileSystem, inode: u64) -> String {
    format!("{} {}", fact(fs, inode, "effective.copies"), fact(fs, inode, "effective.compress"))
}

fn text(length: usize) -> Vec<u8> {
    (0..length / 20 + 1).flat_map(|at| format!("a line, number {at:>8}\n").into_bytes()).take(length).collect()
}

fn rename(fs: &FileSystem, from: u64, name: &str, to: u64, new_name: &str) {
    fs.rename(&caller(4), from, name.as_bytes(), to, new_name.as_bytes(), 0).unwrap();
}

#[test]
fn a_rule_decides_for_what_it_matches_and_says_so() {
    let (rig, fs) = Rig::new(3, DEVICE_BYTES);
    let top = mkdir(&fs, ROOT, "top");
    set(&fs, top, "rules", "*.c: compress=zstd, copies=3; *.o: copies=1; src/gen/*: compress=lz4");
    let source = mkdir(&fs, top, "src");
    let generated = mkdir(&fs, source, "gen");
    let (c, o, other) =
        (make(&fs, source, "a.c", &text(50_000)), make(&fs, source, "a.o", b"o"), make(&fs, source, "x", b"x"));
    let both = make(&fs, generated, "g.c", b"x");
    assert_eq!(effective(&fs, c), "3 zstd");
    assert_eq!(effective(&fs, o), "1 none");
    assert_eq!(effective(&fs, other), "2 none");
    assert_eq!(effective(&fs, both), "3 lz4", "the more conservative compression");
    assert_eq!(fact(&fs, c, "source.compress"), "rule of /top: *.c: compress=zstd, copies=3");
    assert_eq!(fact(&fs, other, "source.compress"), "default class of the pool");
    assert!(fact(&fs, c, "stored").parse::<u64>().unwrap() < 25_000, "it was written so at once");
    let fs = rig.reopen(
        {
            fs.syncfs(&caller(5)).unwrap();
            fs
        },
        true,
    );
    assert_eq!(effective(&fs, c), "3 zstd");
    let late = make(&fs, source, "late.c", b"x");
    assert_eq!(effective(&fs, late), "3 zstd");
    assert_eq!(fact(&fs, top, "rules"), "*.c: compress=zstd, copies=3; *.o: copies=1; src/gen/*: compress=lz4");
    let listed = fs.listxattr(&caller(5), top).unwrap();
    assert_eq!(listed, [b"user.stere.rules".to_vec()]);
}

#[test]
fn who_is_nearer_goes_first_and_the_administrator_before_all() {
    let (_rig, fs) = Rig::new(3, DEVICE_BYTES);
    let top = mkdir(&fs, ROOT, "top");
    let below = mkdir(&fs, top, "below");
    set(&fs, top, "copies", "1");
    set(&fs, top, "rules", "*.c: copies=3, compress=zstd");
    let file = make(&fs, below, "a.c", b"x");
    assert_eq!(effective(&fs, file), "3 zstd", "a rule before the attributes of its own directory");
    set(&fs, below, "copies", "2");
    reconcile(&fs);
    assert_eq!(effective(&fs, file), "2 zstd", "attributes of a nearer directory before it");
    set(&fs, below, "rules", "*.c: compress=lz4");
    reconcile(&fs);
    assert_eq!(effective(&fs, file), "2 lz4", "nearer rules before those above");
    set(&fs, file, "compress", "none");
    assert_eq!(effective(&fs, file), "2 none", "the file itself before rules");
    fs.policy().load_rules(&caller(6), "*: copies=1; *.c: compress=zstd:9\n! a.*: compress=lz4").unwrap();
    reconcile(&fs);
    assert_eq!(effective(&fs, file), "2 lz4", "an overriding rule before all");
    assert_eq!(fact(&fs, file, "source.compress"), "rule of the pool: ! a.*: compress=lz4");
    let beside = make(&fs, ROOT, "b.c", b"x");
    assert_eq!(effective(&fs, beside), "1 zstd:9", "the pool's rules where nobody else says anything");
    fs.policy().load_rules(&caller(7), "").unwrap();
    reconcile(&fs);
    assert_eq!((effective(&fs, file), effective(&fs, beside)), ("2 none".into(), "2 none".into()));
    let history: Vec<_> = fs
        .rules()
        .rules_history(Io::BLOCKING)
        .unwrap()
        .into_iter()
        .map(|one| (one.version, one.rules.seconds))
        .collect();
    assert_eq!(history, [(1, 6), (2, 7)]);
}

/// Rules that a newer stere wrote are not understood; they are passed over, and not written over.
#[test]
fn rules_of_a_newer_stere_are_left_alone() {
    let (rig, fs) = Rig::new(3, DEVICE_BYTES);
    fs.policy().load_rules(&caller(3), "*: copies=3").unwrap();
    let newer = stere_format::Key::rules(7);
    let put = |transaction: &mut stere_store::Transaction<'_>| {
        transaction.put(newer, b"\x09rules to come");
        Ok::<_, stere_store::Error>(())
    };
    fs.store().update(Io::BLOCKING, put).unwrap();
    fs.syncfs(&caller(4)).unwrap();
    let fs = rig.reopen(fs, false);
    let file = make(&fs, ROOT, "a", b"x");
    assert_eq!(fact(&fs, file, "effective.copies"), "2", "what is not understood decides nothing");
    assert_eq!(fs.policy().load_rules(&caller(5), "*: copies=2").unwrap(), 8);
    let versions: Vec<u64> = fs.rules().rules_history(Io::BLOCKING).unwrap().iter().map(|one| one.version).collect();
    assert_eq!(versions, [1, 8]);
    let stored = fs.store().view(Io::BLOCKING, |view| Ok::<_, stere_store::Error>(view.get(&newer)?.unwrap().to_vec()));
    assert_eq!(stored.unwrap(), b"\x09rules to come");
}

#[test]
fn names_that_change_change_what_is_decided() {
    let (_rig, fs) = Rig::new(3, DEVICE_BYTES);
    let (top, other) = (mkdir(&fs, ROOT, "top"), mkdir(&fs, ROOT, "other"));
    set(&fs, top, "rules", "*.c: copies=3; deep/**: compress=lz4");
    let file = make(&fs, top, "a", &text(40_000));
    fs.syncfs(&caller(3)).unwrap();
    rename(&fs, top, "a", top, "a.c");
    assert_eq!(effective(&fs, file), "3 none");
    assert!(fact(&fs, file, "state").starts_with("pending"), "{}", fact(&fs, file, "state"));
    reconcile(&fs);
    assert_eq!(fact(&fs, file, "state"), "compliant");
    rename(&fs, top, "a.c", other, "a.c");
    assert_eq!(effective(&fs, file), "2 none", "out of reach of the rules");
    // A further name: the stricter of both holds, whichever is met first, and whether the other is met or not.
    let linked = make(&fs, top, "plain", b"x");
    assert_eq!(effective(&fs, linked), "2 none");
    fs.link(&caller(5), linked, top, b"second.c").unwrap();
    fs.link(&caller(5), linked, other, b"third").unwrap();
    assert_eq!(effective(&fs, linked), "3 none");
    for directory in [top, other, linked, ROOT] {
        fs.reconciler().reconcile(&caller(5), directory).unwrap();
        reconcile(&fs);
        assert_eq!(effective(&fs, linked), "3 none");
    }
    fs.unlink(&caller(5), top, b"second.c").unwrap();
    fs.reconciler().reconcile(&caller(5), ROOT).unwrap();
    reconcile(&fs);
    assert_eq!(effective(&fs, linked), "2 none", "all names were met, and none of them asks for more");
    // A directory that moves takes its files to other rules.
    let deep = mkdir(&fs, other, "deep");
    let inside = make(&fs, deep, "x", &text(40_000));
    fs.syncfs(&caller(3)).unwrap();
    rename(&fs, other, "deep", top, "deep");
    reconcile(&fs);
    assert_eq!(effective(&fs, inside), "2 lz4");
    assert!(fact(&fs, inside, "stored").parse::<u64>().unwrap() < 30_000);
    rename(&fs, top, "deep", top, "shallow");
    reconcile(&fs);
    assert_eq!(effective(&fs, inside), "2 none");
    // A file without a name gets its rules with its name.
    let (made, handle) = fs.tmpfile(&caller(6), top, 0o600, OpenFlags::default()).unwrap();
    fs.link(&caller(6), made.inode, top, b"named.c").unwrap();
    fs.release(&caller(6), made.inode, handle).unwrap();
    assert_eq!(effective(&fs, made.inode), "3 none");
}

#[test]
fn exactly_the_files_that_a_rule_changes_are_stored_anew() {
    let (rig, fs) = Rig::new(3, DEVICE_BYTES);
    let top = mkdir(&fs, ROOT, "top");
    let mut files = Vec::new();
    for number in 0..60 {
        let name = format!("f{number}.{}", ["c", "h", "txt"][number % 3]);
        files.push((make(&fs, top, &name, &text(30_000 + number)), number % 3 == 0));
    }
    fs.syncfs(&caller(3)).unwrap();
    let before = fs.reconciler().reconcile_status(Io::BLOCKING).unwrap().moved_bytes;
    set(&fs, top, "rules", "*.c: compress=zstd");
    // A crash on the way: what was asked for is not forgotten.
    fs.syncfs(&caller(3)).unwrap();
    fs.reconciler().reconcile_step(&caller(7), 1).unwrap();
    let fs = rig.reopen(fs, true);
    reconcile(&fs);
    for (inode, is_ruled) in &files {
        assert_eq!(effective(&fs, *inode), if *is_ruled { "2 zstd" } else { "2 none" });
        assert_eq!(fact(&fs, *inode, "state"), "compliant");
        let stored: u64 = fact(&fs, *inode, "stored").parse().unwrap();
        assert_eq!(stored < 20_000, *is_ruled);
    }
    let moved = fs.reconciler().reconcile_status(Io::BLOCKING).unwrap().moved_bytes - before;
    assert!(moved < 20 * 20_000, "{moved} bytes: only the compressed ones were written");
    let log = fs.rules().rule_log(Io::BLOCKING).unwrap();
    assert_eq!(log.len(), 20, "{log:?}");
    assert!(log.iter().all(|entry| entry.text.ends_with(".c: *.c: compress=zstd") && entry.text.starts_with("/top/f")));
    // The same rules again change nothing; none at all undo it.
    set(&fs, top, "rules", "*.c: compress=zstd");
    reconcile(&fs);
    assert_eq!(fs.rules().rule_log(Io::BLOCKING).unwrap().len(), 20);
    fs.removexattr(&caller(8), top, b"user.stere.rules").unwrap();
    reconcile(&fs);
    assert_eq!(fs.rules().rule_log(Io::BLOCKING).unwrap().len(), 40);
    assert!(files.iter().all(|(inode, _)| effective(&fs, *inode) == "2 none"));
    assert!(stere_naming::check(fs.store()).unwrap().is_empty());
}

#[test]
fn size_age_and_owner_are_looked_at_as_time_goes_by() {
    let (_rig, fs) = Rig::new(3, DEVICE_BYTES);
    let top = mkdir(&fs, ROOT, "top");
    set(&fs, top, "rules", "size>100K: copies=3; age>2d: compress=zstd");
    let (small, large) = (make(&fs, top, "small", &text(1000)), make(&fs, top, "large", &text(300_000)));
    fs.syncfs(&caller(3)).unwrap();
    reconcile(&fs);
    assert_eq!((effective(&fs, small), effective(&fs, large)), ("2 none".into(), "3 none".into()));
    fs.step(&caller(10), 10).unwrap();
    fs.step(&caller(500), 10).unwrap();
    assert!(fs.reconciler().reconcile_status(Io::BLOCKING).unwrap().pending.is_empty(), "not yet");
    let later = caller(4 * 86_400);
    fs.step(&later, 10).unwrap();
    while fs.reconciler().reconcile_step(&later, 1 << 20).unwrap() {}
    assert_eq!((effective(&fs, small), effective(&fs, large)), ("2 zstd".into(), "3 zstd".into()));
    assert_eq!(fact(&fs, large, "state"), "compliant");
}

/// P-303: files grow old in directories that nobody has used since the mount, too.
#[test]
fn age_is_looked_at_where_nobody_looks() {
    let (rig, fs) = Rig::new(3, DEVICE_BYTES);
    let top = mkdir(&fs, ROOT, "top");
    set(&fs, top, "rules", "age>2d: compress=zstd");
    let file = make(&fs, top, "file", &text(300_000));
    fs.syncfs(&caller(3)).unwrap();
    reconcile(&fs);
    let fs = rig.reopen(fs, false);
    let begun = 4 * 86_400;
    fs.step(&caller(begun), 10).unwrap();
    assert!(fs.reconciler().reconcile_status(Io::BLOCKING).unwrap().pending.is_empty(), "not yet");
    let later = caller(begun + 700);
    fs.step(&later, 10).unwrap();
    while fs.reconciler().reconcile_step(&later, 1 << 20).unwrap() {}
    assert_eq!(effective(&fs, file), "2 zstd");
}

#[test]
fn what_cannot_be_a_rule_is_refused_and_changes_nothing() {
    let (_rig, fs) = Rig::new(2, DEVICE_BYTES);
    let top = mkdir(&fs, ROOT, "top");
    set(&fs, top, "rules", "*: compress=lz4");
    for bad in ["*.c", "*: colour=red", "! *: copies=1", "[: copies=1", "size>x: copies=1"] {
        let refused =
            fs.setxattr(&caller(3), top, b"user.stere.rules", bad.as_bytes(), SetMode::Any, false).unwrap_err();
        assert_eq!(refused.errno(), libc::EINVAL, "{bad}");
    }
    assert_eq!(fact(&fs, top, "rules"), "*: compress=lz4");
    let error = fs.policy().load_rules(&caller(3), "*: copies=2\n*.x: copies=nine").unwrap_err().to_string();
    assert!(error.contains("line 2, column 6"), "{error}");
    assert!(fs.rules().rules_history(Io::BLOCKING).unwrap().is_empty());
    let file = make(&fs, top, "f", b"x");
    let refused = fs.setxattr(&caller(3), file, b"user.stere.rules", b"*: copies=1", SetMode::Any, false).unwrap_err();
    assert_eq!(refused.errno(), libc::EPERM);
    assert_eq!(fs.removexattr(&caller(3), ROOT, b"user.stere.rules").unwrap_err().errno(), libc::ENODATA);
    assert_eq!(effective(&fs, file), "2 lz4");
}

#[test]
fn a_forecast_tells_what_then_happens_and_changes_nothing() {
    let (_rig, fs) = Rig::new(3, DEVICE_BYTES);
    let top = mkdir(&fs, ROOT, "top");
    let below = mkdir(&fs, top, "below");
    set(&fs, below, "compress", "lz4");
    for name in ["a.c", "b.c", "c.h"] {
        make(&fs, top, name, &text(20_000));
        make(&fs, below, name, &text(20_000));
    }
    make(&fs, ROOT, "outside.c", &text(20_000));
    fs.syncfs(&caller(3)).unwrap();
    let rules = "*.c: compress=zstd; below/b.c: copies=3";
    let mut forecast = fs.forecasts().forecast_rules(&caller(4), top, rules).unwrap();
    let mut told = Vec::new();
    while let Some(changes) = forecast.step(&caller(4), 2).unwrap() {
        told.extend(changes.into_iter().map(|one| (String::from_utf8(one.path).unwrap(), one.before, one.after)));
    }
    assert_eq!(forecast.files, 6);
    let plain = "class=normal copies=2 parity=1+1 compress=none".to_owned();
    let zstd = "class=normal copies=2 parity=1+1 compress=zstd".to_owned();
    let (lz4, more) = (plain.replace("none", "lz4"), "class=normal copies=3 parity=1+2 compress=lz4".to_owned());
    told.sort();
    let expected =
        [("/top/a.c", plain.clone(), zstd.clone()), ("/top/b.c", plain, zstd), ("/top/below/b.c", lz4, more)];
    assert_eq!(told, expected.map(|(path, before, after)| (path.to_owned(), before, after)));
    assert!(
        fs.reconciler().reconcile_status(Io::BLOCKING).unwrap().pending.is_empty() || {
            reconcile(&fs);
            true
        }
    );
    assert!(fs.rules().rule_log(Io::BLOCKING).unwrap().is_empty());
    set(&fs, top, "rules", rules);
    reconcile(&fs);
    assert_eq!(fs.rules().rule_log(Io::BLOCKING).unwrap().len(), 3);
    assert!(fs.forecasts().forecast_rules(&caller(4), top, "nonsense").is_err());
}

/// Rules by path follow their directories: whatever is renamed above, a new file gets what the path says that it has then.
#[test]
fn patterns_of_paths_hold_where_directories_are_now() {
    let (_rig, fs) = Rig::new(3, DEVICE_BYTES);
    let top = mkdir(&fs, ROOT, "top");
    let rules =
        "a/*/x*: copies=3; */b/x.c: copies=1; **/a/*.c: compress=lz4; depth=1 x.c: compress=none; b/x.c: compress=zstd";
    set(&fs, top, "rules", rules);
    let mut random = Random(11);
    let mut directories = vec![(mkdir(&fs, top, "a"), String::from("a"), 0_usize)];
    for (name, above) in [("b", 0), ("c", 0), ("a", 1), ("b", 1)] {
        let parent = directories[above].0;
        directories.push((mkdir(&fs, parent, name), name.to_owned(), above));
    }
    let path = |directories: &[(u64, String, usize)], mut at: usize| {
        let mut names = vec![directories[at].1.clone()];
        while at != 0 {
            at = directories[at].2;
            names.insert(0, directories[at].1.clone());
        }
        names
    };
    for round in 0..300 {
        let at = random.next(directories.len() as u64) as usize;
        let (parent, old) = (if at == 0 { top } else { directories[directories[at].2].0 }, directories[at].1.clone());
        let new = ["a", "b", "c", "d"][random.next(4) as usize].to_owned();
        if fs.rename(&caller(4), parent, old.as_bytes(), parent, new.as_bytes(), 1).is_ok() {
            directories[at].1 = new;
        }
        let at = random.next(directories.len() as u64) as usize;
        let file = make(&fs, directories[at].0, "x.c", b"x");
        let steps = path(&directories, at);
        let is = |at: usize, name: &str| steps.get(at).is_some_and(|step| step == name);
        let copies = match () {
            () if steps.len() == 2 && is(0, "a") => "3",
            () if steps.len() == 2 && is(1, "b") => "1",
            () => "2",
        };
        let deep = steps.last().is_some_and(|step| step == "a");
        let compress = match () {
            () if steps.len() == 1 => "none",
            () if deep => "lz4",
            () => "none",
        };
        assert_eq!(effective(&fs, file), format!("{copies} {compress}"), "round {round}: {steps:?}");
        fs.unlink(&caller(5), directories[at].0, b"x.c").unwrap();
    }
}

/// Rules that stay understood while policies change are those that are set, with the classes that there are: as a mount finds them that
/// has nothing in memory.
#[test]
fn rules_and_classes_set_anew_hold_for_the_next_file() {
    let (rig, mut fs) = Rig::new(4, DEVICE_BYTES);
    let top = mkdir(&fs, ROOT, "top");
    let settings = |copies: &str| vec![("copies".to_owned(), copies.to_owned())];
    fs.policy().create_class(&caller(3), "photos", &settings("3")).unwrap();
    let mut expected = Vec::new();
    for step in 0..6 {
        match step {
            0 => set(&fs, top, "rules", "*.c: class=photos"),
            1 => assert!(fs.policy().change_class(&caller(4), "photos", &settings("4")).unwrap()),
            2 => set(&fs, top, "rules", "*.c: copies=1"),
            3 => set(&fs, top, "rules", "*.c: class=photos"),
            4 => assert!(fs.policy().change_class(&caller(4), "photos", &settings("3")).unwrap()),
            _ => fs.policy().delete_class(&caller(4), "photos", "scratch").unwrap(),
        }
        let file = make(&fs, top, &format!("{step}.c"), b"x");
        let copies = fact(&fs, file, "effective.copies");
        fs.syncfs(&caller(5)).unwrap();
        fs = rig.reopen(fs, true);
        let other = make(&fs, top, &format!("other {step}.c"), b"x");
        assert_eq!(copies, fact(&fs, other, "effective.copies"), "step {step}");
        expected.push(copies);
    }
    assert_eq!(expected, ["3", "4", "1", "4", "3", "1"]);
}
