//! Media of a pool that several machines mount, with the real binary: each is reached through the machine that has it, whoever owns the pool
//! (P-298). Needs root, /dev/fuse and PostgreSQL. Read next: `tier.rs`, `clients.rs`, `support/site.rs`.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::s3;
use crate::site::{Site, owner_process, owns, signal};
use crate::support::World;
use crate::support::tier::{assert_right, fill, forget_cache, until};

const FILES: usize = 40;

/// The first owns the pool, the second stands by, and the third never owns it.
fn mounted(test: &str) -> Option<Site> {
    let site = Site::new(test, 3, 3)?;
    let [first, second, third] = &site.machines[..] else { panic!("three machines") };
    first.ok("mount lab mount --standby");
    until("an owner", || owns(first));
    second.ok("mount lab mount --standby");
    third.ok("mount lab mount -o nostandby");
    Some(site)
}

/// Files of a directory go down to a medium, and are there only.
fn go_down(world: &World, directory: &str, medium: &str) {
    fill(&world.mountpoint().join(directory), FILES);
    world.ok(&format!("policy set mount/{directory} tier={medium}"));
    world.ok(&format!("tier archive mount/{directory} --wait"));
    world.ok(&format!("tier release mount/{directory}"));
}

fn state_of(world: &World, medium: &str) -> String {
    let media = world.json("tier list lab --json");
    let found = media["volumes"].as_array().unwrap().iter().find(|volume| volume["name"] == medium);
    found.unwrap()["state"].as_str().unwrap().to_owned()
}

/// The owner is killed; the other one has the pool when this returns.
fn kill_owner(owner: &World, next: &World) {
    // What machines wrote in the last five seconds and did not sync they would write again.
    std::thread::sleep(Duration::from_secs(6));
    signal(owner_process(owner).unwrap(), libc::SIGKILL);
    until("another owner", || owns(next));
}

#[test]
fn a_medium_is_reached_through_its_machine() {
    let Some(site) = mounted("a_medium_is_reached_through_its_machine") else { return };
    let [first, second, third] = &site.machines[..] else { panic!("three machines") };
    fs::create_dir(third.path("usb")).unwrap();
    third.ok("device add lab dir:usb,class=media,name=usb");
    assert!(third.path("usb").read_dir().unwrap().count() > 0, "the label is there");
    let library = "model=instant\ndrives=2\ncartridges=6\ncapacity=12000000\n";
    fs::create_dir(third.path("library")).unwrap();
    fs::write(third.path("library/library"), library).unwrap();
    third.ok("device add lab robot:simulated:library,set=lab,name=tapes");
    // What the owner's machine has is served by it when another one is the owner.
    fs::create_dir(first.path("shelf")).unwrap();
    first.ok("device add lab dir:shelf,class=media,name=shelf");
    let media = third.json("tier list lab --json");
    let places = media["volumes"].as_array().unwrap().iter().map(|volume| volume["place"].as_str().unwrap());
    assert_eq!(places.filter(|place| place.contains(",host=")).count(), 3, "{media}");
    for (world, medium) in [(second, "usb"), (third, "tapes"), (second, "shelf")] {
        go_down(world, medium, medium);
    }
    until("cartridges", || third.ok("media show lab tapes").contains("ours"));
    forget_cache();
    assert_right(&first.mountpoint().join("usb"), FILES / 2);
    kill_owner(first, second);
    forget_cache();
    for world in [third, second] {
        for medium in ["usb", "tapes", "shelf"] {
            assert_right(&world.mountpoint().join(medium), FILES);
        }
    }
    for medium in ["usb", "tapes", "shelf"] {
        second.ok(&format!("media verify lab {medium}"));
        until("a medium that is there", || state_of(second, medium) == "online");
    }
    // A machine that is gone: told, waited for, and back.
    for medium in ["usb", "shelf"] {
        // What was fetched last is in memory until it is on devices.
        second.ok(&format!("tier stage mount/{medium} --wait"));
        second.ok(&format!("tier release mount/{medium}"));
    }
    third.ok("umount mount");
    until("a medium that is away", || state_of(second, "usb") == "away");
    let said = second.run("status lab").out;
    assert!(said.contains("has it, and has not mounted the pool"), "{said}");
    forget_cache();
    assert_right(&second.mountpoint().join("shelf"), FILES);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| assert_right(&second.mountpoint().join("usb"), FILES));
        std::thread::sleep(Duration::from_secs(2));
        assert!(!waiting.is_finished(), "it is read without its medium");
        third.ok("mount lab mount -o nostandby");
        waiting.join().unwrap();
    });
    end(&site);
}

