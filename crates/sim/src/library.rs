//! Volumes that are tape libraries: the robot crate with all it does, on its simulated arm, drives and cartridges.
//!
//! A library shares the power and the clock of its machine: power goes off in the middle of a put, and then any part of what was
//! written is on a cartridge. A mount begins with no catalogue, so every cartridge is looked at again. Cartridges are small: objects
//! meet the end of the medium, and go to the next one. While something is wrong with it (a cartridge fell down, bar codes are on each
//! other's cartridges, a block cannot be read, a drive does not answer) its reads and puts may fail; once people put it right
//! everything that was acknowledged is there, and other bytes it never gives. Drives that are switched off and on, and an arm that takes
//! the wrong cartridge, are nothing that anybody may notice. Read next: `volume.rs`, `medium_faults.rs`, `docs/design/robot.md`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use stere_device::{Cancellation, Medium, MediumWait, Take, Volume, VolumeError};
use stere_robot::simulated::{Configuration, Model, SimulatedLibrary};
use stere_robot::{Library, LibraryOptions, LibraryParts};

use crate::device::Machine;
use crate::random::Random;
use crate::volume::{away, name_of};

/// Of a cartridge, with its header.
const BLOCK_BYTES: u32 = 16 << 10;
/// Cartridges of a new library, and those that are put in when all are full.
const CARTRIDGES: u16 = 24;
const MORE_CARTRIDGES: usize = 16;
const DRIVES: u16 = 2;

/// What goes wrong with a library.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LibraryTrouble {
    /// The next cartridge that the arm moves falls down.
    Drops,
    /// Somebody takes a cartridge out of its slot.
    TakenOut,
    /// Two cartridges have each other's bar codes.
    BarCodesSwapped,
    /// A block cannot be read.
    Unreadable,
    /// A drive does not answer.
    Unplugged,
    /// The arm takes another cartridge than it was told, once.
    TakesAnother,
    /// All drives are switched off and on.
    Reset,
}

impl LibraryTrouble {
    pub const ALL: [LibraryTrouble; 7] = [
        LibraryTrouble::Drops,
        LibraryTrouble::TakenOut,
        LibraryTrouble::BarCodesSwapped,
        LibraryTrouble::Unreadable,
        LibraryTrouble::Unplugged,
        LibraryTrouble::TakesAnother,
        LibraryTrouble::Reset,
    ];

    /// The library makes good for it by itself.
    fn is_borne(self) -> bool {
        matches!(self, LibraryTrouble::TakesAnother | LibraryTrouble::Reset)
    }
}

/// A library as its machine keeps it: what stays when the power goes, and what works with it now.
pub(crate) struct Cabinet {
    name: String,
    simulated: SimulatedLibrary,
    library: Mutex<Arc<Library>>,
    is_wrong: AtomicBool,
    /// A drive was out of order: whoever mends it starts the library anew.
    was_unplugged: AtomicBool,
    random: Mutex<Random>,
}

fn open(simulated: &SimulatedLibrary, name: &str) -> Arc<Library> {
    let options =
        LibraryOptions { block_bytes: BLOCK_BYTES, clock: Some(simulated.clock()), ..LibraryOptions::new(name) };
    let drives = (0..simulated.drives()).map(|number| simulated.drive(number)).collect();
    let parts = LibraryParts { changer: Some(simulated.changer()), drives };
    Arc::new(Library::new(parts, options).expect("without a file for its catalogue nothing can fail"))
}

impl Cabinet {
    fn new(name: &str, chunk_bytes: u64, random: Random) -> Cabinet {
        let mut random = random;
        // One object fits at least, rarely more than three.
        let capacity_bytes = chunk_bytes + chunk_bytes * random.between(2, 12) / 4;
        let model = Model { capacity_bytes, warning_bytes: 64 << 10, compression: (700, 1000), ..Model::INSTANT };
        let mut configuration = Configuration::new(model, DRIVES, CARTRIDGES);
        configuration.seed = random.next_u64();
        let simulated = SimulatedLibrary::new(configuration).expect("cartridges in memory need no file");
        let library = Mutex::new(open(&simulated, name));
        Cabinet {
            name: name.to_owned(),
            simulated,
            library,
            is_wrong: AtomicBool::new(false),
            was_unplugged: AtomicBool::new(false),
            random: Mutex::new(random),
        }
    }

