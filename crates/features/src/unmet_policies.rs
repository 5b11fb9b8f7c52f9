//! Policies that the devices of the pool cannot keep, whatever is written: which inodes, rules and classes ask for them.
//!
//! Indexes name the inodes that ask for places, classes and redundancy themselves, so no names are walked over. A device that is away
//! counts as one that the pool has: what it holds up is told by its own state. Read next: `classes.rs`, `places.rs`.

use std::ops::ControlFlow;
use std::sync::Arc;

use stere_file::OF_VERSIONS;
use stere_format::{Key, PLACE_NUMBER_MIN};
use stere_namespace::call::Caller;
use stere_namespace::error::Error;
use stere_namespace::inode::Core;
use stere_namespace::rules::{HAS_RULES, PolicyRules};
use stere_namespace::walk::path_of;
use stere_policy::{Class, Classes, Effective, Rule, SchemeWish};
use stere_store::Io;

/// Entries of indexes looked at for one answer.
const LOOKED_AT_MAX: usize = 1024;

/// A policy that cannot be kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unkept {
    /// What asks for it: a path, or words for rules and the pool.
    pub by: String,
    /// Why it cannot be kept, and what to do.
    pub why: String,
}

fn plural(number: usize, word: &str) -> String {
    if number == 1 { format!("1 {word}") } else { format!("{number} {word}s") }
}

/// Policies that the devices of the pool cannot keep.
pub struct UnmetPolicies {
    pub core: Arc<Core>,
    pub rules: Arc<PolicyRules>,
}

impl UnmetPolicies {
    /// Why no new data can be as this asks for, if that is so whichever devices are attached.
    pub fn why_unkept(&self, scheme: Option<SchemeWish>, only: u8) -> Option<String> {
        let devices = match only {
            0 => self.core.files.policies.device_count(),
            only => self.core.store.places().devices_of_place(only),
        };
        if devices == 0 {
            let words = self.core.store.places().place_words(only).unwrap_or_default().join(",");
            return Some(format!(
                "no device has the tag, class or name {words}, so nothing can be written there; give it to one with `stere device label`, or unset only="
            ));
        }
        let scheme = scheme?;
        let (wished, possible) = (scheme.survives_at_least(devices), scheme.scheme(devices).1);
        if possible >= wished {
            return None;
        }
        assert!(devices <= usize::from(wished), "devices that are enough keep what is wished");
        let (loss, least) = (plural(usize::from(wished), "device"), usize::from(wished) + 1);
        let whose = if only == 0 { "the pool has" } else { "only= names" };
        Some(format!(
            "surviving the loss of {loss} needs {least} devices and {whose} {devices}, so files survive the loss of {}; add devices, or ask for less",
            plural(usize::from(possible), "device")
        ))
    }

    /// The same of what holds for an inode.
    pub fn why_effective_unkept(&self, effective: &Effective) -> Option<String> {
        self.why_unkept(Some(effective.wish.scheme), effective.wish.only)
    }

    /// The same of a class by its name.
    pub fn why_class_unkept(&self, name: &str) -> Option<String> {
        self.why_unkept_in_class(self.core.files.resolver().classes().find(name)?)
    }

    fn why_unkept_in_class(&self, class: Class) -> Option<String> {
        let classes = self.core.files.resolver().classes();
        // They say what they do where the devices allow it.
        let is_lenient = matches!(class, Class::Normal | Class::Archive);
        if is_lenient && classes.get(class).is_some_and(|now| now.own == Classes::built_in(class).own) {
            return None;
        }
        let wish = classes.wish(class);
        self.why_unkept(Some(wish.scheme), wish.only)
    }

    fn why_rule_unkept(&self, rule: &Rule) -> Option<String> {
        let classes = self.core.files.resolver().classes();
        let class = rule.own.class().map(|class| classes.wish(class));
        let scheme = rule.own.scheme_wish().or(class.map(|wish| wish.scheme));
        let only = match (rule.own.only, class) {
            (only, _) if only >= PLACE_NUMBER_MIN => only,
            (0, Some(wish)) => wish.only,
            _ => 0,
        };
        self.why_unkept(scheme, only)
    }

    /// The first of the pool's rules that cannot be kept.
    pub fn unkept_rule_of_pool(&self) -> Option<Unkept> {
        let set = self.rules.pool_rules()?;
        let unkept = |rule: &Rule| {
            let why = self.why_rule_unkept(rule)?;
            Some(Unkept { by: format!("rule '{}' of the pool", rule.text), why })
        };
        set.rules().iter().find_map(unkept)
    }

