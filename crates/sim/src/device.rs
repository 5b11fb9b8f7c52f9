//! Simulated devices: sparse memory with a volatile cache that a crash empties in every possible way, and faults on demand.
//!
//! All devices of a history belong to one [`Machine`], which has the power switch: it can go off at any write or flush of any
//! device, and from then on everything fails until [`Machine::power_on`]. Everything runs inline; the same seed and the same
//! calls give the same bytes. Read next: `medium.rs` (one device's contents), `fault.rs`.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use parking_lot::Mutex;
use stere_device::pending::Source;
use stere_device::{
    Buffer, Deadline, Device, DeviceError, Operation, PendingRead, Piece, Scatter, Ticket, check_range,
};

use crate::accounts::OWNERS;
use crate::fault::{FaultKind, FaultRates};
use crate::hang::{Call, Patience};
use crate::library::Cabinet;
use crate::medium::{Ailment, Medium, Survival};
use crate::plugins::Played;
use crate::random::Random;
use crate::volume::VolumeState;

/// How long one operation takes on a device that is not slow, and on one that is.
const FAST_NS: u64 = 20_000;
const SLOW_NS: u64 = 30_000_000_000;
/// How long somebody waits who can have the bytes elsewhere.
const LEFT_NS: u64 = 500_000_000;
/// Reads, writes and flushes of one step of a history at most; a step that goes on for ever is found by it.
const ASKED_MAX: u64 = 300_000;

/// What all devices share: power, clock, chance.
pub struct Machine {
    pub(crate) state: Mutex<State>,
    /// What somebody does while a volume is read next.
    pub(crate) meanwhile: Mutex<Option<Meanwhile>>,
    /// Volumes that are tape libraries, by their numbers.
    pub(crate) libraries: Mutex<BTreeMap<usize, Arc<Cabinet>>>,
    /// Labels of volumes are read as a mount does it, since other media may be at their places.
    pub(crate) are_labels_read: AtomicBool,
    pub(crate) played: Played,
}

pub(crate) type Meanwhile = Box<dyn FnOnce() + Send>;

pub(crate) struct State {
    pub(crate) media: Vec<Medium>,
    pub(crate) volumes: Vec<VolumeState>,
    /// A medium that belongs to none of them.
    pub(crate) stranger: VolumeState,
    /// Nothing is wrong with volumes as long as somebody looks at what is really there.
    pub(crate) are_volumes_honest: bool,
    pub(crate) random: Random,
    /// Writes and flushes so far; these are the points where power can go.
    events: u64,
    /// To all devices, as they were asked.
    written_bytes: u64,
    /// Calls to devices that hang, by somebody who set no bound.
    pub(crate) waited_for_ever: u64,
    power_off_at: Option<u64>,
    /// The device that goes away at an event.
    away_at: Option<(u64, usize)>,
    /// Reads that waited for a slow device to the end.
    slow_reads: u64,
    /// The device that went away last, if it had writes then that were not flushed.
    went_unflushed: Option<usize>,
    pub(crate) is_off: bool,
    pub(crate) clock_ns: u64,
    /// Who does everything, a number of `accounts::OWNERS`.
    user: u8,
    /// What devices and volumes were asked for since the step of the history began.
    asked: u64,
    /// Running hash over all operations: two runs of one history must agree in it.
    trace: u64,
    faults_struck: Vec<(FaultKind, usize)>,
    /// Images before each write and flush, while `record_boundaries` is on.
    boundaries: Option<Vec<Vec<Medium>>>,
}

impl Machine {
    /// A machine without devices.
    pub fn new(random: Random) -> Arc<Machine> {
        let state = State {
            media: Vec::new(),
            volumes: Vec::new(),
            stranger: VolumeState::default(),
            are_volumes_honest: false,
            random,
            events: 0,
            written_bytes: 0,
            waited_for_ever: 0,
            power_off_at: None,
            away_at: None,
            went_unflushed: None,
            slow_reads: 0,
            is_off: false,
            clock_ns: 1_700_000_000_000_000_000,
            user: 0,
            asked: 0,
            trace: 0,
            faults_struck: Vec::new(),
            boundaries: None,
        };
        Arc::new(Machine {
            state: Mutex::new(state),
            meanwhile: Mutex::default(),
            libraries: Mutex::default(),
            are_labels_read: AtomicBool::new(false),
            played: Played::default(),
        })
    }