    pub fn is_wrong(&self) -> bool {
        self.is_wrong.load(Ordering::Acquire)
    }

    fn library(&self) -> Arc<Library> {
        self.library.lock().clone()
    }

    fn put_right(&self) {
        self.simulated.put_right();
        if !self.is_wrong.swap(false, Ordering::AcqRel) {
            return;
        }
        if self.was_unplugged.swap(false, Ordering::AcqRel) {
            let mut library = self.library.lock();
            *library = open(&self.simulated, &self.name);
            return;
        }
        // Whatever is wrong with that shows when it is used.
        drop(self.library().look_again());
    }

    /// Cartridges that have something on them.
    fn used(&self) -> Vec<String> {
        let barcodes = self.simulated.barcodes();
        barcodes.into_iter().filter(|barcode| self.simulated.records(barcode) > 0).collect()
    }

    fn make_wrong(&self, trouble: LibraryTrouble, pick: u64) {
        let used = self.used();
        let one = |number: u64| used.get((number % used.len().max(1) as u64) as usize).cloned().unwrap_or_default();
        match trouble {
            LibraryTrouble::Drops => self.simulated.drop_next(),
            LibraryTrouble::TakenOut => drop(self.simulated.take_out(&one(pick))),
            // A blank one would get a label of the wrong name.
            LibraryTrouble::BarCodesSwapped if used.len() > 1 => {
                self.simulated.swap_barcodes(&one(pick), &one(pick + 1));
            }
            LibraryTrouble::BarCodesSwapped => return,
            LibraryTrouble::Unreadable => {
                let barcode = one(pick);
                let records = self.simulated.records(&barcode).max(1) as u64;
                self.simulated.spoil(&barcode, [(pick / 7 % records) as usize]);
            }
            LibraryTrouble::Unplugged => {
                self.was_unplugged.store(true, Ordering::Release);
                self.simulated.unplug((pick % u64::from(DRIVES)) as u16, true);
            }
            LibraryTrouble::TakesAnother => self.simulated.take_another_next(),
            LibraryTrouble::Reset => self.simulated.reset(),
        }
        if !trouble.is_borne() {
            self.is_wrong.store(true, Ordering::Release);
        }
    }

    /// Power goes off while it writes: any part of that is on a cartridge.
    fn put_cut_short(&self, object: &str, bytes: &[u8]) {
        let counts = |simulated: &SimulatedLibrary| -> Vec<(String, usize)> {
            let barcodes = simulated.barcodes().into_iter();
            barcodes.map(|barcode| (barcode.clone(), simulated.records(&barcode))).collect()
        };
        let before = counts(&self.simulated);
        drop(self.library().put(object, bytes));
        let mut grown = counts(&self.simulated).into_iter().zip(before).filter(|(now, then)| now.1 > then.1);
        // Several, where one was full: then the last is what was written last.
        if let Some(((barcode, now), (_, then))) = grown.next_back() {
            let left = then as u64 + self.random.lock().below((now - then) as u64 + 1);
            self.simulated.cut(&barcode, left as usize);
        }
    }
}

impl Machine {
    /// Adds a library of blank cartridges as a volume, and tells its number. Its objects are as large as chunks at most.
    pub fn add_library(&self, chunk_bytes: u64) -> usize {
        let volume = self.add_volume();
        let random = Random::new(self.draw());
        let cabinet = Arc::new(Cabinet::new(&name_of(volume), chunk_bytes, random));
        self.libraries.lock().insert(volume, cabinet);
        volume
    }

    pub(crate) fn cabinet(&self, volume: usize) -> Option<Arc<Cabinet>> {
        self.libraries.lock().get(&volume).cloned()
    }

    /// Whoever mounts the pool next knows nothing of what is on which cartridge.
    pub(crate) fn forget_catalogues(&self) {
        for cabinet in self.libraries.lock().values() {
            cabinet.simulated.reset();
            *cabinet.library.lock() = open(&cabinet.simulated, &cabinet.name);
        }
    }

