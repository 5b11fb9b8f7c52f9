use super::*;
use crate::Buffer;
use crate::pending::Source;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

struct Counted {
    file: File,
    ended: Arc<AtomicU32>,
}

impl Source for Counted {
    fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    fn ended(&self) {
        self.ended.fetch_add(1, Ordering::Relaxed);
    }
}

fn read(name: Name, bytes: &[u8], ended: &Arc<AtomicU32>) -> PendingRead {
    let source = Counted { file: File::open("/dev/null").unwrap(), ended: Arc::clone(ended) };
    let wanted = 1..bytes.len() - 1;
    PendingRead::new(Box::new(source), 7, Buffer::copy_of(bytes), wanted, Duration::from_millis(50)).named(name)
}

#[test]
fn reads_that_a_call_leaves_are_there_when_it_is_repeated() {
    let ended = Arc::new(AtomicU32::new(0));
    assert!(!Io::NON_BLOCKING.collects_reads());
    let call = Call::collecting();
    let io = Io::NON_BLOCKING.of(&call);
    assert!(io.collects_reads() && io.skipping_offloaded().collects_reads());
    assert_eq!(io.look([1, 2, 3], 2, <[u8]>::to_vec), None, "nothing has arrived while reads are collected");
    io.leave_reads(vec![read([1, 2, 3], b"abcd", &ended), read([1, 2, 4], b"efgh", &ended)]);
    let left = call.into_reads();
    assert_eq!((left.len(), left[0].offset(), ended.load(Ordering::Relaxed)), (2, 7, 0));
    let call = Call::arrived(left);
    let io = Io::NON_BLOCKING.of(&call);
    assert!(!io.collects_reads(), "a call that is repeated leaves nothing");
    assert_eq!(io.look([1, 2, 3], 2, <[u8]>::to_vec).unwrap(), b"bc");
    assert_eq!(io.look([1, 2, 4], 2, <[u8]>::to_vec).unwrap(), b"fg");
    assert_eq!(io.look([1, 2, 5], 2, <[u8]>::to_vec), None);
    assert_eq!(io.look([1, 2, 3], 3, <[u8]>::to_vec), None, "bytes of another length are others");
    drop(call);
    assert_eq!(ended.load(Ordering::Relaxed), 2, "each read ends once");
}

#[test]
fn a_call_is_cancelled_and_refused_by_its_own_checks_only() {
    let gone = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&gone);
    let call = Call::cancelled_by(Cancellation::when(move || seen.load(Ordering::Acquire)));
    let io = Io::BLOCKING.of(&call);
    assert!(!io.is_cancelled() && !io.is_recall_refused());
    gone.store(true, Ordering::Release);
    assert!(io.is_cancelled() && io.cancellation().is_cancelled() && !Io::BLOCKING.is_cancelled());
    let call = Call::default().refusing_recalls(|| true);
    assert!(Io::BLOCKING.of(&call).is_recall_refused() && !Io::BLOCKING.of(&call).is_cancelled());
}

#[test]
fn says_what_it_may_wait_for() {
    let facts = |io: Io<'_>| (io.may_block(), io.may_recall(), io.skips_offloaded());
    assert_eq!(facts(Io::NON_BLOCKING), (false, false, false));
    assert_eq!(facts(Io::DEVICES_ONLY), (true, false, false));
    assert_eq!(facts(Io::BLOCKING.skipping_offloaded()), (true, true, true));
}
