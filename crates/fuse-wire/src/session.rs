//! A session: one mounted file system, from mount to the last thread's end.
//!
//! Order of things: the rings are set up (so that io_uring is only promised to the kernel when it works), the
//! file system is mounted, INIT is answered, the rings are registered, the /dev/fuse readers start. The end comes
//! from the kernel: unmounting breaks the connection, readers get ENODEV, ring entries die, threads return.
//! Read next: `device.rs`, `ring.rs`.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

use crate::abi::MIN_READ_BUFFER_BYTES;
use crate::abi::init;
use crate::awake::Awake;
use crate::buffer::Arena;
use crate::device::{Device, write_message};
use crate::dispatch::{Dispatcher, Filesystem, Shared};
use crate::error::Error;
use crate::init::{InitOptions, Negotiated, Reaction, Transport, answer_bytes, negotiate};
use crate::interrupt::Interrupts;
use crate::mount::{self, MountOptions, Mounted, Unmount, Unmounter};
use crate::notify::Notifier;
use crate::operation::arguments::DecodeContext;
use crate::ring::{RingShared, RingThread, possible_cpus};

#[cfg(test)]
mod tests;

const ENABLE_URING: &str = "/sys/module/fuse/parameters/enable_uring";

/// Which transport to use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TransportChoice {
    /// io_uring where the kernel has it, else /dev/fuse.
    #[default]
    Auto,
    /// io_uring, or the mount fails.
    IoUring,
    Device,
}

/// How requests are brought in.
#[derive(Clone, Debug)]
pub struct TransportOptions {
    pub choice: TransportChoice,
    /// Requests that can be under way at once on one CPU over io_uring. Each has room for `max_write_bytes`,
    /// taken from the machine when it is first used.
    pub ring_depth: usize,
    /// Threads that read /dev/fuse, where that is the transport.
    pub device_threads: usize,
    /// Requests that can be under way at once over /dev/fuse; reading waits while all are.
    pub device_depth: usize,
    /// While requests come thick and fast, idle CPUs poll instead of sleeping (`/dev/cpu_dma_latency`, where we may):
    /// requests then take half the time or less, for the power of a busy CPU.
    pub keep_cpus_awake: bool,
}

impl Default for TransportOptions {
    fn default() -> Self {
        Self {
            choice: TransportChoice::Auto,
            ring_depth: 8,
            device_threads: 2,
            device_depth: 128,
            keep_cpus_awake: true,
        }
    }
}

/// Everything that can be chosen about a session.
#[derive(Clone, Debug, Default)]
pub struct Options {
    pub mount: MountOptions,
    pub init: InitOptions,
    pub transport: TransportOptions,
}

/// A mounted file system being served. Dropping it unmounts by force; see `join`.
#[derive(Debug)]
pub struct Session {
    unmounter: Unmounter,
    notifier: Notifier,
    negotiated: Negotiated,
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    device: Arc<Device>,
    device_number: Option<String>,
}

impl Session {
    /// Mounts `filesystem` on `mountpoint` and serves it on threads of its own.
    ///
    /// # Errors
    /// Every [`Error`] says what to do about it. On an error nothing stays mounted.
    pub fn mount<F: Filesystem>(filesystem: F, mountpoint: &Path, options: &Options) -> Result<Self, Error> {
        validate(options)?;
        let rings = Rings::prepare(options)?;
        let mounted = mount::mount(mountpoint, &options.mount)?;
        let unmounter = mounted.unmounter.clone();
        let started = Self::start(Arc::new(filesystem), mounted, rings, options);
        if started.is_err() {
            // The mount has nobody to serve it; the error at hand matters more than one of unmounting.
            let _ = unmounter.unmount(Unmount::Force);
        }
        started
    }

