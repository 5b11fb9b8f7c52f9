//! The inode: everything about a file but its names, attributes and content.

use crate::error::DecodeError;
use crate::wire::{Reader, Writer};
use crate::{FileKind, Site};

/// A moment, as POSIX counts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Timestamp {
    pub seconds: i64,
    pub nanoseconds: u32,
}

impl Timestamp {
    fn write(self, out: &mut Vec<u8>) {
        out.put_u64(self.seconds as u64);
        out.put_u32(self.nanoseconds);
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let (seconds, nanoseconds) = (reader.u64()? as i64, reader.u32()?);
        reader.check(nanoseconds < 1_000_000_000, "nanoseconds", u64::from(nanoseconds))?;
        Ok(Self { seconds, nanoseconds })
    }
}

/// What the owner decided for this inode alone; zero means inherited. Meaning is the policy layer's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct InodePolicy {
    pub copies: u8,
    pub parity_k: u8,
    pub parity_m: u8,
    pub class: u8,
    /// How content is compressed.
    pub compression: u8,
    /// A place on the scale of redundancy.
    pub redundancy: u8,
    /// Tertiary volumes, a set; the highest bit alone: none.
    pub tiers: u16,
    /// Whether and with which key content and names are encrypted.
    pub encryption: u16,
    /// Which stack of users' plugins has content first: 1 none, 1 + its number.
    pub plugins: u16,
    /// What rules decided, not the owner: the same fields, and which of them count.
    pub ruled: RuledPolicy,
    /// What the administrator locked for this inode and everything below it.
    pub locked: LockedPolicy,
    /// Until when a file is not to be changed, or what a directory says of that.
    pub retain: Option<RetainPolicy>,
    /// Which versions of files are kept; of a version, when it goes.
    pub versions: Option<VersionsPolicy>,
    /// What is switched on or off.
    pub switches: SwitchesPolicy,
    /// What rules decided beside `ruled`.
    pub ruled_more: RuledMore,
    /// How content is known to be right.
    pub checksum: ChecksumPolicy,
    /// What the administrator locked beside `locked`.
    pub locked_more: RuledMore,
    /// On which devices content lies.
    pub places: PlacesPolicy,
    /// Tertiary volumes that rules decided, as in `tiers`; whether that counts stands in [`PlacesPolicy::node_decided`].
    pub ruled_tiers: u16,
    /// When changes are durable.
    pub sync: SyncPolicy,
}

/// When changes are durable: 0 nothing is said, 1 relaxed, 2 asked, 3 always. Which of what rules decided counts stands in
/// [`PlacesPolicy::node_decided`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct SyncPolicy {
    pub own: u8,
    /// What rules decided.
    pub ruled: u8,
    /// What the administrator locked.
    pub locked: u8,
}

/// On which devices content lies; zero means that nothing is said. Which of what rules decided counts stands in
/// [`ChecksumPolicy::decided`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct PlacesPolicy {
    pub own: Site,
    /// What rules decided.
    pub ruled: Site,
    /// What the administrator locked.
    pub locked: Site,
    /// What counts of what rules decided: of nodes (1), of tertiary volumes (2), of when changes are durable (4); four bits higher,
    /// which goes before what is said.
    pub node_decided: u8,
}

impl PlacesPolicy {
    fn sites(&self) -> [Site; 3] {
        [self.own, self.ruled, self.locked]
    }

    /// Whether the tenth part is needed.
    fn has_places(&self) -> bool {
        self.sites().iter().any(|site| !site.is_anywhere())
    }

    /// Whether the eleventh part is needed.
    fn has_node(&self) -> bool {
        self.node_decided != 0 || self.sites().iter().any(|site| site.node != 0)
    }
}

/// How content is known to be right; zero means that nothing is said. Meaning is the policy layer's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct ChecksumPolicy {
    pub own: u8,
    /// What rules decided.
    pub ruled: u8,
    /// Whether that counts, and goes before what is said, as in [`SwitchesPolicy`].
    pub decided: u8,
    /// What the administrator locked.
    pub locked: u8,
}

