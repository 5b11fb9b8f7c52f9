//! Rules and classes name media, and say when devices give up what is there (P-300, P-303), with the real binary and a real mount. Needs
//! root and /dev/fuse, and says loudly when it skips.

use crate::support;

use std::fs;

use support::tier::{assert_right, attribute, blocks, end_clean, fill, forget_cache, until, with_volumes};
use support::{World, can_mount};

fn rules(world: &World, path: &str, text: &str) {
    let said = world.command(&format!("policy set {path}")).arg(format!("rules={text}")).output().unwrap();
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
}

fn goes_to(world: &World, path: &str) -> String {
    attribute(&world.mountpoint().join(path), "user.stere.effective.tier")
}

/// P-303: a class sends to the media that it names, and P-300: devices give up what nobody used for so long, by itself.
#[test]
fn a_class_sends_down_and_releases() {
    if !can_mount("a_class_sends_down_and_releases") {
        return;
    }
    let world = with_volumes(&["cloud", "shelf"]);
    world.refused("class create tank films tier=nowhere", 1, &["nowhere"]);
    world.ok("class create tank films tier=cloud+shelf release=4s");
    assert!(world.ok("class list tank").contains("tier=cloud+shelf"), "{}", world.ok("class list tank"));
    let directory = world.mountpoint().join("films");
    fill(&directory, 1);
    world.ok("policy set mount/films class=films");
    fill(&directory, 60);
    fill(&world.mountpoint().join("other"), 60);
    assert_eq!(goes_to(&world, "films/3"), "cloud+shelf");
    let full = blocks(&directory);
    world.ok("tier archive mount/films --wait");
    until("devices do not give up what nobody uses", || blocks(&directory) < full / 4);
    assert_eq!(attribute(&directory.join("59"), "user.stere.where"), "cloud shelf");
    assert_right(&world.mountpoint().join("other"), 60);
    assert!(!attribute(&world.mountpoint().join("other/59"), "user.stere.where").contains("cloud"));
    forget_cache();
    assert_right(&directory, 60);
    // What is said nearer goes before the class; what is pinned stays.
    world.ok("policy set mount/films release=no");
    world.ok("tier stage mount/films --wait");
    std::thread::sleep(std::time::Duration::from_secs(8));
    assert!(attribute(&directory.join("59"), "user.stere.where").contains('a'), "it stays on devices");
    world.ok("class change tank films tier=shelf");
    assert_eq!(goes_to(&world, "films/3"), "shelf");
    world.ok("class change tank films tier=");
    end_clean(&world);
}

/// P-303: what a class or a rule says of a medium that was removed is said of no newcomer.
#[test]
fn the_number_of_a_medium_that_is_named_is_given_to_no_other_one() {
    if !can_mount("the_number_of_a_medium_that_is_named_is_given_to_no_other_one") {
        return;
    }
    let world = with_volumes(&["cloud", "shelf"]);
    world.ok("class create tank films tier=cloud");
    fs::create_dir(world.mountpoint().join("work")).unwrap();
    rules(&world, "mount/work", "*.raw: tier=shelf");
    for name in ["cloud", "shelf"] {
        world.ok(&format!("device remove tank {name} --yes"));
    }
    for name in ["first", "second"] {
        fs::create_dir(world.path(name)).unwrap();
        world.ok(&format!("device add tank dir:{name},name={name}"));
    }
    fs::create_dir(world.mountpoint().join("films")).unwrap();
    world.ok("policy set mount/films class=films");
    assert_eq!(goes_to(&world, "films"), "#0", "nobody took the place of cloud");
    world.ok("policy set mount/work tier=first");
    assert_eq!(attribute(&world.mountpoint().join("work"), "user.stere.tier"), "first");
    // Without those who named them their numbers are free.
    world.ok("class change tank films tier=second");
    world.ok("policy unset mount/work rules");
    fs::create_dir(world.path("third")).unwrap();
    world.ok("device add tank dir:third,name=third");
    assert_eq!(goes_to(&world, "films"), "second");
    end_clean(&world);
}

/// P-300: content that another file has, too, stays with what that one asks for, also when the one that wrote it is gone.
#[test]
fn content_that_is_shared_stays_as_long_as_one_asks() {
    if !can_mount("content_that_is_shared_stays_as_long_as_one_asks") {
        return;
    }
    let world = with_volumes(&["cloud"]);
    let (films, kept) = (world.mountpoint().join("films"), world.mountpoint().join("kept"));
    for directory in [&films, &kept] {
        fs::create_dir(directory).unwrap();
        world.ok(&format!("policy set {} tier=cloud", directory.display()));
    }
    world.ok("policy set mount/films release=2s");
    fill(&films, 60);
    // By copy_file_range, which shares.
    fs::copy(films.join("59"), kept.join("59")).unwrap();
    world.ok("tier archive mount/films mount/kept --wait");
    fs::remove_file(films.join("59")).unwrap();
    std::thread::sleep(std::time::Duration::from_secs(10));
    let held = attribute(&kept.join("59"), "user.stere.where");
    assert!(held.split(' ').any(|word| word == "a"), "nobody asked for it to go: {held}");
    assert_eq!(fs::read(kept.join("59")).unwrap(), support::tier::content(59));
    end_clean(&world);
}

