//! The rules that apply to what lies in one directory: gathered from there upward, and what they decide for a file.
//!
//! Invariant: of each set of rules what is left in this directory was made out for the path that it has at `generation`.

use std::sync::Arc;

use stere_file::{Keys, inode_if_any};
use stere_format::{FileKind, InodeValue, Timestamp};
use stere_policy::{
    Classes, Decided, Decision, Facts, Here, MatchedRules, ResidencySettings, Rule, RuleSet, Switch, merge,
    residency_of,
};
use stere_store::Io;

use super::{ATTRIBUTE, HAS_RULES};
use crate::error::Error;
use crate::rules::PolicyRules;
use crate::walk::path_of;
use crate::xattr;

/// Directories above one another beyond which metadata is damaged.
const DEPTH_MAX: usize = 4096;

/// What one directory contributes.
struct Level {
    directory: u64,
    /// What its attributes speak for.
    settled: Decided,
    rules: Option<Said>,
}

/// Rules, and what is left of them in the directory that is looked at.
struct Said {
    rules: Arc<RuleSet>,
    here: Here,
}

impl Said {
    fn matching(&self, facts: &Facts<'_>) -> Vec<&Rule> {
        self.rules.matching(&self.here, facts)
    }

    fn matching_kind(&self, facts: &Facts<'_>, is_directory: bool) -> Vec<&Rule> {
        if is_directory { self.rules.matching_directory(&self.here, facts) } else { self.matching(facts) }
    }
}

/// The rules that apply to what lies in a directory, nearest first.
pub struct Scopes {
    pub generation: u64,
    levels: Vec<Level>,
    pool: Option<Said>,
    pub classes: Arc<Classes>,
    watches: Watches,
}

/// What of files that are made in a directory may have to be noted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Watches {
    #[default]
    Nothing,
    /// That their content is looked for again.
    Content,
    /// What is done to them, with their paths.
    All,
}

/// Rules that decided something, for people.
pub struct Matched {
    /// Whose rules they are; none for the pool's.
    pub directory: Option<u64>,
    /// Whether they come before what files say themselves.
    pub is_overriding: bool,
    pub rules: Vec<String>,
}

impl Scopes {
    /// Whether there are no rules at all.
    pub fn is_empty(&self) -> bool {
        self.levels.is_empty() && self.pool.is_none()
    }

    /// Whether something may decide for a file of this name that changes without the name being changed.
    pub fn ask_for_facts(&self, name: &[u8]) -> bool {
        self.said().any(|said| said.rules.asks_for_facts(&said.here, name))
    }

    /// Directories whose rules ask for what changes without a name being changed.
    pub fn changing_by_themselves(&self) -> impl Iterator<Item = u64> {
        let changes = |level: &&Level| level.rules.as_ref().is_some_and(|said| said.rules.changes_by_itself());
        self.levels.iter().filter(changes).map(|level| level.directory)
    }

    /// About what its directories' rules take in memory.
    pub fn weight_bytes(&self) -> usize {
        self.levels.iter().filter_map(|level| level.rules.as_ref()).map(|said| said.rules.weight_bytes()).sum()
    }

    fn said(&self) -> impl Iterator<Item = &Said> {
        self.levels.iter().filter_map(|level| level.rules.as_ref()).chain(&self.pool)
    }

    /// What of new files may have to be noted.
    pub fn watches(&self) -> Watches {
        self.watches
    }

    /// What rules say of what of a file or directory of this name stays on devices, place by place; `visit` gets those that match.
    pub fn residency(
        &self,
        name: &[u8],
        value: &InodeValue,
        now: Timestamp,
        visit: &mut dyn FnMut(Option<u64>, &[&Rule]),
    ) -> Vec<MatchedRules> {
        let (facts, mut found) = (facts_of(name, value, now), Vec::new());
        let mut add = |place, overrides, rules: &[&Rule]| {
            if rules.is_empty() {
                return;
            }
            visit(place, rules);
            let said = rules.iter().map(|rule| residency_of(rule, &self.classes));
            let residency = said.fold(ResidencySettings::default(), ResidencySettings::or_more);
            let has_class = rules.iter().any(|rule| rule.own.class().is_some());
            if has_class || !residency.is_empty() {
                found.push(MatchedRules { place, overrides, residency, has_class });
            }
        };
        let is_directory = value.kind() == Some(FileKind::Directory);
        for level in &self.levels {
            if let Some(said) = &level.rules {
                add(Some(level.directory), false, &said.matching_kind(&facts, is_directory));
            }
        }
        if let Some(said) = &self.pool {
            let rules = said.matching_kind(&facts, is_directory);
            let (overriding, others): (Vec<&Rule>, Vec<&Rule>) = rules.into_iter().partition(|rule| rule.overrides);
            add(None, true, &overriding);
            add(None, false, &others);
        }
        found
    }