/// What rules decided, or the administrator locked, of plugins and versions; which of what rules decided counts stands in
/// [`RecordPolicy::decided`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct RuledMore {
    /// As [`InodePolicy::plugins`].
    pub plugins: u16,
    pub versions: Option<VersionsPolicy>,
}

/// What is switched on or off: two bits for each switch, 1 off, 2 on. Meaning is the policy layer's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct SwitchesPolicy {
    pub own: u8,
    /// What rules decided.
    pub ruled: u8,
    /// Which of them were decided, a set of bits; four bits higher, which go before what is said.
    pub decided: u8,
    /// What the administrator locked.
    pub locked: u8,
    /// Sizes of records, which have their place here.
    pub record: RecordPolicy,
}

/// How large records are; zero means that nothing is said. Meaning is the policy layer's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct RecordPolicy {
    pub own: u8,
    /// What rules decided.
    pub ruled: u8,
    /// Whether that counts, and goes before what is said, as in [`SwitchesPolicy`].
    pub decided: u8,
    /// What the administrator locked.
    pub locked: u8,
}

/// Versions. Meaning is the policy layer's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct VersionsPolicy {
    /// 1 none are kept, 2 so many and so long, 3 this is one.
    pub kind: u8,
    /// How many; 0: any number.
    pub count: u32,
    /// How long; 0: for ever. Of a version: its place in the order in which they go.
    pub seconds: u64,
}

impl VersionsPolicy {
    const KINDS: std::ops::RangeInclusive<u8> = 1..=3;
    /// Of those that are only a wish.
    const WISHES: std::ops::RangeInclusive<u8> = 1..=2;
}

impl RuledMore {
    /// In bytes.
    pub const SIZE: usize = 16;

    pub(crate) fn encode_to(&self, out: &mut Vec<u8>) {
        let VersionsPolicy { kind, count, seconds } =
            self.versions.unwrap_or(VersionsPolicy { kind: 0, count: 0, seconds: 0 });
        out.extend_from_slice(&[kind, 0]);
        out.put_u16(self.plugins);
        out.put_u32(count);
        out.put_u64(seconds);
    }

    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let value = Self::read_if_any(reader)?;
        reader.check(value != Self::default(), "plugins and versions", 0)?;
        Ok(value)
    }

    fn read_if_any(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let [kind, reserved] = reader.array()?;
        let plugins = reader.u16()?;
        let (count, seconds) = (reader.u32()?, reader.u64()?);
        let is_known = VersionsPolicy::WISHES.contains(&kind) || (kind == 0 && (count, seconds) == (0, 0));
        reader.check(is_known && reserved == 0, "kind of versions", u64::from(kind))?;
        let versions = (kind != 0).then_some(VersionsPolicy { kind, count, seconds });
        Ok(Self { plugins, versions })
    }
}

/// Retention. Meaning is the policy layer's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RetainPolicy {
    /// 1 nothing, 2 until a moment, 3 for a length of time.
    pub kind: u8,
    /// How long a file must have been left alone before that begins.
    pub after_seconds: u32,
    /// The moment (since 1970) or the length of time.
    pub seconds: u64,
}

impl RetainPolicy {
    const KINDS: std::ops::RangeInclusive<u8> = 1..=3;
}

/// What the administrator locked at an inode; zero means not locked here. Fields as in [`InodePolicy`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct LockedPolicy {
    pub copies: u8,
    pub parity_k: u8,
    pub parity_m: u8,
    pub class: u8,
    pub compression: u8,
    pub redundancy: u8,
    pub encryption: u16,
    pub tiers: u16,
}

/// What rules decided for an inode. Meaning is the policy layer's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct RuledPolicy {
    pub copies: u8,
    pub parity_k: u8,
    pub parity_m: u8,
    pub class: u8,
    pub compression: u8,
    pub redundancy: u8,
    /// Which were decided, a set of bits.
    pub decided: u8,
    pub encryption: u8,
}

