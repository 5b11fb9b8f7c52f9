//! Classes that a pool defines: kept in the tree, known to the resolver, and changed so that exactly what has them is looked at.
//!
//! Who has a class itself, and whose rules name it, stands in indexes (tree 5), written with the attribute. So a change of a class notes
//! these files and directories for the reconciler, in the transaction that changes it, and nobody looks for them. The places that
//! policies name have such indexes too, for devices that are labelled otherwise.
//! Invariant: a name means one class for ever, so rules that name a class mean the same after it was deleted as before.
//! Read next: `stere_policy::Classes`, `reconcile.rs`.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use stere_file::inode_if_any;
use stere_format::{ClassMedia, ClassResidency, ClassValue, InodeValue, Key, PLACE_NUMBER_MIN, RuledMore, Site, key};
use stere_policy::{
    CLASS_NAME_BYTES_MAX, Class, Classes, Definition, NODE_KEY_PREFIX, Own, PolicyError, ResidencySetting,
    ResidencySettings, Setting, Switches, Versions, with_node_value,
};
use stere_store::{Io, Store, Transaction};

use crate::call::{Caller, ROOT};
use crate::error::Error;
use crate::inode::Core;
use crate::plugins::PluginRegistry;
use crate::rules::{HAS_RULES, PolicyRules};
use crate::words::PolicyWords;

/// Noted one by one at most; where more have a class, one walk over the pool does it.
const NOTED_MAX: usize = 1024;

const _: () = assert!(CLASS_NAME_BYTES_MAX == ClassValue::NAME_BYTES_MAX, "every name that is accepted has room");

/// What there is to know of a class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClassInfo {
    /// How people call it.
    pub name: String,
    /// Whether every pool has it.
    pub is_built_in: bool,
    /// Keys and values, as people write them.
    pub settings: Vec<(&'static str, String)>,
    /// Files and directories that have it themselves.
    pub members: u64,
    /// Directories whose rules name it; the pool's own rules count as one.
    pub rules: u64,
}

/// The classes that a pool has. What is damaged is told, and says nothing.
pub fn read_classes(store: &Store, io: Io<'_>) -> Result<Classes, Error> {
    store.view(io, |view| {
        let mut classes = Classes::default();
        let (from, to) = (Key::class(0), Key::new(key::tree::SYSTEM, u64::from(u8::MAX) + 1, 0, 0));
        view.scan(from, to, |key, bytes| {
            let class = u8::try_from(key.object).ok().and_then(Class::from_code);
            if let Some(class) = class.filter(|_| key.kind == key::kind::CLASS) {
                read_class(&mut classes, class, bytes);
            }
            ControlFlow::Continue(())
        })?;
        Ok::<_, Error>(classes)
    })
}

fn read_class(classes: &mut Classes, class: Class, bytes: &[u8]) {
    match ClassValue::decode(bytes) {
        Ok(value) => {
            let own = Own {
                copies: value.copies,
                parity_data: value.parity_k,
                parity: value.parity_m,
                class: 0,
                compression: value.compression,
                redundancy: value.redundancy,
                encryption: value.encryption,
                tiers: value.media.tiers,
                switches: Switches(value.switches),
                record: value.record,
                checksum: value.checksum,
                on: value.places.on,
                only: value.places.only,
                node: value.places.node,
                plugins: value.more.plugins,
                versions: value.more.versions.and_then(stere_file::wished),
                residency: residency_of(value.residency, value.media),
                sync: value.media.sync,
            };
            let into = value.into.and_then(Class::from_code);
            classes.put(class, Definition { name: value.name, own, into });
        }
        Err(error) => {
            tracing::error!(class = class.code(), %error, "a class is not understood; define it anew");
            if !class.is_built_in() {
                // Its code is not used for another one.
                let name = format!("damaged-{}", class.code());
                classes.put(class, Definition { name, own: Own::default(), into: None });
            }
        }
    }
}

pub fn encode(definition: &Definition, now_seconds: i64) -> Vec<u8> {
    assert_eq!(definition.own.class, 0, "a class is of no class");
    let Own { copies, parity_data: parity_k, parity: parity_m, compression, redundancy, encryption, .. } =
        definition.own;
    let (name, into) = (definition.name.clone(), definition.into.map(Class::code));
    let (changed_seconds, switches, record) = (now_seconds, definition.own.switches.0, definition.own.record);
    let (plugins, versions) = (definition.own.plugins, definition.own.versions.map(stere_file::stored_wish));
    let numbers = ClassValue {
        copies,
        parity_k,
        parity_m,
        compression,
        redundancy,
        encryption,
        switches,
        record,
        checksum: definition.own.checksum,
        places: Site { on: definition.own.on, only: definition.own.only, node: definition.own.node },
        more: RuledMore { plugins, versions },
        residency: stored_residency(definition.own.residency),
        media: stored_media(&definition.own),
        ..ClassValue::default()
    };
    ClassValue { name, changed_seconds, into, ..numbers }.encode()
}

