//! Changes of policy: what is set on inodes, the rules of directories and of the pool, and classes.
//!
//! Policy is what all features read, so a change tells each of them what it must note: work for the reconciler in the same
//! transaction, that versions or records begin, what is said of names and residency. Invariants: a change holds `changing_policy`
//! from before its transaction until everybody asks anew; what a lock contradicts is refused.
//! Read next: `classes`, `rules`, `residency_policy`, `policy_attributes` (reading).

mod residency;

use std::sync::Arc;

use parking_lot::Mutex;
use stere_file::{Keys, inode_if_any, set_own_stack, set_own_versions};
use stere_format::{FileKind, InodeValue, Key, RulesValue, TERTIARY_MAX, key};
use stere_namespace::call::{Caller, ROOT};
use stere_namespace::classes::{PolicyClasses, encode};
use stere_namespace::encryption::EncryptionKeys;
use stere_namespace::error::Error;
use stere_namespace::flagged::FlaggedInodes;
use stere_namespace::inode::Core;
use stere_namespace::plugins::{NONE, PluginRegistry};
use stere_namespace::rules::{HAS_RULES, PolicyRules, collect, index_entries};
use stere_namespace::words::{PolicyWords, unknown_class};
use stere_namespace::xattr::{Say, SetMode, check_mode, contradicts_a_lock};
use stere_namespace::{classes, rules, tiers, xattr};
use stere_policy::{
    Class, Classes, Definition, Encryption, List, Name, Own, PolicyError, ResidencySetting, ResidencySettings, Rule,
    Setting, Switches, is_class_name, node_settings, node_value, with_node_value,
};
use stere_residency::eviction::Eviction;
use stere_residency::offload::Offload;
use stere_residency::residency_policy::ResidencyPolicy;

use crate::audit::Audit;
use crate::durability::Durability;
use crate::retention::Retentions;
use crate::versions::Versions;

/// Changes policy: what is set on inodes, rules and classes, and what each feature notes with it.
pub struct PolicyEditor {
    pub core: Arc<Core>,
    pub rules: Arc<PolicyRules>,
    pub classes: Arc<PolicyClasses>,
    pub registry: Arc<PluginRegistry>,
    pub words: Arc<PolicyWords>,
    pub encryption: Arc<EncryptionKeys>,
    pub retention: Arc<Retentions>,
    pub versions: Arc<Versions>,
    pub audit: Arc<Audit>,
    pub durability: Arc<Durability>,
    pub residency: Arc<ResidencyPolicy>,
    pub offload: Arc<Offload>,
    pub eviction: Arc<Eviction>,
    pub flagged: Arc<FlaggedInodes>,
    pub node_values: Mutex<()>,
}

impl PolicyEditor {
    /// Defines a class.
    pub fn create_class(&self, caller: &Caller<'_>, name: &str, settings: &[(String, String)]) -> Result<(), Error> {
        if !is_class_name(name) {
            return Err(Error::Invalid("a class's name is 1 to 64 letters, digits, '-', '_' and '.'"));
        }
        let _one_at_a_time = self.rules.changing_classes();
        let mut classes = (*self.core.files.resolver().classes()).clone();
        if classes.find(name).is_some() {
            return Err(Error::Invalid("there is a class of this name; change that one, or choose another name"));
        }
        if classes.find_even_deleted(name).is_some() {
            return Err(Error::Invalid(
                "a class of this name was deleted, and rules that name it still mean what it became; choose another name",
            ));
        }
        let class = classes.unused().ok_or(Error::Invalid("a pool has 240 classes in all its life; change one"))?;
        let own = self.classes.with_lists(caller, class, Own::default(), settings)?;
        if own.is_empty() {
            return Err(Error::Invalid("a class sets something, for example copies=3 or compress=zstd"));
        }
        classes.put(class, Definition { name: name.to_owned(), own, into: None });
        assert_eq!(classes.find(name), Some(class), "a class that was defined is found by its name");
        self.put_class(caller, classes, class)
    }

    /// Makes a class set something else; what has it is brought in line in the background. Tells whether it was otherwise before.
    pub fn change_class(&self, caller: &Caller<'_>, name: &str, settings: &[(String, String)]) -> Result<bool, Error> {
        let _one_at_a_time = self.rules.changing_classes();
        let mut classes = (*self.core.files.resolver().classes()).clone();
        let class = classes.find(name).ok_or_else(|| unknown_class(name))?;
        let definition = classes.get(class).cloned().ok_or_else(|| unknown_class(name))?;
        let own = self.classes.with_lists(caller, class, definition.own, settings)?;
        if own == definition.own {
            return Ok(false);
        }
        classes.put(class, Definition { own, ..definition });
        self.put_class(caller, classes, class)?;
        Ok(true)
    }

