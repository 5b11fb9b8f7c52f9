//! What one machine changed the next question on another sees, though most questions are answered without the owner (P-284).

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fuse_wire::abi::opcode;
use fuse_wire::abi::structs::{AttrOut, GetattrIn, SetattrIn, split};
use zerocopy::IntoBytes;

use crate::site::{Kernel, ROOT, Site, until};

/// Waits until the machine answers by itself how long a file is.
fn until_leased(kernel: &Kernel, node: u64) {
    until("attributes are leased", || {
        let before = kernel.link.answered_here();
        kernel.size(node).expect("attributes");
        kernel.link.answered_here() > before
    });
}

fn set_size(kernel: &Kernel, node: u64, size: u64) {
    let input = SetattrIn { valid: fuse_wire::abi::fattr::SIZE, size, ..SetattrIn::default() };
    kernel.call(opcode::SETATTR, node, &[input.as_bytes()]).expect("the size is set");
}

fn links(kernel: &Kernel, node: u64) -> u32 {
    let attributes = kernel.call(opcode::GETATTR, node, &[GetattrIn::default().as_bytes()]).expect("attributes");
    split::<AttrOut>(&attributes).expect("attributes").0.attr.nlink
}

#[test]
fn the_next_question_on_another_machine_sees_every_change() {
    let site = Site::new();
    let serving = site.serve();
    let (one, other) = (site.client(1), site.client(2));
    let (node, handle) = one.create(ROOT, "file", libc::O_RDWR).expect("a file");
    assert_eq!(other.lookup(ROOT, "file"), Ok((node, 0)));
    until_leased(&other, node);
    let before = other.link.answered_here();
    for round in 1..=300_u64 {
        match round % 2 {
            0 => set_size(&one, node, round),
            _ => one.write(node, handle, round - 1, b"x").expect("written"),
        }
        assert_eq!(other.size(node), Ok(round), "as it was answered");
        assert_eq!(other.size(node), Ok(round), "again");
    }
    assert!(other.link.answered_here() - before >= 250, "the second question goes to no owner");
    for round in 0..100 {
        let (old, new) = (format!("name {round}"), format!("name {}", round + 1));
        if round == 0 {
            assert_eq!(other.lookup(ROOT, &old), Err(libc::ENOENT));
            assert_eq!(other.lookup(ROOT, &old), Err(libc::ENOENT));
            one.create(ROOT, &old, libc::O_RDWR).expect("a file");
        }
        let (named, _) = other.lookup(ROOT, &old).expect("it was made");
        assert_eq!(other.lookup(ROOT, &new), Err(libc::ENOENT));
        one.rename(ROOT, &old, ROOT, &new).expect("renamed");
        assert_eq!(other.lookup(ROOT, &old), Err(libc::ENOENT));
        assert_eq!(other.lookup(ROOT, &new).map(|(node, _)| node), Ok(named));
    }
    let (doomed, _) = other.lookup(ROOT, "name 100").expect("it is there");
    assert_eq!(links(&other, doomed), 1);
    assert_eq!(links(&other, doomed), 1);
    one.unlink(ROOT, "name 100").expect("removed");
    assert_eq!(links(&other, doomed), 0, "of a removed file that somebody knows");
    site.hand_over(serving);
}

/// Which inode loses a name, or moves, only the owner knows: also the machine that does it is told.
#[test]
fn a_machine_that_removes_a_name_sees_that_the_file_has_one_less() {
    let site = Site::new();
    let serving = site.serve();
    let (one, other) = (site.client(1), site.client(2));
    let (node, _) = one.create(ROOT, "a", libc::O_RDWR).expect("a file");
    other.lookup(ROOT, "a").expect("found");
    for _ in 0..20 {
        other.link_name(node, ROOT, "b").expect("linked");
        other.create(ROOT, "c", libc::O_RDWR).expect("made");
        until_leased(&one, node);
        assert_eq!(links(&one, node), 2);
        one.unlink(ROOT, "b").expect("removed");
        assert_eq!(links(&one, node), 1);
        other.link_name(node, ROOT, "b").expect("linked");
        until_leased(&one, node);
        assert_eq!(links(&one, node), 2);
        one.rename(ROOT, "c", ROOT, "b").expect("replaced");
        assert_eq!(links(&one, node), 1);
        one.unlink(ROOT, "b").expect("removed");
    }
    // A kernel asks so that has not heard yet of a file that was made elsewhere.
    set_size(&one, node, 5);
    until_leased(&one, node);
    assert_eq!(one.size(node), Ok(5));
    other.create(ROOT, "a", libc::O_RDWR | libc::O_TRUNC).expect("opened");
    assert_eq!(one.size(node), Ok(0), "it was emptied");
    site.hand_over(serving);
}

