//! P-104, P-105: what is copied, kept and proven, with every step of a run being its last.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::manifest::{self, Change, Entries};
use crate::{Destination, Entry, Error, Facts, Kind, Newcomer, Preserved, Run, Stamp};

const ID: [u8; 16] = [7; 16];

struct Folder(PathBuf);

impl Folder {
    fn new() -> Folder {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("stere-test-backup-{}-{number}", std::process::id()));
        fs::create_dir(&path).unwrap();
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

/// Files by path: content, and when it changed.
type Files = BTreeMap<&'static str, (&'static str, i64)>;

fn facts(path: &str, changed: i64) -> Facts {
    let inode = path.bytes().map(u64::from).sum();
    let stamp = Stamp { inode, changed: (changed, 5) };
    let mode = if path.ends_with("link") { 0o120_777 } else { 0o100_640 };
    Facts { mode, uid: 0, gid: 0, modified: (changed, 9), stamp }
}

fn open(root: &Path) -> Destination {
    Destination::open(root, Some(&ID)).unwrap()
}

/// Brings the destination to these files; ends after so many steps. Tells what was copied.
fn back_up(root: &Path, files: &Files, moment: &str, keep: usize, steps: u64) -> Result<u64, Error> {
    let destination = open(root);
    destination.steps_left.set(steps);
    let mut run = Run::begin(destination, moment, keep)?;
    let mut wanted = Vec::new();
    for (path, (content, changed)) in files {
        if run.meet(path.as_bytes(), &facts(path, *changed)) {
            wanted.push((path, content, *changed));
        }
    }
    let newcomer = |path: &'static str, content: &str| Newcomer {
        path: path.as_bytes(),
        inode: facts(path, 0).stamp.inode,
        size: content.len() as u64,
    };
    run.keep_at_hand(wanted.iter().map(|(path, content, _)| newcomer(path, content)))?;
    run.take_away()?;
    for (path, content, changed) in wanted {
        let read = |offset: u64, out: &mut [u8]| {
            let rest = &content.as_bytes()[(offset as usize).min(content.len())..];
            let length = rest.len().min(out.len()).min(3);
            out[..length].copy_from_slice(&rest[..length]);
            Ok::<_, Error>(length)
        };
        let staged = match facts(path, changed).kind() {
            Kind::Link => run.stage_link(content.as_bytes())?,
            _ => match run.stage_at_hand(path.as_bytes(), read)? {
                Some(staged) => staged,
                None => run.stage(read)?,
            },
        };
        run.accept(path.as_bytes(), &facts(path, changed), Vec::new(), staged)?;
        run.place()?;
    }
    assert!(run.failed.is_empty());
    let copied = run.files;
    run.finish().map(|_| copied)
}

/// Of a symbolic link its target.
fn content_of(path: &Path) -> String {
    match fs::symlink_metadata(path).unwrap().is_symlink() {
        true => fs::read_link(path).unwrap().to_str().unwrap().to_owned(),
        false => fs::read_to_string(path).unwrap(),
    }
}

fn current(root: &Path) -> BTreeMap<String, String> {
    let destination = open(root);
    let read = |(path, _): (Vec<u8>, u64)| {
        let path = String::from_utf8(path).unwrap();
        let content = content_of(&root.join("current").join(&path));
        (path, content)
    };
    destination.list(None).unwrap().into_iter().map(read).collect()
}

fn contents(files: &Files) -> BTreeMap<String, String> {
    files.iter().map(|(path, (content, _))| ((*path).to_owned(), (*content).to_owned())).collect()
}

fn restored(root: &Path, until: Option<&str>) -> BTreeMap<String, String> {
    let (to, destination) = (Folder::new(), open(root));
    let outcome = destination.restore(until, b"", &to.0, false, Preserved::ALL).unwrap();
    assert!(outcome.failed.is_empty(), "{outcome:?}");
    let read = |(path, _): (Vec<u8>, u64)| {
        let path = String::from_utf8(path).unwrap();
        let content = content_of(&to.0.join(&path));
        (path, content)
    };
    destination.list(until).unwrap().into_iter().map(read).collect()
}

fn sound(root: &Path) {
    let findings = open(root).check(&|| false).unwrap();
    assert!(findings.bad.is_empty() && findings.unknown.is_empty(), "{findings:?}");
}

