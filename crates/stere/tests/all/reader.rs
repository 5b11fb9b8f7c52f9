//! P-151 with the real binary and a real mount: what `stere` put on volumes, `tools/read-volume/read_volume.py` gives back without it, and
//! nothing that lies there makes it write a wrong byte or fall over. Needs root, /dev/fuse and python3, and says loudly when it skips.

use crate::support;

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use support::tier::{content, fill, mount_pool, with_volumes};
use support::trees::{assert_no_wrong_byte, assert_same, fill_kinds, made, names_below, objects, paths_in, succeeds};
use support::{Said, World, can_mount};

/// Whether there is a mount to fill volumes by, and a Python to read them with.
fn can_read(test: &str) -> bool {
    let has_python = Command::new("python3").arg("--version").output().is_ok_and(|output| output.status.success());
    if !has_python {
        eprintln!("SKIPPED: {test} needs python3, which is not here");
    }
    has_python && can_mount(test)
}

fn reader() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools/read-volume/read_volume.py")
}

/// The reader with these words; it never falls over, whatever it finds.
fn read(world: &World, line: &str) -> Said {
    let mut command = Command::new("python3");
    command.arg("-B").arg(reader()).args(line.split_whitespace()).current_dir(&world.folder);
    let output = command.output().unwrap();
    let said = Said {
        code: output.status.code().unwrap_or(-1),
        out: String::from_utf8_lossy(&output.stdout).into_owned(),
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
    };
    assert!(!said.err.contains("Traceback"), "{line}: {}", said.err);
    said
}

/// What the reader must end with; gives what it said.
fn read_with(world: &World, line: &str, code: i32) -> String {
    let said = read(world, line);
    assert_eq!(said.code, code, "{line}: {}{}", said.out, said.err);
    said.out
}

fn keep_original(world: &World) {
    succeeds("cp", &[OsStr::new("-a"), world.mountpoint().as_os_str(), world.path("original").as_os_str()]);
}

fn lose_disks(world: &World) {
    world.ok("umount mount");
    for device in ["a.img", "b.img"] {
        fs::remove_file(world.path(device)).unwrap();
    }
}

/// P-151
#[test]
fn a_tree_of_many_kinds_comes_back() {
    if !can_read("a_tree_of_many_kinds_comes_back") {
        return;
    }
    let world = with_volumes(&["shelf"]);
    let mount = world.mountpoint();
    fill_kinds(&made(mount.join("project")));
    for way in ["lz4", "zstd:3"] {
        let directory = made(mount.join(way));
        world.ok(&format!("policy set mount/{way} compress={way}"));
        let text = |number: usize| format!("line {number} of a text that is worth it\n").repeat(number * 90 + 1);
        (0..12).for_each(|number| fs::write(directory.join(number.to_string()), text(number)).unwrap());
    }
    for name in ["project", "lz4", "zstd:3"] {
        world.ok(&format!("tier archive mount/{name} --wait"));
    }
    keep_original(&world);
    lose_disks(&world);
    let before = objects(&world.path("shelf"));
    let has_zstd = Command::new("zstd").arg("--version").output().is_ok_and(|output| output.status.success());
    let said = read(&world, "shelf --to out --preserve all");
    if has_zstd {
        assert_eq!(said.code, 0, "{}{}", said.out, said.err);
        assert_same(&world.path("original"), &world.path("out"));
    } else {
        eprintln!("SKIPPED: contents compressed with Zstandard, for there is no program `zstd`");
        assert!(
            said.code == 4 && said.out.contains("damaged: /zstd:3/3") && said.out.contains("install"),
            "{}",
            said.out
        );
    }
    let attribute = |name: &str| support::tier::attribute(&world.path(name), "user.colour");
    assert_eq!(attribute("out/project/letters/9"), attribute("original/project/letters/9"));
    let sparse = fs::metadata(world.path("out/project/sparse")).unwrap();
    assert!(sparse.blocks() * 512 < 200_000, "holes stay holes");
    let linked = |name: &str| fs::metadata(world.path("out/project").join(name)).unwrap().ino();
    assert_eq!(linked("letters/7"), linked("a/b/c/seven"));
    assert!(objects(&world.path("shelf")) == before, "the reader wrote to a volume");
    // What is there already is left alone.
    let again = read(&world, "shelf --to out");
    assert!(again.code == 1 && again.err.contains("not empty"), "{}{}", again.out, again.err);
}