    /// Adds a device of zeros, and tells its number.
    pub fn add_device(self: &Arc<Machine>, size_bytes: u64, block_bytes: u32) -> usize {
        let mut state = self.state.lock();
        state.media.push(Medium::new(size_bytes, block_bytes));
        state.media.len() - 1
    }

    /// How many devices there ever were.
    pub fn device_count(&self) -> usize {
        self.state.lock().media.len()
    }

    /// Handles on all devices, in order.
    pub fn devices(self: &Arc<Machine>) -> Vec<Arc<dyn Device>> {
        let state = self.state.lock();
        let device = |(index, medium): (usize, &Medium)| {
            let (size_bytes, block_bytes) = (medium.size_bytes(), medium.block_bytes());
            Arc::new(SimDevice { machine: self.clone(), index, size_bytes, block_bytes }) as Arc<dyn Device>
        };
        state.media.iter().enumerate().map(device).collect()
    }

    /// Writes and flushes so far.
    pub fn events(&self) -> u64 {
        self.state.lock().events
    }

    /// What devices were asked to write so far.
    pub fn written_bytes(&self) -> u64 {
        self.state.lock().written_bytes
    }

    /// Lets power go off at the `events`-th write or flush from now on.
    pub fn power_off_after(&self, events: u64) {
        let mut state = self.state.lock();
        state.power_off_at = Some(state.events + events);
    }

    /// What is asked from now on is of another call: each of them must end, not all of one step together.
    pub fn count_anew(&self) {
        self.state.lock().asked = 0;
    }

    /// Cuts the power now.
    pub fn power_off(&self) {
        self.state.lock().is_off = true;
    }

    /// Whether the power is off.
    pub fn is_off(&self) -> bool {
        self.state.lock().is_off
    }

    /// Plays what a power cut does to each device's cache, and switches the power on again.
    pub fn power_on(&self, survival: &mut dyn FnMut(usize, &mut Random) -> Survival) {
        let State { media, random, is_off, power_off_at, .. } = &mut *self.state.lock();
        for (index, medium) in media.iter_mut().enumerate() {
            let survival = survival(index, random);
            medium.crash(&survival, random);
        }
        *is_off = false;
        *power_off_at = None;
    }

    /// Takes a device away at the `events`-th write or flush from now on, at once if that is 0. What it had not flushed survives
    /// in part.
    pub fn take_away_after(&self, device: usize, events: u64) {
        let mut state = self.state.lock();
        match events {
            0 => state.take_away(device),
            _ => state.away_at = Some((state.events + events, device)),
        }
    }

    /// As `take_away_after`, for ever.
    pub fn lose_after(&self, device: usize, events: u64) {
        self.state.lock().media[device].is_mortal = true;
        self.take_away_after(device, events);
    }

    /// Brings a device back, with what it held, as if it were plugged in: what it failed at before is forgotten. One that is not
    /// away stays, and one that is lost stays lost.
    pub fn bring_back(&self, device: usize) {
        let mut state = self.state.lock();
        state.away_at = None;
        if state.media[device].is_away && !state.media[device].is_mortal {
            state.media[device].is_away = false;
            state.media[device].reopen();
        }
    }

    /// Whether a device is away for ever.
    pub fn is_lost(&self, device: usize) -> bool {
        let medium = &self.state.lock().media[device];
        medium.is_away && medium.is_mortal
    }

    /// Numbers of the devices that are not there, for a time or for ever.
    pub fn absent(&self) -> Vec<usize> {
        let state = self.state.lock();
        (0..state.media.len()).filter(|device| state.media[*device].is_away).collect()
    }

    /// Whether a device is away that had writes when it went which were not flushed.
    pub fn went_unflushed(&self, device: usize) -> bool {
        let state = self.state.lock();
        state.media[device].is_away && state.went_unflushed == Some(device)
    }

    /// No device goes away that has not gone yet.
    pub fn cancel_away(&self) {
        self.state.lock().away_at = None;
    }

