//! What rules would change before they are set: the same walk and the same decisions as later, and nothing is written.

mod residency;

use std::collections::BTreeMap;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use stere_format::{DeviceIndex, FileKind, InodeValue};
use stere_namespace::call::Caller;
use stere_namespace::error::Error;
use stere_namespace::inode::Core;
use stere_namespace::names::Form;
use stere_namespace::plugins::PluginRegistry;
use stere_namespace::rules::{PolicyRules, Scopes};
use stere_namespace::tiers::Tiers;
use stere_namespace::walk::{Walk, path_of};
use stere_namespace::words::PolicyWords;
use stere_policy::{Checksum, Effective, RecordSize, RuleSet, Setting, Statements, Switch, Sync, Versions};
use stere_residency::residency_policy::ResidencyPolicy;
use stere_store::{Io, TierFile};

pub use residency::ResidencyCounts;

/// Directories whose rules are kept during a walk.
const KEPT_MAX: usize = 4096;

/// A file that would be stored otherwise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleChange {
    /// From the root of the pool.
    pub path: Vec<u8>,
    /// Allocated bytes.
    pub bytes: u64,
    /// How it is to be stored now.
    pub before: String,
    /// And with the rules.
    pub after: String,
    /// Volumes that it would go to and that lack so many stored bytes of it.
    pub goes_to: Vec<(u8, u64)>,
    /// In segments with so many data chunks.
    pub goes_in_data_chunks: u8,
    /// Bytes that it takes on each device now, with copies or parity.
    pub lies_on: Vec<(DeviceIndex, u64)>,
    /// Bytes that it would take on all of them, encoded as it is now.
    pub would_take_bytes: u64,
    /// Devices that it may lie on then.
    pub may_lie_on: Vec<DeviceIndex>,
}

/// A walk that tells what rules of a directory would change.
pub struct RulesForecast<'a> {
    forecasts: &'a Forecasts,
    other: (u64, Arc<RuleSet>),
    walk: Walk,
    kept: FxHashMap<u64, Arc<Scopes>>,
    /// Files looked at.
    pub files: u64,
    statements: FxHashMap<u64, Arc<Statements>>,
    /// What stays on devices now, and with the rules; none where no rule and no class says anything of that.
    pub residency: Option<[ResidencyCounts; 2]>,
}

/// Tells what rules would change before they are set.
pub struct Forecasts {
    pub core: Arc<Core>,
    pub rules: Arc<PolicyRules>,
    pub registry: Arc<PluginRegistry>,
    pub words: Arc<PolicyWords>,
    pub residency: Arc<ResidencyPolicy>,
    pub tiers: Arc<Tiers>,
}

impl Forecasts {
    /// Begins to tell what these rules would change if this directory had them instead of its own.
    pub fn forecast_rules(&self, caller: &Caller<'_>, directory: u64, text: &str) -> Result<RulesForecast<'_>, Error> {
        let set = self.rules.parse_rules(caller, text, false)?;
        let kind = self.core.store.view(caller.io, |view| stere_file::inode_if_any(view, directory))?;
        if kind.and_then(|value| value.kind()) != Some(FileKind::Directory) {
            return Err(Error::NotPermitted("rules can be set on directories"));
        }
        let path = path_of(&self.core.store, &self.core.names, caller.io, directory)?
            .filter(|path| path != b"/")
            .unwrap_or_default();
        let walk = Walk::new(directory, FileKind::Directory, path, Form::Plain);
        let other = (directory, Arc::new(set));
        let residency = self.may_keep_otherwise(caller.io, &other.1)?.then(<[ResidencyCounts; 2]>::default);
        let (kept, statements) = (FxHashMap::default(), FxHashMap::default());
        Ok(RulesForecast { forecasts: self, other, walk, kept, files: 0, statements, residency })
    }
}

impl RulesForecast<'_> {
    /// Looks at so many names; none when all were looked at.
    pub fn step(&mut self, caller: &Caller<'_>, names_max: usize) -> Result<Option<Vec<RuleChange>>, Error> {
        let mut changes = Vec::new();
        for number in 0..names_max {
            let Some(met) = self.walk.next(&self.forecasts.core.store, &self.forecasts.core.names, caller.io)? else {
                return Ok((number > 0).then_some(changes));
            };
            self.count_residency(caller, &met)?;
            if met.kind != FileKind::File {
                continue;
            }
            self.files += 1;
            let value = self.forecasts.core.files.attributes(caller.io, met.inode)?;
            let (Some(value), Some(directory)) = (value, self.walk.directory(&met)) else { continue };
            let scopes = self.scopes_in(caller.io, directory)?;
            changes.extend(self.change_of(caller, met.inode, value, &scopes)?);
        }
        Ok(Some(changes))
    }

    fn scopes_in(&mut self, io: Io<'_>, directory: u64) -> Result<Arc<Scopes>, Error> {
        if let Some(scopes) = self.kept.get(&directory) {
            return Ok(scopes.clone());
        }
        let scopes = Arc::new(self.forecasts.rules.read_scopes(io, directory, 0, Some(&self.other))?);
        if self.kept.len() >= KEPT_MAX {
            self.kept.clear();
        }
        self.kept.insert(directory, scopes.clone());
        Ok(scopes)
    }

