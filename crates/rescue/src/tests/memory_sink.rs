//! A sink in memory, strict about what a directory tree allows.

use std::collections::BTreeMap;

use stere_format::FileKind;

use crate::sink::{Attributes, Sink, SinkError, Told, Verdict};

#[derive(Default, Clone)]
pub struct Made {
    pub kind: Option<FileKind>,
    pub content: Vec<u8>,
    pub attributes: Option<Attributes>,
    pub target: Vec<u8>,
    pub rdev: u32,
    pub linked_to: Option<Vec<u8>>,
}

#[derive(Default)]
pub struct MemorySink {
    made: BTreeMap<Vec<u8>, Made>,
    current: Vec<Vec<u8>>,
    open: Option<Vec<u8>>,
    verdicts: BTreeMap<Vec<u8>, Verdict>,
}

impl MemorySink {
    fn path(&self, name: &[u8]) -> Vec<u8> {
        let mut path = self.current.concat();
        path.push(b'/');
        path.extend_from_slice(name);
        path
    }

    fn make(&mut self, name: &[u8], made: Made) -> Result<Vec<u8>, SinkError> {
        assert!(!name.is_empty() && name.len() <= 255 && !name.contains(&b'/') && !matches!(name, b"." | b".."));
        assert!(self.open.is_none(), "one file at a time");
        let path = self.path(name);
        if self.made.contains_key(&path) {
            return Err(SinkError::Exists);
        }
        self.made.insert(path.clone(), made);
        Ok(path)
    }

    pub fn get(&self, path: &[u8]) -> Option<&Made> {
        let made = self.made.get(path)?;
        made.linked_to.as_ref().map_or(Some(made), |other| self.made.get(other))
    }

    pub fn content(&self, path: &[u8]) -> Option<Vec<u8>> {
        self.get(path).map(|made| made.content.clone())
    }

    pub fn contents(&self) -> impl Iterator<Item = Vec<u8>> + '_ {
        self.made.values().map(|made| made.content.clone())
    }

    pub fn kind(&self, path: &[u8]) -> Option<FileKind> {
        self.get(path)?.kind
    }

    pub fn paths(&self) -> impl Iterator<Item = &[u8]> {
        self.made.keys().map(Vec::as_slice)
    }

    pub fn verdict(&self, path: &[u8]) -> Option<Verdict> {
        let path = self.made.get(path).and_then(|made| made.linked_to.as_deref()).unwrap_or(path);
        self.verdicts.get(path).copied()
    }

    pub fn verdicts(&self) -> impl Iterator<Item = (&[u8], Verdict)> {
        self.verdicts.iter().map(|(path, verdict)| (path.as_slice(), *verdict))
    }
}

impl Sink for MemorySink {
    fn enter(&mut self, name: &[u8]) -> Result<(), SinkError> {
        self.make(name, Made { kind: Some(FileKind::Directory), ..Made::default() })?;
        self.current.push([b"/", name].concat());
        Ok(())
    }

    fn leave(&mut self, attributes: Option<&Attributes>) -> Result<(), SinkError> {
        assert!(self.open.is_none());
        let path = self.current.concat();
        self.made.entry(path).or_default().attributes = attributes.cloned();
        self.current.pop();
        Ok(())
    }

    fn create(&mut self, name: &[u8]) -> Result<(), SinkError> {
        let path = self.make(name, Made { kind: Some(FileKind::File), ..Made::default() })?;
        self.open = Some(path);
        Ok(())
    }

    fn reopen(&mut self, path: &[u8]) -> Result<(), SinkError> {
        assert!(self.open.is_none() && self.made.contains_key(path));
        self.open = Some(path.to_vec());
        Ok(())
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), SinkError> {
        let path = self.open.as_ref().expect("a file is open");
        let content = &mut self.made.get_mut(path).expect("it was made").content;
        if offset > 1 << 32 {
            return Err(SinkError::Failed("too large for memory".into()));
        }
        let end = offset as usize + bytes.len();
        if content.len() < end {
            content.resize(end, 0);
        }
        content[offset as usize..end].copy_from_slice(bytes);
        Ok(())
    }

    fn finish(&mut self, size: Option<u64>, attributes: Option<&Attributes>) -> Result<(), SinkError> {
        let path = self.open.take().expect("a file is open");
        let made = self.made.get_mut(&path).expect("it was made");
        made.attributes = attributes.cloned();
        match size {
            Some(size) if size > 1 << 32 => return Err(SinkError::Failed("too large for memory".into())),
            Some(size) => made.content.resize(size as usize, 0),
            None => {}
        }
        Ok(())
    }

    fn symlink(&mut self, name: &[u8], target: &[u8], attributes: &Attributes) -> Result<(), SinkError> {
        let (kind, target, attributes) = (Some(FileKind::Symlink), target.to_vec(), Some(attributes.clone()));
        self.make(name, Made { kind, target, attributes, ..Made::default() }).map(drop)
    }

    fn special(&mut self, name: &[u8], rdev: u32, attributes: &Attributes) -> Result<(), SinkError> {
        let kind = FileKind::from_mode(attributes.mode);
        self.make(name, Made { kind, rdev, attributes: Some(attributes.clone()), ..Made::default() }).map(drop)
    }

    fn link(&mut self, existing: &[u8], name: &[u8]) -> Result<(), SinkError> {
        assert!(self.made.contains_key(existing), "links are made to what was made");
        self.make(name, Made { linked_to: Some(existing.to_vec()), ..Made::default() }).map(drop)
    }

    fn told(&mut self, told: &Told<'_>) {
        let path = if told.path.is_empty() { b"/".to_vec() } else { told.path.to_vec() };
        assert!(path == b"/" || self.made.contains_key(&path), "only what was made is told of");
        let before = self.verdicts.insert(path, told.verdict);
        assert!(before.is_none(), "everything is told of once");
    }
}
