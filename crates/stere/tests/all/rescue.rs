//! The real binary on image files: what is damaged is rescued, and what can be mended is mended.

use crate::support;

use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::Command;

use support::{World, can_mount};

const SUPERBLOCKS: [u64; 2] = [0, 64 << 10];

fn overwrite(world: &World, name: &str, offset: u64, length: usize) {
    let file = std::fs::OpenOptions::new().write(true).open(world.path(name)).unwrap();
    let noise: Vec<u8> = (0..length).map(|at| (at as u8).wrapping_mul(181) ^ 0x5a).collect();
    file.write_all_at(&noise, offset).unwrap();
}

/// All superblock copies of a device.
fn spoil_superblocks(world: &World, name: &str) {
    let size = std::fs::metadata(world.path(name)).unwrap().len();
    for offset in SUPERBLOCKS.into_iter().chain([size - (128 << 10), size - (64 << 10)]) {
        overwrite(world, name, offset, 4096);
    }
}

/// A pool with files of many kinds, unmounted again.
fn filled(policy: &str) -> World {
    let world = World::with_pool();
    world.ok("mount tank mount");
    let mount = world.mountpoint();
    if !policy.is_empty() {
        world.ok(&format!("policy set mount {policy}"));
    }
    std::fs::create_dir(mount.join("letters")).unwrap();
    for number in 0..40u32 {
        let words: Vec<u8> = (0..number * 611).flat_map(|at| (at ^ number << 20).to_le_bytes()).collect();
        std::fs::write(mount.join(format!("letters/letter {number}")), words).unwrap();
    }
    for number in 0..300u32 {
        std::fs::write(mount.join(format!("a short note, number {number}")), number.to_le_bytes()).unwrap();
    }
    std::fs::write(mount.join("diary"), vec![b'd'; 300_000]).unwrap();
    std::fs::hard_link(mount.join("diary"), mount.join("journal")).unwrap();
    std::os::unix::fs::symlink("letters/letter 3", mount.join("favourite")).unwrap();
    let sparse = std::fs::File::create(mount.join("sparse")).unwrap();
    sparse.write_all_at(b"the end", 9_000_000).unwrap();
    drop(sparse);
    let status = Command::new("chown").arg("1234:567").arg(mount.join("diary")).status().unwrap();
    assert!(status.success());
    let status = Command::new("cp").arg("-a").arg(&mount).arg(world.path("original")).status().unwrap();
    assert!(status.success());
    world.ok("umount mount");
    world
}

fn names_below(root: &Path) -> Vec<String> {
    let output = Command::new("find").arg(".").current_dir(root).output().unwrap();
    let mut names: Vec<String> = String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect();
    names.sort();
    names
}

/// Everything of the original, attributes too, and nothing else.
fn assert_same(original: &Path, copy: &Path) {
    assert_eq!(names_below(original), names_below(copy));
    for name in names_below(original).iter().filter(|name| *name != ".") {
        let (one, other) = (original.join(name), copy.join(name));
        let (a, b) = (std::fs::symlink_metadata(&one).unwrap(), std::fs::symlink_metadata(&other).unwrap());
        assert_eq!((a.mode(), a.uid(), a.gid(), a.mtime()), (b.mode(), b.uid(), b.gid(), b.mtime()), "{name}");
        if a.is_file() {
            assert_eq!(a.nlink(), b.nlink(), "{name}");
            assert!(std::fs::read(&one).unwrap() == std::fs::read(&other).unwrap(), "{name} differs");
        } else if a.is_symlink() {
            assert_eq!(std::fs::read_link(&one).unwrap(), std::fs::read_link(&other).unwrap());
        }
    }
}

#[test]
fn a_whole_pool_and_a_single_device_of_it_are_copied_whole() {
    if !can_mount("a_whole_pool_and_a_single_device_of_it_are_copied_whole") {
        return;
    }
    let world = filled("");
    let before = [std::fs::read(world.path("a.img")).unwrap(), std::fs::read(world.path("b.img")).unwrap()];
    let said = world.run("rescue a.img b.img --to whole --preserve all");
    assert_eq!(said.code, 0, "{}{}", said.out, said.err);
    assert!(said.out.contains("everything is whole"), "{}", said.out);
    assert_same(&world.path("original"), &world.path("whole"));
    let sparse = std::fs::metadata(world.path("whole/sparse")).unwrap();
    assert!(sparse.blocks() * 512 < 100_000, "holes stay holes");
    // By its name, too; and one device alone, which is not all there is of the pool.
    assert_eq!(world.run("rescue tank --to named --preserve all").code, 0);
    let said = world.run("rescue b.img --to alone --preserve all");
    assert_eq!(said.code, 3, "{}{}", said.out, said.err);
    assert_same(&world.path("original"), &world.path("alone"));
    let after = [std::fs::read(world.path("a.img")).unwrap(), std::fs::read(world.path("b.img")).unwrap()];
    assert!(before == after, "a rescue wrote to a device");
}

