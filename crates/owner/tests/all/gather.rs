//! A machine that alone has to do with a file answers short writes by itself and sends them together (P-292 to P-294).

use std::time::{Duration, Instant};

use fuse_wire::abi::fattr;
use fuse_wire::abi::opcode;
use fuse_wire::abi::structs::{AttrOut, FlushIn, GetattrIn, SetattrIn, split};
use zerocopy::IntoBytes;

use crate::site::{Kernel, PATIENCE, ROOT, Site, until};

/// Less than a way to the owner, when it stands still.
const AT_ONCE: Duration = Duration::from_millis(50);

/// Makes a file that the machine may gather.
fn gathered_file(kernel: &Kernel, name: &str) -> (u64, u64) {
    let (node, handle) = kernel.create(ROOT, name, libc::O_RDWR).expect("a file");
    (0..3).for_each(|_| kernel.write(node, handle, 0, b"first").expect("written"));
    (node, handle)
}

fn close(kernel: &Kernel, node: u64, handle: u64) -> Result<(), i32> {
    let input = FlushIn { fh: handle, lock_owner: 1, ..FlushIn::default() };
    kernel.call(opcode::FLUSH, node, &[input.as_bytes()]).map(drop)
}

fn mtime(kernel: &Kernel, node: u64) -> (u64, u32) {
    let bytes = kernel.call(opcode::GETATTR, node, &[GetattrIn::default().as_bytes()]).expect("it is there");
    let attr = split::<AttrOut>(&bytes).expect("attributes").0.attr;
    (attr.mtime, attr.mtimensec)
}

/// How many requests of this client the owner has seen cannot be told from here: how many writes it answered itself can.
fn gathered(kernel: &Kernel) -> u64 {
    kernel.link.gathered()
}

#[test]
fn the_next_question_of_any_machine_sees_what_was_gathered() {
    let site = Site::new();
    let serving = site.serve();
    let (writer, other) = (site.client(1), site.client(2));
    for round in 0..5_u64 {
        let name = format!("file {round}");
        let (node, handle) = gathered_file(&writer, &name);
        let before = gathered(&writer);
        for at in 0..10_u64 {
            writer.write(node, handle, 5 + at * 4, b"more").expect("written");
        }
        assert_eq!(gathered(&writer), before + 10, "answered by the machine itself");
        // Of itself, and of another one: by name, by number, by a listing, by the bytes.
        let own = (round % 2 == 0).then(|| writer.size(node));
        assert!(own.is_none_or(|size| size == Ok(45)));
        let (seen, size) = other.lookup(ROOT, &name).expect("it is there");
        assert_eq!((seen, size), (node, 45), "round {round}");
        let times = [mtime(&writer, node), mtime(&other, node)];
        assert_eq!(times[0], times[1]);
        let (reading, _) = other.open(node, libc::O_RDONLY).expect("open");
        assert_eq!(other.read(node, reading, 41, 100), Ok(b"more".to_vec()));
        // Two have it open now: each write is the owner's at once.
        let before = gathered(&writer);
        writer.write(node, handle, 45, b"last").expect("written");
        writer.write(node, handle, 49, b"!").expect("written");
        assert_eq!(gathered(&writer), before);
        assert_eq!(other.read(node, reading, 45, 100), Ok(b"last!".to_vec()));
        other.release(node, reading).expect("closed");
    }
    site.hand_over(serving);
}

#[test]
fn what_is_gathered_is_sent_soon_without_being_asked_for() {
    let site = Site::new();
    let serving = site.serve();
    let writer = site.client(1);
    let (node, handle) = gathered_file(&writer, "file");
    writer.write(node, handle, 5, b" and more").expect("written");
    let size = || serving.door.filesystem().getattr(&crate::site::caller(), node).expect("it is there").size;
    let begun = Instant::now();
    until("it is sent", || size() == 14);
    assert!(begun.elapsed() < Duration::from_secs(2));
    site.hand_over(serving);
}

#[test]
fn writes_that_follow_each_other_are_one() {
    let site = Site::new();
    let serving = site.serve();
    let writer = site.client(1);
    let (node, handle) = gathered_file(&writer, "file");
    let block: Vec<u8> = (0..10_000_u32).map(|at| (at % 251) as u8).collect();
    let count = 300_u64;
    for at in 0..count {
        writer.write(node, handle, 5 + at * 10_000, &block).expect("written");
    }
    close(&writer, node, handle).expect("closed");
    let served = serving.owner.clients();
    assert_eq!(served, 1);
    let other = site.client(2);
    let (reading, _) = other.open(node, libc::O_RDONLY).expect("open");
    for at in [0, 1, count / 2, count - 1] {
        assert!(other.read(node, reading, 5 + at * 10_000, 10_000).as_ref() == Ok(&block), "block {at}");
    }
    assert_eq!(other.size(node), Ok(5 + count * 10_000));
    assert!(writer.link.sent_gathered() < 20, "{} writes were sent", writer.link.sent_gathered());
    site.hand_over(serving);
}

