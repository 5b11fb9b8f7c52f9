//! Classes of the pool with the real binary on a real mount (P-57): needs root and /dev/fuse, and says loudly when it skips.

use crate::support;

use std::fs;

use support::{World, can_mount};

#[test]
fn classes_are_defined_used_changed_and_deleted() {
    if !can_mount("classes_are_defined_used_changed_and_deleted") {
        return;
    }
    let world = World::with_pool();
    world.refused("class list tank", 1, &["not mounted"]);
    world.ok("mount tank mount");
    let photos = world.mountpoint().join("photos");
    fs::create_dir(&photos).unwrap();
    world.refused("policy set mount/photos class=photos", 1, &["photos", "stere class list"]);
    world.refused("class create tank photos copies=none", 1, &["copies"]);
    world.refused("class create tank photos copies", 2, &["KEY=VALUE"]);
    world.ok("class create tank photos copies=1 compress=lz4");
    world.refused("class create tank photos copies=1", 1, &["there is a class of this name"]);
    world.ok("policy set mount/photos class=photos");
    world.refused("policy set mount/photos rules=*.jpg:class=gold", 1, &["stere class list"]);
    world.ok("policy set mount/photos rules=*.raw:class=precious");
    fs::write(photos.join("a.jpg"), vec![7; 1 << 20]).unwrap();
    fs::write(photos.join("a.raw"), vec![8; 1 << 20]).unwrap();
    world.ok("flush mount --wait");
    assert!(world.ok("policy explain mount/photos/a.jpg").contains("class is photos: inherited from /photos"));
    assert_eq!(world.json("policy get mount/photos/a.jpg --json")["survives"], "0");
    assert!(world.ok("class list tank").contains("photos            copies=1 compress=lz4"));
    let shown = world.json("class show tank photos --json");
    assert_eq!((&shown["members"], &shown["is_built_in"]), (&1.into(), &false.into()));
    world.refused("class show tank gold", 1, &["no class 'gold'", "photos"]);
    let said = world.ok("class change tank photos copies=2 compress= --wait");
    assert!(said.contains("done"), "{said}");
    let facts = world.json("policy get mount/photos/a.jpg --json");
    assert_eq!((&facts["survives"], &facts["state"]), (&"1".into(), &"compliant".into()));
    assert!(world.ok("class change tank photos copies=2").contains("so already"));
    let told = world.run("status tank --json");
    assert!(told.out.contains("\"photos\""), "its room is told");
    // P-194: rules ask for a class that two devices cannot keep.
    assert!(told.code == 3 && told.out.contains("*.raw:class=precious"), "{}", told.out);
    world.ok("umount mount");
    world.ok("mount tank mount");
    assert_eq!(world.json("policy get mount/photos --json")["class"], "photos");
    world.refused("class delete tank photos --into scratch", 1, &["1 files and directories", "--yes"]);
    world.refused("class delete tank normal --yes", 1, &["built-in"]);
    world.ok("class delete tank photos --into scratch --yes --wait");
    // Rules may still name it, so its name is not used again, and the advice is one that can be followed.
    world.refused("class create tank photos copies=2", 1, &["was deleted", "choose another name"]);
    let facts = world.json("policy get mount/photos/a.jpg --json");
    assert_eq!((&facts["effective.class"], &facts["survives"]), (&"scratch".into(), &"0".into()));
    world.ok("class change tank precious copies=1 --wait");
    assert_eq!(world.json("policy get mount/photos/a.raw --json")["survives"], "0");
    world.ok("umount mount");
    world.ok("check a.img b.img");
}