fn residency_of(stored: ClassResidency, media: ClassMedia) -> ResidencySettings {
    let said = |code: u8| (code > 0).then_some(code > 1);
    let names_seconds = (stored.names > 0).then_some(stored.names_seconds);
    let release_seconds = (media.release > 0).then_some(media.release_seconds);
    ResidencySettings { pin: said(stored.pin), unit: said(stored.unit), names_seconds, release_seconds }
}

fn stored_media(own: &Own) -> ClassMedia {
    let release = own.residency.release_seconds;
    ClassMedia {
        tiers: own.tiers,
        sync: own.sync,
        release: u8::from(release.is_some()),
        release_seconds: release.unwrap_or(0),
    }
}

fn stored_residency(residency: ResidencySettings) -> ClassResidency {
    let code = |said: Option<bool>| said.map_or(0, |is_on| 1 + u8::from(is_on));
    let names = u8::from(residency.names_seconds.is_some());
    let names_seconds = residency.names_seconds.unwrap_or(0);
    let stored = ClassResidency { pin: code(residency.pin), unit: code(residency.unit), names, names_seconds };
    let read = residency_of(stored, ClassMedia::default());
    assert_eq!(read, ResidencySettings { release_seconds: None, ..residency }, "what is stored is read again");
    stored
}

/// The classes and places that an inode names itself, by what is set and by a lock (what is none is 0, or below the first number); and whether
/// it asks for redundancy.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Named {
    classes: [u8; 2],
    places: [u8; 4],
    syncs: [u8; 2],
    asks_for_redundancy: bool,
}

impl Named {
    pub fn of(value: &InodeValue) -> Named {
        let (own, locks) = (stere_file::own_policy(value), stere_file::own_locks(value));
        Named {
            classes: [own.class, locks.class],
            places: [own.on, own.only, locks.on, locks.only],
            syncs: [own.sync, locks.sync],
            asks_for_redundancy: own.scheme_wish().or(locks.scheme_wish()).is_some(),
        }
    }

    /// Its keys in the indexes of which inodes name what.
    pub fn entries(&self, inode: u64) -> BTreeSet<Key> {
        let classes = self.classes.into_iter().filter(|class| *class != 0);
        let places = self.places.into_iter().filter(|number| *number >= PLACE_NUMBER_MIN);
        let places = places.map(|number| Key::place_member(number, inode));
        let redundancy = self.asks_for_redundancy.then(|| Key::redundancy_member(inode));
        let syncs = self.syncs.into_iter().filter(|code| *code != 0).map(|code| Key::sync_member(code, inode));
        classes.map(|class| Key::class_member(class, inode)).chain(places).chain(redundancy).chain(syncs).collect()
    }
}

/// Keeps the indexes of which inodes have which class, name which place, and ask for redundancy.
pub fn index_member(transaction: &mut Transaction<'_>, inode: u64, before: Named, after: Named) {
    let (before, after) = (before.entries(inode), after.entries(inode));
    before.difference(&after).for_each(|key| transaction.delete(*key));
    after.difference(&before).for_each(|key| transaction.put(*key, &[1]));
}

const REDUNDANCY: [Setting; 3] = [Setting::Copies, Setting::Parity, Setting::Redundancy];

/// What a class sets after these keys were set; a key without a value is as the class was built in, or says nothing.
fn with_settings(class: Class, before: Own, settings: &[(String, String)]) -> Result<Own, Error> {
    let mut own = before;
    let parsed = settings.iter().map(|(key, value)| {
        let setting = Setting::from_word(key).ok_or_else(|| PolicyError::NotOfClasses(key.clone()))?;
        Ok::<_, Error>((setting, value))
    });
    let parsed = parsed.collect::<Result<Vec<_>, Error>>()?;
    // One way to ask for redundancy takes the place of the one before.
    if parsed.iter().any(|(setting, _)| REDUNDANCY.contains(setting)) {
        REDUNDANCY.into_iter().for_each(|setting| own.unset(setting));
    }
    for (setting, value) in parsed {
        match setting {
            Setting::Class => {
                return Err(Error::Invalid("a class says how files are stored, and cannot be of a class"));
            }
            Setting::Encrypt if !matches!(value.as_str(), "" | "yes" | "no") => {
                return Err(Error::Invalid(
                    "a class says encrypt=yes or encrypt=no; which key it is, a directory says",
                ));
            }
            _ => own.set(setting, value.as_bytes())?,
        }
    }
    if class.is_built_in() {
        let built_in = Classes::built_in(class).own;
        if own.scheme_wish().is_none() {
            own.copies = built_in.copies;
        }
        if own.compression().is_none() {
            own.compression = built_in.compression;
        }
        assert!(own.scheme_wish().is_some(), "a built-in class says how much its files survive");
    }
    Ok(own)
}

