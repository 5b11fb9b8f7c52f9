//! P-156: what is written below a directory that goes down is found by what was written, wherever it came from; names are walked over
//! only where that is not known.

use crate::support;

use std::collections::BTreeSet;

use stere_naming::{FileSystem, ROOT, SetAttributes};
use support::edits::set;
use support::files::{assert_clean, make, mkdir};
use support::volume::{add_volume, segments_of};
use support::{Rig, caller};

fn settle(fs: &FileSystem) {
    while fs.store().tier.step(true, &|_| Vec::new()).unwrap().is_busy {}
}

/// Looks as a mount does each minute; how many files were looked at.
fn look(fs: &FileSystem, looks_at_all: bool) -> u64 {
    let looked_at = || fs.reconciler().reconcile_status(caller(3).io).unwrap().files;
    fs.syncfs(&caller(3)).unwrap();
    let before = looked_at();
    fs.reconciler().send_new_down(&caller(3), looks_at_all).unwrap();
    while fs.reconciler().reconcile_step(&caller(3), 1 << 20).unwrap() {}
    settle(fs);
    looked_at() - before
}

/// Files of which something is not, and shall not come, on a volume.
fn not_down(fs: &FileSystem, files: &[u64]) -> Vec<u64> {
    let is_left = |inode: &&u64| {
        let file = fs.tiers().tier_file(&caller(3), **inode).unwrap();
        file.local_bytes + file.released_bytes > file.tertiary_bytes
    };
    files.iter().filter(is_left).copied().collect()
}

#[test]
fn only_what_was_written_is_looked_at() {
    let (rig, fs) = Rig::new(2, 192 << 20);
    let volume = add_volume(&fs);
    let (top, elsewhere) = (mkdir(&fs, ROOT, "top"), mkdir(&fs, ROOT, "elsewhere"));
    let below = mkdir(&fs, top, "below");
    let mut files: Vec<u64> = (0..500).map(|number| make(&fs, below, &format!("f{number}"), b"some content")).collect();
    fs.syncfs(&caller(3)).unwrap();
    set(&fs, top, "tier", "cold");
    while fs.reconciler().reconcile_step(&caller(3), 1 << 20).unwrap() {}
    assert!(look(&fs, false) >= 500, "what was before the mount is not known");
    assert_eq!(look(&fs, false), 0, "nothing was written");
    files.push(make(&fs, below, "new", b"new"));
    (0..30).for_each(|number| assert!(make(&fs, elsewhere, &format!("e{number}"), b"stays") > 0));
    assert_eq!(look(&fs, false), 1);
    // Changed, copied, and brought here.
    fs.write(&caller(3), files[7], 0, b"other", false).unwrap();
    let copy = make(&fs, top, "copy", b"");
    let long = make(&fs, elsewhere, "long", &[7; 50_000]);
    fs.syncfs(&caller(3)).unwrap();
    assert_eq!(fs.copy_range(&caller(3), long, 0, copy, 0, 50_000).unwrap(), 50_000);
    fs.rename(&caller(3), elsewhere, b"e3", top, b"came", 0).unwrap();
    files.extend([copy, fs.lookup(&caller(3), top, b"came").unwrap().inode]);
    assert!(look(&fs, false) <= 4);
    assert_eq!(not_down(&fs, &files), Vec::<u64>::new());
    // Many are looked at by their directories.
    let many = mkdir(&fs, top, "many");
    files.extend((0..1100).map(|number| make(&fs, many, &format!("m{number}"), b"one of many")));
    assert_eq!(look(&fs, false), 1100);
    assert_eq!(not_down(&fs, &files), Vec::<u64>::new());
    // What was written before a crash is found by the first look after it.
    files.push(make(&fs, below, "late", b"late"));
    fs.syncfs(&caller(3)).unwrap();
    let fs = rig.reopen(fs, true);
    fs.store().tier.media.attach_volume(0, volume, None, true).unwrap();
    assert!(look(&fs, false) > 1600);
    assert_eq!(not_down(&fs, &files), Vec::<u64>::new());
    assert!(!segments_of(&fs, top).is_empty());
    assert_clean(&fs);
}

/// Whatever is done to files: after a look everything that shall be on the volume is on its way there.
#[test]
fn nothing_that_was_written_is_missed() {
    for seed in 1..6 {
        let (_rig, fs) = Rig::new(2, 192 << 20);
        add_volume(&fs);
        let (top, elsewhere) = (mkdir(&fs, ROOT, "top"), mkdir(&fs, ROOT, "elsewhere"));
        set(&fs, top, "tier", "cold");
        look(&fs, true);
        let mut state: u64 = seed;
        let mut draw = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        let (mut inside, mut outside) = (Vec::new(), Vec::new());
        for step in 0..120 {
            let name = format!("n{step}");
            let any = |files: &[u64], at: u64| files.get(at as usize % files.len().max(1)).copied();
            match draw(8) {
                0 => inside.push(make(&fs, top, &name, &vec![step as u8; 1 + draw(200_000) as usize])),
                1 => outside.push(make(&fs, elsewhere, &name, &vec![step as u8; 1 + draw(200_000) as usize])),
                2 => {
                    if let Some(file) = any(&inside, draw(1000)) {
                        fs.write(&caller(3), file, draw(300_000), &[9; 3000], false).unwrap();
                    }
                }
                3 => {
                    if let (Some(from), Some(to)) = (any(&outside, draw(1000)), any(&inside, draw(1000))) {
                        fs.copy_range(&caller(3), from, 0, to, 4096 * draw(20), 100_000).unwrap();
                    }
                }
                4 => {
                    if let (Some(from), Some(to)) = (any(&inside, draw(1000)), any(&outside, draw(1000))) {
                        fs.copy_range(&caller(3), from, 0, to, 4096 * draw(20), 100_000).unwrap();
                    }
                }
                5 => {
                    if let Some(file) = any(&inside, draw(1000)) {
                        let size = Some(draw(250_000));
                        fs.setattr(&caller(3), file, &SetAttributes { size, ..SetAttributes::default() }).unwrap();
                    }
                }
                6 => {
                    let file = make(&fs, elsewhere, &name, &[3; 70_000]);
                    fs.rename(&caller(3), elsewhere, name.as_bytes(), top, name.as_bytes(), 0).unwrap();
                    inside.push(file);
                }
                _ => {
                    look(&fs, false);
                    assert_eq!(not_down(&fs, &inside), Vec::<u64>::new(), "seed {seed}, step {step}");
                }
            }
        }
        look(&fs, false);
        assert_eq!(not_down(&fs, &inside), Vec::<u64>::new(), "seed {seed}");
        let known: BTreeSet<u64> = inside.iter().copied().collect();
        assert!(known.len() > 20);
        assert_clean(&fs);
    }
}
