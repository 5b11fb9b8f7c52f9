//! Agreeing with a client on an export.
//!
//! Invariants: it is over after `NEGOTIATION` whatever the client does; a name that is no name, or not there, changes nothing; what is stere's own
//! is answered to everybody who asks, and an export is made only for who said that he is of stere. Read next: `transmit.rs`.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use stere_nbd::wire::extension::{self, Provide, Provided};
use stere_nbd::wire::server::{self, Asked, OptionHead};
use stere_nbd::wire::{ACKNOWLEDGED, INFORMATION, TEXT_BYTES_MAX};

use crate::error::NodeError;
use crate::export::{Directory, Export};
use crate::transmit::PAYLOAD_BYTES_MAX;

/// How long it may take in all.
pub const NEGOTIATION: Duration = Duration::from_secs(20);
/// Options of one client.
const OPTIONS_MAX: usize = 64;

/// What was agreed on.
pub struct Agreed {
    pub export: Arc<Export>,
    /// The client speaks stere's extension.
    pub is_stere: bool,
}

/// Reads from a socket until a moment.
struct Bounded<'a> {
    socket: &'a TcpStream,
    until: Instant,
}

impl Read for Bounded<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.socket.set_read_timeout(Some(left))?;
        let mut socket = self.socket;
        socket.read(into)
    }
}

/// None where the client went without an export.
pub fn negotiate(directory: &Directory, socket: &TcpStream) -> io::Result<Option<Agreed>> {
    let mut reader = Bounded { socket, until: Instant::now() + NEGOTIATION };
    let mut writer = socket;
    writer.write_all(&server::greeting())?;
    let mut flags = [0; 4];
    reader.read_exact(&mut flags)?;
    let leaves_out_padding = server::decode_client_flags(flags).map_err(io::Error::other)?;
    let mut is_stere = false;
    for _ in 0..OPTIONS_MAX {
        let mut head = [0; server::OPTION_HEAD_BYTES];
        reader.read_exact(&mut head)?;
        let head = OptionHead::decode(&head).map_err(io::Error::other)?;
        let mut data = vec![0; head.length];
        reader.read_exact(&mut data)?;
        let asked = match Asked::decode(head.kind, &data) {
            Ok(asked) => asked,
            // The oldest way to ask has no answer that refuses.
            Err(error) if head.kind == 1 => return Err(io::Error::other(error)),
            Err(error) => {
                writer.write_all(&refusal(head.kind, server::INVALID, &error.to_string()))?;
                continue;
            }
        };
        match asked {
            Asked::ExportName(name) => {
                let export = directory.export(&name).map_err(io::Error::other)?;
                writer.write_all(&server::export_name_reply(export.size_bytes, leaves_out_padding))?;
                return Ok(Some(Agreed { export, is_stere }));
            }
            Asked::Abort => {
                writer.write_all(&server::option_reply(head.kind, ACKNOWLEDGED, &[]))?;
                return Ok(None);
            }
            Asked::Go(name) => match directory.export(&name) {
                Ok(export) => {
                    writer.write_all(&granted(head.kind, &facts(head.kind, &export)))?;
                    return Ok(Some(Agreed { export, is_stere }));
                }
                Err(error) => writer.write_all(&refused(head.kind, &error))?,
            },
            asked => writer.write_all(&answer(directory, head.kind, asked, &mut is_stere))?,
        }
    }
    Err(io::Error::other("it does not come to an end with its options"))
}

/// The answer to an option after which others follow.
fn answer(directory: &Directory, option: u32, asked: Asked, is_stere: &mut bool) -> Vec<u8> {
    match asked {
        Asked::List => match directory.names() {
            Ok(names) => granted(option, &names.iter().flat_map(|name| listed(option, name)).collect::<Vec<u8>>()),
            Err(error) => refused(option, &error),
        },
        Asked::Info(name) => match directory.export(&name) {
            Ok(export) => granted(option, &facts(option, &export)),
            Err(error) => refused(option, &error),
        },
        Asked::Hello { version } => {
            *is_stere = version == extension::VERSION;
            granted(option, &server::option_reply(option, INFORMATION, &extension::encode_version()))
        }
        Asked::Provide(_) if !*is_stere => refusal(option, server::INVALID, "say first which version you speak"),
        Asked::Provide(Provide { name, size_bytes }) => match directory.provide(&name, size_bytes) {
            Ok(export) => {
                let provided = Provided { size_bytes: export.size_bytes, epoch: export.epoch() };
                granted(option, &server::option_reply(option, INFORMATION, &provided.encode()))
            }
            Err(error) => refused(option, &error),
        },
        _ => refusal(option, server::UNSUPPORTED, ""),
    }
}

fn facts(option: u32, export: &Export) -> Vec<u8> {
    server::option_facts(option, export.size_bytes, PAYLOAD_BYTES_MAX)
}

fn listed(option: u32, name: &str) -> Vec<u8> {
    let length = name.len() as u32;
    server::option_reply(option, server::LISTED, &[&length.to_be_bytes()[..], name.as_bytes()].concat())
}

/// What is told, and that this was all.
fn granted(option: u32, told: &[u8]) -> Vec<u8> {
    [told, &server::option_reply(option, ACKNOWLEDGED, &[])].concat()
}

fn refused(option: u32, error: &NodeError) -> Vec<u8> {
    let kind = match error {
        NodeError::NoExport { .. } => server::UNKNOWN,
        NodeError::Name { .. } | NodeError::Size { .. } => server::INVALID,
        _ => server::FORBIDDEN,
    };
    if kind == server::FORBIDDEN {
        tracing::warn!(%error, "an export cannot be given");
    }
    refusal(option, kind, &error.to_string())
}

fn refusal(option: u32, kind: u32, why: &str) -> Vec<u8> {
    let end = why.floor_char_boundary(TEXT_BYTES_MAX.min(why.len()));
    server::option_reply(option, kind, &why.as_bytes()[..end])
}

#[cfg(test)]
mod tests;
