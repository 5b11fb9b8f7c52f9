//! Changes of devices carried out in the open pool: checked, forecast, done.
//!
//! A change is refused before it begins if it cannot end well. What moves data only begins here; `rebuild.rs` does the moving.

use std::path::PathBuf;

use stere_device::Access;
use stere_format::{DeviceEntry, DeviceState};
use stere_pool::{DeviceClass, Holds, Joining, NewDevice, Return, identify, judge_return};
use stere_store::{DeviceIn, Label, MetadataWish};

use crate::evacuate::evacuate;
use crate::forecast::Plan;
use crate::new_device::new_device;
use crate::outcome::Outcome;
use crate::running::{Running, lock};
use crate::shrink::shrink;
use stere_control::change::Change;
use stere_control::spec::DeviceSpec;
use stere_machine::claim::refuse_if_used_elsewhere;
use stere_machine::devices::open_device_with_retries;
use stere_machine::error::{Error, Result, refused};

fn randomness(bytes: &mut [u8]) {
    // From the operating system's generator; without it nothing here is safe to make.
    getrandom::fill(bytes).expect("the operating system gives random bytes");
}

fn state_of(entry: &DeviceEntry) -> Option<DeviceState> {
    DeviceState::from_code(entry.state)
}

impl Running {
    /// Carries a change out, or only says what it would mean.
    pub fn change(&self, change: &Change, dry_run: bool) -> Result<Outcome> {
        if self.read_only && !dry_run && !self.only_attaches(change) {
            return refused(format!(
                "the pool '{}' is open for reading only, so its devices cannot be changed; mount it for writing",
                self.pool
            ));
        }
        let _one_at_a_time = lock(&self.changing);
        let outcome = match change {
            Change::Add { devices, spare, force, rebalance } => {
                let outcome = self.add(devices, *spare, *force, dry_run)?;
                self.store.rebuilder.set_rebalancing(*rebalance && !dry_run);
                Ok(outcome)
            }
            Change::Resize { device, size_bytes: None } => self.resize(device, dry_run),
            Change::Resize { device, size_bytes: Some(size_bytes) } => shrink(self, device, *size_bytes, dry_run),
            Change::Remove { device } => self.empty(device, DeviceState::Removing, dry_run),
            Change::Evacuate { device } => self.empty(device, DeviceState::Leaving, dry_run),
            Change::EvacuateHost { host } => evacuate(self, host, dry_run),
            Change::Fail { device } => self.fail(device, dry_run),
            Change::Replace { old, new, force } => self.replace(old, new, *force, dry_run),
            Change::ReplaceBySpare { old } => self.replace_by_spare(old, dry_run),
            Change::Offline { device, force } => self.offline(device, *force, dry_run),
            Change::Online { device, path, wipe } => self.online(device, path.as_ref(), *wipe, dry_run),
            Change::Label { device, settings } => self.label(device, settings),
            Change::MetadataCopies { copies } => self.change_metadata_copies(*copies),
            Change::Cleaner { class, policy } => crate::cleaning::choose(self, class.as_deref(), policy.as_deref()),
        }?;
        if matches!(outcome, Outcome::Done(_)) {
            self.remember();
            self.mending.wake();
        }
        Ok(outcome)
    }

    /// Whether it only tells how to reach a volume, which stands in the pool already.
    fn only_attaches(&self, change: &Change) -> bool {
        match change {
            Change::Online { device, path: None, .. } => {
                self.find_volume(device).is_some_and(|entry| !entry.is_offline)
            }
            _ => false,
        }
    }

    fn check_name_is_free(&self, name: &str, except: Option<u16>) -> Result<()> {
        let taken = self.store.device_entries().iter().any(|entry| entry.name == name && Some(entry.index) != except);
        match taken {
            true => refused(format!("the pool '{}' has a device named '{name}' already; give another name", self.pool)),
            false => Ok(()),
        }
    }

