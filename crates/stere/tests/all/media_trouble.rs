//! Media that are damaged, lost or full, and what is said of them (P-195, P-196, P-198, P-199, P-208): with the real binary on a real mount. Needs root
//! and /dev/fuse, and says loudly when it skips.

use crate::support;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use support::tier::{assert_right, attribute, content, end_clean, fill, forget_cache, tiered, until, with_volumes};
use support::{World, can_mount};

/// The objects of a volume in a directory.
fn objects(volume: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![volume.join("segments")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap().flatten() {
            let is_folder = entry.file_type().unwrap().is_dir();
            if is_folder { &mut folders } else { &mut found }.push(entry.path());
        }
    }
    found
}

fn released(volumes: &[&str], archive: &str) -> World {
    let world = with_volumes(volumes);
    fill(&world.mountpoint().join("d"), 40);
    world.ok(archive);
    world.ok("tier release mount/d");
    world.ok("umount mount");
    world.ok("mount tank mount");
    world
}

fn overwrite(object: &Path) {
    let bytes = fs::read(object).unwrap();
    let mut bad = bytes.clone();
    // Its header and the first row stay as they are.
    let from = bad.len() / 2;
    bad[from..].fill(0x5a);
    fs::write(object, bad).unwrap();
}

/// P-195: what media give no more is lost, and said to be: by status, by the state of the files, by the list of media; after the next mount
/// too, until it is right again.
#[test]
fn damaged_and_lost_objects_are_known_loss() {
    if !can_mount("damaged_and_lost_objects_are_known_loss") {
        return;
    }
    let world = released(&["cold"], "tier archive mount/d --wait");
    assert_eq!(world.run("status tank").code, 0);
    let intact: Vec<(PathBuf, Vec<u8>)> =
        objects(&world.path("cold")).into_iter().map(|path| (path.clone(), fs::read(&path).unwrap())).collect();
    assert!(!intact.is_empty());
    intact.iter().for_each(|(path, _)| overwrite(path));
    assert_eq!(world.run("media verify tank cold").code, 3);
    for _ in 0..2 {
        let status = world.run("status tank");
        assert_eq!(status.code, 4, "{}{}", status.out, status.err);
        assert!(status.out.contains("cold") && status.out.contains("stere media verify"), "{}", status.out);
        assert!(status.out.contains("lost: /d/"), "{}", status.out);
        assert_eq!(world.json("media list tank --json")[0]["state"], "damaged");
        let lost = world.ok("find state=lost mount");
        let lost: Vec<&str> = lost.lines().collect();
        assert!(!lost.is_empty() && lost.len() <= 40, "{lost:?}");
        assert!(attribute(&world.folder.join(lost[0]), "user.stere.state").starts_with("lost"));
        // Exactly those cannot be read.
        for number in 0..40 {
            let name = format!("mount/d/{number}");
            let read = fs::read(world.folder.join(&name));
            let is_lost = lost.contains(&name.as_str());
            assert_eq!(read.is_err(), is_lost, "{name}");
            assert!(is_lost || read.unwrap() == content(number));
        }
        assert_eq!(world.ok("find state!=compliant mount").lines().collect::<Vec<_>>(), lost, "and no directories");
        world.ok("umount mount");
        world.ok("mount tank mount");
    }
    intact.iter().for_each(|(path, bytes)| fs::write(path, bytes).unwrap());
    world.ok("media verify tank cold");
    assert_eq!(world.run("status tank").code, 0, "{}", world.run("status tank").out);
    assert_right(&world.mountpoint().join("d"), 40);
    // Lost altogether, and found by reading alone.
    world.ok("umount mount");
    intact.iter().for_each(|(path, _)| fs::remove_file(path).unwrap());
    world.ok("mount tank mount");
    assert!(fs::read(world.mountpoint().join("d/39")).is_err());
    until("it is not known", || world.run("status tank").code == 4);
    assert!(attribute(&world.mountpoint().join("d/39"), "user.stere.state").starts_with("lost"));
    intact.iter().for_each(|(path, bytes)| fs::write(path, bytes).unwrap());
    assert_right(&world.mountpoint().join("d"), 40);
    until("what can be read is lost", || world.run("status tank").code != 4);
    // What was not read is proven by verifying.
    assert_eq!(world.run("status tank").code, 3);
    world.ok("media verify tank cold");
    assert_eq!(world.run("status tank").code, 0);
    end_clean(&world);
}

