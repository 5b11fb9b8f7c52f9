//! A pool on devices in memory, its owner, and clients whose kernels are played by the test.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use fuse_wire::abi::structs::{
    AttrOut, CreateIn, EntryOut, GetattrIn, MkdirIn, OpenIn, OpenOut, ReadIn, ReleaseIn, Rename2In, WriteIn, split,
};
use fuse_wire::abi::{init, opcode};
use fuse_wire::{RECOMMENDED, RemoteAnswer, RemoteSession, raw};
use stere_client::identities::Ids;
use stere_client::{Announcement, Link, LinkOptions};
use stere_device::{Device, MemoryDevice, Operation};
use stere_format::{DeviceEntry, DeviceId, DeviceLayout, MachineEntry, MachineState, PoolId, Superblock};
use stere_fuse::{BlockDevice, Door, MountOptions};
use stere_machine_tls::MachineKey;
use stere_naming::{Caller, FileSystem, Io, Options, Timestamp};
use stere_owner::{Owner, OwnerOptions};
use stere_store::{DeviceIn, Store, StoreOptions};

pub const POOL: [u8; 16] = [9; 16];
pub const ROOT: u64 = 1;
const CHUNK_BYTES: u32 = 1 << 20;
const DEVICE_BYTES: u64 = 256 << 20;
/// No wait of a test is longer.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Devices that outlive their owners, and who the owner is.
pub struct Site {
    device: Mutex<Arc<MemoryDevice>>,
    owner: Arc<Mutex<Option<Announcement>>>,
    epoch: AtomicU64,
    /// The registry of machines; `None` while its engine is away.
    pub members: Arc<Mutex<Option<Vec<MachineEntry>>>>,
}

/// The number of the owner among the machines.
pub const OWNER: u8 = 200;
/// Machines with these numbers are admitted from the beginning.
const ADMITTED: [u8; 4] = [1, 2, 3, OWNER];

/// The key of a machine.
pub fn key_of(machine: u8) -> MachineKey {
    MachineKey::of([machine; 32]).expect("any 32 bytes are a key")
}

/// An owner that serves.
pub struct Serving {
    pub owner: Owner,
    pub door: Door,
}

/// The clock of all machines.
pub fn now_ms() -> u64 {
    static BEGUN: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    u64::try_from(BEGUN.get_or_init(Instant::now).elapsed().as_millis()).expect("a test is short")
}

fn store_options() -> StoreOptions {
    StoreOptions { memory_bytes: 64 << 20, hash_key: [7; 16], ..StoreOptions::default() }
}

pub fn caller() -> Caller<'static> {
    let now = Timestamp { seconds: 1, nanoseconds: 0 };
    Caller { uid: 0, gid: 0, groups: &[], umask: 0, now, io: Io::BLOCKING, process: 0, request: None }
}

fn layout() -> DeviceLayout {
    DeviceLayout::for_size(DEVICE_BYTES, CHUNK_BYTES).expect("the size is possible")
}

impl Site {
    pub fn new() -> Site {
        let device = Arc::new(MemoryDevice::with_volatile_cache(DEVICE_BYTES));
        let superblock = Superblock {
            journal_bytes: layout().journal_bytes,
            journal_devices: vec![0],
            pool_name: "test".into(),
            ..Superblock::first(PoolId(POOL), DeviceId([1; 16]), 0, layout())
        };
        let entry = DeviceEntry::of(&superblock, "d0".into());
        let devices = vec![DeviceIn { index: 0, superblock, device: device.clone(), read_cost: 1 }];
        let store = Store::create(devices, vec![entry], store_options()).expect("a new pool");
        FileSystem::format(&store, Timestamp { seconds: 1, nanoseconds: 0 }).expect("a root");
        store.commit(Io::BLOCKING).expect("the root is durable");
        store.close().expect("it is closed");
        let site = Site {
            device: Mutex::new(device),
            owner: Arc::default(),
            epoch: AtomicU64::new(0),
            members: Arc::default(),
        };
        ADMITTED.into_iter().for_each(|machine| site.set_member(machine, MachineState::Admitted));
        site
    }

