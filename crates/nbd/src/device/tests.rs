//! Against a server that does wrong on demand. P-233 and P-234.

mod server;

use super::*;
use crate::node::CONNECTIONS;
use server::{Breach, Manner, SIZE_BYTES, Server};
use stere_device::{Answering, Buffer};

const DEADLINE: Duration = Duration::from_millis(300);

fn open(server: &Server) -> NbdDevice {
    let device = NbdDevice::open(Path::new(&format!("nbd://127.0.0.1:{}/x", server.port)), Access::ReadWrite).unwrap();
    device.set_deadline(Some(Deadline::of_one_of_many(DEADLINE)));
    device
}

/// The only device of its pool that answers.
fn open_last(server: &Server) -> NbdDevice {
    let device = open(server);
    let answering = Arc::new(Answering::default());
    answering.set([0].into());
    device.set_deadline(Some(answering.deadline(0, DEADLINE)));
    device
}

fn until(what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(20), "{what} did not come about");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn pattern(seed: u8, length: usize) -> Vec<u8> {
    (0..length).map(|at| (at / 7) as u8 ^ seed | 1).collect()
}

fn is_silent(outcome: Result<(), DeviceError>) -> bool {
    matches!(outcome, Err(DeviceError::Silent { .. }))
}

#[test]
fn what_is_written_is_read() {
    for is_structured in [true, false] {
        let server = Server::start(is_structured);
        let device = open(&server);
        assert_eq!((device.size_bytes(), server.connections()), (SIZE_BYTES as u64, CONNECTIONS));
        // Longer than a request may be, in pieces that do not fit it.
        let bytes = pattern(3, 200 << 10);
        let shared = Buffer::copy_of(&bytes).share();
        let pieces = [0..4096, 4096..152 << 10, 152 << 10..200 << 10];
        let pieces = pieces.into_iter().map(|range| Piece::new(shared.clone(), range)).collect();
        let completion = Completion::new();
        device.submit_write_gathered(8192, pieces, completion.ticket(0));
        let errors = completion.wait();
        assert!(errors.is_empty(), "{errors:?}");
        device.flush().unwrap();
        let mut found = vec![0; bytes.len()];
        device.read(8192, &mut found).unwrap();
        assert!(found == bytes);
        // Neither aligned nor in one piece; and beside it a hole.
        let (mut first, mut last) = (vec![0; 1000], vec![0; 3000]);
        device
            .read_scattered(
                8192 - 100,
                &mut [Scatter::Into(&mut first), Scatter::Skip(100_000), Scatter::Into(&mut last)],
            )
            .unwrap();
        assert!(first[..100].iter().all(|byte| *byte == 0) && first[100..] == bytes[..900]);
        assert!(last == bytes[100_900..103_900]);
        device.discard(0, 4096).unwrap();
        assert!(device.read(SIZE_BYTES as u64 - 10, &mut [0; 11]).is_err());
        assert!(device.write_bytes(100, &[0; 4096]).is_err());
    }
}

/// P-233: no call waits longer than its deadline, and when the server answers again it is used again.
#[test]
fn a_server_that_falls_silent_holds_nobody_up() {
    let server = Server::start(true);
    let device = open(&server);
    device.write_bytes(0, &pattern(1, 4096)).unwrap();
    device.flush().unwrap();
    server.set(Manner::Silent);
    let begun = Instant::now();
    assert!(is_silent(device.write_bytes(4096, &pattern(2, 4096))));
    assert!(begun.elapsed() >= DEADLINE && begun.elapsed() < DEADLINE * 3, "{:?}", begun.elapsed());
    let begun = Instant::now();
    assert!(
        is_silent(device.flush()) && is_silent(device.read(0, &mut [0; 512])) && is_silent(device.discard(0, 4096))
    );
    assert!(begun.elapsed() < DEADLINE, "nothing new is asked of it: {:?}", begun.elapsed());
    assert!(device.silent_for().is_some() && device.silent_because().is_some());
    server.set(Manner::Right);
    until("its return", || device.silent_for().is_none());
    device.write_bytes(4096, &pattern(2, 4096)).unwrap();
    device.flush().unwrap();
    assert_eq!(server.byte(4096), pattern(2, 1)[0]);
}