/// P-195: what another medium has is not lost, and is copied out again.
#[test]
fn what_another_medium_has_is_not_lost() {
    if !can_mount("what_another_medium_has_is_not_lost") {
        return;
    }
    let world = released(&["one", "two"], "tier archive mount/d --to one+two --wait");
    until("both media to count", || world.json("status tank --json")["survives"] == 1);
    objects(&world.path("one")).iter().for_each(|path| overwrite(path));
    assert_right(&world.mountpoint().join("d"), 40);
    let status = world.json("status tank --json");
    assert_eq!(status["state"], "degraded", "{status}");
    assert!(status["next"].as_str().unwrap().contains("stere media verify tank one"), "{status}");
    assert_eq!(world.run("media verify tank one").code, 3);
    until("it is not copied out again", || world.run("status tank").code == 0);
    assert_eq!(world.json("media list tank --json")[0]["state"], "online");
    world.ok("media verify tank one");
    end_clean(&world);
}

/// P-196: archiving without a destination follows policy, set or inherited, and drops no medium; `lose` knows media; who takes over is asked.
#[test]
fn media_are_named_and_chosen() {
    if !can_mount("media_are_named_and_chosen") {
        return;
    }
    let world = with_volumes(&["one", "two", "three"]);
    let tier = |path: &str| attribute(&world.folder.join(path), "user.stere.tier");
    let effective = |path: &str| attribute(&world.folder.join(path), "user.stere.effective.tier");
    fill(&world.mountpoint().join("own"), 10);
    world.ok("tier archive mount/own --to one+two --wait");
    let said = world.ok("tier archive mount/own --wait");
    assert!(said.contains("is on one+two"), "{said}");
    assert_eq!(tier("mount/own"), "one+two");
    fs::create_dir(world.mountpoint().join("above")).unwrap();
    world.ok("policy set mount/above tier=two+three");
    fill(&world.mountpoint().join("above/below"), 10);
    let said = world.ok("tier archive mount/above/below --wait");
    assert!(said.contains("is on two+three"), "{said}");
    assert_eq!(effective("mount/above/below"), "two+three");
    assert!(rustix::fs::getxattr(world.folder.join("mount/above/below"), "user.stere.tier", &mut [0_u8; 64]).is_err());
    // Where nobody says anything any more, nothing is dropped either.
    fill(&world.mountpoint().join("left"), 10);
    world.ok("tier archive mount/left --to three --wait");
    world.ok("policy unset mount/left tier");
    let said = world.ok("tier archive mount/left --wait");
    assert!(said.contains("is on three"), "{said}");
    // What is nowhere else is told before the medium is gone.
    world.ok("tier release mount");
    assert!(world.ok("lose one").contains("loses no file"), "two has it too");
    let lost = world.ok("lose three");
    assert!(lost.contains("/left/9") && !lost.contains("/above"), "{lost}");
    let both = world.ok("lose one two");
    assert!(both.contains("/own/9") && !both.contains("/above"), "{both}");
    world.ok("umount mount");
    assert!(world.ok("lose three").contains("/left/9"), "not mounted");
    world.refused("lose four", 1, &["no pool", "four"]);
    world.ok("mount tank mount");
    // A choice is the owner's.
    fs::create_dir(world.path("four")).unwrap();
    world.ok("device add tank dir:four,name=four");
    fs::create_dir(world.path("five")).unwrap();
    world.ok("device add tank dir:five,name=five");
    world.refused("media retire tank three", 1, &["say which", "--to", "four", "five"]);
    world.ok("tier price tank five out=0.1");
    fs::rename(world.path("one"), world.path("one.away")).unwrap();
    let said = world.ok("media retire tank three --dry-run");
    assert!(said.contains("to four"), "{said}");
    fs::rename(world.path("four"), world.path("four.away")).unwrap();
    world.refused("media retire tank three", 1, &["cannot be reached", "--to"]);
    fs::rename(world.path("four.away"), world.path("four")).unwrap();
    world.ok("media retire tank three --to five --wait");
    // The pool itself is no place for it.
    fs::create_dir(world.mountpoint().join("inside")).unwrap();
    world.refused("device add tank dir:mount/inside,name=self", 1, &["in the pool 'tank' itself"]);
    world.refused("device add tank dir:mount/inside/deeper,name=self", 1, &["in the pool 'tank' itself"]);
    world.ok("umount mount");
}