    fn start(
        filesystem: Arc<dyn Filesystem>,
        mounted: Mounted,
        mut rings: Rings,
        options: &Options,
    ) -> Result<Self, Error> {
        let Mounted { file, unmounter, fuseblk } = mounted;
        let file = Arc::new(file);
        let mut negotiated = handshake(&file, &options.init, rings.ready())?;
        negotiated.syncfs = fuseblk;
        let over_ring = negotiated.transport == Transport::IoUring;
        if options.transport.choice == TransportChoice::IoUring && !over_ring {
            return Err(Error::IoUringUnavailable("the kernel did not offer it in INIT".to_owned()));
        }
        if let Some(bytes) = options.mount.read_ahead_bytes {
            mount::set_read_ahead(unmounter.mountpoint(), fuseblk, bytes);
        }
        let decode = DecodeContext {
            setxattr_extended: negotiated.flags & init::SETXATTR_EXT != 0,
            payload_bytes_max: payload_bytes(options),
        };
        let interrupts = Interrupts::new(rings.slots() + options.transport.device_depth);
        let shared = Shared::new(interrupts, decode, options.init.flush_unsupported);
        let breaker = unmounter.clone();
        let dispatcher = Arc::new(Dispatcher {
            filesystem: Arc::clone(&filesystem),
            shared: Arc::clone(&shared),
            abort: Box::new(move || drop(breaker.unmount(Unmount::Force))),
            awake: Awake::new(options.transport.keep_cpus_awake),
        });
        let notifier = Notifier::new(Arc::clone(&file));
        filesystem.init(&negotiated, notifier.clone());
        // A ring that is refused makes the kernel send everything over /dev/fuse.
        let over_ring = over_ring && rings.register(&file, &dispatcher)?;
        if !over_ring {
            negotiated.transport = Transport::Device;
            if options.transport.choice == TransportChoice::IoUring {
                return Err(Error::IoUringUnavailable("the kernel refused a ring".to_owned()));
            }
        }
        let mut threads = rings.into_threads();
        let readers = if over_ring { 1 } else { options.transport.device_threads };
        let depth = options.transport.device_depth;
        assert!(readers < depth, "{readers} readers would hold all of {depth} slots");
        let arena = Arena::new(depth, payload_bytes(options)).map_err(Error::Memory)?;
        let device = Device::new(file, arena, 0);
        threads.extend(start_readers(readers, &device, &dispatcher)?);
        let device_number = mount::device_number(unmounter.mountpoint());
        Ok(Self { unmounter, notifier, negotiated, shared, threads, device, device_number })
    }

    #[must_use]
    pub fn negotiated(&self) -> &Negotiated {
        &self.negotiated
    }

    #[must_use]
    pub fn notifier(&self) -> Notifier {
        self.notifier.clone()
    }

    /// A handle to unmount with, from any thread but those of handlers.
    #[must_use]
    pub fn unmounter(&self) -> Unmounter {
        self.unmounter.clone()
    }

    /// Whether the connection is over (unmounted, or broken).
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.shared.has_ended()
    }

    /// Waits until the file system is unmounted and every request was answered; all threads have ended then.
    ///
    /// # Errors
    /// Why the session ended, when it was not by unmounting.
    pub fn join(mut self) -> Result<(), Error> {
        self.join_threads();
        self.shared.take_failure().map_or(Ok(()), Err)
    }

    fn join_threads(&mut self) {
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                self.shared.fail(Error::HandlerPanicked);
            }
        }
        // Ring threads end after their last request; requests from the device may still be with workers.
        self.device.drain();
        if self.shared.has_failed() {
            self.clear_dead_mount();
        }
    }

    /// A connection that broke may leave a dead mount. One that was unmounted leaves none, and then the mount
    /// point and even the device number may be somebody else's already.
    fn clear_dead_mount(&mut self) {
        let number = mount::device_number(self.unmounter.mountpoint());
        if number.is_some() && number == self.device_number.take() {
            if let Err(error) = self.unmounter.unmount(Unmount::Lazy) {
                tracing::warn!(%error, "a dead mount is left");
            }
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if self.threads.is_empty() {
            return;
        }
        if let Err(error) = self.unmounter.unmount(Unmount::Force) {
            tracing::warn!(%error, "a session was dropped and cannot be unmounted: its threads go on");
            return;
        }
        self.join_threads();
    }
}

fn validate(options: &Options) -> Result<(), Error> {
    options.init.validate()?;
    let transport = &options.transport;
    for (option, value, max) in [
        ("ring_depth", transport.ring_depth, 1024),
        ("device_threads", transport.device_threads, 1024),
        ("device_depth", transport.device_depth, 65_536),
    ] {
        if value == 0 || value > max {
            return Err(Error::Option { option, value: value.to_string(), why: "it must be at least 1 and sensible" });
        }
    }
    if transport.device_depth <= transport.device_threads {
        let why = "it must be more than device_threads";
        return Err(Error::Option { option: "device_depth", value: transport.device_depth.to_string(), why });
    }
    Ok(())
}

/// Room for a request's payload or an answer; xattr values are up to 64 KiB whatever max_write is.
fn payload_bytes(options: &Options) -> usize {
    (options.init.max_write_bytes as usize).max(128 * 1024)
}

/// Reads INIT and answers it.
fn handshake(file: &File, options: &InitOptions, io_uring: bool) -> Result<Negotiated, Error> {
    let mut buffer = vec![0_u8; 2 * MIN_READ_BUFFER_BYTES];
    loop {
        // SAFETY: reads into a live buffer of that length.
        let read = unsafe { libc::read(file.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len()) };
        let Ok(bytes) = usize::try_from(read) else {
            let error = io::Error::last_os_error();
            if matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN | libc::ENOENT)) {
                continue;
            }
            return Err(Error::Connection(error));
        };
        let send = |unique, answer: &_| {
            write_message(file.as_raw_fd(), 0, unique, &[answer_bytes(answer)]).map_err(Error::Connection)
        };
        match negotiate(&buffer[..bytes], options, io_uring)? {
            Reaction::AskAgain { unique, answer } => send(unique, &answer)?,
            Reaction::Agreed { unique, answer, negotiated } => {
                send(unique, &answer)?;
                return Ok(negotiated);
            }
        }
    }
}