    fn change_of(
        &self,
        caller: &Caller<'_>,
        inode: u64,
        mut value: InodeValue,
        scopes: &Scopes,
    ) -> Result<Option<RuleChange>, Error> {
        let path = self.walk.path();
        let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
        let files = &self.forecasts.core.files;
        let effective = |value: &InodeValue| {
            self.forecasts
                .core
                .store
                .view(caller.io, |view| files.policies.effective(view, inode, value))
                .map_err(Error::from)
        };
        let before = effective(&value)?;
        let decision = scopes.decide(name, &value, caller.now, &mut |_, _| {});
        stere_file::set_rule_decision(&mut value, decision);
        let after = effective(&value)?;
        let devices = files.policies.device_count();
        let is_other = before.wish != after.wish
            || (before.plugins, before.versions) != (after.plugins, after.versions)
            || Switch::ALL.into_iter().any(|one| before.is_on(one) != after.is_on(one));
        if !is_other {
            return Ok(None);
        }
        let goes_to = match before.wish.tier == after.wish.tier {
            true => Vec::new(),
            false => self.goes_to(caller, inode, files.policies.media_of(after.wish.tier).unwrap_or(0))?,
        };
        let (lies_on, would_take_bytes) = self.on_devices(caller, inode, &before, &after)?;
        Ok(Some(RuleChange {
            path: path.to_vec(),
            bytes: value.blocks_bytes,
            before: self.forecasts.words(&before, devices),
            after: self.forecasts.words(&after, devices),
            goes_to,
            goes_in_data_chunks: files.policies.scheme_now(&after).data,
            lies_on,
            would_take_bytes,
            may_lie_on: self.forecasts.core.store.places().devices_allowed(after.wish.only),
        }))
    }

    /// What a file takes on each device now, and what it would take on all of them.
    fn on_devices(
        &self,
        caller: &Caller<'_>,
        inode: u64,
        before: &Effective,
        after: &Effective,
    ) -> Result<(Vec<(DeviceIndex, u64)>, u64), Error> {
        let facts = self.forecasts.core.facts(caller, inode, before)?;
        let mut lies_on: BTreeMap<DeviceIndex, u64> = BTreeMap::new();
        let mut stored = 0;
        // What was released to volumes takes nothing here, now and then.
        for fact in facts.iter().filter(|fact| !fact.devices.is_empty()) {
            let on_each = fact.stored_bytes.div_ceil(u64::from(fact.scheme.data));
            fact.devices.iter().for_each(|device| *lies_on.entry(*device).or_default() += on_each);
            stored += fact.stored_bytes;
        }
        let scheme = self.forecasts.core.files.policies.scheme_now(after);
        let would_take = stored.div_ceil(u64::from(scheme.data)) * u64::from(scheme.data + scheme.parity);
        Ok((lies_on.into_iter().collect(), would_take))
    }

    /// What of a file these volumes lack.
    fn goes_to(&self, caller: &Caller<'_>, inode: u64, set: u16) -> Result<Vec<(u8, u64)>, Error> {
        let numbers = (0..u16::BITS as u8).filter(|number| set >> number & 1 == 1);
        let file = if set == 0 { TierFile::default() } else { self.forecasts.tiers.tier_file(caller, inode)? };
        Ok(numbers.map(|number| (number, file.bytes_not_on(number))).filter(|(_, bytes)| *bytes > 0).collect())
    }
}

impl Forecasts {
    /// An effective policy in words.
    fn words(&self, effective: &Effective, devices: usize) -> String {
        let words = Setting::ALL.into_iter().filter_map(|setting| {
            // What is off unless somebody says otherwise is told where it is on.
            let is_on = setting.switch().is_none_or(|switch| effective.is_on(switch));
            let is_told = is_on
                && (setting != Setting::Encrypt || effective.wish.encryption.is_on())
                && (setting != Setting::Record || effective.wish.record != RecordSize::USUAL)
                && (setting != Setting::Checksum || effective.wish.checksum != Checksum::default())
                && (setting != Setting::Sync || effective.wish.sync != Sync::default());
            let value = effective.value(setting, devices).filter(|_| is_told)?;
            let is_named =
                matches!(setting, Setting::Class | Setting::Tier | Setting::On | Setting::Only | Setting::Node);
            let value = if is_named { self.words.with_name(setting, value) } else { value };
            Some(format!("{}={value}", setting.word()))
        });
        let plugins =
            (effective.plugins != 0).then(|| self.registry.plugins_wish_text(effective.plugins + 1)).flatten();
        let versions = effective.versions.map(Versions::text);
        let lists = [("plugins", plugins), ("versions", versions)];
        let lists = lists.into_iter().filter_map(|(key, value)| Some(format!("{key}={}", value?)));
        words.chain(lists).collect::<Vec<_>>().join(" ")
    }
}
