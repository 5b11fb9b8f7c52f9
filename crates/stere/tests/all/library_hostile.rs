//! Clients that do not keep to the library's protocol, on a real mount (P-90): needs root and /dev/fuse, and says loudly when it skips.

use crate::support;

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{MemfdFlags, SealFlags};
use stere_client_wire::frame::{IN_FLIGHT_MAX, Kind, MEMORY_BYTES_MAX, REPLY_BYTES, Reply, Request};
use stere_client_wire::{handles, meet};
use support::{World, can_mount};

const HELLO: &str = r#"{"question":"library","version":1}"#;

fn memory_of(bytes: u64, seals: SealFlags) -> OwnedFd {
    let memory = rustix::fs::memfd_create(c"test", MemfdFlags::ALLOW_SEALING).unwrap();
    rustix::fs::ftruncate(&memory, bytes).unwrap();
    rustix::fs::fcntl_add_seals(&memory, seals).unwrap();
    memory
}

fn memory() -> OwnedFd {
    memory_of(1 << 20, SealFlags::SHRINK | SealFlags::GROW)
}

/// What the daemon says to this greeting and question, and the connection.
fn ask(greeting: &[&dyn AsFd], file: &File, question: &str) -> (UnixStream, String) {
    let stream = meet::connect(file).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(300))).unwrap();
    handles::send(&stream, &greeting.iter().map(|handle| handle.as_fd()).collect::<Vec<_>>()).unwrap();
    // Who is refused for its handles already is not listened to.
    drop((&stream).write_all(format!("{question}\n").as_bytes()));
    let mut line = String::new();
    if let Err(error) = BufReader::new(&stream).read_line(&mut line) {
        line = error.to_string();
    }
    (stream, line)
}

