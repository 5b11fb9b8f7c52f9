//! Inheritance: which policy holds for a file, and who decided it.
//!
//! The nearest object that says anything about redundancy (by number or by its class) decides the scheme; the nearest
//! one with a class decides the class, and classes further up say nothing; else the pool's default class does both. What the administrator locked goes before all
//! that is said, on the file, below the lock and by rules; of several locks the nearest counts. Directories' answers are cached; any
//! change of a policy or of a directory's place makes all of them old at once, because such changes are rare and a
//! finer rule would have to know all descendants.

mod strictest;

pub(crate) use strictest::rank_of_tier;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};
use rustc_hash::FxHashMap;

use crate::attribute::{List, Own, Setting, place_text};
use crate::checksum::Checksum;
use crate::class::{Class, SchemeWish, TierWish, Wish};
use crate::classes::Classes;
use crate::compression::Compression;
use crate::encryption::Encryption;
use crate::record::RecordSize;
use crate::rules::{Decided, Decision};
use crate::switches::{Switch, Switches};
use crate::sync::Sync;
use crate::versions::Versions;

/// What one inode contributes: its own policy and the directory above it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ancestor {
    /// What is set on the inode itself.
    pub own: Own,
    /// What the administrator locked there.
    pub locked: Own,
    /// The directory above; the inode's own number at the root.
    pub parent: u64,
}

/// Who decided an effective value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// This inode's attribute.
    Inode(u64),
    /// The administrator, by a lock on this inode.
    Lock(u64),
    /// A rule, as it was when it was last looked at.
    Rule,
    /// The pool's default class.
    Pool,
}

impl Source {
    fn is_lock(self) -> bool {
        matches!(self, Source::Lock(_))
    }
}

/// The policy that holds, and where it comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Effective {
    /// What is asked for.
    pub wish: Wish,
    /// Who decided the class.
    pub class_source: Source,
    /// Who decided the redundancy.
    pub scheme_source: Source,
    /// Who decided the compression.
    pub compression_source: Source,
    /// Who decided the encryption.
    pub encryption_source: Source,
    /// Who decided the media.
    pub tier_source: Source,
    /// Who decided the size of records.
    pub record_source: Source,
    /// Who decided the checksum.
    pub checksum_source: Source,
    /// Who decided where data lies rather than elsewhere.
    pub on_source: Source,
    /// Who decided where it lies and nowhere else.
    pub only_source: Source,
    /// Who decided what nodes are told.
    pub node_source: Source,
    /// Who decided when changes are durable.
    pub sync_source: Source,
    /// Number of the stack of users' plugins, 0 for none.
    pub plugins: u16,
    /// Who decided that.
    pub plugins_source: Source,
    /// Which versions are kept; nothing where nobody says anything.
    pub versions: Option<Versions>,
    /// Who decided that.
    pub versions_source: Source,
    /// What is switched on, and who said so.
    pub switches: [(bool, Source); Switch::ALL.len()],
}

impl Effective {
    /// Whether this is switched on.
    pub fn is_on(&self, switch: Switch) -> bool {
        self.switches[switch as usize].0
    }