/// P-151, P-305: objects with the rows of several data chunks are read as any other, by the newest state and without one.
#[test]
fn what_has_parity_is_read_without_stere() {
    if !can_read("what_has_parity_is_read_without_stere") {
        return;
    }
    let world = World::new();
    world.ok("create tank a.img,size=256M b.img,size=256M c.img,size=256M d.img,size=256M");
    world.ok("mount tank mount");
    fs::create_dir(world.path("shelf")).unwrap();
    world.ok("device add tank dir:shelf,name=shelf");
    let project = made(world.mountpoint().join("project"));
    world.ok("policy set mount/project parity=3+1");
    fill_kinds(&project);
    fill(&project.join("more"), 200);
    world.ok("tier archive mount/project --wait");
    let is_wide = |entry: &fs::DirEntry| entry.file_name().to_string_lossy().ends_with("-03");
    assert!(fs::read_dir(world.path("shelf/segments")).unwrap().any(|entry| is_wide(&entry.unwrap())));
    keep_original(&world);
    world.ok("umount mount");
    read_with(&world, "shelf --to out --preserve all", 0);
    assert_same(&world.path("original"), &world.path("out"));
    fs::remove_dir_all(world.path("shelf/states")).unwrap();
    // A sparse file may be said to be incomplete: where it ends is in the state only.
    let said = read(&world, "shelf --to bare --preserve all");
    assert!(!said.out.contains("damaged"), "{}{}", said.out, said.err);
    assert_no_wrong_byte(&world.path("original"), &world.path("bare"));
    for number in [0, 7, 199] {
        assert!(
            fs::read(world.path(&format!("bare/project/more/{number}"))).unwrap() == content(number),
            "file {number}"
        );
    }
}

