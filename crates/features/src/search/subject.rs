//! What a search asks about one file: each fact is looked up when it is asked for, and once.

use stere_file::StoredFact;
use stere_format::{FileKind, InodeValue};
use stere_namespace::acl::MAY_READ;
use stere_namespace::attributes::Attributes;
use stere_namespace::call::Caller;
use stere_namespace::error::Error;
use stere_namespace::{acl, xattr};
use stere_policy::{Effective, Level, NumberFact, SchemeWish, Setting, Subject, TextFact, TierWish, WordFact};

use crate::search::Searches;

/// One file.
pub struct File<'a> {
    search: &'a Searches,
    caller: &'a Caller<'a>,
    inode: u64,
    value: &'a InodeValue,
    name: &'a [u8],
    path: Vec<u8>,
    effective: Option<Effective>,
    facts: Option<Vec<StoredFact>>,
    may_read: Option<bool>,
}

impl<'a> File<'a> {
    pub fn new(search: &'a Searches, caller: &'a Caller<'a>, inode: u64, value: &'a InodeValue) -> File<'a> {
        File { search, caller, inode, value, name: b"", path: Vec::new(), effective: None, facts: None, may_read: None }
    }

    /// Where it is.
    pub fn place(&mut self, name: &'a [u8], path: &[u8]) {
        self.name = name;
        self.path = path.to_vec();
    }

    /// Whether the caller may read it, and so its attributes, those that are computed among them.
    pub fn may_read(&mut self) -> Result<bool, Error> {
        if let Some(known) = self.may_read {
            return Ok(known);
        }
        let (inode, caller, value) = (self.inode, self.caller, self.value);
        let may = self.search.core.store.view(caller.io, |view| acl::permits(view, inode, value, caller, MAY_READ))?;
        self.may_read = Some(may);
        Ok(may)
    }

    pub fn effective_policy(&mut self) -> Result<Effective, Error> {
        if let Some(known) = self.effective {
            return Ok(known);
        }
        let files = &self.search.core.files;
        let found = self
            .search
            .core
            .store
            .view(self.caller.io, |view| Ok::<_, Error>(files.policies.effective(view, self.inode, self.value)?))?;
        self.effective = Some(found);
        Ok(found)
    }

    pub fn facts_of_file(&mut self) -> Result<&[StoredFact], Error> {
        if self.facts.is_none() {
            let effective = self.effective_policy()?;
            self.facts = Some(self.search.core.facts(self.caller, self.inode, &effective)?);
        }
        Ok(self.facts.as_deref().unwrap_or_default())
    }

    fn is_file(&self) -> bool {
        self.value.kind() == Some(FileKind::File)
    }

    fn seconds_since(&self, seconds: i64) -> u64 {
        self.caller.now.seconds.saturating_sub(seconds).max(0).unsigned_abs()
    }

    /// What its policy says of a key, as users read it.
    fn setting(&mut self, setting: Setting) -> Result<Option<String>, Error> {
        let text = self.effective_policy()?.value(setting, self.search.core.files.policies.device_count());
        Ok(text.map(|text| self.search.words.with_name(setting, text)))
    }

    fn is_of_setting(&mut self, fact: WordFact, setting: Setting, word: &str) -> Result<bool, Error> {
        let Some(text) = self.setting(setting)? else { return Ok(false) };
        Ok(match fact {
            // Of whatever level, if none is named.
            WordFact::Compress => text == word || text.strip_prefix(word).is_some_and(|rest| rest.starts_with(':')),
            WordFact::Encrypt if word == "yes" => text != "no",
            _ => text == word,
        })
    }

    fn is_for_tier(&mut self, word: &str) -> Result<bool, Error> {
        let tier = self.effective_policy()?.wish.tier;
        let set = self.search.core.files.policies.media_of(tier);
        if word == "none" {
            return Ok(set.is_none_or(|set| set == 0));
        }
        let names = self.search.core.store.tier.media.tier_names(set.unwrap_or(0));
        Ok(tier != TierWish::Nowhere && names.split('+').any(|name| name == word))
    }

    fn lies_on(&mut self, word: &str) -> Result<bool, Error> {
        let places = self.search.provenance.devices(self.caller, self.inode)?;
        Ok(places.split(|byte| *byte == b' ').any(|name| name == word.as_bytes()))
    }
}

