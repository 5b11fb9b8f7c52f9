//! Everything that is said of how a file is stored, by whom, in the order of authority: what `stere policy explain` tells
//! below what holds.
//!
//! Invariants: the order is that of the decision (`crates/policy/src/resolver.rs`, `rules/scopes.rs`): locks from the nearest up,
//! overriding rules of the pool, the file, then each directory's rules before what is set there, the pool's rules, its default
//! class. Nothing is decided here, and nothing told of names that the asker cannot reach (`reach.rs`). Read next: `rules/scopes.rs`.

use std::collections::BTreeSet;

use stere_file::inode_if_any;
use stere_file::named_in::{directories_of, has_several_names};
use stere_format::FileKind;
use stere_namespace::call::Caller;
use stere_namespace::error::Error;
use stere_namespace::rules::Matched;
use stere_namespace::xattr::VALUE_BYTES_MAX;
use stere_policy::{Class, Name, parse_name};

use crate::provenance::PolicyProvenance;

/// What an attribute may tell at most, with room for the last line.
const TEXT_BYTES_MAX: usize = 60 * 1024;
/// Directories above one another beyond which metadata is damaged.
const DEPTH_MAX: usize = 4096;

/// What one inode says itself.
struct Said {
    path: Vec<u8>,
    locks: Vec<u8>,
    settings: Vec<u8>,
}

impl PolicyProvenance {
    /// A line for each place that says something of how this is stored, the strongest first.
    pub fn chain(&self, caller: &Caller<'_>, inode: u64) -> Result<Vec<u8>, Error> {
        // Who may ask for what holds is told why, also where that is said above what he may read, as `source.<key>` does.
        let reachable = self.visibility.reachable(caller, inode)?;
        let caller = &Caller { uid: 0, ..*caller };
        let (upward, hidden) = self.upward(caller, inode, reachable.as_ref())?;
        let value = self.core.files.attributes(caller.io, inode)?.ok_or(Error::Stale)?;
        let is_file = value.kind() == Some(FileKind::File);
        let mut matched = match is_file {
            true => self.rules.matched(caller.io, caller.now, inode, reachable.as_ref())?,
            false => Vec::new(),
        };
        self.add_matched_above(caller, &upward, is_file, &mut matched)?;
        let (of_pool, of_directories): (Vec<Matched>, Vec<Matched>) =
            matched.into_iter().partition(|matched| matched.directory.is_none());
        let (overriding, ordinary): (Vec<Matched>, Vec<Matched>) =
            of_pool.into_iter().partition(|matched| matched.is_overriding);
        let mut said = Vec::new();
        for number in &upward {
            said.push((*number, self.said_at(caller, *number)?));
        }
        if let (Some(_), Some((_, here))) = (&reachable, said.first_mut()) {
            // Its path is that of one of its names.
            here.path = b"the file itself".to_vec();
        }
        let mut lines: Vec<Vec<u8>> = Vec::new();
        if has_several_names(&value) {
            lines.push(b"it has several names: of what each of them gives, the strictest holds".to_vec());
        }
        if hidden > 0 {
            lines.push(
                format!("{hidden} directories with names of it are not shown: you cannot reach them").into_bytes(),
            );
        }
        for (_, one) in said.iter().filter(|(_, one)| !one.locks.is_empty()) {
            lines.push([b"locked at ", &one.path[..], b": ", &one.locks].concat());
        }
        lines.extend(overriding.iter().map(|matched| rules_line(b"the pool's overriding rules", matched)));
        for (number, one) in &said {
            for matched in of_directories.iter().filter(|matched| matched.directory == Some(*number)) {
                lines.push(rules_line(&[b"rules of ", &one.path[..]].concat(), matched));
            }
            if !one.settings.is_empty() {
                lines.push([b"set at ", &one.path[..], b": ", &one.settings].concat());
            }
        }
        lines.extend(ordinary.iter().map(|matched| rules_line(b"the pool's rules", matched)));
        lines.push(self.default_line());
        // The pool's rules match by each of several names.
        let mut told = BTreeSet::new();
        lines.retain(|line| told.insert(line.clone()));
        Ok(bounded(&lines))
    }

