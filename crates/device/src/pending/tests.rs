use super::*;
use std::fs::File;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

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
fn what_a_call_leaves_is_there_when_it_is_repeated() {
    let ended = Arc::new(AtomicU32::new(0));
    let find = |name| look(name, 2, <[u8]>::to_vec);
    assert!(!is_collecting());
    let ((), left) = collect(|| {
        assert!(is_collecting());
        assert_eq!(find([1, 2, 3]), None, "nothing has arrived while it is collected");
        leave(vec![read([1, 2, 3], b"abcd", &ended), read([1, 2, 4], b"efgh", &ended)]);
    });
    assert!(!is_collecting());
    assert_eq!((left.len(), left[0].offset(), ended.load(Ordering::Relaxed)), (2, 7, 0));
    with(left, || {
        assert!(!is_collecting(), "a call that is repeated leaves nothing");
        assert_eq!(find([1, 2, 3]).unwrap(), b"bc");
        assert_eq!(find([1, 2, 4]).unwrap(), b"fg");
        assert_eq!(find([1, 2, 5]), None);
        assert_eq!(look([1, 2, 3], 3, <[u8]>::to_vec), None, "bytes of another length are others");
    });
    assert_eq!(find([1, 2, 3]), None);
    assert_eq!(ended.load(Ordering::Relaxed), 2, "each read ends once");
}

#[test]
fn a_panic_switches_off() {
    let ended = Arc::new(AtomicU32::new(0));
    let work = std::panic::AssertUnwindSafe(|| {
        collect(|| {
            leave(vec![read([0; 3], b"abcd", &ended)]);
            panic!("on purpose")
        })
    });
    assert!(std::panic::catch_unwind(work).is_err());
    assert!(!is_collecting());
    assert_eq!(ended.load(Ordering::Relaxed), 1);
}
