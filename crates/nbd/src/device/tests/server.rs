//! A server for tests, which does wrong on demand: it falls silent, is restarted, or answers what nobody asked.

use std::collections::BTreeMap;
use std::io::{Read, Result, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;

pub const SIZE_BYTES: usize = 1 << 20;

/// What it does wrong from now on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Manner {
    Right,
    /// Takes requests, carries them out when it is right again.
    Silent,
    /// Does one thing after the other, and takes so long for each.
    Slow(Duration),
    /// Carries out what is asked of this place when it is right again, and all else at once.
    SitsOn(usize),
    /// Fails what it is asked with this error number.
    Fails(u32),
    /// Answers in a way that the protocol does not have.
    Breaks(Breach),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Breach {
    OtherCookie,
    BytesTwice,
    BytesElsewhere,
    TooFew,
    SimpleRead,
    Garbage,
}

struct Inside {
    manner: Manner,
    disk: Vec<u8>,
    /// Written and not flushed: lost when it is restarted.
    volatile: BTreeMap<usize, Vec<u8>>,
    size_bytes: u64,
    is_structured: bool,
    sockets: Vec<TcpStream>,
    connections: usize,
    /// So many connections are broken off while they are made.
    broken: usize,
}

#[derive(Clone)]
pub struct Server {
    inside: Arc<Mutex<Inside>>,
    turn: Arc<Mutex<()>>,
    pub port: u16,
}

impl Server {
    pub fn start(is_structured: bool) -> Server {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let inside = Inside {
            manner: Manner::Right,
            disk: vec![0; SIZE_BYTES],
            volatile: BTreeMap::new(),
            size_bytes: SIZE_BYTES as u64,
            is_structured,
            sockets: Vec::new(),
            connections: 0,
            broken: 0,
        };
        let server = Server { inside: Arc::new(Mutex::new(inside)), turn: Arc::default(), port };
        let serving = server.clone();
        thread::spawn(move || {
            for socket in listener.incoming().flatten() {
                let (serving, mut socket) = (serving.clone(), socket);
                serving.inside.lock().sockets.push(socket.try_clone().unwrap());
                thread::spawn(move || drop(serving.serve(&mut socket)));
            }
        });
        server
    }

    pub fn set(&self, manner: Manner) {
        self.inside.lock().manner = manner;
    }

    pub fn break_next(&self, count: usize) {
        self.inside.lock().broken = count;
    }

    pub fn set_size(&self, size_bytes: u64) {
        self.inside.lock().size_bytes = size_bytes;
    }

    pub fn connections(&self) -> usize {
        self.inside.lock().connections
    }

    pub fn disk(&self) -> Vec<u8> {
        self.inside.lock().disk.clone()
    }

    pub fn set_disk(&self, disk: Vec<u8>) {
        self.inside.lock().disk = disk;
    }

    pub fn byte(&self, at: usize) -> u8 {
        self.inside.lock().disk[at]
    }

    /// As if its machine had lost its power: connections break, and what was not flushed is gone.
    pub fn restart(&self) {
        let mut inside = self.inside.lock();
        inside.volatile.clear();
        inside.sockets.drain(..).for_each(|socket| drop(socket.shutdown(Shutdown::Both)));
    }

    fn serve(&self, socket: &mut TcpStream) -> Result<()> {
        socket.write_all(b"NBDMAGICIHAVEOPT\0\x03")?;
        socket.read_exact(&mut [0; 4])?;
        let broken = std::mem::replace(&mut self.inside.lock().broken, 0);
        if broken > 0 {
            self.inside.lock().broken = broken - 1;
            return socket.shutdown(Shutdown::Both);
        }
        loop {
            let mut head = [0; 16];
            socket.read_exact(&mut head)?;
            let option = u32::from_be_bytes(head[8..12].try_into().unwrap());
            let mut data = vec![0; u32::from_be_bytes(head[12..].try_into().unwrap()) as usize];
            socket.read_exact(&mut data)?;
            let mut reply = |kind: u32, text: &[u8]| {
                let magic = 0x0003_e889_0455_65a9_u64.to_be_bytes();
                let length = (text.len() as u32).to_be_bytes();
                socket.write_all(&[&magic[..], &option.to_be_bytes(), &kind.to_be_bytes(), &length, text].concat())
            };
            let (is_structured, size_bytes) = {
                let inside = self.inside.lock();
                (inside.is_structured, inside.size_bytes)
            };
            match option {
                8 if is_structured => reply(1, &[])?,
                7 => {
                    let flags = 1u16 | 4 | 32 | 256;
                    reply(3, &[&0u16.to_be_bytes()[..], &size_bytes.to_be_bytes(), &flags.to_be_bytes()].concat())?;
                    let blocks = [512u32, 4096, 64 << 10];
                    let blocks: Vec<u8> = blocks.iter().flat_map(|bytes| bytes.to_be_bytes()).collect();
                    reply(3, &[&3u16.to_be_bytes()[..], &blocks].concat())?;
                    reply(1, &[])?;
                    self.inside.lock().connections += 1;
                    return self.transmit(socket);
                }
                _ => reply((1 << 31) + 1, &[])?,
            }
        }
    }

    fn transmit(&self, socket: &mut TcpStream) -> Result<()> {
        loop {
            let mut head = [0; 28];
            socket.read_exact(&mut head)?;
            let command = u16::from_be_bytes(head[6..8].try_into().unwrap());
            let cookie = u64::from_be_bytes(head[8..16].try_into().unwrap());
            let offset = u64::from_be_bytes(head[16..24].try_into().unwrap()) as usize;
            let length = u32::from_be_bytes(head[24..].try_into().unwrap()) as usize;
            assert!(length <= 64 << 10, "more than was allowed");
            assert!(offset % 512 == 0 && length % 512 == 0, "not aligned to its blocks");
            let mut data = vec![0; if command == 1 { length } else { 0 }];
            socket.read_exact(&mut data)?;
            while self.inside.lock().manner == Manner::Silent {
                thread::sleep(Duration::from_millis(5));
            }
            while self.inside.lock().manner == Manner::SitsOn(offset) {
                thread::sleep(Duration::from_millis(5));
            }
            let manner = self.inside.lock().manner;
            if let Manner::Slow(each) = manner {
                let _turn = self.turn.lock();
                thread::sleep(each);
            }
            match (manner, command) {
                (_, 2) => return Ok(()),
                (Manner::Breaks(breach), _) => {
                    let _whole = self.breach(socket, breach, cookie, offset, length);
                    continue;
                }
                (Manner::Fails(error), _) => simple(socket, error, cookie, &[])?,
                (_, 0) => self.read(socket, cookie, offset, length)?,
                (_, 1) => {
                    self.inside.lock().volatile.insert(offset, data);
                    simple(socket, 0, cookie, &[])?;
                }
                (_, 3) => {
                    let mut inside = self.inside.lock();
                    for (at, bytes) in std::mem::take(&mut inside.volatile) {
                        inside.disk[at..at + bytes.len()].copy_from_slice(&bytes);
                    }
                    drop(inside);
                    simple(socket, 0, cookie, &[])?;
                }
                _ => simple(socket, 0, cookie, &[])?,
            }
        }
    }

    fn read(&self, socket: &mut TcpStream, cookie: u64, offset: usize, length: usize) -> Result<()> {
        let (bytes, is_structured) = {
            let inside = self.inside.lock();
            let mut disk = inside.disk.clone();
            for (at, bytes) in &inside.volatile {
                disk[*at..at + bytes.len()].copy_from_slice(bytes);
            }
            (disk[offset..offset + length].to_vec(), inside.is_structured)
        };
        if !is_structured {
            return simple(socket, 0, cookie, &bytes);
        }
        // The second half first, and what is zero as a hole.
        let half = (length / 1024) * 512;
        for (at, part, is_last) in [(half, &bytes[half..], false), (0, &bytes[..half], true)] {
            let place = ((offset + at) as u64).to_be_bytes();
            match part {
                [] if is_last => chunk(socket, is_last, 0, cookie, &[])?,
                [] => {}
                part if part.iter().all(|byte| *byte == 0) => {
                    chunk(socket, is_last, 2, cookie, &[&place[..], &(part.len() as u32).to_be_bytes()].concat())?;
                }
                part => chunk(socket, is_last, 1, cookie, &[&place[..], part].concat())?,
            }
        }
        Ok(())
    }

    fn breach(&self, socket: &mut TcpStream, breach: Breach, cookie: u64, offset: usize, length: usize) -> Result<()> {
        let data = |at: usize| [&((offset + at) as u64).to_be_bytes()[..], &vec![7; length]].concat();
        match breach {
            Breach::OtherCookie => simple(socket, 0, cookie + 1000, &[]),
            Breach::BytesTwice => {
                chunk(socket, false, 1, cookie, &data(0))?;
                chunk(socket, true, 1, cookie, &data(0))
            }
            Breach::BytesElsewhere => chunk(socket, true, 1, cookie, &data(512)),
            Breach::TooFew => chunk(socket, true, 1, cookie, &data(0)[..8 + 512]),
            Breach::SimpleRead => simple(socket, 0, cookie, &vec![7; length]),
            Breach::Garbage => socket.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n"),
        }
    }
}

fn simple(socket: &mut TcpStream, error: u32, cookie: u64, data: &[u8]) -> Result<()> {
    let head = [&0x6744_6698_u32.to_be_bytes()[..], &error.to_be_bytes(), &cookie.to_be_bytes()].concat();
    socket.write_all(&[&head[..], data].concat())
}

fn chunk(socket: &mut TcpStream, is_last: bool, kind: u16, cookie: u64, data: &[u8]) -> Result<()> {
    let (flags, length) = (u16::from(is_last).to_be_bytes(), (data.len() as u32).to_be_bytes());
    let magic = 0x668e_33ef_u32.to_be_bytes();
    socket.write_all(&[&magic[..], &flags, &kind.to_be_bytes(), &cookie.to_be_bytes(), &length, data].concat())
}
