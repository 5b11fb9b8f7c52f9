//! Attributes of policy: what an inode says itself, what holds for it, and who says so.
//!
//! Read next: `policy` (computed values), `chain` (all that is said of an inode), `editor` (setting).

use stere_file::{StoredFact, check_changeable, inode_if_any, own_retain};
use stere_format::{FileKind, Site};
use stere_namespace::call::Caller;
use stere_namespace::error::Error;
use stere_namespace::visibility::NOT_SHOWN;
use stere_namespace::xattr::{HAS_ATTRIBUTES, Say};
use stere_namespace::{plugins, rules, xattr};
use stere_policy::{
    KeptBy, List, NOTHING_WORD, Name, Own, ResidencySetting, ResidencySettings, Setting, Source, node_attribute,
    node_key, node_value, parse_name,
};
use stere_residency::residency_policy;
use stere_store::Lies;

use crate::provenance::PolicyProvenance;
use crate::retention::said_of_file;
use crate::{retention, versions};

impl PolicyProvenance {
    /// The value of an attribute.
    pub fn attribute(&self, caller: &Caller<'_>, inode: u64, name: &[u8]) -> Result<Vec<u8>, Error> {
        if let Some((key, is_lock)) = node_key(name) {
            let say = if is_lock { Say::Lock } else { Say::Own };
            let told = String::from_utf8(self.own_setting(caller, inode, Setting::Node, say)?);
            let value = told.ok().and_then(|told| node_value(&told, key).map(|value| value.as_bytes().to_vec()));
            return value.ok_or(Error::NoAttribute);
        }
        if let Some(parsed) = parse_name(name) {
            return match parsed {
                Ok(Name::Setting(setting)) => self.own_setting(caller, inode, setting, Say::Own),
                Ok(Name::Lock(setting)) => self.own_setting(caller, inode, setting, Say::Lock),
                Ok(Name::ListLock(List::Plugins)) => self.own_plugins(caller, inode, Say::Lock),
                Ok(Name::ListLock(List::Versions)) => self.own_versions_text(caller, inode, Say::Lock),
                Ok(Name::Plugins) => self.own_plugins(caller, inode, Say::Own),
                Ok(Name::Retain) => self.own_retain_text(caller, inode),
                Ok(Name::RetainLock) => self.core.stored_attribute(caller, inode, retention::LOCK),
                Ok(Name::Versions) => self.own_versions_text(caller, inode, Say::Own),
                Ok(Name::ResidencySetting(keep)) => self.own_keep(caller, inode, keep),
                Ok(Name::Rules) => self.core.stored_attribute(caller, inode, rules::ATTRIBUTE),
                Ok(Name::Computed(computed)) => self.computed(caller, inode, computed),
                Err(_) => Err(Error::NoAttribute),
            };
        }
        xattr::check_attribute_name(name)?;
        self.core.stored_attribute(caller, inode, name)
    }

    /// The names of all attributes, sorted; `trusted.*` only for the superuser.
    pub fn attribute_names(&self, caller: &Caller<'_>, inode: u64) -> Result<Vec<Vec<u8>>, Error> {
        let mut list = self.core.store.view(caller.io, |view| {
            let value = inode_if_any(view, inode)?.ok_or(Error::Stale)?;
            let (own, locked) = (stere_file::own_policy(&value), stere_file::own_locks(&value));
            let mut list = if value.flags & HAS_ATTRIBUTES == 0 { Vec::new() } else { xattr::names(view, inode)? };
            list.extend(self.names_of_told(own, false).chain(self.names_of_told(locked, true)));
            for setting in Setting::ALL.into_iter().filter(|setting| *setting != Setting::Node) {
                if own.get(setting).is_some() {
                    list.push(setting.attribute().as_bytes().to_vec());
                }
                if locked.get(setting).is_some() {
                    list.push(setting.lock_attribute().into_bytes());
                }
            }
            list.extend(
                List::ALL.into_iter().filter(|key| key.is_said(&locked)).map(|key| key.lock_attribute().into_bytes()),
            );
            if stere_file::own_stack(&value).is_some() {
                list.push(plugins::ATTRIBUTE.to_vec());
            }
            if stere_file::own_retain(&value).is_some() {
                list.push(retention::ATTRIBUTE.to_vec());
            }
            if stere_file::own_versions(&value).is_some() {
                list.push(versions::ATTRIBUTE.to_vec());
            }
            let residency = residency_policy::own(view, inode)?;
            let said = ResidencySetting::ALL.into_iter().filter(|keep| residency.says(*keep));
            list.extend(said.map(|keep| keep.attribute().as_bytes().to_vec()));
            Ok::<_, Error>(list)
        })?;
        list.retain(|name| caller.uid == 0 || !name.starts_with(b"trusted."));
        list.sort_unstable();
        Ok(list)
    }
}

