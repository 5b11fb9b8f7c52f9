//! `stere stack` with the real binary and the kernel: content passes the stack by rule, everything else is the source's (P-67).

use crate::support;

use std::fs;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use support::{NOBODY, World, can_mount};

/// A stack over `source`, until dropped.
struct Stack {
    child: Child,
    mountpoint: PathBuf,
}

impl Stack {
    fn new(world: &World, arguments: &[&str]) -> Stack {
        let mut command = world.command("stack source mount");
        let mut child = command.args(arguments).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert!(line.contains("is mounted on"), "{line:?} of {arguments:?}");
        Stack { child, mountpoint: world.mountpoint() }
    }

    fn end(mut self) {
        assert!(Command::new("umount").arg(&self.mountpoint).status().unwrap().success());
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        if !matches!(self.child.try_wait(), Ok(Some(_))) {
            drop(Command::new("umount").arg("-l").arg(&self.mountpoint).stderr(Stdio::null()).status());
            drop(self.child.kill());
            drop(self.child.wait());
        }
    }
}

fn world() -> World {
    let world = World::new();
    fs::create_dir(world.path("source")).unwrap();
    let rotate = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../plugins/rotate.wat");
    fs::copy(rotate, world.path("rotate.wat")).unwrap();
    fs::write(world.path("key"), [7; 64]).unwrap();
    world
}

const RULES: [&str; 8] = [
    "--rule",
    "*.c: encrypt=yes, compress=zstd; *.h: compress=lz4",
    "--rule",
    "*.r: plugins=rotate:3+rotate; deep/**/*.txt: encrypt=yes",
    "--plugin",
    "rotate=rotate.wat",
    "--key-file",
    "key",
];

fn text(number: usize, length: usize) -> Vec<u8> {
    let line = |at: usize| format!("PLAIN-TEXT line {at} of {number}\n").into_bytes();
    (0..length / 20 + 1).flat_map(line).take(length).collect()
}

fn has_plain(path: PathBuf) -> bool {
    fs::read(path).unwrap().windows(10).any(|window| window == b"PLAIN-TEXT")
}

#[test]
fn content_passes_the_stack_by_rule_and_the_rest_is_the_sources() {
    if !can_mount("content_passes_the_stack_by_rule_and_the_rest_is_the_sources") {
        return;
    }
    let world = world();
    let (source, mount) = (world.path("source"), world.mountpoint());
    fs::write(source.join("old.c"), text(0, 5000)).unwrap();
    let stack = Stack::new(&world, &RULES);
    assert_eq!(fs::read(mount.join("old.c")).unwrap(), text(0, 5000), "what was there is as it was");
    fs::create_dir_all(mount.join("deep/er")).unwrap();
    let names = ["a.c", "a.h", "a.r", "a.o", "deep/er/b.txt", "b.txt"];
    for (number, name) in names.iter().enumerate() {
        fs::write(mount.join(name), text(number, 300_000 + number)).unwrap();
        assert!(fs::read(mount.join(name)).unwrap() == text(number, 300_000 + number), "{name}");
        assert_eq!(fs::metadata(mount.join(name)).unwrap().len(), 300_000 + number as u64);
    }
    for (name, is_plain) in [("a.c", false), ("a.r", false), ("deep/er/b.txt", false), ("a.o", true), ("b.txt", true)] {
        assert_eq!(has_plain(source.join(name)), is_plain, "{name}");
    }
    assert!(fs::metadata(source.join("a.h")).unwrap().len() < 150_000, "it is smaller beneath");
    // Names, links and attributes are the source's.
    fs::rename(mount.join("a.c"), mount.join("deep/moved.o")).unwrap();
    fs::hard_link(mount.join("deep/moved.o"), mount.join("again")).unwrap();
    std::os::unix::fs::symlink("again", mount.join("link")).unwrap();
    fs::set_permissions(mount.join("again"), fs::Permissions::from_mode(0o640)).unwrap();
    assert!(fs::read(mount.join("link")).unwrap() == text(0, 300_000));
    let (one, other) = (fs::metadata(mount.join("again")).unwrap(), fs::metadata(source.join("again")).unwrap());
    assert_eq!((one.mode(), one.nlink(), one.ino()), (other.mode(), 2, other.ino()));
    assert_eq!(fs::read_link(source.join("link")).unwrap(), PathBuf::from("again"));
    // The key is the source's own business.
    assert!(source.join(".stere-stack-key").exists());
    assert!(!fs::read_dir(&mount).unwrap().any(|entry| entry.unwrap().file_name() == ".stere-stack-key"));
    assert!(fs::read(mount.join(".stere-stack-key")).is_err());
    fs::remove_file(mount.join("a.h")).unwrap();
    assert!(!source.join("a.h").exists());
    stack.end();
    assert!(fs::read(source.join("b.txt")).unwrap() == text(5, 300_005));
    // Without the key sizes are told and nothing else; with it all is there.
    let stack = Stack::new(&world, &RULES[4..6]);
    assert_eq!(fs::metadata(mount.join("again")).unwrap().len(), 300_000);
    assert_eq!(fs::read(mount.join("again")).unwrap_err().raw_os_error(), Some(126));
    assert!(
        fs::read(mount.join("a.r")).unwrap() == text(2, 300_002),
        "a file knows how it is stored, whatever the rules"
    );
    stack.end();
    let stack = Stack::new(&world, &RULES);
    assert!(fs::read(mount.join("again")).unwrap() == text(0, 300_000));
    // What is emptied and written anew gets the way of its name.
    fs::write(mount.join("old.c"), text(9, 5000)).unwrap();
    assert!(!has_plain(source.join("old.c")));
    stack.end();
}