    /// Lets a device not do something from now on, or do everything again.
    pub fn set_ailment(&self, device: usize, ailment: Option<Ailment>) {
        self.state.lock().media[device].ailment = ailment;
    }

    /// Whether a device is away.
    pub fn is_away(&self, device: usize) -> bool {
        self.state.lock().media[device].is_away
    }

    /// Disarms a power cut that has not come yet.
    pub fn disarm(&self) {
        self.state.lock().power_off_at = None;
    }

    /// As closing and opening the devices: failed flushes are forgotten.
    pub fn reopen_devices(&self) {
        self.state.lock().media.iter_mut().for_each(Medium::reopen);
    }

    /// Sets how often faults strike a device.
    pub fn set_faults(&self, device: usize, rates: FaultRates) {
        self.state.lock().media[device].rates = rates;
    }

    /// Whether faults may strike a device.
    pub fn is_faulty(&self, device: usize) -> bool {
        self.state.lock().media[device].rates.any()
    }

    /// Faults that struck so far: kind and device.
    pub fn faults_struck(&self) -> Vec<(FaultKind, usize)> {
        self.state.lock().faults_struck.clone()
    }

    /// Notes a fault that was played from outside.
    pub fn note_fault(&self, kind: FaultKind, device: usize) {
        self.state.lock().faults_struck.push((kind, device));
    }

    /// A random number, as a caller of the stack draws one for it.
    pub fn draw(&self) -> u64 {
        self.state.lock().random.next_u64()
    }

    /// A stream of chance beside the machine's own, which goes on as if nobody had asked.
    pub fn side_stream(&self) -> Random {
        self.state.lock().random.clone().fork()
    }

    /// The clock, which goes on with every operation.
    pub fn now_ns(&self) -> u64 {
        self.state.lock().clock_ns
    }

    /// Who does everything from now on.
    pub fn set_user(&self, user: u8) {
        self.state.lock().user = user;
    }

    /// User and group that what is made now belongs to.
    pub fn owner(&self) -> (u32, u32) {
        OWNERS[usize::from(self.state.lock().user) % OWNERS.len()]
    }

    /// Reads that waited for a slow device to the end.
    pub fn slow_reads(&self) -> u64 {
        self.state.lock().slow_reads
    }

    /// Lets time pass between two steps of a history.
    pub fn begin_step(&self, nanoseconds: u64) {
        let mut state = self.state.lock();
        state.clock_ns += nanoseconds;
        state.asked = 0;
        state.volumes.iter_mut().for_each(VolumeState::begin_step);
    }

    /// Time goes by in which nothing happens.
    pub fn pass(&self, nanoseconds: u64) {
        self.state.lock().clock_ns += nanoseconds;
    }

    /// Hash over all that was done on all devices.
    pub fn trace(&self) -> u64 {
        self.state.lock().trace
    }

    /// Copies of all devices as they are; pages are shared, so this is cheap.
    pub fn images(&self) -> Vec<Medium> {
        self.state.lock().media.clone()
    }

    /// Puts copies back.
    pub fn set_images(&self, images: Vec<Medium>) {
        self.state.lock().media = images;
    }

    /// Another machine with copies of all devices, on which nothing goes wrong any more: what it does, this one does not see.
    pub fn fork(&self, random: Random) -> Arc<Machine> {
        let fork = Machine::new(random);
        {
            let (from, mut to) = (self.state.lock(), fork.state.lock());
            to.media = from.media.clone();
            to.media.iter_mut().for_each(|medium| (medium.rates, medium.hang) = (FaultRates::none(), None));
            to.volumes = from.volumes.clone();
            // They are only read there.
            fork.libraries.lock().clone_from(&self.libraries.lock());
            to.are_volumes_honest = true;
            to.clock_ns = from.clock_ns;
        }
        fork
    }

    /// How often faults strike a device.
    pub fn rates(&self, device: usize) -> FaultRates {
        self.state.lock().media[device].rates.clone()
    }

    /// Puts an old copy of one device back.
    pub fn set_image(&self, device: usize, image: Medium) {
        let mut state = self.state.lock();
        let medium = &mut state.media[device];
        let (rates, is_away, is_mortal) = (medium.rates.clone(), medium.is_away, medium.is_mortal);
        *medium = image;
        (medium.rates, medium.is_away, medium.is_mortal) = (rates, is_away, is_mortal);
    }