    /// The effective value of `setting` as text, in a pool of `devices`; `None` where the scheme has no such number.
    pub fn value(&self, setting: Setting, devices: usize) -> Option<String> {
        let (data, parity) = self.wish.scheme(devices);
        match setting {
            Setting::Class => Some(self.wish.class.text()),
            Setting::Copies => (data == 1).then(|| (parity + 1).to_string()),
            Setting::Parity => (parity > 0).then(|| format!("{data}+{parity}")),
            // A way to ask; what comes of it, with the devices there are, is copies or parity.
            Setting::Redundancy => match self.wish.scheme {
                SchemeWish::Scale(place) => Some(place.to_string()),
                SchemeWish::Copies(_) | SchemeWish::Parity { .. } => None,
            },
            Setting::Compress => Some(self.wish.compression.text()),
            Setting::Encrypt => Some(self.wish.encryption.text()),
            Setting::Record => Some(self.wish.record.text()),
            Setting::Checksum => Some(self.wish.checksum.text().to_owned()),
            Setting::On => place_text(self.wish.on),
            Setting::Only => place_text(self.wish.only),
            Setting::Node => place_text(self.wish.node),
            Setting::Sync => Some(self.wish.sync.text().to_owned()),
            Setting::Tier => match self.wish.tier {
                TierWish::Unsaid => None,
                TierWish::Nowhere => Some("none".to_owned()),
                TierWish::Usual => Some("usual".to_owned()),
                TierWish::Volumes(set) => Some(format!("#{set}")),
            },
            Setting::Provenance | Setting::Audit | Setting::Dedup | Setting::Backup => {
                Some(Switches::word(self.is_on(setting.switch()?)).to_owned())
            }
        }
    }

    /// Who decided `setting`.
    pub fn source(&self, setting: Setting) -> Source {
        match setting {
            Setting::Class => self.class_source,
            Setting::Copies | Setting::Parity | Setting::Redundancy => self.scheme_source,
            Setting::Compress => self.compression_source,
            Setting::Encrypt => self.encryption_source,
            Setting::Tier => self.tier_source,
            Setting::Record => self.record_source,
            Setting::Checksum => self.checksum_source,
            Setting::On => self.on_source,
            Setting::Only => self.only_source,
            Setting::Node => self.node_source,
            Setting::Sync => self.sync_source,
            Setting::Provenance => self.switches[Switch::Provenance as usize].1,
            Setting::Audit => self.switches[Switch::Audit as usize].1,
            Setting::Dedup => self.switches[Switch::Dedup as usize].1,
            Setting::Backup => self.switches[Switch::Backup as usize].1,
        }
    }

    /// Whether a lock is against an object that `own` sets `setting` to something: what it says would not count.
    pub fn refuses(&self, setting: Setting, own: &Own, classes: &Classes) -> bool {
        let is_so = match setting {
            Setting::Class => own.class().map(|class| classes.resolve(class)) == Some(self.wish.class),
            Setting::Copies | Setting::Parity | Setting::Redundancy => own.scheme_wish() == Some(self.wish.scheme),
            Setting::Compress => own.compression() == Some(self.wish.compression),
            Setting::Encrypt => own.encryption() == Some(self.wish.encryption),
            Setting::Tier => own.tier_wish() == Some(self.wish.tier),
            Setting::Record => own.record() == Some(self.wish.record),
            Setting::Checksum => own.checksum() == Some(self.wish.checksum),
            Setting::On => own.on() == Some(self.wish.on),
            Setting::Only => own.only() == Some(self.wish.only),
            Setting::Node => own.node() == Some(self.wish.node),
            Setting::Sync => own.sync() == Some(self.wish.sync),
            Setting::Provenance | Setting::Audit | Setting::Dedup | Setting::Backup => {
                setting.switch().is_some_and(|switch| own.switches.get(switch) == Some(self.is_on(switch)))
            }
        };
        self.source(setting).is_lock() && !is_so
    }

    /// Who decided a list.
    pub fn list_source(&self, list: List) -> Source {
        match list {
            List::Plugins => self.plugins_source,
            List::Versions => self.versions_source,
        }
    }

    /// The same of a list.
    pub fn refuses_list(&self, list: List, own: &Own) -> bool {
        let is_so = match list {
            List::Plugins => own.plugins == self.plugins + 1,
            List::Versions => own.versions == self.versions,
        };
        list.is_said(own) && self.list_source(list).is_lock() && !is_so
    }
}

/// Directories deeper than this are taken for a loop in damaged metadata; the pool's default holds there.
const DEPTH_MAX: usize = 4096;
/// Cached directories; beyond that the cache starts afresh.
const CACHED_MAX: usize = 65_536;

