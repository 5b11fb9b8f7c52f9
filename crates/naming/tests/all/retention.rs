//! Retention: nobody changes or removes a file before its moment, and nothing makes that earlier (P-59).

use crate::support;

use stere_naming::{
    Caller, Error, FileSystem, KEEP_SIZE, OpenFlags, PUNCH_HOLE, RENAME_EXCHANGE, ROOT, SetAttributes, SetMode, SetTime,
};
use support::{Rig, caller, reconcile};

const DEVICE_BYTES: u64 = 96 << 20;
const DAY: i64 = 86_400;
/// 2027-01-01 in seconds since 1970, and that day.
const NOW: i64 = 1_798_761_600;
const RETAIN: &[u8] = b"user.stere.retain";
static CONTENT: [u8; 50_000] = [7; 50_000];

fn code<T: std::fmt::Debug>(outcome: Result<T, Error>) -> i32 {
    outcome.map_or_else(|error| error.errno(), |_| 0)
}

fn retain(fs: &FileSystem, who: &Caller<'_>, inode: u64, value: &str) -> i32 {
    code(fs.setxattr(who, inode, RETAIN, value.as_bytes(), SetMode::Any, false))
}

fn fact(fs: &FileSystem, seconds: i64, inode: u64, key: &str) -> String {
    let value = fs.getxattr(&caller(seconds), inode, format!("user.stere.{key}").as_bytes());
    value.map_or_else(|error| format!("{error:?}"), |value| String::from_utf8(value).unwrap())
}

fn mkdir(fs: &FileSystem, parent: u64, name: &str) -> u64 {
    fs.mkdir(&caller(NOW), parent, name.as_bytes(), 0o755).unwrap().inode
}

fn make(fs: &FileSystem, directory: u64, name: &str, seconds: i64) -> u64 {
    let flags = OpenFlags { write: true, ..OpenFlags::default() };
    let (attributes, handle) = fs.create(&caller(seconds), directory, name.as_bytes(), 0o644, flags).unwrap();
    fs.write(&caller(seconds), attributes.inode, 0, &CONTENT, false).unwrap();
    fs.release(&caller(seconds), attributes.inode, handle).unwrap();
    attributes.inode
}

fn has_content(fs: &FileSystem, seconds: i64, inode: u64) {
    let mut out = vec![0; CONTENT.len() + 1];
    assert_eq!(fs.read(&caller(seconds), inode, 0, &mut out).unwrap(), CONTENT.len());
    assert!(out[..CONTENT.len()] == CONTENT);
}

/// Everything that could change or remove `top/a`; the codes of what happened.
fn attacks(fs: &FileSystem, now: i64, top: u64, file: u64) -> Vec<(&'static str, i32)> {
    let root = caller(now);
    let other = make(fs, top, "other", now);
    let set = |set: SetAttributes| code(fs.setattr(&root, file, &set));
    let write = OpenFlags { write: true, ..OpenFlags::default() };
    let default = SetAttributes::default;
    let attacks = vec![
        ("write", code(fs.write(&root, file, 0, b"x", false))),
        ("append", code(fs.write(&root, file, CONTENT.len() as u64, &[1; 200_000], false))),
        ("truncate", set(SetAttributes { size: Some(0), ..default() })),
        ("grow", set(SetAttributes { size: Some(1 << 20), ..default() })),
        ("chmod", set(SetAttributes { mode: Some(0o777), ..default() })),
        ("chown", set(SetAttributes { uid: Some(7), ..default() })),
        ("utimes", set(SetAttributes { mtime: Some(SetTime::Now), ..default() })),
        ("open for writing", code(fs.open(&root, file, write))),
        ("open and empty", code(fs.open(&root, file, OpenFlags { truncate: true, ..write }))),
        ("create over it", code(fs.create(&root, top, b"a", 0o644, OpenFlags { truncate: true, ..write }))),
        ("preallocate", code(fs.fallocate(&root, file, 0, 1 << 20, 0))),
        ("punch", code(fs.fallocate(&root, file, 0, 4096, PUNCH_HOLE | KEEP_SIZE))),
        ("copy into", code(fs.copy_range(&root, other, 0, file, 0, 4096))),
        ("set an attribute", code(fs.setxattr(&root, file, b"user.a", b"1", SetMode::Any, false))),
        ("remove an attribute", code(fs.removexattr(&root, file, b"user.kept"))),
        ("link", code(fs.link(&root, file, top, b"further"))),
        ("rename", code(fs.rename(&root, top, b"a", top, b"b", 0))),
        ("rename over", code(fs.rename(&root, top, b"other", top, b"a", 0))),
        ("exchange", code(fs.rename(&root, top, b"other", top, b"a", RENAME_EXCHANGE))),
        ("exchange from it", code(fs.rename(&root, top, b"a", top, b"other", RENAME_EXCHANGE))),
        ("unlink", code(fs.unlink(&root, top, b"a"))),
        ("retain no more", code(fs.removexattr(&root, file, RETAIN))),
        ("retain nothing", retain(fs, &root, file, "")),
    ];
    fs.unlink(&root, top, b"other").unwrap();
    attacks
}

