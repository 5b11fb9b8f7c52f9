//! Facts about an inode's policy and data, answered by reading attributes that are never listed.

mod attributes;
mod sources;

use std::collections::BTreeSet;
use std::sync::Arc;

use stere_file::{DigestKind, StoredFact};
use stere_namespace::call::Caller;
use stere_namespace::encryption::EncryptionKeys;
use stere_namespace::error::Error;
use stere_namespace::inode::Core;
use stere_namespace::plugins::PluginRegistry;
use stere_namespace::rules::PolicyRules;
use stere_namespace::tiers::Tiers;
use stere_namespace::visibility::{NOT_SHOWN, PathVisibility};
use stere_namespace::words::PolicyWords;
use stere_policy::{Computed, Setting, Source};
use stere_residency::residency_policy::ResidencyPolicy;

use crate::digests::Digests;
use crate::unmet_policies::UnmetPolicies;

/// Answers what holds for an inode, who decided it, and how its data is stored.
pub struct PolicyProvenance {
    pub core: Arc<Core>,
    pub rules: Arc<PolicyRules>,
    pub registry: Arc<PluginRegistry>,
    pub words: Arc<PolicyWords>,
    pub residency: Arc<ResidencyPolicy>,
    pub visibility: Arc<PathVisibility>,
    pub tiers: Arc<Tiers>,
    pub encryption: Arc<EncryptionKeys>,
    pub unmet: Arc<UnmetPolicies>,
    pub digests: Arc<Digests>,
}

impl PolicyProvenance {
    /// The value of a computed attribute.
    pub fn computed(&self, caller: &Caller<'_>, inode: u64, computed: Computed) -> Result<Vec<u8>, Error> {
        match computed {
            Computed::Effective(setting) => self.effective_setting(caller, inode, setting),
            Computed::Source(setting) => self.source_of(caller, inode, setting),
            Computed::EffectivePlugins => Ok(self.effective_plugins(caller, inode)?.0),
            Computed::PluginsSource => Ok(self.effective_plugins(caller, inode)?.1),
            Computed::EffectiveRetain => Ok(self.effective_retain(caller, inode)?.0),
            Computed::RetainSource => Ok(self.effective_retain(caller, inode)?.1),
            Computed::EffectiveVersions => Ok(self.effective_versions(caller, inode)?.0),
            Computed::VersionsSource => Ok(self.effective_versions(caller, inode)?.1),
            Computed::EffectiveResidency(keep) => Ok(self.effective_keep(caller, inode, keep)?.0),
            Computed::ResidencySource(keep) => Ok(self.effective_keep(caller, inode, keep)?.1),
            Computed::Chain => self.chain(caller, inode),
            Computed::State => self.state(caller, inode),
            Computed::Where => self.devices(caller, inode),
            Computed::Stored => self.stored(caller, inode),
            Computed::Sha256 => self.digests.digest_text(caller, inode, DigestKind::Sha256),
            Computed::Blake3 => self.digests.digest_text(caller, inode, DigestKind::Blake3),
            Computed::Survives => self.survives(caller, inode),
            Computed::Residency => Ok(self.tiers.tier_file(caller, inode)?.residency().as_bytes().to_vec()),
        }
    }

    fn effective_setting(&self, caller: &Caller<'_>, inode: u64, setting: Setting) -> Result<Vec<u8>, Error> {
        let effective = self.core.effective(caller, inode)?;
        let value = effective.value(setting, self.core.files.policies.device_count()).ok_or(Error::NoAttribute)?;
        Ok(self.words.with_name(setting, value).into_bytes())
    }

    fn source_of(&self, caller: &Caller<'_>, inode: u64, setting: Setting) -> Result<Vec<u8>, Error> {
        let related: &[&str] = match setting {
            Setting::Encrypt => &["encrypt"],
            Setting::Copies | Setting::Parity | Setting::Redundancy | Setting::Class => {
                &["class", "redundancy", "copies", "parity"]
            }
            _ => &[setting.word(), "class"],
        };
        let source = self.core.effective(caller, inode)?.source(setting);
        self.source_text(caller, inode, source, related)
    }

    /// Who decided, in words; of rules those that say something of these `keys`.
    pub fn source_text(
        &self,
        caller: &Caller<'_>,
        inode: u64,
        source: Source,
        keys: &[&str],
    ) -> Result<Vec<u8>, Error> {
        if let Some(text) = self.visibility.instead_of(caller, inode, source)? {
            return Ok(text);
        }
        let text = match source {
            Source::Pool => b"default class of the pool".to_vec(),
            Source::Inode(number) if number == inode => b"set here".to_vec(),
            Source::Lock(number) if number == inode => b"locked here by the administrator".to_vec(),
            Source::Lock(number) => {
                [b"locked by the administrator at ", &*self.core.path_of(caller.io, number)?].concat()
            }
            Source::Rule => self.rule_source(caller, inode, keys)?,
            Source::Inode(number) => [b"inherited from ", &*self.core.path_of(caller.io, number)?].concat(),
        };
        Ok(text)
    }

    /// The rules that matched the file and say something about one of these keys.
    fn rule_source(&self, caller: &Caller<'_>, inode: u64, keys: &[&str]) -> Result<Vec<u8>, Error> {
        let says = |rule: &String| keys.iter().any(|word| rule.contains(&format!("{word}=")));
        let reachable = self.visibility.reachable(caller, inode)?;
        for matched in self.rules.matched(caller.io, caller.now, inode, reachable.as_ref())? {
            let rules: Vec<String> = matched.rules.into_iter().filter(says).collect();
            if rules.is_empty() {
                continue;
            }
            let whose = match matched.directory {
                None => b"the pool".to_vec(),
                Some(number) => self.core.path_of(caller.io, number)?,
            };
            return Ok([b"rule of ", &whose[..], b": ", rules.join("; ").as_bytes()].concat());
        }
        if reachable.is_some() {
            return Ok([b"a rule ", NOT_SHOWN].concat());
        }
        Ok(b"a rule that has changed since; it is looked at again in the background".to_vec())
    }

