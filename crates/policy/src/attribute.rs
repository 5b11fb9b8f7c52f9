//! Names and values of policy attributes: what can be set, what is computed, and how both are spelled.
//!
//! A name is recognised once ([`parse_name`]); everything else works on the recognised form. Values are canonical:
//! what is read back means the same as what was set, whatever leading zeros it had.

use crate::checksum::Checksum;
use crate::class::{Class, SchemeWish, TierWish};
use crate::compression::Compression;
use crate::encryption::Encryption;
use crate::error::PolicyError;
use crate::number::number;
use crate::record::RecordSize;
use crate::residency::{ResidencySetting, ResidencySettings};
use crate::switches::{Switch, Switches};
use crate::sync::Sync;
use crate::versions::Versions;

/// A recognised policy name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Name {
    /// A key that can be set and removed.
    Setting(Setting),
    /// The same for the administrator: what is set so holds for everything below, whatever is set or ruled there.
    Lock(Setting),
    /// The same of the keys that are lists.
    ListLock(List),
    /// The rules of a directory.
    Rules,
    /// The stack of users' plugins.
    Plugins,
    /// Until when files stay as they are.
    Retain,
    /// The administrator's: that nobody else says so, here and below.
    RetainLock,
    /// How many versions of files are kept, and how long.
    Versions,
    /// What stays on devices, and in what company.
    ResidencySetting(ResidencySetting),
    /// A fact that can only be read.
    Computed(Computed),
}

/// Keys that are lists; who parses them stands above.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum List {
    /// `plugins`.
    Plugins,
    /// `versions`.
    Versions,
}

impl List {
    /// Both, in the order they are listed.
    pub const ALL: [List; 2] = [List::Plugins, List::Versions];

    /// The key without its prefix.
    pub fn word(self) -> &'static str {
        match self {
            List::Plugins => "plugins",
            List::Versions => "versions",
        }
    }

    /// The attribute that locks it.
    pub fn lock_attribute(self) -> String {
        format!("{LOCK_PREFIX}{}", self.word())
    }

    /// Whether an object says something of it.
    pub fn is_said(self, own: &Own) -> bool {
        match self {
            List::Plugins => own.plugins != 0,
            List::Versions => own.versions.is_some(),
        }
    }

    /// The list people call by `word`.
    pub fn from_word(word: &str) -> Option<List> {
        List::ALL.into_iter().find(|list| list.word() == word)
    }
}

/// Keys that can be set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Setting {
    /// `class`.
    Class,
    /// `copies`.
    Copies,
    /// `parity`.
    Parity,
    /// `redundancy`.
    Redundancy,
    /// `compress`.
    Compress,
    /// `tier`.
    Tier,
    /// `encrypt`.
    Encrypt,
    /// `provenance`.
    Provenance,
    /// `audit`.
    Audit,
    /// `dedup`.
    Dedup,
    /// `backup`.
    Backup,
    /// `record`.
    Record,
    /// `checksum`.
    Checksum,
    /// `on`: where data lies rather than elsewhere.
    On,
    /// `only`: where data lies and nowhere else.
    Only,
    /// `node`: what nodes are told of it.
    Node,
    /// `sync`: when changes are durable.
    Sync,
}

/// Facts that can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Computed {
    /// `effective.<key>`: what holds now, after inheritance.
    Effective(Setting),
    /// `source.<key>`: who decided that.
    Source(Setting),
    /// `effective.plugins`: which users' plugins content passes.
    EffectivePlugins,
    /// `source.plugins`: who decided that.
    PluginsSource,
    /// `effective.retain`: until when a file stays as it is, or what is said of that above.
    EffectiveRetain,
    /// `source.retain`: who decided that.
    RetainSource,
    /// `effective.versions`: which versions of a file are kept.
    EffectiveVersions,
    /// `source.versions`: who decided that.
    VersionsSource,
    /// `effective.pin`, `.unit` and `.names`: what holds of what stays on devices.
    EffectiveResidency(ResidencySetting),
    /// `source.pin`, `.unit` and `.names`: who decided that.
    ResidencySource(ResidencySetting),
    /// `chain`: all that is said of it, by whom, the strongest first.
    Chain,
    /// `state`: whether the data lies as the policy wants it.
    State,
    /// `where`: which devices hold the data.
    Where,
    /// `survives`: how many device losses the data survives.
    Survives,
    /// `stored`: how many bytes are stored of the content, before copies and parity.
    Stored,
    /// `sha256`: the digest of all content, if one was made of what is there now.
    Sha256,
    /// `blake3`: another digest of it.
    Blake3,
    /// `residency`: how near the bytes are.
    Residency,
}

