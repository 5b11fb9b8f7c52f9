//! What every log does, in each engine. Read next: `absence.rs`.

use std::sync::Barrier;

use stere_shared_log::{Bounds, Error, Put, SharedLog};

use crate::world::{POOL, Server};

crate::on_both!(
    a_log_is_put_read_and_trimmed,
    logs_are_made_listed_and_removed,
    machines_register_and_are_replaced_by_who_knows_them,
    registries_of_older_logs_are_made_on_demand,
    racing_handles_get_each_number_once,
    threads_of_one_handle_share_it
);

fn is_damaged<T>(outcome: Result<T, Error>) -> bool {
    matches!(outcome, Err(Error::Damaged { .. }))
}

fn a_log_is_put_read_and_trimmed(server: Server) {
    let log = server.create();
    let other = server.open();
    assert_eq!(log.bounds().unwrap(), Bounds { first: 1, next: 1 });
    assert_eq!(log.read(1, 1000).unwrap(), []);
    log.trim(5).unwrap();
    assert_eq!(log.bounds().unwrap(), Bounds { first: 1, next: 1 });
    assert!(is_damaged(log.put(2, b"past the end")));
    assert_eq!(log.put(1, b"one").unwrap(), Put::Mine);
    assert_eq!(log.put(1, b"one").unwrap(), Put::Mine, "again what is mine");
    assert_eq!(log.put(1, b"another").unwrap(), Put::Taken);
    assert_eq!(other.put(1, b"one").unwrap(), Put::Taken, "the same bytes of another");
    assert_eq!(other.put(2, b"").unwrap(), Put::Mine);
    assert!(is_damaged(log.put(4, b"past the end")));
    assert!(is_damaged(log.put(u64::MAX, b"past the end")));
    assert_eq!(log.put(0, b"before").unwrap(), Put::Taken);
    let large = vec![7; 1 << 20];
    for sequence in 3..=12 {
        assert_eq!(log.put(sequence, &large).unwrap(), Put::Mine);
    }
    let all = other.read(1, usize::MAX >> 1).unwrap();
    assert_eq!(all.iter().map(|record| record.sequence).collect::<Vec<_>>(), (1..=12).collect::<Vec<_>>());
    assert!(all[1].bytes.is_empty() && all[11].bytes == large);
    assert_eq!(other.read(2, 3 << 20).unwrap().len(), 4, "as many as fit");
    assert_eq!(other.read(3, 1).unwrap().len(), 1, "one, however large");
    assert_eq!(other.read(13, 1).unwrap(), []);
    log.trim(5).unwrap();
    log.trim(3).unwrap();
    assert_eq!(other.bounds().unwrap(), Bounds { first: 5, next: 13 });
    assert_eq!(other.put(4, b"late").unwrap(), Put::Taken);
    assert_eq!(log.put(4, &large).unwrap(), Put::Taken, "what is trimmed is nobody's");
    assert_eq!(other.read(4, 1).unwrap_err(), Error::Trimmed { asked: 4, first: 5 });
    log.trim(100).unwrap();
    assert_eq!(log.bounds().unwrap(), Bounds { first: 12, next: 13 }, "the last stays");
    assert_eq!(other.put(13, b"goes on").unwrap(), Put::Mine);
    assert_eq!(log.last_beat().unwrap(), b"");
    log.beat(b"lives").unwrap();
    log.beat(b"lives on").unwrap();
    assert_eq!(other.last_beat().unwrap(), b"lives on");
}

fn logs_are_made_listed_and_removed(server: Server) {
    let address = server.address();
    let why = |outcome: Result<_, Error>| outcome.map(|_: std::sync::Arc<dyn SharedLog>| ()).unwrap_err().to_string();
    assert_eq!(stere_log_engines::pools(&address).unwrap(), []);
    assert!(matches!(stere_log_engines::open(&address, POOL), Err(Error::Refused { .. })));
    server.create();
    let other = [0xff; 16];
    let log = stere_log_engines::create(&address, other, "test").unwrap();
    stere_log_engines::create(&address, POOL, "renamed").unwrap();
    let listed = [(POOL, "renamed".to_owned()), (other, "test".to_owned())];
    assert_eq!(stere_log_engines::pools(&address).unwrap(), listed);
    assert_eq!(log.put(1, b"one").unwrap(), Put::Mine);
    assert!(why(stere_log_engines::create(&address, other, "x")).contains("has a log there already"));
    assert!(why(stere_log_engines::open(&address, [1; 16])).contains("no log of pool 0101"));
    stere_log_engines::remove(&address, other).unwrap();
    assert!(matches!(stere_log_engines::remove(&address, other), Err(Error::Refused { .. })));
    assert!(matches!(log.put(2, b"two"), Err(Error::Refused { .. })));
    assert!(matches!(log.put(1, b"one"), Err(Error::Refused { .. })));
    assert!(matches!(log.beat(b"x"), Err(Error::Refused { .. })));
    assert!(matches!(log.trim(1), Err(Error::Refused { .. })));
    assert_eq!(stere_log_engines::pools(&address).unwrap(), listed[..1]);
}

