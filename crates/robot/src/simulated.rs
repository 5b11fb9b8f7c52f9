//! A simulated library that speaks SCSI: arm, slots, drives and cartridges, with the times that real ones take, and with faults.
//!
//! It answers command blocks as the standard says, so everything above runs as on a real library. Times are added up (virtual), or
//! waited for (real, or so many times faster). Everything is decided by the configuration and the order of commands: no clock, no chance.
//! Cartridges are kept in memory, or in files of a directory. Read next: `simulated/model.rs`, `simulated/drive.rs`.

mod arm;
mod drive;
mod medium;
mod model;
mod power;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::element::ElementKind;
use crate::error::RobotError;
use crate::library::Clock;
use crate::sense::{Sense, SenseKey};
use crate::transport::{Data, Reply, Transport};
use drive::DriveState;
use medium::Medium;

pub use model::{Model, Pace};

const ARM: u16 = 1;
const MAIL_SLOTS: u16 = 16;
const DRIVES: u16 = 256;
const SLOTS: u16 = 1024;

/// What a simulated library has.
#[derive(Debug, Clone)]
pub struct Configuration {
    pub model: Model,
    pub pace: Pace,
    pub drives: u16,
    pub slots: u16,
    pub barcodes: Vec<String>,
    /// Where cartridges are kept; in memory if nowhere.
    pub directory: Option<PathBuf>,
    /// Decides how well each block compresses.
    pub seed: u64,
    /// None: people feed the drives. With a directory, file `drive-N` there says which cartridge is in the drive of that number.
    pub has_changer: bool,
}

impl Configuration {
    /// Cartridges `SIM001`, `SIM002`, ... in memory.
    pub fn new(model: Model, drives: u16, cartridges: u16) -> Configuration {
        let barcodes = (1..=cartridges).map(|number| format!("SIM{number:03}")).collect();
        let slots = cartridges + 2;
        Configuration {
            model,
            pace: Pace::Virtual,
            drives,
            slots,
            barcodes,
            directory: None,
            seed: 1,
            has_changer: true,
        }
    }

    /// As the lines `key=value` in the file `library` of a directory say; keys are model, drives, cartridges, capacity, speed, seed and changer (yes or no).
    pub fn read(directory: &Path) -> Result<Configuration, String> {
        let path = directory.join("library");
        let text = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let mut configuration = Configuration::new(Model::INSTANT, 2, 6);
        let (mut capacity, mut cartridges) = (None, 6);
        configuration.pace = Pace::Real { times: 1 };
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let wrong = || format!("{}: '{line}' is not understood", path.display());
            let (key, value) = line.split_once('=').ok_or_else(wrong)?;
            let number = || value.parse::<u64>().ok().filter(|number| *number > 0).ok_or_else(wrong);
            let small = || number().and_then(|number| u16::try_from(number).map_err(|_| wrong()));
            match key {
                "model" => configuration.model = Model::by_name(value).ok_or_else(wrong)?,
                "drives" => configuration.drives = small()?,
                "cartridges" => cartridges = small()?,
                "capacity" => capacity = Some(number()?),
                "speed" => configuration.pace = Pace::Real { times: number()? as u32 },
                "seed" => configuration.seed = number()?,
                "changer" => configuration.has_changer = value == "yes",
                _ => return Err(wrong()),
            }
        }
        let named = Configuration::new(configuration.model, configuration.drives, cartridges);
        (configuration.barcodes, configuration.slots) = (named.barcodes, named.slots);
        configuration.model.capacity_bytes = capacity.unwrap_or(configuration.model.capacity_bytes);
        configuration.directory = Some(directory.to_owned());
        Ok(configuration)
    }
}

/// How drives go to a place that they are told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Locates {
    Truly,
    /// By blocks, not by files, and they tell no files.
    ByBlock,
    /// They do not know LOCATE nor READ POSITION.
    Never,
    /// They go, and do not tell where they are.
    Silent,
    /// They go elsewhere, and say so.
    Astray,
    /// They go elsewhere, and do not say so.
    Lying,
}