impl Setting {
    /// All keys that can be set, in the order they are listed.
    pub const ALL: [Setting; 17] = [
        Setting::Class,
        Setting::Copies,
        Setting::Parity,
        Setting::Redundancy,
        Setting::Compress,
        Setting::Encrypt,
        Setting::Tier,
        Setting::Provenance,
        Setting::Audit,
        Setting::Dedup,
        Setting::Backup,
        Setting::Record,
        Setting::Checksum,
        Setting::On,
        Setting::Only,
        Setting::Node,
        Setting::Sync,
    ];

    /// The switch that it is, if it is one.
    pub fn switch(self) -> Option<Switch> {
        match self {
            Setting::Provenance => Some(Switch::Provenance),
            Setting::Audit => Some(Switch::Audit),
            Setting::Dedup => Some(Switch::Dedup),
            Setting::Backup => Some(Switch::Backup),
            _ => None,
        }
    }

    /// The key without its prefix.
    pub fn word(self) -> &'static str {
        match self {
            Setting::Class => "class",
            Setting::Copies => "copies",
            Setting::Parity => "parity",
            Setting::Redundancy => "redundancy",
            Setting::Compress => "compress",
            Setting::Encrypt => "encrypt",
            Setting::Tier => "tier",
            Setting::Provenance => "provenance",
            Setting::Audit => "audit",
            Setting::Dedup => "dedup",
            Setting::Backup => "backup",
            Setting::Record => "record",
            Setting::Checksum => "checksum",
            Setting::On => "on",
            Setting::Only => "only",
            Setting::Node => "node",
            Setting::Sync => "sync",
        }
    }

    /// The whole attribute name, as listed.
    pub fn attribute(self) -> &'static str {
        match self {
            Setting::Class => "user.stere.class",
            Setting::Copies => "user.stere.copies",
            Setting::Parity => "user.stere.parity",
            Setting::Redundancy => "user.stere.redundancy",
            Setting::Compress => "user.stere.compress",
            Setting::Encrypt => "user.stere.encrypt",
            Setting::Tier => "user.stere.tier",
            Setting::Provenance => "user.stere.provenance",
            Setting::Audit => "user.stere.audit",
            Setting::Dedup => "user.stere.dedup",
            Setting::Backup => "user.stere.backup",
            Setting::Record => "user.stere.record",
            Setting::Checksum => "user.stere.checksum",
            Setting::On => "user.stere.on",
            Setting::Only => "user.stere.only",
            Setting::Node => "user.stere.node",
            Setting::Sync => "user.stere.sync",
        }
    }

    /// What values it takes, for messages.
    pub fn expected(self) -> &'static str {
        match self {
            Setting::Class => "scratch, normal, precious, archive, or a class of the pool (see `stere class list`)",
            Setting::Copies => "a number of copies from 1 to 32",
            Setting::Parity => "a number of parity units, or data+parity such as 4+2 or 5+0 (32 in all)",
            Setting::Redundancy => "a number from 0 (one copy) to 10 (a copy on every device)",
            Setting::Compress => "none, lz4, zstd, or zstd:1 to zstd:19",
            Setting::Encrypt => "no, yes, or the name of a key of the pool (see `stere key list`)",
            Setting::Tier => "the name of a medium of the pool, several with + between them, or none",
            Setting::Provenance => "yes (note who writes files, and from what) or no",
            Setting::Audit => "yes (note what happens to files) or no",
            Setting::Dedup => "yes (what is stored twice becomes one, in the background) or no",
            Setting::Backup => "yes (copied to the pool's destinations, see `stere backup add`) or no",
            Setting::Record => "4K, 8K, 16K and so on up to 1M",
            Setting::Checksum => "crc32c, xxh3, blake3 (both beside crc32c), or none",
            Setting::On | Setting::Only => {
                "tags, classes (ssd, hdd, object, media) or names of devices, several with commas between them, or any"
            }
            Setting::Sync => "always (when a call returns), asked (at fsync), or relaxed (fsync does not wait)",
            Setting::Node => "settings for nodes such as compress=zstd|copies=2, at most 8, or none",
        }
    }

    /// The attribute that locks it.
    pub fn lock_attribute(self) -> String {
        format!("{LOCK_PREFIX}{}", self.word())
    }

    /// The setting people call by `word`.
    pub fn from_word(word: &str) -> Option<Setting> {
        Setting::ALL.into_iter().find(|setting| setting.word() == word)
    }
}

