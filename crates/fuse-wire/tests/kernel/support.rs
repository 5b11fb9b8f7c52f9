//! What the mount tests share: the null file system with hooks, a mount that cleans up after itself, and the
//! question whether this machine lets us mount at all.
//!
//! A test that hangs in the kernel would hang for ever, so every mount has a watchdog that breaks the connection.

#[path = "../../examples/null/filesystem.rs"]
mod filesystem;

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use fuse_wire::{
    BlockDevice, Error, Filesystem, Negotiated, Notifier, Operation, Options, Request, Session, TransportChoice,
    Unmount,
};
use parking_lot::{Condvar, Mutex};

pub use filesystem::NullFilesystem;

pub const BOTH: [TransportChoice; 2] = [TransportChoice::IoUring, TransportChoice::Device];
/// Long enough for the slowest machine; only a failing test waits for so long.
const EVENTUALLY_MAX: Duration = Duration::from_secs(100);
pub const WATCHDOG: Duration = Duration::from_secs(300);

/// The null file system, with names that behave specially:
/// `slow-*` is looked up by a thread of its own once the gate opens, `dropped-*` is never answered,
/// `panic-*` panics. With `offload` on, data and attributes are answered by a pool of worker threads.
pub struct Hooked {
    pub null: Arc<NullFilesystem>,
    pub offload: AtomicBool,
    /// Slow requests wait for the gate whatever happens.
    pub ignore_cancel: AtomicBool,
    pub lookups: AtomicUsize,
    pub getattrs: AtomicUsize,
    pub syncfs: AtomicUsize,
    pub destroys: AtomicUsize,
    pub flushes: AtomicUsize,
    pub slow_waiting: AtomicUsize,
    pub slow_cancelled: AtomicUsize,
    pub interrupted: AtomicUsize,
    pub misaligned: AtomicUsize,
    gate: (Mutex<bool>, Condvar),
    workers: Mutex<mpsc::Sender<Request>>,
    this: std::sync::Weak<Hooked>,
}

impl Hooked {
    pub fn new() -> Arc<Self> {
        let (sender, receiver) = mpsc::channel::<Request>();
        let null = NullFilesystem::new(true, false);
        let receiver = Arc::new(Mutex::new(receiver));
        for _ in 0..3 {
            let (null, receiver) = (Arc::clone(&null), Arc::clone(&receiver));
            std::thread::spawn(move || {
                loop {
                    let Ok(request) = receiver.lock().recv() else { return };
                    null.handle(request);
                }
            });
        }
        let zero = || AtomicUsize::new(0);
        Arc::new_cyclic(|this| Self {
            null,
            offload: AtomicBool::new(false),
            ignore_cancel: AtomicBool::new(false),
            lookups: zero(),
            getattrs: zero(),
            syncfs: zero(),
            destroys: zero(),
            flushes: zero(),
            slow_waiting: zero(),
            slow_cancelled: zero(),
            interrupted: zero(),
            misaligned: zero(),
            gate: (Mutex::new(false), Condvar::new()),
            workers: Mutex::new(sender),
            this: this.clone(),
        })
    }

    pub fn open_gate(&self) {
        *self.gate.0.lock() = true;
        self.gate.1.notify_all();
    }

    fn slow(&self, request: Request) {
        let this = self.this.upgrade().expect("the file system is alive while it is called");
        std::thread::spawn(move || {
            let cancel = request.cancel();
            this.slow_waiting.fetch_add(1, Ordering::SeqCst);
            let mut open = this.gate.0.lock();
            while !*open {
                this.gate.1.wait_for(&mut open, Duration::from_millis(10));
                if cancel.is_cancelled() && !this.ignore_cancel.load(Ordering::SeqCst) {
                    drop(open);
                    this.slow_cancelled.fetch_add(1, Ordering::SeqCst);
                    return request.reply_error(libc::EINTR);
                }
            }
            drop(open);
            this.null.handle(request);
        });
    }

    fn count(&self, request: &mut Request) {
        if !request.data_buffer().as_ptr().addr().is_multiple_of(4096) {
            self.misaligned.fetch_add(1, Ordering::SeqCst);
        }
        let counter = match request.operation() {
            Operation::Lookup { .. } => &self.lookups,
            Operation::Getattr { .. } => &self.getattrs,
            Operation::Syncfs { .. } => &self.syncfs,
            Operation::Destroy => &self.destroys,
            Operation::Write(write) if !write.data.as_ptr().addr().is_multiple_of(4096) => &self.misaligned,
            Operation::Flush { .. } => &self.flushes,
            Operation::Write(write) if write.data.as_ptr().addr() % 4096 != 0 => &self.misaligned,
            _ => return,
        };
        counter.fetch_add(1, Ordering::SeqCst);
    }
}

impl Filesystem for Hooked {
    fn init(&self, negotiated: &Negotiated, _notifier: Notifier) {
        assert!(negotiated.kernel_minor >= 31);
    }

    fn handle(&self, mut request: Request) {
        self.count(&mut request);
        if let Operation::Lookup { name, .. } = request.operation() {
            if name.starts_with(b"slow-") {
                return self.slow(request);
            }
            if name.starts_with(b"dropped-") {
                return drop(request);
            }
            assert!(!name.starts_with(b"panic-"), "a handler that panics, on purpose");
        }
        if self.offload.load(Ordering::Relaxed) && request.wants_answer() {
            let sent = self.workers.lock().send(request);
            return assert!(sent.is_ok(), "the workers are gone");
        }
        self.null.handle(request);
    }