/// P-182: what gives rights is restored only where that is asked for, and the target's own mode stays.
#[test]
fn nothing_that_gives_rights_is_restored_unasked() {
    if !can_read("nothing_that_gives_rights_is_restored_unasked") {
        return;
    }
    let world = with_volumes(&["shelf"]);
    let project = made(world.mountpoint().join("project"));
    fs::set_permissions(world.mountpoint(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(project.join("program"), "text").unwrap();
    std::os::unix::fs::chown(project.join("program"), Some(1234), Some(1235)).unwrap();
    fs::set_permissions(project.join("program"), fs::Permissions::from_mode(0o6755)).unwrap();
    succeeds("mknod", &[project.join("node").as_os_str(), OsStr::new("c"), OsStr::new("1"), OsStr::new("3")]);
    world.ok("tier archive mount/project --wait");
    lose_disks(&world);
    fs::create_dir(world.path("out")).unwrap();
    fs::set_permissions(world.path("out"), fs::Permissions::from_mode(0o700)).unwrap();
    let said = read(&world, "shelf --to out");
    for word in ["left out: owners", "left out: setid", "a device node, which is made only with --preserve devices"] {
        assert!(said.out.contains(word) || said.err.contains(word), "{word}: {}{}", said.out, said.err);
    }
    let restored = fs::symlink_metadata(world.path("out/project/program")).unwrap();
    assert_eq!((restored.uid(), restored.mode() & 0o7777), (rustix::process::geteuid().as_raw(), 0o755));
    assert!(fs::symlink_metadata(world.path("out/project/node")).is_err());
    assert_eq!(fs::metadata(world.path("out")).unwrap().mode() & 0o7777, 0o700);
}

/// P-151
#[test]
fn any_subset_of_volumes_gives_what_it_has() {
    if !can_read("any_subset_of_volumes_gives_what_it_has") {
        return;
    }
    let world = with_volumes(&["left", "right"]);
    for name in ["left", "right"] {
        fill(&world.mountpoint().join(name), 40);
        world.ok(&format!("tier archive mount/{name} --to {name} --wait"));
    }
    world.ok("tier release mount/left");
    keep_original(&world);
    lose_disks(&world);
    let said = read_with(&world, "left --to alone", 4);
    assert!(said.contains("damaged: /right/9: bytes 0 to 8982: segment") && !said.contains("/left/"), "{said}");
    assert_eq!(names_below(&world.path("original")), names_below(&world.path("alone")), "all names are there");
    assert_no_wrong_byte(&world.path("original"), &world.path("alone"));
    for number in 0..40 {
        assert!(fs::read(world.path(&format!("alone/left/{number}"))).unwrap() == content(number));
    }
    read_with(&world, "right left --to both", 0);
    assert_same(&world.path("original"), &world.path("both"));
    // A stranger among them is refused before anything is written.
    let other = with_volumes(&["shelf"]);
    fill(&other.mountpoint().join("other"), 3);
    other.ok("tier archive mount/other --wait");
    other.ok("umount mount");
    let said = read(&world, &format!("left {} --to mixed", other.path("shelf").display()));
    assert!(said.code == 1 && said.err.contains("several pools"), "{}{}", said.out, said.err);
    assert!(!world.path("mixed").exists());
}

/// P-151
#[test]
fn without_a_state_catalogues_and_rows_tell() {
    if !can_read("without_a_state_catalogues_and_rows_tell") {
        return;
    }
    let world = with_volumes(&["shelf"]);
    let directory = world.mountpoint().join("project");
    fill(&directory.join("letters"), 40);
    fs::write(directory.join(OsStr::from_bytes(b"no \xff UTF-8")), "named by bytes").unwrap();
    fs::set_permissions(directory.join("letters/11"), fs::Permissions::from_mode(0o640)).unwrap();
    succeeds("touch", &[OsStr::new("-d"), OsStr::new("2001-02-03 04:05:06"), directory.join("letters/5").as_os_str()]);
    world.ok("tier archive mount/project --wait");
    // What is written over later goes down again, and lies over what was there.
    for number in 20..30 {
        let file = fs::OpenOptions::new().write(true).open(directory.join(format!("letters/{number}"))).unwrap();
        file.write_all_at(&[number as u8; 5000], 3000).unwrap();
    }
    world.ok("tier archive mount/project --wait");
    keep_original(&world);
    lose_disks(&world);
    for folder in ["states", "metadata"] {
        fs::remove_dir_all(world.path("shelf").join(folder)).unwrap();
    }
    let said = read_with(&world, "shelf --to out", 0);
    assert!(said.contains("no state is used"), "{said}");
    assert_eq!(assert_no_wrong_byte(&world.path("original"), &world.path("out")), 41);
    let facts = |name: &str, of: &str| {
        let found = fs::metadata(world.path(of).join(name)).unwrap();
        (found.mode(), found.uid(), found.gid(), found.mtime())
    };
    for name in ["project/letters/11", "project/letters/5"] {
        assert_eq!(facts(name, "original"), facts(name, "out"), "{name}");
    }
    // Without catalogues there are contents, and no names.
    fs::remove_dir_all(world.path("shelf/catalogue")).unwrap();
    let said = read_with(&world, "shelf --to nameless", 3);
    assert!(said.contains("no catalogue tells its name"), "{said}");
    let mut found: Vec<Vec<u8>> =
        paths_in(&world.path("nameless"), "lost+found").iter().map(|path| fs::read(path).unwrap()).collect();
    let mut wanted: Vec<Vec<u8>> =
        paths_in(&world.path("original/project"), "letters").iter().map(|path| fs::read(path).unwrap()).collect();
    wanted.push(b"named by bytes".to_vec());
    found.sort();
    wanted.sort();
    assert!(found == wanted, "{} found, {} wanted", found.len(), wanted.len());
}

/// P-151
#[test]
fn names_that_were_put_away_come_back() {
    if !can_read("names_that_were_put_away_come_back") {
        return;
    }
    let world = with_volumes(&["shelf", "other"]);
    let directory = world.mountpoint().join("project");
    for number in 0..3 {
        fill(&directory.join(format!("{number}/below")), 100);
    }
    fill(&world.mountpoint().join("plain"), 5);
    world.ok("tier archive mount/project --to shelf --wait");
    world.ok("tier archive mount/plain --to other --wait");
    keep_original(&world);
    let said = world.ok("tier release --metadata mount/project");
    assert!(said.contains("offloaded"), "{said}");
    lose_disks(&world);
    read_with(&world, "shelf other --to out", 0);
    assert_same(&world.path("original"), &world.path("out"));
    // Without a state a bundle of names is not taken for what a directory holds.
    read_with(&world, "shelf --as-archived --to archived", 0);
    world.ok("rescue dir:shelf --as-archived --to rescued");
    for copy in ["archived", "rescued"] {
        assert_eq!(assert_no_wrong_byte(&world.path("original"), &world.path(copy)), 300, "{copy}");
    }
    // The state of the other volume tells that there are names, and that they are lost.
    let said = read_with(&world, "other --to without", 4);
    assert!(said.contains("damaged: /project/1: names in this directory are lost"), "{said}");
    for number in 0..5 {
        assert!(fs::read(world.path(&format!("without/plain/{number}"))).unwrap() == content(number));
    }
}

/// P-151
#[test]
fn what_is_damaged_is_a_hole_and_is_named() {
    if !can_read("what_is_damaged_is_a_hole_and_is_named") {
        return;
    }
    let world = with_volumes(&["shelf"]);
    fill(&world.mountpoint().join("project"), 120);
    world.ok("tier archive mount/project --wait");
    keep_original(&world);
    lose_disks(&world);
    // One block of one file: the last one, for the file before begins like it.
    let needle = &content(77)[76_000..76_064];
    let mut spoiled = 0;
    for path in paths_in(&world.path("shelf"), "segments") {
        let mut bytes = fs::read(&path).unwrap();
        if let Some(at) = bytes.windows(needle.len()).position(|window| window == needle) {
            bytes[at] ^= 1;
            fs::write(&path, bytes).unwrap();
            spoiled += 1;
        }
    }
    assert_eq!(spoiled, 1);
    let said = read_with(&world, "shelf --to holed", 4);
    assert!(said.contains("damaged: /project/77: bytes 73728 to 76778: it does not match its checksum"), "{said}");
    assert_eq!(said.matches("damaged: ").count(), 1, "{said}");
    let (mut right, found) = (content(77), fs::read(world.path("holed/project/77")).unwrap());
    right[73_728..].fill(0);
    assert!(found == right);
    let said = read_with(&world, "shelf --as-archived --to archived", 4);
    assert!(said.contains("damaged: /project/77"), "{said}");
    assert!(assert_no_wrong_byte(&world.path("original"), &world.path("archived")) >= 118);
    // A size that rotted is not believed, by either.
    for path in paths_in(&world.path("shelf"), "catalogue") {
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, text.replace("\"size\":9980,", "\"size\":1980,")).unwrap();
    }
    let said = read_with(&world, "shelf --as-archived --to rotten", 4);
    let rescued = world.run("rescue dir:shelf --as-archived --to rescued");
    for (said, copy) in [(said, "rotten"), (rescued.out, "rescued")] {
        assert!(said.contains("line of a catalogue") && said.contains("checksum"), "{said}");
        assert!(!world.path(copy).join("project/10").exists());
        let found = fs::read(&paths_in(&world.path(copy), "lost+found")[0]).unwrap();
        assert!(found == content(10), "it is there without its name");
    }
}

/// The state is older than a repacking: contents are where it does not say. P-151
#[test]
fn contents_that_were_moved_since_are_found() {
    if !can_read("contents_that_were_moved_since_are_found") {
        return;
    }
    let world = with_volumes(&["shelf"]);
    let directory = world.mountpoint().join("project");
    fill(&directory, 160);
    world.ok("tier archive mount/project --wait");
    world.ok("tier release mount/project");
    keep_original(&world);
    world.ok("umount mount");
    let of_state = |from: &str, to: &str| {
        for folder in ["states", "metadata"] {
            drop(fs::remove_dir_all(world.path(to).join(folder)));
            succeeds(
                "cp",
                &["-a".as_ref(), world.path(from).join(folder).as_os_str(), made(world.path(to)).as_os_str()],
            );
        }
    };
    of_state("shelf", "before");
    world.ok("mount tank mount");
    (0..160).filter(|number| number % 8 != 0).for_each(|number| {
        fs::remove_file(directory.join(number.to_string())).unwrap();
    });
    assert!(world.ok("media repack tank shelf").contains("became"));
    lose_disks(&world);
    of_state("before", "shelf");
    let said = read_with(&world, "shelf --to out", 4);
    assert!(said.contains("damaged: /project/7: ") && !said.contains("damaged: /project/8: "), "{said}");
    for number in (0..160).step_by(8) {
        assert!(fs::read(world.path(&format!("out/project/{number}"))).unwrap() == content(number), "file {number}");
    }
    assert_no_wrong_byte(&world.path("original"), &world.path("out"));
}

/// A catalogue that somebody hostile wrote leads nowhere outside the copy, in either reader. P-151
#[test]
fn hostile_names_lead_nowhere() {
    if !can_read("hostile_names_lead_nowhere") {
        return;
    }
    let world = with_volumes(&["shelf"]);
    fill(&world.mountpoint().join("project"), 9);
    world.ok("tier archive mount/project --wait");
    lose_disks(&world);
    let catalogues = paths_in(&world.path("shelf"), "catalogue");
    let text = fs::read_to_string(&catalogues[0]).unwrap();
    let mut inodes = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["inode"].clone());
    let escape = "/../".repeat(20);
    let outside = format!("{escape}{}", world.path("evil").display());
    let hexadecimal = |path: &str| path.bytes().map(|byte| format!("{byte:02x}")).collect::<String>();
    let names = [
        ("path", outside.clone()),
        ("path_hex", hexadecimal(&outside)),
        ("path", "/..".into()),
        ("path", String::new()),
        ("path", "/one".into()),
        ("path", "/one/below a file".into()),
        ("path", "/a\0b".into()),
        ("path", format!("/{}", "x".repeat(300))),
        ("path_hex", "zz".into()),
    ];
    let mut catalogue = Vec::new();
    for (field, path) in names {
        let inode = inodes.next().unwrap();
        let mut line = serde_json::json!({"inode": inode, "mode": 33188, "uid": 0, "gid": 0, "size": 10, "mtime": 1});
        line[field] = path.into();
        let mut line = line.to_string().into_bytes();
        stere_format::seal_catalogue_line(&mut line);
        catalogue.extend_from_slice(&line);
        catalogue.push(b'\n');
    }
    catalogues.iter().for_each(|path| fs::write(path, &catalogue).unwrap());
    let said = read(&world, "shelf --as-archived --to out");
    assert!([3, 4].contains(&said.code), "{}{}", said.out, said.err);
    let rescued = world.run("rescue dir:shelf --as-archived --to rescued");
    assert!(!world.path("evil").exists(), "{}{}", said.out, rescued.out);
    for copy in ["out", "rescued"] {
        assert!(!paths_in(&world.path(copy), "lost+found").is_empty(), "what can have no such name is there");
    }
}

