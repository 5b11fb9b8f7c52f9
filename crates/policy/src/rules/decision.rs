//! What the rules that match a file come to: for each key the most conservative value, and whether it overrides.
//!
//! Most conservative: the redundancy that survives most losses (copies before parity that survives as many); the class that
//! survives most, and among equals the one that does less; the compression that does least; to encrypt, and to note, rather than not; the smallest
//! records; the checksum that tells most; a place rather than anywhere, and of different ones that of the first rule; plugins rather than none, and of different ones those of the first rule; what stays rather than what goes; as many versions as one keeps, as long as one does.

use super::Rule;
use crate::attribute::{ANYWHERE, Own, TIERS_USUAL};
use crate::checksum::Checksum;
use crate::class::{Class, SchemeWish, TierWish};
use crate::classes::Classes;
use crate::compression::Compression;
use crate::encryption::Encryption;
use crate::record::RecordSize;
use crate::residency::ResidencySettings;
use crate::resolver::rank_of_tier;
use crate::switches::Switch;
use crate::sync::Sync;
use crate::versions::Versions;

/// Which keys rules decided, a set of bits: five bytes on media, in each of which the upper half says what overrides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Decided(pub u64);

impl Decided {
    /// The class.
    pub const CLASS: Decided = Decided(1);
    /// The redundancy.
    pub const SCHEME: Decided = Decided(2);
    /// The compression.
    pub const COMPRESSION: Decided = Decided(4);
    /// The encryption.
    pub const ENCRYPTION: Decided = Decided(8);
    /// The switches: provenance, then the others.
    const SWITCHES: [Decided; Switch::ALL.len()] = [Decided(0x100), Decided(0x200), Decided(0x400), Decided(0x800)];
    /// The size of records.
    pub const RECORD: Decided = Decided(0x1_0000);
    /// The users' plugins.
    pub const PLUGINS: Decided = Decided(0x2_0000);
    /// The versions.
    pub const VERSIONS: Decided = Decided(0x4_0000);
    /// The checksum.
    pub const CHECKSUM: Decided = Decided(0x100_0000);
    /// Where data lies rather than elsewhere.
    pub const ON: Decided = Decided(0x200_0000);
    /// Where it lies and nowhere else.
    pub const ONLY: Decided = Decided(0x400_0000);
    /// What nodes are told.
    pub const NODE: Decided = Decided(0x1_0000_0000);
    /// The media.
    pub const TIER: Decided = Decided(0x2_0000_0000);
    /// When changes are durable.
    pub const SYNC: Decided = Decided(0x4_0000_0000);
    const OVERRIDE_SHIFT: u8 = 4;

    /// From the bytes on media.
    pub fn from_bytes([a, b, c, d, e]: [u8; 5]) -> Decided {
        Decided(u64::from_le_bytes([a, b, c, d, e, 0, 0, 0]))
    }

    /// The bytes on media: the second one is that of the switches, the third of the size of records, the fourth of the checksum, the last of nodes.
    pub fn to_bytes(self) -> [u8; 5] {
        let [a, b, c, d, e, rest @ ..] = self.0.to_le_bytes();
        assert_eq!(rest, [0; 3], "all keys have their bits in five bytes");
        [a, b, c, d, e]
    }

    /// A switch.
    pub fn switch(switch: Switch) -> Decided {
        Decided::SWITCHES[switch as usize]
    }

    /// Whether this key was decided.
    pub fn has(self, key: Decided) -> bool {
        self.0 & key.0 != 0
    }

    /// Whether the decision goes before what the file says itself.
    pub fn overrides(self, key: Decided) -> bool {
        self.0 & key.0 << Decided::OVERRIDE_SHIFT != 0
    }

