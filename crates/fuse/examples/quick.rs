//! throwaway: quick create|open IMAGE... MOUNTPOINT
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use stere_device::{Device, FileDevice, FileOptions};
use stere_format::*;
use stere_naming::{Caller, FileSystem, Timestamp, Wait};
use stere_store::{DeviceIn, Store, StoreOptions};

fn now() -> Timestamp {
    let d = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    Timestamp { seconds: d.as_secs() as i64, nanoseconds: d.subsec_nanos() }
}
fn main() {
    tracing_subscriber::fmt().init();
    let args: Vec<String> = std::env::args().collect();
    let memory: usize = std::env::var("MEMORY_MB").ok().and_then(|v| v.parse().ok()).unwrap_or(1024);
    let images = &args[2..args.len() - 1];
    let mountpoint = &args[args.len() - 1];
    let options = StoreOptions { memory_bytes: memory << 20, hash_key: [3; 16], meta_scheme: Scheme { data: 1, parity: images.len().min(3) as u8 - 1 }, ..StoreOptions::default() };
    let devices: Vec<Arc<FileDevice>> = images.iter().map(|path| Arc::new(FileDevice::open(Path::new(path), &FileOptions { ..FileOptions::default() }).unwrap())).collect();
    let store = if args[1] == "create" {
        let mut ins = vec![];
        let mut entries = vec![];
        let n = devices.len() as u16;
        let layouts: Vec<_> = devices.iter().map(|d| DeviceLayout::for_size(d.size_bytes(), 4 << 20).unwrap()).collect();
        let jb = layouts.iter().map(|l| l.journal_bytes).min().unwrap();
        for (i, d) in devices.iter().enumerate() {
            let i = i as u16;
            let layout = layouts[i as usize];
            ins.push(DeviceIn { index: i, device: d.clone(), read_cost: 1, superblock: Superblock {
                format_minor: 0, pool: PoolId([1; 16]), device: DeviceId([2 + i as u8; 16]), device_index: i, generation: 0, layout,
                journal_start: JournalPosition { position: 0, sequence: 1 }, journal_bytes: jb, journal_devices: (0..n.min(3)).collect(),
                epochs: vec![Epoch { first_sequence: 1, epoch: 1 }], clean: true, pool_name: "quick".into(), host: String::new(), shelf: String::new(), checkpoint: vec![] } });
            entries.push(DeviceEntry { id: DeviceId([2 + i as u8; 16]), index: i, class: 0, state: 0, size_bytes: d.size_bytes(), slot_count: layout.slot_count, name: format!("d{i}"), host: String::new(), shelf: String::new(), tags: vec![] });
        }
        let store = Store::create(ins, entries, options).unwrap();
        FileSystem::format(&store, now()).unwrap();
        store
    } else {
        let ins = devices.iter().map(|d| {
            let sb = DeviceLayout::superblock_offsets_for_size(d.size_bytes()).into_iter().filter_map(|o| { let mut b = vec![0; 4096]; d.read(o, &mut b).unwrap(); Superblock::decode(&b).ok() }).max_by_key(|s| s.generation).unwrap();
            DeviceIn { index: sb.device_index, superblock: sb, device: d.clone(), read_cost: 1 }
        }).collect();
        let t = std::time::Instant::now();
        let (store, report) = Store::open(ins, options).unwrap();
        println!("opened in {:?}: {report:?}", t.elapsed());
        store
    };
    let store = Arc::new(store);
    if args[1] == "check" {
        let t = std::time::Instant::now();
        let r = store.check(true).unwrap();
        println!("{:?} {:?}", t.elapsed(), r);
        return;
    }
    let fs = Arc::new(FileSystem::new(store.clone(), Default::default()).unwrap());
    let session = stere_fuse::mount(fs.clone(), store.clone(), Path::new(mountpoint), &stere_fuse::MountOptions::default()).unwrap();
    println!("ready uring={} sync={}", session.over_io_uring(), session.syncs_arrive());
    let served = session.request_counter();
    let (s2, f2) = (store.clone(), fs.clone());
    std::thread::spawn(move || {
        let mut last = 0;
        let mut tick = 0u64;
        loop {
            std::thread::sleep(Duration::from_millis(100));
            tick += 1;
            let c = Caller { uid: 0, gid: 0, groups: &[], umask: 0, now: now(), wait: Wait::Allowed };
            let n = served();
            let idle = n == last;
            last = n;
            if tick % 10 == 0 { let _ = f2.step(&c, 1000); }
            if tick % 50 == 0 { let _ = s2.commit(Wait::Allowed); }
            let _ = s2.step(idle);
        }
    });
    session.wait().unwrap();
    store.close().unwrap();
    println!("closed");
}