/// A cartridge with what is printed on it.
struct Tagged {
    barcode: String,
    medium: Medium,
}

pub(crate) struct State {
    model: Model,
    slots: Vec<Option<usize>>,
    mail_slot: Option<usize>,
    drives: Vec<DriveState>,
    media: Vec<Tagged>,
    /// As they were glued on at first.
    barcodes: Vec<String>,
    elapsed: Duration,
    moves: u64,
    faults: Faults,
    locates: Locates,
    seed: u64,
}

#[derive(Default)]
struct Faults {
    /// The next medium that is moved falls down.
    drops: bool,
    /// The next medium that is taken from a slot is another one.
    takes_another: bool,
    /// Drives that do not answer.
    unplugged: Vec<u16>,
    /// Blocks and filemarks that are written still before the power goes; none if it stays.
    writes_left: Option<u64>,
    is_off: bool,
    /// Bar codes of cartridges that cannot be written over.
    written_once: Vec<String>,
}

/// All of it; transports are handed out for its devices.
#[derive(Clone)]
pub struct SimulatedLibrary {
    state: Arc<Mutex<State>>,
    pace: Pace,
    has_changer: bool,
    /// Where people say what they put in.
    hands: Option<PathBuf>,
}

impl SimulatedLibrary {
    pub fn new(configuration: Configuration) -> Result<SimulatedLibrary, String> {
        let mut media = Vec::new();
        for barcode in &configuration.barcodes {
            let medium = match &configuration.directory {
                None => Medium::in_memory(),
                Some(directory) => Medium::in_file(&directory.join(format!("{barcode}.cartridge")))
                    .map_err(|error| format!("{}/{barcode}.cartridge: {error}", directory.display()))?,
            };
            media.push(Tagged { barcode: barcode.clone(), medium });
        }
        let mut slots: Vec<Option<usize>> = (0..media.len()).map(Some).collect();
        slots.resize(slots.len().max(usize::from(configuration.slots)), None);
        let drives = (0..configuration.drives).map(|_| DriveState::default()).collect();
        let state = State {
            model: configuration.model,
            slots,
            mail_slot: None,
            drives,
            media,
            barcodes: configuration.barcodes.clone(),
            elapsed: Duration::ZERO,
            moves: 0,
            faults: Faults::default(),
            locates: Locates::Truly,
            seed: configuration.seed,
        };
        let has_changer = configuration.has_changer;
        let hands = configuration.directory.filter(|_| !has_changer);
        Ok(SimulatedLibrary { state: Arc::new(Mutex::new(state)), pace: configuration.pace, has_changer, hands })
    }

    pub fn changer(&self) -> Box<dyn Transport> {
        Box::new(SimulatedChanger { library: self.clone() })
    }

    pub fn drive(&self, number: u16) -> Box<dyn Transport> {
        Box::new(SimulatedDrive { library: self.clone(), number })
    }

    pub fn has_changer(&self) -> bool {
        self.has_changer
    }

    /// Somebody puts a cartridge into a drive, or takes what is in it out.
    pub fn put_by_hand(&self, drive: u16, barcode: Option<&str>) {
        let mut state = self.state.lock();
        let State { media, .. } = &*state;
        let medium = barcode.and_then(|barcode| media.iter().position(|tagged| tagged.barcode == barcode));
        for slot in state.slots.iter_mut().filter(|slot| slot.is_some() && **slot == medium) {
            *slot = None;
        }
        let before = state.drives.get(usize::from(drive)).and_then(|drive| drive.medium);
        if before != medium {
            state.place_medium(DRIVES + drive, medium);
        }
    }

    /// Looks what people say that is in a drive.
    fn look_at_hands(&self, drive: u16) {
        if let Some(folder) = &self.hands {
            let said = std::fs::read_to_string(folder.join(format!("drive-{drive}"))).unwrap_or_default();
            self.put_by_hand(drive, Some(said.trim()).filter(|said| !said.is_empty()));
        }
    }

    pub fn drives(&self) -> u16 {
        self.state.lock().drives.len() as u16
    }