fn first() -> Files {
    Files::from([
        ("a", ("one", 1)),
        ("d/b", ("two", 1)),
        ("d/e/c", ("three", 1)),
        ("old-link", ("same", 1)),
        ("same", ("same", 1)),
        // The inode of a file is made of the letters of its path.
        ("renamed-12", ("moved", 1)),
        ("replaced-12", ("taken", 1)),
    ])
}

/// Two files have other names, of which one has other content too. A file changed, one gone, one new, a directory in place of a file and the reverse.
fn second() -> Files {
    Files::from([
        ("a/x", ("four", 2)),
        ("d", ("five", 2)),
        ("link", ("/nowhere", 2)),
        ("new", ("", 2)),
        ("same", ("same", 3)),
        ("renamed-21", ("moved", 2)),
        ("replaced-21", ("given", 2)),
    ])
}

/// P-104. It fails where content that is there already is copied again.
#[test]
fn only_what_changed_is_copied_and_earlier_states_come_back() {
    let folder = Folder::new();
    let root = &folder.0;
    Destination::create(root, &ID, "tank").unwrap();
    assert!(matches!(Destination::create(root, &ID, "tank"), Err(Error::NotEmpty(_))));
    assert_eq!(back_up(root, &first(), "m1", 2, u64::MAX).unwrap(), 7);
    assert_eq!(back_up(root, &first(), "m2", 2, u64::MAX).unwrap(), 0);
    // Of `same` only the time changed, and `renamed` has another name: both are read, and not written.
    assert_eq!(back_up(root, &second(), "m2", 2, u64::MAX).unwrap(), 5);
    let number = |path: &str| fs::metadata(root.join(path)).unwrap().ino();
    assert_eq!(number("current/renamed-21"), number("kept/m2/renamed-12"), "one copy under both names");
    assert_eq!(current(root), contents(&second()));
    sound(root);
    assert_eq!(restored(root, Some("m2")), contents(&first()));
    assert_eq!(back_up(root, &first(), "m2", 2, u64::MAX).unwrap(), 5, "a second run at one moment");
    let states = open(root).states().unwrap();
    let until: Vec<_> = states.iter().map(|state| state.until.as_deref()).collect();
    assert_eq!(until, [Some("m2"), Some("m2-2"), None], "only two earlier states are kept");
    assert_eq!(restored(root, Some("m2-2")), contents(&second()));
    assert_eq!(restored(root, Some("m2")), contents(&first()));
    assert!(matches!(open(root).restore(Some("m9"), b"", root, false, Preserved::ALL), Err(Error::NoState(_))));
    sound(root);
}

/// P-105. It fails where changes are made that were not told before.
#[test]
fn whatever_step_is_the_last_nothing_is_lost_and_the_next_run_goes_on() {
    let (mut steps, mut copied_before) = (0, 0);
    loop {
        let folder = Folder::new();
        let root = &folder.0;
        Destination::create(root, &ID, "tank").unwrap();
        back_up(root, &first(), "m1", 3, u64::MAX).unwrap();
        let outcome = back_up(root, &second(), "m2", 3, steps);
        assert!(matches!(outcome, Ok(_) | Err(Error::Stopped)), "{outcome:?}");
        sound(root);
        let (old, new, now) = (contents(&first()), contents(&second()), current(root));
        for (path, content) in &now {
            assert!(old.get(path) == Some(content) || new.get(path) == Some(content), "{path} after {steps} steps");
        }
        let again = back_up(root, &second(), "m3", 3, u64::MAX).unwrap();
        assert!(again <= 6 && (outcome.is_err() || again == 0));
        assert_eq!(current(root), new);
        sound(root);
        if open(root).states().unwrap().iter().any(|state| state.until.as_deref() == Some("m2")) {
            assert_eq!(restored(root, Some("m2")), old, "after {steps} steps");
        }
        if outcome.is_ok() {
            break;
        }
        copied_before += u64::from(again < 5);
        steps += 1;
    }
    assert!(
        steps > 10 && copied_before > 3,
        "{steps} steps, and in {copied_before} of them something was there already"
    );
}