    /// What the registry says of a machine from now on.
    pub fn set_member(&self, machine: u8, state: MachineState) {
        let mut members = self.members.lock().expect("no panic");
        let members = members.get_or_insert_default();
        members.retain(|entry| entry.machine != [machine; 16]);
        let public_key = key_of(machine).public().0;
        members.push(MachineEntry { machine: [machine; 16], public_key, host: "test".into(), state, registered: 0 });
    }

    /// The pool is opened, and served by the next owner.
    pub fn serve(&self) -> Serving {
        self.serve_with_grace(Duration::ZERO)
    }

    pub fn serve_with_grace(&self, grace: Duration) -> Serving {
        let options = MountOptions { shared: true, ..MountOptions::default() };
        let door = Door::alone(self.open(), &options).expect("threads");
        Serving { owner: self.serve_through(door.clone(), grace), door }
    }

    /// The owner mounts the pool itself too.
    pub fn serve_mounted(&self, mountpoint: &std::path::Path) -> (Owner, stere_fuse::Session) {
        let filesystem = self.open();
        let store = filesystem.store().clone();
        let options = MountOptions { shared: true, sync_requests: BlockDevice::No, ..MountOptions::default() };
        let session = stere_fuse::mount(filesystem, store, mountpoint, &options).expect("it mounts");
        (self.serve_through(session.door(), Duration::ZERO), session)
    }

    fn open(&self) -> Arc<FileSystem> {
        let device = self.device.lock().expect("no panic").clone();
        let found = layout().superblock_offsets().into_iter().filter_map(|offset| {
            let mut bytes = vec![0; Superblock::SIZE];
            device.read(offset, &mut bytes).expect("a superblock slot is readable");
            Superblock::decode(&bytes).ok()
        });
        let superblock = found.max_by_key(|superblock| superblock.generation).expect("a pool");
        let devices = vec![DeviceIn { index: 0, superblock, device, read_cost: 1 }];
        let epoch = self.epoch.fetch_add(1, Ordering::SeqCst) + 1;
        let options = StoreOptions { epoch_nonce: u32::try_from(epoch).expect("few owners"), ..store_options() };
        let (store, _) = Store::open(devices, options).expect("it opens");
        Arc::new(FileSystem::new(Arc::new(store), Options::default()).expect("a file system"))
    }

    fn serve_through(&self, door: Door, grace: Duration) -> Owner {
        let epoch = self.epoch.load(Ordering::SeqCst);
        let secret = [u8::try_from(epoch).expect("few owners"); 32];
        let address = "127.0.0.1:0".parse().expect("an address");
        let (key, members) = (key_of(OWNER), Arc::clone(&self.members));
        let members: stere_owner::ReadMembers = Box::new(move || members.lock().expect("no panic").clone());
        let commands = Box::new(crate::commands::answer);
        let options = OwnerOptions { address, pool: POOL, secret, epoch, grace, key, members, commands };
        let owner = Owner::start(door, options).expect("it listens");
        let key = key_of(OWNER).public().0;
        self.announce(Some(Announcement { address: owner.address().to_string(), secret, key, epoch }));
        owner
    }

    /// The owner is gone at once, and with it all that was not synced.
    pub fn crash(&self, serving: Serving) {
        *self.owner.lock().expect("no panic") = None;
        let Serving { mut owner, door } = serving;
        // Nobody is answered any more.
        owner.fail();
        // What it still does goes to devices that nobody looks at any more.
        let mut device = self.device.lock().expect("no panic");
        *device = Arc::new(device.copy_as_flushed());
        drop(device);
        owner.end();
        door.close();
    }

    /// The owner ends as it should.
    pub fn hand_over(&self, serving: Serving) {
        *self.owner.lock().expect("no panic") = None;
        let Serving { mut owner, door } = serving;
        owner.end();
        door.close();
        door.filesystem().close(&caller()).expect("all is durable");
        door.filesystem().store().close().expect("it is closed");
    }

    pub fn announcement(&self) -> Option<Announcement> {
        self.owner.lock().expect("no panic").clone()
    }