#[test]
fn nobody_changes_or_removes_a_file_before_its_moment() {
    let (rig, fs) = Rig::new(2, DEVICE_BYTES);
    let top = mkdir(&fs, ROOT, "top");
    let file = make(&fs, top, "a", NOW);
    fs.setxattr(&caller(NOW), file, b"user.kept", b"1", SetMode::Any, false).unwrap();
    assert_eq!(retain(&fs, &caller(NOW), file, "10d"), 0);
    fs.syncfs(&caller(NOW)).unwrap();
    let fs = rig.reopen(fs, true);
    let before = fs.getattr(&caller(NOW), file).unwrap();
    for now in [NOW, NOW + 10 * DAY - 1] {
        for (attack, code) in attacks(&fs, now, top, file) {
            assert_eq!(code, libc::EPERM, "{attack}");
        }
        has_content(&fs, now, file);
        assert_eq!(
            fs.getattr(&caller(now), file).unwrap(),
            stere_naming::Attributes { atime: fs.getattr(&caller(now), file).unwrap().atime, ..before }
        );
        assert_eq!(fact(&fs, now, file, "retain"), "2027-01-11T00:00:00Z");
    }
    for shorter in ["1d", "2027-01-10T23:59:59Z", "864000s"] {
        // The last is as long, and begins a second before.
        assert_eq!(retain(&fs, &caller(NOW - 1), file, shorter), libc::EPERM, "{shorter}");
    }
    // How it is stored may change, and it may be kept longer.
    fs.setxattr(&caller(NOW), file, b"user.stere.compress", b"zstd", SetMode::Any, false).unwrap();
    reconcile(&fs);
    has_content(&fs, NOW, file);
    assert_eq!(retain(&fs, &caller(NOW + DAY), file, "10d"), 0);
    assert_eq!(fact(&fs, NOW, file, "retain"), "2027-01-12T00:00:00Z");
    let error = fs.unlink(&caller(NOW + DAY), top, b"a").unwrap_err().to_string();
    assert!(error.contains("2027-01-12 00:00:00"), "{error}");
    // Then it is a file like any other.
    let after = NOW + 11 * DAY;
    assert_eq!(fact(&fs, after, file, "source.retain"), "set here, and over");
    assert_eq!(code(fs.write(&caller(after), file, 0, b"x", false)), 0);
    fs.unlink(&caller(after), top, b"a").unwrap();
    fs.rmdir(&caller(after), ROOT, b"top").unwrap();
    assert!(stere_naming::check(fs.store()).unwrap().is_empty());
}

#[test]
fn what_was_open_or_not_saved_when_it_began_is_kept_and_no_more_is_taken() {
    let (_rig, fs) = Rig::new(2, DEVICE_BYTES);
    let flags = OpenFlags { write: true, ..OpenFlags::default() };
    let (made, handle) = fs.create(&caller(NOW), ROOT, b"a", 0o644, flags).unwrap();
    fs.write(&caller(NOW), made.inode, 0, &CONTENT, false).unwrap();
    assert_eq!(retain(&fs, &caller(NOW), made.inode, "10d"), 0);
    assert_eq!(code(fs.write(&caller(NOW), made.inode, 0, b"x", false)), libc::EPERM);
    fs.release(&caller(NOW), made.inode, handle).unwrap();
    fs.syncfs(&caller(NOW)).unwrap();
    has_content(&fs, NOW, made.inode);
}