/// Where a link is slow, or nobody knows, long requests go one behind the other: many connections would fill its queue.
#[test]
fn long_requests_share_a_connection_of_a_slow_link() {
    let server = Server::start(true);
    let device = open(&server);
    let mut state = device.node.state.lock();
    assert_eq!(state.connections.len(), CONNECTIONS);
    let mut used = |length: usize, latency_us: u32| {
        let mut used: Vec<_> = (0..2 * CONNECTIONS).filter_map(|_| state.connection_for(length, latency_us)).collect();
        assert_eq!(used.len(), 2 * CONNECTIONS);
        used.sort_by_key(Arc::as_ptr);
        used.dedup_by(|one, other| Arc::ptr_eq(one, other));
        used.len()
    };
    let (long, short) = (64 << 10, 4096);
    assert_eq!([used(long, 0), used(long, 6500), used(long, 600)], [1, 1, CONNECTIONS]);
    assert_eq!([used(short, 0), used(short, 6500), used(short, 600)], [CONNECTIONS; 3]);
}

/// P-233: a server that has much to do is busy, and not silent, although each request waits for longer than its deadline.
#[test]
fn a_busy_server_is_not_silent() {
    let server = Server::start(true);
    let device = open(&server);
    server.set(Manner::Slow(DEADLINE / 10));
    let begun = Instant::now();
    std::thread::scope(|scope| {
        let write = |number: u64| device.write_bytes(number * 8192, &pattern(1, 4096));
        let writers: Vec<_> = (0..20).map(|number| scope.spawn(move || write(number))).collect();
        writers.into_iter().for_each(|writer| writer.join().unwrap().unwrap());
    });
    assert!(begun.elapsed() > DEADLINE * 3 / 2, "it was busy for longer than a deadline: {:?}", begun.elapsed());
    assert!(device.silent_because().is_none());
}

/// P-233: one request that hangs while others are answered is given up, too: after three deadlines. One of which no other of its kind is answered,
/// after one.
#[test]
fn a_request_that_hangs_among_others_is_given_up() {
    let server = Server::start(true);
    let device = open(&server);
    let stuck = |ask_others: &(dyn Fn() + Sync)| {
        server.set(Manner::SitsOn(65_536));
        let took = std::thread::scope(|scope| {
            let begun = Instant::now();
            let stuck = scope.spawn(|| is_silent(device.write_bytes(65_536, &pattern(1, 4096))));
            while !stuck.is_finished() {
                ask_others();
            }
            assert!(stuck.join().unwrap());
            begun.elapsed()
        });
        server.set(Manner::Right);
        until("its return", || device.silent_because().is_none());
        took
    };
    let took = stuck(&|| drop(device.read(0, &mut [0; 4096])));
    assert!(took >= DEADLINE && took < DEADLINE * 5 / 2, "{took:?}");
    // Of four connections one hangs; what others write there is answered.
    let took = stuck(&|| drop(device.write_bytes(131_072, &pattern(2, 4096))));
    assert!(took >= DEADLINE * 3 && took < DEADLINE * 6, "{took:?}");
}

/// P-233: whenever the server falls silent or is restarted, between any two steps of a call.
#[test]
fn no_call_outlives_its_deadline_while_a_server_comes_and_goes() {
    let server = Server::start(true);
    let device = open(&server);
    let is_over = std::sync::atomic::AtomicBool::new(false);
    let longest = std::thread::scope(|scope| {
        let write = |number: u64| {
            let mut longest = Duration::ZERO;
            while !is_over.load(Ordering::Relaxed) {
                let begun = Instant::now();
                let _written = device.write_bytes(number * 8192, &pattern(1, 4096));
                let _flushed = if number == 0 { device.flush() } else { Ok(()) };
                let _read = device.read(number * 8192, &mut [0; 4096]);
                longest = longest.max(begun.elapsed());
            }
            longest
        };
        let writers: Vec<_> = (0..6).map(|number| scope.spawn(move || write(number))).collect();
        for round in 0..8 {
            std::thread::sleep(DEADLINE / 3);
            match round % 2 {
                0 => server.set(Manner::Silent),
                _ => server.restart(),
            }
            std::thread::sleep(DEADLINE * 2);
            server.set(Manner::Right);
            until("its return", || device.silent_for().is_none());
        }
        is_over.store(true, Ordering::Relaxed);
        writers.into_iter().map(|writer| writer.join().unwrap()).max().unwrap()
    });
    // Three calls, and a busy machine.
    assert!(longest < DEADLINE * 3 + Duration::from_secs(2), "{longest:?}");
}

/// A read that stops in the middle is given up, too, and its memory is not touched afterwards.
#[test]
fn a_read_that_stops_in_the_middle_is_given_up() {
    let server = Server::start(true);
    let device = open(&server);
    server.set(Manner::Silent);
    let begun = Instant::now();
    assert!(is_silent(device.read(0, &mut vec![0; 300 << 10])));
    assert!(begun.elapsed() < DEADLINE * 3);
    let outcome = device.read_scattered_or_leave(0, &mut [Scatter::Into(&mut [0; 512])]);
    assert!(is_silent(outcome));
}