    /// Opens a device that is to join. Its guessed name gives way to a number where it is taken.
    fn open_new(&self, spec: &DeviceSpec) -> Result<NewDevice> {
        if !spec.name.is_empty() {
            self.check_name_is_free(&spec.name, None)?;
        }
        let mut new = new_device(spec)?;
        if self.check_name_is_free(&new.name, None).is_err() {
            new.name.clear();
        }
        Ok(new)
    }

    fn add(&self, specs: &[DeviceSpec], spare: bool, force: bool, dry_run: bool) -> Result<Outcome> {
        let newest = self.newest()?;
        let (volumes, specs): (Vec<&DeviceSpec>, Vec<&DeviceSpec>) =
            specs.iter().partition(|spec| stere_machine::places::is_place(&spec.path.display().to_string()));
        if !volumes.is_empty() && (!specs.is_empty() || spare) {
            return refused("media are added by themselves, and are no spares; add the devices in another call");
        }
        if !volumes.is_empty() {
            if dry_run {
                return Ok(Outcome::Done("a medium changes nothing that is there".into()));
            }
            let names = self.add_volumes(&volumes, force)?;
            self.tertiary.wake();
            return Ok(Outcome::Done(format!("added medium {}", names.join(", "))));
        }
        let mut opened = Vec::with_capacity(specs.len());
        for spec in specs {
            let new = self.open_new(spec)?;
            stere_pool::check_newcomer(&newest, &new, force)?;
            refuse_if_used_elsewhere(&new)?;
            opened.push(new);
        }
        let bytes = opened.iter().map(|new| new.device.size_bytes()).sum();
        let forecast = self.forecast(&Plan::Add { devices: opened.len(), bytes, spare })?;
        if dry_run {
            return Ok(Outcome::Forecast(forecast));
        }
        let state = if spare { DeviceState::Spare } else { DeviceState::Active };
        let mut names = Vec::new();
        for new in opened {
            let joining = Joining { index: stere_pool::free_index(&self.store)?, state, force };
            let (device_in, entry) = stere_pool::newcomer(&newest, &new, joining, &mut randomness)?;
            names.push(entry.name.clone());
            self.store.devices.add_device(device_in, entry)?;
            self.note_attached(joining.index, new.path, new.device);
        }
        let what = if spare { "hot spare" } else { "device" };
        Ok(Outcome::Done(format!("added {what} {}", names.join(", "))))
    }

    /// Begins to empty a device, to stay (`Leaving`) or to go (`Removing`).
    fn empty(&self, word: &str, state: DeviceState, dry_run: bool) -> Result<Outcome> {
        if let Some(volume) = self.find_volume(word) {
            if state != DeviceState::Removing {
                return refused(format!(
                    "'{word}' is a medium; what is on it goes to another one with `stere media retire`, and comes back with `stere tier stage`"
                ));
            }
            let asking = self.store.tier.media.numbers_in_policies()?.get(&volume.number).copied().unwrap_or(0);
            if !dry_run {
                self.store.tier.media.remove_volume(volume.number)?;
            }
            let mut said = format!("medium {} is no part of the pool any more", volume.name);
            if asking > 0 {
                said += &format!(
                    "; {asking} files or directories still ask for it and go nowhere: `stere find 'tier=#{}' PATH` lists them, set their user.stere.tier to another medium or to none",
                    volume.number
                );
            }
            return Ok(Outcome::Done(said));
        }
        let entry = self.find(word)?;
        let is_attached = self.attached(entry.index).is_some();
        if state == DeviceState::Leaving && !is_attached {
            return refused(format!(
                "device '{}' is not there, so nothing can be moved away from it; rebuild what it held elsewhere with `stere device fail {} {0}`",
                entry.name, self.pool
            ));
        }
        let forecast = self.forecast(&Plan::Empty(&entry))?;
        if dry_run {
            return Ok(Outcome::Forecast(forecast));
        }
        forecast.refuse_if_hopeless()?;
        self.store.devices.set_device_state(entry.index, state)?;
        Ok(Outcome::Done(format!("emptying device {}", entry.name)))
    }