    fn interrupted(&self, _unique: u64) {
        self.interrupted.fetch_add(1, Ordering::SeqCst);
    }
}

/// Breaks the connection of a test that takes too long; dropping it calls it off.
pub struct Watchdog {
    finished: Arc<AtomicBool>,
}

impl Watchdog {
    pub fn new(session: &Session) -> Self {
        let finished = Arc::new(AtomicBool::new(false));
        let (unmounter, seen) = (session.unmounter(), Arc::clone(&finished));
        std::thread::spawn(move || {
            let start = Instant::now();
            while start.elapsed() < WATCHDOG {
                if seen.load(Ordering::SeqCst) {
                    return;
                }
                std::thread::sleep(Duration::from_millis(100));
            }
            say(&format!("WATCHDOG: {:?} hangs, its mount is broken off", unmounter.mountpoint()));
            let _ = unmounter.unmount(Unmount::Force);
        });
        Self { finished }
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.finished.store(true, Ordering::SeqCst);
    }
}

/// A mount point, and a mount on it that is taken down however the test ends.
pub struct TestMount {
    pub path: PathBuf,
    pub filesystem: Arc<Hooked>,
    pub session: Option<Session>,
    _watchdog: Watchdog,
}

impl TestMount {
    pub fn new(choice: TransportChoice) -> Self {
        Self::with(choice, |_| {})
    }

    pub fn with(choice: TransportChoice, change: impl FnOnce(&mut Options)) -> Self {
        let mut options = options(choice);
        change(&mut options);
        let path = mount_point();
        let filesystem = Hooked::new();
        let session = Session::mount(Arc::clone(&filesystem), &path, &options)
            .unwrap_or_else(|error| panic!("mounting over {choice:?}: {error}"));
        let watchdog = Watchdog::new(&session);
        Self { path, filesystem, session: Some(session), _watchdog: watchdog }
    }

    pub fn session(&self) -> &Session {
        self.session.as_ref().expect("not unmounted yet")
    }

    /// Unmounts and waits for all threads; gives what the session ended with.
    pub fn finish(&mut self) -> Result<(), Error> {
        let session = self.session.take().expect("finished once");
        session.unmounter().unmount(Unmount::Normal)?;
        session.join()
    }
}

impl Drop for TestMount {
    fn drop(&mut self) {
        self.filesystem.open_gate();
        drop(self.session.take());
        let _ = std::fs::remove_dir(&self.path);
    }
}

pub fn options(choice: TransportChoice) -> Options {
    let mut options = Options::default();
    options.transport.choice = choice;
    options.mount.source = "test".to_owned();
    options.mount.subtype = "fuse-wire-test".to_owned();
    options.mount.block_device = BlockDevice::No;
    options
}

pub fn mount_point() -> PathBuf {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let path = std::env::temp_dir().join(format!("fuse-wire-test-{}-{number}", std::process::id()));
    std::fs::create_dir_all(&path).expect("a temporary directory can be made");
    path
}

/// Waits for something that happens a little later. False: it did not.
pub fn eventually(mut condition: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    while start.elapsed() < EVENTUALLY_MAX {
        if condition() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    condition()
}

/// A child that signals end, whatever this process was started with: ignored and blocked signals are inherited.
pub fn hearing_signals(command: &mut Command) -> &mut Command {
    let listen = || {
        // SAFETY: both calls are async-signal-safe; an empty set is a valid one.
        unsafe {
            let mut nothing: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&raw mut nothing);
            libc::signal(libc::SIGTERM, libc::SIG_DFL);
            libc::sigprocmask(libc::SIG_SETMASK, &raw const nothing, std::ptr::null_mut());
        }
        Ok(())
    };
    // SAFETY: `listen` allocates nothing and takes no lock.
    unsafe { command.pre_exec(listen) }
}

/// Why mounting cannot be tested on this machine, or nothing.
pub fn obstacle() -> Option<&'static str> {
    // SAFETY: takes nothing, cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        Some("not root")
    } else if !Path::new("/dev/fuse").exists() {
        Some("no /dev/fuse")
    } else {
        None
    }
}

/// The transports to test, after it was told loudly what cannot be tested.
pub fn transports(test: &str) -> Vec<TransportChoice> {
    if let Some(why) = obstacle() {
        say(&format!("SKIPPED, NOTHING WAS TESTED: {test}: {why}"));
        return Vec::new();
    }
    if io_uring_works() {
        return BOTH.to_vec();
    }
    say(&format!("SKIPPED OVER IO_URING: {test}: the kernel has no FUSE over io_uring"));
    vec![TransportChoice::Device]
}

fn io_uring_works() -> bool {
    static WORKS: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
    *WORKS.get_or_init(|| {
        let path = mount_point();
        let mounted = Session::mount(Hooked::new(), &path, &options(TransportChoice::IoUring));
        if let Err(error) = &mounted {
            say(&error.to_string());
        }
        let works = mounted.is_ok();
        drop(mounted);
        let _ = std::fs::remove_dir(&path);
        works
    })
}

/// Past the capture of the test harness: a skipped test must be seen.
pub fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "fuse-wire: {text}");
}