impl PolicyProvenance {
    /// The attributes of what nodes are told: one for each setting, or one that says that they are told nothing.
    fn names_of_told(&self, own: Own, is_lock: bool) -> impl Iterator<Item = Vec<u8>> + use<> {
        let told = own.get(Setting::Node).map(|number| self.words.with_name(Setting::Node, number));
        let names = told.map(|told| match told.as_str() {
            NOTHING_WORD if is_lock => vec![Setting::Node.lock_attribute()],
            NOTHING_WORD => vec![Setting::Node.attribute().to_owned()],
            told => {
                let keys = told.split(',').filter_map(|setting| setting.split_once('='));
                keys.map(|(key, _)| node_attribute(key, is_lock)).collect()
            }
        });
        names.unwrap_or_default().into_iter().map(String::into_bytes)
    }

    /// What holds for an inode, and who says so.
    pub fn effective_keep(
        &self,
        caller: &Caller<'_>,
        inode: u64,
        keep: ResidencySetting,
    ) -> Result<(Vec<u8>, Vec<u8>), Error> {
        let (residency, by) = self.keep_of(caller, inode, keep)?.ok_or(Error::NoAttribute)?;
        let text = residency.text(keep).ok_or(Error::NoAttribute)?;
        Ok((text.into_bytes(), self.keep_source(caller, inode, (keep, residency), by)?))
    }

    fn keep_of(
        &self,
        caller: &Caller<'_>,
        inode: u64,
        keep: ResidencySetting,
    ) -> Result<Option<(ResidencySettings, KeptBy)>, Error> {
        if keep == ResidencySetting::Pin {
            let found = self.residency.pin_of(caller.io, caller.now, inode)?;
            return Ok(
                found.map(|(pin, by)| (ResidencySettings { pin: Some(pin), ..ResidencySettings::default() }, by))
            );
        }
        if keep == ResidencySetting::Release {
            let found = self.residency.release_of(caller.io, caller.now, inode)?;
            let of = |seconds| ResidencySettings { release_seconds: Some(seconds), ..ResidencySettings::default() };
            return Ok(found.map(|(seconds, by)| (of(seconds), by)));
        }
        let of = |residency: &ResidencySettings| residency.says(keep).then(|| residency.only(keep));
        Ok(self.residency.kept_in(caller.io, inode, of)?.map(|(residency, by, _)| (residency, by)))
    }

    fn keep_source(
        &self,
        caller: &Caller<'_>,
        inode: u64,
        held: (ResidencySetting, ResidencySettings),
        by: KeptBy,
    ) -> Result<Vec<u8>, Error> {
        let source = match by {
            KeptBy::Object(object) => Source::Inode(object),
            KeptBy::Lock(object) => Source::Lock(object),
            KeptBy::Pool => Source::Pool,
            KeptBy::Rule { place, object } => return self.keep_rule_source(caller, inode, held, place, object),
        };
        self.source_text(caller, inode, source, &[])
    }

    /// The rules of that place that match something and say of the key what holds.
    fn keep_rule_source(
        &self,
        caller: &Caller<'_>,
        inode: u64,
        held: (ResidencySetting, ResidencySettings),
        place: Option<u64>,
        object: u64,
    ) -> Result<Vec<u8>, Error> {
        let reachable = self.visibility.reachable(caller, inode)?;
        let among = reachable.as_ref().filter(|_| object == inode);
        for above in [Some(object).filter(|object| *object != inode), place].into_iter().flatten() {
            if !self.visibility.may_be_told(caller, inode, above)? {
                return Ok([b"a rule ", NOT_SHOWN].concat());
            }
        }
        let mut texts = Vec::new();
        for matched in self.residency.matched_of(caller.io, caller.now, object, Some(held), among)? {
            if matched.directory == place {
                texts.extend(matched.rules);
            }
        }
        texts.dedup();
        if texts.is_empty() && reachable.is_some() {
            return Ok([b"a rule ", NOT_SHOWN].concat());
        }
        if texts.is_empty() {
            return Ok(b"a rule that may match what nobody can read now".to_vec());
        }
        let whose = place.map_or(Ok(b"the pool".to_vec()), |place| self.core.path_of(caller.io, place))?;
        let mut text = [b"rule of ", &whose[..], b": ", texts.join("; ").as_bytes()].concat();
        if object != inode {
            text.extend([b", which matches ", &*self.core.path_of(caller.io, object)?].concat());
        }
        Ok(text)
    }