#[test]
fn a_machine_knows_what_is_not_in_a_directory_that_it_made() {
    let site = Site::new();
    let serving = site.serve();
    let (one, other) = (site.client(1), site.client(2));
    let (node, _) = one.create(ROOT, "file", libc::O_RDWR).expect("a file");
    until_leased(&one, node);
    let directory = one.mkdir(ROOT, "directory").expect("made");
    let before = one.link.answered_here();
    for number in 0..50 {
        let name = format!("{number}");
        assert_eq!(one.lookup(directory, &name), Err(libc::ENOENT));
        one.create(directory, &name, libc::O_RDWR).expect("made");
        assert!(one.lookup(directory, &name).is_ok());
    }
    assert!(one.link.answered_here() - before >= 100, "all was answered here");
    assert_eq!(other.lookup(ROOT, "directory").map(|(node, _)| node), Ok(directory));
    for number in 50..100 {
        let name = format!("{number}");
        assert_eq!(one.lookup(directory, &name), Err(libc::ENOENT));
        other.create(directory, &name, libc::O_RDWR).expect("made");
        assert!(one.lookup(directory, &name).is_ok(), "{name} was made on another machine");
    }
    site.hand_over(serving);
}

/// Each machine changes the same things and looks at what the others have told it, all at once.
#[test]
fn machines_that_change_the_same_never_see_less_than_was_answered() {
    let site = Site::new();
    let serving = site.serve();
    let machines: Vec<Kernel> = (1..=3).map(|machine| site.client(machine)).collect();
    let (node, _) = machines[0].create(ROOT, "counter", libc::O_RDWR).expect("a file");
    for machine in &machines {
        assert_eq!(machine.lookup(ROOT, "counter").map(|(node, _)| node), Ok(node));
        until_leased(machine, node);
    }
    let (answered, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    let (turns, named) = (std::sync::Mutex::new(0_u64), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for machine in &machines {
            scope.spawn(|| {
                while !is_over.load(Ordering::SeqCst) {
                    let mut turn = turns.lock().expect("no panic");
                    *turn += 1;
                    set_size(machine, node, *turn);
                    answered.fetch_max(*turn, Ordering::SeqCst);
                    drop(turn);
                    let made = named.fetch_add(1, Ordering::SeqCst);
                    machine.create(ROOT, &format!("made {made}"), libc::O_RDWR).expect("made");
                    let others = machines.iter().map(|other| other.lookup(ROOT, &format!("made {made}")));
                    assert!(others.into_iter().all(|found| found.is_ok()), "name {made} was made");
                }
            });
            for _ in 0..2 {
                scope.spawn(|| {
                    while !is_over.load(Ordering::SeqCst) {
                        let told = answered.load(Ordering::SeqCst);
                        let size = machine.size(node).expect("attributes");
                        assert!(size >= told, "it was {told} when that was asked, and {size} is seen");
                        let soon = named.load(Ordering::SeqCst) + 1;
                        machine.lookup(ROOT, &format!("made {soon}")).unwrap_or_default();
                    }
                });
            }
        }
        std::thread::sleep(Duration::from_secs(5));
        is_over.store(true, Ordering::SeqCst);
    });
    assert!(machines.iter().all(|machine| machine.link.answered_here() > 100), "leases were of use");
    site.hand_over(serving);
}

/// Passes a connection on; a direction can be stopped.
struct Gate {
    address: String,
    to_owner: Arc<AtomicBool>,
    to_client: Arc<AtomicBool>,
    /// For so long it holds what it passes on to the owner.
    delay_ms: Arc<AtomicU64>,
}

impl Gate {
    fn new(owner: std::net::SocketAddr) -> Gate {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        let (to_owner, to_client): (Arc<AtomicBool>, Arc<AtomicBool>) = (Arc::default(), Arc::default());
        let delay_ms: Arc<AtomicU64> = Arc::default();
        let (to_owner_too, to_client_too, delay) =
            (Arc::clone(&to_owner), Arc::clone(&to_client), Arc::clone(&delay_ms));
        let gate = Gate { address, to_owner: to_owner_too, to_client: to_client_too, delay_ms };
        std::thread::spawn(move || {
            for near in listener.incoming().flatten() {
                let Ok(far) = TcpStream::connect(owner) else { return };
                let back = (far.try_clone().expect("a socket"), near.try_clone().expect("a socket"));
                let (to_owner, to_client) = (Arc::clone(&to_owner), Arc::clone(&to_client));
                let (delay, none) = (Arc::clone(&delay), AtomicU64::new(0));
                std::thread::spawn(move || pass_on(near, far, &to_owner, &delay));
                std::thread::spawn(move || pass_on(back.0, back.1, &to_client, &none));
            }
        });
        gate
    }

    /// Passes nothing on in one direction from now on.
    fn stop(&self, is_to_owner: bool) {
        let direction = if is_to_owner { &self.to_owner } else { &self.to_client };
        direction.store(true, Ordering::SeqCst);
    }

    fn go_on(&self) {
        self.to_owner.store(false, Ordering::SeqCst);
        self.to_client.store(false, Ordering::SeqCst);
    }
}

fn pass_on(mut from: TcpStream, mut to: TcpStream, is_stopped: &AtomicBool, delay_ms: &AtomicU64) {
    let mut bytes = vec![0; 65_536];
    while let Ok(count) = from.read(&mut bytes) {
        std::thread::sleep(Duration::from_millis(delay_ms.load(Ordering::SeqCst)));
        while is_stopped.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(5));
        }
        if count == 0 || to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    drop(to.shutdown(Shutdown::Both));
    drop(from.shutdown(Shutdown::Both));
}