/// What is compressed is moved as a whole, with what was written over since; it does not come to lie over that. P-151
#[test]
fn what_was_only_moved_is_not_newer() {
    if !can_read("what_was_only_moved_is_not_newer") {
        return;
    }
    let world = with_volumes(&["shelf"]);
    let directory = made(world.mountpoint().join("project"));
    world.ok("policy set mount/project compress=lz4");
    let text = |number: usize| format!("{number}: a line that is worth it\n").repeat(1000 + number).into_bytes();
    (0..160).for_each(|number| fs::write(directory.join(number.to_string()), text(number)).unwrap());
    world.ok("tier archive mount/project --wait");
    for number in (0..160).step_by(8) {
        let file = fs::OpenOptions::new().write(true).open(directory.join(number.to_string())).unwrap();
        file.write_all_at(&[number as u8; 4096], 8192).unwrap();
    }
    world.ok("tier archive mount/project --wait");
    (0..160).filter(|number| number % 8 != 0).for_each(|number| {
        fs::remove_file(directory.join(number.to_string())).unwrap();
    });
    assert!(world.ok("media repack tank shelf").contains("became"));
    keep_original(&world);
    lose_disks(&world);
    read_with(&world, "shelf --to out", 0);
    assert_same(&world.path("original"), &world.path("out"));
    read_with(&world, "shelf --as-archived --to archived", 0);
    world.ok("rescue dir:shelf --as-archived --to rescued");
    for copy in ["archived", "rescued"] {
        assert_eq!(assert_no_wrong_byte(&world.path("original"), &world.path(copy)), 20, "{copy}");
    }
}

