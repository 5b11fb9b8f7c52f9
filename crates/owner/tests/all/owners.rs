//! An owner is replaced by another one over the same pool (P-239): clients wait, tell it what they have, and go on.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fuse_wire::abi::opcode;

use stere_naming::SetMode;

use crate::site::{Kernel, ROOT, Serving, Site, caller, until};

#[test]
fn open_files_go_on_and_what_was_not_synced_comes_back() {
    let site = Site::new();
    let first = site.serve();
    let kernel = site.client(1);
    let (node, handle) = kernel.create(ROOT, "file", libc::O_RDWR).expect("a file");
    kernel.write(node, handle, 0, b"synced    ").expect("written");
    kernel.fsync(node, handle).expect("durable");
    kernel.write(node, handle, 10, b"not synced").expect("written");
    kernel.write(node, handle, 0, b"SYNCED").expect("written");
    assert!(kernel.link.has_unsynced());
    site.crash(first);
    let pending = kernel.ask_write(node, handle, 20, b" and not answered", libc::O_WRONLY);
    assert!(!pending.is_there_within(Duration::from_millis(300)), "there is no owner");
    let second = site.serve();
    pending.wait().expect("written at the next owner");
    assert_eq!(kernel.read(node, handle, 0, 100), Ok(b"SYNCED    not synced and not answered".to_vec()));
    kernel.fsync(node, handle).expect("durable");
    site.crash(second);
    let third = site.serve();
    assert_eq!(kernel.size(node), Ok(37));
    kernel.release(node, handle).expect("closed");
    site.hand_over(third);
}

/// P-302: what a machine synced where fsync does not wait is there at the next owner if what it wrote later is.
#[test]
fn what_was_synced_relaxed_comes_before_what_was_written_later() {
    let site = Site::new();
    let first = site.serve();
    say_sync(&first, b"relaxed");
    let kernel = site.client(1);
    let (node, handle) = kernel.create(ROOT, "file", libc::O_RDWR).expect("a file");
    kernel.write(node, handle, 0, b"synced, ").expect("written");
    kernel.fsync(node, handle).expect("ordered");
    kernel.write(node, handle, 8, b"written later").expect("written");
    site.crash(first);
    let second = site.serve();
    assert_eq!(kernel.read(node, handle, 0, 100), Ok(b"synced, written later".to_vec()));
    kernel.release(node, handle).expect("closed");
    site.hand_over(second);
}

/// P-301: what a machine wrote is durable at the owner when it is answered, and the machine keeps nothing back.
#[test]
fn what_is_always_durable_is_so_on_other_machines() {
    let site = Site::new();
    let first = site.serve();
    say_sync(&first, b"always");
    let kernel = site.client(1);
    let (node, handle) = kernel.create(ROOT, "file", libc::O_RDWR).expect("a file");
    for at in 0..20 {
        kernel.write(node, handle, at * 4, b"four").expect("written");
    }
    kernel.mkdir(ROOT, "made").expect("made");
    // The machine and the owner are lost together: nobody tells the next one anything.
    drop(kernel);
    site.crash(first);
    let second = site.serve();
    let other = site.client(2);
    let (found, size) = other.lookup(ROOT, "file").expect("it is there");
    assert_eq!((found, size), (node, 80), "all that was answered");
    assert!(other.lookup(ROOT, "made").is_ok());
    site.hand_over(second);
}

fn say_sync(serving: &Serving, value: &[u8]) {
    let said = serving.door.filesystem().setxattr(&caller(), ROOT, b"user.stere.sync", value, SetMode::Any, false);
    said.expect("it can be said");
    serving.door.filesystem().syncfs(&caller()).expect("durable");
}

#[test]
fn names_that_were_answered_are_there_at_the_next_owner() {
    let site = Site::new();
    let first = site.serve();
    let kernel = site.client(1);
    for name in 0..20 {
        kernel.mkdir(ROOT, &format!("d{name}")).expect("made");
    }
    kernel.rename(ROOT, "d0", ROOT, "renamed").expect("renamed");
    kernel.call(opcode::RMDIR, ROOT, &[b"d1\0"]).expect("removed");
    site.crash(first);
    let second = site.serve();
    assert!(kernel.lookup(ROOT, "renamed").is_ok() && kernel.lookup(ROOT, "d19").is_ok());
    assert_eq!((kernel.lookup(ROOT, "d0"), kernel.lookup(ROOT, "d1")), (Err(libc::ENOENT), Err(libc::ENOENT)));
    site.hand_over(second);
}