    /// The first rule of a directory itself that cannot be kept, and why.
    pub fn why_rules_unkept(&self, io: Io<'_>, directory: u64) -> Result<Option<(String, String)>, Error> {
        let set = self.core.store.view(io, |view| {
            let value = stere_file::inode_if_any(view, directory)?.filter(|value| value.flags & HAS_RULES != 0);
            value.map_or(Ok(None), |value| self.rules.own_rules(view, directory, &value))
        })?;
        let unkept = |rule: &Rule| self.why_rule_unkept(rule).map(|why| (rule.text.clone(), why));
        Ok(set.and_then(|set| set.rules().iter().find_map(unkept)))
    }

    /// Policies that the devices there are cannot keep: so many at most, and whether there may be more.
    pub fn unkept_policies(&self, caller: &Caller<'_>, most: usize) -> Result<(Vec<Unkept>, bool), Error> {
        let mut found: Vec<Unkept> = self.unkept_rule_of_pool().into_iter().collect();
        let default = self.core.files.resolver().default_class();
        if let Some(why) = self.why_unkept_in_class(default) {
            let name = self.core.files.resolver().classes().name(default);
            found.push(Unkept { by: format!("class {name}, which is the pool's default"), why });
        }
        let (own, ruled, mut has_more) = self.that_may_be_unkept(caller.io)?;
        for (inode, is_ruled) in
            own.into_iter().map(|inode| (inode, false)).chain(ruled.into_iter().map(|at| (at, true)))
        {
            if found.len() >= most {
                has_more = true;
                break;
            }
            found.extend(self.unkept_at(caller, inode, is_ruled)?);
        }
        Ok((found, has_more))
    }

    fn unkept_at(&self, caller: &Caller<'_>, inode: u64, is_ruled: bool) -> Result<Option<Unkept>, Error> {
        // Of what was removed there are entries for a while.
        let value = self.core.store.view(caller.io, |view| stere_file::inode_if_any(view, inode))?;
        if value.is_none_or(|value| value.nlink == 0 || value.flags & OF_VERSIONS != 0) {
            return Ok(None);
        }
        let unkept = match is_ruled {
            true => self.why_rules_unkept(caller.io, inode)?.map(|(rule, why)| (format!("rule '{rule}' of "), why)),
            false => self.why_effective_unkept(&self.core.effective(caller, inode)?).map(|why| (String::new(), why)),
        };
        let Some((before, why)) = unkept else { return Ok(None) };
        let path = path_of(&self.core.store, &self.core.names, caller.io, inode)?.unwrap_or_else(|| b"?".to_vec());
        Ok(Some(Unkept { by: format!("{before}{}", String::from_utf8_lossy(&path)), why }))
    }

    /// Inodes that ask for redundancy, for classes and places that cannot be had; and directories whose rules do.
    fn that_may_be_unkept(&self, io: Io<'_>) -> Result<(Vec<u64>, Vec<u64>, bool), Error> {
        let classes = self.core.files.resolver().classes();
        let is_unkept = |class: &Class| self.why_unkept_in_class(*class).is_some();
        let impossible: Vec<Class> = classes.in_use().map(|(class, _)| class).filter(is_unkept).collect();
        let impossible: Vec<u8> =
            impossible.into_iter().flat_map(|class| classes.all_of(class)).map(Class::code).collect();
        let is_empty = |number: &u8| {
            self.core.store.places().place_words(*number).is_some()
                && self.core.store.places().devices_of_place(*number) == 0
        };
        let empty: Vec<u8> = (PLACE_NUMBER_MIN..=u8::MAX).filter(is_empty).collect();
        let of = |numbers: &[u8], key: fn(u8, u64) -> Key| {
            numbers.iter().map(|number| (key(*number, 0), key(*number, u64::MAX))).collect::<Vec<_>>()
        };
        let redundancy = |key: fn(u64) -> Key| vec![(key(0), key(u64::MAX))];
        let own =
            [of(&empty, Key::place_member), of(&impossible, Key::class_member), redundancy(Key::redundancy_member)];
        let ruled =
            [of(&empty, Key::place_rules), of(&impossible, Key::class_rules), redundancy(Key::redundancy_rules)];
        let (own, has_more_own) = self.positions(io, own.concat())?;
        let (ruled, has_more_ruled) = self.positions(io, ruled.concat())?;
        Ok((own, ruled, has_more_own || has_more_ruled))
    }

    /// The positions of the keys in these parts of the indexes, each once, and whether there are more.
    fn positions(&self, io: Io<'_>, ranges: Vec<(Key, Key)>) -> Result<(Vec<u64>, bool), Error> {
        self.core.store.view(io, |view| {
            let mut found = Vec::new();
            for (from, to) in &ranges {
                view.scan(*from, *to, |key, _| {
                    found.push(key.position);
                    if found.len() > LOOKED_AT_MAX { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
                })?;
            }
            let has_more = found.len() > LOOKED_AT_MAX;
            found.truncate(LOOKED_AT_MAX);
            found.sort_unstable();
            found.dedup();
            Ok((found, has_more))
        })
    }
}