/// What walking upward has found so far: what is said, and what is locked.
#[derive(Debug, Clone, Copy, Default)]
struct Walked {
    said: Findings,
    locked: Findings,
}

impl Walked {
    fn add(&mut self, inode: u64, ancestor: &Ancestor, classes: &Classes) {
        self.said.add(Source::Inode(inode), &ancestor.own, classes);
        self.locked.add(Source::Lock(inode), &ancestor.locked, classes);
    }

    fn over(self, above: Effective) -> Effective {
        let held = self.locked.over(self.said.over(above));
        assert!(self.locked.class.is_none() || held.class_source.is_lock(), "a lock goes before all that is said");
        assert!(self.locked.scheme.is_none() || held.scheme_source.is_lock(), "a lock goes before all that is said");
        let encrypts = self.locked.encryption.map(|(encryption, _)| encryption);
        assert!(
            encrypts.is_none_or(|locked| held.wish.encryption == locked),
            "the nearest lock says what is encrypted"
        );
        let only = self.locked.only.map(|(only, _)| only);
        assert!(only.is_none_or(|locked| held.wish.only == locked), "the nearest lock says where data lies");
        held
    }
}

/// What holds unless something is said: what the pool's default class says.
fn unsaid(classes: &Classes, default: Class) -> Effective {
    let (wish, switches) = (classes.wish(default), classes.switches(default));
    Effective {
        wish,
        class_source: Source::Pool,
        scheme_source: Source::Pool,
        compression_source: Source::Pool,
        encryption_source: Source::Pool,
        tier_source: Source::Pool,
        record_source: Source::Pool,
        checksum_source: Source::Pool,
        on_source: Source::Pool,
        only_source: Source::Pool,
        node_source: Source::Pool,
        sync_source: Source::Pool,
        plugins: classes.plugins(default).saturating_sub(1),
        plugins_source: Source::Pool,
        versions: classes.versions(default),
        versions_source: Source::Pool,
        switches: Switch::ALL.map(|switch| (switches.get(switch) == Some(true), Source::Pool)),
    }
}

/// What was found nearer, unless what holds above is locked and this is not.
fn nearer<T>(found: Option<(T, Source)>, above: (T, Source)) -> (T, Source) {
    match found {
        Some(found) if found.1.is_lock() || !above.1.is_lock() => found,
        _ => above,
    }
}

/// Who decides what, as far as it is found.
#[derive(Debug, Clone, Copy, Default)]
struct Findings {
    class: Option<(Class, Source)>,
    scheme: Option<(SchemeWish, Source)>,
    compression: Option<(Compression, Source)>,
    encryption: Option<(Encryption, Source)>,
    tier: Option<(TierWish, Source)>,
    record: Option<(RecordSize, Source)>,
    checksum: Option<(Checksum, Source)>,
    on: Option<(u8, Source)>,
    only: Option<(u8, Source)>,
    node: Option<(u8, Source)>,
    sync: Option<(Sync, Source)>,
    plugins: Option<(u16, Source)>,
    versions: Option<(Option<Versions>, Source)>,
    switches: [Option<(bool, Source)>; Switch::ALL.len()],
}