/// P-105. It fails where what is restored is not compared.
#[test]
fn what_rots_is_found_never_restored_and_copied_again() {
    let folder = Folder::new();
    let root = &folder.0;
    Destination::create(root, &ID, "tank").unwrap();
    back_up(root, &first(), "m1", 2, u64::MAX).unwrap();
    back_up(root, &Files::from([("a", ("new", 2)), ("same", ("same", 1))]), "m2", 2, u64::MAX).unwrap();
    fs::write(root.join("current/same"), "sane").unwrap();
    fs::write(root.join("kept/m2/d/b"), "too").unwrap();
    fs::write(root.join("current/stray"), "x").unwrap();
    let to = Folder::new();
    let outcome = open(root).restore(None, b"same", &to.0, false, Preserved::ALL).unwrap();
    assert_eq!((outcome.files, outcome.failed.len()), (0, 1));
    assert!(fs::read_dir(&to.0).unwrap().next().is_none(), "nothing wrong is left there");
    let findings = open(root).check(&|| false).unwrap();
    let bad: Vec<&[u8]> = findings.bad.iter().map(|(path, _)| &path[..]).collect();
    assert_eq!(bad, [&b"current/same"[..], b"kept/m2/d/b"]);
    assert_eq!(findings.unknown, [b"current/stray".to_vec()]);
    let files = Files::from([("a", ("new", 2)), ("same", ("same", 1))]);
    assert_eq!(back_up(root, &files, "m3", 2, u64::MAX).unwrap(), 1);
    let findings = open(root).check(&|| false).unwrap();
    assert_eq!(findings.bad.len(), 1, "{findings:?}");
    let outcome = open(root).restore(None, b"same", &to.0, false, Preserved::ALL).unwrap();
    assert_eq!((outcome.files, fs::read_to_string(to.0.join("same")).unwrap()), (1, "same".into()));
    let outcome = open(root).restore(None, b"same", &to.0, false, Preserved::ALL).unwrap();
    assert_eq!(outcome.failed.len(), 1, "what is there is not replaced unasked");
}

#[test]
fn another_directory_is_not_taken_for_the_destination() {
    let folder = Folder::new();
    assert!(matches!(Destination::open(&folder.0, Some(&ID)), Err(Error::Away(_))));
    Destination::create(&folder.0, &[8; 16], "tank").unwrap();
    assert!(matches!(Destination::open(&folder.0, Some(&ID)), Err(Error::Foreign(_))));
    let _held = Destination::open(&folder.0, None).unwrap();
    assert!(matches!(Destination::open(&folder.0, None), Err(Error::Busy(_))));
}

#[test]
fn lists_come_back_as_they_were_and_what_is_cut_or_changed_is_noticed() {
    let entry = Entry {
        hash: [0xa5; 32],
        size: 7,
        facts: facts("x", -3),
        attributes: vec![(b"user.a".to_vec(), vec![0, 255])],
    };
    let odd = b"d/a\tb\\n\nc\xff".to_vec();
    let entries = Entries::from([(odd.clone(), entry.clone()), (b"z".to_vec(), entry.clone())]);
    let bytes = manifest::encode(&entries);
    assert_eq!(manifest::decode(&bytes).unwrap(), entries);
    for at in 0..bytes.len() {
        assert!(manifest::decode(&bytes[..at]).is_err(), "cut at {at}");
        let mut wrong = bytes.clone();
        wrong[at] ^= 1;
        assert!(manifest::decode(&wrong).is_err(), "changed at {at}");
    }
    let escapes = manifest::line(b"../../etc/passwd", &entry);
    assert_eq!(manifest::parse(&escapes), None, "a path that leads out of the destination");
    let changes = [
        Change::Placed(3, odd.clone(), entry.clone()),
        Change::Noted(odd.clone(), entry),
        Change::Taken(odd),
        Change::Rotten(b"z".to_vec()),
    ];
    let bytes = [manifest::changes_head("m1", true), manifest::encode_changes(&changes)].concat();
    for at in 0..=bytes.len() {
        match manifest::decode_changes(&bytes[..at]) {
            Some((run, keeps, found)) => {
                assert!(run == "m1" && keeps && changes.starts_with(&found), "cut at {at}");
            }
            None => assert!(at <= manifest::changes_head("m1", true).len()),
        }
    }
    assert_eq!(manifest::decode_changes(&bytes).unwrap().2, changes);
}