impl InodePolicy {
    /// Whether the second part is needed.
    fn has_more(&self) -> bool {
        let numbers = [self.encryption, self.plugins, self.tiers];
        self.compression != 0 || self.redundancy != 0 || numbers != [0; 3]
    }

    fn encode_to(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&[self.copies, self.parity_k, self.parity_m, self.class]);
        if self.has_more() {
            out.extend_from_slice(&[self.compression, self.redundancy]);
            out.put_u16(self.encryption);
            out.put_u16(self.plugins);
            out.put_u16(self.tiers);
        }
        if self.is_ruled() {
            let ruled = &self.ruled;
            out.extend_from_slice(&[ruled.copies, ruled.parity_k, ruled.parity_m, ruled.class]);
            out.extend_from_slice(&[ruled.compression, ruled.redundancy, ruled.decided, ruled.encryption]);
        }
        if self.is_locked() {
            let locked = &self.locked;
            out.extend_from_slice(&[locked.copies, locked.parity_k, locked.parity_m, locked.class]);
            out.extend_from_slice(&[locked.compression, locked.redundancy]);
            out.put_u16(locked.encryption);
            out.put_u16(locked.tiers);
        }
        if let Some(retain) = &self.retain {
            out.extend_from_slice(&[retain.kind, 0, 0, 0]);
            out.put_u32(retain.after_seconds);
            out.put_u64(retain.seconds);
        }
        if let Some(versions) = &self.versions {
            out.extend_from_slice(&[versions.kind, 0, 0, 0]);
            out.put_u32(versions.count);
            out.put_u64(versions.seconds);
        }
        if self.has_switches() {
            let SwitchesPolicy { own, ruled, decided, locked, record } = self.switches;
            out.extend_from_slice(&[own, ruled, decided, locked]);
            let more = if self.ruled_more == RuledMore::default() { 0 } else { HAS_RULED_MORE };
            let checksum = if self.has_checksum() { HAS_CHECKSUM } else { 0 };
            out.extend_from_slice(&[record.own, record.ruled, record.decided | more | checksum, record.locked]);
            if more != 0 {
                self.ruled_more.encode_to(out);
            }
            if checksum != 0 {
                let ChecksumPolicy { own, ruled, decided, locked } = self.checksum;
                let places = if self.places.has_places() { HAS_PLACES } else { 0 };
                let has_more = self.has_media_and_sync();
                let node = if self.places.has_node() || has_more { HAS_NODE } else { 0 };
                out.extend_from_slice(&[own, ruled, decided | places | node, locked]);
                self.locked_more.encode_to(out);
                if places != 0 {
                    self.places.sites().into_iter().for_each(|site| site.encode_to(out));
                }
                if node != 0 {
                    out.extend(self.places.sites().map(|site| site.node));
                    out.put_u8(self.places.node_decided | if has_more { HAS_MEDIA_AND_SYNC } else { 0 });
                }
                if has_more {
                    out.put_u16(self.ruled_tiers);
                    out.extend_from_slice(&[self.sync.own, self.sync.ruled, self.sync.locked, 0]);
                }
            }
        }
    }

    /// Whether the third part is needed.
    fn is_ruled(&self) -> bool {
        self.ruled != RuledPolicy::default()
    }

    /// Whether the fourth part is needed.
    fn is_locked(&self) -> bool {
        self.locked != LockedPolicy::default()
    }

    /// Whether the seventh part is needed.
    fn has_switches(&self) -> bool {
        self.switches != SwitchesPolicy::default() || self.ruled_more != RuledMore::default() || self.has_checksum()
    }

    /// Whether the ninth part is needed.
    fn has_checksum(&self) -> bool {
        self.checksum != ChecksumPolicy::default()
            || self.locked_more != RuledMore::default()
            || self.places != PlacesPolicy::default()
            || self.has_media_and_sync()
    }

    /// Whether the twelfth part is needed.
    fn has_media_and_sync(&self) -> bool {
        self.ruled_tiers != 0 || self.sync != SyncPolicy::default()
    }

    fn form(&self) -> u8 {
        let parts = [
            (HAS_MORE_POLICY, self.has_more()),
            (HAS_RULED_POLICY, self.is_ruled()),
            (HAS_LOCKS, self.is_locked()),
            (HAS_RETAIN, self.retain.is_some()),
            (HAS_VERSIONS, self.versions.is_some()),
            (HAS_SWITCHES, self.has_switches()),
        ];
        parts.into_iter().filter(|(_, is_there)| *is_there).fold(HAS_POLICY, |form, (bit, _)| form | bit)
    }

    fn read(reader: &mut Reader<'_>, form: u8) -> Result<Self, DecodeError> {
        let [copies, parity_k, parity_m, class] = reader.array()?;
        let mut policy = Self { copies, parity_k, parity_m, class, ..Self::default() };
        if form & HAS_MORE_POLICY != 0 {
            [policy.compression, policy.redundancy] = reader.array()?;
            policy.encryption = reader.u16()?;
            policy.plugins = reader.u16()?;
            policy.tiers = reader.u16()?;
            reader.check(policy.has_more(), "second part of the policy", 0)?;
        }
        if form & HAS_RULED_POLICY != 0 {
            let [copies, parity_k, parity_m, class, compression, redundancy, decided, encryption] = reader.array()?;
            policy.ruled =
                RuledPolicy { copies, parity_k, parity_m, class, compression, redundancy, decided, encryption };
            reader.check(policy.is_ruled(), "third part of the policy", 0)?;
        }
        if form & HAS_LOCKS != 0 {
            let [copies, parity_k, parity_m, class, compression, redundancy] = reader.array()?;
            let (encryption, tiers) = (reader.u16()?, reader.u16()?);
            policy.locked =
                LockedPolicy { copies, parity_k, parity_m, class, compression, redundancy, encryption, tiers };
            reader.check(policy.is_locked(), "fourth part of the policy", 0)?;
        }
        if form & HAS_RETAIN != 0 {
            let [kind, reserved @ ..]: [u8; 4] = reader.array()?;
            let is_known = RetainPolicy::KINDS.contains(&kind) && reserved == [0; 3];
            reader.check(is_known, "kind of retention", u64::from(kind))?;
            policy.retain = Some(RetainPolicy { kind, after_seconds: reader.u32()?, seconds: reader.u64()? });
        }
        if form & HAS_VERSIONS != 0 {
            let [kind, reserved @ ..]: [u8; 4] = reader.array()?;
            let is_known = VersionsPolicy::KINDS.contains(&kind) && reserved == [0; 3];
            reader.check(is_known, "kind of versions", u64::from(kind))?;
            policy.versions = Some(VersionsPolicy { kind, count: reader.u32()?, seconds: reader.u64()? });
        }
        if form & HAS_SWITCHES != 0 {
            let [own, ruled, decided, locked] = reader.array()?;
            policy.switches = SwitchesPolicy { own, ruled, decided, locked, ..SwitchesPolicy::default() };
            let [own, ruled, decided, locked] = reader.array()?;
            policy.switches.record = RecordPolicy { own, ruled, decided: decided & !HAS_MORE_PARTS, locked };
            if decided & HAS_RULED_MORE != 0 {
                policy.ruled_more = RuledMore::read(reader)?;
            }
            if decided & HAS_CHECKSUM != 0 {
                let [own, ruled, decided, locked] = reader.array()?;
                policy.checksum = ChecksumPolicy { own, ruled, decided: decided & !(HAS_PLACES | HAS_NODE), locked };
                policy.locked_more = RuledMore::read_if_any(reader)?;
                if decided & HAS_PLACES != 0 {
                    let (own, ruled, locked) = (Site::read(reader)?, Site::read(reader)?, Site::read(reader)?);
                    policy.places = PlacesPolicy { own, ruled, locked, node_decided: 0 };
                    reader.check(policy.places.has_places(), "tenth part of the policy", 0)?;
                }
                if decided & HAS_NODE != 0 {
                    let PlacesPolicy { own, ruled, locked, node_decided } = &mut policy.places;
                    let decided;
                    [own.node, ruled.node, locked.node, decided] = reader.array()?;
                    *node_decided = decided & !HAS_MEDIA_AND_SYNC;
                    let has_more = decided & HAS_MEDIA_AND_SYNC != 0;
                    reader.check(policy.places.has_node() || has_more, "eleventh part of the policy", 0)?;
                    if has_more {
                        policy.ruled_tiers = reader.u16()?;
                        let [own, ruled, locked, reserved] = reader.array()?;
                        policy.sync = SyncPolicy { own, ruled, locked };
                        let is_known = reserved == 0 && policy.has_media_and_sync();
                        reader.check(is_known, "twelfth part of the policy", u64::from(reserved))?;
                    }
                }
                reader.check(policy.has_checksum(), "ninth part of the policy", 0)?;
            }
            reader.check(policy.has_switches(), "seventh part of the policy", 0)?;
        }
        Ok(policy)
    }
}

