//! What a subtree takes on the devices: a walk in steps over every name below an inode, in bounded memory but for the
//! numbers of files with several names, which are counted once.

use std::collections::{BTreeMap, BTreeSet};

use stere_format::{DeviceIndex, FileKind, Scheme};
use stere_namespace::call::Caller;
use stere_namespace::error::Error;
use stere_namespace::inode::Core;
use stere_namespace::names::Form;
use stere_namespace::walk::{Walk, path_of};

/// What files take.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Usage {
    /// Files, directories and everything else, each inode once.
    pub files: u64,
    pub directories: u64,
    pub others: u64,
    /// Sizes of the files, holes and all.
    pub size_bytes: u64,
    /// Allocated blocks of the files.
    pub allocated_bytes: u64,
    /// What is stored of them, before copies and parity: less where it is compressed, nothing for what is not written out yet.
    pub stored_bytes: u64,
    /// Allocated blocks that other files share; they are counted in full here and there.
    pub shared_bytes: u64,
    /// What that takes on all devices, with copies and parity.
    pub raw_bytes: u64,
    /// Of these, what lies on each device.
    pub device_bytes: BTreeMap<DeviceIndex, u64>,
    /// Stored bytes by the way they are stored.
    pub scheme_bytes: BTreeMap<(u8, u8), u64>,
}

/// A walk that adds up what a subtree takes.
pub struct UsageWalk<'a> {
    core: &'a Core,
    walk: Walk,
    counted: BTreeSet<u64>,
    /// So far.
    pub usage: Usage,
}

impl<'a> UsageWalk<'a> {
    /// Begins to add up what an inode, and if it is a directory everything below it, takes.
    pub fn new(core: &'a Core, caller: &Caller<'_>, inode: u64) -> Result<UsageWalk<'a>, Error> {
        let kind = core.files.attributes(caller.io, inode)?.and_then(|value| value.kind()).ok_or(Error::Stale)?;
        let path = path_of(&core.store, &core.names, caller.io, inode)?;
        let path = path.filter(|path| path != b"/").unwrap_or_default();
        let walk = Walk::new(inode, kind, path, Form::Plain);
        Ok(UsageWalk { core, walk, counted: BTreeSet::new(), usage: Usage::default() })
    }
}

impl UsageWalk<'_> {
    /// Looks at so many names; tells whether there are more.
    pub fn step(&mut self, caller: &Caller<'_>, names_max: usize) -> Result<bool, Error> {
        for _ in 0..names_max {
            let Some(met) = self.walk.next(&self.core.store, &self.core.names, caller.io)? else {
                return Ok(false);
            };
            match met.kind {
                FileKind::Directory => self.usage.directories += 1,
                FileKind::File => self.add_file(caller, met.inode)?,
                _ => self.usage.others += 1,
            }
        }
        Ok(true)
    }

    fn add_file(&mut self, caller: &Caller<'_>, inode: u64) -> Result<(), Error> {
        let Some(value) = self.core.files.attributes(caller.io, inode)? else { return Ok(()) };
        if value.nlink > 1 && !self.counted.insert(inode) {
            return Ok(());
        }
        self.usage.files += 1;
        assert!(self.counted.len() as u64 <= self.usage.files, "what has several names is counted once");
        self.usage.size_bytes += value.size;
        self.usage.allocated_bytes += value.blocks_bytes;
        let effective = self.core.effective(caller, inode)?;
        let facts = self.core.files.policies.stored_facts(&caller.context(), inode, &effective)?;
        for fact in facts {
            self.usage.stored_bytes += fact.stored_bytes;
            self.usage.shared_bytes += fact.shared_bytes;
            let Scheme { data, parity } = fact.scheme;
            *self.usage.scheme_bytes.entry((data, parity)).or_default() += fact.stored_bytes;
            assert!(data > 0, "what is stored lies in data units");
            // Every unit of a segment takes its part: a k-th of the content, on data and parity alike.
            let unit_bytes = fact.stored_bytes.div_ceil(u64::from(data));
            for device in fact.devices {
                *self.usage.device_bytes.entry(device).or_default() += unit_bytes;
                self.usage.raw_bytes += unit_bytes;
            }
        }
        let Usage { stored_bytes, raw_bytes, device_bytes, scheme_bytes, .. } = &self.usage;
        assert_eq!(*raw_bytes, device_bytes.values().sum::<u64>(), "what is taken is taken on devices");
        assert_eq!(*stored_bytes, scheme_bytes.values().sum::<u64>(), "what is stored is stored by a scheme");
        Ok(())
    }
}