#[test]
fn names_are_changed_while_owners_come_and_go() {
    let site = Site::new();
    let mut serving = site.serve();
    let kernel = site.client(1);
    for round in 0..4 {
        let asked: Vec<_> = (0..30)
            .map(|at| {
                let name = format!("r{round} n{at}\0");
                kernel.ask(opcode::MKDIR, ROOT, &[&[0xed, 1, 0, 0, 0, 0, 0, 0], name.as_bytes()])
            })
            .collect();
        std::thread::sleep(Duration::from_millis(round * 3));
        site.crash(serving);
        serving = site.serve();
        for (at, one) in asked.iter().enumerate() {
            let answer = one.wait();
            assert!(answer.is_ok(), "round {round}, name {at}: {answer:?}");
        }
        for at in 0..30 {
            assert!(kernel.lookup(ROOT, &format!("r{round} n{at}")).is_ok());
        }
    }
    site.hand_over(serving);
}

/// A program that writes a new file and renames it over the old one, and again.
fn replace_until(kernel: &Kernel, name: &str, is_over: &AtomicBool) -> usize {
    let new = format!("new-{name}");
    for round in 0.. {
        if is_over.load(Ordering::Relaxed) {
            return round;
        }
        assert_eq!(kernel.lookup(ROOT, &new), Err(libc::ENOENT), "round {round}: it was renamed");
        let (node, handle) = kernel.create(ROOT, &new, libc::O_WRONLY | libc::O_TRUNC).expect("a new file");
        kernel.write(node, handle, 0, &vec![round as u8; 5000]).expect("written");
        kernel.release(node, handle).expect("closed");
        assert_eq!(kernel.lookup(ROOT, &new), Ok((node, 5000)), "round {round}: it is there");
        let renamed = kernel.rename(ROOT, &new, ROOT, name);
        assert_eq!(renamed, Ok(()), "round {round}");
        assert_eq!(kernel.lookup(ROOT, name).map(|(node, _)| node), Ok(node), "round {round}: it has the name");
    }
    unreachable!("it ends when it is told to")
}

#[test]
fn files_are_replaced_while_owners_come_and_go() {
    let site = Site::new();
    let mut serving = Some(site.serve());
    let kernels = [site.client(1), site.client(2)];
    let is_over = AtomicBool::new(false);
    let rounds: usize = std::thread::scope(|scope| {
        let replace = |(kernel, name): (_, &'static str)| {
            let is_over = &is_over;
            scope.spawn(move || replace_until(kernel, name, is_over))
        };
        let threads: Vec<_> = kernels.iter().zip(["one", "other"]).map(replace).collect();
        for number in 0..16 {
            std::thread::sleep(Duration::from_millis(40 + number * 3));
            site.crash(serving.take().expect("an owner"));
            serving = Some(site.serve_with_grace(Duration::from_secs(20)));
        }
        is_over.store(true, Ordering::Relaxed);
        threads.into_iter().map(|thread| thread.join().expect("no panic")).sum()
    });
    // About one for each owner, and fewer where the machine runs other tests.
    assert!(rounds > 4, "{rounds} files were replaced");
    site.hand_over(serving.expect("an owner"));
}

#[test]
fn what_another_machine_wrote_over_is_not_written_again() {
    let site = Site::new();
    let first = site.serve();
    let (one, other) = (site.client(1), site.client(2));
    let (node, handle) = one.create(ROOT, "file", libc::O_RDWR).expect("a file");
    one.write(node, handle, 0, b"aaaaaaaaaa").expect("written");
    assert_eq!(other.lookup(ROOT, "file"), Ok((node, 10)));
    let (of_other, _) = other.open(node, libc::O_RDWR).expect("opened");
    other.write(node, of_other, 2, b"bbb").expect("written");
    other.fsync(node, of_other).expect("durable, with what the first wrote before");
    site.crash(first);
    let second = site.serve();
    assert_eq!(one.read(node, handle, 0, 100), Ok(b"aabbbaaaaa".to_vec()));
    site.hand_over(second);
}

/// P-280: whoever's bytes are answered last are there, though both machines have kept theirs.
#[test]
fn machines_that_write_over_each_other_do_not_bring_old_bytes_back() {
    let site = Site::new();
    let mut serving = site.serve();
    let grace = Duration::from_secs(20);
    let kernels = [site.client(1), site.client(2)];
    let (node, of_first) = kernels[0].create(ROOT, "file", libc::O_RDWR).expect("a file");
    let handles = [of_first, kernels[1].open(node, libc::O_RDWR).expect("opened").0];
    for round in 0..12_usize {
        for number in 0..40 {
            let who = (number + round) % 2;
            let bytes = format!("{round:04} {number:04}");
            kernels[who].write(node, handles[who], (number % 3 * 4) as u64, bytes.as_bytes()).expect("written");
        }
        let before = kernels[1].read(node, handles[1], 0, 100);
        site.crash(serving);
        serving = site.serve_with_grace(grace);
        assert_eq!(kernels[round % 2].read(node, handles[round % 2], 0, 100), before, "round {round}");
    }
    site.hand_over(serving);
}