/// The value of [`crate::Key::inode`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InodeValue {
    /// Type and permissions, as in `st_mode`.
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub nlink: u32,
    pub rdev: u32,
    pub flags: u32,
    pub generation: u32,
    pub size: u64,
    /// Bytes allocated.
    pub blocks_bytes: u64,
    /// A directory this inode has a name in, for policy.
    pub parent: u64,
    /// Directories: the readdir cookie of the next new name.
    pub next_dirent_sequence: u64,
    pub atime: Timestamp,
    pub mtime: Timestamp,
    pub ctime: Timestamp,
    pub btime: Timestamp,
    pub policy: Option<InodePolicy>,
    /// The volume it counts in; 0 for none.
    pub volume: u32,
    /// What its extents count in accounts of stored bytes; 0 where none are kept.
    pub charged_bytes: u64,
    /// Of symbolic links; empty for others.
    pub symlink_target: Vec<u8>,
}

const HAS_POLICY: u8 = 1;
const HAS_MORE_POLICY: u8 = 2;
const HAS_RULED_POLICY: u8 = 4;
const HAS_LOCKS: u8 = 8;
const HAS_RETAIN: u8 = 16;
/// Needs no policy beside it.
const HAS_VOLUME: u8 = 32;
const HAS_VERSIONS: u8 = 64;
const HAS_SWITCHES: u8 = 128;
/// In the byte of the seventh part that tells what counts of records.
const HAS_RULED_MORE: u8 = 128;
/// In the same byte: the ninth part.
const HAS_CHECKSUM: u8 = 8;
/// In the byte of the ninth part that tells what counts of checksums: the tenth part.
const HAS_PLACES: u8 = 8;
/// In the same byte: the eleventh part.
const HAS_NODE: u8 = 128;
/// In the last byte of the eleventh part: the twelfth.
const HAS_MEDIA_AND_SYNC: u8 = 8;
const HAS_MORE_PARTS: u8 = HAS_RULED_MORE | HAS_CHECKSUM;
/// In the flags: a number follows the volume. No layer sees it.
const HAS_CHARGE: u32 = 1 << 16;
const SIZE_MAX: u64 = i64::MAX as u64;

