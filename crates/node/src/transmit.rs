//! Requests of one connection, one after the other.
//!
//! Invariants: an answer is sent when a request was carried out, and only then; a request that does not lie in the export changes nothing; what a
//! client does not send in time, or does not take, ends its connection and nothing else.

use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use stere_nbd::wire::extension::{self, Told};
use stere_nbd::wire::server::{FORCED_ACCESS, NO_HOLE, Order, Request, simple_reply};
use stere_nbd::wire::{REQUEST_BYTES, SIMPLE_BYTES};

use crate::export::Standing;
use crate::negotiate::Agreed;

/// How many bytes one request may move.
pub const PAYLOAD_BYTES_MAX: u32 = 8 << 20;
/// How long the rest of a request may keep us waiting, and the client when it takes an answer.
const STALLED: Duration = Duration::from_secs(30);
const READ_AHEAD_BYTES: usize = 64 << 10;
/// Memory that a connection keeps between requests.
const KEPT_BYTES: usize = 1 << 20;
const EINVAL: u32 = 22;
const ENOSPC: u32 = 28;

/// Serves until the client goes, or the node ends.
pub fn transmit(agreed: &Agreed, socket: &TcpStream, is_ending: &AtomicBool) -> io::Result<()> {
    socket.set_read_timeout(Some(STALLED))?;
    socket.set_write_timeout(Some(STALLED))?;
    let mut reader = BufReader::with_capacity(READ_AHEAD_BYTES, socket);
    let (mut standing, mut buffer) = (Standing::default(), Vec::new());
    while let Some(request) = next(&mut reader, is_ending)? {
        if request.order == Order::Disconnect {
            return Ok(());
        }
        buffer.clear();
        if matches!(request.order, Order::Write | Order::Tell) {
            let most = if request.order == Order::Tell { extension::TOLD_BYTES_MAX as u32 } else { PAYLOAD_BYTES_MAX };
            if request.length > most {
                return Err(io::Error::other(format!("a payload of {} bytes", request.length)));
            }
            buffer.resize(request.length as usize, 0);
            reader.read_exact(&mut buffer)?;
        }
        let outcome = carry_out(agreed, &mut standing, request, &mut buffer);
        if request.order != Order::Read || outcome.is_err() {
            buffer.clear();
            buffer.extend_from_slice(&simple_reply(outcome.err().unwrap_or_default(), request.cookie));
        }
        let mut writer = socket;
        writer.write_all(&buffer)?;
        buffer.clear();
        buffer.shrink_to(KEPT_BYTES);
    }
    Ok(())
}

/// The next request; none where the client went, or the node ends. A client may say nothing for as long as it likes between requests.
fn next(reader: &mut BufReader<&TcpStream>, is_ending: &AtomicBool) -> io::Result<Option<Request>> {
    loop {
        if is_ending.load(Ordering::Acquire) {
            return Ok(None);
        }
        match reader.fill_buf() {
            Ok([]) => return Ok(None),
            Ok(_) => break,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    let mut head = [0; REQUEST_BYTES];
    reader.read_exact(&mut head)?;
    Request::decode(&head).map(Some).map_err(io::Error::other)
}

/// The answer to a read is left in `buffer`, with its head.
fn carry_out(agreed: &Agreed, standing: &mut Standing, request: Request, buffer: &mut Vec<u8>) -> Result<(), u32> {
    let Request { order, flags, cookie, offset, length } = request;
    let export = &agreed.export;
    assert!(order != Order::Write || buffer.len() == length as usize, "all of a write has come");
    let is_within = request.is_within(export.size_bytes);
    match order {
        Order::Read if !is_within || length > PAYLOAD_BYTES_MAX => return Err(EINVAL),
        Order::Write | Order::WriteZeroes if !is_within => return Err(ENOSPC),
        Order::Trim if !is_within => return Err(EINVAL),
        _ => {}
    }
    match order {
        Order::Read => {
            buffer.resize(SIMPLE_BYTES + length as usize, 0);
            buffer[..SIMPLE_BYTES].copy_from_slice(&simple_reply(0, cookie));
            export.read(offset, &mut buffer[SIMPLE_BYTES..])
        }
        Order::Write => export.write(standing, offset, buffer),
        Order::WriteZeroes => export.zero(standing, offset, length.into(), flags & NO_HOLE == 0),
        Order::Trim => export.trim(standing, offset, length.into()),
        Order::Flush => export.flush(standing),
        Order::Fence if agreed.is_stere => export.fence(standing, offset),
        Order::Tell if agreed.is_stere => {
            let told = Told::decode(buffer).map_err(|_| EINVAL)?;
            export.tell(standing, offset, told.length, &told.settings)
        }
        Order::Fence | Order::Tell | Order::Other(_) | Order::Disconnect => Err(EINVAL),
    }?;
    let is_forced = flags & FORCED_ACCESS != 0 && matches!(order, Order::Write | Order::WriteZeroes | Order::Trim);
    if is_forced { export.flush(standing) } else { Ok(()) }
}