    /// Something goes wrong with a library, if the volume is one; tells whether.
    pub(crate) fn make_library_wrong(&self, volume: usize, trouble: LibraryTrouble, pick: u64) -> bool {
        let cabinet = self.cabinet(volume);
        cabinet.iter().for_each(|cabinet| cabinet.make_wrong(trouble, pick));
        cabinet.is_some()
    }

    pub(crate) fn put_libraries_right(&self) {
        let cabinets: Vec<Arc<Cabinet>> = self.libraries.lock().values().cloned().collect();
        cabinets.iter().for_each(|cabinet| cabinet.put_right());
    }
}

/// A library of a machine, as the stack sees it.
pub(crate) struct LibraryVolume {
    machine: Arc<Machine>,
    volume: usize,
    cabinet: Arc<Cabinet>,
}

impl LibraryVolume {
    pub fn new(machine: Arc<Machine>, volume: usize, cabinet: Arc<Cabinet>) -> LibraryVolume {
        LibraryVolume { machine, volume, cabinet }
    }

    fn ask<T>(
        &self,
        request: u64,
        object: &str,
        act: impl FnOnce(&dyn Volume) -> Result<T, VolumeError>,
    ) -> Result<T, VolumeError> {
        self.machine.state.lock().ask(self.volume, request, object)?;
        let outcome = act(&*self.cabinet.library());
        if outcome.is_err() && self.cabinet.is_wrong() {
            self.machine.state.lock().volumes[self.volume].failed.insert(object.to_owned());
        }
        outcome
    }

    /// True if the power goes off here.
    fn is_cut(&self) -> bool {
        self.machine.state.lock().boundary()
    }
}

impl Volume for LibraryVolume {
    fn put(&self, object: &str, bytes: &[u8]) -> Result<(), VolumeError> {
        self.ask(1 ^ u64::from(stere_format::crc32c(bytes)) << 8, object, |library| {
            if self.is_cut() {
                self.cabinet.put_cut_short(object, bytes);
                return Err(away(self.volume, "the power went off"));
            }
            match library.put(object, bytes) {
                Err(VolumeError::Full { .. }) => {
                    self.cabinet.simulated.put_in_blanks(MORE_CARTRIDGES);
                    drop(self.cabinet.library().look_again());
                    library.put(object, bytes)
                }
                outcome => outcome,
            }
        })
    }

    fn get(&self, object: &str, offset: u64, into: &mut [u8], wait: &MediumWait) -> Result<(), VolumeError> {
        self.machine.let_others_in();
        self.ask(2, object, |library| library.get(object, offset, into, wait))
    }

    fn stream(&self, object: &str, length: usize, take: &Take, cancellation: &Cancellation) -> Result<(), VolumeError> {
        self.machine.let_others_in();
        self.ask(2, object, |library| library.stream(object, length, take, cancellation))
    }

    fn stream_part(
        &self,
        object: &str,
        offset: u64,
        length: usize,
        take: &Take,
        cancellation: &Cancellation,
    ) -> Result<(), VolumeError> {
        self.machine.let_others_in();
        self.ask(2, object, |library| library.stream_part(object, offset, length, take, cancellation))
    }

    fn begins_at(&self, object: &str, offset: u64) -> Option<u64> {
        Volume::begins_at(&*self.cabinet.library(), object, offset)
    }

    fn length(&self, object: &str) -> Result<Option<u64>, VolumeError> {
        self.ask(3, object, |library| library.length(object))
    }

    fn delete(&self, object: &str) -> Result<(), VolumeError> {
        self.ask(4, object, |library| match self.is_cut() {
            true => Err(away(self.volume, "the power went off")),
            false => library.delete(object),
        })
    }

    fn list(&self, prefix: &str) -> Result<Vec<(String, u64)>, VolumeError> {
        self.ask(5, prefix, |library| library.list(prefix))
    }

    fn describe(&self) -> String {
        name_of(self.volume)
    }

    fn media(&self) -> Vec<Medium> {
        self.cabinet.library().cartridges()
    }

    fn estimate(&self, object: &str) -> Option<(String, Duration)> {
        Volume::estimate(&*self.cabinet.library(), object)
    }

    fn is_proven_by_its_media(&self) -> bool {
        true
    }
}
