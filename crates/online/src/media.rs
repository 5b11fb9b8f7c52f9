//! The media of an open pool: opened at the beginning, added, looked for, and used again. Read next: `gate.rs`.

use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use stere_device::Volume;
use stere_format::{Succession, VolumeEntry, VolumeId, VolumeLabel};
use stere_multihost::{Guard, own_host};
use stere_pool::{Assembly, Opened};
use stere_store::{LabelledVolume, SharedLog, Store};

use crate::agreement;
use crate::far_media::FarVolume;
use crate::gate::Labelled;
use crate::running::Running;
use stere_control::spec::DeviceSpec;
use stere_machine::error::{Result, refused};
use stere_machine::places::{PLACE_BYTES_MAX, at_host, at_machine, is_of_machine, is_place, open_place};
use stere_machine::registry::Registry;

/// So long who asks how volumes are waits for those that are looked for.
const LOOKED_FOR: Duration = Duration::from_secs(1);

/// A place is kept in the pool, in a text of so many bytes at most.
fn refuse_long(place: &str) -> Result<()> {
    match place.len() > PLACE_BYTES_MAX {
        true => refused(format!(
            "the place of a medium has at most {PLACE_BYTES_MAX} bytes with its keys, and this one has {}; keep its files at shorter paths",
            place.len()
        )),
        false => Ok(()),
    }
}

/// For a store that is not mounted: tells it how to reach its volumes if names lie there that were put away.
pub fn open_for_names(store: &Store, registry: &Registry, assembly: &Assembly) {
    if !store.offload().has_folds() {
        return;
    }
    let (pool, id) = (&assembly.newest.pool_name, assembly.newest.pool.to_string());
    let record = agreement::record_of(registry, pool, &id);
    for entry in store.tier.media.volumes().into_iter().filter(|entry| !entry.is_offline) {
        if !agreement::is_agreed(record.as_ref(), &entry) {
            eprintln!("stere: medium {}: {}", entry.name, agreement::why_withheld(pool, &entry));
            continue;
        }
        let place = at_machine(&entry.place).map_or(entry.place.as_str(), |(local, _)| local);
        let attached = open_place(place)
            .and_then(|volume| Ok(store.tier.media.attach_volume(entry.number, volume, None, false)?));
        if let Err(error) = attached {
            tracing::warn!(volume = entry.name, %error, "a medium cannot be opened");
        }
    }
}

/// Takes over a pool that was opened, and tells it how to reach its media.
pub fn take_over(registry: &Registry, assembly: &Assembly, claim: Option<Guard>, opened: Opened) -> Running {
    let running = Running::new(registry, assembly, claim, opened);
    running.open_volumes();
    running
}

impl Running {
    fn labelled(&self, entry: &VolumeEntry, inner: Arc<dyn Volume>) -> Arc<dyn Volume> {
        let (inner, gate) = (LabelledVolume::new(inner, entry.id, &entry.name), self.gate.clone());
        let volume = Arc::new(Labelled::new(inner, entry.name.clone(), gate));
        self.gate.opened.lock().unwrap_or_else(PoisonError::into_inner).insert(entry.number, volume.clone());
        volume
    }

    /// Tells the store how to reach the volumes of its table; whether they are there shows when they are used.
    pub fn open_volumes(&self) {
        for entry in self.store.tier.media.volumes().into_iter().filter(|entry| !entry.is_offline) {
            let opened = self.agreed_place(&entry).and_then(|volume| {
                let volume = self.labelled(&entry, volume);
                Ok(self.store.tier.media.attach_volume(entry.number, volume, None, false)?)
            });
            if let Err(error) = opened {
                tracing::warn!(volume = entry.name, %error, "a medium cannot be opened");
            }
        }
    }

    /// Looks which directories are there, so that what is told of them is so: people take disks away and say nothing. What does not
    /// answer in a moment is told as it was.
    pub fn look_for_volumes(&self) {
        let (told, answers) = std::sync::mpsc::channel();
        let mut asked = 0;
        for (number, volume) in self.gate.opened().into_iter().filter(|(_, volume)| volume.may_be_exchanged()) {
            if volume.is_looked_for.swap(true, Ordering::AcqRel) {
                continue;
            }
            let (told, store, looked_for) = (told.clone(), self.store.clone(), volume.clone());
            let look = move || {
                let found = looked_for.length(VolumeLabel::OBJECT);
                store.tier.media.note_looked_for(number, found.err().as_ref());
                looked_for.is_looked_for.store(false, Ordering::Release);
                // Nobody may wait any more.
                let _whether_heard = told.send(());
            };
            match std::thread::Builder::new().name("look".into()).spawn(look) {
                Ok(_) => asked += 1,
                Err(_) => volume.is_looked_for.store(false, Ordering::Release),
            }
        }
        let until = Instant::now() + LOOKED_FOR;
        for _ in 0..asked {
            if answers.recv_timeout(until.saturating_duration_since(Instant::now())).is_err() {
                return;
            }
        }
    }

