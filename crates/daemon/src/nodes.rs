//! The nodes of a pool that another machine owns: what the owner tells as maps is read there, and the rows that it gives are written.
//!
//! One thread opens what this machine knows the places of, and looks now and then whether there is more or something has changed, so that
//! no reader waits for a node that is away. Read next: the crate `direct`, `crates/client/src/mapped.rs` and `direct.rs`.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use stere_client::{Prepared, ReadContent, Wanted, WriteContent};
use stere_device::Access;
use stere_direct::{DirectError, Encoding, Nodes, Opening, Records, Sealing};
use stere_format::{ContentMap, RowGrant, Superblock};
use stere_machine::error::Result;
use stere_machine::registry::{DeviceRecord, Registry};
use stere_nbd::NbdDevice;
use stere_policy::Compression;
use stere_pool::{Holds, identify};

use crate::client_keys::ClientKeys;
use crate::client_plugins::ClientPlugins;
use crate::daemon::{lock, spawn};
use crate::from_afar::is_everywhere;

/// Between two looks for nodes that are not open.
const LOOK: Duration = Duration::from_secs(10);
/// And for one whose server was for one machine alone.
const ALONE_LOOK: Duration = Duration::from_secs(600);
/// A node that says nothing for so long is left behind.
const PATIENCE: Duration = Duration::from_secs(5);
/// So long nothing is read past the owner after something could not be.
const PAUSE: Duration = Duration::from_secs(1);

/// The nodes as far as they are open.
pub struct PoolNodes {
    registry: Registry,
    pool: String,
    pool_id: String,
    nodes: Mutex<Option<Arc<Nodes>>>,
    /// Devices whose servers are for one machine alone, and when that was found.
    alone: Mutex<BTreeMap<String, Instant>>,
    failed: Mutex<Option<Instant>>,
    access: Access,
    codecs: Codecs,
}

/// With what this machine encodes and decodes.
#[derive(Clone)]
pub struct Codecs {
    pub keys: Arc<ClientKeys>,
    pub plugins: Arc<ClientPlugins>,
}

impl PoolNodes {
    /// Opens nodes from now on, until this is dropped.
    pub fn start(
        registry: &Registry,
        pool: &str,
        pool_id: &str,
        is_read_only: bool,
        codecs: Codecs,
    ) -> Result<Arc<PoolNodes>> {
        let all = Arc::new(PoolNodes {
            registry: registry.clone(),
            pool: pool.to_owned(),
            pool_id: pool_id.to_owned(),
            nodes: Mutex::default(),
            alone: Mutex::default(),
            failed: Mutex::default(),
            access: if is_read_only { Access::ReadOnly } else { Access::ReadWrite },
            codecs,
        });
        let of_thread = Arc::downgrade(&all);
        spawn("nodes", move || keep_open(&of_thread))?;
        Ok(all)
    }

    /// Opens what is not open. One that says nothing holds up no other.
    fn open_all(&self) {
        let devices = self.registry.find(&self.pool).ok().flatten().map(|record| record.devices).unwrap_or_default();
        let is_open = |record: &DeviceRecord| lock(&self.nodes).as_ref().is_some_and(|nodes| nodes.has(record.index));
        let is_alone =
            |record: &DeviceRecord| lock(&self.alone).get(&record.id).is_some_and(|found| found.elapsed() < ALONE_LOOK);
        let is_wanted = |record: &DeviceRecord| is_everywhere(&record.path) && !is_open(record) && !is_alone(record);
        let wanted: Vec<DeviceRecord> = devices.into_iter().filter(is_wanted).collect();
        std::thread::scope(|scope| {
            for record in &wanted {
                scope.spawn(|| {
                    if let Err(error) = self.open(record) {
                        tracing::debug!(%error, device = record.name, "this node is not read from here");
                    }
                });
            }
        });
    }

    fn open(&self, record: &DeviceRecord) -> Result<()> {
        let device = NbdDevice::open(&record.path, self.access)?;
        if !device.has_several_connections() {
            // It may show each machine something else, or take no other connection: the owner's.
            lock(&self.alone).insert(record.id.clone(), Instant::now());
            return Ok(());
        }
        let device = Arc::new(device);
        let Holds::Member(identity) = identify(&*device) else { return Ok(()) };
        let Superblock { pool, device: id, device_index, layout, .. } = identity.superblock;
        if pool.to_string() != self.pool_id || id.to_string() != record.id {
            return Ok(());
        }
        let mut open = lock(&self.nodes);
        let nodes = open.get_or_insert_with(|| Arc::new(Nodes::new(layout.chunk_bytes)));
        match nodes.attach(device_index, device, layout, PATIENCE) {
            Ok(()) => tracing::debug!(device = record.name, "this node is read from here"),
            Err(error) => tracing::warn!(%error, device = record.name, "this node is not read from here"),
        }
        Ok(())
    }
}