    /// Tells machines who the owner is.
    pub fn finder(&self) -> impl Fn() -> Option<Announcement> + Send + Sync + 'static {
        let owner = Arc::clone(&self.owner);
        move || owner.lock().expect("no panic").clone()
    }

    pub fn announce(&self, announcement: Option<Announcement>) {
        *self.owner.lock().expect("no panic") = announcement;
    }

    /// From now on, until the owner crashes, a commit takes so long.
    pub fn delay_commits(&self, time: Duration) {
        let hook = move |operation: Operation, _, _| {
            if operation == Operation::Flush {
                std::thread::sleep(time);
            }
            None
        };
        self.device.lock().expect("no panic").set_fault_hook(Some(Box::new(hook)));
    }

    /// A machine that mounts the pool.
    pub fn client(&self, machine: u8) -> Kernel {
        self.client_with(machine, self.finder())
    }

    /// The same, told otherwise who the owner is.
    pub fn client_with(
        &self,
        machine: u8,
        finder: impl Fn() -> Option<Announcement> + Send + Sync + 'static,
    ) -> Kernel {
        let (pool_name, key) = ("test".to_owned(), key_of(machine));
        let (users, groups) = (Ids::Same, Ids::Same);
        let options = LinkOptions { pool: POOL, pool_name, machine: [machine; 16], key, users, groups, now_ms };
        let link = Link::start(Box::new(finder), options, (None, None)).expect("threads");
        link.set_kernel(45, RECOMMENDED | init::POSIX_LOCKS | init::FLOCK_LOCKS);
        Kernel { link, session: RemoteSession::new(u64::from(machine), true, 1 << 20) }
    }
}

/// A kernel, as far as requests and answers go.
pub struct Kernel {
    pub link: Arc<Link>,
    session: RemoteSession,
}

/// An answer that is waited for.
pub struct Pending(Receiver<(i32, Vec<u8>)>);

impl Pending {
    pub fn wait(&self) -> Result<Vec<u8>, i32> {
        let (errno, bytes) = self.0.recv_timeout(PATIENCE).expect("an answer in time");
        if errno == 0 { Ok(bytes) } else { Err(errno) }
    }

    pub fn is_there_within(&self, time: Duration) -> bool {
        self.0.recv_timeout(time).is_ok()
    }
}

fn text(name: &str) -> Vec<u8> {
    [name.as_bytes(), b"\0"].concat()
}

fn bytes_of<T: zerocopy::IntoBytes + zerocopy::Immutable>(value: &T) -> &[u8] {
    value.as_bytes()
}