    pub fn own_keep(&self, caller: &Caller<'_>, inode: u64, keep: ResidencySetting) -> Result<Vec<u8>, Error> {
        let residency = self.core.store.view(caller.io, |view| residency_policy::own(view, inode))?;
        Ok(residency.text(keep).ok_or(Error::NoAttribute)?.into_bytes())
    }

    /// Bytes of a fact that do not lie where a file wants them, and whether that is for want of room where they must.
    pub fn misplaced(&self, fact: &StoredFact, wanted: Site) -> (u64, bool) {
        match fact.lies {
            // What is shared lies as another file wants it.
            _ if fact.site != wanted => (fact.bytes - if wanted.only == 0 { fact.shared_bytes } else { 0 }, false),
            Lies::Well => (0, false),
            Lies::Movable => (fact.bytes, false),
            Lies::Wrongly => (fact.bytes, true),
        }
    }

    /// What an inode says itself.
    pub fn own_plugins(&self, caller: &Caller<'_>, inode: u64, say: Say) -> Result<Vec<u8>, Error> {
        let value = self.core.store.view(caller.io, |view| inode_if_any(view, inode))?.ok_or(Error::Stale)?;
        let stack = say.of(&value).plugins.checked_sub(1);
        stack.map(|stack| self.registry.stack_text(stack)).ok_or(Error::NoAttribute)
    }

    /// Which plugins an inode has, and who said so.
    pub fn effective_plugins(&self, caller: &Caller<'_>, inode: u64) -> Result<(Vec<u8>, Vec<u8>), Error> {
        let effective = self.core.effective(caller, inode)?;
        let source = self.source_text(caller, inode, effective.plugins_source, &["plugins", "class"])?;
        Ok((self.registry.stack_text(effective.plugins), source))
    }

    /// What an inode says itself.
    pub fn own_retain_text(&self, caller: &Caller<'_>, inode: u64) -> Result<Vec<u8>, Error> {
        let value = self.core.store.view(caller.io, |view| inode_if_any(view, inode))?.ok_or(Error::Stale)?;
        let retain = own_retain(&value).ok_or(Error::NoAttribute)?;
        Ok(retain.text(value.kind() == Some(FileKind::Directory)).into_bytes())
    }

    /// What holds for an inode, and who said so.
    pub fn effective_retain(&self, caller: &Caller<'_>, inode: u64) -> Result<(Vec<u8>, Vec<u8>), Error> {
        let (value, above) = self.core.store.view(caller.io, |view| {
            let value = inode_if_any(view, inode)?.ok_or(Error::Stale)?;
            let above = said_of_file(view, inode, &value, caller.now.seconds)?;
            Ok::<_, Error>((value, above))
        })?;
        let is_directory = value.kind() == Some(FileKind::Directory);
        if let Some(own) = own_retain(&value) {
            let is_over = !is_directory && check_changeable(&value, caller.now).is_ok();
            let source: &[u8] = if is_over { b"set here, and over" } else { b"set here" };
            return Ok((own.text(is_directory).into_bytes(), source.to_vec()));
        }
        let (directory, retain) = above.ok_or(Error::NoAttribute)?;
        let source = self.source_text(caller, inode, Source::Inode(directory), &[])?;
        let when: &[u8] = if is_directory { b"" } else { b", when it has been left alone for so long" };
        Ok((retain.text(true).into_bytes(), [&source[..], when].concat()))
    }

    /// What an inode says itself.
    pub fn own_versions_text(&self, caller: &Caller<'_>, inode: u64, say: Say) -> Result<Vec<u8>, Error> {
        let value = self.core.store.view(caller.io, |view| inode_if_any(view, inode))?.ok_or(Error::Stale)?;
        Ok(say.of(&value).versions.ok_or(Error::NoAttribute)?.text().into_bytes())
    }

    /// What holds for an inode, and who said so.
    pub fn effective_versions(&self, caller: &Caller<'_>, inode: u64) -> Result<(Vec<u8>, Vec<u8>), Error> {
        let effective = self.core.effective(caller, inode)?;
        let wanted = effective.versions.ok_or(Error::NoAttribute)?;
        let source = self.source_text(caller, inode, effective.versions_source, &["versions", "class"])?;
        Ok((wanted.text().into_bytes(), source))
    }

    pub fn own_setting(&self, caller: &Caller<'_>, inode: u64, setting: Setting, say: Say) -> Result<Vec<u8>, Error> {
        let value = self.core.store.view(caller.io, |view| inode_if_any(view, inode))?.ok_or(Error::Stale)?;
        let text = say.of(&value).get(setting).ok_or(Error::NoAttribute)?;
        Ok(self.words.with_name(setting, text).into_bytes())
    }
}