    /// Time as it passes here.
    pub fn clock(&self) -> Clock {
        let state = self.state.clone();
        Arc::new(move || state.lock().elapsed)
    }

    /// How long everything took that was asked until now, one thing after the other.
    pub fn elapsed(&self) -> Duration {
        self.state.lock().elapsed
    }

    pub fn moves(&self) -> u64 {
        self.state.lock().moves
    }

    pub fn drop_next(&self) {
        self.state.lock().faults.drops = true;
    }

    pub fn take_another_next(&self) {
        self.state.lock().faults.takes_another = true;
    }

    pub fn set_locates(&self, locates: Locates) {
        self.state.lock().locates = locates;
    }

    pub fn unplug(&self, drive: u16, is_unplugged: bool) {
        let unplugged = &mut self.state.lock().faults.unplugged;
        unplugged.retain(|one| *one != drive);
        if is_unplugged {
            unplugged.push(drive);
        }
    }

    /// Blocks of this cartridge cannot be read from now on; counted from its beginning, filemarks too.
    pub fn spoil(&self, barcode: &str, records: impl IntoIterator<Item = usize>) {
        let mut state = self.state.lock();
        if let Some(tagged) = state.media.iter_mut().find(|tagged| tagged.barcode == barcode) {
            tagged.medium.spoiled.extend(records);
        }
    }

    /// Blocks and filemarks on a cartridge.
    pub fn records(&self, barcode: &str) -> usize {
        let state = self.state.lock();
        state.media.iter().find(|tagged| tagged.barcode == barcode).map_or(0, |tagged| tagged.medium.records.len())
    }

    /// Cuts a cartridge as if the power had gone: nothing is left from this block on.
    pub fn cut(&self, barcode: &str, records: usize) {
        let mut state = self.state.lock();
        if let Some(tagged) = state.media.iter_mut().find(|tagged| tagged.barcode == barcode) {
            tagged.medium.truncate(records);
        }
    }

    /// Somebody glues the bar codes on each other's cartridges.
    pub fn swap_barcodes(&self, one: &str, other: &str) {
        for tagged in &mut self.state.lock().media {
            match &tagged.barcode {
                barcode if barcode == one => tagged.barcode = other.to_owned(),
                barcode if barcode == other => tagged.barcode = one.to_owned(),
                _ => {}
            }
        }
    }

    /// Takes a cartridge out of its slot; false if it is not in one.
    pub fn take_out(&self, barcode: &str) -> bool {
        let mut state = self.state.lock();
        let State { slots, media, .. } = &mut *state;
        let is_it = |slot: &&mut Option<usize>| slot.is_some_and(|medium| media[medium].barcode == barcode);
        slots.iter_mut().find(is_it).map(Option::take).is_some()
    }

    /// Puts it back into a free slot.
    pub fn put_in(&self, barcode: &str) {
        let mut state = self.state.lock();
        let medium = state.media.iter().position(|tagged| tagged.barcode == barcode);
        if let Some(slot) = state.slots.iter_mut().find(|slot| slot.is_none()) {
            *slot = medium;
        }
    }

    /// People put everything right: what fell down or was taken out is in a slot again, bar codes are on the cartridges that they were
    /// made for, every block can be read, and every drive answers.
    pub fn put_right(&self) {
        let mut state = self.state.lock();
        let State { slots, mail_slot, drives, media, faults, barcodes, .. } = &mut *state;
        assert_eq!(media.len(), barcodes.len(), "every cartridge was made with a bar code");
        *faults = Faults::default();
        for (number, (tagged, barcode)) in media.iter_mut().zip(barcodes.iter()).enumerate() {
            tagged.barcode.clone_from(barcode);
            tagged.medium.spoiled.clear();
            let mut places = slots.iter().copied().chain([*mail_slot]).chain(drives.iter().map(|drive| drive.medium));
            if places.any(|place| place == Some(number)) {
                continue;
            }
            match slots.iter_mut().find(|slot| slot.is_none()) {
                Some(slot) => *slot = Some(number),
                None => slots.push(Some(number)),
            }
        }
    }