    fn fail(&self, word: &str, dry_run: bool) -> Result<Outcome> {
        let entry = self.find(word)?;
        let forecast = self.forecast(&Plan::Fail(&entry))?;
        if dry_run {
            return Ok(Outcome::Forecast(forecast));
        }
        forecast.refuse_if_hopeless()?;
        self.store.devices.set_device_state(entry.index, DeviceState::Failed)?;
        Ok(Outcome::Done(format!("gave device {} up; what it held is rebuilt elsewhere", entry.name)))
    }

    fn replace(&self, word: &str, spec: &DeviceSpec, force: bool, dry_run: bool) -> Result<Outcome> {
        let old = self.find(word)?;
        let newest = self.newest()?;
        // The new one may have the name of the old one, whose place it takes.
        if !spec.name.is_empty() {
            self.check_name_is_free(&spec.name, Some(old.index))?;
        }
        let mut new = new_device(spec)?;
        if self.check_name_is_free(&new.name, Some(old.index)).is_err() {
            new.name.clone_from(&old.name);
        }
        let layout = stere_pool::check_newcomer(&newest, &new, force)?;
        refuse_if_used_elsewhere(&new)?;
        let forecast = self.forecast(&Plan::Replace { old: &old, slot_count: layout.slot_count })?;
        if dry_run {
            return Ok(Outcome::Forecast(forecast));
        }
        forecast.refuse_if_hopeless()?;
        inherit_labels(&mut new, &old);
        let name = new.name.clone();
        let joining = Joining { index: old.index, state: DeviceState::Active, force };
        let (device_in, entry) = stere_pool::newcomer(&newest, &new, joining, &mut randomness)?;
        let index = self.store.devices.replace_device(old.index, device_in, entry)?;
        self.note_attached(index, new.path, new.device);
        Ok(Outcome::Done(match index == old.index {
            true => format!("device {name} takes the place of {}", old.name),
            false => format!("device {name} joins, and {} is emptied onto it and the others", old.name),
        }))
    }

    fn replace_by_spare(&self, word: &str, dry_run: bool) -> Result<Outcome> {
        let old = self.find(word)?;
        let Some(spare) = self.spare().filter(|spare| spare.index != old.index) else {
            return refused(format!(
                "the pool '{0}' has no hot spare that is there; add one with `stere device add {0} DEVICE --spare`, or name a new device: `stere device replace {0} {1} NEW`",
                self.pool, old.name
            ));
        };
        let forecast = self.forecast(&Plan::Replace { old: &old, slot_count: spare.slot_count })?;
        if dry_run {
            return Ok(Outcome::Forecast(forecast));
        }
        forecast.refuse_if_hopeless()?;
        self.store.devices.set_device_state(spare.index, DeviceState::Active)?;
        self.store.devices.set_device_state(old.index, DeviceState::Removing)?;
        Ok(Outcome::Done(format!("hot spare {} joins, and {} is emptied onto it and the others", spare.name, old.name)))
    }

    fn offline(&self, word: &str, force: bool, dry_run: bool) -> Result<Outcome> {
        if let Some(volume) = self.find_volume(word) {
            if !dry_run {
                self.store.tier.media.take_volume_away(volume.number)?;
            }
            return Ok(Outcome::Done(format!("medium {} is offline", volume.name)));
        }
        let entry = self.find(word)?;
        if state_of(&entry) == Some(DeviceState::Offline) {
            return refused(format!("device '{}' is offline already", entry.name));
        }
        let forecast = self.forecast(&Plan::Lose(&entry))?;
        if dry_run {
            return Ok(Outcome::Forecast(forecast));
        }
        if !force {
            forecast.refuse_if_hopeless()?;
        }
        if force && self.is_open(entry.index) {
            self.store.devices.detach_device(entry.index, true)?;
        }
        self.store.devices.set_device_state(entry.index, DeviceState::Offline)?;
        if let Some(attached) = self.note_detached(entry.index) {
            let why = stere_pool::WhyLeftOut::Offline.words().to_owned();
            lock(&self.places).left_out.insert(entry.index, crate::running::LeftOut { path: attached.path, why });
        }
        Ok(Outcome::Done(format!("device {} is offline", entry.name)))
    }