/// A machine that stands still holds up who reads its media, and nobody else; what it was asked is asked again.
#[test]
fn a_machine_that_stands_still_is_a_medium_that_is_away() {
    let Some(site) = mounted("a_machine_that_stands_still_is_a_medium_that_is_away") else { return };
    let [first, second, third] = &site.machines[..] else { panic!("three machines") };
    fs::create_dir(third.path("usb")).unwrap();
    third.ok("device add lab dir:usb,class=media,name=usb");
    go_down(second, "usb", "usb");
    let process = third.daemon();
    signal(process, libc::SIGSTOP);
    let begun = Instant::now();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| assert_right(&first.mountpoint().join("usb"), FILES));
        until("a medium that is away", || state_of(second, "usb") == "away");
        println!("away after {:?}", begun.elapsed());
        assert!(begun.elapsed() < Duration::from_secs(20));
        fs::write(second.mountpoint().join("other"), b"goes on").unwrap();
        signal(process, libc::SIGCONT);
        waiting.join().unwrap();
    });
    // Killed while files go down to it.
    fill(&second.mountpoint().join("usb/more"), FILES);
    second.ok("tier archive mount/usb/more");
    signal(process, libc::SIGKILL);
    crate::site::take_away(third);
    third.ok("mount lab mount -o nostandby");
    second.ok("tier archive mount/usb --wait");
    second.ok("tier release mount/usb");
    forget_cache();
    assert_right(&first.mountpoint().join("usb"), FILES);
    assert_right(&first.mountpoint().join("usb/more"), FILES);
    second.ok("media verify lab usb");
    // The disk is carried to another machine, and said to be there.
    third.ok("umount mount");
    fs::rename(third.path("usb"), second.path("carried")).unwrap();
    second.ok("device online lab usb dir:carried");
    second.ok("tier release mount/usb");
    forget_cache();
    assert_right(&first.mountpoint().join("usb"), FILES);
    third.ok("mount lab mount -o nostandby");
    until("a medium that is there", || state_of(third, "usb") == "online");
    end(&site);
}

/// Files that a place names are of one machine: whoever owns the pool reaches the bucket through a machine on which somebody agreed.
#[test]
fn a_bucket_is_reached_from_all() {
    let test = "a_bucket_is_reached_from_all";
    let Some(site) = mounted(test) else { return };
    let [first, second, third] = &site.machines[..] else { panic!("three machines") };
    let Some(server) = s3::Server::start(test, s3::Kind::Rclone, &first.path("server")) else { return };
    first.ok(&format!("device add lab {},name=bucket", server.place()));
    go_down(third, "bucket", "bucket");
    kill_owner(first, second);
    forget_cache();
    assert_right(&third.mountpoint().join("bucket"), FILES);
    until("a bucket that is there", || state_of(second, "bucket") == "online");
    // Without that machine it wants somebody to agree.
    first.ok("umount mount");
    second.ok("tier release mount/bucket");
    until("a medium that is away", || state_of(second, "bucket") == "away");
    let said = second.run("status lab").out;
    assert!(said.contains("device online lab bucket"), "{said}");
    second.ok("device online lab bucket --yes");
    assert_right(&third.mountpoint().join("bucket"), FILES);
    first.ok("mount lab mount --standby");
    end(&site);
}

fn end(site: &Site) {
    site.close();
    assert!(Path::new(&site.machines[0].path("state")).exists());
}
