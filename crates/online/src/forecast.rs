//! What a change of devices would cost and leave: bytes to move, how long that takes, what is survived afterwards, and why
//! it cannot end well if it cannot.

use stere_format::{DeviceEntry, DeviceState};
use stere_policy::Class;
use stere_store::{Change as StoreChange, TooWide};

use crate::running::Running;
use stere_control::change::Forecast;
use stere_machine::error::Result;
use stere_machine::size::{self, show_duration};

/// What is to be forecast.
pub enum Plan<'a> {
    Add {
        devices: usize,
        bytes: u64,
        spare: bool,
    },
    /// Everything on it is moved or rebuilt elsewhere.
    Empty(&'a DeviceEntry),
    /// The same, and a hot spare helps if there is one.
    Fail(&'a DeviceEntry),
    Replace {
        old: &'a DeviceEntry,
        slot_count: u32,
    },
    /// It goes away, for a while or for good.
    Lose(&'a DeviceEntry),
    /// It comes back.
    Return(&'a DeviceEntry),
}

impl Running {
    pub fn forecast(&self, plan: &Plan<'_>) -> Result<Forecast> {
        match plan {
            Plan::Add { devices, bytes, spare } => Ok(self.forecast_add(*devices, *bytes, *spare)),
            Plan::Empty(entry) => self.forecast_empty(entry, false),
            Plan::Fail(entry) => self.forecast_empty(entry, self.spare().is_some()),
            Plan::Replace { old, slot_count } => self.forecast_replace(old, *slot_count),
            Plan::Lose(entry) => self.forecast_loss(entry),
            Plan::Return(entry) => self.forecast_return(entry),
        }
    }

    /// Devices that take chunks, without these.
    pub(crate) fn active_without(&self, except: &[u16]) -> usize {
        let entries = self.store.device_entries();
        let takes = |entry: &&DeviceEntry| {
            DeviceState::from_code(entry.state) == Some(DeviceState::Active)
                && !except.contains(&entry.index)
                && self.attached(entry.index).is_some()
        };
        entries.iter().filter(takes).count()
    }

    fn normal_survives(&self, devices: usize) -> u8 {
        if devices == 0 { 0 } else { crate::classes::classes(&self.store).wish(Class::Normal).scheme(devices).1 }
    }

    pub(crate) fn finish(
        &self,
        bytes_to_move: u64,
        survives_after: u8,
        lost_bytes: u64,
        refusal: Option<String>,
    ) -> Forecast {
        let rate = self.mending.bytes_per_second();
        let seconds = if bytes_to_move == 0 { 0 } else { bytes_to_move.div_ceil(rate.max(1)).max(1) };
        let moves = match bytes_to_move {
            0 => "nothing has to be moved".to_owned(),
            bytes => format!(
                "needs {}, about {} at {} a second",
                size::show(bytes),
                show_duration(seconds),
                size::show(rate)
            ),
        };
        let lost = match lost_bytes {
            0 => String::new(),
            bytes => format!("; {} of files could not be read", size::show(bytes)),
        };
        let text = format!("{moves}; afterwards normal survives {survives_after}{lost}");
        Forecast { bytes_to_move, seconds, survives_after, lost_bytes, text, refusal, asks: None }
    }

    fn forecast_add(&self, devices: usize, bytes: u64, spare: bool) -> Forecast {
        let added = if spare { 0 } else { devices };
        let survives = self.normal_survives(self.active_without(&[]) + added);
        let mut forecast = self.finish(0, survives, 0, None);
        let room = if spare { "kept empty until a device fails" } else { "for new data at once" };
        forecast.text = format!("{} more, {room}; {}", size::show(bytes), forecast.text);
        forecast
    }

    fn forecast_empty(&self, entry: &DeviceEntry, has_spare: bool) -> Result<Forecast> {
        let is_attached = self.attached(entry.index).is_some();
        let store_forecast = self.store.forecaster.forecast(&match is_attached {
            true => StoreChange::Evacuate(entry.index),
            false => StoreChange::Lose(vec![entry.index]),
        })?;
        let remaining = self.active_without(&[entry.index]) + usize::from(has_spare);
        let name = &entry.name;
        let pool = &self.pool;
        let refusal = if remaining == 0 {
            Some(format!(
                "'{name}' is the last device that takes data; add another with `stere device add {pool} DEVICE` first"
            ))
        } else if store_forecast.lost_bytes > 0 {
            Some(format!(
                "{} on device '{name}' lie nowhere else and it is not there; bring it back with `stere device online {pool} {name}`",
                size::show(store_forecast.lost_bytes)
            ))
        } else if let Some(why) = self.why_too_wide(&store_forecast).filter(|_| !has_spare) {
            Some(why)
        } else if let Some(why) = self.why_placeless(name, &store_forecast) {
            Some(why)
        } else if !store_forecast.fits && !has_spare {
            Some(format!(
                "what is on '{name}' ({}) does not fit on the other devices; add a device with `stere device add {pool} DEVICE`, or delete files",
                size::show(store_forecast.bytes_to_move)
            ))
        } else {
            None
        };
        let survives = match has_spare {
            true => self.normal_survives(remaining),
            false => store_forecast.survives_after,
        };
        Ok(self.finish(store_forecast.bytes_to_move, survives, store_forecast.lost_bytes, refusal))
    }

    /// What needs more devices than would be left, and the two ways out of each.
    pub(crate) fn why_too_wide(&self, forecast: &stere_store::Forecast) -> Option<String> {
        let mut wide: Vec<_> = forecast.too_wide.iter().collect();
        wide.sort_by_key(|(_, bytes)| std::cmp::Reverse(**bytes));
        let told: Vec<String> = wide.into_iter().map(|(wide, bytes)| self.too_wide(*wide, *bytes)).collect();
        (!told.is_empty())
            .then(|| format!("{}; or add a device with `stere device add {} DEVICE`", told.join("; "), self.pool))
    }

    fn too_wide(&self, wide: TooWide, bytes: u64) -> String {
        let TooWide { class: code, data, parity, only, devices_left: left } = wide;
        let (class, width) = (Class::from_code(code), usize::from(data) + usize::from(parity));
        let class =
            class.map_or_else(|| format!("number {code}"), |class| crate::classes::classes(&self.store).name(class));
        assert!(left < width, "{width} devices are needed and {left} are left, which is enough");
        let stored = if data == 1 { format!("{width} copies") } else { format!("{data}+{parity}") };
        let (size, pool) = (size::show(bytes), &self.pool);
        let words = self.store.places().place_words(only).filter(|_| only != 0).unwrap_or_default().join(",");
        let place = if words.is_empty() { String::new() } else { format!(" on {words} (only=)") };
        let of_them = format!("{size} of class {class} are stored as {stored}{place}, which needs {width} devices");
        if left == 0 {
            return format!(
                "{of_them}, and none would be left there: change where they lie (`stere policy set PATH only=...`)"
            );
        }
        let narrower = match left.checked_sub(usize::from(parity)) {
            Some(data_left) if data > 1 && data_left > 1 => format!("parity={data_left}+{parity}"),
            _ => format!("copies={left}"),
        };
        format!(
            "{of_them}, and {left} would be left{}: set {narrower} first (`stere class change {pool} {class} {narrower} --wait`, or `stere policy set PATH {narrower} --wait` where a file or directory asks for {stored} itself)",
            if words.is_empty() { "" } else { " there" },
        )
    }

    /// What must lie on certain devices (`only=`) and finds no room on those that are left.
    pub(crate) fn why_placeless(&self, name: &str, forecast: &stere_store::Forecast) -> Option<String> {
        let say = |(number, bytes): (&u8, &u64)| {
            let words = self.store.places().place_words(*number).unwrap_or_default().join(",");
            format!("{} that must lie on {words} (only=)", size::show(*bytes))
        };
        let homeless: Vec<String> = forecast.homeless_bytes.iter().map(say).collect();
        (!homeless.is_empty()).then(|| {
            format!(
                "no other device has room for {} of '{name}'; label one with `stere device label {} DEVICE tag=...`, change the policy, or delete files",
                homeless.join(" and "),
                self.pool
            )
        })
    }

    fn forecast_replace(&self, old: &DeviceEntry, slot_count: u32) -> Result<Forecast> {
        let usage = self.store.devices.device_usage(old.index)?;
        let is_attached = self.attached(old.index).is_some();
        let chunk_bytes = self.chunk_bytes;
        let bytes = usage.chunks * chunk_bytes;
        let lost_bytes = match is_attached {
            true => 0,
            // Away already: what cannot be read now is what it takes with it.
            false => {
                let floors = stere_pool::floors(&self.store);
                let forecast = self.store.forecaster.forecast(&StoreChange::Lose(vec![old.index]))?;
                forecast.lost_bytes.max(floors.lost_bytes + floors.lost_single_bytes)
            }
        };
        // A smaller one joins, and the others take what it cannot.
        let refusal = if slot_count < old.slot_count
            && !self.store.forecaster.forecast(&StoreChange::Evacuate(old.index))?.fits
        {
            (usage.chunks > u64::from(slot_count)).then(|| {
                format!(
                    "the new device is too small: '{}' holds {}, and the new one and the other devices have no room for it; name a larger device",
                    old.name,
                    size::show(bytes)
                )
            })
        } else {
            None
        };
        let survives = self.normal_survives(self.active_without(&[old.index]) + 1);
        let mut forecast = self.finish(bytes, survives, lost_bytes, refusal);
        if lost_bytes > 0 {
            forecast.text += &format!(
                ", for good unless '{0}' comes back (`stere device online {1} {0}`); `stere lose {1}` names the files",
                old.name, self.pool
            );
        }
        Ok(forecast)
    }

    fn forecast_loss(&self, entry: &DeviceEntry) -> Result<Forecast> {
        let forecast = self.store.forecaster.forecast(&StoreChange::Lose(vec![entry.index]))?;
        let refusal = (forecast.lost_bytes > 0).then(|| {
            format!(
                "without device '{0}' {1} of files could not be read; empty it with `stere device evacuate {2} {0}` first, or repeat with --force",
                entry.name,
                size::show(forecast.lost_bytes),
                self.pool
            )
        });
        // Nothing is moved: it is expected back.
        Ok(self.finish(0, forecast.survives_after, forecast.lost_bytes, refusal))
    }

    fn forecast_return(&self, entry: &DeviceEntry) -> Result<Forecast> {
        let usage = self.store.devices.device_usage(entry.index)?;
        let survives = self.normal_survives(self.active_without(&[entry.index]) + 1);
        Ok(self.finish(usage.missing * self.chunk_bytes, survives, 0, None))
    }
}