#[test]
fn who_may_say_so_and_what_is_no_time_is_refused() {
    let (_rig, fs) = Rig::new(2, DEVICE_BYTES);
    let file = make(&fs, ROOT, "a", NOW);
    let stranger = Caller { uid: 7, ..caller(NOW) };
    assert_eq!(retain(&fs, &stranger, file, "1d"), libc::EPERM, "who may write is not who may say how long");
    for bad in ["2026-12-31", "soon", "0d", "none", "1d,after=1m"] {
        assert_eq!(retain(&fs, &caller(NOW), file, bad), libc::EINVAL, "{bad}");
    }
    let link = fs.symlink(&caller(NOW), ROOT, b"l", b"a").unwrap().inode;
    assert_eq!(retain(&fs, &caller(NOW), link, "1d"), libc::EPERM);
    assert_eq!(code(fs.removexattr(&caller(NOW), file, RETAIN)), libc::ENODATA);
    fs.setattr(&caller(NOW), file, &SetAttributes { uid: Some(7), ..SetAttributes::default() }).unwrap();
    assert_eq!(retain(&fs, &stranger, file, "1d"), 0);
    assert!(fs.listxattr(&stranger, file).unwrap().contains(&RETAIN.to_vec()));
}

/// Begins what is due at a time.
fn look(fs: &FileSystem, seconds: i64) {
    while fs.step(&caller(seconds), 100).unwrap() {}
}

fn is_retained(fs: &FileSystem, seconds: i64, inode: u64) -> bool {
    let flags = OpenFlags { write: true, ..OpenFlags::default() };
    match fs.open(&caller(seconds), inode, flags) {
        Ok(handle) => fs.release(&caller(seconds), inode, handle).is_err(),
        Err(error) => error.errno() == libc::EPERM,
    }
}

