//! Several machines at one file (P-238): close-to-open, appends, removed files, locks, and who is gone.

use std::time::Duration;

use fuse_wire::abi::fopen;
use fuse_wire::abi::opcode;

use crate::site::{ROOT, Site, until};

#[test]
fn what_was_closed_on_one_machine_is_what_is_opened_on_another() {
    let site = Site::new();
    let serving = site.serve();
    let (one, other) = (site.client(1), site.client(2));
    let (node, handle) = one.create(ROOT, "file", libc::O_RDWR).expect("a file");
    one.write(node, handle, 0, b"first").expect("written");
    one.release(node, handle).expect("closed");
    assert_eq!(other.lookup(ROOT, "file"), Ok((node, 5)));
    let (read_by, _) = other.open(node, libc::O_RDONLY).expect("opened");
    assert_eq!(other.read(node, read_by, 0, 100), Ok(b"first".to_vec()));
    other.release(node, read_by).expect("closed");
    let (_, flags) = other.open(node, libc::O_RDONLY).expect("opened");
    assert_ne!(flags & fopen::KEEP_CACHE, 0, "nobody has changed it");
    let (handle, _) = one.open(node, libc::O_WRONLY).expect("opened");
    one.write(node, handle, 0, b"second").expect("written");
    one.release(node, handle).expect("closed");
    let (read_by, flags) = other.open(node, libc::O_RDONLY).expect("opened");
    assert_eq!(flags & fopen::KEEP_CACHE, 0, "pages that are kept would be wrong");
    assert_eq!(other.read(node, read_by, 0, 100), Ok(b"second".to_vec()));
    site.hand_over(serving);
}

/// The kernel forgets its pages when the answer to an open has arrived: an open that is answered sooner may find the older ones.
#[test]
fn an_open_keeps_no_pages_while_another_is_to_make_the_kernel_forget_them() {
    let site = Site::new();
    let serving = site.serve();
    let (one, other) = (site.client(1), site.client(2));
    let (node, handle) = one.create(ROOT, "file", libc::O_RDWR).expect("a file");
    one.write(node, handle, 0, b"first").expect("written");
    other.lookup(ROOT, "file").expect("found");
    let is_kept = || {
        let (handle, flags) = other.open(node, libc::O_RDONLY).expect("opened");
        (handle, flags & fopen::KEEP_CACHE != 0)
    };
    let (first, second) = (is_kept(), is_kept());
    assert_eq!((first.1, second.1), (false, false));
    other.read(node, second.0, 0, 100).expect("read");
    let third = is_kept();
    assert!(third.1, "the kernel has read what it opened: it has forgotten what it had before");
    one.write(node, handle, 0, b"second").expect("written");
    let changed = is_kept();
    assert!(!changed.1);
    other.release(node, changed.0).expect("closed");
    assert!(is_kept().1, "it was closed, so it had been opened");
    site.hand_over(serving);
}

#[test]
fn appends_of_two_machines_go_one_behind_the_other() {
    let site = Site::new();
    let serving = site.serve();
    let kernels = [site.client(1), site.client(2)];
    let flags = libc::O_WRONLY | libc::O_APPEND;
    let (node, handle) = kernels[0].create(ROOT, "log", flags).expect("a file");
    let (of_other, shown) = kernels[1].open(node, flags).expect("opened");
    assert_ne!(shown & fopen::DIRECT_IO, 0);
    std::thread::scope(|scope| {
        for (kernel, handle, line) in [(&kernels[0], handle, b"one\n"), (&kernels[1], of_other, b"two\n")] {
            // Each thinks that the file is empty.
            scope.spawn(move || (0..200).for_each(|_| kernel.append(node, handle, 0, line).expect("appended")));
        }
    });
    let reader = site.client(3);
    reader.lookup(ROOT, "log").expect("found");
    for (kernel, is_past_pages) in [(&kernels[0], true), (&kernels[1], true), (&reader, false)] {
        let (handle, flags) = kernel.open(node, libc::O_RDONLY).expect("opened");
        let why = "a kernel that appends does not know where the file ends";
        assert_eq!(flags & fopen::DIRECT_IO != 0, is_past_pages, "{why}");
        kernel.release(node, handle).expect("closed");
    }
    let all = kernels[0].read(node, handle, 0, 10_000).expect("read");
    let count = |line: &[u8]| all.chunks(4).filter(|found| *found == line).count();
    assert_eq!((all.len(), count(b"one\n"), count(b"two\n")), (1600, 200, 200));
    site.crash(serving);
    let next = site.serve_with_grace(Duration::from_secs(2));
    assert_eq!(kernels[1].size(node), Ok(1600), "both wrote theirs again, where it was");
    let again = kernels[0].read(node, handle, 0, 10_000).expect("read");
    assert!(again == all, "each wrote its own again, where it was");
    site.hand_over(next);
}

