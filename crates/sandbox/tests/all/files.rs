//! Users' plugins: what passed them comes back byte for byte whatever is done to it, what exists is brought in line with what is asked
//! for, also across crashes, and a plugin that fails fails its own files only (P-66).

use crate::naming_support as support;

use std::path::Path;
use std::sync::Arc;

use stere_format::{BlobValue, Key, key};
use stere_naming::{
    COLLAPSE_RANGE, Error, FileSystem, INSERT_RANGE, Io, KEEP_SIZE, OpenFlags, PUNCH_HOLE, ROOT, SetAttributes, SetMode,
};
use stere_plugin::Loader;
use stere_sandbox::{Limits, Sandbox};
use support::edits::{Random, fact, set};
use support::files::{Walk, assert_clean, check, create, directory, make};
use support::{Rig, caller, reconcile};

const DEVICE_BYTES: u64 = 96 << 20;
const RECORD: usize = 128 << 10;

/// A module around these hooks, with an allocator that only goes up.
fn module(hooks: &str) -> Vec<u8> {
    let text = format!(
        r#"(module (memory (export "memory") 16) (global $top (mut i32) (i32.const 1024))
            (func (export "stere_abi") (result i32) (i32.const 1))
            (func (export "stere_allocate") (param $bytes i32) (result i32) (local $at i32)
              (local.set $at (global.get $top))
              (global.set $top (i32.add (global.get $top) (local.get $bytes)))
              (local.get $at))
            {hooks})"#
    );
    wat::parse_str(text).unwrap()
}

/// Gives records back as they are, but does this with those whose first byte is 'X'.
fn spoiler(does: &str) -> Vec<u8> {
    let hook = |name: &str, does: &str| {
        format!(
            r#"(func (export "{name}") (param $p i32) (param $pn i32) (param $i i32) (param $n i32) (result i64)
                (if (i32.eq (i32.load8_u (local.get $i)) (i32.const 88)) (then {does}))
                (i64.or (i64.shl (i64.extend_i32_u (local.get $i)) (i64.const 32)) (i64.extend_i32_u (local.get $n))))"#
        )
    };
    module(&(hook("stere_encode", does) + &hook("stere_decode", "(nop)")))
}

/// Denies that what begins with 'k' is removed or renamed or written to behind its first MiB; notes 'made' with what is new.
fn guard() -> Vec<u8> {
    module(
        r#"(data (i32.const 16) "\01kept") (data (i32.const 32) "\02made")
           (func (export "stere_events") (result i32) (i32.const 0x69))
           (func (export "stere_event") (param $p i32) (param $pn i32) (param $i i32) (param $n i32) (result i64)
             (if (i32.eqz (i32.load (local.get $i))) (then (return (i64.const 0x0000_0020_0000_0005))))
             (if (i32.and
                   (i32.eq (i32.load8_u offset=48 (local.get $i)) (i32.const 107))
                   (i32.or (i32.ge_u (i32.load (local.get $i)) (i32.const 5))
                           (i64.ge_u (i64.load offset=24 (local.get $i)) (i64.const 1048576))))
               (then (return (i64.const 0x0000_0010_0000_0005))))
             (i64.const 0))"#,
    )
}

/// Denies that anything is made, written, renamed or removed.
fn denier() -> Vec<u8> {
    module(
        r#"(data (i32.const 16) "\01never")
           (func (export "stere_events") (result i32) (i32.const 0x69))
           (func (export "stere_event") (param $p i32) (param $pn i32) (param $i i32) (param $n i32) (result i64)
             (i64.const 0x0000_0010_0000_0006))"#,
    )
}

