//! What is left of rules for the files of one directory, so that a file costs what matches its name and not what there is of rules.
//!
//! Made once for a directory: a pattern of paths whose directories are those that lead here is one of names there, all others are gone; so are
//! rules of another depth. What stays is one pass over the name. Rules without a pattern wait behind one of their conditions ([`Gates`]).
//!
//! Invariant: [`RuleSet::matching`] finds what asking every rule for itself finds.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use globset::{Candidate, Glob, GlobMatcher, GlobSet, GlobSetBuilder};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;

use super::condition::Fact;
use super::parse::{build_glob, build_glob_of_names};
use super::{Comparison, Facts, Rule, RuleSet};

/// Different sets of patterns that are kept for directories.
const KEPT_MAX: usize = 64;

/// Put behind patterns and names that end in a dot.
const BEHIND_DOT: &str = "x";

/// Patterns that are looked for in one pass, and of which rule each is.
#[derive(Debug, Default)]
pub(super) struct Patterns {
    set: GlobSet,
    rules: Vec<usize>,
    /// Those that end in a dot, each with `BEHIND_DOT`.
    dotted: GlobSet,
    dotted_rules: Vec<usize>,
}

impl Patterns {
    pub fn build<'a>(patterns: impl IntoIterator<Item = (&'a Glob, usize)>) -> Result<Patterns, globset::Error> {
        let (mut builder, mut rules) = (GlobSetBuilder::new(), Vec::new());
        let (mut dotted, mut dotted_rules) = (GlobSetBuilder::new(), Vec::new());
        for (glob, rule) in patterns {
            builder.add(glob.clone());
            rules.push(rule);
            if let Some(longer) = longer(glob) {
                dotted.add(longer);
                dotted_rules.push(rule);
            }
        }
        let (set, dotted) = (builder.build()?, dotted.build()?);
        assert_eq!(set.len(), rules.len(), "each pattern is of a rule");
        assert_eq!(dotted.len(), dotted_rules.len(), "each pattern that ends in a dot is of a rule");
        Ok(Patterns { set, rules, dotted, dotted_rules })
    }

    fn add_matching(&self, text: &[u8], found: &mut Vec<usize>) {
        if self.rules.is_empty() {
            return;
        }
        let path = Path::new(OsStr::from_bytes(text));
        found.extend(self.set.matches_candidate(&Candidate::new(path)).into_iter().map(|pattern| self.rules[pattern]));
        if text.ends_with(b".") && !self.dotted_rules.is_empty() {
            let longer = [text, BEHIND_DOT.as_bytes()].concat();
            let longer = Candidate::new(Path::new(OsStr::from_bytes(&longer)));
            found.extend(self.dotted.matches_candidate(&longer).into_iter().map(|pattern| self.dotted_rules[pattern]));
        }
    }
}

/// A set takes a path that ends in a dot for one without a name, and passes over what it sorts by names and endings. Of these only patterns
/// that end in a dot match such a path; with one more character behind both they are sorted as all others. Those that ignore
/// case are sorted by nothing.
fn longer(glob: &Glob) -> Option<Glob> {
    let text = glob.glob();
    let builds = [build_glob, build_glob_of_names];
    let build =
        builds.into_iter().find(|build| text.ends_with('.') && build(text, false).is_ok_and(|plain| plain == *glob))?;
    build(&format!("{text}{BEHIND_DOT}"), false).ok()
}

/// A directory in a pattern of paths.
#[derive(Debug)]
enum Step {
    Named(Vec<u8>),
    Any,
    Like(Box<GlobMatcher>),
}

impl Step {
    fn parse(text: &str) -> Result<Step, globset::Error> {
        Ok(match text {
            "*" => Step::Any,
            _ if !text.contains(['*', '?', '{', '}', '\\']) => Step::Named(text.as_bytes().to_vec()),
            // A set of one tells what does not compile; a matcher would panic.
            _ => {
                let glob = build_glob(text, false)?;
                GlobSetBuilder::new().add(glob.clone()).build()?;
                Step::Like(Box::new(glob.compile_matcher()))
            }
        })
    }

    fn matches(&self, name: &[u8]) -> bool {
        match self {
            Step::Named(known) => known == name,
            Step::Any => true,
            Step::Like(matcher) => matcher.is_match(Path::new(OsStr::from_bytes(name))),
        }
    }
}

/// A pattern of paths that is one for each directory, and one for the name.
#[derive(Debug)]
struct Stepwise {
    steps: Vec<Step>,
    name: Glob,
    rule: usize,
}