/// What `dd` reads from a simulated cartridge, without the lengths and marks that the simulation puts between.
fn dump(cartridge: &Path) -> Vec<u8> {
    let (bytes, mut dump, mut at) = (fs::read(cartridge).unwrap(), Vec::new(), 0);
    while at < bytes.len() {
        let length = u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
        let length = if length == u32::MAX { 0 } else { length as usize };
        dump.extend_from_slice(&bytes[at + 4..at + 4 + length]);
        at += 4 + length;
    }
    dump
}

/// P-151
#[test]
fn dumps_of_cartridges_are_volumes() {
    if !can_read("dumps_of_cartridges_are_volumes") {
        return;
    }
    let world = World::new();
    fs::create_dir(world.path("library")).unwrap();
    let library = "model=instant\ndrives=2\ncartridges=4\ncapacity=6000000\n";
    fs::write(world.path("library/library"), library).unwrap();
    mount_pool(&world, "");
    world.ok("device add tank robot:simulated:library,set=tank,name=tapes");
    fill(&world.mountpoint().join("project"), 130);
    world.ok("tier archive mount/project --wait");
    keep_original(&world);
    lose_disks(&world);
    let mut words = Vec::new();
    for path in paths_in(&world.path("library"), "") {
        if path.extension().is_some_and(|extension| extension == "cartridge") {
            let dump = dump(&path);
            let name = format!("dump-{}", words.len());
            if !dump.is_empty() {
                fs::write(world.path(&name), dump).unwrap();
                words.push(name);
            }
        }
    }
    assert!(words.len() > 1, "they do not fit on one: {words:?}");
    read_with(&world, &format!("{} --to out", words.join(" ")), 0);
    assert_same(&world.path("original"), &world.path("out"));
    read_with(&world, &format!("{} --to archived --as-archived", words.join(" ")), 0);
    assert_eq!(assert_no_wrong_byte(&world.path("original"), &world.path("archived")), 130);
    // Any of them without the others: something is there, and nothing is wrong.
    for name in &words {
        let said = read(&world, &format!("{name} --to alone-{name}"));
        assert!([0, 3, 4].contains(&said.code), "{}{}", said.out, said.err);
        let copy = world.path(&format!("alone-{name}"));
        let right = assert_no_wrong_byte(&world.path("original"), &copy);
        // What went down together may end between two files where a cartridge does; then it lacks nothing, and says so.
        assert!(said.code != 0 || right == objects(&copy).len(), "{}", said.out);
    }
}