    /// How to reach what is at a place: of this machine, or through the one that the place names.
    pub fn open_medium(&self, place: &str) -> Result<Arc<dyn Volume>> {
        match at_machine(place) {
            None => open_place(place),
            Some((local, _)) if self.registry.served_media(&self.pool).iter().any(|own| own == place) => {
                open_place(local)
            }
            Some(_) => Ok(Arc::new(FarVolume::of_host(place, &self.far_media))),
        }
    }

    /// A place that was named on this machine, as all machines of the pool call it; this one serves it from now on.
    fn name_place(&self, place: &str) -> Result<String> {
        let is_meant = is_of_machine(place) && at_machine(place).is_none() && SharedLog::of(&self.store).is_used();
        let place = if is_meant { at_host(place, &own_host()) } else { place.to_owned() };
        refuse_long(&place)?;
        if is_meant {
            self.registry.serve_media(&self.pool, |places| {
                places.retain(|known| *known != place);
                places.push(place.clone());
            })?;
        }
        Ok(place)
    }

    /// The volume that a person means.
    pub fn find_volume(&self, word: &str) -> Option<VolumeEntry> {
        self.store.tier.media.volumes().into_iter().find(|entry| entry.name == word || entry.place == word)
    }

    /// Makes these volumes part of the pool.
    pub fn add_volumes(&self, specs: &[&DeviceSpec], force: bool) -> Result<Vec<String>> {
        let mut names = Vec::new();
        for spec in specs {
            let named = spec.path.display().to_string();
            let place = self.name_place(&named)?;
            let inner = self.open_medium(&place)?;
            let mut id = [0; 16];
            getrandom::fill(&mut id).expect("the operating system gives random bytes");
            let is_library = stere_robot::is_place(&place);
            // Positioning costs more than bytes there.
            let usual = if is_library { stere_pool::DeviceClass::Media } else { stere_pool::DeviceClass::Object };
            let class = spec.class.unwrap_or(usual);
            let local = at_machine(&place).map_or(place.as_str(), |(local, _)| local);
            let short = || match local.parse::<stere_robot::Place>() {
                Ok(library) => Some(library.set),
                Err(_) => Path::new(local).file_name().map(|name| name.to_string_lossy().into_owned()),
            };
            let name = if spec.name.is_empty() { short().unwrap_or_default() } else { spec.name.clone() };
            if self.store.device_entries().iter().any(|entry| entry.name == name) {
                return refused(format!(
                    "the pool '{}' has a device named '{name}' already; give another name",
                    self.pool
                ));
            }
            let id = VolumeId(id);
            let (class, takes_metadata) = (class.code(), spec.takes_metadata);
            let entry = VolumeEntry {
                number: 0,
                id,
                class,
                is_offline: false,
                takes_metadata,
                succession: Succession::Stays,
                name: name.clone(),
                place: place.clone(),
            };
            let number = self.store.tier.media.add_volume(entry.clone(), inner.clone(), &self.pool, force)?;
            let volume = self.labelled(&VolumeEntry { number, ..entry }, inner);
            self.store.tier.media.attach_volume(number, volume, None, true)?;
            self.agree(id, &place);
            // What a removed volume with this number cost is no matter.
            let prices = spec.prices.of(stere_store::VolumePrices::default());
            if self.store.tier.media.volume_prices(number)? != prices {
                self.store.tier.media.set_volume_prices(number, prices)?;
            }
            names.push(name);
        }
        Ok(names)
    }

    /// Uses a volume again, perhaps from another place.
    pub fn volume_online(&self, entry: &VolumeEntry, path: Option<&Path>) -> Result<String> {
        let place = match path.map(|path| path.display().to_string()) {
            None => entry.place.clone(),
            Some(text) if is_place(&text) => text,
            Some(text) => format!("dir:{text}"),
        };
        let place = match path {
            Some(_) => self.name_place(&place)?,
            None => place,
        };
        let volume = self.labelled(entry, self.open_medium(&place)?);
        self.store.tier.media.attach_volume(entry.number, volume, Some(&place), true)?;
        self.agree(entry.id, &place);
        Ok(format!("medium {} is in use", entry.name))
    }
}
