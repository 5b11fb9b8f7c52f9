//! Versions and plugins by rules and classes, with the real binary on a real mount (P-117): needs root and /dev/fuse, and says loudly
//! when it skips.

use crate::support;

use std::fs;
use std::path::Path;

use support::{World, can_mount};

fn count(path: &Path) -> usize {
    fs::read_dir(path).map_or(0, |entries| entries.count())
}

#[test]
fn rules_and_classes_say_versions_and_plugins() {
    if !can_mount("rules_and_classes_say_versions_and_plugins") {
        return;
    }
    let world = World::with_pool();
    world.ok("mount tank mount");
    let rotate = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../plugins/rotate.wat");
    fs::copy(rotate, world.path("rotate.wat")).unwrap();
    world.ok("plugin add tank rotate rotate.wat");
    let folder = world.mountpoint().join("d");
    fs::create_dir(&folder).unwrap();
    let secret = b"PLAIN-TEXT-OF-THE-FILE ".repeat(20_000);
    fs::write(folder.join("before.r"), &secret).unwrap();
    world.ok("flush mount --wait");
    let rules = "*.r:plugins=rotate:3;*.odt:versions=2,30d,copies=1";
    let test = world.ok(&format!("policy test mount/d {rules}"));
    assert!(test.contains("before.r") && test.contains("plugins=rotate:3"), "{test}");
    world.refused("policy set mount/d rules=*:plugins=gone", 1, &["gone"]);
    world.refused("policy set mount/d rules=*:versions=0", 1, &["'0' is no value for policy key 'versions'"]);
    world.ok(&format!("policy set mount/d rules={rules} --wait"));
    fs::write(folder.join("after.r"), &secret).unwrap();
    let explained = world.ok("policy explain mount/d/after.r");
    assert!(explained.contains("plugins is rotate:3: rule of /d: *.r:plugins=rotate:3"), "{explained}");
    assert_eq!(world.json("policy get mount/d/before.r --json")["state"], "compliant");
    for text in ["one", "two", "three", "four"] {
        fs::write(folder.join("a.odt"), text).unwrap();
        fs::write(folder.join("a.txt"), text).unwrap();
    }
    assert!(world.ok("policy explain mount/d/a.odt").contains("versions is 2,30d: rule of /d"));
    assert!(count(&folder.join(".versions/a.odt")) >= 2 && count(&folder.join(".versions/a.txt")) == 0);
    world.refused("plugin remove tank rotate", 1, &["in use"]);
    world.ok("flush mount --wait");
    world.ok("umount mount");
    assert!(world.ok("check tank").contains("clean"));
    world.ok("mount tank mount");
    for name in ["before.r", "after.r"] {
        assert!(fs::read(folder.join(name)).unwrap() == secret, "{name}");
    }
    // The same by a class; no rules any more.
    world.ok("class create tank papers versions=3 plugins=rotate:5");
    assert!(world.ok("class show tank papers").contains("plugins=rotate:5 versions=3"));
    world.refused("class create tank other plugins=gone", 1, &["gone"]);
    world.ok("policy unset mount/d rules");
    world.ok("policy set mount/d class=papers --wait");
    assert_eq!(world.json("policy get mount/d/before.r --json")["state"], "compliant");
    assert!(world.ok("policy explain mount/d/before.r").contains("plugins is rotate:5: inherited from /d"));
    fs::write(folder.join("a.txt"), "five").unwrap();
    assert_eq!(count(&folder.join(".versions/a.txt")), 1);
    world.ok("class change tank papers plugins= versions=no --wait");
    for name in ["before.r", "after.r"] {
        assert!(fs::read(folder.join(name)).unwrap() == secret, "{name}");
    }
    world.ok("plugin remove tank rotate");
    world.ok("umount mount");
    assert!(world.ok("check tank").contains("clean"));
}

/// P-14: one touch below many directories with large rules holds nobody up (it took 10.8 s once, while everybody waited).
#[test]
fn a_touch_below_many_rules_is_quick() {
    if !can_mount("a_touch_below_many_rules_is_quick") {
        return;
    }
    let world = World::with_pool();
    world.ok("mount tank mount");
    let mut folder = world.mountpoint();
    for depth in 0..60 {
        folder.push("d");
        fs::create_dir(&folder).unwrap();
        let one = |number: usize| format!("*.{depth}x{number}:compress=zstd");
        let rules = (0..700).map(one).collect::<Vec<_>>().join(";");
        let name = c"user.stere.rules";
        let path = std::ffi::CString::new(folder.as_os_str().as_encoded_bytes()).unwrap();
        // SAFETY: both names end with a zero, and the value is as long as is said.
        let code = unsafe { libc::setxattr(path.as_ptr(), name.as_ptr(), rules.as_ptr().cast(), rules.len(), 0) };
        assert_eq!(code, 0, "{}", std::io::Error::last_os_error());
    }
    for name in ["file.txt", "file.59x699", "file."] {
        let begun = std::time::Instant::now();
        fs::write(folder.join(name), b"x").unwrap();
        let took = begun.elapsed();
        println!("{name}: {took:?}");
        assert!(took < std::time::Duration::from_secs(2), "{name}: {took:?}");
    }
    let explained = world.json(&format!("policy get {} --json", folder.join("file.59x699").display()));
    assert!(explained.to_string().contains("zstd"), "{explained}");
    world.ok("umount mount");
}
