use super::*;
use proptest::prelude::*;
use std::io::{Read, Write};
use stere_device::{Access, Device, DeviceError};
use stere_nbd::NbdDevice;
use stere_nbd::wire::{self, Command, OptionKind};

const SIZE_BYTES: u64 = 4 << 20;

struct Served {
    folder: tempfile::TempDir,
    address: SocketAddr,
    running: Option<Running>,
}

impl Served {
    fn new() -> Served {
        let folder = tempfile::tempdir().unwrap();
        let server = Server::bind(folder.path(), "127.0.0.1:0").unwrap();
        let address = server.address();
        Served { folder, address, running: Some(server.start().unwrap()) }
    }

    fn place(&self, name: &str) -> std::path::PathBuf {
        format!("stere://{}/{name}", self.address).into()
    }

    fn open(&self, name: &str) -> NbdDevice {
        stere_nbd::provide(&self.place(name), SIZE_BYTES).unwrap();
        NbdDevice::open(&self.place(name), Access::ReadWrite).unwrap()
    }

    fn restart(&mut self) {
        self.running.take().unwrap().end().unwrap();
        let address = self.address.to_string();
        self.running = Some(Server::bind(self.folder.path(), &address).unwrap().start().unwrap());
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        if let Some(running) = self.running.take() {
            running.end().unwrap();
        }
    }
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(20), "{what} did not come about");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn is_fenced(outcome: Result<(), DeviceError>) -> bool {
    matches!(outcome, Err(DeviceError::Fenced { .. }))
}

#[test]
fn what_is_written_is_read_and_durable() {
    let mut served = Served::new();
    let device = served.open("disk");
    assert_eq!(device.size_bytes(), SIZE_BYTES);
    let bytes: Vec<u8> = (0..SIZE_BYTES).map(|at| (at / 7) as u8).collect();
    device.write_bytes(0, &bytes).unwrap();
    device.flush().unwrap();
    device.discard(8192, 4096).unwrap();
    let mut found = vec![1; bytes.len()];
    device.read(0, &mut found).unwrap();
    assert!(found[..8192] == bytes[..8192] && found[8192..12_288] == [0; 4096] && found[12_288..] == bytes[12_288..]);
    assert!(device.read(SIZE_BYTES - 1, &mut [0; 2]).is_err());
    served.restart();
    until("its return", || device.read(0, &mut found).is_ok());
    assert!(found[..8192] == bytes[..8192]);
}

/// P-245: an owner that was replaced writes nothing more, over connections that it has and over new ones.
#[test]
fn a_replaced_owner_writes_nothing() {
    let mut served = Served::new();
    let old = served.open("disk");
    old.set_epoch(7);
    old.write_bytes(0, &[1; 4096]).unwrap();
    old.flush().unwrap();
    let new = served.open("disk");
    assert_eq!((old.kept_epoch(), new.kept_epoch()), (0, 7));
    // Before it says so it writes as the owner before: it has to look whether that one is alive.
    new.write_bytes(4096, &[2; 4096]).unwrap();
    old.write_bytes(0, &[3; 4096]).unwrap();
    new.set_epoch(9);
    old.write_bytes(0, &[4; 4096]).unwrap();
    new.write_bytes(4096, &[5; 4096]).unwrap();
    // On each of its connections.
    for _ in 0..16 {
        assert!(is_fenced(old.write_bytes(0, &[6; 4096])));
        assert!(is_fenced(old.discard(0, 4096)));
    }
    let error = old.write_bytes(0, &[6; 4096]).unwrap_err().to_string();
    assert!(error.contains("newer owner") && error.contains("another machine has the pool"), "{error}");
    assert!(old.forget_epochs().is_err());
    served.restart();
    let mut found = [0; 8192];
    until("its return", || old.read(0, &mut found).is_ok() && new.write_bytes(4096, &[7; 4096]).is_ok());
    assert!(old.write_bytes(0, &[6; 4096]).is_err());
    old.read(0, &mut found).unwrap();
    assert!(found[..4096] == [4; 4096] && found[4096..] == [7; 4096]);
    // A pool that is made anew begins anew.
    let newest = served.open("disk");
    newest.forget_epochs().unwrap();
    newest.write_bytes(0, &[8; 4096]).unwrap();
    newest.set_epoch(1);
    newest.write_bytes(0, &[8; 4096]).unwrap();
    assert!(is_fenced(new.write_bytes(0, &[9; 4096])));
}