/// The classes that a pool defines, and whom a change of one concerns.
pub struct PolicyClasses {
    pub core: Arc<Core>,
    pub rules: Arc<PolicyRules>,
    pub registry: Arc<PluginRegistry>,
    pub words: Arc<PolicyWords>,
}

impl PolicyClasses {
    /// As `with_settings`; plugins and versions too, which are lists.
    pub fn with_lists(
        &self,
        caller: &Caller<'_>,
        class: Class,
        before: Own,
        settings: &[(String, String)],
    ) -> Result<Own, Error> {
        let is_list = |(key, _): &&(String, String)| {
            matches!(key.as_str(), "plugins" | "versions") || ResidencySetting::from_word(key).is_some()
        };
        let (lists, others): (Vec<_>, Vec<_>) = settings.iter().partition(is_list);
        let numbered = |(key, value): &(String, String)| {
            let place = Setting::from_word(key)
                .filter(|setting| matches!(setting, Setting::On | Setting::Only | Setting::Node | Setting::Tier));
            let number = place.map(|setting| self.words.with_number(setting, value.as_bytes())).transpose()?;
            let value = number.map_or_else(|| value.clone(), |number| String::from_utf8_lossy(&number).into_owned());
            Ok::<_, Error>((key.clone(), value))
        };
        let told = self.told_of_class(before, &others)?;
        let others = others.into_iter().filter(|(key, _)| !key.starts_with(NODE_KEY_PREFIX)).chain(&told);
        let others = others.map(numbered).collect::<Result<Vec<_>, Error>>()?;
        let mut own = with_settings(class, before, &others)?;
        for (key, value) in lists {
            if let Some(keep) = ResidencySetting::from_word(key) {
                own.residency.set(keep, value.as_bytes())?;
                continue;
            }
            match key.as_str() {
                "plugins" => own.plugins = self.registry.plugins_wish(caller, value)?,
                _ if value.is_empty() => own.versions = None,
                _ => own.versions = Some(Versions::parse(value.as_bytes())?),
            }
        }
        Ok(own)
    }

    /// Single settings for nodes, as the whole of them that the class then has.
    fn told_of_class(&self, before: Own, settings: &[&(String, String)]) -> Result<Option<(String, String)>, Error> {
        let single = settings.iter().filter_map(|(key, value)| Some((key.strip_prefix(NODE_KEY_PREFIX)?, value)));
        let known = before.get(Setting::Node).map(|number| self.words.with_place_words(Setting::Node, number));
        let (mut told, mut is_changed) = (known.unwrap_or_default(), false);
        for (key, value) in single {
            told = with_node_value(&told, key, Some(value.as_str()).filter(|value| !value.is_empty()));
            is_changed = true;
        }
        Ok(is_changed.then(|| (Setting::Node.word().to_owned(), told)))
    }

    /// All classes in use.
    pub fn list_classes(&self, io: Io<'_>) -> Result<Vec<ClassInfo>, Error> {
        let classes = self.core.files.resolver().classes();
        let infos = classes.in_use().map(|(class, definition)| {
            let (mut members, mut rules) = (0, 0);
            for one in classes.all_of(class) {
                members += self.count(io, Key::class_member(one.code(), 0), Key::class_member(one.code(), u64::MAX))?;
                rules += self.count(io, Key::class_rules(one.code(), 0), Key::class_rules(one.code(), u64::MAX))?;
                rules += u64::from(self.rules.name_class(one));
            }
            let settings = definition.settings().into_iter().map(|(setting, value)| match setting {
                Setting::On | Setting::Only | Setting::Node | Setting::Tier => {
                    (setting.word(), self.words.with_name(setting, value))
                }
                _ => (setting.word(), value),
            });
            let plugins = self.registry.plugins_wish_text(definition.own.plugins).map(|text| ("plugins", text));
            let versions = definition.own.versions.map(|versions| ("versions", versions.text()));
            let residency = definition.residency().map(|(keep, value)| (keep.word(), value));
            let settings = settings.chain(plugins).chain(versions).chain(residency).collect();
            let (name, is_built_in) = (definition.name.clone(), class.is_built_in());
            Ok(ClassInfo { name, is_built_in, settings, members, rules })
        });
        infos.collect()
    }