/// P-234: what a server had acknowledged and not flushed is gone when it was restarted, and is written again.
#[test]
fn what_was_not_flushed_is_written_again() {
    let server = Server::start(true);
    let device = open(&server);
    device.write_bytes(0, &pattern(1, 4096)).unwrap();
    device.flush().unwrap();
    device.write_bytes(4096, &pattern(2, 4096)).unwrap();
    device.write_bytes(8192, &pattern(3, 4096)).unwrap();
    device.write_bytes(4096, &pattern(4, 4096)).unwrap();
    server.restart();
    until("its absence", || device.silent_for().is_some());
    until("its return", || device.silent_for().is_none());
    device.flush().unwrap();
    let mut found = [0; 12_288];
    device.read(0, &mut found).unwrap();
    assert!(found[..4096] == pattern(1, 4096) && found[4096..8192] == pattern(4, 4096));
    assert!(found[8192..] == pattern(3, 4096));
    // A flush that failed while it was away has told the loss, and nothing is written again.
    device.write_bytes(0, &pattern(5, 4096)).unwrap();
    server.restart();
    until("its absence", || device.silent_for().is_some());
    assert!(is_silent(device.flush()));
    until("its return", || device.silent_for().is_none());
    device.flush().unwrap();
    device.read(0, &mut found).unwrap();
    assert!(found[..4096] == pattern(1, 4096));
}

/// P-234: where not all of it is kept, the next flush fails, once.
#[test]
fn what_cannot_be_written_again_is_told_by_the_next_flush() {
    let server = Server::start(true);
    let device = open(&server);
    device.write_bytes(0, &pattern(1, 8192)).unwrap();
    // Partly over it.
    device.write_bytes(4096, &pattern(2, 8192)).unwrap();
    server.restart();
    until("its absence", || device.silent_for().is_some());
    until("its return", || device.silent_for().is_none());
    // Who asks whether it answers learns that, and nobody else is kept from learning of the loss.
    device.answers().unwrap();
    assert!(is_silent(device.flush()));
    device.flush().unwrap();
}

/// P-236: where no other device answers, nothing fails: who writes waits, through silence and restarts.
#[test]
fn the_last_device_is_waited_for() {
    let server = Server::start(true);
    let device = open_last(&server);
    let paused = server.clone();
    server.set(Manner::Silent);
    let wakes = std::thread::spawn(move || {
        std::thread::sleep(DEADLINE * 4);
        paused.set(Manner::Right);
    });
    let begun = Instant::now();
    device.write_bytes(0, &pattern(1, 4096)).unwrap();
    assert!(begun.elapsed() >= DEADLINE * 4 && device.silent_for().is_none());
    wakes.join().unwrap();
    // It is restarted, with a write not flushed, one under way, and one that comes while it is away.
    device.write_bytes(4096, &pattern(2, 4096)).unwrap();
    server.set(Manner::Silent);
    let (completion, data) = (Completion::new(), Buffer::copy_of(&pattern(3, 4096)).share());
    device.submit_write(8192, data, 0..4096, completion.ticket(0));
    std::thread::sleep(DEADLINE / 2);
    server.restart();
    until("its absence", || device.silent_because().is_some());
    server.set(Manner::Right);
    device.write_bytes(12_288, &pattern(4, 4096)).unwrap();
    assert!(completion.wait().is_empty());
    device.flush().unwrap();
    assert!(device.silent_because().is_none());
    for (number, at) in (1..=4u8).zip((0..).step_by(4096)) {
        assert_eq!(server.disk()[at..at + 4096], pattern(number, 4096));
    }
}

/// P-236: as soon as another device answers, the last one is waited for no longer.
#[test]
fn the_last_device_is_left_when_another_is_back() {
    let server = Server::start(true);
    let device = open(&server);
    let answering = Arc::new(Answering::default());
    answering.set([0, 1].into());
    device.set_deadline(Some(answering.deadline(0, DEADLINE)));
    let other = answering.deadline(1, DEADLINE);
    assert!(other.may_leave());
    server.set(Manner::Silent);
    let is_back = std::thread::spawn(move || {
        std::thread::sleep(DEADLINE * 3);
        other.is_back();
    });
    let begun = Instant::now();
    assert!(is_silent(device.write_bytes(0, &pattern(1, 4096))));
    assert!(begun.elapsed() >= DEADLINE * 3, "{:?}", begun.elapsed());
    assert!(device.silent_for().is_some());
    is_back.join().unwrap();
    server.set(Manner::Right);
    until("its return", || device.silent_for().is_none());
}