    /// What an object that says this speaks for.
    pub fn of(own: &Own, classes: &Classes) -> Decided {
        let class = own.class();
        let mut keys = Decided::default();
        if class.is_some() {
            keys.note(Decided::CLASS, false);
        }
        if own.scheme_wish().or(class.and_then(|class| classes.scheme(class))).is_some() {
            keys.note(Decided::SCHEME, false);
        }
        if own.compression().or(class.and_then(|class| classes.compression(class))).is_some() {
            keys.note(Decided::COMPRESSION, false);
        }
        if own.encryption().or(class.and_then(|class| classes.encryption(class))).is_some() {
            keys.note(Decided::ENCRYPTION, false);
        }
        if own.record().or(class.and_then(|class| classes.record(class))).is_some() {
            keys.note(Decided::RECORD, false);
        }
        if own.checksum().or(class.and_then(|class| classes.checksum(class))).is_some() {
            keys.note(Decided::CHECKSUM, false);
        }
        if own.on().or(class.and_then(|class| classes.on(class))).is_some() {
            keys.note(Decided::ON, false);
        }
        if own.only().or(class.and_then(|class| classes.only(class))).is_some() {
            keys.note(Decided::ONLY, false);
        }
        if own.node().or(class.and_then(|class| classes.node(class))).is_some() {
            keys.note(Decided::NODE, false);
        }
        if own.tier_wish().or(class.and_then(|class| classes.tier(class))).is_some() {
            keys.note(Decided::TIER, false);
        }
        if own.sync().or(class.and_then(|class| classes.sync(class))).is_some() {
            keys.note(Decided::SYNC, false);
        }
        if own.plugins != 0 || class.is_some_and(|class| classes.plugins(class) != 0) {
            keys.note(Decided::PLUGINS, false);
        }
        if own.versions.or(class.and_then(|class| classes.versions(class))).is_some() {
            keys.note(Decided::VERSIONS, false);
        }
        for switch in Switch::ALL {
            let of_class = class.and_then(|class| classes.switches(class).get(switch));
            if own.switches.get(switch).or(of_class).is_some() {
                keys.note(Decided::switch(switch), false);
            }
        }
        assert_eq!(keys.0 & 0xf0_f0f0_f0f0, 0, "what an object says itself overrides nothing");
        keys
    }

    /// Both.
    pub fn and(self, other: Decided) -> Decided {
        Decided(self.0 | other.0)
    }

    fn note(&mut self, key: Decided, overrides: bool) {
        assert_eq!(key.0 & 0xf0_f0f0_f0f0, 0, "the upper half of each byte says what overrides");
        self.0 |= key.0 | if overrides { key.0 << Decided::OVERRIDE_SHIFT } else { 0 };
    }
}

/// What rules decided for a file. It is noted in the inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Decision {
    /// The values.
    pub own: Own,
    /// Which of them count.
    pub decided: Decided,
}

impl Decision {
    /// Whether no rule had anything to say.
    pub fn is_nothing(&self) -> bool {
        self.decided == Decided::default()
    }

    /// The class that was decided.
    pub fn class(&self) -> Option<Class> {
        Class::from_code(self.own.class).filter(|_| self.decided.has(Decided::CLASS))
    }

    /// The redundancy that was decided.
    pub fn scheme(&self) -> Option<SchemeWish> {
        self.own.scheme_wish().filter(|_| self.decided.has(Decided::SCHEME))
    }

    /// The compression that was decided.
    pub fn compression(&self) -> Option<Compression> {
        self.own.compression().filter(|_| self.decided.has(Decided::COMPRESSION))
    }

    /// The encryption that was decided.
    pub fn encryption(&self) -> Option<Encryption> {
        self.own.encryption().filter(|_| self.decided.has(Decided::ENCRYPTION))
    }

    /// The size of records that was decided.
    pub fn record(&self) -> Option<RecordSize> {
        self.own.record().filter(|_| self.decided.has(Decided::RECORD))
    }

    /// The checksum that was decided.
    pub fn checksum(&self) -> Option<Checksum> {
        self.own.checksum().filter(|_| self.decided.has(Decided::CHECKSUM))
    }

    /// Where data lies rather than elsewhere, as it was decided.
    pub fn on(&self) -> Option<u8> {
        self.own.on().filter(|_| self.decided.has(Decided::ON))
    }

    /// Where data lies and nowhere else, as it was decided.
    pub fn only(&self) -> Option<u8> {
        self.own.only().filter(|_| self.decided.has(Decided::ONLY))
    }

    /// What nodes are told, as it was decided.
    pub fn node(&self) -> Option<u8> {
        self.own.node().filter(|_| self.decided.has(Decided::NODE))
    }

    /// The media that were decided.
    pub fn tier(&self) -> Option<TierWish> {
        self.own.tier_wish().filter(|_| self.decided.has(Decided::TIER))
    }