#[test]
fn what_comes_after_it_on_the_same_machine_is_done_after_it() {
    let site = Site::new();
    let serving = site.serve();
    let writer = site.client(1);
    let (node, handle) = gathered_file(&writer, "file");
    writer.write(node, handle, 5, b" second").expect("written");
    let set = SetattrIn { valid: fattr::MTIME, mtime: 77, ..SetattrIn::default() };
    writer.call(opcode::SETATTR, node, &[set.as_bytes()]).expect("set");
    assert_eq!(mtime(&writer, node), (77, 0), "the time that was set stays");
    writer.write(node, handle, 0, b"FIRST").expect("written");
    writer.write(node, handle, 0, b"Fi").expect("written over what is gathered");
    let cut = SetattrIn { valid: fattr::SIZE, size: 3, ..SetattrIn::default() };
    writer.call(opcode::SETATTR, node, &[cut.as_bytes()]).expect("cut");
    assert_eq!(writer.read(node, handle, 0, 100), Ok(b"FiR".to_vec()));
    writer.write(node, handle, 3, b"st").expect("written");
    assert_eq!(writer.read(node, handle, 0, 100), Ok(b"FiRst".to_vec()));
    writer.write(node, handle, 5, b"!").expect("written");
    assert_eq!(writer.lookup(ROOT, "file"), Ok((node, 6)), "a name shows it, too");
    site.hand_over(serving);
}

/// It was answered, so it is there while its machine is.
#[test]
fn what_was_gathered_goes_to_the_next_owner() {
    let site = Site::new();
    let first = site.serve();
    let writer = site.client(1);
    let (node, handle) = gathered_file(&writer, "file");
    writer.fsync(node, handle).expect("durable");
    writer.write(node, handle, 5, b"one").expect("written");
    site.crash(first);
    let second = site.serve_with_grace(Duration::from_secs(20));
    assert_eq!(writer.read(node, handle, 0, 100), Ok(b"firstone".to_vec()));
    until("the new owner lets it gather", || {
        let before = gathered(&writer);
        writer.write(node, handle, 8, b"two").expect("written");
        gathered(&writer) > before
    });
    let other = site.client(2);
    let (reading, _) = other.open(node, libc::O_RDONLY).expect("open");
    assert_eq!(other.read(node, reading, 0, 100), Ok(b"firstonetwo".to_vec()));
    site.hand_over(second);
}

/// Others wait for a machine that is away as long as its session lasts; what it had gathered is lost then, and it is told so.
#[test]
fn a_machine_that_does_not_come_back_loses_what_it_had_gathered_and_nobody_else_anything() {
    let site = Site::new();
    let serving = site.serve();
    let is_away = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let (away, finder) = (std::sync::Arc::clone(&is_away), site.finder());
    let writer = site.client_with(1, move || {
        let owner = finder();
        owner.filter(|_| !away.load(std::sync::atomic::Ordering::SeqCst))
    });
    let other = site.client(2);
    let (node, handle) = gathered_file(&writer, "file");
    writer.fsync(node, handle).expect("durable");
    writer.write(node, handle, 0, b"FIRST").expect("written");
    is_away.store(true, std::sync::atomic::Ordering::SeqCst);
    writer.link.cut();
    let begun = Instant::now();
    let (reading, _) = other.open(node, libc::O_RDWR).expect("open");
    let waited = begun.elapsed();
    assert_eq!(other.read(node, reading, 0, 100), Ok(b"first".to_vec()));
    assert!(waited > Duration::from_secs(8), "it was waited for: {waited:?}");
    other.write(node, reading, 0, b"other").expect("written");
    is_away.store(false, std::sync::atomic::Ordering::SeqCst);
    assert_eq!(writer.fsync(node, handle), Err(libc::EIO), "it hears that something is lost");
    assert_eq!(writer.read(node, handle, 0, 100), Ok(b"other".to_vec()), "and took nothing from anybody");
    site.hand_over(serving);
}

#[test]
fn a_machine_that_comes_back_in_time_loses_nothing() {
    let site = Site::new();
    let serving = site.serve();
    let (writer, other) = (site.client(1), site.client(2));
    for round in 0..10 {
        let (node, handle) = gathered_file(&writer, &format!("file {round}"));
        writer.write(node, handle, 5, b" and more").expect("written");
        let seen = std::thread::scope(|scope| {
            let looking = scope.spawn(|| other.size(node));
            writer.link.cut();
            looking.join().expect("no panic")
        });
        assert_eq!(seen, Ok(14), "round {round}");
    }
    site.hand_over(serving);
}