#[test]
fn any_change_leaves_the_bytes_that_a_plain_file_has() {
    if !can_mount("any_change_leaves_the_bytes_that_a_plain_file_has") {
        return;
    }
    let world = world();
    let stack = Stack::new(&world, &RULES);
    let mut state = 7_u64;
    let mut random = move |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    for name in ["x.c", "x.h", "x.r", "x.o"] {
        let (path, model) = (world.mountpoint().join(name), world.path(&format!("model-{name}")));
        let open = |path: &PathBuf| {
            fs::File::options().read(true).write(true).create(true).truncate(false).open(path).unwrap()
        };
        let mut pair = [open(&path), open(&model)];
        for step in 0..120 {
            let offset = random(500_000);
            let length = [1, 700, 4096, 150_000][random(4) as usize];
            let kind = random(8);
            for file in &mut pair {
                match kind {
                    0..=3 => file.write_all_at(&text(step, length), offset).unwrap(),
                    4 => file.set_len(offset).unwrap(),
                    5 => file.sync_all().unwrap(),
                    6 => {
                        file.seek(SeekFrom::End(0)).unwrap();
                        file.write_all(&text(step, length)).unwrap();
                    }
                    _ => {}
                }
            }
            if kind == 7 {
                pair = [open(&path), open(&model)];
            }
            let mut seen = [Vec::new(), Vec::new()];
            for (file, bytes) in pair.iter_mut().zip(&mut seen) {
                file.seek(SeekFrom::Start(offset / 2)).unwrap();
                file.take(200_000).read_to_end(bytes).unwrap();
            }
            assert!(seen[0] == seen[1], "{name} at step {step}");
        }
        drop(pair);
        assert!(fs::read(&path).unwrap() == fs::read(&model).unwrap(), "{name}");
    }
    stack.end();
    let stack = Stack::new(&world, &RULES);
    for name in ["x.c", "x.h", "x.r", "x.o"] {
        let model = fs::read(world.path(&format!("model-{name}"))).unwrap();
        assert!(fs::read(world.mountpoint().join(name)).unwrap() == model, "{name} after a new mount");
    }
    stack.end();
}