impl Subject for File<'_> {
    type Error = Error;

    fn number(&mut self, fact: NumberFact) -> Result<Option<u64>, Error> {
        if fact.level() >= Level::Policy && !self.may_read()? {
            return Ok(None);
        }
        let shown = || Attributes::of(self.inode, self.value);
        let number = match fact {
            NumberFact::Size => shown().size,
            NumberFact::Links => u64::from(shown().nlink),
            NumberFact::Age => self.seconds_since(self.value.mtime.seconds),
            NumberFact::Changed => self.seconds_since(self.value.ctime.seconds),
            NumberFact::Made => self.seconds_since(self.value.btime.seconds),
            NumberFact::Accessed => {
                let lazy = self.search.access_times.get(self.inode);
                self.seconds_since(lazy.unwrap_or(self.value.atime).seconds)
            }
            NumberFact::Owner => u64::from(self.value.uid),
            NumberFact::Group => u64::from(self.value.gid),
            NumberFact::Mode => u64::from(self.value.mode & 0o7777),
            NumberFact::Inode => self.inode,
            NumberFact::Depth => self.path.iter().filter(|byte| **byte == b'/').count() as u64,
            NumberFact::Copies | NumberFact::Parity => {
                let (data, parity) =
                    self.effective_policy()?.wish.scheme(self.search.core.files.policies.device_count());
                let is_copies = fact == NumberFact::Copies;
                let number = (!is_copies || data == 1).then(|| u64::from(parity) + u64::from(is_copies));
                return Ok(number);
            }
            NumberFact::Redundancy => {
                return Ok(match self.effective_policy()?.wish.scheme {
                    SchemeWish::Scale(place) => Some(u64::from(place)),
                    _ => None,
                });
            }
            NumberFact::Survives | NumberFact::Stored if !self.is_file() => return Ok(None),
            NumberFact::Survives => match self.facts_of_file()?.iter().map(|fact| fact.losses_borne.in_all).min() {
                Some(survives) => u64::from(survives),
                // Nothing is stored yet: what new data would get.
                None => u64::from(self.search.core.files.policies.scheme_now(&self.effective_policy()?).parity),
            },
            NumberFact::Stored => self.facts_of_file()?.iter().map(|fact| fact.stored_bytes).sum(),
        };
        Ok(Some(number))
    }

    fn is(&mut self, fact: WordFact, word: &str) -> Result<bool, Error> {
        if fact.level() >= Level::Policy && !self.may_read()? {
            return Ok(false);
        }
        match fact {
            WordFact::Type => Ok(self.value.kind().is_some_and(|kind| kind.word() == word)),
            WordFact::Class => self.is_of_setting(fact, Setting::Class, word),
            WordFact::Compress => self.is_of_setting(fact, Setting::Compress, word),
            WordFact::Encrypt => self.is_of_setting(fact, Setting::Encrypt, word),
            WordFact::Tier => self.is_for_tier(word),
            WordFact::Backup => self.is_of_setting(fact, Setting::Backup, word),
            WordFact::Wanted => {
                let effective = self.effective_policy()?;
                Ok(self.search.core.files.policies.scheme_now(&effective).to_string() == word)
            }
            // Content is what files have.
            _ if !self.is_file() => Ok(false),
            WordFact::Scheme => Ok(self.facts_of_file()?.iter().any(|fact| fact.scheme.to_string() == word)),
            WordFact::On => self.lies_on(word),
            WordFact::State => {
                let state = self.search.provenance.state(self.caller, self.inode)?;
                Ok(state.starts_with(word.as_bytes()))
            }
            WordFact::Residency => Ok(self.search.tiers.tier_file(self.caller, self.inode)?.residency() == word),
        }
    }

    fn matches(&mut self, fact: &TextFact, matches: &dyn Fn(&[u8]) -> bool) -> Result<bool, Error> {
        let name = match fact {
            TextFact::Name | TextFact::Extension => return Ok(matches(self.name)),
            TextFact::Path => return Ok(matches(&self.path)),
            TextFact::Attribute(name) => name.as_bytes(),
        };
        if self.value.flags & xattr::HAS_ATTRIBUTES == 0 || !self.may_read()? {
            return Ok(false);
        }
        let known = self.search.core.store.view(self.caller.io, |view| xattr::get(view, self.inode, name))?;
        Ok(known.is_some_and(|value| matches(&value)))
    }
}