#[test]
fn what_was_cut_off_does_not_come_back() {
    let site = Site::new();
    let first = site.serve();
    let kernel = site.client(1);
    let (node, handle) = kernel.create(ROOT, "file", libc::O_RDWR).expect("a file");
    kernel.write(node, handle, 0, b"to be cut off").expect("written");
    let cut = fuse_wire::abi::structs::SetattrIn {
        valid: fuse_wire::abi::fattr::SIZE,
        size: 5,
        ..fuse_wire::abi::structs::SetattrIn::default()
    };
    kernel.call(opcode::SETATTR, node, &[zerocopy::IntoBytes::as_bytes(&cut)]).expect("cut");
    assert!(!kernel.link.has_unsynced());
    site.crash(first);
    let second = site.serve();
    assert_eq!(kernel.read(node, handle, 0, 100), Ok(b"to be".to_vec()));
    site.hand_over(second);
}

#[test]
fn locks_are_held_on_at_the_next_owner() {
    let site = Site::new();
    let first = site.serve();
    let (one, other) = (site.client(1), site.client(2));
    let (node, _) = one.create(ROOT, "file", libc::O_RDWR).expect("a file");
    one.ask_lock(node, 7, libc::F_WRLCK, false).wait().expect("locked");
    assert_eq!(other.ask_lock(node, 7, libc::F_WRLCK, false).wait(), Err(libc::EAGAIN));
    let waits = other.ask_lock(node, 7, libc::F_WRLCK, true);
    assert!(!waits.is_there_within(Duration::from_millis(100)));
    site.crash(first);
    let second = site.serve_with_grace(Duration::from_secs(2));
    until("both are there", || second.owner.clients() == 2);
    assert!(!waits.is_there_within(Duration::from_millis(2500)), "it is locked still");
    one.ask_lock(node, 7, libc::F_UNLCK, false).wait().expect("unlocked");
    waits.wait().expect("locked");
    site.hand_over(second);
}

#[test]
fn writes_are_marked_durable_unasked() {
    let site = Site::new();
    let serving = site.serve();
    let kernel = site.client(1);
    let (node, handle) = kernel.create(ROOT, "file", libc::O_RDWR).expect("a file");
    kernel.write(node, handle, 0, b"bytes").expect("written");
    assert!(kernel.link.has_unsynced());
    until("the owner says that it is durable", || !kernel.link.has_unsynced());
    site.crash(serving);
    let next = site.serve();
    assert_eq!(kernel.read(node, handle, 0, 100), Ok(b"bytes".to_vec()));
    site.hand_over(next);
}

#[test]
fn more_than_is_kept_is_made_durable_on_the_way() {
    let site = Site::new();
    let serving = site.serve();
    let kernel = site.client(1);
    let (node, handle) = kernel.create(ROOT, "file", libc::O_RDWR).expect("a file");
    let part = vec![7; 1 << 20];
    let asked: Vec<_> = (0..100).map(|at| kernel.ask_write(node, handle, at << 20, &part, libc::O_WRONLY)).collect();
    asked.iter().for_each(|one| drop(one.wait().expect("written")));
    site.crash(serving);
    let next = site.serve();
    assert_eq!(kernel.size(node), Ok(100 << 20));
    for at in [0, 50, 99] {
        assert!(kernel.read(node, handle, at << 20, 1 << 20).is_ok_and(|read| read == part), "MiB {at}");
    }
    site.hand_over(next);
}

#[test]
fn an_owner_that_leaves_makes_durable_what_machines_keep() {
    let site = Site::new();
    let serving = site.serve();
    let kernel = site.client(1);
    let (node, handle) = kernel.create(ROOT, "file", libc::O_RDWR).expect("a file");
    kernel.write(node, handle, 0, b"not synced").expect("written");
    assert!(kernel.link.has_unsynced());
    site.hand_over(serving);
    assert!(!kernel.link.has_unsynced());
    let begun = Instant::now();
    assert_eq!(kernel.link.finish(Duration::from_secs(30)), stere_client::Finished::Durable);
    assert!(begun.elapsed() < Duration::from_secs(5), "it waits for no other owner");
    let next = site.serve();
    assert_eq!(site.client(2).lookup(ROOT, "file"), Ok((node, 10)));
    site.hand_over(next);
}