    /// Somebody puts so many blank cartridges in, which are kept in memory.
    pub fn put_in_blanks(&self, count: usize) {
        let mut state = self.state.lock();
        for _ in 0..count {
            let number = state.media.len();
            let barcode = format!("SIM{:03}", number + 1);
            state.barcodes.push(barcode.clone());
            state.media.push(Tagged { barcode, medium: Medium::in_memory() });
            state.slots.push(Some(number));
        }
    }

    /// Bar codes of all cartridges, as they were made.
    pub fn barcodes(&self) -> Vec<String> {
        self.state.lock().barcodes.clone()
    }

    /// Every drive is switched off and on: the tape is at its beginning, and the next command is told so.
    pub fn reset(&self) {
        for drive in &mut self.state.lock().drives {
            (drive.at, drive.has_news) = (0, true);
        }
    }

    /// Executes for a device, and lets the time pass that it takes.
    fn run(&self, act: impl FnOnce(&mut State) -> (Result<usize, Sense>, Duration)) -> Reply {
        let (outcome, cost) = {
            let mut state = self.state.lock();
            let (outcome, cost) = act(&mut state);
            state.elapsed += cost;
            (outcome, cost)
        };
        if let Pace::Real { times } = self.pace
            && !cost.is_zero()
        {
            std::thread::sleep(cost / times.max(1));
        }
        match outcome {
            Ok(transferred) => Reply::good(transferred),
            Err(sense) => Reply::check(&sense, 0),
        }
    }
}

impl State {
    /// Where an element's medium is.
    fn place(&mut self, address: u16) -> Option<&mut Option<usize>> {
        let at = usize::from(address);
        match address {
            MAIL_SLOTS => Some(&mut self.mail_slot),
            SLOTS.. => self.slots.get_mut(at - usize::from(SLOTS)),
            DRIVES.. => self.drives.get_mut(at - usize::from(DRIVES)).map(|drive| &mut drive.medium),
            _ => None,
        }
    }

    fn elements(&self, kind: ElementKind) -> (u16, u16) {
        match kind {
            ElementKind::Arm => (ARM, 1),
            ElementKind::Slot => (SLOTS, self.slots.len() as u16),
            ElementKind::MailSlot => (MAIL_SLOTS, 1),
            ElementKind::Drive => (DRIVES, self.drives.len() as u16),
        }
    }
}

fn refused(code: (u8, u8)) -> Sense {
    Sense::new(SenseKey::IllegalRequest, code)
}

struct SimulatedChanger {
    library: SimulatedLibrary,
}

impl Transport for SimulatedChanger {
    fn execute(&mut self, command: &[u8], data: Data<'_>, _: Duration) -> Result<Reply, RobotError> {
        Ok(self.library.run(|state| state.execute_changer(command, data)))
    }

    fn describe(&self) -> String {
        "simulated changer".into()
    }
}

struct SimulatedDrive {
    library: SimulatedLibrary,
    number: u16,
}

impl Transport for SimulatedDrive {
    fn execute(&mut self, command: &[u8], data: Data<'_>, _: Duration) -> Result<Reply, RobotError> {
        if self.library.is_off_for(command) || self.library.state.lock().faults.unplugged.contains(&self.number) {
            return Err(RobotError::Unreachable { device: self.describe(), why: "it is unplugged".into() });
        }
        self.library.look_at_hands(self.number);
        let number = usize::from(self.number);
        // What was transferred counts although there is something to say, too.
        let mut transferred = 0;
        let mut reply = self.library.run(|state| {
            let (outcome, cost) = state.execute_drive(number, command, data, &mut transferred);
            // For whoever wonders where the time of a library goes: STERE_LOG=stere_robot=trace.
            let at = state.elapsed;
            tracing::trace!(drive = number, ?command, ?at, ?cost, "a command block");
            (outcome, cost)
        });
        if reply.status != Reply::GOOD {
            reply.transferred = transferred;
        }
        Ok(reply)
    }

    fn describe(&self) -> String {
        format!("simulated drive {}", self.number)
    }
}

#[cfg(test)]
mod tests;
