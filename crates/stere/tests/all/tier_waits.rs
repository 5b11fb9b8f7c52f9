//! Who waits for a medium, for how long, and what ends it; with the real binary and a real mount. Needs root and /dev/fuse, and says
//! loudly when it skips.

use crate::s3;
use crate::support;

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use support::tier::{assert_right, attribute, beside_server, content, end_clean, fill, forget_cache, tiered, until};
use support::{World, can_mount};

#[test]
fn a_volume_that_is_away_is_waited_for_or_not() {
    if !can_mount("a_volume_that_is_away_is_waited_for_or_not") {
        return;
    }
    let world = tiered("");
    let directory = world.mountpoint().join("project");
    fill(&directory, 60);
    world.ok("tier archive mount/project --wait");
    world.ok("tier release mount/project");
    world.ok("umount mount");
    fs::rename(world.path("volume"), world.path("away")).unwrap();
    world.ok("mount tank mount -o recall_timeout=1");
    let error = fs::read(directory.join("50")).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EIO));
    assert_eq!(attribute(&directory.join("50"), "user.stere.residency"), "offline");
    // Everything local goes on.
    fill(&world.mountpoint().join("other"), 60);
    assert_right(&world.mountpoint().join("other"), 60);
    let late = world.run("tier archive mount/other --wait");
    assert_eq!(late.code, 3, "{}{}", late.out, late.err);
    assert!(late.out.contains("goes on by itself"), "{}", late.out);
    let shown = world.run("media show tank cold");
    assert!(shown.code == 3 && shown.out.contains("bring cold to"), "{}", shown.out);
    fs::rename(world.path("away"), world.path("volume")).unwrap();
    assert_right(&directory, 60);
    world.ok("tier archive mount/other --wait");
    world.ok("tier release mount/other");
    forget_cache();
    assert_right(&world.mountpoint().join("other"), 60);
    world.ok("umount mount");
    // Readers that must not wait.
    world.ok("mount tank mount -o recall=deny");
    let released = directory.join("59");
    world.ok("tier release mount/project");
    forget_cache();
    assert_eq!(fs::read(&released).unwrap_err().raw_os_error(), Some(libc::EPERM));
    world.ok("umount mount");
    world.ok("mount tank mount -o recall=nowait");
    assert_eq!(fs::read(&released).unwrap_err().raw_os_error(), Some(libc::EAGAIN));
    let start = Instant::now();
    for file in (0..10).map(|number| directory.join(number.to_string())).chain([released]) {
        while let Err(error) = fs::read(&file) {
            assert_eq!(error.raw_os_error(), Some(libc::EAGAIN));
            assert!(start.elapsed() < Duration::from_secs(300), "the bytes come meanwhile");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
    assert_right(&directory, 10);
    world.ok("umount mount");
}

/// P-153: two disks are in each other's places while the pool is mounted. Nothing of one is taken for the other's, nor put there.
#[test]
fn media_that_are_exchanged_are_noticed() {
    if !can_mount("media_that_are_exchanged_are_noticed") {
        return;
    }
    let world = tiered("-o recall_timeout=1");
    fs::create_dir(world.path("second")).unwrap();
    world.ok("device add tank dir:second,name=second");
    let (first, later) = (world.mountpoint().join("project"), world.mountpoint().join("later"));
    fill(&first, 60);
    world.ok("tier archive mount/project --wait");
    world.ok("tier release mount/project");
    forget_cache();
    let exchange = || {
        for (from, to) in [("volume", "between"), ("second", "volume"), ("between", "second")] {
            fs::rename(world.path(from), world.path(to)).unwrap();
        }
    };
    exchange();
    assert_eq!(fs::read(first.join("50")).unwrap_err().raw_os_error(), Some(libc::EIO));
    fill(&later, 60);
    let waits = world.run("tier archive mount/later --wait");
    assert!(waits.code == 3 && format!("{}{}", waits.out, waits.err).contains("second"), "{}{}", waits.out, waits.err);
    assert!(!world.path("volume").join("segments").exists(), "nothing is put on the other disk");
    exchange();
    assert_right(&first, 60);
    world.ok("tier archive mount/later --wait");
    world.ok("tier release mount/later");
    forget_cache();
    assert_right(&later, 60);
    end_clean(&world);
}

/// A pool with a released directory on a volume that is away, and another on one that is there.
fn half_away() -> World {
    let world = tiered("");
    fs::create_dir(world.path("other")).unwrap();
    world.ok("device add tank dir:other,name=warm");
    for (directory, volume) in [("project", "cold"), ("near", "warm")] {
        fill(&world.mountpoint().join(directory), 60);
        world.ok(&format!("tier archive mount/{directory} --to {volume} --wait"));
        world.ok(&format!("tier release mount/{directory}"));
    }
    world.ok("umount mount");
    fs::rename(world.path("volume"), world.path("away")).unwrap();
    world.ok("mount tank mount");
    world
}

/// Somebody who reads one of the files in `project`, with and without the kernel's cache.
fn reader(world: &World, number: usize) -> Child {
    let flag = if number.is_multiple_of(2) { "iflag=direct" } else { "iflag=fullblock" };
    let mut command = Command::new("dd");
    command.arg(format!("if=mount/project/{}", number + 20)).args(["of=/dev/null", "bs=4k", flag]);
    command.current_dir(&world.folder).stderr(Stdio::null()).spawn().unwrap()
}

fn end_all(readers: &mut [Child]) {
    for reader in &mut *readers {
        // SAFETY: a plain system call on a process that this test started.
        assert_eq!(unsafe { libc::kill(reader.id() as i32, libc::SIGTERM) }, 0);
    }
    assert!(readers.iter_mut().all(|reader| !reader.wait().unwrap().success()));
}

/// P-95: who waits for a volume that is away and is killed ends, and so does the wait: others find the threads for it free.
#[test]
fn a_wait_ends_with_who_waits() {
    if !can_mount("a_wait_ends_with_who_waits") {
        return;
    }
    let world = half_away();
    // More than there are threads for waiting, with and without the kernel's cache.
    let mut readers: Vec<_> = (0..40).map(|number| reader(&world, number)).collect();
    std::thread::sleep(Duration::from_secs(1));
    assert!(readers.iter_mut().all(|reader| reader.try_wait().unwrap().is_none()), "they wait");
    let start = Instant::now();
    end_all(&mut readers);
    assert_right(&world.mountpoint().join("near"), 60);
    assert!(start.elapsed() < Duration::from_secs(300), "{:?}", start.elapsed());
    world.ok("umount mount");
}

/// P-95: the same inside a request that a server does not answer, whoever's thread asks.
#[test]
fn a_wait_for_an_answer_ends_with_who_waits() {
    const NAME: &str = "a_wait_for_an_answer_ends_with_who_waits";
    let start = |folder: &Path| s3::Server::start(NAME, s3::Kind::Seaweed, folder);
    let Some((world, server)) = beside_server(NAME, "", start) else { return };
    world.ok(&format!("device add tank {},name=bucket", server.place()));
    let directory = world.mountpoint().join("project");
    fill(&directory, 60);
    world.ok("tier archive mount/project --wait");
    world.ok("tier release mount/project");
    world.ok("umount mount");
    world.ok("mount tank mount");
    server.hold(true);
    // More than there are threads for fetching.
    let mut readers: Vec<_> = (0..12).map(|number| reader(&world, number)).collect();
    let under_way = || world.json("tier queue tank --json")["reads_under_way"].as_u64().unwrap();
    until("nobody waits", || under_way() >= 12);
    std::thread::sleep(Duration::from_millis(500));
    let start = Instant::now();
    end_all(&mut readers);
    until("a wait goes on without who waited", || under_way() == 0);
    assert!(start.elapsed() < Duration::from_secs(30), "{:?}, and an answer may take a minute", start.elapsed());
    server.hold(false);
    assert_right(&directory, 60);
    end_clean(&world);
}

extern "C" fn nothing(_signal: i32) {}

/// A process that handles its signals gets its bytes all the same.
#[test]
fn a_signal_that_does_not_kill_ends_no_wait() {
    use std::io::Read;
    use std::os::unix::fs::OpenOptionsExt;
    use std::os::unix::thread::JoinHandleExt;
    if !can_mount("a_signal_that_does_not_kill_ends_no_wait") {
        return;
    }
    let world = half_away();
    // SAFETY: a handler that does nothing.
    unsafe { libc::signal(libc::SIGUSR1, nothing as *const () as libc::sighandler_t) };
    let path = world.mountpoint().join("project/50");
    let reader = std::thread::spawn(move || {
        let mut file = fs::File::options().read(true).custom_flags(libc::O_DIRECT).open(path).unwrap();
        let mut bytes = vec![0; 4096];
        file.read_exact(&mut bytes).map(|()| bytes)
    });
    for _ in 0..4 {
        std::thread::sleep(Duration::from_millis(300));
        // SAFETY: the thread was not joined yet.
        assert_eq!(unsafe { libc::pthread_kill(reader.as_pthread_t(), libc::SIGUSR1) }, 0);
    }
    assert!(!reader.is_finished(), "it waits");
    fs::rename(world.path("away"), world.path("volume")).unwrap();
    assert_eq!(reader.join().unwrap().unwrap(), content(50)[..4096]);
    world.ok("umount mount");
}

/// `tier cancel` stops both: what was to come back stays where it is, and what was to go down goes no further.
#[test]
fn what_is_under_way_is_stopped() {
    if !can_mount("what_is_under_way_is_stopped") {
        return;
    }
    let world = half_away();
    let queue = || world.json("tier queue tank --json");
    world.ok("tier stage mount/project");
    assert!(queue()["staging_segments"].as_u64().unwrap() > 0, "{}", queue());
    let other = world.mountpoint().join("other");
    fill(&other, 60);
    assert_eq!(world.run("tier archive mount/other --to cold --wait").code, 3);
    let waiting = |volume: usize| queue()["volumes"][volume]["waiting_bytes"].as_u64().unwrap();
    assert!(waiting(0) > 0);
    let said = world.ok("tier cancel mount/project mount/other");
    assert!(said.contains("to come back") && said.contains("to be copied out"), "{said}");
    assert_eq!(queue()["staging_segments"], 0);
    assert_eq!(waiting(0), 0);
    assert_eq!(attribute(&other.join("59"), "user.stere.residency"), "online");
    fs::rename(world.path("away"), world.path("volume")).unwrap();
    std::thread::sleep(Duration::from_secs(4));
    assert_ne!(attribute(&world.mountpoint().join("project/59"), "user.stere.residency"), "online");
    assert_right(&other, 60);
    assert_right(&world.mountpoint().join("project"), 60);
    assert!(world.ok("tier cancel mount/near").contains("no further"));
    end_clean(&world);
}