impl Findings {
    /// What rules decided, as far as it `overrides` what the file says itself, or does not.
    /// The values of its class are among them already.
    fn add_decision(&mut self, decision: &Decision, overrides: bool) {
        let counts = |key| decision.decided.overrides(key) == overrides;
        let found = (decision.class(), decision.scheme(), decision.compression());
        if let Some(class) = found.0.filter(|_| self.class.is_none() && counts(Decided::CLASS)) {
            self.class = Some((class, Source::Rule));
            // Decided when rules did not speak of media by themselves yet.
            if self.tier.is_none() && class == Class::Archive && !decision.decided.has(Decided::TIER) {
                self.tier = Some((TierWish::Usual, Source::Rule));
            }
        }
        if let Some(scheme) = found.1.filter(|_| self.scheme.is_none() && counts(Decided::SCHEME)) {
            self.scheme = Some((scheme, Source::Rule));
        }
        if let Some(compression) = found.2.filter(|_| self.compression.is_none() && counts(Decided::COMPRESSION)) {
            self.compression = Some((compression, Source::Rule));
        }
        let encryption = decision.encryption().filter(|_| self.encryption.is_none() && counts(Decided::ENCRYPTION));
        if let Some(encryption) = encryption {
            self.encryption = Some((encryption, Source::Rule));
        }
        if let Some(record) = decision.record().filter(|_| self.record.is_none() && counts(Decided::RECORD)) {
            self.record = Some((record, Source::Rule));
        }
        let checksum = decision.checksum().filter(|_| self.checksum.is_none() && counts(Decided::CHECKSUM));
        if let Some(checksum) = checksum {
            self.checksum = Some((checksum, Source::Rule));
        }
        if let Some(on) = decision.on().filter(|_| self.on.is_none() && counts(Decided::ON)) {
            self.on = Some((on, Source::Rule));
        }
        if let Some(only) = decision.only().filter(|_| self.only.is_none() && counts(Decided::ONLY)) {
            self.only = Some((only, Source::Rule));
        }
        if let Some(node) = decision.node().filter(|_| self.node.is_none() && counts(Decided::NODE)) {
            self.node = Some((node, Source::Rule));
        }
        if let Some(tier) = decision.tier().filter(|_| self.tier.is_none() && counts(Decided::TIER)) {
            self.tier = Some((tier, Source::Rule));
        }
        if let Some(sync) = decision.sync().filter(|_| self.sync.is_none() && counts(Decided::SYNC)) {
            self.sync = Some((sync, Source::Rule));
        }
        let plugins = decision.plugins().filter(|_| self.plugins.is_none() && counts(Decided::PLUGINS));
        if let Some(plugins) = plugins {
            self.plugins = Some((plugins - 1, Source::Rule));
        }
        let versions = decision.versions().filter(|_| self.versions.is_none() && counts(Decided::VERSIONS));
        if let Some(versions) = versions {
            self.versions = Some((Some(versions), Source::Rule));
        }
        for switch in Switch::ALL {
            let found = &mut self.switches[switch as usize];
            let decided = decision.switch(switch).filter(|_| counts(Decided::switch(switch)));
            *found = found.or(decided.map(|is_on| (is_on, Source::Rule)));
        }
    }

    fn add(&mut self, source: Source, own: &Own, classes: &Classes) {
        if own.is_empty() {
            return;
        }
        let class = own.class().map(|class| classes.resolve(class));
        // A class nearer than any number speaks for the rest too.
        let speaks = class.filter(|_| self.class.is_none());
        if self.scheme.is_none() {
            let wish = own.scheme_wish().or(speaks.and_then(|class| classes.scheme(class)));
            self.scheme = wish.map(|wish| (wish, source));
        }
        if self.compression.is_none() {
            let wish = own.compression().or(speaks.and_then(|class| classes.compression(class)));
            self.compression = wish.map(|wish| (wish, source));
        }
        if self.tier.is_none() {
            let wish = own.tier_wish().or(speaks.and_then(|class| classes.tier(class)));
            self.tier = wish.map(|wish| (wish, source));
        }
        if self.encryption.is_none() {
            let wish = own.encryption().or(speaks.and_then(|class| classes.encryption(class)));
            self.encryption = wish.map(|wish| (wish, source));
        }
        if self.record.is_none() {
            let wish = own.record().or(speaks.and_then(|class| classes.record(class)));
            self.record = wish.map(|wish| (wish, source));
        }
        if self.checksum.is_none() {
            let wish = own.checksum().or(speaks.and_then(|class| classes.checksum(class)));
            self.checksum = wish.map(|wish| (wish, source));
        }
        if self.on.is_none() {
            let wish = own.on().or(speaks.and_then(|class| classes.on(class)));
            self.on = wish.map(|wish| (wish, source));
        }
        if self.only.is_none() {
            let wish = own.only().or(speaks.and_then(|class| classes.only(class)));
            self.only = wish.map(|wish| (wish, source));
        }
        if self.node.is_none() {
            let wish = own.node().or(speaks.and_then(|class| classes.node(class)));
            self.node = wish.map(|wish| (wish, source));
        }
        if self.sync.is_none() {
            let wish = own.sync().or(speaks.and_then(|class| classes.sync(class)));
            self.sync = wish.map(|wish| (wish, source));
        }
        if self.plugins.is_none() {
            let of_class = speaks.map_or(0, |class| classes.plugins(class));
            let wish = if own.plugins == 0 { of_class } else { own.plugins };
            self.plugins = wish.checked_sub(1).map(|stack| (stack, source));
        }
        if self.versions.is_none() {
            let wish = own.versions.or(speaks.and_then(|class| classes.versions(class)));
            self.versions = wish.map(|wish| (Some(wish), source));
        }
        for switch in Switch::ALL {
            let of_class = || classes.switches(speaks?).get(switch);
            let found = &mut self.switches[switch as usize];
            *found = found.or_else(|| own.switches.get(switch).or_else(of_class).map(|is_on| (is_on, source)));
        }
        if self.class.is_none() {
            self.class = class.map(|class| (class, source));
        }
    }