    pub fn state(&self, caller: &Caller<'_>, inode: u64) -> Result<Vec<u8>, Error> {
        let lost_bytes = stere_namespace::lost::unreadable_bytes(&self.core.store, caller.io, inode)?;
        if lost_bytes > 0 {
            return Ok(format!("lost: {lost_bytes} bytes cannot be read from the devices that are there").into_bytes());
        }
        let effective = self.core.effective(caller, inode)?;
        let wanted = self.core.files.policies.scheme_now(&effective);
        let facts = self.core.facts(caller, inode, &effective)?;
        // What is shared with a file that wants more stays with the better of both.
        let tertiary = self.core.files.policies.media_of(effective.wish.tier);
        let site = self.core.files.policies.site_of(&effective);
        let mut wrongly = 0;
        let mut pending_of = |fact: &StoredFact| match fact.scheme == wanted {
            _ if tertiary.is_some_and(|set| set != fact.tertiary) => fact.bytes,
            // What is on volumes only lies on no devices.
            _ if fact.tertiary != 0 && fact.devices.is_empty() => 0,
            // On other devices than it was asked to.
            _ if self.misplaced(fact, site).0 > 0 => {
                let (bytes, is_wrong) = self.misplaced(fact, site);
                wrongly += if is_wrong { bytes } else { 0 };
                bytes
            }
            // A device is away, or is being rebuilt.
            true if fact.losses_borne.on_devices < fact.scheme.parity => fact.bytes,
            true => fact.otherwise_encoded_bytes,
            false if fact.scheme.parity >= wanted.parity => fact.bytes - fact.shared_bytes,
            false => fact.bytes,
        };
        let waiting = self.tiers.tier_file(caller, inode)?.waiting_bytes;
        let pending: u64 = facts.iter().map(&mut pending_of).sum::<u64>().max(waiting);
        if let Some(why) = self.unmet.why_effective_unkept(&effective) {
            return Ok(format!("impossible: {why}").into_bytes());
        }
        if let Some((rule, why)) = self.unmet.why_rules_unkept(caller.io, inode)? {
            return Ok(format!("impossible: rule '{rule}': {why}").into_bytes());
        }
        if wrongly > 0 {
            let why =
                format!("impossible: {wrongly} bytes lie elsewhere, and the devices that only= names have no room");
            return Ok(why.into_bytes());
        }
        let pending_names = self.encryption.pending_names(caller, inode, &effective)?;
        if pending_names > 0 {
            return Ok(format!("pending {pending_names} names").into_bytes());
        }
        if pending > 0 {
            return Ok(format!("pending {pending} bytes").into_bytes());
        }
        let devices = self.core.files.policies.devices_for(&effective);
        if wanted.parity < effective.wish.scheme.survives_at_least(devices) {
            // Devices would be enough, and some are away, or are leaving.
            return Ok(self.away(&effective).into_bytes());
        }
        Ok(b"compliant".to_vec())
    }

    /// Which devices are missed by what is written now.
    fn away(&self, effective: &stere_policy::Effective) -> String {
        let (allowed, open) =
            (self.core.store.places().devices_allowed(effective.wish.only), self.core.store.open_devices());
        let entries = self.core.store.device_entries().into_iter();
        let is_missed =
            |entry: &stere_format::DeviceEntry| allowed.contains(&entry.index) && !open.contains(&entry.index);
        let names: Vec<String> = entries.filter(is_missed).map(|entry| entry.name).collect();
        format!("away: {}", names.join(", "))
    }

    fn survives(&self, caller: &Caller<'_>, inode: u64) -> Result<Vec<u8>, Error> {
        let effective = self.core.effective(caller, inode)?;
        let facts = self.core.facts(caller, inode, &effective)?;
        let stored = facts.iter().map(|fact| fact.losses_borne.in_all).min();
        let survives = match stored {
            Some(survives) => survives,
            // Nothing is stored yet: what new data would get.
            None => self.core.files.policies.scheme_now(&effective).parity,
        };
        Ok(survives.to_string().into_bytes())
    }

    fn stored(&self, caller: &Caller<'_>, inode: u64) -> Result<Vec<u8>, Error> {
        let facts = self.core.facts(caller, inode, &self.core.effective(caller, inode)?)?;
        let stored: u64 = facts.iter().map(|fact| fact.stored_bytes).sum();
        Ok(stored.to_string().into_bytes())
    }

    pub fn devices(&self, caller: &Caller<'_>, inode: u64) -> Result<Vec<u8>, Error> {
        let facts = self.core.facts(caller, inode, &self.core.effective(caller, inode)?)?;
        let indices: BTreeSet<u16> = facts.iter().flat_map(|fact| fact.devices.iter().copied()).collect();
        let entries = self.core.store.device_entries();
        let names = indices.iter().map(|index| {
            let entry = entries.iter().find(|entry| entry.index == *index);
            entry.map_or_else(|| format!("device {index}"), |entry| entry.name.clone())
        });
        let mut names: Vec<String> = names.collect();
        let volumes = self.tiers.tier_file(caller, inode)?.volumes;
        if volumes != 0 {
            names.extend(self.core.store.tier.media.tier_names(volumes).split('+').map(str::to_owned));
        }
        Ok(names.join(" ").into_bytes())
    }
}