impl InodeValue {
    pub const VERSION: u8 = 1;
    /// The smallest sequence of a name in a directory; smaller cookies stand for `.` and `..`.
    pub const DIRENT_SEQUENCE_FIRST: u64 = 16;
    /// Without policy and target.
    pub const SIZE_MIN: usize = 112;
    /// An encrypted target has some bytes more than the target.
    pub const SYMLINK_TARGET_BYTES_MAX: usize = 4096 + 32;
    const STRUCTURE: &'static str = "inode";

    pub fn kind(&self) -> Option<FileKind> {
        FileKind::from_mode(self.mode)
    }

    /// One that was just made: one name, nothing in it.
    pub fn new(mode: u32, uid: u32, gid: u32, parent: u64, now: Timestamp) -> Self {
        Self {
            mode,
            uid,
            gid,
            nlink: 1,
            rdev: 0,
            flags: 0,
            generation: 1,
            size: 0,
            blocks_bytes: 0,
            parent,
            next_dirent_sequence: 0,
            atime: now,
            mtime: now,
            ctime: now,
            btime: now,
            policy: None,
            volume: 0,
            charged_bytes: 0,
            symlink_target: Vec::new(),
        }
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(Self::SIZE_MIN + 20 + self.symlink_target.len());
        self.encode_to(&mut out);
        out
    }

