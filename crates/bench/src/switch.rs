//! A cable with a delay between two network namespaces, for kernels without netem: a TAP device at each end, and a thread that carries frames.
//!
//! Frames keep their order and their pace; each comes out so much later. Those that are longer than a limit vanish, as on a way whose MTU
//! nobody tells. The devices go when the cable does. The tests of stere with network namespaces include this file, too.

#![allow(dead_code, reason = "the program and the tests each use a part of it")]

use std::collections::VecDeque;
use std::ffi::CString;
use std::fs::File;
use std::io::{Error, ErrorKind, Read, Result, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// `TUNSETIFF`: makes a device, or attaches to it.
const SET_DEVICE: libc::Ioctl = 0x4004_54CA;
const NAME_BYTES: usize = 16;
const REQUEST_BYTES: usize = 40;
/// A frame without offloads fits.
const FRAME_BYTES_MAX: usize = 9216;
/// Frames on their way in one direction; what comes on top is lost, as in any switch.
const FRAMES_MAX: usize = 20_000;
/// How soon the end of a cable is noticed.
const LOOK: Duration = Duration::from_millis(100);

/// Moves the calling thread into a network namespace.
pub fn enter(namespace: &File) -> Result<()> {
    // SAFETY: takes a descriptor that is open, and changes this thread only.
    match unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) } {
        0 => Ok(()),
        _ => Err(Error::last_os_error()),
    }
}

/// A device in a namespace.
#[derive(Clone, Debug)]
pub struct End {
    pub namespace: String,
    pub device: String,
}

impl End {
    /// `NAMESPACE:DEVICE`.
    pub fn parse(text: &str) -> Result<End> {
        let (namespace, device) =
            text.split_once(':').ok_or(Error::new(ErrorKind::InvalidInput, "NAMESPACE:DEVICE"))?;
        Ok(End { namespace: namespace.into(), device: device.into() })
    }

    /// By a thread of its own: the device is made where the thread is.
    fn open(&self) -> Result<File> {
        let namespace = File::open(Path::new("/run/netns").join(&self.namespace))?;
        let device = self.device.clone();
        let opener = std::thread::spawn(move || {
            enter(&namespace)?;
            open_device(&device)
        });
        opener.join().unwrap_or_else(|_| Err(ErrorKind::Other.into()))
    }
}

fn open_device(device: &str) -> Result<File> {
    let path = CString::new("/dev/net/tun")?;
    // SAFETY: the path ends with a zero; the descriptor is ours alone.
    let file = unsafe {
        match libc::open(path.as_ptr(), libc::O_RDWR | libc::O_NONBLOCK | libc::O_CLOEXEC) {
            -1 => return Err(Error::last_os_error()),
            descriptor => File::from_raw_fd(descriptor),
        }
    };
    if device.len() >= NAME_BYTES {
        return Err(Error::new(ErrorKind::InvalidInput, "a device's name has at most 15 bytes"));
    }
    let mut request = [0; REQUEST_BYTES];
    request[..device.len()].copy_from_slice(device.as_bytes());
    let flags = (libc::IFF_TAP | libc::IFF_NO_PI) as u16;
    request[NAME_BYTES..NAME_BYTES + 2].copy_from_slice(&flags.to_ne_bytes());
    // SAFETY: the request is as long as the kernel's.
    match unsafe { libc::ioctl(file.as_raw_fd(), SET_DEVICE, request.as_mut_ptr()) } {
        0 => Ok(file),
        _ => Err(Error::last_os_error()),
    }
}

struct Settings {
    delay_ns: AtomicU64,
    longest_bytes: AtomicUsize,
    is_over: AtomicBool,
}

pub struct Switch {
    settings: Arc<Settings>,
    carrier: Option<JoinHandle<()>>,
}

impl Drop for Switch {
    fn drop(&mut self) {
        self.settings.is_over.store(true, Ordering::Relaxed);
        self.wait();
    }
}

impl Switch {
    /// Makes both devices; they are set up by whoever called.
    pub fn between(ends: [&End; 2], delay: Duration) -> Result<Switch> {
        let ends = [ends[0].open()?, ends[1].open()?];
        let settings = Arc::new(Settings {
            delay_ns: AtomicU64::new(delay.as_nanos() as u64),
            longest_bytes: AtomicUsize::new(FRAME_BYTES_MAX),
            is_over: AtomicBool::new(false),
        });
        let of_thread = settings.clone();
        let carrier = std::thread::spawn(move || carry(&of_thread, ends));
        Ok(Switch { settings, carrier: Some(carrier) })
    }

    /// Frames with more bytes vanish.
    pub fn eat_longer_than(&self, bytes: usize) {
        self.settings.longest_bytes.store(bytes, Ordering::Relaxed);
    }

    pub fn eat_nothing(&self) {
        self.eat_longer_than(FRAME_BYTES_MAX);
    }

    /// Until the cable is over.
    pub fn wait(&mut self) {
        if let Some(carrier) = self.carrier.take() {
            drop(carrier.join());
        }
    }
}

type Queue = VecDeque<(Instant, Vec<u8>)>;

fn carry(settings: &Settings, mut ends: [File; 2]) {
    // SAFETY: a number; it concerns this thread's timers only. They are late by 50 us otherwise.
    let _precise = unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) };
    let mut queues = [Queue::new(), Queue::new()];
    while !settings.is_over.load(Ordering::Relaxed) {
        let first = queues.iter().filter_map(|queue| queue.front()).map(|(due, _)| *due).min();
        wait_for(&ends, first.map_or(LOOK, |due| due.saturating_duration_since(Instant::now())).min(LOOK));
        let [one, other] = &mut ends;
        let [there, back] = &mut queues;
        if take(settings, one, there).is_err() || take(settings, other, back).is_err() {
            return;
        }
        give(other, there);
        give(one, back);
    }
}

fn wait_for(ends: &[File; 2], time: Duration) {
    let poll = |file: &File| libc::pollfd { fd: file.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    let mut polled = [poll(&ends[0]), poll(&ends[1])];
    let time = libc::timespec { tv_sec: time.as_secs() as _, tv_nsec: time.subsec_nanos() as _ };
    // SAFETY: two descriptors that are open; what it says is not used, both are read.
    let _ready = unsafe { libc::ppoll(polled.as_mut_ptr(), 2, &raw const time, std::ptr::null()) };
}

/// Takes what has arrived at an end; an error is the end of the device.
fn take(settings: &Settings, end: &mut File, queue: &mut Queue) -> Result<()> {
    let delay = Duration::from_nanos(settings.delay_ns.load(Ordering::Relaxed));
    let longest = settings.longest_bytes.load(Ordering::Relaxed);
    let mut frame = [0; FRAME_BYTES_MAX];
    // Not all there is: the other end has frames, too.
    for _ in 0..64 {
        match end.read(&mut frame) {
            Ok(length) if length <= longest && queue.len() < FRAMES_MAX => {
                queue.push_back((Instant::now() + delay, frame[..length].to_vec()));
            }
            Ok(_) => {}
            Err(error) if error.raw_os_error() == Some(libc::EBADFD) => return Err(error),
            // A device that is down says so; it may be up again.
            Err(_) => break,
        }
    }
    Ok(())
}

fn give(end: &mut File, queue: &mut Queue) {
    let now = Instant::now();
    while queue.front().is_some_and(|(due, _)| *due <= now) {
        if let Some((_, frame)) = queue.pop_front() {
            // One that is down takes nothing: the frame is lost.
            drop(end.write(&frame));
        }
    }
}