#[test]
fn an_export_that_is_there_has_its_size() {
    let served = Served::new();
    drop(served.open("disk"));
    let error = stere_nbd::provide(&served.place("disk"), 8 << 20).unwrap_err().to_string();
    assert!(error.contains("has 4194304 bytes, not 8388608"), "{error}");
    let error = NbdDevice::open(&served.place("away"), Access::ReadWrite).err().unwrap().to_string();
    assert!(error.contains("no such export") && error.contains("size="), "{error}");
    let plain = format!("nbd://{}/disk", served.address);
    let device = NbdDevice::open(Path::new(&plain), Access::ReadWrite).unwrap();
    device.write_bytes(0, &[1; 4096]).unwrap();
}

/// A client that says nothing, or takes no answers, holds up nobody; there are only so many of them.
#[test]
fn silent_clients_hold_up_nobody() {
    let served = Served::new();
    let device = served.open("disk");
    let idle: Vec<TcpStream> = (0..CONNECTIONS_MAX + 20).map(|_| TcpStream::connect(served.address).unwrap()).collect();
    let begun = Instant::now();
    device.write_bytes(0, &[1; 4096]).unwrap();
    device.flush().unwrap();
    assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
    let shared = served.running.as_ref().unwrap().shared.clone();
    assert!(shared.connections.lock().len() <= CONNECTIONS_MAX);
    drop(idle);
    until("their end", || shared.connections.lock().len() < 10);
    drop(served.open("other"));
}

/// A connection that agreed on an export, for bytes of any kind.
fn agreed(served: &Served) -> TcpStream {
    let mut socket = TcpStream::connect(served.address).unwrap();
    let hello = wire::option(OptionKind::Hello, &wire::extension::encode_version());
    socket.write_all(&[&[0, 0, 0, 3][..], &hello, &wire::go("disk")].concat()).unwrap();
    // The greeting, the version, the facts, and that this was all of each.
    socket.read_exact(&mut [0; 18 + 24 + 20 + 32 + 34 + 20]).unwrap();
    socket
}

fn ask(socket: &mut TcpStream, request: &[u8]) -> u32 {
    socket.write_all(request).unwrap();
    let mut reply = [0; 16];
    socket.read_exact(&mut reply).unwrap();
    u32::from_be_bytes(reply[4..8].try_into().unwrap())
}

#[test]
fn requests_beyond_the_export_are_refused() {
    let served = Served::new();
    drop(served.open("disk"));
    let mut socket = agreed(&served);
    let size = SIZE_BYTES;
    assert_eq!(ask(&mut socket, &wire::request(Command::Read, 1, size, 1)), 22);
    assert_eq!(ask(&mut socket, &wire::request(Command::Read, 2, 0, u32::MAX)), 22);
    assert_eq!(ask(&mut socket, &wire::request(Command::Trim, 3, u64::MAX, 1)), 22);
    let write = [&wire::request(Command::Write, 4, size - 1, 2)[..], &[7, 7]].concat();
    assert_eq!(ask(&mut socket, &write), 28);
    let mut forced = [&wire::request(Command::Write, 5, size - 2, 2)[..], &[7, 7]].concat();
    forced[5] = 1;
    assert_eq!(ask(&mut socket, &forced), 0);
    let mut unknown = wire::request(Command::Read, 6, 0, 4096);
    unknown[7] = 99;
    assert_eq!(ask(&mut socket, &unknown), 22);
    assert_eq!(std::fs::metadata(served.folder.path().join("disk")).unwrap().len(), size);
    // What cannot be taken at all ends the connection.
    socket.write_all(&wire::request(Command::Write, 7, 0, u32::MAX)).unwrap();
    assert_eq!(socket.read(&mut [0]).unwrap_or(0), 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Any bytes end a connection and nothing else.
    #[test]
    fn harmed_bytes_hurt_nobody(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        is_agreed in any::<bool>(),
        is_request in any::<bool>(),
    ) {
        static SERVED: std::sync::LazyLock<Served> = std::sync::LazyLock::new(Served::new);
        let served = &*SERVED;
        let device = served.open("disk");
        let mut socket = if is_agreed { agreed(served) } else { TcpStream::connect(served.address).unwrap() };
        let start: &[u8] = match (is_agreed, is_request) {
            (true, true) => &[0x25, 0x60, 0x95, 0x13, 0, 0],
            (false, true) => b"\0\0\0\x03IHAVEOPT\0\0\0",
            _ => &[],
        };
        // It may have ended the connection by then.
        let _whole = socket.write_all(&[start, &bytes].concat());
        let _is_down = socket.shutdown(Shutdown::Write);
        socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let _whole = socket.read_to_end(&mut Vec::new());
        device.read(0, &mut [0; 4096]).unwrap();
        prop_assert_eq!(std::fs::metadata(served.folder.path().join("disk")).unwrap().len(), SIZE_BYTES);
    }
}
