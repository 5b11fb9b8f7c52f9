//! `stere digest` with the real binary on a real mount (P-144): needs root and /dev/fuse, and says loudly when it skips.

use crate::support;

use std::fs;
use std::process::Command;

use support::{World, can_mount};

fn attribute(world: &World, name: &str) -> Option<String> {
    let mut value = [0; 100];
    let length = rustix::fs::getxattr(world.mountpoint().join("a"), name, &mut value).ok()?;
    Some(String::from_utf8_lossy(&value[..length]).into_owned())
}

#[test]
fn digests_are_those_of_other_tools_and_go_with_the_content() {
    if !can_mount("digests_are_those_of_other_tools_and_go_with_the_content") {
        return;
    }
    let world = World::with_pool();
    world.ok("mount tank mount");
    let top = world.mountpoint();
    fs::write(top.join("a"), vec![7; 3_000_000]).unwrap();
    fs::create_dir(top.join("d")).unwrap();
    fs::write(top.join("d/empty"), b"").unwrap();
    let said = world.run("digest mount --check");
    assert_eq!(said.code, 3, "{}{}", said.out, said.err);
    let told = world.ok("digest mount");
    assert!(told.contains("e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855  mount/d/empty"), "{told}");
    let other = Command::new("sha256sum").arg("mount/a").current_dir(&world.folder).output().unwrap();
    assert!(told.contains(String::from_utf8(other.stdout).unwrap().trim()), "{told}");
    world.ok("digest mount/a --algorithm blake3 --json");
    let (sha256, blake3) = (attribute(&world, "user.stere.sha256"), attribute(&world, "user.stere.blake3"));
    assert!(told.contains(&sha256.clone().unwrap()) && blake3.is_some());
    world.ok("digest mount --check");
    // Mounted again, and all is there.
    world.ok("flush --wait");
    world.ok("umount mount");
    world.ok("mount tank mount");
    assert_eq!(attribute(&world, "user.stere.sha256"), sha256);
    assert_eq!(world.run("digest mount/a --check").code, 0);
    let refused = rustix::fs::setxattr(top.join("a"), "user.stere.sha256", b"00", rustix::fs::XattrFlags::empty());
    assert_eq!(refused, Err(rustix::io::Errno::OPNOTSUPP));
    // Through the kernel's memory too.
    fs::OpenOptions::new()
        .append(true)
        .open(top.join("a"))
        .and_then(|mut file| std::io::Write::write_all(&mut file, b"x"))
        .unwrap();
    assert_eq!(attribute(&world, "user.stere.sha256"), None);
    assert_eq!(world.run("digest mount/a --check").code, 3);
    world.refused("digest mount/none", 1, &["mount/none"]);
    world.ok("umount mount");
}
