//! Small reads of content without a worker: what a READ would have had to wait for is read by the ring of the thread that serves it, and
//! the request is tried again with what has arrived.
//!
//! A request that a device keeps waiting too long, or that did not get what it needs, goes to a worker like any other: there it is read
//! again, from other devices where the bytes are there too. What the slow device gives later is thrown away, and its memory kept until then.

use std::cell::RefCell;
use std::io;
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use fuse_wire::Request;
use stere_store::PendingRead;

use crate::front::Front;

/// A request that waits for its reads.
struct Parked {
    /// None once it has gone elsewhere.
    request: Option<(Request, Arc<Front>)>,
    arrived: Vec<PendingRead>,
    /// Reads that have not ended.
    missing: usize,
}

impl Parked {
    /// The worker does it.
    fn hand_over(&mut self) {
        if let Some((request, front)) = self.request.take() {
            front.hand_over(request);
        }
    }
}

/// One of its reads.
struct OneRead {
    read: PendingRead,
    parked: Rc<RefCell<Parked>>,
}

// SAFETY: the memory is that of the read's buffer, which says that it stays; nobody else has the read before it has ended.
unsafe impl fuse_wire::Reading for OneRead {
    fn file(&self) -> BorrowedFd<'_> {
        self.read.file()
    }

    fn offset(&self) -> u64 {
        self.read.offset()
    }

    fn memory(&mut self) -> &mut [u8] {
        self.read.memory()
    }

    fn patience(&self) -> Duration {
        self.read.timeout()
    }

    fn late(&mut self) {
        self.parked.borrow_mut().hand_over();
    }

    fn finished(mut self: Box<Self>, outcome: io::Result<usize>) {
        let is_whole = outcome.is_ok_and(|bytes| bytes == self.read.memory().len());
        let OneRead { read, parked } = *self;
        let ready = {
            let mut parked = parked.borrow_mut();
            assert!(parked.missing > 0, "a read ends that nobody waits for");
            parked.missing -= 1;
            match is_whole {
                true => parked.arrived.push(read),
                // Devices that fail are counted and gone around where reads may wait.
                false => parked.hand_over(),
            }
            let ready = if parked.missing == 0 { parked.request.take() } else { None };
            ready.map(|(request, front)| (request, front, std::mem::take(&mut parked.arrived)))
        };
        if let Some((request, front, arrived)) = ready {
            front.try_again(request, arrived);
        }
    }
}

/// Has the reads made by this thread's ring. The request comes back where it has none, or no room.
pub(crate) fn read(front: Arc<Front>, request: Request, reads: Vec<PendingRead>) -> Option<Request> {
    if reads.is_empty() || fuse_wire::room_beside() < reads.len() {
        return Some(request);
    }
    let missing = reads.len();
    let parked = Parked { request: Some((request, front)), arrived: Vec::with_capacity(missing), missing };
    let parked = Rc::new(RefCell::new(parked));
    for read in reads {
        let refused = fuse_wire::read_beside(Box::new(OneRead { read, parked: Rc::clone(&parked) }));
        assert!(refused.is_ok(), "there was room for all of them");
    }
    None
}