#[test]
fn without_superblocks_everything_is_still_found() {
    if !can_mount("without_superblocks_everything_is_still_found") {
        return;
    }
    let world = filled("");
    spoil_superblocks(&world, "a.img");
    spoil_superblocks(&world, "b.img");
    world.refused("check a.img b.img", 1, &["superblock"]);
    let said = world.run("rescue a.img b.img --to copy --preserve all");
    assert_eq!(said.code, 3, "{}{}", said.out, said.err);
    assert_same(&world.path("original"), &world.path("copy"));
    let listed = world.json("rescue a.img --dry-run --json");
    assert_eq!(listed["state"]["root"], "checkpoint");
    assert!(listed["entries"].as_array().unwrap().len() >= 44);
    assert_eq!(listed["counts"]["bytes"], 0);
}

/// Files of one copy on two devices, one of which is gone.
#[test]
fn what_is_lost_is_named_and_the_rest_is_copied() {
    if !can_mount("what_is_lost_is_named_and_the_rest_is_copied") {
        return;
    }
    let world = filled("copies=1");
    let said = world.run("rescue b.img --to copy --preserve all");
    let other = world.run("rescue a.img --to other --preserve all");
    assert!(said.code == 4 || other.code == 4, "one copy on two devices survived both: {}{}", said.out, other.out);
    let report = if said.code == 4 {
        world.json("rescue b.img --to again --preserve all --json")
    } else {
        world.json("rescue a.img --to again --preserve all --json")
    };
    let damage = report["damage"].as_array().unwrap();
    assert!(!damage.is_empty());
    for lost in damage {
        let path = lost["path"].as_str().unwrap();
        let (original, copy) = (world.path(&format!("original{path}")), world.path(&format!("again{path}")));
        let (original, copy) = (std::fs::read(original).unwrap(), std::fs::read(copy).unwrap());
        assert_eq!(original.len(), copy.len(), "{path}");
        for range in lost["ranges"].as_array().unwrap() {
            let (start, length) = (range["offset"].as_u64().unwrap(), range["length"].as_u64().unwrap());
            let range = start as usize..(start + length) as usize;
            assert!(copy[range].iter().all(|byte| *byte == 0), "{path}: a lost range is a hole");
        }
    }
    // Together they have everything.
    assert_eq!(world.run("rescue a.img b.img --to both --preserve all").code, 0);
    assert_same(&world.path("original"), &world.path("both"));
}

#[test]
fn refusals_say_what_to_do() {
    let world = World::with_pool();
    world.refused("rescue a.img b.img", 2, &["--to DIR"]);
    world.refused("rescue ./nothere.img --to out --preserve all", 1, &["does not exist"]);
    std::fs::write(world.path("empty.img"), vec![0; 64 << 20]).unwrap();
    world.refused("rescue empty.img --to out --preserve all", 1, &["none of these holds"]);
    world.refused("rescue a.img b.img --to mount/.. --preserve all", 1, &["not empty"]);
    world.refused("rescue nopool --to out --preserve all", 1, &["no pool is named"]);
}

// P-41
#[test]
fn check_repairs_superblocks_and_leaves_a_clean_pool() {
    let world = World::with_pool();
    overwrite(&world, "a.img", 0, 4096);
    overwrite(&world, "b.img", 64 << 10, 4096);
    assert_eq!(world.run("check tank").code, 1);
    let said = world.run("check tank --repair");
    assert_eq!(said.code, 0, "{}{}", said.out, said.err);
    assert!(
        said.out.contains("mended") && said.out.contains("superblock") && said.out.contains("clean"),
        "{}",
        said.out
    );
    assert!(world.ok("check tank").contains("clean"));
    let again = world.json("check tank --repair --json");
    assert_eq!(again["mended"], serde_json::json!([]));
    assert_eq!(again["findings"], serde_json::json!([]));
}

#[test]
fn check_repairs_rotten_blocks_from_the_other_copies() {
    if !can_mount("check_repairs_rotten_blocks_from_the_other_copies") {
        return;
    }
    let world = filled("");
    let size = std::fs::metadata(world.path("a.img")).unwrap().len();
    // A stretch of slots: headers, rows, data and metadata alike.
    overwrite(&world, "a.img", size / 16, (3 << 20) + 4096);
    let said = world.run("check tank --repair");
    assert_eq!(said.code, 0, "{}{}", said.out, said.err);
    assert!(said.out.contains("written anew from good ones"), "{}", said.out);
    // The mended device alone has everything again.
    let said = world.run("rescue a.img --to alone --preserve all");
    assert_eq!(said.code, 3, "{}{}", said.out, said.err);
    assert_same(&world.path("original"), &world.path("alone"));
}

/// Spoils, on all images, every leaf of the tree that begins with the root directory.
fn spoil_leaves_of_the_root(world: &World) -> usize {
    let mut spoiled = 0;
    for name in ["a.img", "b.img"] {
        let bytes = std::fs::read(world.path(name)).unwrap();
        for (sector, node) in (0u64..).zip(bytes.chunks(512)) {
            let is_leaf = node.starts_with(b"stereNOD") && node[9] == 0;
            if is_leaf && node[24] == 1 && node[25..33] == 1u64.to_be_bytes() {
                overwrite(world, name, sector * 512, 512);
                spoiled += 1;
            }
        }
    }
    spoiled
}