    /// From now on keeps an image before each write and flush.
    pub fn record_boundaries(&self) {
        self.state.lock().boundaries = Some(Vec::new());
    }

    /// The images kept so far; recording goes on.
    pub fn take_boundaries(&self) -> Vec<Vec<Medium>> {
        self.state.lock().boundaries.as_mut().map(std::mem::take).unwrap_or_default()
    }
}

impl State {
    fn take_away(&mut self, device: usize) {
        self.away_at = None;
        if self.media[device].is_away {
            return;
        }
        let State { media, random, went_unflushed, .. } = self;
        *went_unflushed = Some(device).filter(|device| media[*device].pending_count() > 0);
        media[device].crash(&Survival::Each { per_hundred: 50 }, random);
        media[device].is_away = true;
        let kind = if self.media[device].is_mortal { FaultKind::LostDevice } else { FaultKind::AwayDevice };
        self.faults_struck.push((kind, device));
    }

    fn strikes(&mut self, device: usize, kind: FaultKind) -> bool {
        let rate = self.media[device].rates.get(kind);
        let strikes = rate > 0 && self.random.chance(u64::from(rate), 1_000_000);
        if strikes {
            self.faults_struck.push((kind, device));
        }
        strikes
    }

    pub(crate) fn note(&mut self, device: usize, operation: u64, offset: u64, length: u64) {
        for word in [device as u64, operation, offset, length] {
            self.trace = (self.trace ^ word).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(17);
        }
    }

    /// Time, power and death, which all operations share. `Err` is the operating system's number.
    fn begin(&mut self, device: usize, call: Call) -> Result<(), i32> {
        self.begin_or_leave(device, call, SLOW_NS)
    }

    /// The same for somebody who waits so long at most.
    fn begin_or_leave(&mut self, device: usize, call: Call, patience_ns: u64) -> Result<(), i32> {
        if self.is_off {
            return Err(libc::EIO);
        }
        if self.media[device].is_away {
            return Err(libc::ENODEV);
        }
        self.count_request();
        let patience = if patience_ns < SLOW_NS { Patience::Until(patience_ns) } else { Patience::Deadline };
        self.answers(device, call, patience)?;
        if self.media[device].ailment == Some(Ailment::Silent) {
            self.clock_ns += SLOW_NS.min(patience_ns);
            return Err(if patience_ns < SLOW_NS { libc::ETIMEDOUT } else { libc::EIO });
        }
        let slow = self.strikes(device, FaultKind::SlowDevice);
        self.clock_ns += if slow { SLOW_NS.min(patience_ns) } else { FAST_NS };
        if slow && patience_ns < SLOW_NS {
            return Err(libc::ETIMEDOUT);
        }
        if !self.media[device].is_dead && self.strikes(device, FaultKind::DyingDevice) {
            self.media[device].is_dead = true;
        }
        if self.media[device].is_dead { Err(libc::EIO) } else { Ok(()) }
    }

    /// Counts a request; a step that never ends is found by it.
    pub(crate) fn count_request(&mut self) {
        self.asked += 1;
        assert!(
            self.asked < ASKED_MAX,
            "a step of the history asked more of devices and volumes than any should: it does not end"
        );
    }

    /// A point where power can go: true if it just went.
    pub(crate) fn boundary(&mut self) -> bool {
        if let Some(mut boundaries) = self.boundaries.take() {
            boundaries.push(self.media.clone());
            self.boundaries = Some(boundaries);
        }
        self.events += 1;
        if let Some((_, device)) = self.away_at.filter(|(at, _)| self.events >= *at) {
            self.take_away(device);
        }
        if self.power_off_at.is_some_and(|at| self.events >= at) {
            self.is_off = true;
        }
        self.is_off
    }