impl Computed {
    /// What kind of fact it is, for messages.
    pub fn word(self) -> &'static str {
        match self {
            Computed::Effective(_)
            | Computed::EffectivePlugins
            | Computed::EffectiveRetain
            | Computed::EffectiveResidency(_)
            | Computed::EffectiveVersions => "effective",
            Computed::Source(_)
            | Computed::PluginsSource
            | Computed::RetainSource
            | Computed::VersionsSource
            | Computed::ResidencySource(_) => "source",
            Computed::State => "state",
            Computed::Where => "where",
            Computed::Survives => "survives",
            Computed::Stored => "stored",
            Computed::Sha256 => "sha256",
            Computed::Blake3 => "blake3",
            Computed::Chain => "chain",
            Computed::Residency => "residency",
        }
    }
}

/// What the names of locks begin with.
const LOCK_PREFIX: &str = "trusted.stere.";

/// Recognises an attribute name. `None`: not a policy name at all, an ordinary attribute.
pub fn parse_name(name: &[u8]) -> Option<Result<Name, PolicyError>> {
    let locked = name.strip_prefix(LOCK_PREFIX.as_bytes());
    let said = || name.strip_prefix(b"user.stere.").or_else(|| name.strip_prefix(b"user.attest."));
    let key = locked.or_else(said)?;
    let Ok(key) = std::str::from_utf8(key) else {
        return Some(Err(PolicyError::UnknownKey(String::from_utf8_lossy(key).into_owned())));
    };
    if locked.is_some() {
        let lock = Setting::from_word(key).map(Name::Lock);
        let lock = lock.or(List::from_word(key).map(Name::ListLock)).or((key == "retain").then_some(Name::RetainLock));
        return Some(lock.ok_or_else(|| PolicyError::NotLockable(key.to_owned())));
    }
    Some(recognise(key).ok_or_else(|| PolicyError::UnknownKey(key.to_owned())))
}

fn recognise(key: &str) -> Option<Name> {
    if key == "rules" {
        return Some(Name::Rules);
    }
    if key == "plugins" {
        return Some(Name::Plugins);
    }
    if key == "retain" {
        return Some(Name::Retain);
    }
    if key == "versions" {
        return Some(Name::Versions);
    }
    if let Some(keep) = ResidencySetting::from_word(key) {
        return Some(Name::ResidencySetting(keep));
    }
    if let Some(setting) = Setting::from_word(key) {
        return Some(Name::Setting(setting));
    }
    if let Some(of) = key.strip_prefix("effective.") {
        let setting = Setting::from_word(of).map(Computed::Effective);
        let other = match of {
            "plugins" => Some(Computed::EffectivePlugins),
            "retain" => Some(Computed::EffectiveRetain),
            "versions" => Some(Computed::EffectiveVersions),
            _ => ResidencySetting::from_word(of).map(Computed::EffectiveResidency),
        };
        return setting.or(other).map(Name::Computed);
    }
    if let Some(of) = key.strip_prefix("source.") {
        let setting = Setting::from_word(of).map(Computed::Source);
        let other = match of {
            "plugins" => Some(Computed::PluginsSource),
            "retain" => Some(Computed::RetainSource),
            "versions" => Some(Computed::VersionsSource),
            _ => ResidencySetting::from_word(of).map(Computed::ResidencySource),
        };
        return setting.or(other).map(Name::Computed);
    }
    let computed = match key {
        "chain" => Computed::Chain,
        "state" => Computed::State,
        "where" => Computed::Where,
        "survives" => Computed::Survives,
        "stored" => Computed::Stored,
        "sha256" => Computed::Sha256,
        "blake3" => Computed::Blake3,
        "residency" => Computed::Residency,
        _ => return None,
    };
    Some(Name::Computed(computed))
}