    /// Deletes a class; what has it belongs to another one from now on.
    pub fn delete_class(&self, caller: &Caller<'_>, name: &str, into: &str) -> Result<(), Error> {
        let _one_at_a_time = self.rules.changing_classes();
        let mut classes = (*self.core.files.resolver().classes()).clone();
        let class = classes.find(name).ok_or_else(|| unknown_class(name))?;
        let heir = classes.find(into).ok_or_else(|| unknown_class(into))?;
        if class.is_built_in() {
            return Err(Error::Invalid("a built-in class can be changed and not deleted"));
        }
        if class == heir {
            return Err(Error::Invalid("what has the class must belong to another one; name it with --into"));
        }
        let definition = classes.get(class).cloned().ok_or_else(|| unknown_class(name))?;
        classes.put(class, Definition { into: Some(heir), ..definition });
        assert_eq!(classes.resolve(class), heir, "what has a class that was deleted has its heir");
        self.put_class(caller, classes, class)
    }

    /// Writes a class as it is in `classes`, notes whom that concerns, and lets it hold.
    fn put_class(&self, caller: &Caller<'_>, classes: Classes, class: Class) -> Result<(), Error> {
        if classes.encryption(class).is_some_and(Encryption::is_on) {
            self.encryption.check_default_key()?;
        }
        let resolver = self.core.files.resolver();
        let before = resolver.classes();
        let definition = classes.get(class).ok_or(Error::Stale)?;
        let bytes = encode(definition, caller.now.seconds);
        let _until_it_holds = self.core.reconcile.changing_policy();
        self.core.store.update(caller.io, |transaction| {
            transaction.put(Key::class(class.code()), &bytes);
            self.audit.note_audited(transaction, classes.switches(class))?;
            if classes.versions(class).is_some() {
                self.versions.begin_versions(transaction);
            }
            let says_names = [before.residency(class), classes.residency(class)]
                .iter()
                .any(|said| said.says(ResidencySetting::Names));
            for inode in self.classes.concerned(transaction, &before, class)? {
                self.core.reconcile.note(transaction, inode)?;
                let value = if says_names { inode_if_any(transaction, inode)? } else { None };
                if value.is_some_and(|value| value.kind() == Some(FileKind::Directory)) {
                    self.note_names_anew(transaction, caller, inode);
                }
            }
            Ok::<_, Error>(())
        })?;
        self.audit.begin_audit(classes.switches(class));
        if classes.sync(class).is_some() {
            self.durability.begin();
        }
        resolver.set_classes(classes);
        self.core.policy.note_first_change();
        self.residency_changed();
        Ok(())
    }

    /// Says which plugins a file, or what is in a directory, has from now on; without a value what is above decides again.
    pub fn set_plugins(
        &self,
        caller: &Caller<'_>,
        inode: u64,
        value: Option<&[u8]>,
        mode: SetMode,
        say: Say,
    ) -> Result<(), Error> {
        let stack = match value {
            None | Some(b"") => None,
            Some(NONE) => Some(0),
            Some(text) => Some(self.registry.stack_of_text(caller, text)?),
        };
        let _until_it_holds = self.core.reconcile.changing_policy();
        self.core.changing_attribute(caller, inode, |transaction, inode_value| {
            if !matches!(inode_value.kind(), Some(FileKind::File | FileKind::Directory)) {
                return Err(Error::NotPermitted("policy can be set on files and directories"));
            }
            let plugins = stack.map_or(0, |stack| stack + 1);
            xattr::check_mode(mode, say.of(inode_value).plugins != 0)?;
            match say {
                Say::Own => {
                    let asked = Own { plugins, ..Own::default() };
                    self.check_list_locks(transaction, inode, inode_value, &[asked])?;
                    set_own_stack(inode_value, stack);
                }
                Say::Lock => stere_file::set_own_locks(inode_value, Own { plugins, ..say.of(inode_value) }),
            }
            // What is stored already is brought in line in the background; the note makes that survive a crash.
            self.core.reconcile.note(transaction, inode)
        })?;
        self.core.files.resolver().invalidate();
        self.core.policy.note_change();
        Ok(())
    }