/// The same bytes in every run, many of which are still understood in part.
#[test]
fn whatever_a_manifest_says_is_understood_or_refused() {
    let good = include_bytes!("../golden/manifest-2");
    let changes =
        b"+\t3\t".iter().chain(good.split(|byte| *byte == b'\n').nth(1).unwrap()).copied().collect::<Vec<u8>>();
    let mut state = 1_u64;
    let mut random = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    for seed in [&good[..], &changes] {
        for _ in 0..20_000 {
            let mut bytes = seed.to_vec();
            for _ in 0..1 + random(4) {
                let at = random(bytes.len());
                match random(3) {
                    0 => bytes[at] = b"\t\n\\=,-.@/0f\xff\0"[random(13)],
                    1 => drop(bytes.remove(at)),
                    _ => bytes.insert(at, random(256) as u8),
                }
            }
            crate::fuzz_manifest(&bytes);
        }
    }
}

/// What destinations hold that were written before stays understood, and is written the same: `docs/format/backup.md`.
#[test]
fn the_golden_manifest_is_read_and_written_as_it_is() {
    let golden = include_bytes!("../golden/manifest-2");
    let entries = manifest::decode(golden).unwrap();
    assert_eq!(entries.len(), 3);
    assert_eq!(entries[&b"d/tab\there"[..]].attributes, [(b"user.a".to_vec(), vec![0, 255])]);
    assert_eq!(manifest::encode(&entries), golden);
}

/// P-104. It fails without the facts of directories, without their attributes, and where a mode is set through a link.
#[test]
fn directories_come_back_with_mode_time_and_attributes_and_links_are_never_followed() {
    let (folder, to) = (Folder::new(), Folder::new());
    let root = &folder.0;
    Destination::create(root, &ID, "tank").unwrap();
    let directory = Facts { mode: 0o040_550, ..facts("directory", 7) };
    let content = |bytes: &'static [u8]| {
        move |offset: u64, out: &mut [u8]| {
            let length = bytes.len() - (offset as usize).min(bytes.len());
            out[..length].copy_from_slice(&bytes[bytes.len() - length..]);
            Ok::<_, Error>(length)
        }
    };
    let attributes = vec![(b"user.colour".to_vec(), b"blue".to_vec())];
    let mut run = Run::begin(open(root), "m1", 2).unwrap();
    for path in ["d", "d/e"] {
        assert!(run.meet(path.as_bytes(), &directory));
        run.accept_directory(path.as_bytes(), &directory, attributes.clone()).unwrap();
    }
    for path in ["d/e/file", "d/link"] {
        assert!(run.meet(path.as_bytes(), &facts(path, 2)));
    }
    let staged = run.stage(content(b"x")).unwrap();
    run.accept(b"d/e/file", &facts("file", 2), attributes.clone(), staged).unwrap();
    let outside = to.0.join("outside");
    fs::write(&outside, "untouched").unwrap();
    let mode_before = fs::metadata(&outside).unwrap().mode();
    let staged = run.stage_link(outside.to_str().unwrap().as_bytes()).unwrap();
    run.accept(b"d/link", &facts("d/link", 2), Vec::new(), staged).unwrap();
    run.take_away().unwrap();
    run.place().unwrap();
    drop(run.finish().unwrap());
    sound(root);
    let out = to.0.join("out");
    fs::create_dir(&out).unwrap();
    let outcome = open(root).restore(None, b"", &out, false, Preserved::ALL).unwrap();
    assert_eq!((outcome.files, outcome.failed.len()), (2, 0), "{outcome:?}");
    for path in ["d", "d/e"] {
        let found = fs::metadata(out.join(path)).unwrap();
        assert_eq!((found.mode(), found.mtime()), (0o040_550, 7), "{path}");
    }
    for path in ["d/e", "d/e/file"] {
        let mut value = [0; 16];
        let length = rustix::fs::lgetxattr(out.join(path), "user.colour", &mut value[..]).unwrap();
        assert_eq!(&value[..length], b"blue", "{path}");
    }
    assert_eq!(fs::read_link(out.join("d/link")).unwrap(), outside);
    assert_eq!(fs::metadata(&outside).unwrap().mode(), mode_before, "what a link leads to is not meant");
    // What cannot be set is named.
    let strange = vec![(b"strange.colour".to_vec(), b"blue".to_vec())];
    let mut run = Run::begin(open(root), "m2", 2).unwrap();
    let staged = run.stage(content(b"y")).unwrap();
    run.accept(b"strange", &facts("strange", 2), strange, staged).unwrap();
    run.place().unwrap();
    drop(run.finish().unwrap());
    let outcome = open(root).restore(None, b"strange", &out, false, Preserved::ALL).unwrap();
    assert_eq!((outcome.files, outcome.unset.len()), (1, 1), "{outcome:?}");
    assert!(outcome.unset[0].0 == b"strange" && outcome.unset[0].1.contains("attribute strange.colour"));
    // A link that is a file now, with the same bytes, is not taken for it; and one that lies is found.
    fs::remove_file(root.join("current/d/link")).unwrap();
    std::os::unix::fs::symlink("/elsewhere", root.join("current/d/link")).unwrap();
    assert_eq!(open(root).check(&|| false).unwrap().bad.len(), 1);
    assert_eq!(open(root).restore(None, b"d/link", &out, true, Preserved::ALL).unwrap().failed.len(), 1);
}