    fn read(&mut self, device: usize, offset: u64, buffer: &mut [u8], patience_ns: u64) -> Result<(), i32> {
        let begun_ns = self.clock_ns;
        self.begin_or_leave(device, Call::Read, patience_ns)?;
        self.slow_reads += u64::from(self.clock_ns - begun_ns >= SLOW_NS);
        self.note(device, 1, offset, buffer.len() as u64);
        let is_unreadable = self.media[device].ailment == Some(Ailment::Unreadable);
        if is_unreadable || self.strikes(device, FaultKind::TransientReadError) {
            return Err(libc::EIO);
        }
        if self.strikes(device, FaultKind::LatentReadError) {
            let at = offset + self.random.below(buffer.len() as u64);
            self.media[device].make_unreadable(at);
        }
        if self.strikes(device, FaultKind::BitRot) {
            let at = offset + self.random.below(buffer.len() as u64);
            let bit = self.random.below(8) as u32;
            self.media[device].flip(at, bit);
        }
        self.media[device].read(offset, buffer)
    }

    fn write(&mut self, device: usize, offset: u64, bytes: Vec<u8>) -> Result<(), i32> {
        match self.begin(device, Call::Write) {
            Err(libc::ETIME) if self.media[device].hang.as_ref().is_some_and(|hang| hang.has_just_begun()) => {
                self.leave_on_its_way(device, offset, bytes);
                return Err(libc::ETIME);
            }
            begun => begun?,
        }
        let check = u64::from(stere_format::crc32c(&bytes));
        self.note(device, 2 ^ (check << 8), offset, bytes.len() as u64);
        self.written_bytes += bytes.len() as u64;
        if self.boundary() {
            // The write that was under way may have arrived, wholly or in part.
            self.media[device].write(offset, bytes);
            return Err(libc::EIO);
        }
        if self.media[device].is_away {
            return Err(libc::ENODEV);
        }
        if self.media[device].has_flush_failed || self.media[device].ailment == Some(Ailment::Unwritable) {
            return Err(libc::EIO);
        }
        if self.strikes(device, FaultKind::FailedWrite) {
            if self.random.chance(1, 2) {
                let kept = self.random.below(bytes.len() as u64 + 1) as usize / 512 * 512;
                self.media[device].write(offset, bytes[..kept].to_vec());
            }
            return Err(libc::EIO);
        }
        if self.strikes(device, FaultKind::LostWrite) {
            return Ok(());
        }
        if self.strikes(device, FaultKind::MisdirectedWrite) {
            let blocks = (self.media[device].size_bytes() - bytes.len() as u64) / 4096;
            let near = (offset / 4096 + self.random.between(1, 64)).min(blocks);
            let elsewhere = if self.random.chance(1, 2) { near } else { self.random.below(blocks) };
            self.media[device].write(elsewhere * 4096, bytes);
            return Ok(());
        }
        self.media[device].write(offset, bytes);
        Ok(())
    }

    /// Advice: of half of the devices what was there stays there, the worse case for who reads what is free; of the others it is gone at
    /// once, without a flush, the worse case for who has it discarded before nobody needs it. Draws nothing, so histories stay as they were.
    fn discard(&mut self, device: usize, offset: u64, length: u64) -> Result<(), i32> {
        let medium = &mut self.media[device];
        if self.is_off || medium.is_away || medium.is_dead || medium.hang.is_some() {
            return Err(libc::EIO);
        }
        if device % 2 == 1 {
            medium.discard(offset, length);
        }
        Ok(())
    }

    fn flush(&mut self, device: usize) -> Result<(), i32> {
        self.begin(device, Call::Flush)?;
        self.note(device, 3, 0, 0);
        let is_unwritable = self.media[device].ailment == Some(Ailment::Unwritable);
        if self.boundary() || self.media[device].is_away || self.media[device].has_flush_failed || is_unwritable {
            return Err(libc::EIO);
        }
        if self.strikes(device, FaultKind::FailedFlush) {
            let State { media, random, .. } = self;
            media[device].crash(&Survival::Each { per_hundred: 50 }, random);
            media[device].has_flush_failed = true;
            return Err(libc::EIO);
        }
        if !self.strikes(device, FaultKind::LyingFlush) {
            self.media[device].flush();
        }
        Ok(())
    }
}

/// What stands behind a read that has been made already.
struct Nowhere(File);