    /// Sets or removes a directory's own rules.
    pub fn set_rules(&self, caller: &Caller<'_>, inode: u64, text: Option<&[u8]>) -> Result<(), Error> {
        let text = text.filter(|text| !text.is_empty());
        let (mut named, mut asked, mut lists, mut keeps_versions) = (Vec::new(), Vec::new(), Vec::new(), false);
        let mut new_set = None;
        if let Some(text) = text {
            let set = self.rules.parse_rules(caller, &String::from_utf8_lossy(text), false)?;
            named = index_entries(&set, inode);
            keeps_versions = set.rules().iter().any(|rule| rule.own.versions.is_some());
            let settings = |rule: &Rule| {
                let own = rule.own;
                Setting::ALL.into_iter().filter(move |key| own.get(*key).is_some()).map(move |key| (key, own))
            };
            asked = set.rules().iter().flat_map(settings).collect();
            lists = set.rules().iter().map(|rule| rule.own).collect();
            let asked_residency: Vec<ResidencySettings> = lists.iter().map(|own: &Own| own.residency).collect();
            self.residency.check_keep_locks(caller, inode, &asked_residency)?;
            new_set = Some(set);
        }
        let says = asked.iter().fold(Switches::default(), |says, (_, own)| says.or_more(own.switches));
        let _until_it_holds = self.core.reconcile.changing_policy();
        self.core.changing(caller, inode, None, |transaction, value| {
            if value.kind() != Some(stere_format::FileKind::Directory) {
                return Err(Error::NotPermitted("rules can be set on directories"));
            }
            self.check_locks(transaction, inode, value, &asked)?;
            self.check_list_locks(transaction, inode, value, &lists)?;
            self.audit.note_audited(transaction, says)?;
            if keeps_versions {
                self.versions.begin_versions(transaction);
            }
            value.ctime = caller.now;
            let old_set = self.rules.own_rules(transaction, inode, value)?;
            self.note_residency_rules(transaction, caller, inode, [old_set.as_deref(), new_set.as_ref()]);
            self.rules.forget_rules(transaction, inode, value)?;
            named.iter().for_each(|key| transaction.put(*key, &[1]));
            match text {
                Some(text) => {
                    xattr::put(transaction, inode, rules::ATTRIBUTE, text)?;
                    value.flags |= HAS_RULES | xattr::HAS_ATTRIBUTES;
                }
                None => {
                    xattr::remove(transaction, inode, rules::ATTRIBUTE)?;
                    value.flags &= !HAS_RULES;
                }
            }
            self.core.reconcile.note(transaction, inode)
        })?;
        self.audit.begin_audit(says);
        if asked.iter().any(|(_, own)| own.sync().is_some()) {
            self.durability.begin();
        }
        self.core.files.resolver().invalidate();
        self.flagged.note_change();
        self.core.policy.note_first_change();
        self.residency_changed();
        if let Some(text) = text {
            // Ready for the first file.
            self.rules.parse_stored(inode, text, &self.core.files.resolver().classes());
        }
        Ok(())
    }

    /// Makes these the pool's rules. What they change is done in the background.
    pub fn load_rules(&self, caller: &Caller<'_>, text: &str) -> Result<u64, Error> {
        // Two that load at once would take one number, and rules name classes.
        let _one_at_a_time = self.rules.changing_classes();
        let set = self.rules.parse_rules(caller, text, true)?;
        let last_version: u64 = collect(&self.core.store, caller.io, |last, kind, number, _| {
            if kind == key::kind::RULES {
                *last = number;
            }
        })?;
        let version = last_version + 1;
        let says = set.rules().iter().fold(Switches::default(), |says, rule| says.or_more(rule.own.switches));
        let classes = self.core.files.resolver().classes();
        let old = self.rules.pool_rules();
        let all = || old.iter().flat_map(|set| set.rules()).chain(set.rules());
        let says_names = all().any(|rule| stere_policy::residency_of(rule, &classes).says(ResidencySetting::Names));
        let entry = RulesValue { seconds: caller.now.seconds, user: caller.uid, text: text.to_owned() }.encode();
        let _until_it_holds = self.core.reconcile.changing_policy();
        self.core.store.update(caller.io, |transaction| {
            transaction.put(Key::rules(version), &entry);
            (0..TERTIARY_MAX as u8).for_each(|number| transaction.delete(Key::media_rules(number, 0)));
            rules::media_entries(&set, 0).iter().for_each(|key| transaction.put(*key, &[1]));
            self.audit.note_audited(transaction, says)?;
            if set.rules().iter().any(|rule| rule.own.versions.is_some()) {
                self.versions.begin_versions(transaction);
            }
            if says_names {
                self.note_names_anew(transaction, caller, ROOT);
            }
            self.core.reconcile.note(transaction, ROOT)
        })?;
        self.audit.begin_audit(says);
        if set.rules().iter().any(|rule| rule.own.sync().is_some()) {
            self.durability.begin();
        }
        self.rules.put_pool(version, set);
        self.core.files.resolver().invalidate();
        self.core.policy.note_first_change();
        self.residency_changed();
        Ok(version)
    }