#[test]
fn errors_of_a_server_are_errors_of_the_call() {
    let server = Server::start(true);
    let device = open(&server);
    server.set(Manner::Fails(28));
    let outcome = device.write_bytes(0, &pattern(1, 4096));
    assert_eq!(outcome.unwrap_err().os_error(), Some(28));
    server.set(Manner::Right);
    device.write_bytes(0, &pattern(1, 4096)).unwrap();
    assert!(device.silent_for().is_none());
    // What a flush that failed has dropped nobody knows.
    server.set(Manner::Fails(5));
    assert!(device.flush().is_err());
    server.set(Manner::Right);
    assert!(matches!(device.flush(), Err(DeviceError::FlushFailed { .. })));
    assert!(matches!(device.write_bytes(0, &pattern(1, 4096)), Err(DeviceError::FlushFailed { .. })));
    assert!(device.answers().is_err());
    device.read(0, &mut [0; 4096]).unwrap();
}

/// A server that breaks the protocol is away, and nothing of what it said is believed.
#[test]
fn a_server_that_breaks_the_protocol_is_not_believed() {
    use Breach::{BytesElsewhere, BytesTwice, Garbage, OtherCookie, SimpleRead, TooFew};
    for breach in [OtherCookie, BytesTwice, BytesElsewhere, TooFew, SimpleRead, Garbage] {
        let server = Server::start(true);
        let device = open(&server);
        device.write_bytes(0, &pattern(1, 8192)).unwrap();
        device.flush().unwrap();
        server.set(Manner::Breaks(breach));
        assert!(is_silent(device.read(0, &mut [0; 8192])), "{breach:?}");
        server.set(Manner::Right);
        until("its return", || device.silent_for().is_none());
        let mut found = [0; 8192];
        device.read(0, &mut found).unwrap();
        assert!(found[..] == pattern(1, 8192), "{breach:?}");
    }
}

/// A device that comes back with another size is another one.
#[test]
fn a_server_that_comes_back_with_another_size_stays_away() {
    let server = Server::start(true);
    let device = open(&server);
    server.set_size(SIZE_BYTES as u64 / 2);
    server.restart();
    until("its absence", || device.silent_because().is_some_and(|why| why.contains("bring the right one back")));
    server.set_size(SIZE_BYTES as u64);
    until("its return", || device.silent_for().is_none());
    device.read(0, &mut [0; 4096]).unwrap();
}

/// P-235: a node that comes back with an older disk is not believed.
#[test]
fn a_server_that_comes_back_with_an_older_disk_stays_away() {
    let server = Server::start(true);
    let device = open(&server);
    device.write_bytes(0, &pattern(1, 8192)).unwrap();
    device.flush().unwrap();
    let older = server.disk();
    device.write_bytes(8192, &pattern(2, 8192)).unwrap();
    device.flush().unwrap();
    let newer = server.disk();
    server.set_disk(older);
    server.restart();
    until("its absence", || device.silent_because().is_some_and(|why| why.contains("older")));
    assert!(is_silent(device.read(8192, &mut [0; 4096])));
    server.set_disk(newer);
    until("its return", || device.silent_for().is_none());
    let mut found = [0; 8192];
    device.read(8192, &mut found).unwrap();
    assert!(found[..] == pattern(2, 8192));
}

/// As a server does that is still busy ending connections of a cable that was cut.
#[test]
fn a_connection_that_is_broken_off_is_made_once_more() {
    let server = Server::start(true);
    server.break_next(1);
    let device = open(&server);
    device.read(0, &mut [0; 4096]).expect("it is there");
    server.break_next(2);
    let address = format!("nbd://127.0.0.1:{}/disk", server.port);
    let outcome = NbdDevice::open(Path::new(&address), Access::ReadWrite);
    assert!(matches!(outcome, Err(DeviceError::Unreachable { .. })), "twice is not by chance");
}

#[test]
fn who_is_not_there_is_told_at_once() {
    let open =
        |place: String| NbdDevice::open(Path::new(&place), Access::ReadWrite).map(|_| ()).unwrap_err().to_string();
    let nobody = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
    assert!(open(format!("nbd://127.0.0.1:{nobody}/x")).contains("cannot be reached"));
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let begun = Instant::now();
    let said = open(format!("nbd://127.0.0.1:{port}/x"));
    assert!(begun.elapsed() < OPEN_TIMEOUT + Duration::from_secs(1), "{said}");
    let server = Server::start(true);
    assert!(open(format!("nbds://127.0.0.1:{}/x,ca=/nowhere", server.port)).contains("has no TLS"));
    assert!(open("nbd:///x".into()).contains("no host"));
}