    pub fn encode_to(&self, out: &mut Vec<u8>) {
        let target = &self.symlink_target;
        assert!(target.len() <= Self::SYMLINK_TARGET_BYTES_MAX, "a symlink target is at most 4128 bytes");
        let mut form = self.policy.as_ref().map_or(0, InodePolicy::form);
        form |= if self.volume == 0 { 0 } else { HAS_VOLUME };
        out.extend_from_slice(&[Self::VERSION, form]);
        out.put_u16(target.len() as u16);
        let flags = self.flags | if self.charged_bytes == 0 { 0 } else { HAS_CHARGE };
        for field in [self.mode, self.uid, self.gid, self.nlink, self.rdev, flags, self.generation] {
            out.put_u32(field);
        }
        for field in [self.size, self.blocks_bytes, self.parent, self.next_dirent_sequence] {
            out.put_u64(field);
        }
        for time in [self.atime, self.mtime, self.ctime, self.btime] {
            time.write(out);
        }
        if let Some(policy) = self.policy {
            policy.encode_to(out);
        }
        if self.volume != 0 {
            out.put_u32(self.volume);
        }
        if self.charged_bytes != 0 {
            out.put_u64(self.charged_bytes);
        }
        out.extend_from_slice(target);
    }

    /// The size, and whether there is a policy, without decoding the rest; none if this is no inode.
    pub fn peek(bytes: &[u8]) -> Option<(u64, bool)> {
        const SIZE_AT: usize = 32;
        let (version, form) = (bytes.first()?, bytes.get(1)?);
        let size = bytes.get(SIZE_AT..SIZE_AT + 8)?.try_into().map(u64::from_le_bytes).ok()?;
        (*version == Self::VERSION && size <= SIZE_MAX).then_some((size, form & HAS_POLICY != 0))
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(Self::STRUCTURE, bytes);
        reader.version(Self::VERSION)?;
        let form = reader.u8()?;
        let is_known = form & !HAS_VOLUME == 0 || form & HAS_POLICY != 0;
        reader.check(is_known, "form", u64::from(form))?;
        let target_length = usize::from(reader.u16()?);
        reader.check(target_length <= Self::SYMLINK_TARGET_BYTES_MAX, "target length", target_length as u64)?;
        let mode = reader.u32()?;
        reader.check(FileKind::from_mode(mode).is_some(), "mode", u64::from(mode))?;
        let mut value = Self {
            mode,
            uid: reader.u32()?,
            gid: reader.u32()?,
            nlink: reader.u32()?,
            rdev: reader.u32()?,
            flags: reader.u32()?,
            generation: reader.u32()?,
            size: reader.u64()?,
            blocks_bytes: reader.u64()?,
            parent: reader.u64()?,
            next_dirent_sequence: reader.u64()?,
            atime: Timestamp::read(&mut reader)?,
            mtime: Timestamp::read(&mut reader)?,
            ctime: Timestamp::read(&mut reader)?,
            btime: Timestamp::read(&mut reader)?,
            policy: None,
            volume: 0,
            charged_bytes: 0,
            symlink_target: Vec::new(),
        };
        reader.check(value.size <= SIZE_MAX, "size", value.size)?;
        if form & HAS_POLICY != 0 {
            value.policy = Some(InodePolicy::read(&mut reader, form)?);
        }
        if form & HAS_VOLUME != 0 {
            value.volume = reader.u32()?;
            reader.check(value.volume != 0, "volume", 0)?;
        }
        if value.flags & HAS_CHARGE != 0 {
            value.flags &= !HAS_CHARGE;
            value.charged_bytes = reader.u64()?;
            reader.check(value.charged_bytes != 0, "charged bytes", 0)?;
        }
        value.symlink_target = reader.take(target_length)?.to_vec();
        reader.finish()?;
        Ok(value)
    }
}
