//! What stays on devices by rules and classes (P-154), with the real binary on a real mount: needs root and /dev/fuse, and says loudly when it
//! skips.

use crate::support;

use std::fs;

use support::{World, can_mount};

#[test]
fn rules_and_classes_say_what_stays() {
    if !can_mount("rules_and_classes_say_what_stays") {
        return;
    }
    let world = World::with_pool();
    world.ok("mount tank mount");
    fs::create_dir(world.path("shelf")).unwrap();
    world.ok(&format!("device add tank dir:{},name=cold", world.path("shelf").display()));
    let projects = world.mountpoint().join("projects");
    for folder in ["one/deep", "two"] {
        fs::create_dir_all(projects.join(folder)).unwrap();
    }
    let content = b"some content ".repeat(200_000);
    for name in ["one/a.index", "one/a.data", "one/deep/b.data", "two/c.data"] {
        fs::write(projects.join(name), &content).unwrap();
    }
    world.refused("policy set mount rules=type=file:unit=yes", 1, &["type=directory"]);
    world.refused("policy set mount rules=*:pin=perhaps", 1, &["yes or no"]);
    let rules = "*.index:pin=yes;projects/*:unit=yes,names=90d";
    let test = world.ok(&format!("policy test mount {rules}"));
    assert!(test.contains("0 of 4 files would be stored otherwise"), "{test}");
    assert!(test.contains("1 files are pinned (now 0), 2 directories are units (now 0), 2 let names go"), "{test}");
    world.ok(&format!("policy set mount rules={rules} --wait"));
    let explained = world.ok("policy explain mount/projects/one/a.index");
    assert!(explained.contains("pin is yes: rule of /: *.index:pin=yes"), "{explained}");
    assert!(
        explained.contains("unit is yes: rule of /: projects/*:unit=yes,names=90d, which matches /projects/one"),
        "{explained}"
    );
    assert!(world.ok("policy explain mount/projects/one/deep").contains("names is 90d: rule of /"));
    world.ok("policy set mount/projects tier=cold --wait");
    world.ok("tier archive mount/projects --wait");
    let said = world.ok("tier release mount/projects");
    assert!(said.contains("hold something that is pinned and stay"), "{said}");
    let residency =
        |name: &str| world.json(&format!("policy get mount/projects/{name} --json"))["residency"].to_string();
    assert_eq!(residency("one/a.index"), "\"online\"");
    assert_ne!(residency("two/c.data"), "\"online\"");
    // What is pinned no more goes, and a file may say so itself.
    world.ok("policy set mount/projects/one/a.index pin=no");
    assert!(world.ok("policy explain mount/projects/one/a.index").contains("pin is no: set here"));
    world.ok("tier release mount/projects");
    assert_ne!(residency("one/a.index"), "\"online\"");
    world.ok("policy unset mount/projects/one/a.index pin");
    world.ok("policy unset mount rules");
    // The same by a class.
    world.ok("class create tank kept pin=yes unit=yes");
    assert!(world.ok("class show tank kept").contains("pin=yes unit=yes"));
    world.ok("policy set mount/projects/two class=kept --wait");
    let explained = world.ok("policy explain mount/projects/two/c.data");
    assert!(explained.contains("pin is yes: inherited from /projects/two"), "{explained}");
    assert!(explained.contains("(pin=yes unit=yes)"), "{explained}");
    world.ok("umount mount");
    assert!(world.ok("check tank").contains("clean"));
    world.ok("mount tank mount");
    assert!(world.ok("policy explain mount/projects/two/c.data").contains("pin is yes: inherited from /projects/two"));
    assert!(fs::read(projects.join("one/deep/b.data")).unwrap() == content);
    world.ok("umount mount");
}