/// One direction of a machine's way to the owner is cut: for how long it believes, and for how long a change waits for it.
fn cut_one_way(is_to_owner: bool) -> (Duration, Duration) {
    let site = Site::new();
    let serving = site.serve();
    let gate = Gate::new(serving.owner.address());
    let (find, address) = (site.finder(), gate.address.clone());
    let through = move || find().map(|owner| stere_client::Announcement { address: address.clone(), ..owner });
    let (one, other) = (site.client(1), site.client_with(2, through));
    let (node, _) = one.create(ROOT, "file", libc::O_RDWR).expect("a file");
    assert_eq!(other.lookup(ROOT, "file"), Ok((node, 0)));
    until_leased(&other, node);
    gate.stop(is_to_owner);
    let (begun, ask) = (Instant::now(), || other.ask(opcode::GETATTR, node, &[GetattrIn::default().as_bytes()]));
    let times = std::thread::scope(|scope| {
        let change = scope.spawn(|| {
            set_size(&one, node, 1);
            begun.elapsed()
        });
        let (mut believed, mut late) = (Duration::ZERO, Vec::new());
        while late.is_empty() {
            let question = ask();
            match question.is_there_within(Duration::from_millis(20)) {
                true => believed = begun.elapsed(),
                false => late.push(question),
            }
        }
        let took = change.join().expect("no panic");
        late.push(ask());
        gate.go_on();
        let sizes: Vec<u64> = late
            .iter()
            .map(|question| split::<AttrOut>(&question.wait().expect("attributes")).expect("attributes").0.attr.size)
            .collect();
        // The first was asked before the change was answered.
        assert_eq!(sizes.last(), Some(&1), "{sizes:?}");
        (believed, took)
    });
    site.hand_over(serving);
    times
}

#[test]
fn a_machine_that_may_not_be_heard_believes_nothing_before_others_go_on_without_it() {
    for is_to_owner in [true, false] {
        let (believed, took) = cut_one_way(is_to_owner);
        assert!(believed < Duration::from_millis(4200), "it believed for {believed:?}");
        assert!(took > Duration::from_secs(3), "a change waited for who believes otherwise: {took:?}");
        assert!(took > believed, "{took:?}, {believed:?}");
        assert!(took < Duration::from_secs(7), "and not for long: {took:?}");
    }
}

/// One that is there and has much to tell is waited for, and longer than one that does not come back (P-239).
#[test]
fn the_next_owner_waits_for_a_machine_that_is_telling_what_it_has() {
    let site = Site::new();
    let serving = site.serve();
    let reader = site.client(1);
    let (node, handle) = reader.create(ROOT, "file", libc::O_RDWR).expect("a file");
    reader.fsync(node, handle).expect("durable");
    let (find, slow_to) = (site.finder(), Arc::new(std::sync::Mutex::new(None::<Gate>)));
    let through = Arc::clone(&slow_to);
    let writer = site.client_with(2, move || {
        let owner = find()?;
        let mut gate = through.lock().expect("no panic");
        let gate = gate.get_or_insert_with(|| Gate::new(owner.address.parse().expect("an address")));
        Some(stere_client::Announcement { address: gate.address.clone(), ..owner })
    });
    writer.lookup(ROOT, "file").expect("found");
    let (by_writer, _) = writer.open(node, libc::O_RDWR).expect("opened");
    for piece in 0..40 {
        writer.write(node, by_writer, piece * 8192, b"kept").expect("written");
    }
    site.announce(None);
    site.crash(serving);
    let gate = slow_to.lock().expect("no panic").take();
    drop(gate);
    let serving = site.serve_with_grace(Duration::from_secs(1));
    // The machine itself is fast, and its way to the owner is slow.
    until("it connects", || slow_to.lock().expect("no panic").is_some());
    slow_to.lock().expect("no panic").as_ref().expect("a gate").delay_ms.store(100, Ordering::SeqCst);
    let begun = Instant::now();
    let (by_reader, _) = reader.open(node, libc::O_RDONLY).expect("opened");
    let found = reader.read(node, by_reader, 39 * 8192, 4).expect("read");
    assert_eq!(found, b"kept", "after {:?}", begun.elapsed());
    assert!(begun.elapsed() > Duration::from_secs(2), "it was told slowly: {:?}", begun.elapsed());
    site.hand_over(serving);
}

#[test]
fn a_machine_that_is_gone_holds_up_nobody() {
    let site = Site::new();
    let serving = site.serve();
    let one = site.client(1);
    let other = site.client(2);
    let (node, _) = one.create(ROOT, "file", libc::O_RDWR).expect("a file");
    assert_eq!(other.lookup(ROOT, "file"), Ok((node, 0)));
    until_leased(&other, node);
    drop(other);
    let begun = Instant::now();
    set_size(&one, node, 1);
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    site.hand_over(serving);
}