impl Stepwise {
    /// None: where a path may be cut is not known before it is there.
    fn parse(whole: &Glob, rule: usize) -> Option<Stepwise> {
        let glob = whole.glob();
        // Those that ignore case stay as they are.
        build_glob(glob, false).ok().filter(|plain| plain == whole)?;
        let parts: Vec<&str> = glob.split('/').collect();
        let (name, directories) = parts.split_last()?;
        if glob.contains("**") || glob.contains('[') || parts.contains(&"") {
            return None;
        }
        let steps = directories.iter().map(|text| Step::parse(text)).collect::<Result<_, _>>().ok()?;
        Some(Stepwise { steps, name: build_glob_of_names(name, false).ok()?, rule })
    }
}

/// Patterns of paths.
#[derive(Debug, Default)]
pub(super) struct Paths {
    stepwise: Vec<Stepwise>,
    /// The names of all of them.
    all_names: Arc<Patterns>,
    /// The others, which are asked of whole paths.
    whole: Patterns,
    /// Of those that stay in some directories; by the places in `stepwise`.
    kept: Mutex<FxHashMap<Vec<usize>, Arc<Patterns>>>,
}

impl Paths {
    pub fn build(patterns: Vec<(Glob, usize)>) -> Result<Paths, globset::Error> {
        let count = patterns.len();
        let (mut stepwise, mut whole) = (Vec::new(), Vec::new());
        for (glob, rule) in patterns {
            match Stepwise::parse(&glob, rule) {
                Some(pattern) => stepwise.push(pattern),
                None => whole.push((glob, rule)),
            }
        }
        assert_eq!(stepwise.len() + whole.len(), count, "each pattern is asked of names or of whole paths");
        let all_names = Arc::new(Patterns::build(stepwise.iter().map(|pattern| (&pattern.name, pattern.rule)))?);
        let whole = Patterns::build(whole.iter().map(|(glob, rule)| (glob, *rule)))?;
        Ok(Paths { stepwise, all_names, whole, kept: Mutex::default() })
    }

    pub fn is_empty(&self) -> bool {
        self.stepwise.is_empty() && self.whole.rules.is_empty()
    }

    /// Patterns of names in the directory that these lead to.
    fn names_in(&self, directories: &[&[u8]]) -> Arc<Patterns> {
        let leads_here = |pattern: &Stepwise| {
            pattern.steps.len() == directories.len()
                && pattern.steps.iter().zip(directories).all(|(step, name)| step.matches(name))
        };
        let left: Vec<usize> = (0..self.stepwise.len()).filter(|at| leads_here(&self.stepwise[*at])).collect();
        if left.len() == self.stepwise.len() {
            return self.all_names.clone();
        }
        if left.is_empty() {
            return Arc::default();
        }
        if let Some(known) = self.kept.lock().get(&left) {
            return known.clone();
        }
        let patterns = left.iter().map(|at| (&self.stepwise[*at].name, self.stepwise[*at].rule));
        // What all of them compile to, some of them do.
        let built = Arc::new(Patterns::build(patterns).unwrap_or_default());
        let mut kept = self.kept.lock();
        // What is kept of some directories is no more than a few times what there is of all.
        let patterns_kept: usize = kept.keys().map(Vec::len).sum();
        if kept.len() >= KEPT_MAX || patterns_kept > self.stepwise.len() * 2 {
            kept.clear();
        }
        kept.insert(left, built.clone());
        assert!(kept.len() <= KEPT_MAX, "sets of patterns that are kept are bounded");
        built
    }
}

/// Rules without a pattern, each behind one condition that must hold for it.
#[derive(Debug, Default)]
pub(super) struct Gates {
    /// By fact and the value that it must have.
    equal: Vec<(Fact, FxHashMap<u64, Vec<usize>>)>,
    /// By fact that must be at least so much, the least first.
    at_least: Vec<(Fact, Vec<(u64, usize)>)>,
    /// By fact that must be at most so much, the most first.
    at_most: Vec<(Fact, Vec<(u64, usize)>)>,
    /// Behind nothing.
    open: Vec<usize>,
}

impl Gates {
    /// These of the rules.
    pub fn build(rules: &[Rule], of: &[usize]) -> Gates {
        assert!(of.windows(2).all(|pair| pair[0] < pair[1]), "each rule waits once, in order");
        let mut gates = Gates::default();
        for at in of {
            let conditions = &rules[*at].conditions;
            let gate = conditions.iter().min_by_key(|condition| match condition.comparison {
                Comparison::Equal => 0,
                Comparison::Other | Comparison::Has => 2,
                _ => 1,
            });
            let Some(gate) = gate else {
                gates.open.push(*at);
                continue;
            };
            match gate.comparison {
                Comparison::Equal => entry(&mut gates.equal, gate.fact).entry(gate.value).or_default().push(*at),
                // As far as their bounds go; which of the two it is, the condition knows.
                Comparison::More | Comparison::AtLeast => entry(&mut gates.at_least, gate.fact).push((gate.value, *at)),
                Comparison::Less | Comparison::AtMost => entry(&mut gates.at_most, gate.fact).push((gate.value, *at)),
                Comparison::Other | Comparison::Has => gates.open.push(*at),
            }
        }
        gates.at_least.iter_mut().for_each(|(_, bounds)| bounds.sort_unstable());
        gates.at_most.iter_mut().for_each(|(_, bounds)| bounds.sort_unstable_by(|one, other| other.cmp(one)));
        assert_eq!(gates.count(), of.len(), "each rule without a pattern waits behind one condition");
        gates
    }