    /// When changes are durable, as it was decided.
    pub fn sync(&self) -> Option<Sync> {
        self.own.sync().filter(|_| self.decided.has(Decided::SYNC))
    }

    /// The plugins that were decided, as in [`Own`].
    pub fn plugins(&self) -> Option<u16> {
        Some(self.own.plugins).filter(|plugins| *plugins != 0 && self.decided.has(Decided::PLUGINS))
    }

    /// The versions that were decided.
    pub fn versions(&self) -> Option<Versions> {
        self.own.versions.filter(|_| self.decided.has(Decided::VERSIONS))
    }

    /// What was decided about a switch.
    pub fn switch(&self, switch: Switch) -> Option<bool> {
        self.own.switches.get(switch).filter(|_| self.decided.has(Decided::switch(switch)))
    }

    /// Takes from these values, which rules were merged to, what is not decided yet and not `settled` by something nearer.
    pub fn add(&mut self, own: &Own, overrides: bool, settled: Decided) {
        let before = self.decided;
        let is_open = |key: Decided, known: bool| !known && !settled.has(key);
        if let Some(scheme) = own.scheme_wish().filter(|_| is_open(Decided::SCHEME, self.scheme().is_some())) {
            self.own.set_scheme(scheme);
            self.decided.note(Decided::SCHEME, overrides);
        }
        let compression = own.compression().filter(|_| is_open(Decided::COMPRESSION, self.compression().is_some()));
        if let Some(compression) = compression {
            self.own.compression = compression.code();
            self.decided.note(Decided::COMPRESSION, overrides);
        }
        let encryption = own.encryption().filter(|_| is_open(Decided::ENCRYPTION, self.encryption().is_some()));
        if let Some(encryption) = encryption {
            self.own.encryption = encryption.code();
            self.decided.note(Decided::ENCRYPTION, overrides);
        }
        if let Some(record) = own.record().filter(|_| is_open(Decided::RECORD, self.record().is_some())) {
            self.own.record = record.code();
            self.decided.note(Decided::RECORD, overrides);
        }
        if let Some(checksum) = own.checksum().filter(|_| is_open(Decided::CHECKSUM, self.checksum().is_some())) {
            self.own.checksum = checksum.code();
            self.decided.note(Decided::CHECKSUM, overrides);
        }
        if own.on != 0 && is_open(Decided::ON, self.on().is_some()) {
            self.own.on = own.on;
            self.decided.note(Decided::ON, overrides);
        }
        if own.only != 0 && is_open(Decided::ONLY, self.only().is_some()) {
            self.own.only = own.only;
            self.decided.note(Decided::ONLY, overrides);
        }
        if own.node != 0 && is_open(Decided::NODE, self.node().is_some()) {
            self.own.node = own.node;
            self.decided.note(Decided::NODE, overrides);
        }
        if own.tiers != 0 && is_open(Decided::TIER, before.has(Decided::TIER)) {
            self.own.tiers = own.tiers;
            self.decided.note(Decided::TIER, overrides);
        }
        if own.sync != 0 && is_open(Decided::SYNC, self.sync().is_some()) {
            self.own.sync = own.sync;
            self.decided.note(Decided::SYNC, overrides);
        }
        if own.plugins != 0 && is_open(Decided::PLUGINS, self.plugins().is_some()) {
            self.own.plugins = own.plugins;
            self.decided.note(Decided::PLUGINS, overrides);
        }
        if own.versions.is_some() && is_open(Decided::VERSIONS, self.versions().is_some()) {
            self.own.versions = own.versions;
            self.decided.note(Decided::VERSIONS, overrides);
        }
        for switch in Switch::ALL {
            let key = Decided::switch(switch);
            if let Some(is_on) = own.switches.get(switch).filter(|_| is_open(key, self.switch(switch).is_some())) {
                self.own.switches.set(switch, Some(is_on));
                self.decided.note(key, overrides);
            }
        }
        if let Some(class) = own.class().filter(|_| is_open(Decided::CLASS, self.class().is_some())) {
            self.own.class = class.code();
            self.decided.note(Decided::CLASS, overrides);
            // Something nearer says where it goes, or the class does, or nobody: it is not asked once more.
            if !self.decided.has(Decided::TIER) {
                let is_usual = class == Class::Archive && !settled.has(Decided::TIER);
                self.own.tiers = if is_usual { TIERS_USUAL } else { 0 };
                self.decided.note(Decided::TIER, overrides);
            }
        }
        assert_eq!(self.decided.has(Decided::CLASS), self.class().is_some(), "a class that is decided has a value");
        assert_eq!(self.decided.has(Decided::SCHEME), self.scheme().is_some(), "what is decided has a value");
        assert_eq!(self.decided.has(Decided::ENCRYPTION), self.encryption().is_some(), "what is decided has a value");
        assert_eq!(self.decided.and(before), self.decided, "what was decided stays decided");
    }