/// A program that closes a file hears that there is no room; and near a full pool it hears that from the write.
#[test]
fn a_pool_that_is_nearly_full_gathers_nothing() {
    let site = Site::new();
    let serving = site.serve();
    let writer = site.client(1);
    let (node, handle) = writer.create(ROOT, "large", libc::O_RDWR).expect("a file");
    let (mut at, mut errno, mut seed) = (0, 0, 1_u64);
    while errno == 0 && at < 400 << 20 {
        let mut next = || {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            seed.to_le_bytes()
        };
        let block: Vec<u8> = (0..8192).flat_map(|_| next()).collect();
        match writer.write(node, handle, at, &block) {
            Ok(()) => at += block.len() as u64,
            Err(error) => errno = error,
        }
    }
    assert_eq!(errno, libc::ENOSPC, "the write itself says so");
    assert_eq!(close(&writer, node, handle), Ok(()), "all that was answered has room");
    assert_eq!(writer.size(node), Ok(at));
    drop(serving);
}

/// Three machines write, read, look and cut files as they like; what each sees is what one machine would show.
#[test]
fn machines_that_alternate_see_all_that_was_answered() {
    const FILES: u64 = 40;
    let site = Site::new();
    let serving = site.serve();
    let kernels = [site.client(1), site.client(2), site.client(3)];
    let name = |file: usize| format!("file {file}");
    let make = |file| kernels[0].create(ROOT, &name(file), libc::O_RDWR).expect("a file");
    let nodes: Vec<u64> = (0..FILES as usize)
        .map(|file| {
            let (node, handle) = make(file);
            kernels[0].release(node, handle).expect("closed");
            kernels.iter().for_each(|kernel| assert!(kernel.lookup(ROOT, &name(file)).is_ok()));
            node
        })
        .collect();
    let mut contents = vec![Vec::new(); FILES as usize];
    let mut seed = 7_u64;
    let mut next = |end: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % end
    };
    let deadline = Instant::now() + PATIENCE / 3;
    while Instant::now() < deadline {
        let file = next(FILES) as usize;
        let (node, content): (u64, &mut Vec<u8>) = (nodes[file], &mut contents[file]);
        let kernel = &kernels[next(3) as usize];
        let (handle, _) = kernel.open(node, libc::O_RDWR).expect("open");
        for _ in 0..next(16) {
            let at = next(content.len() as u64 + 10);
            let bytes: Vec<u8> = (0..1 + next(40)).map(|_| next(256) as u8).collect();
            kernel.write(node, handle, at, &bytes).expect("written");
            let end = at as usize + bytes.len();
            content.resize(content.len().max(end), 0);
            content[at as usize..end].copy_from_slice(&bytes);
        }
        if next(3) == 0 {
            close(kernel, node, handle).expect("closed");
        }
        let reader = &kernels[next(3) as usize];
        match next(4) {
            0 => assert_eq!(reader.size(node), Ok(content.len() as u64)),
            1 => assert_eq!(reader.lookup(ROOT, &name(file)), Ok((node, content.len() as u64))),
            2 => {
                content.truncate(next(content.len() as u64 + 1) as usize);
                let cut = SetattrIn { valid: fattr::SIZE, size: content.len() as u64, ..SetattrIn::default() };
                reader.call(opcode::SETATTR, node, &[cut.as_bytes()]).expect("cut");
            }
            _ => {
                let (handle, _) = reader.open(node, libc::O_RDONLY).expect("open");
                let read = reader.read(node, handle, 0, 1 << 20).expect("read");
                assert!(read == *content, "{} bytes for {}", read.len(), content.len());
                reader.release(node, handle).expect("closed");
            }
        }
        kernel.release(node, handle).expect("closed");
    }
    let all: u64 = kernels.iter().map(gathered).sum();
    assert!(all > 200, "{all} writes were gathered");
    site.hand_over(serving);
}

/// A write that is answered at once although the owner stands still.
#[test]
fn a_gathered_write_waits_for_nobody() {
    let site = Site::new();
    let serving = site.serve();
    let writer = site.client(1);
    let (node, handle) = gathered_file(&writer, "file");
    let begun = Instant::now();
    (0..100_u64).for_each(|at| writer.write(node, handle, 5 + at, b"x").expect("written"));
    assert!(begun.elapsed() < AT_ONCE, "{:?} for a hundred writes", begun.elapsed());
    assert_eq!(writer.size(node), Ok(105));
    site.hand_over(serving);
}

/// A process that waits in close(2) cannot be killed.
#[test]
fn a_close_waits_ten_seconds_for_an_owner_and_no_longer() {
    let site = Site::new();
    let serving = site.serve();
    let writer = site.client(1);
    let (node, handle) = gathered_file(&writer, "file");
    writer.fsync(node, handle).expect("durable");
    writer.write(node, handle, 0, b"FIRST").expect("written");
    site.crash(serving);
    let begun = Instant::now();
    close(&writer, node, handle).expect("closed");
    assert!((9..16).contains(&begun.elapsed().as_secs()), "{:?}", begun.elapsed());
    let second = site.serve_with_grace(Duration::from_secs(20));
    assert_eq!(writer.read(node, handle, 0, 100), Ok(b"FIRST".to_vec()), "it is still written");
    site.hand_over(second);
}
