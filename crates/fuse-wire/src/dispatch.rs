//! The dispatcher: what both transports do with a request that arrived.
//!
//! It keeps the requests that are the protocol's own business (INTERRUPT, a FLUSH that is to be switched off)
//! and hands all others to the [`Filesystem`]. A handler that panics takes the session down: a file system in
//! an unknown state is not served on.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use crate::abi::opcode;
use crate::abi::structs::{InterruptIn, split};
use crate::awake::Awake;
use crate::error::Error;
use crate::init::Negotiated;
use crate::interrupt::Interrupts;
use crate::notify::Notifier;
use crate::operation::arguments::DecodeContext;
use crate::request::Request;

/// A file system as the transports see it.
pub trait Filesystem: Send + Sync + 'static {
    /// Called once, when the session is agreed on and before the first request.
    fn init(&self, negotiated: &Negotiated, notifier: Notifier) {
        let _ = (negotiated, notifier);
    }

    /// Answers a request, now or later. Called on a transport thread: on io_uring, requests of that CPU wait
    /// while this runs, so what takes long (or waits for a device) belongs on another thread; move the
    /// request there and answer it there. A small read can be given to the ring itself: `read_beside`.
    fn handle(&self, request: Request);

    /// The caller of request `unique` got a signal. `Cancel` tells it already; this is for handlers that
    /// sleep and must be woken.
    fn interrupted(&self, unique: u64) {
        let _ = unique;
    }

    /// The connection is over: nobody waits for an answer any more, but the session ends only when every request has one. For
    /// handlers that keep requests without an end. May be called several times.
    fn ended(&self) {}
}

impl<F: Filesystem> Filesystem for Arc<F> {
    fn init(&self, negotiated: &Negotiated, notifier: Notifier) {
        (**self).init(negotiated, notifier);
    }

    fn handle(&self, request: Request) {
        (**self).handle(request);
    }

    fn interrupted(&self, unique: u64) {
        (**self).interrupted(unique);
    }

    fn ended(&self) {
        (**self).ended();
    }
}

/// What all requests of a session share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub interrupts: Arc<Interrupts>,
    pub decode: DecodeContext,
    pub flush_unsupported: bool,
    /// The first reason why the session ended other than by unmounting.
    failure: Mutex<Option<Error>>,
    ended: AtomicBool,
}

impl Shared {
    pub fn new(interrupts: Arc<Interrupts>, decode: DecodeContext, flush_unsupported: bool) -> Arc<Self> {
        let (failure, ended) = (Mutex::new(None), AtomicBool::new(false));
        Arc::new(Self { interrupts, decode, flush_unsupported, failure, ended })
    }

    /// Keeps the first failure.
    pub fn fail(&self, error: Error) {
        self.failure.lock().get_or_insert(error);
        self.end();
    }

    pub fn has_failed(&self) -> bool {
        self.failure.lock().is_some()
    }

    pub fn take_failure(&self) -> Option<Error> {
        self.failure.lock().take()
    }

    /// The connection is over.
    pub fn end(&self) {
        self.ended.store(true, Ordering::Release);
        self.interrupts.end();
    }

    pub fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }
}

/// Hands requests on.
pub(crate) struct Dispatcher {
    pub filesystem: Arc<dyn Filesystem>,
    pub shared: Arc<Shared>,
    /// Breaks the connection, so that every thread of every transport ends.
    pub abort: Box<dyn Fn() + Send + Sync>,
    pub awake: Awake,
}

impl Dispatcher {
    pub fn dispatch(&self, request: Request) {
        self.awake.count();
        match request.opcode() {
            opcode::INTERRUPT => self.interrupt(&request),
            opcode::FLUSH if self.shared.flush_unsupported => request.reply_error(libc::ENOSYS),
            _ => {
                request.begin();
                let handled = catch_unwind(AssertUnwindSafe(|| self.filesystem.handle(request)));
                if handled.is_err() {
                    self.shared.fail(Error::HandlerPanicked);
                    (self.abort)();
                }
            }
        }
    }

    /// A reader has found that the connection is over.
    pub fn ended(&self) {
        if catch_unwind(AssertUnwindSafe(|| self.filesystem.ended())).is_err() {
            self.shared.fail(Error::HandlerPanicked);
        }
    }

    fn interrupt(&self, request: &Request) {
        if let Some((interrupt, _)) = split::<InterruptIn>(request.fixed_bytes()) {
            self.shared.interrupts.mark(interrupt.unique);
            let woken = catch_unwind(AssertUnwindSafe(|| self.filesystem.interrupted(interrupt.unique)));
            if woken.is_err() {
                self.shared.fail(Error::HandlerPanicked);
                (self.abort)();
            }
        }
    }
}
