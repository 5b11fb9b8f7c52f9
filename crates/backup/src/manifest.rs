//! Lines of manifests: what a file is, as text that people and programs can read, each list closed by a checksum.
//!
//! Fields are separated by tabs: BLAKE3, size, mode, owner, group, modification time, what tells that the file changed, extended
//! attributes, path. In paths a backslash, a tab and a line end are escaped. Attributes are `NAME=VALUE`, both in hexadecimal, with
//! commas between them; `-` where there are none. The mode tells files, symbolic links and directories apart. What is read is hostile
//! input; `fuzz_manifest` is the entry point for fuzzers. Line by line: `docs/format/backup.md`.

use std::collections::BTreeMap;

/// What tells whether a file is still what was copied: number, and change time. All zeros: nobody knows, look at its content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stamp {
    pub inode: u64,
    pub changed: (i64, u32),
}

/// What is kept of a file beside its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Facts {
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub modified: (i64, u32),
    pub stamp: Stamp,
}

/// What the mode says that something is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    File,
    /// Its target is its content.
    Link,
    /// Only in manifests: nothing of it lies in `current` but what is in it.
    Directory,
}

impl Facts {
    pub fn kind(&self) -> Kind {
        match self.mode & 0o170_000 {
            0o120_000 => Kind::Link,
            0o040_000 => Kind::Directory,
            _ => Kind::File,
        }
    }
}

/// Extended attributes: names and values.
pub type ExtendedAttributes = Vec<(Vec<u8>, Vec<u8>)>;

/// A file in a manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// BLAKE3 of its content.
    pub hash: [u8; 32],
    pub size: u64,
    pub facts: Facts,
    pub attributes: ExtendedAttributes,
}

impl Entry {
    pub fn kind(&self) -> Kind {
        self.facts.kind()
    }
}

/// Files by path.
pub(crate) type Entries = BTreeMap<Vec<u8>, Entry>;

const HEAD: &[u8] = b"stere backup manifest 2";

fn escape(path: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(path.len());
    for byte in path {
        match byte {
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\t' => out.extend_from_slice(b"\\t"),
            byte => out.push(*byte),
        }
    }
    out
}

fn unescape(text: &[u8]) -> Option<Vec<u8>> {
    let (mut out, mut bytes) = (Vec::with_capacity(text.len()), text.iter());
    while let Some(byte) = bytes.next() {
        out.push(match byte {
            b'\\' => match bytes.next()? {
                b'\\' => b'\\',
                b'n' => b'\n',
                b't' => b'\t',
                _ => return None,
            },
            byte => *byte,
        });
    }
    // It must stay below the directory that it is joined to.
    let is_name = |name: &[u8]| !matches!(name, b"" | b"." | b"..") && !name.contains(&0);
    out.split(|byte| *byte == b'/').all(is_name).then_some(out)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn bytes_from_hex(text: &str) -> Option<Vec<u8>> {
    if text.len() % 2 != 0 || !text.is_ascii() {
        return None;
    }
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).ok()).collect()
}

fn from_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    bytes_from_hex(text)?.try_into().ok()
}

fn time((seconds, nanoseconds): (i64, u32)) -> String {
    format!("{seconds}.{nanoseconds:09}")
}

fn from_time(text: &str) -> Option<(i64, u32)> {
    let (seconds, nanoseconds) = text.split_once('.')?;
    Some((seconds.parse().ok()?, nanoseconds.parse().ok()?))
}

fn attributes_text(attributes: &ExtendedAttributes) -> String {
    let one = |(name, value): &(Vec<u8>, Vec<u8>)| format!("{}={}", hex(name), hex(value));
    match attributes.is_empty() {
        true => "-".to_owned(),
        false => attributes.iter().map(one).collect::<Vec<_>>().join(","),
    }
}

fn from_attributes_text(text: &str) -> Option<ExtendedAttributes> {
    if text == "-" {
        return Some(Vec::new());
    }
    let one = |text: &str| {
        let (name, value) = text.split_once('=')?;
        Some((bytes_from_hex(name)?, bytes_from_hex(value)?))
    };
    text.split(',').map(one).collect()
}

/// A file as a line, without its end.
pub(crate) fn line(path: &[u8], entry: &Entry) -> Vec<u8> {
    let Facts { mode, uid, gid, modified, stamp } = &entry.facts;
    let (modified, stamp) = (time(*modified), format!("{}@{}", stamp.inode, time(stamp.changed)));
    let attributes = attributes_text(&entry.attributes);
    let (hash, size) = (hex(&entry.hash), entry.size);
    let fields = format!("{hash}\t{size}\t{mode:o}\t{uid}\t{gid}\t{modified}\t{stamp}\t{attributes}\t");
    [fields.as_bytes(), &escape(path)].concat()
}

/// The file of a line.
pub(crate) fn parse(line: &[u8]) -> Option<(Vec<u8>, Entry)> {
    let fields: Vec<&[u8]> = line.splitn(9, |byte| *byte == b'\t').collect();
    let [hash, size, mode, uid, gid, modified, stamp, attributes, path] = fields.try_into().ok()?;
    let text = |bytes| std::str::from_utf8(bytes).ok();
    let (inode, changed) = text(stamp)?.split_once('@')?;
    let stamp = Stamp { inode: inode.parse().ok()?, changed: from_time(changed)? };
    let facts = Facts {
        mode: u32::from_str_radix(text(mode)?, 8).ok()?,
        uid: text(uid)?.parse().ok()?,
        gid: text(gid)?.parse().ok()?,
        modified: from_time(text(modified)?)?,
        stamp,
    };
    let attributes = from_attributes_text(text(attributes)?)?;
    let entry = Entry { hash: from_hex(text(hash)?)?, size: text(size)?.parse().ok()?, facts, attributes };
    Some((unescape(path)?, entry))
}