    /// Whether anything has this class itself, or by rules; the pool's default class is what all else has.
    pub fn is_class_used(&self, io: Io<'_>, class: Class) -> Result<bool, Error> {
        if class == self.core.files.resolver().default_class() || self.rules.name_class(class) {
            return Ok(true);
        }
        let of = [Key::class_member, Key::class_rules];
        self.core.store.view(io, |view| {
            let mut is_any = false;
            for key in of {
                view.scan(key(class.code(), 0), key(class.code(), u64::MAX), |_, _| {
                    is_any = true;
                    ControlFlow::Break(())
                })?;
            }
            Ok(is_any)
        })
    }

    fn count(&self, io: Io<'_>, from: Key, to: Key) -> Result<u64, Error> {
        self.core.store.view(io, |view| {
            let mut count = 0;
            view.scan(from, to, |_, _| {
                count += 1;
                ControlFlow::Continue(())
            })?;
            Ok(count)
        })
    }

    /// Below whom to look when a class changes.
    pub fn concerned(
        &self,
        transaction: &mut Transaction<'_>,
        classes: &Classes,
        class: Class,
    ) -> Result<Vec<u64>, Error> {
        let all_of = if classes.get(class).is_some() { classes.all_of(class) } else { Vec::new() };
        let is_everywhere = class == self.core.files.resolver().default_class()
            || all_of.iter().any(|one| self.rules.name_class(*one))
            || (class.is_built_in() && transaction.get(&Key::classes_indexed())?.is_none());
        if is_everywhere {
            return Ok(vec![ROOT]);
        }
        let ends = |class: Class, of: fn(u8, u64) -> Key| (of(class.code(), 0), of(class.code(), u64::MAX));
        let ranges = all_of.into_iter().flat_map(|one| [ends(one, Key::class_member), ends(one, Key::class_rules)]);
        indexed(transaction, ranges)
    }

    /// Below whom to look when places have come to mean other devices.
    pub fn concerned_by_places(
        &self,
        transaction: &mut Transaction<'_>,
        numbers: &BTreeSet<u8>,
    ) -> Result<Vec<u64>, Error> {
        if transaction.get(&Key::places_indexed())?.is_none() || self.rules.name_places(numbers) {
            return Ok(vec![ROOT]);
        }
        let classes = self.core.files.resolver().classes();
        let mut concerned = Vec::new();
        for (class, definition) in classes.in_use() {
            if [definition.own.on, definition.own.only].iter().any(|number| numbers.contains(number)) {
                concerned.extend(self.concerned(transaction, &classes, class)?);
            }
        }
        let ends = |number: u8, of: fn(u8, u64) -> Key| (of(number, 0), of(number, u64::MAX));
        let ranges = numbers.iter().flat_map(|one| [ends(*one, Key::place_member), ends(*one, Key::place_rules)]);
        concerned.extend(indexed(transaction, ranges)?);
        let is_many = concerned.len() > NOTED_MAX || concerned.contains(&ROOT);
        Ok(if is_many { vec![ROOT] } else { concerned })
    }

    /// Devices came, went or are labelled otherwise: notes those files to be looked at whose policy names a place that means other devices
    /// now. What lies elsewhere than its segment notes is not their business: mending moves it.
    pub fn follow_labels(&self, caller: &Caller<'_>) -> Result<(), Error> {
        let changed = self.core.store.places().take_changed_places();
        if changed.is_empty() {
            return Ok(());
        }
        let noted = self.core.store.update(caller.io, |transaction| {
            let concerned = self.concerned_by_places(transaction, &changed)?;
            concerned.into_iter().try_for_each(|inode| self.core.reconcile.note(transaction, inode))
        });
        if noted.is_err() {
            self.core.store.places().put_changed_places(changed);
        }
        noted
    }
}

/// Whom the entries of these parts of the indexes are about; the root where they are many. Entries that are not so any more go.
fn indexed(transaction: &mut Transaction<'_>, ranges: impl IntoIterator<Item = (Key, Key)>) -> Result<Vec<u64>, Error> {
    let (mut concerned, mut old) = (Vec::new(), Vec::new());
    for (from, to) in ranges {
        let mut found = Vec::new();
        transaction.scan(from, to, |key, _| {
            found.push(*key);
            if found.len() > NOTED_MAX { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        if concerned.len() + found.len() > NOTED_MAX {
            return Ok(vec![ROOT]);
        }
        for key in found {
            let value = inode_if_any(transaction, key.position)?;
            let still = value.is_some_and(|value| match key.kind {
                key::kind::CLASS_RULES | key::kind::PLACE_RULES => value.flags & HAS_RULES != 0,
                _ => Named::of(&value).entries(key.position).contains(&key),
            });
            if still { concerned.push(key.position) } else { old.push(key) }
        }
    }
    old.into_iter().for_each(|key| transaction.delete(key));
    assert!(concerned.len() <= NOTED_MAX, "where {} are concerned, the root is", concerned.len());
    Ok(concerned)
}