    /// Sets which versions are kept of a file, or of files below a directory; without a value nothing is said here any more.
    pub fn set_versions(
        &self,
        caller: &Caller<'_>,
        inode: u64,
        value: Option<&[u8]>,
        mode: SetMode,
        say: Say,
    ) -> Result<(), Error> {
        let wanted = value.filter(|text| !text.is_empty()).map(stere_policy::Versions::parse).transpose()?;
        let _until_it_holds = self.core.reconcile.changing_policy();
        self.core.changing_attribute(caller, inode, |transaction, value| {
            if !matches!(value.kind(), Some(FileKind::File | FileKind::Directory)) {
                return Err(Error::NotPermitted("policy can be set on files and directories"));
            }
            xattr::check_mode(mode, say.of(value).versions.is_some())?;
            match say {
                Say::Own => {
                    stere_file::check_changeable(value, caller.now)?;
                    let asked = Own { versions: wanted, ..Own::default() };
                    self.check_list_locks(transaction, inode, value, &[asked])?;
                    set_own_versions(value, wanted);
                }
                Say::Lock => stere_file::set_own_locks(value, Own { versions: wanted, ..say.of(value) }),
            }
            self.versions.begin_versions(transaction);
            self.core.reconcile.note(transaction, inode)
        })?;
        self.core.files.resolver().invalidate();
        self.core.policy.note_change();
        let value = self.core.store.view(caller.io, |view| inode_if_any(view, inode))?.ok_or(Error::Stale)?;
        match value.kind() {
            Some(FileKind::File) => self.versions.pass_on(caller, inode, &value),
            _ => Ok(()),
        }
    }

    /// Sets, or takes away, one of the settings that nodes are told, and leaves the others.
    pub fn set_node_value(
        &self,
        caller: &Caller<'_>,
        inode: u64,
        (key, is_lock): (&str, bool),
        value: Option<&[u8]>,
        mode: SetMode,
    ) -> Result<(), Error> {
        // Nobody else changes the others meanwhile.
        let _one_at_a_time = self.node_values.lock();
        let say = if is_lock { Say::Lock } else { Say::Own };
        let name = if is_lock { Name::Lock(Setting::Node) } else { Name::Setting(Setting::Node) };
        let known = self.core.store.view(caller.io, |view| inode_if_any(view, inode))?.ok_or(Error::Stale)?;
        let number = say.of(&known).get(Setting::Node);
        let known = number.map(|number| self.words.with_name(Setting::Node, number)).unwrap_or_default();
        check_mode(mode, node_value(&known, key).is_some())?;
        let wrong = |value: &[u8]| PolicyError::BadValue {
            key: Setting::Node.word(),
            value: format!("{key}={}", String::from_utf8_lossy(value)),
            expected: Setting::Node.expected(),
        };
        let text = value.map(|value| std::str::from_utf8(value).map_err(|_| wrong(value))).transpose()?;
        if let Some(text) = text.filter(|text| node_settings(&format!("{key}={text}")).is_none_or(|all| all.len() != 1))
        {
            return Err(wrong(text.as_bytes()).into());
        }
        match with_node_value(&known, key, text) {
            none if none.is_empty() => self.set_policy(caller, inode, name, None, SetMode::Any),
            told => self.set_policy(caller, inode, name, Some(told.as_bytes()), SetMode::Any),
        }
    }