    /// Lays what was found nearer over what holds above.
    fn over(self, above: Effective) -> Effective {
        let (class, class_source) = nearer(self.class, (above.wish.class, above.class_source));
        let (scheme, scheme_source) = nearer(self.scheme, (above.wish.scheme, above.scheme_source));
        let (compression, compression_source) =
            nearer(self.compression, (above.wish.compression, above.compression_source));
        let (encryption, encryption_source) = nearer(self.encryption, (above.wish.encryption, above.encryption_source));
        let (tier, tier_source) = nearer(self.tier, (above.wish.tier, above.tier_source));
        let (record, record_source) = nearer(self.record, (above.wish.record, above.record_source));
        let (checksum, checksum_source) = nearer(self.checksum, (above.wish.checksum, above.checksum_source));
        let (on, on_source) = nearer(self.on, (above.wish.on, above.on_source));
        let (only, only_source) = nearer(self.only, (above.wish.only, above.only_source));
        let (node, node_source) = nearer(self.node, (above.wish.node, above.node_source));
        let (sync, sync_source) = nearer(self.sync, (above.wish.sync, above.sync_source));
        let wish = Wish { class, scheme, compression, encryption, tier, record, checksum, on, only, node, sync };
        let (plugins, plugins_source) = nearer(self.plugins, (above.plugins, above.plugins_source));
        let (versions, versions_source) = nearer(self.versions, (above.versions, above.versions_source));
        let switches =
            Switch::ALL.map(|switch| nearer(self.switches[switch as usize], above.switches[switch as usize]));
        Effective {
            wish,
            class_source,
            scheme_source,
            compression_source,
            encryption_source,
            tier_source,
            record_source,
            checksum_source,
            on_source,
            only_source,
            node_source,
            sync_source,
            plugins,
            plugins_source,
            versions,
            versions_source,
            switches,
        }
    }
}

/// What holds in a directory.
#[derive(Debug, Clone, Copy)]
struct Held {
    effective: Effective,
    /// The same without what classes set there and above say: for what has a class of its own, which silences them.
    of_keys: Effective,
}

/// Resolves effective policies, remembering those of directories.
pub struct Resolver {
    default: Class,
    classes: RwLock<Arc<Classes>>,
    generation: AtomicU64,
    cache: Mutex<FxHashMap<u64, (u64, Held)>>,
}

impl Resolver {
    /// A resolver for a pool whose default class is `default`.
    pub fn new(default: Class) -> Resolver {
        let (classes, cache) = (RwLock::default(), Mutex::new(FxHashMap::default()));
        Resolver { default, classes, generation: AtomicU64::new(0), cache }
    }