    fn count(&self) -> usize {
        let equal = self.equal.iter().flat_map(|(_, values)| values.values()).map(Vec::len).sum::<usize>();
        let bounds = self.at_least.iter().chain(&self.at_most).map(|(_, bounds)| bounds.len()).sum::<usize>();
        equal + bounds + self.open.len()
    }

    fn add_open(&self, facts: &Facts<'_>, depth: u64, found: &mut Vec<usize>) {
        found.extend(&self.open);
        for (fact, values) in &self.equal {
            found.extend(values.get(&fact.of(facts, depth)).into_iter().flatten());
        }
        for (fact, bounds) in &self.at_least {
            let known = fact.of(facts, depth);
            found.extend(bounds.iter().take_while(|(bound, _)| *bound <= known).map(|(_, rule)| rule));
        }
        for (fact, bounds) in &self.at_most {
            let known = fact.of(facts, depth);
            found.extend(bounds.iter().take_while(|(bound, _)| *bound >= known).map(|(_, rule)| rule));
        }
    }
}

fn entry<T: Default>(of: &mut Vec<(Fact, T)>, fact: Fact) -> &mut T {
    let known = of.iter().position(|(known, _)| *known == fact).unwrap_or_else(|| {
        of.push((fact, T::default()));
        of.len() - 1
    });
    &mut of[known].1
}

/// A directory as rules see it that lie in it or above.
#[derive(Debug, Clone, Default)]
pub struct Here {
    /// The path from the directory of the rules, with a slash at its end, where whole paths are asked for.
    below: Vec<u8>,
    depth: u64,
    names: Arc<Patterns>,
}

impl RuleSet {
    /// What is left of these rules in a directory. `below`: its path from the directory that has the rules, empty or with a slash at its end.
    pub fn here(&self, below: &[u8]) -> Here {
        assert!(below.is_empty() || below.ends_with(b"/"), "a directory's path ends with a slash");
        let directories: Vec<&[u8]> = below.split(|byte| *byte == b'/').collect();
        let directories = &directories[..directories.len() - 1];
        let asked_whole = !self.paths.whole.rules.is_empty();
        Here {
            below: if asked_whole { below.to_vec() } else { Vec::new() },
            depth: directories.len() as u64,
            names: self.paths.names_in(directories),
        }
    }

    /// The rules that match a file of that directory, in their order.
    pub fn matching(&self, here: &Here, facts: &Facts<'_>) -> Vec<&Rule> {
        self.all_matching(here, facts, Rule::is_for_files)
    }

    /// The same for a directory in that one: what they say of what stays on devices.
    pub fn matching_directory(&self, here: &Here, facts: &Facts<'_>) -> Vec<&Rule> {
        self.all_matching(here, facts, Rule::is_for_directories)
    }

    fn all_matching(&self, here: &Here, facts: &Facts<'_>, is_for: fn(&Rule) -> bool) -> Vec<&Rule> {
        let mut found = self.of_name(here, facts.name);
        self.others.add_open(facts, here.depth, &mut found);
        found.sort_unstable();
        found.dedup();
        let holds = |rule: &&Rule| rule.conditions.iter().all(|condition| condition.holds(facts, here.depth));
        found.into_iter().map(|index| &self.rules[index]).filter(|rule| is_for(rule)).filter(holds).collect()
    }

    /// Whether something may decide for this name there that changes without the name being changed.
    pub fn asks_for_facts(&self, here: &Here, name: &[u8]) -> bool {
        self.others_ask_for_facts || self.of_name(here, name).into_iter().any(|rule| self.rules[rule].asks_for_facts())
    }

    /// The rules whose patterns match.
    fn of_name(&self, here: &Here, name: &[u8]) -> Vec<usize> {
        let mut found = Vec::new();
        self.names.add_matching(name, &mut found);
        here.names.add_matching(name, &mut found);
        if !self.paths.whole.rules.is_empty() {
            assert!(here.depth == 0 || !here.below.is_empty(), "what is left here is of other rules than these");
            self.paths.whole.add_matching(&[&here.below, name].concat(), &mut found);
        }
        found
    }
}

#[cfg(test)]
mod tests;