/// P-208: a volume does not move into the pool itself either, however its directory is named; and it stays where it was.
#[test]
fn a_volume_is_not_brought_into_its_own_pool() {
    if !can_mount("a_volume_is_not_brought_into_its_own_pool") {
        return;
    }
    let world = released(&["cold"], "tier archive mount/d --wait");
    let inside = world.mountpoint().join("inside");
    fs::create_dir(&inside).unwrap();
    std::os::unix::fs::symlink(&inside, world.path("link")).unwrap();
    world.ok("device offline tank cold");
    // A whole copy of it is there.
    let copied = std::process::Command::new("cp").arg("-a").arg(world.path("cold/.")).arg(&inside).status().unwrap();
    assert!(copied.success());
    for path in ["dir:mount/inside", "mount/inside", "dir:link", "link", "dir:mount/inside/deeper"] {
        world.refused(&format!("device online tank cold {path}"), 1, &["in the pool 'tank' itself", "another disk"]);
        assert_eq!(world.json("media list tank --json")[0]["state"], "offline", "{path}");
    }
    fs::rename(world.path("cold"), world.path("moved")).unwrap();
    for place in ["moved", "dir:moved"] {
        world.ok("device offline tank cold");
        world.ok(&format!("device online tank cold {place}"));
        let volume = world.json("media list tank --json")[0].clone();
        assert_eq!(volume["place"], format!("dir:{}", world.path("moved").display()));
    }
    assert_right(&world.mountpoint().join("d"), 40);
    end_clean(&world);
}

/// P-198: a reader waits as long as `recall_timeout=` says, and not once more for what the kernel read ahead.
#[test]
fn recall_timeout_is_kept() {
    if !can_mount("recall_timeout_is_kept") {
        return;
    }
    let world = tiered("");
    let big = content(1000).into_iter().cycle().take(3 << 20).collect::<Vec<u8>>();
    fs::write(world.mountpoint().join("big"), &big).unwrap();
    world.ok("tier archive mount/big --wait");
    world.ok("tier release mount/big");
    world.ok("umount mount");
    world.ok("mount tank mount -o recall_timeout=4");
    fs::rename(world.path("volume"), world.path("away")).unwrap();
    for _ in 0..2 {
        let begun = Instant::now();
        let error = fs::read(world.mountpoint().join("big")).unwrap_err();
        let took = begun.elapsed();
        assert_eq!(error.raw_os_error(), Some(libc::EIO));
        assert!(took >= Duration::from_secs(4) && took < Duration::from_secs(7), "{took:?}");
        std::thread::sleep(Duration::from_secs(3));
    }
    fs::rename(world.path("away"), world.path("volume")).unwrap();
    forget_cache();
    assert!(fs::read(world.mountpoint().join("big")).unwrap() == big);
    world.ok("umount mount");
}

/// P-199: from one volume, which lacks what never went there.
#[test]
fn a_rescue_lists_what_is_not_whole() {
    if !can_mount("a_rescue_lists_what_is_not_whole") {
        return;
    }
    let world = with_volumes(&["one"]);
    fill(&world.mountpoint().join("d"), 10);
    world.ok("tier archive mount/d --wait");
    fill(&world.mountpoint().join("e"), 10);
    world.ok("umount mount");
    let said = world.run("rescue dir:one --to out");
    assert_eq!(said.code, 4, "{}{}", said.out, said.err);
    assert!(said.err.contains("out.incomplete.txt"), "{}", said.err);
    let list = fs::read_to_string(world.path("out.incomplete.txt")).unwrap();
    assert!(list.contains("/e/9") && !list.contains("/d/"), "{list}");
    assert_right(&world.path("out/d"), 10);
    let whole = world.run("rescue a.img b.img --to whole");
    assert!(whole.code != 4 && !world.path("whole.incomplete.txt").exists(), "{}{}", whole.out, whole.err);
}
