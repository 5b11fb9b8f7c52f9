//! The list of what is to be followed up survives being cut anywhere, and forgets nothing that was noted (P-130).

use std::fs;
use std::path::PathBuf;

use stere_stack::{QUEUE_FILE_NAME, Queue};

fn source(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("stere-queue-{name}-{}", std::process::id()));
    drop(fs::remove_dir_all(&path));
    fs::create_dir(&path).unwrap();
    path
}

fn paths(queue: &Queue) -> Vec<Vec<u8>> {
    queue.list().0.into_iter().map(|(path, _)| path).collect()
}

#[test]
fn what_was_noted_is_there_after_a_crash_and_what_was_served_is_not() {
    let source = source("crash");
    let queue = Queue::open(&source).unwrap();
    for path in [&b"a"[..], b"b/c d", b"\xff\n"] {
        queue.note(path, 5, true);
    }
    assert_eq!(queue.due(b"", 9), None, "all are open");
    queue.closed(b"a");
    let (path, given) = queue.due(b"", 9).unwrap();
    assert_eq!((&path[..], given.since_seconds), (&b"a"[..], 5));
    queue.served(&path, &given, Ok(()), 9);
    queue.closed(b"b/c d");
    let (path, given) = queue.due(b"", 9).unwrap();
    queue.served(&path, &given, Err("too bad".into()), 9);
    assert_eq!(queue.due(b"", 9), None, "it is tried later");
    let again = Queue::open(&source).unwrap();
    assert_eq!(paths(&again), [&b"b/c d"[..], b"\xff\n"]);
    assert_eq!(again.list().0[0].1.cause, "too bad");
    // Cut anywhere, what is before the cut holds.
    let whole = fs::read(source.join(QUEUE_FILE_NAME)).unwrap();
    let first_line = whole.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    for length in 0..whole.len() {
        fs::write(source.join(QUEUE_FILE_NAME), &whole[..length]).unwrap();
        let left = paths(&Queue::open(&source).unwrap());
        assert_eq!(left.len(), usize::from(length >= first_line), "cut at {length}");
    }
    fs::remove_dir_all(&source).unwrap();
}

#[test]
fn what_is_noted_while_it_is_served_stays_and_failures_end() {
    let source = source("again");
    let queue = Queue::open(&source).unwrap();
    queue.note(b"a", 5, false);
    let (path, given) = queue.due(b"", 9).unwrap();
    queue.note(b"a", 6, false);
    queue.served(&path, &given, Ok(()), 9);
    assert_eq!(paths(&queue), [b"a"]);
    let mut now = 10;
    while let Some((path, given)) = queue.due(b"", now) {
        queue.served(&path, &given, Err("no".into()), now);
        now += 1000;
    }
    let (list, _) = queue.list();
    assert!(list[0].1.is_given_up && list[0].1.failures == 8);
    // What is changed after that is followed up, after a crash too.
    assert_eq!(Queue::open(&source).unwrap().due(b"", now), None);
    let queue = Queue::open(&source).unwrap();
    queue.note(b"a", 7, false);
    let queue = Queue::open(&source).unwrap();
    assert!(queue.due(b"", now).is_some());
    assert_eq!(queue.retry(), 1);
    assert!(queue.due(b"", now).is_some());
    queue.note(b"dir/x", 5, false);
    queue.renamed(b"dir", b"other", 6);
    assert_eq!(paths(&queue), [&b"a"[..], b"dir/x", b"other/x"]);
    assert_eq!((queue.forget(false).unwrap(), queue.forget(true).unwrap()), (0, 3));
    assert_eq!(paths(&Queue::open(&source).unwrap()), Vec::<Vec<u8>>::new());
    fs::remove_dir_all(&source).unwrap();
}
