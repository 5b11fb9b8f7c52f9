//! What the owner says that others have changed, on its way to this machine's kernel.
//!
//! The kernel may make whoever tells it wait for a request that is under way, so the thread that receives answers never does.

use std::collections::VecDeque;

use fuse_wire::Notifier;
use parking_lot::{Condvar, Mutex};
use stere_machine_wire::Notice;

/// Notices that the kernel was not told yet; then the oldest is left out, and seen when the kernel asks again.
const QUEUE_MAX: usize = 65_536;

#[derive(Default)]
struct Queue {
    notices: VecDeque<Notice>,
    is_over: bool,
}

/// Notices for the kernel.
#[derive(Default)]
pub(crate) struct Notices {
    queue: Mutex<Queue>,
    arrived: Condvar,
}

impl Notices {
    pub fn push(&self, notice: Notice) {
        let mut queue = self.queue.lock();
        if queue.notices.len() == QUEUE_MAX {
            queue.notices.pop_front();
        }
        queue.notices.push_back(notice);
        drop(queue);
        self.arrived.notify_one();
    }

    pub fn end(&self) {
        self.queue.lock().is_over = true;
        self.arrived.notify_all();
    }

    /// Tells the kernel, until the end. For a thread of its own.
    pub fn tell(&self, notifier: impl Fn() -> Option<Notifier>) {
        loop {
            let notice = {
                let mut queue = self.queue.lock();
                while queue.notices.is_empty() && !queue.is_over {
                    self.arrived.wait(&mut queue);
                }
                if queue.is_over {
                    return;
                }
                queue.notices.pop_front()
            };
            let (Some(notice), Some(notifier)) = (notice, notifier()) else { continue };
            let told = match &notice {
                Notice::Inode { node, offset, length, .. } => notifier.invalidate_inode(*node, *offset, *length),
                Notice::Entry { parent, name } => notifier.invalidate_entry(*parent, name),
            };
            if let Err(error) = told {
                tracing::debug!(%error, "the kernel was not told of what another machine changed");
            }
        }
    }
}
