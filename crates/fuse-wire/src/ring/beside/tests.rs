use super::*;
use io_uring::IoUring;
use std::cell::Cell;
use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::rc::Rc;

#[derive(Default)]
struct Seen {
    late: Cell<u32>,
    finished: RefCell<Vec<(Vec<u8>, io::Result<usize>)>>,
    dropped: Cell<u32>,
}

struct Test {
    file: UnixStream,
    memory: Vec<u8>,
    patience: Duration,
    seen: Rc<Seen>,
}

// SAFETY: a vector's memory stays where it is, and nobody touches it before `finished`.
unsafe impl Reading for Test {
    fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    fn offset(&self) -> u64 {
        0
    }

    fn memory(&mut self) -> &mut [u8] {
        &mut self.memory
    }

    fn patience(&self) -> Duration {
        self.patience
    }

    fn late(&mut self) {
        self.seen.late.set(self.seen.late.get() + 1);
    }

    fn finished(self: Box<Self>, outcome: io::Result<usize>) {
        self.seen.finished.borrow_mut().push((self.memory.clone(), outcome));
    }
}

impl Drop for Test {
    fn drop(&mut self) {
        self.seen.dropped.set(self.seen.dropped.get() + 1);
    }
}

/// A ring of its own for the reads of this thread, if the machine lets us have one.
struct Bed {
    ring: IoUring,
    beside: Beside,
    seen: Rc<Seen>,
}

impl Bed {
    fn new() -> Option<Bed> {
        let Ok(ring) = IoUring::new(128) else {
            eprintln!("SKIPPED: no io_uring here");
            return None;
        };
        open_to_this_thread();
        Some(Bed { ring, beside: Beside::default(), seen: Rc::default() })
    }

    /// Asks for a read of a device that answers when something is written to the other end.
    fn ask(&self, patience: Duration) -> Option<UnixStream> {
        let (file, answer) = UnixStream::pair().unwrap();
        let reading = Test { file, memory: vec![0; 4], patience, seen: Rc::clone(&self.seen) };
        read_beside(Box::new(reading)).ok().map(|()| answer)
    }

    fn submit(&mut self) {
        while let Some(entry) = self.beside.next_entry() {
            // SAFETY: `Beside` keeps the memory until the read completes.
            unsafe { self.ring.submission().push(&entry).unwrap() };
        }
        self.ring.submit().unwrap();
    }

    fn wait(&mut self) {
        self.ring.submit_and_wait(1).unwrap();
        let done: Vec<(u64, i32)> = self.ring.completion().map(|entry| (entry.user_data(), entry.result())).collect();
        done.into_iter().for_each(|(data, result)| self.beside.completed(data, result));
    }
}

#[test]
fn what_is_late_is_told_once_and_keeps_its_memory_until_it_comes() {
    let Some(mut bed) = Bed::new() else { return };
    let mut slow = bed.ask(Duration::from_millis(20)).unwrap();
    let later = bed.ask(Duration::from_millis(60)).unwrap();
    let mut waiting = bed.ask(Duration::from_secs(60)).unwrap();
    assert!(bed.beside.patience().is_none(), "nothing is under way");
    bed.submit();
    assert!(bed.beside.patience().unwrap() <= Duration::from_millis(20));
    bed.beside.tell_late();
    assert_eq!(bed.seen.late.get(), 0, "not late yet");
    std::thread::sleep(Duration::from_millis(25));
    bed.beside.tell_late();
    bed.beside.tell_late();
    assert_eq!(bed.seen.late.get(), 1);
    std::thread::sleep(Duration::from_millis(60));
    bed.beside.tell_late();
    assert_eq!(bed.seen.late.get(), 2, "each is told of once");
    assert!(bed.beside.patience().unwrap() > Duration::from_secs(30), "the last one has time");
    assert_eq!(bed.seen.dropped.get(), 0, "the kernel may still write to its memory");
    slow.write_all(b"late").unwrap();
    bed.wait();
    assert_eq!(bed.seen.finished.borrow()[0].0, b"late");
    assert_eq!(bed.seen.dropped.get(), 1);
    waiting.write_all(b"now").unwrap();
    bed.wait();
    assert!(matches!(&bed.seen.finished.borrow()[1], (bytes, Ok(3)) if bytes == b"now\0"));
    drop(later);
    bed.wait();
    assert!(!bed.beside.is_busy() && bed.beside.patience().is_none());
}

#[test]
fn several_are_under_way_at_once_and_no_more_than_there_is_room_for() {
    assert!(read_beside_of_no_ring(), "a thread without a ring takes no reads");
    let Some(mut bed) = Bed::new() else { return };
    let mut answers: Vec<UnixStream> = std::iter::from_fn(|| bed.ask(Duration::from_secs(60))).collect();
    assert_eq!(answers.len(), READS_MAX);
    assert_eq!(room_beside(), 0);
    bed.submit();
    // In reverse order, so that none waits for another.
    for (number, answer) in answers.iter_mut().enumerate().rev() {
        answer.write_all(&[number as u8; 4]).unwrap();
        bed.wait();
        assert_eq!(bed.seen.finished.borrow().last().unwrap().0, [number as u8; 4]);
    }
    assert_eq!(room_beside(), READS_MAX);
    close_to_this_thread();
    assert!(read_beside_of_no_ring());
}

fn read_beside_of_no_ring() -> bool {
    let (file, _answer) = UnixStream::pair().unwrap();
    let reading = Test { file, memory: vec![0; 4], patience: Duration::ZERO, seen: Rc::default() };
    read_beside(Box::new(reading)).is_err() && room_beside() == 0
}

#[test]
fn what_never_ends_is_never_freed() {
    let Some(mut bed) = Bed::new() else { return };
    let _answer = bed.ask(Duration::ZERO).unwrap();
    bed.submit();
    drop(std::mem::take(&mut bed.beside));
    assert_eq!(bed.seen.dropped.get(), 0);
}