    /// Of a file with several names: of each key the more conservative value.
    pub fn or_more(&self, other: &Decision, classes: &Classes) -> Decision {
        let mut own = Own::default();
        let schemes = [self.scheme(), other.scheme()].into_iter().flatten();
        if let Some(scheme) = schemes.reduce(more_conservative_scheme) {
            own.set_scheme(scheme);
        }
        let compressions = [self.compression(), other.compression()].into_iter().flatten();
        own.compression = compressions.min().map_or(0, Compression::code);
        let encryptions = [self.encryption(), other.encryption()].into_iter().flatten();
        own.encryption = encryptions.max().map_or(0, Encryption::code);
        let records = [self.record(), other.record()].into_iter().flatten();
        own.record = records.min().map_or(0, RecordSize::code);
        let checksums = [self.checksum(), other.checksum()].into_iter().flatten();
        own.checksum = checksums.max().map_or(0, Checksum::code);
        own.on = nearer_place(self.own.on, other.own.on);
        own.only = nearer_place(self.own.only, other.own.only);
        own.node = nearer_place(self.own.node, other.own.node);
        own.tiers = more_media(self.own.tiers, other.own.tiers);
        own.sync = self.own.sync.max(other.own.sync);
        own.plugins = more_plugins(self.plugins().unwrap_or(0), other.plugins().unwrap_or(0));
        own.versions = more_versions(self.versions(), other.versions());
        own.switches = self.own.switches.or_more(other.own.switches);
        let decided = [self.class(), other.class()].into_iter().flatten();
        own.class = decided.reduce(|one, other| more_conservative_class(one, other, classes)).map_or(0, Class::code);
        let both = Decision { own, decided: Decided(self.decided.0 | other.decided.0) };
        let survives = |decision: &Decision| decision.scheme().map(SchemeWish::survives);
        assert_eq!(
            survives(&both),
            survives(self).max(survives(other)),
            "of two schemes that which survives more holds"
        );
        assert_eq!(both.encryption(), self.encryption().max(other.encryption()), "one that encrypts is enough");
        assert_eq!(both.checksum(), self.checksum().max(other.checksum()), "the checksum that tells more holds");
        let is_any_class = self.class().is_some() || other.class().is_some();
        assert_eq!(both.class().is_some(), is_any_class, "of two classes one is left");
        both
    }
}

fn more_conservative_scheme(one: SchemeWish, other: SchemeWish) -> SchemeWish {
    let rank = |wish: SchemeWish| (wish.survives(), matches!(wish, SchemeWish::Copies(_)));
    if rank(other) > rank(one) { other } else { one }
}

/// Plugins rather than none (1), and of two stacks the first.
fn more_plugins(one: u16, other: u16) -> u16 {
    if one > 1 || other == 0 { one } else { other }
}

/// A place rather than anywhere (1), and of two the first.
fn nearer_place(one: u8, other: u8) -> u8 {
    if one > ANYWHERE || other == 0 { one } else { other }
}

/// Media rather than none, and more of them.
fn more_media(one: u16, other: u16) -> u16 {
    let rank = |tiers| rank_of_tier(Own { tiers, ..Own::default() }.tier_wish().unwrap_or(TierWish::Nowhere));
    match (one, other) {
        (_, 0) => one,
        (0, _) => other,
        _ if rank(other) > rank(one) => other,
        _ => one,
    }
}

fn more_versions(one: Option<Versions>, other: Option<Versions>) -> Option<Versions> {
    [one, other].into_iter().flatten().reduce(Versions::or_more)
}