fn start_readers(
    count: usize,
    device: &Arc<Device>,
    dispatcher: &Arc<Dispatcher>,
) -> Result<Vec<JoinHandle<()>>, Error> {
    let start = |number: usize| {
        let (device, dispatcher) = (Arc::clone(device), Arc::clone(dispatcher));
        let builder = std::thread::Builder::new().name(format!("fuse-device-{number}"));
        builder.spawn(move || device.serve(&dispatcher)).map_err(Error::Thread)
    };
    (0..count).map(start).collect()
}

/// What a ring's thread is told after INIT.
enum Order {
    Register(Arc<File>, Arc<Dispatcher>),
}

struct RingHandle {
    thread: JoinHandle<()>,
    orders: mpsc::Sender<Order>,
    registered: mpsc::Receiver<io::Result<()>>,
}

/// The ring threads, before they serve. Dropping it ends those that were not registered.
struct Rings {
    handles: Vec<RingHandle>,
    depth: usize,
}

impl Rings {
    /// Sets up one ring a CPU, or none where io_uring is not to be had.
    fn prepare(options: &Options) -> Result<Self, Error> {
        let depth = options.transport.ring_depth;
        let mut rings = Self { handles: Vec::new(), depth };
        let choice = options.transport.choice;
        if choice == TransportChoice::Device {
            return Ok(rings);
        }
        let enabled = enable_io_uring();
        if !enabled && choice == TransportChoice::Auto {
            return Ok(rings);
        }
        for queue in 0..possible_cpus() {
            match start_ring(queue, depth, options) {
                Ok(handle) => rings.handles.push(handle),
                Err(error) if choice == TransportChoice::IoUring => {
                    return Err(Error::IoUringUnavailable(error.to_string()));
                }
                Err(error) => {
                    tracing::info!(%error, "no io_uring, using /dev/fuse");
                    return Ok(Self { handles: Vec::new(), depth });
                }
            }
        }
        Ok(rings)
    }

    fn ready(&self) -> bool {
        !self.handles.is_empty()
    }

    fn slots(&self) -> usize {
        self.handles.len() * self.depth
    }

    /// Hands the rings to the kernel. False: it did not take one of them.
    fn register(&mut self, file: &Arc<File>, dispatcher: &Arc<Dispatcher>) -> Result<bool, Error> {
        for handle in &self.handles {
            let order = Order::Register(Arc::clone(file), Arc::clone(dispatcher));
            handle.orders.send(order).map_err(|_| Error::Thread(io::Error::other("a ring thread has ended")))?;
        }
        let mut all = true;
        for handle in &self.handles {
            let result = handle.registered.recv();
            let result = result.map_err(|_| Error::Thread(io::Error::other("a ring thread has ended")))?;
            if let Err(error) = result {
                tracing::warn!(%error, "the kernel refused a ring, using /dev/fuse");
                all = false;
            }
        }
        Ok(all)
    }

    fn into_threads(self) -> Vec<JoinHandle<()>> {
        // Dropping the senders ends the threads that got no order.
        self.handles.into_iter().map(|handle| handle.thread).collect()
    }
}

fn start_ring(queue: usize, depth: usize, options: &Options) -> io::Result<RingHandle> {
    let arena = Arena::new(depth, payload_bytes(options))?;
    let id = u16::try_from(queue).map_err(|_| io::Error::from_raw_os_error(libc::E2BIG))?;
    let interrupt_base = options.transport.device_depth + queue * depth;
    let shared = RingShared::new(id, arena, interrupt_base)?;
    let (orders, receive_order) = mpsc::channel();
    let (send_ready, ready) = mpsc::channel();
    let (send_registered, registered) = mpsc::channel();
    let builder = std::thread::Builder::new().name(format!("fuse-ring-{queue}"));
    let thread = builder.spawn(move || {
        let ring = RingThread::new(shared);
        let mut ring = match ring {
            Ok(ring) => ring,
            Err(error) => return drop(send_ready.send(Err(error))),
        };
        drop(send_ready.send(Ok(())));
        let Ok(Order::Register(file, dispatcher)) = receive_order.recv() else {
            return;
        };
        let result = ring.register(&file);
        drop(send_registered.send(result));
        ring.serve(&dispatcher);
    })?;
    ready.recv().map_err(|_| io::Error::other("a ring thread has ended"))??;
    Ok(RingHandle { thread, orders, registered })
}

/// Switches FUSE over io_uring on for new mounts where we may. True: it is on.
fn enable_io_uring() -> bool {
    let is_on = || std::fs::read_to_string(ENABLE_URING).is_ok_and(|text| text.trim() == "Y");
    if is_on() {
        return true;
    }
    if let Err(error) = std::fs::write(ENABLE_URING, "Y") {
        tracing::debug!(%error, "FUSE over io_uring cannot be switched on");
    }
    is_on()
}