    /// Rules that match directories here say what stays on devices of all below these.
    fn add_matched_above(
        &self,
        caller: &Caller<'_>,
        upward: &[u64],
        is_file: bool,
        matched: &mut Vec<Matched>,
    ) -> Result<(), Error> {
        for directory in upward.iter().skip(usize::from(is_file)) {
            for mut of_directory in self.residency.matched_of(caller.io, caller.now, *directory, None, None)? {
                if *directory != upward[0] {
                    let path = self.core.path_of(caller.io, *directory)?;
                    let last = of_directory.rules.last_mut();
                    last.into_iter().for_each(|rule| {
                        rule.push_str(&format!(", which matches {}", String::from_utf8_lossy(&path)));
                    });
                }
                matched.push(of_directory);
            }
        }
        Ok(())
    }

    /// This inode and all that is above a name of it, of each name from below upwards; and how many directories with names are left out because they are
    /// not among these.
    fn upward(
        &self,
        caller: &Caller<'_>,
        inode: u64,
        among: Option<&BTreeSet<u64>>,
    ) -> Result<(Vec<u64>, usize), Error> {
        self.core.store.view(caller.io, |view| {
            let value = inode_if_any(view, inode)?.ok_or(Error::Stale)?;
            let (mut upward, mut hidden) = (vec![inode], 0);
            for directory in directories_of(view, inode, &value)? {
                if among.is_some_and(|among| !among.contains(&directory)) {
                    hidden += 1;
                    continue;
                }
                let mut at = directory;
                for _ in 0..DEPTH_MAX {
                    if upward.contains(&at) {
                        break;
                    }
                    upward.push(at);
                    at = inode_if_any(view, at)?.ok_or(Error::Stale)?.parent;
                }
            }
            Ok((upward, hidden))
        })
    }

    /// What is set and locked at one inode, as `KEY=VALUE` each.
    fn said_at(&self, caller: &Caller<'_>, inode: u64) -> Result<Said, Error> {
        let mut said = Said { path: self.core.path_of(caller.io, inode)?, locks: Vec::new(), settings: Vec::new() };
        for name in self.attribute_names(caller, inode)? {
            let (to, key) = match parse_name(&name) {
                None | Some(Err(_) | Ok(Name::Rules | Name::Computed(_))) => continue,
                Some(Ok(Name::Lock(_) | Name::ListLock(_) | Name::RetainLock)) => {
                    (&mut said.locks, name.rsplit(|byte| *byte == b'.').next())
                }
                Some(Ok(_)) => (&mut said.settings, name.rsplit(|byte| *byte == b'.').next()),
            };
            let value = self.attribute(caller, inode, &name)?;
            if !to.is_empty() {
                to.push(b' ');
            }
            to.extend([key.unwrap_or_default(), b"=", &value[..]].concat());
            let class = std::str::from_utf8(&value).ok().filter(|_| key == Some(b"class"));
            if let Some(class) = class.and_then(|name| self.core.files.resolver().classes().find(name)) {
                to.extend(self.settings_of(class).into_bytes());
            }
        }
        Ok(said)
    }

    fn default_line(&self) -> Vec<u8> {
        let resolver = self.core.files.resolver();
        let (class, name) = (resolver.default_class(), resolver.classes().name(resolver.default_class()));
        format!("default class of the pool: class={name}{}", self.settings_of(class)).into_bytes()
    }

    /// What a class sets, in parentheses.
    fn settings_of(&self, class: Class) -> String {
        let classes = self.core.files.resolver().classes();
        let settings = classes.get(classes.resolve(class)).map(|definition| definition.settings()).unwrap_or_default();
        let settings: Vec<String> = settings
            .into_iter()
            .map(|(setting, value)| format!("{}={}", setting.word(), self.words.with_name(setting, value)))
            .collect();
        let residency = classes.get(classes.resolve(class)).into_iter().flat_map(|definition| definition.residency());
        let residency = residency.map(|(keep, value)| format!("{}={value}", keep.word()));
        let settings: Vec<String> = settings.into_iter().chain(residency).collect();
        if settings.is_empty() { String::new() } else { format!(" ({})", settings.join(" ")) }
    }
}

fn rules_line(whose: &[u8], matched: &Matched) -> Vec<u8> {
    [whose, b": ", matched.rules.join("; ").as_bytes()].concat()
}

/// Line by line, as much as an attribute can tell.
fn bounded(lines: &[Vec<u8>]) -> Vec<u8> {
    let mut text = Vec::new();
    for (number, line) in lines.iter().enumerate() {
        if text.len() + line.len() > TEXT_BYTES_MAX {
            text.extend(format!("and {} places more", lines.len() - number).into_bytes());
            break;
        }
        text.extend_from_slice(line);
        text.push(b'\n');
    }
    assert!(text.len() <= VALUE_BYTES_MAX, "an attribute does not tell {} bytes", text.len());
    text
}
