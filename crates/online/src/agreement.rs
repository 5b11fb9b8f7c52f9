//! Which files of this machine are used for volumes on others: those that somebody here agreed to.
//!
//! Where a volume is stands in the pool, with the files that are used to get there: passwords, keys, certificates. Who made the pool may
//! have been somebody else, and who mounts it may be root: so a place from the pool that names a file opens none, and speaks to nobody,
//! before the administrator agreed on this machine. Who names the place in a command agrees by that. It is remembered with the pool,
//! for this volume at exactly this place: another place in the pool asks again. Places without such files are used as they are. Where
//! nobody agreed, a machine that mounts the pool and on which somebody did is asked (`far_media.rs`).
//! Read next: `media.rs`.

use std::sync::Arc;

use stere_device::Volume;
use stere_format::{VolumeEntry, VolumeId};

use crate::far_media::FarVolume;
use crate::outcome::Outcome;
use crate::running::{Running, lock};
use stere_control::change::Forecast;
use stere_machine::error::Result;
use stere_machine::registry::{AgreedPlace, PoolRecord, Registry};

/// What is remembered of exactly this pool.
pub fn record_of(registry: &Registry, pool: &str, id: &str) -> Option<PoolRecord> {
    registry.find(pool).ok().flatten().filter(|record| record.id == id)
}

/// Whether the place of a volume may be opened.
pub fn is_agreed(record: Option<&PoolRecord>, entry: &VolumeEntry) -> bool {
    let names_files = !stere_tertiary::named_files(&entry.place).is_empty();
    !names_files || record.is_some_and(|record| record.agreed.as_ref().is_none_or(|agreed| agreed.contains(&of(entry))))
}

fn of(entry: &VolumeEntry) -> AgreedPlace {
    AgreedPlace { volume: entry.id.to_string(), place: entry.place.clone() }
}

/// The files that it names, for people.
fn files(entry: &VolumeEntry) -> String {
    let files = stere_tertiary::named_files(&entry.place);
    let shown = files.iter().map(|path| path.display().to_string().escape_debug().to_string());
    shown.collect::<Vec<_>>().join(" and ")
}

/// Where it is, without the keys that follow.
fn bare(entry: &VolumeEntry) -> String {
    entry.place.split(',').next().unwrap_or_default().escape_debug().to_string()
}

/// Why a volume is not used, and what to do.
pub fn why_withheld(pool: &str, entry: &VolumeEntry) -> String {
    format!(
        "the pool wants {} of this machine to be used for it, and nobody here agreed: `stere device online {pool} {}` shows where it is and asks",
        files(entry),
        entry.name
    )
}

impl Running {
    fn is_agreed(&self, entry: &VolumeEntry) -> bool {
        let is_agreed_now = lock(&self.agreed).contains(&of(entry));
        is_agreed_now || is_agreed(record_of(&self.registry, &self.pool, &self.id).as_ref(), entry)
    }

    /// Whether a volume is not used because nobody agreed to the files that it names.
    pub fn is_withheld(&self, volume: &str) -> bool {
        self.find_volume(volume).is_some_and(|entry| !entry.is_offline && !self.is_agreed(&entry))
    }

    /// How to reach a volume of the table, or what stands in its place until somebody agrees.
    pub fn agreed_place(&self, entry: &VolumeEntry) -> Result<Arc<dyn Volume>> {
        match self.is_agreed(entry) {
            true => self.open_medium(&entry.place),
            // Another machine may have what it takes.
            false => {
                let why = why_withheld(&self.pool, entry);
                Ok(Arc::new(FarVolume::new(&entry.place, bare(entry), why, &self.far_media)))
            }
        }
    }

    /// Somebody named this place, or was asked. It is remembered with the pool's devices.
    pub fn agree(&self, volume: VolumeId, place: &str) {
        let mut agreed = lock(&self.agreed);
        agreed.retain(|known| known.volume != volume.to_string());
        agreed.push(AgreedPlace { volume: volume.to_string(), place: place.to_owned() });
    }

    /// What is to be remembered, of the volumes that the pool has.
    pub fn agreed_places(&self, old: Option<&PoolRecord>) -> Vec<AgreedPlace> {
        let now = lock(&self.agreed).clone();
        let keeps = |entry: &VolumeEntry| {
            let known = of(entry);
            let names_files = !stere_tertiary::named_files(&entry.place).is_empty();
            (names_files && (now.contains(&known) || is_agreed(old, entry))).then_some(known)
        };
        self.store.tier.media.volumes().iter().filter_map(keeps).collect()
    }

    /// What it means to use a volume again: something to agree to, where its place was not named in the command and is new here.
    pub fn forecast_online(&self, entry: &VolumeEntry, is_named: bool) -> Outcome {
        if is_named || self.is_agreed(entry) {
            return Outcome::Done(String::new());
        }
        let place = entry.place.escape_debug();
        let asks = format!(
            "{} of this machine is used for {}, which is where the pool '{}' says that medium {} is",
            files(entry),
            place,
            self.pool,
            entry.name
        );
        let text = format!("medium {} is at {place}", entry.name);
        let (bytes_to_move, seconds, survives_after, lost_bytes) = Default::default();
        let asks = Some(asks);
        Outcome::Forecast(Forecast { bytes_to_move, seconds, survives_after, lost_bytes, text, refusal: None, asks })
    }
}