#[test]
fn a_damaged_tree_is_told_by_path_and_rescued() {
    if !can_mount("a_damaged_tree_is_told_by_path_and_rescued") {
        return;
    }
    let world = filled("");
    assert!(spoil_leaves_of_the_root(&world) >= 2);
    for line in ["check tank --json", "check tank --repair --json"] {
        let said = world.run(line);
        assert_eq!(said.code, 4, "{line}: {}{}", said.out, said.err);
        let report: serde_json::Value = serde_json::from_str(&said.out).unwrap();
        let lost = report["findings"].as_array().unwrap().iter().filter(|it| it["data_lost"] == true);
        assert!(lost.count() >= 1, "{}", said.out);
    }
    let said = world.run("rescue a.img b.img --to copy --preserve all");
    assert!(said.code == 3 || said.code == 4, "{}{}", said.out, said.err);
    // Whatever leaf it was: contents that other leaves lead to are there, if only by their inodes.
    let mut found = 0;
    for number in 1..40u32 {
        let original = std::fs::read(world.path(&format!("original/letters/letter {number}"))).unwrap();
        let output = Command::new("find").arg(world.path("copy")).args(["-type", "f"]).output().unwrap();
        let paths = String::from_utf8(output.stdout).unwrap();
        found += u32::from(paths.lines().any(|path| std::fs::read(path).unwrap() == original));
    }
    assert!(found >= 20, "{found} of 39 letters are found: {}", said.out);
}

/// P-182: what gives rights does not come out of a foreign pool unasked, and the directory that is copied to stays as it is.
#[test]
fn rescue_restores_no_rights_unless_it_is_told_to() {
    if !can_mount("rescue_restores_no_rights_unless_it_is_told_to") {
        return;
    }
    use std::os::unix::fs::{FileTypeExt, PermissionsExt};
    let world = World::with_pool();
    world.ok("mount tank mount");
    let mount = world.mountpoint();
    let set_mode = |name: &str, mode: u32| {
        std::fs::set_permissions(mount.join(name), std::fs::Permissions::from_mode(mode)).unwrap();
    };
    for (name, mode) in [("root", 0o4755), ("group", 0o2755), ("plain", 0o640)] {
        std::fs::write(mount.join(name), name).unwrap();
        std::os::unix::fs::chown(mount.join(name), Some(1234), Some(567)).unwrap();
        set_mode(name, mode);
    }
    std::fs::create_dir(mount.join("shared")).unwrap();
    set_mode("shared", 0o3777);
    let node = Command::new("mknod").arg(mount.join("disk")).args(["b", "240", "77"]).status().unwrap();
    assert!(node.success());
    rustix::fs::setxattr(mount.join("plain"), "user.colour", b"blue", rustix::fs::XattrFlags::empty()).unwrap();
    let capability = [1, 0, 0, 2, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let set =
        rustix::fs::setxattr(mount.join("plain"), "security.capability", &capability, rustix::fs::XattrFlags::empty());
    set.unwrap();
    set_mode("", 0o755);
    world.ok("umount mount");
    let own = std::fs::metadata(&world.folder).unwrap();
    let look = |to: &str, name: &str| std::fs::symlink_metadata(world.path(to).join(name));
    let attribute =
        |to: &str, name: &str| rustix::fs::getxattr(world.path(to).join("plain"), name, &mut [0; 64][..]).ok();
    for (to, more) in [("safe", ""), ("all", " --preserve all")] {
        let target = world.path(to);
        std::fs::create_dir(&target).unwrap();
        std::fs::set_permissions(&target, std::fs::Permissions::from_mode(0o700)).unwrap();
        let said = world.run(&format!("rescue a.img b.img --to {to}{more}"));
        assert_eq!(std::fs::metadata(&target).unwrap().mode() & 0o7777, 0o700, "{}{}", said.out, said.err);
        for name in ["root", "group", "plain"] {
            assert_eq!(std::fs::read_to_string(target.join(name)).unwrap(), name);
        }
        assert_eq!(attribute(to, "user.colour"), Some(4));
        if more.is_empty() {
            assert_eq!(said.code, 3, "what is left out is told: {}{}", said.out, said.err);
            for word in ["--preserve=setid", "--preserve=owners", "--preserve=devices", "of 3 files", "problem: /disk"]
            {
                assert!(said.out.contains(word), "{word}: {}", said.out);
            }
        }
    }
    let modes = |to: &str| ["root", "group", "plain", "shared"].map(|name| look(to, name).unwrap().mode() & 0o7777);
    assert_eq!(modes("safe"), [0o755, 0o755, 0o640, 0o1777]);
    assert_eq!(modes("all"), [0o4755, 0o2755, 0o640, 0o3777]);
    assert_eq!((look("safe", "plain").unwrap().uid(), look("all", "plain").unwrap().uid()), (own.uid(), 1234));
    assert_eq!((attribute("safe", "security.capability"), attribute("all", "security.capability")), (None, Some(20)));
    assert!(look("safe", "disk").is_err());
    assert!(look("all", "disk").unwrap().file_type().is_block_device());
}