    fn online(&self, word: &str, path: Option<&PathBuf>, wipe: bool, dry_run: bool) -> Result<Outcome> {
        if let Some(volume) = self.find_volume(word) {
            if dry_run {
                return Ok(self.forecast_online(&volume, path.is_some()));
            }
            let said = self.volume_online(&volume, path.map(PathBuf::as_path))?;
            self.tertiary.wake();
            return Ok(Outcome::Done(said));
        }
        let entry = self.find(word)?;
        let forecast = self.forecast(&Plan::Return(&entry))?;
        if dry_run {
            return Ok(Outcome::Forecast(forecast));
        }
        let is_attached = self.attached(entry.index).is_some();
        if let Some(path) = path.filter(|_| is_attached) {
            self.refuse_strange(&entry, path)?;
        }
        if is_attached && !wipe {
            self.store.devices.set_device_state(entry.index, DeviceState::Active)?;
            return Ok(Outcome::Done(format!("device {} is in use", entry.name)));
        }
        if is_attached {
            return refused(format!(
                "device '{}' is in use, so it is not wiped; take it offline first, or replace it",
                entry.name
            ));
        }
        let path = match path.cloned().or_else(|| self.path_of(&entry).map(PathBuf::from)) {
            Some(path) => path,
            None => return refused(format!("nobody knows where device '{}' is; name its path", entry.name)),
        };
        let outcome = self.bring_back(&entry, &path, wipe)?;
        let is_leaving =
            matches!(state_of(&entry), Some(DeviceState::Leaving | DeviceState::Removing | DeviceState::Failed));
        if is_leaving {
            self.store.devices.set_device_state(entry.index, DeviceState::Active)?;
        }
        Ok(outcome)
    }

    /// Whoever names another disk than the one that is in use is told so.
    fn refuse_strange(&self, entry: &DeviceEntry, path: &std::path::Path) -> Result<()> {
        let known = self.path_of(entry).map(PathBuf::from);
        match known.filter(|known| known != path && known.canonicalize().ok() != path.canonicalize().ok()) {
            Some(known) => refused(format!(
                "device '{}' of the pool '{}' is in use at {}, so {} is not brought in for it; to put it in its place there is `stere device replace`",
                entry.name,
                self.pool,
                known.display(),
                path.display()
            )),
            None => Ok(()),
        }
    }

    /// Attaches a device of the table from this path, after making sure that it is that device and was only away.
    pub fn bring_back(&self, entry: &DeviceEntry, path: &std::path::Path, wipe: bool) -> Result<Outcome> {
        if self.is_open(entry.index) {
            // It stopped taking writes. Its old opening keeps the lock, and may never write again.
            self.store.devices.detach_device(entry.index, true)?;
        }
        drop(self.note_detached(entry.index));
        let device = open_device_with_retries(path, Access::ReadWrite)?;
        let newest = self.newest()?;
        let shown = path.display().to_string();
        let verdict = match identify(&*device) {
            Holds::Member(identity) => {
                let is_there = |index| self.attached(index).is_some();
                let superblock = stere_pool::settled_superblock(&identity, &*device, &is_there);
                (judge_return(&newest, entry, &superblock), Some(superblock))
            }
            _ => (Return::Stranger, None),
        };
        match verdict {
            (Return::Welcome, Some(superblock)) => {
                let superblock =
                    stere_format::Superblock { layout: superblock.layout, ..newest_as(&newest, superblock) };
                let read_cost = Self::class_of(entry).read_cost();
                self.store.devices.attach_device(DeviceIn {
                    index: entry.index,
                    superblock,
                    device: device.clone(),
                    read_cost,
                })?;
                self.note_attached(entry.index, shown, device);
                Ok(Outcome::Done(format!("device {} is back and is caught up on what it missed", entry.name)))
            }
            (Return::OtherHistory, _) if !wipe => refused(format!(
                "{shown} was written to without the others (or was away too long to tell), so it is left out; look at it alone first, or repeat with --wipe to give up what is on it and fill it anew"
            )),
            (Return::OtherHistory, _) => self.fill_anew(entry, shown, device),
            _ => refused(format!(
                "{shown} is not device '{}' of the pool '{}'; name where that device is, or put this one in its place with `stere device replace {1} {0} {shown}`",
                entry.name, self.pool
            )),
        }
    }