/// Puts until so many are in; the numbers that were this handle's.
fn put_until(log: &dyn SharedLog, end: u64, name: u8) -> Vec<u64> {
    let mut mine = Vec::new();
    loop {
        let next = log.bounds().unwrap().next;
        if next > end {
            return mine;
        }
        match log.put(next, &[name; 100]).unwrap() {
            Put::Mine => mine.push(next),
            Put::Taken => {}
        }
    }
}

fn racing_handles_get_each_number_once(server: Server) {
    const END: u64 = 120;
    server.create();
    let handles: Vec<_> = (0..4).map(|_| server.open()).collect();
    let barrier = Barrier::new(handles.len());
    let mut all: Vec<(u64, u8)> = std::thread::scope(|scope| {
        let run = |(name, log): (usize, &std::sync::Arc<dyn SharedLog>)| {
            let (log, barrier) = (log.clone(), &barrier);
            scope.spawn(move || {
                barrier.wait();
                let mine = put_until(&*log, END, name as u8);
                mine.into_iter().map(|number| (number, name as u8)).collect::<Vec<_>>()
            })
        };
        let threads: Vec<_> = handles.iter().enumerate().map(run).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    all.sort_unstable();
    let numbers: Vec<u64> = all.iter().map(|(number, _)| *number).collect();
    let records = handles[0].read(1, 1 << 20).unwrap();
    assert_eq!(numbers, (1..records.len() as u64 + 1).collect::<Vec<_>>(), "each has exactly one owner");
    for ((_, name), record) in all.iter().zip(&records) {
        assert_eq!(record.bytes, [*name; 100], "record {}", record.sequence);
    }
}

fn threads_of_one_handle_share_it(server: Server) {
    let log = server.create();
    assert_eq!(log.put(1, b"one").unwrap(), Put::Mine);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..10 {
                    log.beat(b"beat").unwrap();
                    assert_eq!(log.read(1, 10).unwrap().len(), 1);
                    assert_eq!(log.put(1, b"one").unwrap(), Put::Mine);
                }
            });
        }
    });
}

fn machines_register_and_are_replaced_by_who_knows_them(server: Server) {
    let log = server.create();
    let other = server.open();
    let (one, two) = ([1; 16], [0xfe; 16]);
    assert_eq!(log.machines().unwrap(), []);
    assert_eq!(log.put_machine(two, None, b"second").unwrap(), Put::Mine);
    assert_eq!(log.put_machine(one, None, &[0, 255]).unwrap(), Put::Mine);
    assert_eq!(other.put_machine(one, None, &[0, 255]).unwrap(), Put::Mine, "the same again");
    assert_eq!(other.put_machine(one, None, b"other").unwrap(), Put::Taken);
    assert_eq!(other.put_machine(one, Some(b"other"), b"other").unwrap(), Put::Taken);
    assert_eq!(other.put_machine([9; 16], Some(b"other"), b"other").unwrap(), Put::Taken, "it has none");
    assert_eq!(other.put_machine(one, Some(&[0, 255]), b"other").unwrap(), Put::Mine);
    assert_eq!(log.put_machine(one, Some(&[0, 255]), b"late").unwrap(), Put::Taken);
    let all = [(one, b"other".to_vec()), (two, b"second".to_vec())];
    assert_eq!(log.machines().unwrap(), all);
    // Of racing changes one is made.
    let handles: Vec<_> = (0..4_u8).map(|name| (name, server.open())).collect();
    let made = std::thread::scope(|scope| {
        let put = |(name, log): &(u8, std::sync::Arc<dyn SharedLog>)| {
            log.put_machine(two, Some(b"second"), &[*name]).unwrap() == Put::Mine
        };
        let threads: Vec<_> = handles.iter().map(|handle| scope.spawn(move || put(handle))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).filter(|is_made| *is_made).count()
    });
    assert_eq!(made, 1);
    // Another pool's are its own, and what is removed is gone.
    let elsewhere = stere_log_engines::create(&server.address(), [0xff; 16], "test").unwrap();
    assert_eq!(elsewhere.machines().unwrap(), []);
    stere_log_engines::remove(&server.address(), POOL).unwrap();
    assert!(matches!(log.machines(), Err(Error::Refused { .. })));
    assert!(matches!(log.put_machine(one, None, b"x"), Err(Error::Refused { .. })));
    assert_eq!(server.create().machines().unwrap(), []);
}

fn registries_of_older_logs_are_made_on_demand(server: Server) {
    let log = server.create();
    server.forget_machines();
    assert_eq!(log.machines().unwrap(), []);
    assert_eq!(log.put_machine([1; 16], None, b"one").unwrap(), Put::Mine);
    assert_eq!(server.open().machines().unwrap(), [([1; 16], b"one".to_vec())]);
    server.forget_machines();
    stere_log_engines::remove(&server.address(), POOL).unwrap();
}