/// P-105: taken out the comparison of kinds in `take_away`, and it fails: the old copy would be replaced by what has its bytes.
#[test]
fn what_changes_its_kind_is_copied_anew() {
    let folder = Folder::new();
    let root = &folder.0;
    Destination::create(root, &ID, "tank").unwrap();
    back_up(root, &Files::from([("x", ("same", 1))]), "m1", 2, u64::MAX).unwrap();
    let mut run = Run::begin(open(root), "m2", 2).unwrap();
    let link = Facts { mode: 0o120_777, ..facts("x", 1) };
    let directory = Facts { mode: 0o040_755, ..facts("y", 1) };
    assert!(run.meet(b"x", &directory) && run.meet(b"x/y", &link));
    run.take_away().unwrap();
    let staged = run.stage_link(b"same").unwrap();
    run.accept(b"x/y", &link, Vec::new(), staged).unwrap();
    run.accept_directory(b"x", &directory, Vec::new()).unwrap();
    run.place().unwrap();
    assert!(run.failed.is_empty(), "{:?}", run.failed);
    drop(run.finish().unwrap());
    assert_eq!(fs::read_link(root.join("current/x/y")).unwrap(), Path::new("same"));
    sound(root);
    assert_eq!(restored(root, Some("m2")), BTreeMap::from([("x".to_owned(), "same".to_owned())]));
}

/// P-105: a directory and a link become files; whichever step is the last, the files that took their places stay. It fails where ending
/// an interrupted run takes away again what it had taken away before, and takes what came into its place.
#[test]
fn what_took_the_place_of_another_kind_stays_when_a_run_is_ended() {
    let directory = Facts { mode: 0o040_755, ..facts("x", 1) };
    let link = Facts { mode: 0o120_777, ..facts("l", 1) };
    let copied = |run: &mut Run, content: &'static [u8]| {
        run.stage(|offset, out: &mut [u8]| {
            let rest = &content[(offset as usize).min(content.len())..];
            out[..rest.len()].copy_from_slice(rest);
            Ok::<_, Error>(rest.len())
        })
    };
    let first = |root: &Path| -> Result<(), Error> {
        let mut run = Run::begin(open(root), "m1", 2)?;
        assert!(run.meet(b"x", &directory) && run.meet(b"x/y", &facts("x/y", 1)) && run.meet(b"l", &link));
        run.accept_directory(b"x", &directory, Vec::new())?;
        let staged = copied(&mut run, b"below")?;
        run.accept(b"x/y", &facts("x/y", 1), Vec::new(), staged)?;
        let staged = run.stage_link(b"somewhere")?;
        run.accept(b"l", &link, Vec::new(), staged)?;
        run.place()?;
        run.finish().map(drop)
    };
    let second = |root: &Path, steps: u64| -> Result<(), Error> {
        let destination = open(root);
        destination.steps_left.set(steps);
        let mut run = Run::begin(destination, "m2", 2)?;
        assert!(run.meet(b"x", &facts("x", 2)) && run.meet(b"l", &facts("l", 2)));
        run.take_away()?;
        for path in ["x", "l"] {
            let staged = copied(&mut run, b"a file now")?;
            run.accept(path.as_bytes(), &facts(path, 2), Vec::new(), staged)?;
            run.place()?;
        }
        run.finish().map(drop)
    };
    let mut steps = 0;
    loop {
        let folder = Folder::new();
        let root = &folder.0;
        Destination::create(root, &ID, "tank").unwrap();
        first(root).unwrap();
        let outcome = second(root, steps);
        assert!(matches!(outcome, Ok(()) | Err(Error::Stopped)), "{outcome:?} after {steps} steps");
        sound(root);
        if outcome.is_ok() {
            break;
        }
        steps += 1;
    }
    assert!(steps > 8, "{steps} steps");
}