#[test]
fn what_a_directory_says_begins_when_a_file_was_left_alone() {
    let (rig, fs) = Rig::new(2, DEVICE_BYTES);
    let top = mkdir(&fs, ROOT, "top");
    let (below, outside) = (mkdir(&fs, top, "below"), mkdir(&fs, ROOT, "outside"));
    let old = make(&fs, below, "old", NOW);
    assert_eq!(retain(&fs, &caller(NOW), top, "10d,after=1m"), 0);
    assert_eq!(fact(&fs, NOW, below, "effective.retain"), "10d,after=1m");
    assert_eq!(fact(&fs, NOW, below, "source.retain"), "inherited from /top");
    let free = mkdir(&fs, top, "free");
    assert_eq!(retain(&fs, &caller(NOW), free, "none"), 0);
    let (new, spared) = (make(&fs, below, "new", NOW + 30), make(&fs, free, "spared", NOW));
    let (moved, linked) = (make(&fs, outside, "moved", NOW), make(&fs, outside, "linked", NOW));
    fs.rename(&caller(NOW), outside, b"moved", below, b"moved", 0).unwrap();
    fs.link(&caller(NOW), linked, below, b"linked").unwrap();
    let (nameless, handle) =
        fs.tmpfile(&caller(NOW), below, 0o600, OpenFlags { write: true, ..OpenFlags::default() }).unwrap();
    fs.link(&caller(NOW), nameless.inode, below, b"named").unwrap();
    reconcile(&fs);
    // Who has it open may go on, and so may who has just written.
    let (open, still) =
        fs.create(&caller(NOW), below, b"open", 0o644, OpenFlags { write: true, ..OpenFlags::default() }).unwrap();
    look(&fs, NOW + 59);
    assert!([old, new, moved, linked].iter().all(|inode| !is_retained(&fs, NOW + 59, *inode)));
    fs.release(&caller(NOW), nameless.inode, handle).unwrap();
    look(&fs, NOW + 70);
    let begun = |fs: &FileSystem, seconds| {
        [old, moved, linked, nameless.inode].iter().all(|inode| is_retained(fs, seconds, *inode))
    };
    assert!(begun(&fs, NOW + 70));
    assert!(![new, spared, open.inode].iter().any(|inode| is_retained(&fs, NOW + 70, *inode)));
    assert_eq!(fact(&fs, NOW, old, "retain"), "2027-01-11T00:01:10Z", "from the moment it began");
    assert!(fact(&fs, NOW, new, "source.retain").ends_with("when it has been left alone for so long"));
    // A crash forgets neither what began nor what is waited for.
    fs.write(&caller(NOW + 71), open.inode, 0, b"x", false).unwrap();
    fs.release(&caller(NOW + 71), open.inode, still).unwrap();
    fs.syncfs(&caller(NOW + 71)).unwrap();
    let fs = rig.reopen(fs, true);
    assert!(begun(&fs, NOW + 72));
    look(&fs, NOW + 200);
    assert!(is_retained(&fs, NOW + 200, new) && is_retained(&fs, NOW + 200, open.inode));
    assert!(!is_retained(&fs, NOW + 200, spared));
    // What the directory says later is for later files; a directory that moves below it brings its files.
    assert_eq!(retain(&fs, &caller(NOW), top, ""), 0);
    assert!(begun(&fs, NOW + 9 * DAY));
    assert_eq!(retain(&fs, &caller(NOW), top, "2027-03-01,after=0s"), 0);
    let inside = make(&fs, outside, "inside", NOW + 200);
    fs.rename(&caller(NOW + 300), ROOT, b"outside", top, b"outside", 0).unwrap();
    reconcile(&fs);
    look(&fs, NOW + 400);
    assert_eq!(fact(&fs, NOW, inside, "retain"), "2027-03-01T00:00:00Z");
    // What was over does not begin again.
    let over = NOW + 30 * DAY;
    fs.reconciler().reconcile(&caller(over), ROOT).unwrap();
    reconcile(&fs);
    look(&fs, over);
    assert!(!is_retained(&fs, over, old));
    assert!(stere_naming::check(fs.store()).unwrap().is_empty());
}

/// At every point of a crash a file is retained, or the call that said so was not acknowledged.
#[test]
fn what_was_synced_is_retained_whatever_a_crash_loses() {
    let (rig, mut fs) = Rig::new(2, DEVICE_BYTES);
    for round in 0..20_usize {
        let name = format!("f{round}");
        let file = make(&fs, ROOT, &name, NOW);
        assert_eq!(retain(&fs, &caller(NOW), file, "10d"), 0);
        fs.fsync(&caller(NOW), file, false).unwrap();
        drop(fs.unlink(&caller(NOW + 20 * DAY), ROOT, name.as_bytes()));
        fs = rig.crash(fs, |write| (write * 7 + round) % 3 == 0);
        if fs.lookup(&caller(NOW), ROOT, name.as_bytes()).is_ok() {
            assert!(is_retained(&fs, NOW + DAY, file), "round {round}");
            has_content(&fs, NOW, file);
        }
    }
}

/// P-59, P-147: a file with several names is retained for as long as the directory of any of them says.
#[test]
fn every_directory_with_a_name_retains() {
    let (_rig, fs) = Rig::new(2, DEVICE_BYTES);
    let [free, short, long] = ["free", "short", "long"].map(|name| mkdir(&fs, ROOT, name));
    assert_eq!(retain(&fs, &caller(NOW), short, "1d,after=1m"), 0);
    assert_eq!(retain(&fs, &caller(NOW), long, "9d,after=1m"), 0);
    let file = make(&fs, short, "a", NOW);
    fs.link(&caller(NOW), file, long, b"b").unwrap();
    fs.link(&caller(NOW), file, free, b"c").unwrap();
    assert_eq!(fact(&fs, NOW, file, "effective.retain"), "9d,after=1m");
    look(&fs, NOW + 70);
    assert!(is_retained(&fs, NOW + 8 * DAY, file) && !is_retained(&fs, NOW + 10 * DAY, file));
}