#[test]
fn what_cannot_be_is_refused_before_it_is_mounted() {
    if !can_mount("what_cannot_be_is_refused_before_it_is_mounted") {
        return;
    }
    let world = world();
    let refused = |arguments: &[&str], word: &str| {
        let said = world.command("stack source mount").args(arguments).output().unwrap();
        let err = String::from_utf8_lossy(&said.stderr).into_owned();
        assert!(!said.status.success() && err.contains(word), "{arguments:?}: {err}");
    };
    refused(&["--rule", "*.c: compress=gzip"], "rule 1: compress is none, lz4, zstd");
    refused(&["--rule", "*.c: plugins=absent"], "--plugin absent=FILE");
    refused(&["--rule", "*.c: encrypt=yes"], "key");
    refused(&["--plugin", "key=key"], "no WebAssembly");
    Stack::new(&world, &RULES[..]).end();
    fs::write(world.path("other"), [8; 64]).unwrap();
    refused(&["--key-file", "other"], "does not open");
    let inside = world.command("stack source source").output().unwrap();
    assert!(String::from_utf8_lossy(&inside.stderr).contains("in one another"));
}

/// A group that nobody is in, unless a test lets it in.
const GROUP: u32 = 4321;

/// An ACL: rights of the owner, of the user nobody, of the owning group, the mask, and of others.
fn acl(rights: [u16; 5]) -> Vec<u8> {
    const NONE: u32 = u32::MAX;
    let kinds = [(1_u16, NONE), (2, NOBODY), (4, NONE), (16, NONE), (32, NONE)];
    let entries = kinds.into_iter().zip(rights);
    let entries = entries
        .flat_map(|((kind, who), right)| [&kind.to_le_bytes()[..], &right.to_le_bytes(), &who.to_le_bytes()].concat());
    2_u32.to_le_bytes().into_iter().chain(entries).collect()
}

fn set_acl(path: &Path, name: &str, value: &[u8]) {
    rustix::fs::setxattr(path, name, value, rustix::fs::XattrFlags::empty()).unwrap();
}

/// Whether a shell command succeeds that is run by nobody, in this group.
fn may(world: &World, group: u32, line: &str) -> bool {
    let mut command = Command::new("sh");
    command.args(["-c", line]).current_dir(&world.folder).uid(NOBODY).gid(group).stderr(Stdio::null());
    command.stdout(Stdio::null()).status().unwrap().success()
}