/// What one file or directory says itself. Zero in a field means "not set here"; the fields are the bytes on media.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Own {
    /// Number of copies, 0 when not set.
    pub copies: u8,
    /// Data units of `parity`, 0 when the pool chooses.
    pub parity_data: u8,
    /// Parity units of `parity`, 0 when not set.
    pub parity: u8,
    /// Code of the class, 0 when not set.
    pub class: u8,
    /// Code of the compression, 0 when not set.
    pub compression: u8,
    /// Place on the scale of redundancy and 1, 0 when not set.
    pub redundancy: u8,
    /// Code of the encryption, 0 when not set.
    pub encryption: u16,
    /// Tertiary volumes as a set, `TIERS_NONE` for none, 0 when not set.
    pub tiers: u16,
    /// What is switched on or off.
    pub switches: Switches,
    /// Code of the size of records, 0 when not set.
    pub record: u8,
    /// Code of the checksum, 0 when not set.
    pub checksum: u8,
    /// Place where data lies rather than elsewhere: 1 anywhere, 0 when not set.
    pub on: u8,
    /// Place where data lies and nowhere else, the same.
    pub only: u8,
    /// What nodes are told, the same.
    pub node: u8,
    /// Code of when changes are durable, 0 when not set.
    pub sync: u8,
    /// Users' plugins: 1 none, 1 and the number of a stack, 0 when not set.
    pub plugins: u16,
    /// Versions.
    pub versions: Option<Versions>,
    /// What stays on devices. Of rules and classes; of an inode it is a key of the pool each, and not said here.
    pub residency: ResidencySettings,
}

/// Says that files go to no medium.
pub const TIERS_NONE: u16 = 1 << 15;
/// Says that they go to the one that is usual in the pool: what a class may say, in decisions of rules.
pub const TIERS_USUAL: u16 = TIERS_NONE | 1;

/// What says that data may lie anywhere, whatever is said above.
pub const ANYWHERE_WORD: &str = "any";
/// The same in an [`Own`].
pub(crate) const ANYWHERE: u8 = 1;

/// Units a scheme may have in all.
const UNITS_MAX: u8 = 32;
/// The end of the scale of redundancy.
pub const REDUNDANCY_MAX: u8 = 10;

impl Own {
    /// Whether nothing is set here.
    #[inline]
    pub fn is_empty(&self) -> bool {
        *self == Own::default()
    }

    /// Sets `setting` to `value`; an empty value unsets it.
    pub fn set(&mut self, setting: Setting, value: &[u8]) -> Result<(), PolicyError> {
        if value.is_empty() {
            self.unset(setting);
            return Ok(());
        }
        let text = std::str::from_utf8(value).ok();
        let refused = || bad(setting, value);
        match setting {
            Setting::Class => self.class = text.and_then(Class::from_text).ok_or_else(refused)?.code(),
            Setting::Copies => {
                let copies = text.and_then(number).filter(|copies| (1..=UNITS_MAX).contains(copies));
                self.copies = copies.ok_or_else(refused)?;
            }
            Setting::Parity => {
                (self.parity_data, self.parity) = text.and_then(parity_units).ok_or_else(refused)?;
            }
            Setting::Redundancy => {
                let place = text.and_then(number).filter(|place| *place <= REDUNDANCY_MAX);
                self.redundancy = place.ok_or_else(refused)? + 1;
            }
            Setting::Compress => {
                self.compression = text.and_then(Compression::from_text).ok_or_else(refused)?.code();
            }
            Setting::Encrypt => {
                self.encryption = text.and_then(Encryption::from_text).ok_or_else(refused)?.code();
            }
            Setting::Tier => self.tiers = text.and_then(tier_set).ok_or_else(refused)?,
            Setting::Record => self.record = text.and_then(RecordSize::from_text).ok_or_else(refused)?.code(),
            Setting::Checksum => self.checksum = text.and_then(Checksum::from_text).ok_or_else(refused)?.code(),
            Setting::On => self.on = text.and_then(place_number).ok_or_else(refused)?,
            Setting::Only => self.only = text.and_then(place_number).ok_or_else(refused)?,
            Setting::Node => self.node = text.and_then(place_number).ok_or_else(refused)?,
            Setting::Sync => self.sync = text.and_then(Sync::from_text).ok_or_else(refused)?.code(),
            Setting::Provenance | Setting::Audit | Setting::Dedup | Setting::Backup => {
                let is_on = text.and_then(Switches::from_word).ok_or_else(refused)?;
                setting.switch().into_iter().for_each(|switch| self.switches.set(switch, Some(is_on)));
            }
        }
        assert!(self.get(setting).is_some(), "what was set of {setting:?} can be read");
        Ok(())
    }

