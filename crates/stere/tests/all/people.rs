//! Drives that people feed, with the real binary and a real mount: simulated ones, and one of the library that `tgt` emulates, whose changer
//! is moved by the test and not by stere. Needs root and /dev/fuse, and says loudly when it skips.

use crate::support;
use crate::tgt;

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use stere_robot::{Changer, IscsiTransport};
use support::tier::{forget_cache, mount_pool, until};
use support::{World, can_mount};

const FILES: u8 = 16;

fn content(number: u8) -> Vec<u8> {
    let mut state = u64::from(number) | 1;
    let next = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 56) as u8
    };
    std::iter::repeat_with(next).take(1_000_000).collect()
}

/// Waits until one of the words is said of what is waited for; all that was said.
fn asked(world: &World, words: &str) -> String {
    let start = Instant::now();
    loop {
        let said = world.run("tier queue tank").out + &world.run("media list tank").out;
        if said.contains(words) {
            return said;
        }
        assert!(start.elapsed() < Duration::from_secs(300), "nobody asked: '{words}' is not in {said}");
        thread::sleep(Duration::from_millis(100));
    }
}

/// Waits until the drive has let go of a cartridge, as it does when nobody has used it for some seconds; nobody pulls it out before.
fn let_go(world: &World, cartridge: &str) {
    until("the drive does not let go", || {
        let shown = world.run("media show tank tapes").out;
        let mut line = shown.lines().filter(|line| line.contains(cartridge));
        line.next().is_some_and(|line| !line.contains("drive"))
    });
}

/// Two cartridges are filled, and read again, by somebody who puts in what is asked for, and a wrong one once.
fn feed(world: &World, place: &str, put_in: &dyn Fn(Option<usize>)) {
    // Should nobody put in what is needed, the test ends all the same.
    mount_pool(world, "-o recall_timeout=90s");
    let add = format!("device add tank {place},name=tapes,metadata=no");
    let said = world.run(&add);
    assert!(said.code != 0 && said.err.contains("insert a blank cartridge into drive 1"), "{}", said.err);
    put_in(Some(0));
    world.ok(&add);
    let path = |number: u8| world.mountpoint().join(number.to_string());
    (0..FILES).for_each(|number| fs::write(path(number), content(number)).unwrap());
    world.ok("tier archive mount");
    asked(world, "insert a blank cartridge into drive 1");
    let_go(world, "tank-0001");
    put_in(None);
    put_in(Some(1));
    until("the second cartridge is not filled", || {
        world.run("media show tank tapes").out.contains("cartridge tank-0002  ours")
            && world.json("tier queue tank --json")["volumes"][0]["waiting_segments"] == 0
    });
    world.ok("tier release mount");
    forget_cache();
    thread::scope(|scope| {
        let reader = scope.spawn(|| assert!(fs::read(path(0)).unwrap() == content(0), "the first file"));
        let said = asked(world, "insert tank-0001 into drive 1");
        assert!(said.contains("tank-0001"), "{said}");
        // Then somebody puts in another one.
        let_go(world, "tank-0002");
        put_in(None);
        put_in(Some(2));
        asked(world, "(there is tank-0003 in it)");
        assert!(!reader.is_finished(), "its bytes are on another cartridge");
        put_in(None);
        put_in(Some(0));
        reader.join().unwrap();
    });
    assert!(world.run("media show tank tapes").out.contains("cartridge tank-0001  full  drive"));
    world.ok("umount mount");
}

/// P-133
#[test]
fn people_feed_a_simulated_drive() {
    if !can_mount("people_feed_a_simulated_drive") {
        return;
    }
    let world = World::new();
    fs::create_dir(world.path("library")).unwrap();
    let library = "model=instant\ndrives=1\ncartridges=3\ncapacity=12000000\nchanger=no\n";
    fs::write(world.path("library/library"), library).unwrap();
    let put_in = |cartridge: Option<usize>| {
        let name = cartridge.map(|number| format!("SIM00{}", number + 1)).unwrap_or_default();
        fs::write(world.path("library/drive-0"), name).unwrap();
    };
    feed(&world, "robot:simulated:library,set=tank", &put_in);
}

/// P-133
#[test]
fn people_feed_a_scsi_drive() {
    if !can_mount("people_feed_a_scsi_drive") {
        return;
    }
    let world = World::new();
    let folder = world.path("cartridges");
    fs::create_dir(&folder).unwrap();
    let Some(library) = tgt::start("people_feed_a_scsi_drive", &folder, 12) else { return };
    let changer = || {
        let Ok(changer) = Changer::open(Box::new(IscsiTransport::new(&library.device(3)).unwrap())) else {
            panic!("the changer answers")
        };
        changer
    };
    let put_in = |cartridge: Option<usize>| match cartridge {
        Some(number) => changer().move_medium(1024 + number as u16, 256).unwrap(),
        None => {
            let mut changer = changer();
            let free = |slot: &u16| {
                let elements = changer.status().unwrap();
                elements.iter().any(|element| element.address == *slot && !element.is_full)
            };
            let slot = (1024..1030).find(free).unwrap();
            changer.move_medium(256, slot).unwrap();
            // As long as nobody asks the drive, it cannot say that it was empty.
            thread::sleep(Duration::from_secs(4));
        }
    };
    feed(&world, &format!("robot:people,drive={},set=tank", library.device(1)), &put_in);
}