    /// The device takes its own place, with nothing of what was on it.
    pub fn fill_anew(
        &self,
        entry: &DeviceEntry,
        path: String,
        device: std::sync::Arc<dyn stere_device::Device>,
    ) -> Result<Outcome> {
        let new = NewDevice {
            path: path.clone(),
            device: device.clone(),
            name: entry.name.clone(),
            class: DeviceClass::from_code(entry.class),
            tags: entry.tags.clone(),
            host: entry.host.clone(),
            shelf: entry.shelf.clone(),
            foreign: None,
        };
        let joining = Joining { index: entry.index, state: DeviceState::Active, force: true };
        let (device_in, new_entry) = stere_pool::newcomer(&self.newest()?, &new, joining, &mut randomness)?;
        self.store.devices.replace_device(entry.index, device_in, new_entry)?;
        self.note_attached(entry.index, path, device);
        Ok(Outcome::Done(format!("device {} is filled anew", entry.name)))
    }

    fn change_metadata_copies(&self, copies: Option<u8>) -> Result<Outcome> {
        let devices = self.store.device_entries().len();
        if let Some(copies) = copies.filter(|copies| usize::from(*copies) > devices) {
            return Err(stere_pool::Error::NoRoomForCopies { copies: usize::from(copies), devices }.into());
        }
        self.store.places().set_metadata_wish(copies.map_or(MetadataWish::All, MetadataWish::Copies))?;
        let number = copies.map_or_else(|| "every device".into(), |copies| format!("{copies} devices"));
        Ok(Outcome::Done(format!("metadata of {} lies on {number} from now on", self.pool)))
    }

    fn label(&self, word: &str, settings: &[String]) -> Result<Outcome> {
        let entry = self.find(word)?;
        let label = parse_label(settings)?;
        if let Some(name) = &label.name {
            self.check_name_is_free(name, Some(entry.index))?;
        }
        self.store.devices.label_device(entry.index, label)?;
        Ok(Outcome::Done(format!("device {} is labelled", entry.name)))
    }
}

/// Reads `key=value` settings.
pub fn parse_label(settings: &[String]) -> Result<Label> {
    let mut label = Label::default();
    for setting in settings {
        let Some((key, value)) = setting.split_once('=') else {
            return Err(Error::Usage(format!(
                "'{setting}' is not key=value; the keys are name, host, shelf, class and tag"
            )));
        };
        if value.len() > 63 {
            return Err(Error::Usage(format!("'{value}' is too long; a label has at most 63 bytes")));
        }
        match key {
            "name" if value.is_empty() => return Err(Error::Usage("a device needs a name; give one".into())),
            "name" => label.name = Some(value.into()),
            "host" => label.host = Some(value.into()),
            "shelf" => label.shelf = Some(value.into()),
            "tag" => {
                let tags = value.split(',').filter(|tag| !tag.is_empty()).map(str::to_owned);
                label.tags = Some(tags.collect());
            }
            "class" => label.class = Some(stere_control::spec::class(value).map_err(Error::Usage)?.code()),
            _ => {
                return Err(Error::Usage(format!(
                    "a device has no label '{key}'; there are name, host, shelf, class and tag"
                )));
            }
        }
    }
    Ok(label)
}

/// The newest superblock in the words of a device.
fn newest_as(newest: &stere_format::Superblock, own: stere_format::Superblock) -> stere_format::Superblock {
    stere_format::Superblock {
        device: own.device,
        device_index: own.device_index,
        host: own.host,
        shelf: own.shelf,
        ..newest.clone()
    }
}

/// Whoever takes a place stands where the old one stood, if nothing else was said.
fn inherit_labels(new: &mut NewDevice, old: &DeviceEntry) {
    if new.host.is_empty() {
        new.host.clone_from(&old.host);
    }
    if new.shelf.is_empty() {
        new.shelf.clone_from(&old.shelf);
    }
    if new.tags.is_empty() {
        new.tags.clone_from(&old.tags);
    }
}