/// A whole manifest.
pub(crate) fn encode(entries: &Entries) -> Vec<u8> {
    let mut out = [HEAD, b"\n"].concat();
    for (path, entry) in entries {
        out.extend_from_slice(&line(path, entry));
        out.push(b'\n');
    }
    let end = format!("end {} {}\n", entries.len(), blake3::hash(&out).to_hex());
    out.extend_from_slice(end.as_bytes());
    out
}

/// The same back; or what is wrong with it.
pub(crate) fn decode(bytes: &[u8]) -> Result<Entries, String> {
    let body = bytes.strip_suffix(b"\n").ok_or("it ends within a line")?;
    let start = body.iter().rposition(|byte| *byte == b'\n').ok_or("it has no end")? + 1;
    let (list, end) = (&bytes[..start], String::from_utf8_lossy(&body[start..]).into_owned());
    let mut lines = list.split(|byte| *byte == b'\n');
    if lines.next() != Some(HEAD) {
        return Err("it does not begin as a manifest of this version does".into());
    }
    let mut entries = Entries::new();
    for (number, text) in lines.filter(|line| !line.is_empty()).enumerate() {
        let (path, entry) = parse(text).ok_or_else(|| format!("line {} is not understood", number + 2))?;
        entries.insert(path, entry);
    }
    if end != format!("end {} {}", entries.len(), blake3::hash(list).to_hex()) {
        return Err("its checksum is wrong".into());
    }
    Ok(entries)
}

/// What a run did, or is about to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Change {
    /// A copy takes its place: the number it has among those on their way.
    Placed(u64, Vec<u8>, Entry),
    /// The content in place is right; what is known beside it changed.
    Noted(Vec<u8>, Entry),
    /// A file is not to be there any more.
    Taken(Vec<u8>),
    /// What is in place is not what the manifest says.
    Rotten(Vec<u8>),
}

impl Change {
    pub fn path(&self) -> &[u8] {
        match self {
            Change::Placed(_, path, _) | Change::Noted(path, _) | Change::Taken(path) | Change::Rotten(path) => path,
        }
    }

    fn text(&self) -> Vec<u8> {
        match self {
            Change::Placed(number, path, entry) => [format!("+\t{number}\t").as_bytes(), &line(path, entry)].concat(),
            Change::Noted(path, entry) => [b"=\t", &line(path, entry)[..]].concat(),
            Change::Taken(path) => [b"-\t", &escape(path)[..]].concat(),
            Change::Rotten(path) => [b"!\t", &escape(path)[..]].concat(),
        }
    }

    fn from_text(text: &[u8]) -> Option<Change> {
        let rest = text.get(2..).filter(|_| text[1] == b'\t')?;
        Some(match text[0] {
            b'+' => {
                let tab = rest.iter().position(|byte| *byte == b'\t')?;
                let number = std::str::from_utf8(&rest[..tab]).ok()?.parse().ok()?;
                let (path, entry) = parse(&rest[tab + 1..])?;
                Change::Placed(number, path, entry)
            }
            b'=' => parse(rest).map(|(path, entry)| Change::Noted(path, entry))?,
            b'-' => Change::Taken(unescape(rest)?),
            b'!' => Change::Rotten(unescape(rest)?),
            _ => return None,
        })
    }
}

/// A line that tells by itself whether it is whole.
fn sealed(text: &[u8]) -> Vec<u8> {
    let hash = blake3::hash(text).to_hex();
    [&hash.as_bytes()[..16], b"\t", text, b"\n"].concat()
}

/// The beginning of a list of changes: of which run, and whether what it replaces is kept.
pub(crate) fn changes_head(run: &str, keeps: bool) -> Vec<u8> {
    sealed(format!("run\t{run}\t{}", u8::from(keeps)).as_bytes())
}

pub(crate) fn encode_changes(changes: &[Change]) -> Vec<u8> {
    changes.iter().flat_map(|change| sealed(&change.text())).collect()
}

/// The changes of a run as far as they are whole: a crash may have cut the last. None where not even the beginning is.
pub(crate) fn decode_changes(bytes: &[u8]) -> Option<(String, bool, Vec<Change>)> {
    let whole = |line: &[u8]| {
        let (hash, text) = (line.get(..16)?, line.get(17..)?);
        (&blake3::hash(text).to_hex().as_bytes()[..16] == hash).then(|| text.to_vec())
    };
    let mut lines = bytes.split(|byte| *byte == b'\n').map_while(whole);
    let head = String::from_utf8(lines.next()?).ok()?;
    let (run, keeps) = head.strip_prefix("run\t")?.split_once('\t')?;
    Some((run.to_owned(), keeps == "1", lines.map_while(|text| Change::from_text(&text)).collect()))
}

/// Any bytes as a manifest, as lines of one and as lines of changes: what is understood comes back as it was. For fuzzers.
pub fn fuzz_manifest(bytes: &[u8]) {
    if let Ok(entries) = decode(bytes) {
        assert_eq!(decode(&encode(&entries)), Ok(entries));
    }
    drop(decode_changes(bytes));
    for text in bytes.split(|byte| *byte == b'\n') {
        if let Some((path, entry)) = parse(text) {
            assert_eq!(parse(&line(&path, &entry)), Some((path, entry)));
        }
        if let Some(change) = Change::from_text(text) {
            assert_eq!(Change::from_text(&change.text()), Some(change));
        }
    }
}