fn rotate() -> Vec<u8> {
    wat::parse_file(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../plugins/rotate.wat")).unwrap()
}

fn rig() -> (Rig, FileSystem) {
    let (mut rig, fs) = Rig::new(2, DEVICE_BYTES);
    let small = Limits { steps: 1_000_000, steps_per_byte: 200, ..Limits::default() };
    let sandbox: Arc<dyn Loader> = Arc::new(Sandbox::new(small).unwrap());
    rig.options.files.plugin_loader = Some(sandbox);
    let fs = rig.reopen(fs, false);
    (rig, fs)
}

fn text(number: usize, length: usize) -> Vec<u8> {
    let line = |at: usize| format!("line {:>6} of text {:>3}, all well\n", at * 7, number % 1000).into_bytes();
    (0..length / 30 + 1).flat_map(line).take(length).collect()
}

/// Blobs that passed plugins, and all.
fn blobs(fs: &FileSystem) -> (usize, usize) {
    let (mut plugged, mut all) = (0, 0);
    let tree = |tree: u8| Key::new(tree, 0, 0, 0);
    fs.store()
        .for_each_key(tree(key::tree::BLOBS), tree(key::tree::BLOBS + 1), |_, bytes| {
            let value = BlobValue::decode(bytes).unwrap();
            assert_eq!(value.encoding.is_plugged(), value.stack != 0);
            plugged += usize::from(value.encoding.is_plugged());
            all += 1;
        })
        .unwrap();
    (plugged, all)
}

fn refused(fs: &FileSystem, inode: u64, value: &str) -> Error {
    fs.setxattr(&caller(3), inode, b"user.stere.plugins", value.as_bytes(), SetMode::Any, false).unwrap_err()
}

/// P-121: what is locked goes before what was set, refuses what is set after it, keeps the plugin, and lets go of all again.
#[test]
fn plugins_are_locked() {
    let (rig, fs) = rig();
    fs.plugins().add_plugin(&caller(2), "rotate", &rotate()).unwrap();
    let top = directory(&fs, "d", "plugins", "rotate:5");
    let bytes = text(1, 50_000);
    let file = make(&fs, top, "f", &bytes);
    set(&fs, file, "plugins", "none");
    let lock = |value: &[u8]| fs.setxattr(&caller(3), top, b"trusted.stere.plugins", value, SetMode::Any, false);
    lock(b"rotate").unwrap();
    assert_eq!(fact(&fs, file, "effective.plugins"), "rotate");
    assert_eq!(fact(&fs, file, "source.plugins"), "locked by the administrator at /d");
    reconcile(&fs);
    assert_eq!((blobs(&fs), fact(&fs, file, "state")), ((1, 1), "compliant".into()));
    check(&fs, file, &bytes);
    assert_eq!(refused(&fs, file, "rotate:5").errno(), libc::EPERM);
    set(&fs, file, "plugins", "rotate");
    set(&fs, file, "plugins", "");
    set(&fs, top, "plugins", "");
    assert!(fs.plugins().remove_plugin(&caller(4), "rotate").is_err(), "the lock names it");
    fs.syncfs(&caller(5)).unwrap();
    let fs = rig.reopen(fs, true);
    assert_eq!(fact(&fs, file, "effective.plugins"), "rotate");
    fs.removexattr(&caller(6), top, b"trusted.stere.plugins").unwrap();
    reconcile(&fs);
    assert_eq!((blobs(&fs), fact(&fs, file, "effective.plugins")), ((0, 1), "none".into()));
    check(&fs, file, &bytes);
    fs.plugins().remove_plugin(&caller(7), "rotate").unwrap();
    assert_clean(&fs);
}

#[test]
fn what_passed_plugins_is_read_as_it_was_written() {
    let (rig, fs) = rig();
    fs.plugins().add_plugin(&caller(2), "rotate", &rotate()).unwrap();
    let mut random = Random(1);
    let mut files = Vec::new();
    for (plugins, compress) in [("rotate", "none"), ("rotate:5,rotate:9", "zstd"), ("none", "lz4"), ("rotate:1", "lz4")]
    {
        let top = directory(&fs, &format!("{plugins}-{compress}"), "plugins", plugins);
        set(&fs, top, "compress", compress);
        assert_eq!(fact(&fs, top, "plugins"), plugins);
        for (number, length) in [1, 700, 5000, RECORD, 700_000].into_iter().enumerate() {
            let bytes = text(number, length);
            files.push((make(&fs, top, &format!("text{number}"), &bytes), bytes, plugins));
        }
        let bytes = random.noise(400_000);
        files.push((make(&fs, top, "noise", &bytes), bytes, plugins));
    }
    fs.syncfs(&caller(3)).unwrap();
    let (plugged, all) = blobs(&fs);
    assert!(plugged * 4 == all * 3, "three of four directories have plugins: {plugged} of {all}");
    let fs = rig.reopen(fs, true);
    for (inode, bytes, plugins) in &files {
        check(&fs, *inode, bytes);
        assert_eq!(fact(&fs, *inode, "state"), "compliant");
        assert_eq!(fact(&fs, *inode, "effective.plugins"), *plugins);
    }
    assert!(fact(&fs, files[0].0, "source.plugins").starts_with("inherited from /rotate-none"));
    let listed = fs.listxattr(&caller(3), ROOT).unwrap();
    assert!(!listed.contains(&b"user.stere.plugins".to_vec()));
    assert_clean(&fs);
}

/// Random writes, cuts, holes and copies, with the policy changing in between, against the bytes they should leave.
#[test]
fn any_change_of_a_file_with_plugins_leaves_the_right_bytes_and_exact_accounts() {
    for seed in 0..8u64 {
        let (rig, fs) = rig();
        fs.plugins().add_plugin(&caller(2), "rotate", &rotate()).unwrap();
        println!("seed {seed}");
        let mut random = Random(seed + 99);
        let top = directory(&fs, "d", "plugins", "rotate:7");
        let wishes = |random: &mut Random| {
            [
                ("plugins", "none"),
                ("plugins", "rotate:3,rotate"),
                ("plugins", "rotate:7"),
                ("compress", "zstd"),
                ("compress", "none"),
            ][random.next(5) as usize]
        };
        Walk { steps: 120, reach_bytes: 400_000, text, asks: wishes }.run(&rig, fs, top, &mut random);
    }
}

#[test]
fn what_exists_is_brought_in_line_and_back() {
    let (rig, fs) = rig();
    fs.plugins().add_plugin(&caller(2), "rotate", &rotate()).unwrap();
    let top = fs.mkdir(&caller(2), ROOT, b"d", 0o755).unwrap().inode;
    let files: Vec<(u64, Vec<u8>)> = (0..5)
        .map(|number| {
            let bytes = text(number, 30_000 + number * 90_000);
            (make(&fs, top, &format!("f{number}"), &bytes), bytes)
        })
        .collect();
    fs.syncfs(&caller(3)).unwrap();
    let mut fs = fs;
    for plugins in ["rotate:2", "rotate:2,rotate:4", "none", "rotate"] {
        set(&fs, top, "plugins", plugins);
        fs.syncfs(&caller(3)).unwrap();
        assert!(fact(&fs, files[4].0, "state").starts_with("pending"), "{plugins}");
        fs.reconciler().reconcile_step(&caller(7), 50_000).unwrap();
        fs = rig.reopen(fs, true);
        reconcile(&fs);
        for (inode, bytes) in &files {
            check(&fs, *inode, bytes);
            assert_eq!(fact(&fs, *inode, "state"), "compliant", "{plugins}");
        }
        let (plugged, all) = blobs(&fs);
        assert_eq!(plugged, if plugins == "none" { 0 } else { all }, "{plugins}");
        let moved = fs.reconciler().reconcile_status(Io::BLOCKING).unwrap().moved_bytes;
        fs.reconciler().reconcile(&caller(4), top).unwrap();
        reconcile(&fs);
        assert_eq!(
            fs.reconciler().reconcile_status(Io::BLOCKING).unwrap().moved_bytes,
            moved,
            "done is done: {plugins}"
        );
        assert_clean(&fs);
    }
}

#[test]
fn a_plugin_that_fails_fails_its_own_files_when_they_are_written_and_nothing_is_lost() {
    let cases = [
        ("traps", "(unreachable)", "trap"),
        ("loops", "(loop $for_ever (br $for_ever))", "did not come to an end"),
        ("lies", "(return (i64.const 0x7fff_0000_0000_0010))", "not in its memory"),
        (
            "loses",
            "(return (i64.or (i64.shl (i64.extend_i32_u (local.get $i)) (i64.const 32)) (i64.const 3)))",
            "loses data",
        ),
        (
            "swells",
            "(return (i64.or (i64.shl (i64.extend_i32_u (local.get $i)) (i64.const 32)) (i64.const 200000)))",
            "that it may give",
        ),
    ];
    for (name, does, expected) in cases {
        let (rig, fs) = rig();
        fs.plugins().add_plugin(&caller(2), name, &spoiler(does)).unwrap();
        let top = directory(&fs, "d", "plugins", name);
        let good = make(&fs, top, "good", &text(1, 200_000));
        let elsewhere = make(&fs, ROOT, "elsewhere", &text(2, 200_000));
        fs.syncfs(&caller(3)).unwrap();
        let (bad, handle) = create(&fs, top, "bad");
        let mut content = text(3, 40_000);
        content[0] = b'X';
        // It is gathered first, and fails when it is to be stored.
        assert_eq!(fs.write(&caller(4), bad, 0, &content, false).unwrap(), content.len());
        let failure = fs.fsync(&caller(4), bad, false).unwrap_err();
        assert_eq!(failure.errno(), libc::EIO);
        assert!(failure.to_string().contains(&format!("'{name}'")), "{failure}");
        assert!(failure.to_string().contains(expected), "{failure}");
        // Whole records fail at once.
        let whole = [b'X'; RECORD];
        assert_eq!(fs.write(&caller(4), bad, RECORD as u64, &whole, false).unwrap_err().errno(), libc::EIO);
        // Nobody else notices.
        for (at, inode) in [good, elsewhere].into_iter().enumerate() {
            fs.write(&caller(5), inode, 0, b"changed", false).unwrap();
            fs.fsync(&caller(5), inode, false).unwrap();
            let mut bytes = text(at + 1, 200_000);
            bytes[..7].copy_from_slice(b"changed");
            check(&fs, inode, &bytes);
        }
        check(&fs, bad, &content);
        // Without the plugin what was accepted is stored after all.
        set(&fs, bad, "plugins", "none");
        fs.fsync(&caller(6), bad, false).unwrap();
        fs.release(&caller(6), bad, handle).unwrap();
        let fs = rig.reopen(fs, true);
        check(&fs, bad, &content);
        assert_clean(&fs);
    }
}

#[test]
fn a_file_whose_plugin_cannot_be_run_is_an_error_and_nothing_worse() {
    let (mut rig, fs) = rig();
    fs.plugins().add_plugin(&caller(2), "rotate", &rotate()).unwrap();
    let top = directory(&fs, "d", "plugins", "rotate");
    let with = make(&fs, top, "with", &text(1, 300_000));
    let without = make(&fs, ROOT, "without", &text(2, 300_000));
    fs.syncfs(&caller(3)).unwrap();
    let loader = rig.options.files.plugin_loader.take();
    let fs = rig.reopen(fs, true);
    let mut out = vec![0; 1000];
    let failure = fs.read(&caller(4), with, 5, &mut out).unwrap_err();
    assert_eq!(failure.errno(), libc::EIO);
    assert!(failure.to_string().contains("'rotate' cannot be loaded"), "{failure}");
    assert_eq!(fs.write(&caller(4), with, 0, b"x", false).unwrap_err().errno(), libc::EIO);
    check(&fs, without, &text(2, 300_000));
    // Nobody knows what it would say of a rename either; without it the file is moved, and its bytes wait for it.
    assert_eq!(fs.rename(&caller(4), top, b"with", ROOT, b"moved", 0).unwrap_err().errno(), libc::EIO);
    set(&fs, with, "plugins", "none");
    fs.rename(&caller(4), top, b"with", ROOT, b"moved", 0).unwrap();
    reconcile(&fs);
    assert_eq!(fs.read(&caller(4), with, 5, &mut out).unwrap_err().errno(), libc::EIO);
    assert_clean(&fs);
    rig.options.files.plugin_loader = loader;
    let fs = rig.reopen(fs, false);
    check(&fs, with, &text(1, 300_000));
    assert_clean(&fs);
}

#[test]
fn what_is_no_plugin_is_refused_and_one_in_use_stays() {
    let (rig, fs) = rig();
    assert_eq!(refused(&fs, ROOT, "rotate").errno(), libc::EINVAL, "the pool has none of this name");
    assert!(
        fs.plugins().add_plugin(&caller(2), "broken", b"not a module").unwrap_err().to_string().contains("'broken'")
    );
    for bad in ["", "none", "a/b", "a:b", "a,b"] {
        assert_eq!(fs.plugins().add_plugin(&caller(2), bad, &rotate()).unwrap_err().errno(), libc::EINVAL, "{bad}");
    }
    assert_eq!(fs.plugins().add_plugin(&caller(2), "rotate", &rotate()).unwrap(), 1);
    for bad in
        ["rotate,none", "rotate,,rotate", "rotate:\u{1}", &"rotate,".repeat(8), &format!("rotate:{}", "1".repeat(257))]
    {
        assert_eq!(refused(&fs, ROOT, bad).errno(), libc::EINVAL, "{bad}");
    }
    let top = directory(&fs, "d", "plugins", "rotate:1");
    let file = make(&fs, top, "f", &text(1, 200_000));
    fs.syncfs(&caller(3)).unwrap();
    // A newer one of the same name does not change what stands.
    assert_eq!(fs.plugins().add_plugin(&caller(3), "rotate", &spoiler("(unreachable)")).unwrap(), 2);
    let listed: Vec<(u16, bool)> =
        fs.plugins().plugin_list().iter().map(|info| (info.number, info.is_current)).collect();
    assert_eq!(listed, [(1, false), (2, true)]);
    check(&fs, file, &text(1, 200_000));
    assert_eq!(fs.plugins().remove_plugin(&caller(4), "rotate").unwrap_err().errno(), libc::EBUSY);
    let fs = rig.reopen(fs, true);
    check(&fs, file, &text(1, 200_000));
    set(&fs, top, "plugins", "");
    assert_eq!(
        fs.plugins().remove_plugin(&caller(4), "rotate").unwrap_err().errno(),
        libc::EBUSY,
        "it is stored so still"
    );
    reconcile(&fs);
    fs.plugins().remove_plugin(&caller(4), "rotate").unwrap();
    assert_eq!(fs.plugins().plugin_list(), []);
    assert_eq!(refused(&fs, top, "rotate").errno(), libc::EINVAL);
    let fs = rig.reopen(fs, true);
    check(&fs, file, &text(1, 200_000));
    assert_eq!(fs.plugins().add_plugin(&caller(5), "rotate", &rotate()).unwrap(), 3, "numbers are not used twice");
    assert_clean(&fs);
}

#[test]
fn plugins_are_asked_before_something_is_done() {
    let (rig, fs) = rig();
    fs.plugins().add_plugin(&caller(2), "guard", &guard()).unwrap();
    let free = make(&fs, ROOT, "keep", b"x");
    let top = directory(&fs, "d", "plugins", "guard");
    let kept = make(&fs, top, "keep", &text(1, 1000));
    let other = make(&fs, top, "other", b"y");
    let note = |fs: &FileSystem, inode| fs.getxattr(&caller(3), inode, b"user.plugin.guard");
    assert_eq!((note(&fs, kept).unwrap(), note(&fs, other).unwrap()), (b"made".to_vec(), b"made".to_vec()));
    assert!(note(&fs, free).is_err(), "it has no plugins");
    let denied = |outcome: Result<(), Error>| assert_eq!(outcome.unwrap_err().errno(), libc::EPERM);
    denied(fs.unlink(&caller(4), top, b"keep"));
    denied(fs.rename(&caller(4), top, b"keep", ROOT, b"elsewhere", 0));
    denied(fs.rename(&caller(4), top, b"other", top, b"keep", 0));
    denied(fs.rename(&caller(4), top, b"other", top, b"keep", stere_naming::RENAME_EXCHANGE));
    denied(fs.write(&caller(4), kept, 2 << 20, b"behind", false).map(drop));
    fs.write(&caller(4), kept, 0, b"before", false).unwrap();
    fs.rename(&caller(4), top, b"other", top, b"another", 0).unwrap();
    fs.unlink(&caller(4), top, b"another").unwrap();
    fs.unlink(&caller(4), ROOT, b"keep").unwrap();
    // Nothing of its content passed a plugin.
    fs.syncfs(&caller(4)).unwrap();
    assert_eq!(blobs(&fs).0, 0);
    assert_eq!(fact(&fs, kept, "state"), "compliant");
    let never = stere_naming::Caller { io: Io::NON_BLOCKING, ..caller(5) };
    assert!(matches!(fs.unlink(&never, top, b"keep"), Err(Error::WouldBlock)), "others are not kept waiting");
    set(&fs, top, "plugins", "none");
    fs.syncfs(&caller(5)).unwrap();
    let fs = rig.reopen(fs, false);
    fs.unlink(&caller(6), top, b"keep").unwrap();
    assert_clean(&fs);
}

/// P-66: one table over all calls that change something, so that none of them passes by a plugin that denies it.
#[test]
fn no_changing_call_passes_plugins_by() {
    let (_rig, fs) = rig();
    fs.plugins().add_plugin(&caller(2), "denier", &denier()).unwrap();
    let free = make(&fs, ROOT, "free", &text(1, 8192));
    let top = fs.mkdir(&caller(2), ROOT, b"d", 0o755).unwrap().inode;
    let kept = make(&fs, top, "kept", &text(2, 8192));
    fs.mkdir(&caller(2), top, b"below", 0o755).unwrap();
    fs.setxattr(&caller(2), top, b"user.stere.plugins", b"denier", SetMode::Any, false).unwrap();
    reconcile(&fs);
    let write = OpenFlags { write: true, ..OpenFlags::default() };
    let me = caller(3);
    let cut = SetAttributes { size: Some(1), ..SetAttributes::default() };
    let calls: [(&str, Result<(), Error>); 18] = [
        ("write", fs.write(&me, kept, 0, b"x", false).map(drop)),
        ("allocate", fs.fallocate(&me, kept, 0, 1 << 20, 0)),
        ("punch", fs.fallocate(&me, kept, 0, 4096, PUNCH_HOLE | KEEP_SIZE)),
        ("collapse", fs.fallocate(&me, kept, 0, 4096, COLLAPSE_RANGE)),
        ("insert", fs.fallocate(&me, kept, 0, 4096, INSERT_RANGE)),
        ("copy into", fs.copy_range(&me, free, 0, kept, 0, 4096).map(drop)),
        ("truncate", fs.setattr(&me, kept, &cut).map(drop)),
        ("open and empty", fs.open(&me, kept, OpenFlags { truncate: true, ..write }).map(drop)),
        ("create", fs.create(&me, top, b"new", 0o644, write).map(drop)),
        ("create without a name", fs.tmpfile(&me, top, 0o644, write).map(drop)),
        ("mkdir", fs.mkdir(&me, top, b"new", 0o755).map(drop)),
        ("mknod", fs.mknod(&me, top, b"new", libc::S_IFIFO | 0o644, 0).map(drop)),
        ("symlink", fs.symlink(&me, top, b"new", b"kept").map(drop)),
        ("link", fs.link(&me, free, top, b"new").map(drop)),
        ("rename", fs.rename(&me, top, b"kept", top, b"other", 0)),
        ("rename over", fs.rename(&me, ROOT, b"free", top, b"kept", 0)),
        ("unlink", fs.unlink(&me, top, b"kept")),
        ("rmdir", fs.rmdir(&me, top, b"below")),
    ];
    for (call, outcome) in calls {
        assert_eq!(outcome.map_err(|error| error.errno()), Err(libc::EPERM), "{call}");
    }
    let mut out = vec![0; 8193];
    assert_eq!(fs.read(&me, kept, 0, &mut out).unwrap(), 8192, "nothing was changed");
    assert!(out[..8192] == text(2, 8192));
    assert!(matches!(fs.lookup(&me, top, b"new"), Err(Error::NotFound)));
}