/// One that was ended just now may still count for a moment, so a refusal is not the last word.
fn session(file: &File, memory: &OwnedFd) -> UnixStream {
    let deadline = Instant::now() + Duration::from_secs(300);
    loop {
        let (stream, line) = ask(&[file, memory], file, HELLO);
        if line.contains(r#""answer":"library""#) {
            return stream;
        }
        assert!(Instant::now() < deadline, "{line}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn request(kind: Kind, offset: u64, place: u64, length: u32) -> Request {
    Request { kind, tag: 7, offset, place, length, is_alone: false }
}

fn reply(mut stream: &UnixStream) -> Option<Reply> {
    let mut bytes = [0; REPLY_BYTES];
    stream.read_exact(&mut bytes).ok()?;
    Reply::decode(&bytes).ok()
}

fn world_with_file() -> (World, PathBuf) {
    let world = World::with_pool();
    world.ok("mount tank mount");
    let path = world.mountpoint().join("file");
    fs::write(&path, vec![1; 100_000]).unwrap();
    (world, path)
}

fn open(path: &PathBuf) -> File {
    File::options().read(true).write(true).open(path).unwrap()
}

/// The daemon goes on as if nothing had been.
fn is_well(world: &World, path: &PathBuf) {
    let file = stere::File::open(path, stere::Options::new().read(true).write(true)).unwrap();
    file.write_at(b"well", 0).unwrap();
    // Not the whole file: a write that was taken may have made it as large as files can be.
    let mut begins = [0; 4];
    open(path).read_exact(&mut begins).unwrap();
    assert_eq!(&begins, b"well");
    drop(file);
    world.ok("umount mount");
    world.ok("check a.img b.img");
}

#[test]
fn memory_that_could_be_taken_away_and_strange_descriptors_are_refused() {
    if !can_mount("memory_that_could_be_taken_away_and_strange_descriptors_are_refused") {
        return;
    }
    let (world, path) = world_with_file();
    let file = open(&path);
    let both = SealFlags::SHRINK | SealFlags::GROW;
    let refused = |greeting: &[&dyn AsFd], word: &str| {
        let (_, line) = ask(greeting, &file, HELLO);
        assert!(line.contains(r#""answer":"refused""#) && line.contains(word), "{line} without {word}");
    };
    refused(&[&file, &memory_of(1 << 20, SealFlags::empty())], "sealed");
    refused(&[&file, &memory_of(1 << 20, SealFlags::GROW)], "sealed");
    refused(&[&file, &memory_of(1 << 20, SealFlags::SHRINK)], "sealed");
    refused(&[&file, &memory_of(0, both)], "0 bytes");
    refused(&[&file, &memory_of(MEMORY_BYTES_MAX + 1, both)], "bytes");
    let sealed = memory();
    let read_only = File::open(format!("/proc/self/fd/{}", sealed.as_raw_fd())).unwrap();
    refused(&[&file, &read_only], "reading and writing");
    // A file of this very mount, of another one, a pipe and a socket instead of memory.
    refused(&[&file, &file], "sealed");
    let (pipe, _other) = rustix::pipe::pipe().unwrap();
    refused(&[&file, &pipe], "sealed");
    refused(&[&file, &UnixStream::pair().unwrap().0], "sealed");
    refused(&[&file, &File::open("/dev/zero").unwrap()], "sealed");
    // Too few and too many of them.
    refused(&[&file], "2 handles");
    refused(&[&file, &sealed, &sealed], "2 handles");
    // Files that are not of the mount, or give no right.
    refused(&[&sealed, &file], "another file system");
    refused(&[&File::open("/dev/null").unwrap(), &sealed], "another file system");
    refused(&[&File::options().read(true).custom_flags(libc::O_PATH).open(&path).unwrap(), &sealed], "O_PATH");
    refused(&[&File::open(world.mountpoint()).unwrap(), &sealed], "regular files");
    let (_, line) = ask(&[&file, &sealed], &file, r#"{"question":"library","version":99}"#);
    assert!(line.contains("version 99"), "{line}");
    drop(file);
    is_well(&world, &path);
}

#[test]
fn requests_out_of_bounds_end_their_session_and_no_other() {
    if !can_mount("requests_out_of_bounds_end_their_session_and_no_other") {
        return;
    }
    let (world, path) = world_with_file();
    let (file, memory) = (open(&path), memory());
    let others = session(&file, &memory);
    let good = request(Kind::Read, 0, 0, 4096).encode();
    let with = |at: usize, bytes: &[u8]| {
        let mut frame = good;
        frame[at..at + bytes.len()].copy_from_slice(bytes);
        frame
    };
    let bad = [
        with(0, &0_u32.to_le_bytes()),
        with(0, &u32::MAX.to_le_bytes()),
        with(8, &u64::MAX.to_le_bytes()),
        with(16, &(1_u64 << 20).to_le_bytes()),
        with(16, &u64::MAX.to_le_bytes()),
        with(24, &((1_u32 << 20) + 1).to_le_bytes()),
        with(28, &2_u32.to_le_bytes()),
        [0xff; 32],
    ];
    for frame in bad {
        let stream = session(&file, &memory);
        (&stream).write_all(&frame).unwrap();
        assert_eq!(reply(&stream), None, "the session ends at {frame:?}");
        (&others).write_all(&good).unwrap();
        assert_eq!(reply(&others).map(|reply| (reply.errno, reply.value)), Some((0, 4096)));
    }
    // Half a frame and nothing more; frames in pieces.
    let half = session(&file, &memory);
    (&half).write_all(&good[..17]).unwrap();
    for byte in good {
        (&others).write_all(&[byte]).unwrap();
    }
    assert_eq!(reply(&others).map(|reply| reply.tag), Some(7));
    // An error's text is cut to its place, in characters.
    let reading = File::open(&path).unwrap();
    let stream = session(&reading, &memory);
    (&stream).write_all(&request(Kind::Write, 0, (1 << 20) - 10, 10).encode()).unwrap();
    let told = reply(&stream).unwrap();
    assert_eq!((told.errno, told.text_bytes), (libc::EBADF as u32, 10));
    let mut text = [0; 10];
    rustix::io::pread(&memory, &mut text, (1 << 20) - 10).unwrap();
    assert_eq!(&text, b"the file i");
    drop((file, half, others, stream, reading));
    is_well(&world, &path);
}

#[test]
fn a_client_that_takes_no_answers_costs_others_nothing() {
    if !can_mount("a_client_that_takes_no_answers_costs_others_nothing") {
        return;
    }
    let (world, path) = world_with_file();
    let (file, memory) = (open(&path), memory());
    let greedy = session(&file, &memory);
    greedy.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
    let frame = request(Kind::Sync, 0, 0, 0).encode();
    let mut sent = 0;
    // It is sent away or held up, whichever comes first; it can never make others wait.
    while sent < 100 * IN_FLIGHT_MAX && (&greedy).write_all(&frame).is_ok() {
        sent += 1;
    }
    let begun = Instant::now();
    let other = session(&file, &memory);
    for _ in 0..50 {
        (&other).write_all(&request(Kind::Read, 0, 0, 4096).encode()).unwrap();
        assert_eq!(reply(&other).map(|reply| reply.value), Some(4096));
    }
    assert!(begun.elapsed() < Duration::from_secs(300), "{:?}", begun.elapsed());
    drop((file, greedy, other));
    is_well(&world, &path);
}

#[test]
fn content_that_changes_while_it_is_written_is_stored_with_its_checksum() {
    if !can_mount("content_that_changes_while_it_is_written_is_stored_with_its_checksum") {
        return;
    }
    let (world, path) = world_with_file();
    let (file, memory) = (open(&path), memory());
    let stream = session(&file, &memory);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut byte = 0_u8;
            while !is_over.load(Ordering::Relaxed) {
                byte = byte.wrapping_add(1);
                rustix::io::pwrite(&memory, &vec![byte; 1 << 20], 0).unwrap();
            }
        });
        for turn in 0..64 {
            (&stream).write_all(&request(Kind::Write, turn << 20, 0, 1 << 20).encode()).unwrap();
            assert_eq!(reply(&stream).map(|reply| (reply.errno, reply.value)), Some((0, 1 << 20)));
        }
        is_over.store(true, Ordering::Relaxed);
    });
    drop((stream, file));
    world.ok("umount mount");
    world.ok("check a.img b.img");
    world.ok("mount tank mount");
    assert_eq!(fs::read(&path).unwrap().len(), 64 << 20, "every block matches its checksum");
    let status = world.json("status tank --json");
    assert_eq!(status["devices"][0]["checksum_errors"], 0, "{status}");
    fs::write(&path, b"").unwrap();
    is_well(&world, &path);
}

#[test]
fn a_session_whose_file_is_closed_ends_with_the_mount() {
    if !can_mount("a_session_whose_file_is_closed_ends_with_the_mount") {
        return;
    }
    let (world, path) = world_with_file();
    let (file, memory) = (open(&path), memory());
    let stream = session(&file, &memory);
    assert_ne!(world.run("umount mount").code, 0, "the file is open");
    drop(file);
    // The daemon keeps no descriptor, so nothing is in the way; what was written before is durable.
    rustix::io::pwrite(&memory, b"last", 0).unwrap();
    (&stream).write_all(&request(Kind::Write, 0, 0, 4).encode()).unwrap();
    assert_eq!(reply(&stream).map(|reply| reply.value), Some(4));
    world.ok("umount mount");
    assert_eq!(reply(&stream), None, "the session has ended");
    world.ok("check a.img b.img");
    world.ok("mount tank mount");
    assert_eq!(&fs::read(&path).unwrap()[..4], b"last");
    is_well(&world, &path);
}

#[test]
fn any_bytes_are_taken_without_harm() {
    if !can_mount("any_bytes_are_taken_without_harm") {
        return;
    }
    let (world, path) = world_with_file();
    let (file, memory) = (open(&path), memory());
    let mut state = 1_u64;
    let mut number = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 33
    };
    for _ in 0..300 {
        let stream = session(&file, &memory);
        for _ in 0..number() % 20 {
            // Near to what is good: small numbers in each field, now and then with a bit turned.
            let kind = [Kind::Read, Kind::Write, Kind::Sync, Kind::Size][(number() % 4) as usize];
            let kind = if kind == Kind::Sync && number() % 4 > 0 { Kind::Size } else { kind };
            let mut frame =
                request(kind, number() % (1 << 22), number() % (1 << 20), (number() % 9000) as u32).encode();
            if number() % 8 == 0 {
                let at = (number() % 32) as usize;
                frame[at] ^= 1 << (number() % 8);
            }
            if (&stream).write_all(&frame).is_err() {
                break;
            }
        }
    }
    drop(file);
    is_well(&world, &path);
}
