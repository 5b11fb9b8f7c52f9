//! Plugins that are told afterwards (P-128, P-129): at least once of the last change of every file, in order, across crashes; what fails is
//! tried again and given up; nobody else waits for it.

use crate::naming_support as support;

use std::path::Path;
use std::sync::Arc;

use stere_naming::{
    Caller, FileSystem, FollowChange, Handle, OpenFlags, ROOT, SetAttributes, SetMode, SetTime, Timestamp,
};
use stere_plugin::Loader;
use stere_sandbox::{Limits, Sandbox};
use support::edits::{Random, set};
use support::files::{assert_clean, create, directory, make, mkdir};
use support::{Rig, caller};

const DEVICE_BYTES: u64 = 96 << 20;
const NOTE: &[u8] = b"user.plugin.sum";

fn follower() -> Vec<u8> {
    wat::parse_file(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sum.wat")).unwrap()
}

fn rig() -> (Rig, FileSystem) {
    let (mut rig, fs) = Rig::new(2, DEVICE_BYTES);
    let small = Limits { steps: 1_000_000, steps_per_byte: 200, ..Limits::default() };
    let sandbox: Arc<dyn Loader> = Arc::new(Sandbox::new(small).unwrap());
    rig.options.files.plugin_loader = Some(sandbox);
    let fs = rig.reopen(fs, false);
    fs.plugins().add_plugin(&caller(2), "sum", &follower()).unwrap();
    (rig, fs)
}

/// What the plugin notes with a file of this content: the sum of its bytes.
fn note(content: &[u8]) -> Vec<u8> {
    content.iter().map(|byte| u64::from(*byte)).sum::<u64>().to_le_bytes().to_vec()
}

fn noted(fs: &FileSystem, inode: u64) -> Option<Vec<u8>> {
    fs.getxattr(&caller(5), inode, NOTE).ok()
}

/// Serves what is due at a moment, as often as there is more to do.
fn serve(fs: &FileSystem, seconds: i64) {
    for _ in 0..10_000 {
        if !fs.asynchronous_events().follow_step(&caller(seconds), 7, &|| false).unwrap() {
            return;
        }
    }
    panic!("serving does not end");
}

fn waiting(fs: &FileSystem) -> (u64, u64) {
    let list = fs.asynchronous_events().follow_list(&caller(5), 100).unwrap();
    (list.waiting, list.given_up)
}

fn rewrite(fs: &FileSystem, inode: u64, content: &[u8]) {
    let flags = OpenFlags { write: true, truncate: true, ..OpenFlags::default() };
    let handle: Handle = fs.open(&caller(3), inode, flags).unwrap();
    fs.write(&caller(3), inode, 0, content, false).unwrap();
    fs.release(&caller(3), inode, handle).unwrap();
}

#[test]
fn files_are_told_of_after_they_were_changed_and_closed() {
    let (rig, fs) = rig();
    let top = directory(&fs, "told", "plugins", "sum");
    let elsewhere = make(&fs, ROOT, "elsewhere", b"nobody asks");
    let long = vec![7; 700_000];
    let files: Vec<(u64, &[u8])> =
        vec![(make(&fs, top, "small", b"abc"), b"abc"), (make(&fs, top, "long", &long), &long)];
    let (open, handle) = create(&fs, top, "open");
    fs.write(&caller(2), open, 0, b"still", false).unwrap();
    assert_eq!(waiting(&fs), (3, 0));
    serve(&fs, 10);
    files.iter().for_each(|(inode, content)| assert_eq!(noted(&fs, *inode), Some(note(content))));
    assert_eq!((noted(&fs, elsewhere), noted(&fs, open)), (None, None), "one is not asked for, one is open");
    assert_eq!(waiting(&fs), (1, 0));
    fs.release(&caller(3), open, handle).unwrap();
    serve(&fs, 20);
    assert_eq!(noted(&fs, open), Some(note(b"still")));
    assert_eq!(waiting(&fs), (0, 0));
    // Same size, same time, other content: a write that hides behind a time that was set back.
    let handle = fs.open(&caller(3), open, OpenFlags { write: true, ..OpenFlags::default() }).unwrap();
    fs.write(&caller(2), open, 0, b"STILL", false).unwrap();
    fs.release(&caller(3), open, handle).unwrap();
    serve(&fs, 30);
    assert_eq!(noted(&fs, open), Some(note(b"STILL")));
    // Attributes and reads are no changes.
    fs.setxattr(&caller(4), open, b"user.own", b"1", SetMode::Any, false).unwrap();
    support::files::check(&fs, open, b"STILL");
    assert_eq!(waiting(&fs), (0, 0));
    let fs = rig.reopen(fs, false);
    assert_eq!(waiting(&fs), (0, 0));
    assert_clean(&fs);
}

#[test]
fn what_is_changed_while_it_is_told_of_is_told_of_again() {
    let (_rig, fs) = rig();
    let top = directory(&fs, "told", "plugins", "sum");
    let inode = make(&fs, top, "file", &[1; 300_000]);
    let asked = std::cell::Cell::new(0);
    let changing = || {
        asked.set(asked.get() + 1);
        if asked.get() == 3 {
            // Asked while the plugin reads.
            rewrite(&fs, inode, b"new");
        }
        false
    };
    fs.asynchronous_events().follow_step(&caller(10), 1, &changing).unwrap();
    assert!(asked.get() > 3 && waiting(&fs) == (1, 0), "asked {} times; it waits again", asked.get());
    serve(&fs, 11);
    assert_eq!((waiting(&fs), noted(&fs, inode)), ((0, 0), Some(note(b"new"))));
}

#[test]
fn what_is_dropped_while_it_is_told_of_is_counted_once() {
    let (_rig, fs) = rig();
    let top = directory(&fs, "told", "plugins", "sum");
    let remove = |name: &[u8]| {
        make(&fs, top, std::str::from_utf8(name).unwrap(), b"abc");
        serve(&fs, 10);
        fs.unlink(&caller(11), top, name).unwrap();
    };
    remove(b"first");
    let asked = std::cell::Cell::new(0);
    let dropping = || {
        asked.set(asked.get() + 1);
        if asked.get() == 2 {
            // Asked before it is noted that it was told of.
            fs.asynchronous_events().change_follow_list(&caller(12), FollowChange::DropAll).unwrap();
        }
        false
    };
    fs.asynchronous_events().follow_step(&caller(20), 1, &dropping).unwrap();
    assert!(asked.get() >= 2 && waiting(&fs) == (0, 0), "asked {} times; nothing waits", asked.get());
    // Were it counted twice, the next removal would be one too many.
    remove(b"second");
    let list = fs.asynchronous_events().follow_list(&caller(21), 100).unwrap();
    assert_eq!((list.waiting, list.lost), (1, 0));
}

#[test]
fn events_of_a_file_are_one_entry_in_their_last_order() {
    let (_rig, fs) = rig();
    let top = directory(&fs, "told", "plugins", "sum");
    let inode = make(&fs, top, "a", b"one");
    let other = make(&fs, top, "c", b"goes");
    for (from, to) in [("a", "b"), ("b", "c"), ("c", "d")] {
        fs.rename(&caller(3), top, from.as_bytes(), top, to.as_bytes(), 0).unwrap();
        rewrite(&fs, inode, b"two");
    }
    let list = fs.asynchronous_events().follow_list(&caller(5), 100).unwrap();
    assert_eq!((list.waiting, list.some.len()), (2, 2), "one is changed, one was renamed over: {list:?}");
    let of = |path: &[u8]| list.some.iter().find(|info| info.path == path).unwrap_or_else(|| panic!("{list:?}"));
    assert_eq!(of(b"/told/d").events, ["create", "rename", "close"]);
    assert_eq!((&of(b"c").events[..], &of(b"c").plugins[..]), (&["delete"][..], "sum"));
    assert!(noted(&fs, other).is_none());
    serve(&fs, 10);
    assert_eq!((waiting(&fs), noted(&fs, inode)), ((0, 0), Some(note(b"two"))));
    // Only a name was changed; then all goes, and what would be told of it with it.
    fs.rename(&caller(3), top, b"d", top, b"e", 0).unwrap();
    assert_eq!(fs.asynchronous_events().follow_list(&caller(5), 100).unwrap().some[0].events, ["rename"]);
    rewrite(&fs, inode, b"three");
    fs.unlink(&caller(3), top, b"e").unwrap();
    assert_eq!(fs.asynchronous_events().follow_list(&caller(5), 100).unwrap().some[0].events, ["delete"]);
    serve(&fs, 20);
    assert_eq!(waiting(&fs), (0, 0));
    assert_clean(&fs);
}

/// A directory that is renamed or moved is no event of the files below it, wherever it goes; a file is told of from its next change on.
#[test]
fn files_are_not_told_of_when_a_directory_above_them_moves() {
    let (rig, fs) = rig();
    let top = directory(&fs, "told", "plugins", "sum");
    let [inside, outside] = [(top, "a"), (ROOT, "b")].map(|(at, name)| mkdir(&fs, at, name));
    let (known, new) = (make(&fs, inside, "known", b"known"), make(&fs, outside, "new", b"new"));
    serve(&fs, 10);
    assert_eq!((noted(&fs, known), noted(&fs, new), waiting(&fs)), (Some(note(b"known")), None, (0, 0)));
    fs.rename(&caller(11), top, b"a", top, b"c", 0).unwrap();
    fs.rename(&caller(11), ROOT, b"b", top, b"b", 0).unwrap();
    support::reconcile(&fs);
    assert_eq!(waiting(&fs), (0, 0));
    let fs = rig.reopen(fs, false);
    serve(&fs, 20);
    assert_eq!((noted(&fs, new), waiting(&fs)), (None, (0, 0)));
    // As touch(1) does it.
    let now = SetTime::At(caller(30).now);
    fs.setattr(&caller(30), new, &SetAttributes { mtime: Some(now), ..SetAttributes::default() }).unwrap();
    assert_eq!(fs.asynchronous_events().follow_list(&caller(30), 9).unwrap().some[0].events, ["close"]);
    serve(&fs, 31);
    assert_eq!(noted(&fs, new), Some(note(b"new")));
    // One that moves by itself is told of by what it has then.
    let alone = make(&fs, ROOT, "alone", b"alone");
    fs.rename(&caller(40), ROOT, b"alone", inside, b"alone", 0).unwrap();
    assert_eq!(fs.asynchronous_events().follow_list(&caller(41), 9).unwrap().some[0].events, ["rename"]);
    serve(&fs, 42);
    assert_eq!((noted(&fs, alone), waiting(&fs)), (None, (0, 0)), "this plugin makes nothing of names");
}

#[test]
fn what_fails_is_tried_again_later_and_then_given_up_with_its_cause() {
    let (rig, fs) = rig();
    let top = directory(&fs, "told", "plugins", "sum");
    let refused = make(&fs, top, "refused", b"X is refused");
    let endless = make(&fs, top, "endless", b"L goes round");
    let fine = make(&fs, top, "fine", b"fine");
    serve(&fs, 100);
    assert_eq!(noted(&fs, fine), Some(note(b"fine")), "others do not wait for those that fail");
    assert_eq!(waiting(&fs), (2, 0));
    let tries = |fs: &FileSystem| {
        fs.asynchronous_events().follow_list(&caller(5), 9).unwrap().some.iter().map(|info| info.failures).sum::<u8>()
    };
    let mut tried_at = vec![100];
    for seconds in 101..500 {
        let before = tries(&fs);
        serve(&fs, seconds);
        tried_at.extend((tries(&fs) > before).then_some(seconds));
    }
    assert_eq!(tried_at, [100, 101, 103, 107, 115, 131, 163, 227], "each time after twice the time");
    fs.syncfs(&caller(500)).unwrap();
    let fs = rig.reopen(fs, true);
    serve(&fs, 10_000);
    let list = fs.asynchronous_events().follow_list(&caller(5), 9).unwrap();
    assert_eq!((list.waiting, list.given_up), (0, 2));
    assert_eq!((&list.some[0].path[..], list.some[0].failures), (&b"/told/refused"[..], 8));
    assert!(list.some[0].cause.contains("'sum' refused: no X here"), "{list:?}");
    assert!(list.some[1].cause.contains("did not come to an end"), "{list:?}");
    // Something new is tried anew, and so is what somebody wants tried.
    rewrite(&fs, endless, b"ends now");
    serve(&fs, 10_001);
    assert_eq!((noted(&fs, endless), waiting(&fs)), (Some(note(b"ends now")), (0, 1)));
    assert_eq!(fs.asynchronous_events().change_follow_list(&caller(5), FollowChange::Retry).unwrap(), 1);
    serve(&fs, 10_002);
    assert_eq!((waiting(&fs), tries(&fs)), ((1, 0), 1));
    assert_eq!(fs.asynchronous_events().change_follow_list(&caller(5), FollowChange::DropGivenUp).unwrap(), 0);
    assert_eq!(fs.asynchronous_events().change_follow_list(&caller(5), FollowChange::DropAll).unwrap(), 1);
    assert_eq!((waiting(&fs), noted(&fs, refused)), ((0, 0), None));
    assert_clean(&fs);
}

#[test]
fn plugins_that_are_taken_away_are_told_nothing() {
    let (rig, fs) = rig();
    let top = directory(&fs, "told", "plugins", "sum");
    let inode = make(&fs, top, "file", b"abc");
    make(&fs, top, "gone", b"abc");
    fs.unlink(&caller(3), top, b"gone").unwrap();
    assert_eq!(waiting(&fs), (2, 0));
    set(&fs, top, "plugins", "none");
    fs.plugins().remove_plugin(&caller(3), "sum").unwrap();
    let fs = rig.reopen(fs, false);
    serve(&fs, 10);
    assert_eq!((waiting(&fs), noted(&fs, inode)), ((0, 0), None));
    make(&fs, top, "later", b"abc");
    assert_eq!(waiting(&fs), (0, 0));
    assert_clean(&fs);
}

/// Changes, removals and renames at random, served now and then, with crashes at any moment that keep any part of what was not
/// flushed: in the end every file's note is that of its content.
#[test]
fn whatever_crashes_when_every_file_is_told_of_as_it_is_in_the_end() {
    let mut files = 0;
    for seed in 0..24u64 {
        let (rig, mut fs) = rig();
        let top = directory(&fs, "told", "plugins", "sum");
        let inner = mkdir(&fs, top, "inner");
        fs.syncfs(&caller(2)).unwrap();
        let mut random = Random(seed + 1);
        let mut served = 0;
        for step in 0..60i64 {
            let at = |nanoseconds| Caller { now: Timestamp { seconds: 10 + step, nanoseconds }, ..caller(0) };
            let (place, name) = ([top, inner][random.next(2) as usize], format!("f{}", random.next(6)));
            match random.next(12) {
                0..6 => {
                    let content = vec![1 + random.next(70) as u8; 1 + random.next(9000) as usize];
                    let flags = OpenFlags { write: true, ..OpenFlags::default() };
                    let (made, handle) = fs.create(&at(1), place, name.as_bytes(), 0o644, flags).unwrap();
                    fs.write(&at(2), made.inode, random.next(3000), &content, false).unwrap();
                    fs.release(&at(3), made.inode, handle).unwrap();
                }
                6 => drop(fs.unlink(&at(1), place, name.as_bytes())),
                7 => {
                    let to = [top, inner][random.next(2) as usize];
                    drop(fs.rename(&at(1), place, name.as_bytes(), to, b"f1", 0));
                }
                8 => fs.syncfs(&at(1)).unwrap(),
                9 | 10 => {
                    let before = waiting(&fs).0;
                    fs.asynchronous_events().follow_step(&at(1), 1 + random.next(3) as usize, &|| false).unwrap();
                    served += before.saturating_sub(waiting(&fs).0);
                }
                _ => fs = rig.crash(fs, |_| random.next(2) == 0),
            }
        }
        assert!(served > 0, "seed {seed}: something was served on the way");
        fs = rig.crash(fs, |_| random.next(2) == 0);
        serve(&fs, 1000);
        assert_eq!(waiting(&fs), (0, 0), "seed {seed}: {:?}", fs.asynchronous_events().follow_list(&caller(5), 9));
        for (place, number) in [top, inner].into_iter().flat_map(|place| (0..6).map(move |number| (place, number))) {
            let Ok(found) = fs.lookup(&caller(5), place, format!("f{number}").as_bytes()) else { continue };
            let mut content = vec![0; found.size as usize];
            fs.read(&caller(5), found.inode, 0, &mut content).unwrap();
            let is_told = noted(&fs, found.inode) == Some(note(&content));
            // What a crash left of a file that was just made is an empty one, which is told of too.
            assert!(is_told, "seed {seed}: f{number} in {place} of {} bytes is told of as it is", content.len());
            files += 1;
        }
        assert_clean(&fs);
    }
    assert!(files > 24, "many files were left: {files}");
}
