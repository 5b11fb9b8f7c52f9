//! A connection to a client: a thread that sends what others queue, and a count of what is unanswered.
//!
//! Nobody who answers a request waits for a client: frames are queued, and a client that sends requests faster than it takes answers is
//! not read any further. Invariant: what is queued was charged when its request came, so the queue is bounded with that.

use std::collections::VecDeque;
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use stere_machine_wire::{Frame, Notice, Outgoing, PING_EVERY_SECONDS};

use crate::greet::ToClient;

/// Bytes of requests and answers of one client that may be under way.
const UNDER_WAY_BYTES_MAX: usize = 64 << 20;
/// How long a client's further requests wait for that before its connection is given up.
const PATIENCE: Duration = Duration::from_secs(120);
/// Notices that a client has not taken; then its connection is given up, and it forgets all that it knows.
const NOTICES_MAX: usize = 65_536;

#[derive(Default)]
struct Queue {
    frames: VecDeque<(Vec<u8>, Option<Charge>)>,
    notices: usize,
    is_cut: bool,
}

/// One connection.
pub(crate) struct Connection {
    socket: TcpStream,
    queue: Mutex<Queue>,
    arrived: Condvar,
    under_way: Mutex<usize>,
    relieved: Condvar,
}

/// Bytes that are under way as long as this lives.
pub(crate) struct Charge {
    connection: Arc<Connection>,
    bytes: usize,
}

impl Drop for Charge {
    fn drop(&mut self) {
        let mut under_way = self.connection.under_way.lock();
        assert!(*under_way >= self.bytes, "what was charged is given back once");
        *under_way -= self.bytes;
        drop(under_way);
        self.connection.relieved.notify_all();
    }
}

impl Connection {
    pub fn new(socket: TcpStream) -> Arc<Connection> {
        Arc::new(Connection {
            socket,
            queue: Mutex::default(),
            arrived: Condvar::new(),
            under_way: Mutex::new(0),
            relieved: Condvar::new(),
        })
    }

    /// Ends it; both threads notice.
    pub fn cut(&self) {
        self.queue.lock().is_cut = true;
        self.arrived.notify_all();
        self.relieved.notify_all();
        // It may be gone already.
        drop(self.socket.shutdown(Shutdown::Both));
    }

    pub fn is_cut(&self) -> bool {
        self.queue.lock().is_cut
    }

    /// Queues a frame.
    pub fn send(&self, frame: Vec<u8>, charge: Option<Charge>) {
        let mut queue = self.queue.lock();
        if queue.is_cut {
            return;
        }
        queue.frames.push_back((frame, charge));
        drop(queue);
        self.arrived.notify_one();
    }

    /// Queues a frame that no request asked for.
    pub fn tell(&self, frame: &Frame<'_>) {
        let mut queue = self.queue.lock();
        if queue.is_cut {
            return;
        }
        queue.notices += 1;
        if queue.notices > NOTICES_MAX {
            drop(queue);
            tracing::warn!("a machine does not take what it is told: its connection is given up");
            return self.cut();
        }
        queue.frames.push_back((frame.encode(), None));
        drop(queue);
        self.arrived.notify_one();
    }

    /// Tells what others change.
    pub fn notify(&self, notices: &[Notice]) {
        notices.iter().for_each(|notice| self.tell(&Frame::Notify(notice.clone())));
    }

    /// Waits until so many bytes may be under way too. `None`: the connection is over.
    pub fn charge(self: &Arc<Self>, bytes: usize) -> Option<Charge> {
        let deadline = Instant::now() + PATIENCE;
        let mut under_way = self.under_way.lock();
        while *under_way > 0 && *under_way + bytes > UNDER_WAY_BYTES_MAX {
            if self.relieved.wait_until(&mut under_way, deadline).timed_out() || self.is_cut() {
                return None;
            }
        }
        *under_way += bytes;
        drop(under_way);
        Some(Charge { connection: Arc::clone(self), bytes })
    }

    /// Sends what is queued, and a ping where nothing is, until the connection is over. For a thread of its own.
    pub fn serve(&self, mut outgoing: Outgoing<ToClient>) {
        loop {
            let (frame, charge) = {
                let mut queue = self.queue.lock();
                if queue.frames.is_empty() && !queue.is_cut {
                    self.arrived.wait_for(&mut queue, Duration::from_secs(PING_EVERY_SECONDS));
                }
                if queue.is_cut {
                    let unsent = std::mem::take(&mut queue.frames);
                    drop(queue);
                    return drop(unsent);
                }
                match queue.frames.pop_front() {
                    Some((frame, charge)) => {
                        queue.notices = queue.notices.saturating_sub(usize::from(charge.is_none()));
                        (frame, charge)
                    }
                    None => (Frame::Ping.encode(), None),
                }
            };
            if outgoing.send_encoded(frame).is_err() {
                self.cut();
            }
            drop(charge);
        }
    }
}