/// P-151
#[test]
fn what_is_encrypted_is_named() {
    if !can_read("what_is_encrypted_is_named") {
        return;
    }
    let world = with_volumes(&["shelf"]);
    fs::write(world.path("key"), [7; 32]).unwrap();
    world.ok("key create tank family --key-file key");
    let vault = made(world.mountpoint().join("vault"));
    world.ok("policy set mount/vault encrypt=yes");
    fs::write(vault.join("hidden"), content(33)).unwrap();
    std::os::unix::fs::symlink("hidden-target", vault.join("link")).unwrap();
    fs::write(world.mountpoint().join("visible"), content(35)).unwrap();
    world.ok("tier archive mount/vault mount/visible --wait");
    lose_disks(&world);
    let said = read_with(&world, "shelf --to out", 4);
    let (named, link) = ("is encrypted, which only `stere rescue` opens", "its target is encrypted");
    assert!(said.contains("damaged: /vault/locked-") && said.contains(named) && said.contains(link), "{said}");
    assert!(!said.contains("/visible"), "{said}");
    assert!(fs::read(world.path("out/visible")).unwrap() == content(35));
    for (_, bytes) in objects(&world.path("out/vault")) {
        assert!(bytes.iter().all(|byte| *byte == 0), "nothing that cannot be opened is written");
    }
}

