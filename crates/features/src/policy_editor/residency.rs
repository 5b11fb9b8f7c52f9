//! Setting `pin`, `release`, `unit` and `names` on inodes, and what follows when rules and classes say something else of them.

use stere_format::{FileKind, InodeValue, Key};
use stere_namespace::call::Caller;
use stere_namespace::error::Error;
use stere_namespace::xattr;
use stere_namespace::xattr::SetMode;
use stere_policy::{Class, Classes, ResidencySetting, ResidencySettings, RuleSet};
use stere_residency::offload;
use stere_residency::residency_policy::{encode_stored, key_of};
use stere_store::Transaction;

use crate::policy_editor::PolicyEditor;

/// Whether these rules say something of a key, themselves or by a class.
fn rules_say(set: &RuleSet, keep: ResidencySetting, classes: &Classes) -> bool {
    set.rules().iter().any(|rule| stere_policy::residency_of(rule, classes).says(keep))
}

impl PolicyEditor {
    /// Says something of a key, or leaves it to those above.
    pub fn set_keep(
        &self,
        caller: &Caller<'_>,
        inode: u64,
        keep: ResidencySetting,
        value: Option<&[u8]>,
        mode: SetMode,
    ) -> Result<(), Error> {
        let mut asked = ResidencySettings::default();
        asked.set(keep, value.unwrap_or_default())?;
        if keep == ResidencySetting::Names {
            self.offload.begin_offload();
        }
        self.eviction.forget_hopeless();
        self.residency.check_keep_locks(caller, inode, &[asked])?;
        let key = key_of(keep, inode);
        let changed = self.core.changing_attribute(caller, inode, |transaction, inode_value| {
            match (keep, inode_value.kind()) {
                (_, Some(FileKind::Directory))
                | (ResidencySetting::Pin | ResidencySetting::Release, Some(FileKind::File)) => {}
                (ResidencySetting::Pin | ResidencySetting::Release, _) => {
                    return Err(Error::NotPermitted("policy can be set on files and directories"));
                }
                (ResidencySetting::Unit, _) => {
                    return Err(Error::NotPermitted("a unit is all that is below a directory; set it on one"));
                }
                (ResidencySetting::Names, _) => {
                    return Err(Error::NotPermitted("names lie in directories; set it on one"));
                }
            }
            xattr::check_mode(mode, transaction.get(&key)?.is_some())?;
            match encode_stored(&asked, keep) {
                Some(bytes) => transaction.put(key, &bytes),
                None => transaction.delete(key),
            }
            if keep == ResidencySetting::Names {
                offload::note_new(transaction, caller, inode);
            }
            Ok(())
        });
        self.flagged.note_change();
        if keep == ResidencySetting::Names {
            self.offload.look_at_all_names();
        }
        changed
    }

    /// Rules of a directory take the place of others there: notes it, with what follows for names below.
    pub fn note_residency_rules(
        &self,
        transaction: &mut Transaction<'_>,
        caller: &Caller<'_>,
        directory: u64,
        sets: [Option<&RuleSet>; 2],
    ) {
        let classes = self.core.files.resolver().classes();
        let says = |set: &RuleSet| set.rules().iter().any(|rule| !rule.own.residency.is_empty());
        match sets[1].is_some_and(says) {
            true => transaction.put(Key::residency_rules(directory), &[1]),
            false => transaction.delete(Key::residency_rules(directory)),
        }
        if sets.into_iter().flatten().any(|set| rules_say(set, ResidencySetting::Names, &classes)) {
            self.note_names_anew(transaction, caller, directory);
        }
    }

    /// Something else is said of names below a directory.
    pub fn note_names_anew(&self, transaction: &mut Transaction<'_>, caller: &Caller<'_>, directory: u64) {
        self.offload.begin_offload();
        offload::note_new(transaction, caller, directory);
    }

    /// A directory gets another class, or its class is locked, or says something else.
    pub fn note_class_of_names(
        &self,
        transaction: &mut Transaction<'_>,
        caller: &Caller<'_>,
        (inode, value): (u64, &InodeValue),
        classes: [Option<Class>; 2],
    ) {
        let known = self.core.files.resolver().classes();
        let says = |class: Class| known.residency(class).says(ResidencySetting::Names);
        if value.kind() == Some(FileKind::Directory) && classes.into_iter().flatten().any(says) {
            self.note_names_anew(transaction, caller, inode);
        }
    }

    /// Whatever was said took effect: what was found out before is found out anew.
    pub fn residency_changed(&self) {
        self.eviction.forget_hopeless();
        self.offload.look_at_all_names();
    }
}