    /// The class of what says nothing.
    pub fn default_class(&self) -> Class {
        self.default
    }

    /// The classes of the pool.
    pub fn classes(&self) -> Arc<Classes> {
        self.classes.read().clone()
    }

    /// The classes are others now; every answer from before is forgotten.
    pub fn set_classes(&self, classes: Classes) {
        *self.classes.write() = Arc::new(classes);
        self.invalidate();
    }

    /// Forgets every answer: a policy changed, or a directory moved.
    pub fn invalidate(&self) {
        self.generation.fetch_add(1, Ordering::AcqRel);
    }

    /// Counts how often answers became old: what was made out at one count holds while it is the same.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// The policy of an inode that contributes `says` itself, and of which rules decided `decision`.
    /// `fetch` gives an inode's contribution, `None` when there is no such inode.
    pub fn resolve<E>(
        &self,
        inode: u64,
        says: &Ancestor,
        decision: &Decision,
        mut fetch: impl FnMut(u64) -> Result<Option<Ancestor>, E>,
    ) -> Result<Effective, E> {
        let mut walked = Walked::default();
        if !decision.is_nothing() {
            walked.said.add_decision(decision, true);
        }
        if !says.own.is_empty() || !says.locked.is_empty() {
            walked.add(inode, says, &self.classes.read());
        }
        if !decision.is_nothing() {
            walked.said.add_decision(decision, false);
        }
        if says.parent == inode {
            return Ok(walked.over(unsaid(&self.classes.read(), self.default)));
        }
        // Also where everything is said: it may be locked above.
        let above = self.held(says.parent, &mut fetch)?;
        let is_silenced = match walked.locked.class {
            Some(_) => true,
            None => walked.said.class.is_some() && !above.effective.class_source.is_lock(),
        };
        let held = walked.over(if is_silenced { above.of_keys } else { above.effective });
        let is_locked_above = above.effective.class_source.is_lock();
        assert!(!is_locked_above || held.class_source.is_lock(), "a class that is locked above is locked here");
        Ok(held)
    }

    /// The policy that holds for what is created in directory `inode`.
    pub fn directory<E>(
        &self,
        inode: u64,
        fetch: &mut impl FnMut(u64) -> Result<Option<Ancestor>, E>,
    ) -> Result<Effective, E> {
        self.held(inode, fetch).map(|held| held.effective)
    }

    fn held<E>(&self, inode: u64, fetch: &mut impl FnMut(u64) -> Result<Option<Ancestor>, E>) -> Result<Held, E> {
        let generation = self.generation.load(Ordering::Acquire);
        let cached = self.cache.lock().get(&inode).copied();
        if let Some((_, held)) = cached.filter(|(known, _)| *known == generation) {
            return Ok(held);
        }
        let (mut walked, mut of_keys, classes) = (Walked::default(), Walked::default(), self.classes());
        let mut at = inode;
        for _ in 0..DEPTH_MAX {
            let Some(ancestor) = fetch(at)? else { break };
            walked.add(at, &ancestor, &classes);
            let (own, locked) = (ancestor.own.without_class(), ancestor.locked.without_class());
            of_keys.add(at, &Ancestor { own, locked, ..ancestor }, &classes);
            if ancestor.parent == at {
                break;
            }
            at = ancestor.parent;
        }
        let pool = unsaid(&classes, self.default);
        let held = Held { effective: walked.over(pool), of_keys: of_keys.over(pool) };
        let has_class = walked.said.class.is_some() || walked.locked.class.is_some();
        assert!(has_class || held.effective == held.of_keys, "only classes make a difference to what keys say");
        let mut cache = self.cache.lock();
        if cache.len() >= CACHED_MAX {
            cache.clear();
        }
        cache.insert(inode, (generation, held));
        assert!(cache.len() <= CACHED_MAX, "directories that are remembered are bounded");
        Ok(held)
    }
}

#[cfg(test)]
mod tests;