impl Source for Nowhere {
    fn file(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    fn ended(&self) {}
}

/// A device of a machine, as the stack sees it.
pub struct SimDevice {
    machine: Arc<Machine>,
    index: usize,
    size_bytes: u64,
    block_bytes: u32,
}

impl SimDevice {
    fn name(&self) -> String {
        format!("simulated-{}", self.index)
    }

    fn error(&self, operation: Operation, offset: u64, number: i32) -> DeviceError {
        if number == libc::ETIME {
            return DeviceError::Silent { device: self.name() };
        }
        let source = Arc::new(std::io::Error::from_raw_os_error(number));
        DeviceError::Io { device: self.name(), operation, offset, source }
    }

    fn read_with(&self, offset: u64, buffer: &mut [u8], patience_ns: u64) -> Result<(), DeviceError> {
        check_range(&self.name(), Operation::Read, offset, buffer.len() as u64, self.size_bytes)?;
        if buffer.is_empty() {
            return Ok(());
        }
        let outcome = self.machine.state.lock().read(self.index, offset, buffer, patience_ns);
        outcome.map_err(|number| match number {
            libc::ETIMEDOUT => DeviceError::TooSlow { device: self.name() },
            number => self.error(Operation::Read, offset, number),
        })
    }

    fn write_now(&self, offset: u64, bytes: Vec<u8>) -> Result<(), DeviceError> {
        let length = bytes.len() as u64;
        check_range(&self.name(), Operation::Write, offset, length, self.size_bytes)?;
        let block_bytes = u64::from(self.block_bytes);
        if offset % block_bytes != 0 || length % block_bytes != 0 {
            let (device, operation) = (self.name(), Operation::Write);
            return Err(DeviceError::Unaligned { device, operation, offset, length, block_bytes: self.block_bytes });
        }
        let outcome = self.machine.state.lock().write(self.index, offset, bytes);
        outcome.map_err(|number| self.error(Operation::Write, offset, number))
    }
}

impl Device for SimDevice {
    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn block_bytes(&self) -> u32 {
        self.block_bytes
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), DeviceError> {
        self.read_with(offset, buffer, SLOW_NS)
    }

    /// Made at once; what fails or is slow goes the way of reads that wait.
    fn pending_read(&self, offset: u64, length: usize) -> Option<PendingRead> {
        let mut buffer = Buffer::zeroed(length);
        self.read_with(offset, &mut buffer, LEFT_NS).ok()?;
        let patience = Duration::from_nanos(LEFT_NS);
        Some(PendingRead::new(Box::new(Nowhere(File::open("/dev/null").ok()?)), offset, buffer, 0..length, patience))
    }

    fn read_scattered_or_leave(&self, offset: u64, pieces: &mut [Scatter<'_>]) -> Result<(), DeviceError> {
        let mut at = offset;
        for piece in pieces {
            let length = piece.length() as u64;
            if let Scatter::Into(slice) = piece {
                self.read_with(at, slice, LEFT_NS)?;
            }
            at += length;
        }
        Ok(())
    }

    fn submit_write_gathered(&self, offset: u64, pieces: Vec<Piece>, ticket: Ticket) {
        let mut bytes = Vec::with_capacity(stere_device::length_of(&pieces));
        pieces.iter().for_each(|piece| bytes.extend_from_slice(piece.bytes()));
        ticket.finish(self.write_now(offset, bytes));
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.machine.state.lock().flush(self.index).map_err(|number| self.error(Operation::Flush, 0, number))
    }

    fn discard(&self, offset: u64, length: u64) -> Result<(), DeviceError> {
        check_range(&self.name(), Operation::Discard, offset, length, self.size_bytes)?;
        let outcome = self.machine.state.lock().discard(self.index, offset, length);
        outcome.map_err(|number| self.error(Operation::Discard, offset, number))
    }

    fn latency_us(&self) -> u32 {
        self.machine.stalled_us(self.index)
    }

    fn set_deadline(&self, deadline: Option<Deadline>) {
        self.machine.set_deadline(self.index, deadline);
    }

    fn silent_for(&self) -> Option<Duration> {
        self.machine.silent_for(self.index)
    }

    fn describe(&self) -> String {
        format!("{} ({} bytes in memory)", self.name(), self.size_bytes)
    }
}

#[cfg(test)]
mod tests;