impl Kernel {
    pub fn ask(&self, operation: u32, node: u64, arguments: &[&[u8]]) -> Pending {
        let (tell, told) = channel();
        let reply = Box::new(move |answer: RemoteAnswer<'_>| drop(tell.send((answer.errno, answer.bytes.to_vec()))));
        let message = raw::message(operation, node, arguments);
        self.link.forward(self.session.request(message, reply).expect("a whole message"));
        Pending(told)
    }

    /// Asks and takes the answer.
    pub fn call(&self, operation: u32, node: u64, arguments: &[&[u8]]) -> Result<Vec<u8>, i32> {
        self.ask(operation, node, arguments).wait()
    }

    pub fn lookup(&self, parent: u64, name: &str) -> Result<(u64, u64), i32> {
        let entry = self.call(opcode::LOOKUP, parent, &[&text(name)])?;
        let (entry, _) = split::<EntryOut>(&entry).expect("an entry");
        if entry.nodeid == 0 { Err(libc::ENOENT) } else { Ok((entry.nodeid, entry.attr.size)) }
    }

    pub fn mkdir(&self, parent: u64, name: &str) -> Result<u64, i32> {
        let made = self.call(opcode::MKDIR, parent, &[bytes_of(&MkdirIn { mode: 0o755, umask: 0 }), &text(name)])?;
        Ok(split::<EntryOut>(&made).expect("an entry").0.nodeid)
    }

    /// Makes a file; gives its node and the handle.
    pub fn create(&self, parent: u64, name: &str, flags: i32) -> Result<(u64, u64), i32> {
        let input = CreateIn { flags: (flags | libc::O_CREAT).cast_unsigned(), mode: 0o100_644, ..CreateIn::default() };
        let made = self.call(opcode::CREATE, parent, &[bytes_of(&input), &text(name)])?;
        let (entry, rest) = split::<EntryOut>(&made).expect("an entry");
        Ok((entry.nodeid, split::<OpenOut>(rest).expect("a handle").0.fh))
    }

    /// Opens a file; gives the handle, and what the kernel is told of its pages.
    pub fn open(&self, node: u64, flags: i32) -> Result<(u64, u32), i32> {
        let opened =
            self.call(opcode::OPEN, node, &[bytes_of(&OpenIn { flags: flags.cast_unsigned(), open_flags: 0 })])?;
        let (opened, _) = split::<OpenOut>(&opened).expect("a handle");
        Ok((opened.fh, opened.open_flags))
    }

    pub fn ask_write(&self, node: u64, fh: u64, offset: u64, data: &[u8], flags: i32) -> Pending {
        let size = u32::try_from(data.len()).expect("short");
        let input = WriteIn { fh, offset, size, flags: flags.cast_unsigned(), ..WriteIn::default() };
        self.ask(opcode::WRITE, node, &[bytes_of(&input), data])
    }

    pub fn write(&self, node: u64, fh: u64, offset: u64, data: &[u8]) -> Result<(), i32> {
        self.ask_write(node, fh, offset, data, libc::O_WRONLY).wait().map(drop)
    }

    pub fn append(&self, node: u64, fh: u64, offset: u64, data: &[u8]) -> Result<(), i32> {
        self.ask_write(node, fh, offset, data, libc::O_WRONLY | libc::O_APPEND).wait().map(drop)
    }

    pub fn read(&self, node: u64, fh: u64, offset: u64, size: u32) -> Result<Vec<u8>, i32> {
        self.call(opcode::READ, node, &[bytes_of(&ReadIn { fh, offset, size, ..ReadIn::default() })])
    }

    pub fn fsync(&self, node: u64, fh: u64) -> Result<(), i32> {
        self.call(opcode::FSYNC, node, &[&fh.to_ne_bytes(), &[0; 8]]).map(drop)
    }

    pub fn release(&self, node: u64, fh: u64) -> Result<(), i32> {
        self.call(opcode::RELEASE, node, &[bytes_of(&ReleaseIn { fh, ..ReleaseIn::default() })]).map(drop)
    }

    pub fn rename(&self, parent: u64, name: &str, new_parent: u64, new_name: &str) -> Result<(), i32> {
        let input = Rename2In { newdir: new_parent, ..Rename2In::default() };
        self.call(opcode::RENAME2, parent, &[bytes_of(&input), &text(name), &text(new_name)]).map(drop)
    }

    pub fn link_name(&self, node: u64, parent: u64, name: &str) -> Result<(), i32> {
        self.call(opcode::LINK, parent, &[&node.to_ne_bytes(), &text(name)]).map(drop)
    }

    pub fn unlink(&self, parent: u64, name: &str) -> Result<(), i32> {
        self.call(opcode::UNLINK, parent, &[&text(name)]).map(drop)
    }

    pub fn size(&self, node: u64) -> Result<u64, i32> {
        let attributes = self.call(opcode::GETATTR, node, &[bytes_of(&GetattrIn::default())])?;
        Ok(split::<AttrOut>(&attributes).expect("attributes").0.attr.size)
    }

    /// SETLK or SETLKW of a whole file.
    pub fn ask_lock(&self, node: u64, owner: u64, kind: i32, wait: bool) -> Pending {
        let arguments: [&[u8]; 7] = [
            &[0; 8],
            &owner.to_ne_bytes(),
            &0_u64.to_ne_bytes(),
            &(i64::MAX as u64).to_ne_bytes(),
            &kind.to_ne_bytes(),
            &[0; 4],
            &[0; 8],
        ];
        self.ask(if wait { opcode::SETLKW } else { opcode::SETLK }, node, &arguments)
    }
}

/// Waits until something is so.
pub fn until(what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "waited too long until {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