    /// Makes `setting` inherit again.
    pub fn unset(&mut self, setting: Setting) {
        match setting {
            Setting::Class => self.class = 0,
            Setting::Copies => self.copies = 0,
            Setting::Parity => (self.parity_data, self.parity) = (0, 0),
            Setting::Redundancy => self.redundancy = 0,
            Setting::Compress => self.compression = 0,
            Setting::Encrypt => self.encryption = 0,
            Setting::Tier => self.tiers = 0,
            Setting::Record => self.record = 0,
            Setting::Checksum => self.checksum = 0,
            Setting::On => self.on = 0,
            Setting::Only => self.only = 0,
            Setting::Node => self.node = 0,
            Setting::Sync => self.sync = 0,
            Setting::Provenance | Setting::Audit | Setting::Dedup | Setting::Backup => {
                setting.switch().into_iter().for_each(|switch| self.switches.set(switch, None));
            }
        }
        assert!(self.get(setting).is_none(), "nothing is left of {setting:?}");
    }

    /// The value of `setting` as text, if it is set here.
    pub fn get(&self, setting: Setting) -> Option<String> {
        match setting {
            Setting::Class => Class::from_code(self.class).map(Class::text),
            Setting::Copies => (self.copies > 0).then(|| self.copies.to_string()),
            Setting::Parity if !self.has_parity() => None,
            Setting::Parity if self.parity_data == 0 => Some(self.parity.to_string()),
            Setting::Parity => Some(format!("{}+{}", self.parity_data, self.parity)),
            Setting::Redundancy => self.redundancy.checked_sub(1).map(|place| place.to_string()),
            Setting::Compress => Compression::from_code(self.compression).map(Compression::text),
            Setting::Encrypt => Encryption::from_code(self.encryption).map(Encryption::text),
            Setting::Tier => (self.tiers != 0).then(|| tier_text(self.tiers)),
            Setting::Record => RecordSize::from_code(self.record).map(RecordSize::text),
            Setting::Checksum => self.checksum().map(|checksum| checksum.text().to_owned()),
            Setting::On => place_text(self.on),
            Setting::Only => place_text(self.only),
            Setting::Node => place_text(self.node),
            Setting::Sync => self.sync().map(|sync| sync.text().to_owned()),
            Setting::Provenance | Setting::Audit | Setting::Dedup | Setting::Backup => {
                let is_on = setting.switch().and_then(|switch| self.switches.get(switch))?;
                Some(Switches::word(is_on).to_owned())
            }
        }
    }

    /// Parity units are set, or striping without any.
    fn has_parity(&self) -> bool {
        (self.parity_data, self.parity) != (0, 0)
    }

    /// The redundancy asked for here by number; the most careful where several are set.
    pub fn scheme_wish(&self) -> Option<SchemeWish> {
        let copies = (self.copies > 0).then_some(SchemeWish::Copies(self.copies));
        let parity = self.has_parity().then_some(SchemeWish::Parity { data: self.parity_data, parity: self.parity });
        let scale = self.redundancy.checked_sub(1).map(SchemeWish::Scale);
        // Of those that survive as much, the first named here.
        [parity, copies, scale].into_iter().flatten().fold(None, |best: Option<SchemeWish>, wish| match best {
            Some(best) if best.survives() >= wish.survives() => Some(best),
            _ => Some(wish),
        })
    }

    /// The class named here.
    pub fn class(&self) -> Option<Class> {
        Class::from_code(self.class)
    }

    /// What is said here but for the class.
    pub fn without_class(&self) -> Own {
        Own { class: Own::default().class, ..*self }
    }