fn more_conservative_class(one: Class, other: Class, classes: &Classes) -> Class {
    let rank = |class: Class| (classes.wish(class).scheme.survives(), classes.compression(class).is_none());
    if rank(other) > rank(one) { other } else { one }
}

/// What a rule says of what stays on devices, with what its class says.
pub fn residency_of(rule: &Rule, classes: &Classes) -> ResidencySettings {
    let of_class = rule.own.class().map(|class| classes.residency(class));
    rule.own.residency.or(of_class.unwrap_or_default())
}

/// What rules that all match come to, as if one object said it; with what their classes say.
pub fn merge<'a>(rules: impl IntoIterator<Item = &'a Rule>, classes: &Classes) -> Own {
    let mut merged = Own::default();
    for rule in rules {
        // A class speaks for its rule unless that says otherwise.
        let class = rule.own.class();
        let scheme = rule.own.scheme_wish().or(class.and_then(|class| classes.scheme(class)));
        if let Some(scheme) = [merged.scheme_wish(), scheme].into_iter().flatten().reduce(more_conservative_scheme) {
            merged.set_scheme(scheme);
        }
        let survives = |wish: Option<SchemeWish>| wish.map(SchemeWish::survives);
        assert!(survives(merged.scheme_wish()) >= survives(scheme), "what rules come to survives what each asks for");
        let compression = rule.own.compression().or(class.and_then(|class| classes.compression(class)));
        let compressions = [merged.compression(), compression].into_iter().flatten();
        merged.compression = compressions.min().map_or(0, Compression::code);
        let encryption = rule.own.encryption().or(class.and_then(|class| classes.encryption(class)));
        let encryptions = [merged.encryption(), encryption].into_iter().flatten();
        merged.encryption = encryptions.max().map_or(0, Encryption::code);
        assert!(merged.encryption() >= encryption, "what rules come to encrypts as each asks for");
        let record = rule.own.record().or(class.and_then(|class| classes.record(class)));
        let records = [merged.record(), record].into_iter().flatten();
        merged.record = records.min().map_or(0, RecordSize::code);
        let checksum = rule.own.checksum().or(class.and_then(|class| classes.checksum(class)));
        let checksums = [merged.checksum(), checksum].into_iter().flatten();
        merged.checksum = checksums.max().map_or(0, Checksum::code);
        assert!(merged.checksum() >= checksum, "what rules come to tells as much as each asks for");
        let said = |own: u8, of_class: Option<u8>| {
            if own == 0 { of_class.map_or(0, |place| place.max(ANYWHERE)) } else { own }
        };
        let on = said(rule.own.on, class.and_then(|class| classes.on(class)));
        merged.on = nearer_place(merged.on, on);
        let only = said(rule.own.only, class.and_then(|class| classes.only(class)));
        merged.only = nearer_place(merged.only, only);
        let node = said(rule.own.node, class.and_then(|class| classes.node(class)));
        merged.node = nearer_place(merged.node, node);
        let tiers = match rule.own.tiers {
            // What is usual comes with the class that is decided.
            0 => class.and_then(|class| classes.named_tier(class)).map_or(0, Own::code_of_media),
            tiers => tiers,
        };
        merged.tiers = more_media(merged.tiers, tiers);
        let sync = rule.own.sync().or(class.and_then(|class| classes.sync(class)));
        merged.sync = [merged.sync(), sync].into_iter().flatten().max().map_or(0, Sync::code);
        let of_class = class.map_or(0, |class| classes.plugins(class));
        let plugins = if rule.own.plugins == 0 { of_class } else { rule.own.plugins };
        merged.plugins = more_plugins(merged.plugins, plugins);
        let versions = rule.own.versions.or(class.and_then(|class| classes.versions(class)));
        merged.versions = more_versions(merged.versions, versions);
        merged.residency = merged.residency.or_more(residency_of(rule, classes));
        let mut switches = class.map(|class| classes.switches(class)).unwrap_or_default();
        for switch in Switch::ALL {
            if let Some(is_on) = rule.own.switches.get(switch) {
                switches.set(switch, Some(is_on));
            }
        }
        merged.switches = merged.switches.or_more(switches);
        let decided = [merged.class(), rule.own.class()].into_iter().flatten();
        merged.class = decided.reduce(|one, other| more_conservative_class(one, other, classes)).map_or(0, Class::code);
    }
    merged
}