    /// What is decided for a file of this name; `visit` gets the rules that match, in the order of authority.
    pub fn decide(
        &self,
        name: &[u8],
        value: &InodeValue,
        now: Timestamp,
        visit: &mut dyn FnMut(Option<u64>, &[&Rule]),
    ) -> Decision {
        let facts = facts_of(name, value, now);
        let mut decision = Decision::default();
        let pool = self.pool.as_ref().map(|said| said.matching(&facts)).unwrap_or_default();
        let (overriding, others): (Vec<&Rule>, Vec<&Rule>) = pool.into_iter().partition(|rule| rule.overrides);
        let mut settled = Decided::default();
        let mut add = |directory, rules: &[&Rule], overrides, settled| {
            if !rules.is_empty() {
                visit(directory, rules);
                decision.add(&merge(rules.iter().copied(), &self.classes), overrides, settled);
            }
        };
        add(None, &overriding, true, settled);
        for level in &self.levels {
            if let Some(said) = &level.rules {
                add(Some(level.directory), &said.matching(&facts), false, settled);
            }
            settled = settled.and(level.settled);
        }
        add(None, &others, false, settled);
        decision
    }
}

fn facts_of<'a>(name: &'a [u8], value: &InodeValue, now: Timestamp) -> Facts<'a> {
    let age_seconds = now.seconds.saturating_sub(value.mtime.seconds).max(0) as u64;
    Facts { name, size: value.size, age_seconds, owner: value.uid, group: value.gid, mode: value.mode }
}

impl PolicyRules {
    /// The rules that apply in a directory; `other`: rules to be taken for those that a directory has.
    pub fn read_scopes(
        &self,
        io: Io<'_>,
        directory: u64,
        generation: u64,
        other: Option<&(u64, Arc<RuleSet>)>,
    ) -> Result<Scopes, Error> {
        let classes = self.core.files.resolver().classes();
        let pool = self.pool.lock().1.clone();
        let found = self.core.store.view(io, |view| read_levels(view, directory, &classes))?;
        let has_rules = pool.is_some() || other.is_some() || found.iter().any(|(_, _, text)| text.is_some());
        let mut said: Vec<(u64, Decided, Option<Arc<RuleSet>>)> = Vec::new();
        for (number, settled, text) in found.into_iter().filter(|_| has_rules) {
            let rules = match other.filter(|(of, _)| *of == number) {
                Some((_, rules)) => Some(rules.clone()),
                None => text.and_then(|text| self.parse_stored(number, &text, &classes)),
            };
            said.push((number, settled, rules));
        }
        let sets = || said.iter().filter_map(|(_, _, rules)| rules.as_ref()).chain(&pool);
        let switches_on = |rule: &Rule| {
            let of_class = rule.own.class().map(|class| classes.switches(class)).unwrap_or_default();
            rule.own.switches.has_any_watched() || of_class.has_any_watched()
        };
        let by_rules = sets().any(|rules| rules.rules().iter().any(switches_on));
        let above = self.core.store.view(io, |view| self.core.files.policies.effective_below(view, directory))?;
        let watches = match above.is_on(Switch::Provenance) || above.is_on(Switch::Audit) || by_rules {
            true => Watches::All,
            false if above.is_on(Switch::Dedup) => Watches::Content,
            false => Watches::Nothing,
        };
        let path = match sets().any(|rules| rules.needs_path()) {
            true => self.path_with_slash(io, directory)?,
            false => b"/".to_vec(),
        };
        let in_place = |rules: Arc<RuleSet>, start: usize| {
            let here = rules.here(path.get(start..).unwrap_or_default());
            Said { rules, here }
        };
        // Paths of the directories above are beginnings of this one.
        let (mut levels, mut start, of): (Vec<Level>, usize, u64) = (Vec::new(), path.len(), directory);
        for (directory, settled, rules) in said {
            assert!((1..=path.len()).contains(&start), "a directory's path ends in the path of one below it");
            levels.push(Level { directory, settled, rules: rules.map(|rules| in_place(rules, start)) });
            start = path[..start - 1].iter().rposition(|byte| *byte == b'/').map_or(1, |slash| slash + 1);
        }
        let nearest = levels.first().map(|level| level.directory);
        assert!(nearest.is_none_or(|nearest| nearest == of), "the rules of {of} itself come first, not of {nearest:?}");
        let pool = pool.map(|rules| in_place(rules, 1));
        Ok(Scopes { generation, levels, pool, classes, watches })
    }

    fn path_with_slash(&self, io: Io<'_>, directory: u64) -> Result<Vec<u8>, Error> {
        let mut path = path_of(&self.core.store, &self.core.names, io, directory)?.unwrap_or_default();
        if !path.ends_with(b"/") {
            path.push(b'/');
        }
        Ok(path)
    }
}

type FoundLevel = (u64, Decided, Option<Vec<u8>>);

/// The directories from this one to the root.
fn read_levels(keys: &impl Keys, directory: u64, classes: &Classes) -> Result<Vec<FoundLevel>, Error> {
    let (mut levels, mut at) = (Vec::new(), directory);
    while levels.len() < DEPTH_MAX {
        let Some(value) = inode_if_any(keys, at)? else { break };
        let text = match value.flags & HAS_RULES {
            0 => None,
            _ => xattr::get(keys, at, ATTRIBUTE)?,
        };
        levels.push((at, Decided::of(&stere_file::own_policy(&value), classes), text));
        if value.parent == at {
            break;
        }
        at = value.parent;
    }
    Ok(levels)
}