/// P-201: what the ACLs of the source forbid and allow is forbidden and allowed, and default ACLs hold for what is made.
#[test]
fn acls_of_the_source_hold() {
    if !can_mount("acls_of_the_source_hold") {
        return;
    }
    let world = world();
    let source = world.path("source");
    fs::set_permissions(&source, fs::Permissions::from_mode(0o777)).unwrap();
    // The group has nothing, which the mask shows as rw in the mode; nobody has nothing, whatever others have.
    for (name, rights) in [("of-group", [6, 0, 0, 6, 0]), ("shut", [6, 0, 4, 4, 4]), ("open", [6, 6, 0, 6, 0])] {
        fs::write(source.join(name), b"secret").unwrap();
        std::os::unix::fs::chown(source.join(name), Some(0), Some(GROUP)).unwrap();
        set_acl(&source.join(name), "system.posix_acl_access", &acl(rights));
    }
    fs::create_dir(source.join("shared")).unwrap();
    set_acl(&source.join("shared"), "system.posix_acl_default", &acl([7, 7, 5, 7, 0]));
    set_acl(&source.join("shared"), "system.posix_acl_access", &acl([7, 7, 5, 7, 0]));
    let stack = Stack::new(&world, &["--allow-other", "--rule", "*.c: compress=zstd"]);
    for at in ["source", "mount"] {
        for (group, line, right) in [
            (GROUP, "cat {}/of-group", false),
            (GROUP, "echo x >>{}/of-group", false),
            (NOBODY, "cat {}/shut", false),
            (NOBODY, "cat {}/open", true),
            (NOBODY, "echo x >>{}/open", true),
            (NOBODY, "umask 077; echo x >{}/shared/made.c; mkdir {}/shared/below; mkfifo {}/shared/fifo", true),
            (NOBODY, "umask 027; echo x >{}/own; mkdir {}/mine", true),
            (NOBODY, "ls {}/shared", true),
            (GROUP + 1, "cat {}/shut", false),
        ] {
            assert_eq!(may(&world, group, &line.replace("{}", at)), right, "{line} at {at}");
        }
        // As the source makes it: the default ACL in place of the umask, and the umask elsewhere.
        for (name, mode) in [("shared/made.c", 0o660), ("shared/below", 0o770), ("shared/fifo", 0o660)] {
            let path = world.path(at).join(name);
            assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, mode, "{name} at {at}");
            let mut value = [0; 100];
            assert_eq!(
                rustix::fs::getxattr(&path, "system.posix_acl_access", &mut value).unwrap(),
                44,
                "{name} at {at}"
            );
        }
        for (name, mode) in [("own", 0o640), ("mine", 0o750)] {
            assert_eq!(fs::metadata(world.path(at).join(name)).unwrap().mode() & 0o777, mode, "{name} at {at}");
        }
        for name in ["shared/made.c", "shared/fifo", "own"] {
            fs::remove_file(world.path(at).join(name)).unwrap();
        }
        for name in ["shared/below", "mine"] {
            fs::remove_dir(world.path(at).join(name)).unwrap();
        }
    }
    // How long an attribute is, and which there are, is told where only that is asked for.
    let open = std::ffi::CString::new(world.path("mount/open").into_os_string().into_encoded_bytes()).unwrap();
    // SAFETY: both are strings that end, and no room is given.
    let lengths = unsafe {
        let name = c"system.posix_acl_access";
        [
            libc::getxattr(open.as_ptr(), name.as_ptr(), std::ptr::null_mut(), 0),
            libc::listxattr(open.as_ptr(), std::ptr::null_mut(), 0),
        ]
    };
    assert_eq!(lengths, [44, 24]);
    // ACLs that are set through the mount hold at once, and beneath too; a new mode changes the mask.
    let shut = world.mountpoint().join("shut");
    set_acl(&shut, "system.posix_acl_access", &acl([6, 6, 4, 6, 0]));
    assert!(may(&world, NOBODY, "cat mount/shut && cat source/shut"));
    fs::set_permissions(&shut, fs::Permissions::from_mode(0o600)).unwrap();
    assert!(!may(&world, NOBODY, "cat mount/shut") && !may(&world, NOBODY, "cat source/shut"));
    rustix::fs::removexattr(&shut, "system.posix_acl_access").unwrap();
    fs::set_permissions(&shut, fs::Permissions::from_mode(0o604)).unwrap();
    assert!(may(&world, NOBODY, "cat mount/shut"));
    stack.end();
}

/// P-201: a file that somebody other than root empties, writes or cuts loses its set-id bits, as on the source.
#[test]
fn set_id_bits_go_when_others_change_a_file() {
    if !can_mount("set_id_bits_go_when_others_change_a_file") {
        return;
    }
    let world = world();
    let source = world.path("source");
    let stack = Stack::new(&world, &["--allow-other", "--rule", "*.c: compress=zstd"]);
    for at in ["source", "mount"] {
        for name in ["plain", "coded.c"] {
            for line in [":>{}", "printf '' >{}", "echo x >>{}", "truncate -s 3 {}", "dd if=/dev/zero of={} count=1"] {
                drop(fs::remove_file(world.mountpoint().join(name)));
                // Made through the mount, so that it has the form of its name.
                fs::write(world.mountpoint().join(name), b"content").unwrap();
                fs::set_permissions(source.join(name), fs::Permissions::from_mode(0o6777)).unwrap();
                std::thread::sleep(std::time::Duration::from_millis(if at == "mount" { 1100 } else { 0 }));
                if at == "source" && name == "coded.c" {
                    continue;
                }
                let line = line.replace("{}", &format!("{at}/{name}"));
                assert!(may(&world, NOBODY, &line), "{line}");
                let mode = fs::metadata(source.join(name)).unwrap().mode() & 0o7777;
                assert_eq!(mode, 0o777, "after {line}");
            }
        }
    }
    // Root keeps them, as anywhere.
    fs::set_permissions(source.join("plain"), fs::Permissions::from_mode(0o6777)).unwrap();
    fs::File::create(world.mountpoint().join("plain")).unwrap();
    assert_eq!(fs::metadata(source.join("plain")).unwrap().mode() & 0o7777, 0o6777);
    stack.end();
}