/// A step of a simple generator of numbers, each run the same.
fn next(state: &mut u64) -> usize {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) as usize
}

/// Bits flip, ends are cut off, objects go: no wrong byte, no traceback, and what is lost is told. P-151
#[test]
fn whatever_is_damaged_no_byte_is_wrong() {
    if !can_read("whatever_is_damaged_no_byte_is_wrong") {
        return;
    }
    let world = with_volumes(&["shelf"]);
    fill(&world.mountpoint().join("project"), 40);
    world.ok("tier archive mount/project --wait");
    keep_original(&world);
    lose_disks(&world);
    let intact = objects(&world.path("shelf"));
    let rounds = std::env::var("STERE_READER_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(8);
    let mut told = 0;
    for round in 0..rounds {
        let mut state = round * 7 + 1;
        let folder = made(world.path("damaged"));
        for (name, bytes) in &intact {
            let mut bytes = bytes.clone();
            let is_spoiled = next(&mut state).is_multiple_of(3) && !bytes.is_empty();
            if is_spoiled && next(&mut state).is_multiple_of(8) {
                bytes.truncate(next(&mut state) % bytes.len());
            } else if is_spoiled {
                for _ in 0..=next(&mut state) % 20 {
                    let at = next(&mut state) % bytes.len();
                    bytes[at] ^= 1 << (next(&mut state) % 8);
                }
            }
            fs::create_dir_all(folder.join(name).parent().unwrap()).unwrap();
            fs::write(folder.join(name), bytes).unwrap();
        }
        for (line, copy) in [("damaged --to by-state", "by-state"), ("damaged --as-archived --to archived", "archived")]
        {
            let said = read(&world, line);
            assert!([0, 1, 3, 4].contains(&said.code), "round {round}: {}{}", said.out, said.err);
            let copy = world.path(copy);
            if copy.exists() {
                let right = assert_no_wrong_byte(&world.path("original"), &copy);
                assert!(right == 40 || said.code != 0, "round {round}: {}", said.out);
                fs::remove_dir_all(&copy).unwrap();
            }
            told += usize::from(said.code != 0);
        }
        fs::remove_dir_all(&folder).unwrap();
    }
    assert!(told > 0, "nothing was damaged");
}
