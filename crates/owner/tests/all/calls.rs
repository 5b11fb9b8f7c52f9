//! What a program does through one client (P-239), and what happens when the connection is cut meanwhile.

use std::time::Duration;

use fuse_wire::abi::opcode;

use crate::site::{ROOT, Site, until};

#[test]
fn files_are_made_written_read_and_renamed() {
    let site = Site::new();
    let serving = site.serve();
    let kernel = site.client(1);
    let folder = kernel.mkdir(ROOT, "folder").expect("a directory");
    let (node, handle) = kernel.create(folder, "file", libc::O_RDWR).expect("a file");
    kernel.write(node, handle, 0, b"some bytes").expect("written");
    assert_eq!(kernel.read(node, handle, 5, 100), Ok(b"bytes".to_vec()));
    kernel.rename(folder, "file", ROOT, "moved").expect("renamed");
    assert_eq!(kernel.lookup(folder, "file"), Err(libc::ENOENT));
    assert_eq!(kernel.lookup(ROOT, "moved"), Ok((node, 10)));
    assert_eq!(kernel.mkdir(ROOT, "folder"), Err(libc::EEXIST));
    kernel.release(node, handle).expect("closed");
    kernel.fsync(node, 0).expect("durable");
    assert!(!kernel.link.has_unsynced());
    assert_eq!(kernel.link.finish(Duration::from_secs(5)), stere_client::Finished::Durable);
    until("the session is over", || serving.owner.clients() == 0);
    site.hand_over(serving);
}

#[test]
fn a_large_file_goes_there_and_back() {
    let site = Site::new();
    let serving = site.serve();
    let kernel = site.client(1);
    let (node, handle) = kernel.create(ROOT, "large", libc::O_RDWR).expect("a file");
    let part = |seed: u8| (0..1 << 20).map(|at: u32| (at as u8).wrapping_mul(seed)).collect::<Vec<u8>>();
    let writes: Vec<_> =
        (0..24).map(|at| kernel.ask_write(node, handle, at << 20, &part(at as u8), libc::O_WRONLY)).collect();
    writes.iter().for_each(|write| drop(write.wait().expect("written")));
    for at in 0..24 {
        assert!(kernel.read(node, handle, at << 20, 1 << 20) == Ok(part(at as u8)), "MiB {at}");
    }
    site.hand_over(serving);
}

#[test]
fn a_call_waits_for_an_owner_and_is_told_when_the_mount_ends() {
    let site = Site::new();
    let kernel = site.client(1);
    let made = kernel.ask(opcode::MKDIR, ROOT, &[&[0xed, 1, 0, 0, 0, 0, 0, 0], b"later\0"]);
    assert!(!made.is_there_within(Duration::from_millis(300)));
    let serving = site.serve();
    let found = kernel.lookup(ROOT, "later");
    assert!(found.is_ok(), "it was made before this was asked: {found:?}");
    site.hand_over(serving);
    let waits = kernel.ask(opcode::LOOKUP, ROOT, &[b"later\0"]);
    kernel.link.give_up();
    assert_eq!(waits.wait(), Err(libc::ENOTCONN));
    assert_eq!(kernel.lookup(ROOT, "later"), Err(libc::ENOTCONN));
}

#[test]
fn what_is_sent_again_to_the_same_owner_is_done_once() {
    let site = Site::new();
    let serving = site.serve();
    let kernel = site.client(1);
    let (node, handle) = kernel.create(ROOT, "log", libc::O_WRONLY | libc::O_APPEND).expect("a file");
    let mut asked = Vec::new();
    for round in 0..200_u64 {
        asked.push(kernel.ask_write(node, handle, 0, b"x", libc::O_WRONLY | libc::O_APPEND));
        if round % 20 == 10 {
            kernel.link.cut();
        }
        let name = format!("directory {round}\0");
        asked.push(kernel.ask(opcode::MKDIR, ROOT, &[&[0xed, 1, 0, 0, 0, 0, 0, 0], name.as_bytes()]));
        if round % 20 == 0 {
            serving.owner.cut_all();
        }
    }
    asked.iter().for_each(|one| drop(one.wait().expect("done, and not found to be done already")));
    assert_eq!(kernel.size(node), Ok(200), "each was appended once");
    assert_eq!(serving.owner.clients(), 1);
    site.hand_over(serving);
}