fn keep_open(nodes: &Weak<PoolNodes>) {
    while let Some(all) = nodes.upgrade() {
        all.open_all();
        drop(all);
        std::thread::sleep(LOOK);
    }
}

impl PoolNodes {
    /// For a mount through the owner.
    pub fn reading(self: &Arc<Self>) -> ReadContent {
        let (asked, keys, reader) = (self.clone(), self.codecs.keys.clone(), self.clone());
        ReadContent {
            is_ready: Box::new(move || asked.is_ready()),
            has_keys: Box::new(move || keys.has_keys()),
            read: Box::new(move |map, inode, offset| reader.read(map, inode, offset)),
        }
    }

    /// For a mount through the owner that is no mount for reading.
    pub fn writing(self: &Arc<Self>) -> Option<WriteContent> {
        let (asked, preparing) = (self.clone(), self.clone());
        (self.access == Access::ReadWrite).then(|| WriteContent {
            is_ready: Box::new(move || asked.is_ready()),
            prepare: Box::new(move |wanted, inode, offset, data| preparing.prepare(wanted, inode, offset, data)),
            now_ms: Box::new(stere_multihost::boot_ms),
        })
    }

    fn prepare(self: &Arc<Self>, wanted: Option<Wanted>, inode: u64, offset: u64, data: Vec<u8>) -> Option<Prepared> {
        let (encoding, key) = match wanted {
            None => (Encoding::default(), 0),
            Some(Wanted { compression, checksum, key, stack, record_bytes }) => {
                let compression = Compression::from_code(compression)?;
                let stack = match stack {
                    0 => None,
                    number => Some((number, self.codecs.plugins.stack(number)?)),
                };
                (Encoding { stack, compression, checksum, record_bytes }, key)
            }
        };
        let sealing = (key != 0).then(|| Sealing { keyring: self.codecs.keys.keyring(), key, inode });
        // A key that is not unlocked here is unlocked at the owner, perhaps; of a plugin that fails the owner tells the program.
        let records = Records::of(&encoding, sealing.as_ref(), offset, data)
            .inspect_err(|why| tracing::debug!(inode, %why, "the owner encodes this"));
        let records = Arc::new(records.ok()?);
        let (offered, nodes) = (records.clone(), self.clone());
        let begins = (0..=records.count()).map(|record| records.content_bytes_before(record)).collect();
        Some(Prepared {
            begins,
            offer: Box::new(move |first| offered.offer_from(first)),
            write: Box::new(move |row, first| nodes.write(row, &records, first)),
        })
    }

    fn write(&self, row: &RowGrant, records: &Records, first: usize) -> bool {
        let nodes = lock(&self.nodes).clone().filter(|nodes| nodes.reach(row));
        let written = nodes.map(|nodes| nodes.write(row, records, first));
        if let Some(Err(error)) = &written {
            tracing::debug!(%error, "a row could not be written past the owner");
        }
        let is_written = matches!(written, Some(Ok(())));
        if !is_written {
            *lock(&self.failed) = Some(Instant::now());
        }
        is_written
    }

    fn is_ready(&self) -> bool {
        lock(&self.nodes).is_some() && lock(&self.failed).is_none_or(|failed| failed.elapsed() >= PAUSE)
    }

    fn read(&self, map: &[u8], inode: u64, offset: u64) -> Option<Vec<u8>> {
        let nodes = lock(&self.nodes).clone()?;
        let map = ContentMap::decode(map).inspect_err(|error| tracing::debug!(%error, "a map is none")).ok()?;
        let mut out = vec![0; map.length as usize];
        let stacks = |number| self.codecs.plugins.stack(number);
        let opening = Opening { keyring: self.codecs.keys.keyring(), stacks: &stacks, inode, offset };
        match nodes.read(&map, &opening, &mut out) {
            // The owner reads it too, and repairs what is wrong.
            Ok(found) if found.is_any_wrong => None,
            Ok(_) => Some(out),
            Err(error) => {
                tracing::debug!(%error, "the owner is asked for what could not be read past it");
                // Who lacks a key or a plugin may read on from nodes what needs none.
                if !matches!(error, DirectError::Undecodable { .. }) {
                    *lock(&self.failed) = Some(Instant::now());
                }
                None
            }
        }
    }
}