    pub fn set_policy(
        &self,
        caller: &Caller<'_>,
        inode: u64,
        name: Name,
        value: Option<&[u8]>,
        mode: SetMode,
    ) -> Result<(), Error> {
        self.check_may_say_policy(caller, inode)?;
        let (setting, say) = match name {
            Name::Setting(setting) => (setting, Say::Own),
            Name::Lock(setting) => (setting, Say::Lock),
            Name::Rules => {
                let exists = self.core.stored_attribute(caller, inode, rules::ATTRIBUTE).is_ok();
                check_mode(mode, exists)?;
                return self.set_rules(caller, inode, value);
            }
            Name::ListLock(List::Plugins) => return self.set_plugins(caller, inode, value, mode, Say::Lock),
            Name::ListLock(List::Versions) => return self.set_versions(caller, inode, value, mode, Say::Lock),
            Name::Plugins => return self.set_plugins(caller, inode, value, mode, Say::Own),
            Name::Retain => return self.retention.set_retain(caller, inode, value, mode),
            Name::RetainLock => return self.retention.lock_retain(caller, inode, value, mode),
            Name::Versions => return self.set_versions(caller, inode, value, mode, Say::Own),
            Name::ResidencySetting(keep) => return self.set_keep(caller, inode, keep, value, mode),
            Name::Computed(computed) => return Err(PolicyError::Computed(computed.word()).into()),
        };
        let numbered = value.map(|value| self.words.with_number(setting, value)).transpose()?;
        let mut asked = Own::default();
        asked.set(setting, numbered.as_deref().unwrap_or_default())?;
        let _until_it_holds = self.core.reconcile.changing_policy();
        self.core.changing_attribute(caller, inode, |transaction, inode_value| {
            if !matches!(inode_value.kind(), Some(FileKind::File | FileKind::Directory)) {
                return Err(Error::NotPermitted("policy can be set on files and directories"));
            }
            let mut own = say.of(inode_value);
            check_mode(mode, own.get(setting).is_some())?;
            if say == Say::Own && !asked.is_empty() {
                self.check_locks(transaction, inode, inode_value, &[(setting, asked)])?;
            }
            let class_before = own.class();
            own.set(setting, numbered.as_deref().unwrap_or_default())?;
            let named_before = classes::Named::of(inode_value);
            match say {
                Say::Own => stere_file::set_own_policy(inode_value, own),
                Say::Lock => stere_file::set_own_locks(inode_value, own),
            }
            self.audit.note_audited(transaction, own.switches)?;
            tiers::note_tiered(transaction, inode, [Say::Own, Say::Lock].map(|say| say.of(inode_value)))?;
            classes::index_member(transaction, inode, named_before, classes::Named::of(inode_value));
            if setting == Setting::Class {
                let classes: [Option<Class>; 2] = [class_before, own.class()];
                self.note_class_of_names(transaction, caller, (inode, inode_value), classes);
            }
            if matches!(setting, Setting::Encrypt | Setting::Class) {
                // What is in memory of its files could not be saved under a locked key.
                self.encryption.name_key(transaction, inode, inode_value)?;
            }
            // What is stored already is brought in line in the background; the note makes that survive a crash.
            self.core.reconcile.note(transaction, inode)
        })?;
        self.audit.begin_audit(asked.switches);
        if asked.sync().is_some() {
            self.durability.begin();
        }
        self.core.files.resolver().invalidate();
        self.core.policy.note_change();
        if setting == Setting::Class {
            self.residency_changed();
        }
        Ok(())
    }

    /// Policy is said by the owner and root: others who may write a file, or in a directory, may not make weaker how that is kept.
    fn check_may_say_policy(&self, caller: &Caller<'_>, inode: u64) -> Result<(), Error> {
        if caller.uid == 0 {
            return Ok(());
        }
        let value = self.core.store.view(caller.io, |view| inode_if_any(view, inode))?.ok_or(Error::Stale)?;
        match value.uid == caller.uid {
            true => Ok(()),
            false => Err(Error::NotPermitted("what policy a file or directory has, its owner and root say")),
        }
    }

    /// Refuses settings that a lock of the administrator contradicts, here or above.
    pub fn check_locks(
        &self,
        keys: &impl Keys,
        inode: u64,
        value: &InodeValue,
        asked: &[(Setting, Own)],
    ) -> Result<(), Error> {
        let effective = self.core.files.policies.effective(keys, inode, value)?;
        let classes = self.core.files.resolver().classes();
        match asked.iter().any(|(setting, own)| effective.refuses(*setting, own, &classes)) {
            true => Err(contradicts_a_lock()),
            false => Ok(()),
        }
    }

    /// The same of the lists that these say something of.
    pub fn check_list_locks(
        &self,
        keys: &impl Keys,
        inode: u64,
        value: &InodeValue,
        asked: &[Own],
    ) -> Result<(), Error> {
        if !asked.iter().any(|own| List::ALL.into_iter().any(|list| list.is_said(own))) {
            return Ok(());
        }
        let effective = self.core.files.policies.effective(keys, inode, value)?;
        match asked.iter().any(|own| List::ALL.into_iter().any(|list| effective.refuses_list(list, own))) {
            true => Err(contradicts_a_lock()),
            false => Ok(()),
        }
    }
}