    /// The media asked for here.
    pub fn tier_wish(&self) -> Option<TierWish> {
        match self.tiers {
            0 => None,
            TIERS_NONE => Some(TierWish::Nowhere),
            TIERS_USUAL => Some(TierWish::Usual),
            set => Some(TierWish::Volumes(set & !TIERS_NONE)),
        }
    }

    /// As [`Own::tiers`]; 0 where nobody said.
    pub(crate) fn code_of_media(wish: TierWish) -> u16 {
        match wish {
            TierWish::Unsaid => 0,
            TierWish::Nowhere => TIERS_NONE,
            TierWish::Usual => TIERS_USUAL,
            TierWish::Volumes(set) => set,
        }
    }

    /// Asks for this redundancy and no other.
    pub(crate) fn set_scheme(&mut self, wish: SchemeWish) {
        (self.copies, self.parity_data, self.parity, self.redundancy) = match wish {
            SchemeWish::Copies(copies) => (copies, 0, 0, 0),
            SchemeWish::Parity { data, parity } => (0, data, parity, 0),
            SchemeWish::Scale(place) => (0, 0, 0, place + 1),
        };
        assert_eq!(self.scheme_wish(), Some(wish), "what was set is asked for");
    }

    /// The compression asked for here.
    pub fn compression(&self) -> Option<Compression> {
        Compression::from_code(self.compression)
    }

    /// The size of records asked for here.
    pub fn record(&self) -> Option<RecordSize> {
        RecordSize::from_code(self.record)
    }

    /// The checksum asked for here.
    pub fn checksum(&self) -> Option<Checksum> {
        Checksum::from_code(self.checksum)
    }

    /// The place asked for here rather than others: 0 is anywhere.
    pub fn on(&self) -> Option<u8> {
        place(self.on)
    }

    /// The place asked for here and no other: 0 is anywhere.
    pub fn only(&self) -> Option<u8> {
        place(self.only)
    }

    /// What nodes are told by this: 0 is nothing.
    pub fn node(&self) -> Option<u8> {
        place(self.node)
    }

    /// When changes are durable, as it is asked for here.
    pub fn sync(&self) -> Option<Sync> {
        Sync::from_code(self.sync)
    }

    /// The encryption asked for here.
    pub fn encryption(&self) -> Option<Encryption> {
        Encryption::from_code(self.encryption)
    }
}

fn place(code: u8) -> Option<u8> {
    (code != 0).then_some(if code == ANYWHERE { 0 } else { code })
}

fn bad(setting: Setting, value: &[u8]) -> PolicyError {
    let (key, expected) = (setting.word(), setting.expected());
    PolicyError::BadValue { key, value: String::from_utf8_lossy(value).into_owned(), expected }
}

/// Volumes are numbers here; who knows the pool's volumes turns names into `#SET` and back.
fn tier_set(text: &str) -> Option<u16> {
    if text == "none" {
        return Some(TIERS_NONE);
    }
    text.strip_prefix('#')?.parse().ok().filter(|set| (1..TIERS_NONE).contains(set))
}

fn tier_text(set: u16) -> String {
    assert_ne!(set, 0, "no volumes is not the same as none, which has a bit");
    match set {
        TIERS_NONE => "none".to_owned(),
        TIERS_USUAL => "usual".to_owned(),
        set => format!("#{}", set & !TIERS_NONE),
    }
}

/// Places are numbers here; who knows the pool's places turns words into `#NUMBER` and back.
fn place_number(text: &str) -> Option<u8> {
    if text == ANYWHERE_WORD {
        return Some(ANYWHERE);
    }
    text.strip_prefix('#').and_then(number).filter(|place| *place > ANYWHERE)
}

pub(crate) fn place_text(place: u8) -> Option<String> {
    match place {
        0 => None,
        ANYWHERE => Some(ANYWHERE_WORD.to_owned()),
        number => Some(format!("#{number}")),
    }
}

fn parity_units(text: &str) -> Option<(u8, u8)> {
    let (data, parity) = match text.split_once('+') {
        Some((data, parity)) => (number(data).filter(|data| *data >= 1)?, number(parity)?),
        None => (0, number(text)?),
    };
    let total = data.max(1).checked_add(parity)?;
    // Striping without parity is asked for in full; a bare 0 says nothing.
    ((parity >= 1 || data >= 2) && total <= UNITS_MAX).then_some((data, parity))
}

#[cfg(test)]
mod tests;