#[test]
fn a_removed_file_lives_until_the_last_machine_closes_it() {
    let site = Site::new();
    let serving = site.serve();
    let (one, other) = (site.client(1), site.client(2));
    let (node, handle) = one.create(ROOT, "file", libc::O_RDWR).expect("a file");
    one.write(node, handle, 0, b"bytes").expect("written");
    other.lookup(ROOT, "file").expect("found");
    let (of_other, _) = other.open(node, libc::O_RDONLY).expect("opened");
    one.unlink(ROOT, "file").expect("removed");
    one.release(node, handle).expect("closed");
    one.ask(opcode::FORGET, node, &[&1_u64.to_ne_bytes()]);
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(other.read(node, of_other, 0, 100), Ok(b"bytes".to_vec()));
    other.release(node, of_other).expect("closed");
    assert_eq!(other.size(node), Ok(5), "its kernel knows it still");
    other.ask(opcode::FORGET, node, &[&1_u64.to_ne_bytes()]);
    until("it is gone", || other.size(node).is_err());
    site.hand_over(serving);
}

#[test]
fn a_removed_file_that_is_open_lives_over_owners() {
    let site = Site::new();
    let first = site.serve();
    let kernel = site.client(1);
    let (node, handle) = kernel.create(ROOT, "file", libc::O_RDWR).expect("a file");
    kernel.write(node, handle, 0, b"bytes").expect("written");
    kernel.unlink(ROOT, "file").expect("removed");
    site.crash(first);
    let second = site.serve_with_grace(Duration::from_millis(1500));
    assert_eq!(kernel.read(node, handle, 0, 100), Ok(b"bytes".to_vec()));
    kernel.fsync(node, handle).expect("durable");
    site.hand_over(second);
    let third = site.serve_with_grace(Duration::from_millis(1500));
    assert_eq!(kernel.read(node, handle, 0, 100), Ok(b"bytes".to_vec()));
    kernel.release(node, handle).expect("closed");
    kernel.ask(opcode::FORGET, node, &[&1_u64.to_ne_bytes()]);
    until("it is gone", || kernel.size(node).is_err());
    site.hand_over(third);
}

#[test]
fn what_a_machine_had_goes_some_time_after_it() {
    let site = Site::new();
    let serving = site.serve();
    let (one, other) = (site.client(1), site.client(2));
    let (node, _) = one.create(ROOT, "file", libc::O_RDWR).expect("a file");
    one.ask_lock(node, 1, libc::F_WRLCK, false).wait().expect("locked");
    let waits = other.ask_lock(node, 1, libc::F_WRLCK, true);
    one.unlink(ROOT, "file").expect("removed");
    // It falls silent: nobody tells it who the owner is any more, and it is gone.
    let owner = site.announcement();
    drop(one);
    site.announce(owner);
    waits.wait().expect("the lock of who is gone is free");
    until("its session is over", || serving.owner.clients() == 1);
    site.hand_over(serving);
}

#[test]
fn a_signal_ends_waiting_for_a_lock() {
    let site = Site::new();
    let serving = site.serve();
    let (one, other) = (site.client(1), site.client(2));
    let (node, _) = one.create(ROOT, "file", libc::O_RDWR).expect("a file");
    one.ask_lock(node, 1, libc::F_WRLCK, false).wait().expect("locked");
    let waits = other.ask_lock(node, 1, libc::F_WRLCK, true);
    assert!(!waits.is_there_within(Duration::from_millis(100)));
    other.link.interrupted(1);
    assert_eq!(waits.wait(), Err(libc::EINTR));
    site.hand_over(serving);
}