/// P-303: rules of a directory and of the pool do, by name, size and age, without anybody setting `tier=` anywhere.
#[test]
fn rules_send_down_by_themselves() {
    if !can_mount("rules_send_down_by_themselves") {
        return;
    }
    let world = with_volumes(&["cloud", "shelf"]);
    let directory = world.mountpoint().join("work");
    fill(&directory, 60);
    fs::write(directory.join("scan.raw"), vec![3; 200_000]).unwrap();
    rules(&world, "mount/work", "*.raw: tier=shelf; size>40K: tier=cloud");
    let is_on = |name: &str, medium: &str| {
        attribute(&directory.join(name), "user.stere.where").split(' ').any(|word| word == medium)
    };
    until("a rule sends nothing down", || is_on("scan.raw", "shelf") && is_on("59", "cloud"));
    assert!(!is_on("3", "cloud") && !is_on("3", "shelf"), "a small file stays");
    let source = attribute(&directory.join("59"), "user.stere.source.tier");
    assert_eq!(source, "rule of /work: size>40K: tier=cloud");
    // New files, too.
    fs::write(directory.join("late.raw"), vec![4; 100_000]).unwrap();
    until("a new file is sent down by a rule", || is_on("late.raw", "shelf"));
    let found = world.ok("find tier=shelf mount");
    assert!(found.contains("scan.raw") && found.contains("late.raw") && !found.contains("/59"), "{found}");
    fs::write(world.path("house.rules"), "*.iso age>1s: tier=cloud\n").unwrap();
    fs::write(world.mountpoint().join("old.iso"), vec![5; 300_000]).unwrap();
    std::thread::sleep(std::time::Duration::from_secs(2));
    world.ok("policy load tank house.rules");
    until("a rule of the pool sends nothing down", || {
        attribute(&world.mountpoint().join("old.iso"), "user.stere.where").contains("cloud")
    });
    let why = world.command("policy set mount/work").arg("rules=*.x: tier=tape").output().unwrap();
    assert!(
        !why.status.success() && String::from_utf8_lossy(&why.stderr).contains("tape"),
        "unknown media are refused"
    );
    assert_right(&directory, 60);
    end_clean(&world);
}

/// P-305: parity on devices and copies on media hold at once: waiting, archived, released and back. What is not so is pending.
#[test]
fn parity_and_media_hold_at_once() {
    if !can_mount("parity_and_media_hold_at_once") {
        return;
    }
    let world = World::new();
    world.ok("create tank a.img,size=256M b.img,size=256M c.img,size=256M d.img,size=256M");
    world.ok("mount tank mount");
    for name in ["cloud", "shelf"] {
        fs::create_dir(world.path(name)).unwrap();
        world.ok(&format!("device add tank dir:{name},name={name}"));
    }
    world.ok("class create tank films parity=2+1 tier=cloud+shelf");
    let directory = world.mountpoint().join("films");
    fs::create_dir(&directory).unwrap();
    world.ok("policy set mount/films class=films");
    fill(&directory, 80);
    world.ok("tier archive mount/films --wait");
    let film = directory.join("79");
    let state = || attribute(&film, "user.stere.state");
    let layout = || world.json("where mount/films/79 --json");
    let schemes = |layout: &serde_json::Value| {
        let runs = layout.as_array().unwrap_or_else(|| panic!("{layout}")).clone();
        runs.iter().map(|run| run["scheme"].as_str().unwrap_or_default().to_owned()).collect::<Vec<_>>()
    };
    let is_right = |layout: &serde_json::Value| schemes(layout).iter().all(|scheme| scheme == "2+1");
    assert_eq!(state(), "compliant");
    assert!(is_right(&layout()), "{}", layout());
    let on_devices = blocks(&directory);
    world.ok("tier release mount/films");
    assert_eq!(attribute(&film, "user.stere.where"), "cloud shelf");
    assert_eq!((state().as_str(), attribute(&film, "user.stere.survives").as_str()), ("compliant", "1"));
    forget_cache();
    assert_right(&directory, 80);
    world.ok("tier stage mount/films --wait");
    assert_eq!(state(), "compliant");
    assert!(is_right(&layout()), "{}", layout());
    assert!(blocks(&directory).abs_diff(on_devices) * 10 < on_devices, "it takes as much as before");
    // Another scheme is asked for what is on media already: it is pending, and then it is so.
    world.ok("class change tank films copies=2");
    let is_scheme = |scheme: &str| state() == "compliant" && schemes(&layout()).iter().all(|one| one == scheme);
    until("it never gets two copies", || is_scheme("1+1"));
    world.ok("class change tank films parity=2+1");
    until("it never gets parity again", || is_scheme("2+1"));
    // A device is away: content is right, and nobody says that all is well.
    let device = layout()[0]["devices"][0].as_str().unwrap().to_owned();
    world.ok(&format!("device offline tank {device} --force --yes"));
    forget_cache();
    assert_right(&directory, 80);
    assert!(state().starts_with("pending") || state().starts_with("away"), "{}", state());
    let status = world.json("status tank --json");
    assert_eq!(status["state"], "degraded", "the media have it: {status}");
    assert!(status["survives"].as_u64().unwrap() >= 1, "{status}");
    world.ok(&format!("device online tank {device}"));
    until("it is never whole again", || state() == "compliant");
    end_clean(&world);
}
