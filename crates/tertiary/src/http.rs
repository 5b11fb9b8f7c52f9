//! What volumes over HTTP have in common: waits that end when nothing moves, answers that are bounded, ranges of objects.
//!
//! Invariant: what a server says of a range counts. Bytes of another place than was asked for are given to nobody, and a server that knows
//! no ranges and sends all of it is understood. What an answer means that is no success, the volume says (`Judge`).
//! Each request has a line
//! (an agent with its connection) to itself until its answer is read, so that the waits of that connection know who cancels them.
//! Read next: `timeouts.rs`, `s3.rs`, `dav.rs`.

use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use stere_device::{Cancellation, LOOK_BYTES, PIECE_BYTES, Take, VolumeError};
use ureq::Agent;
use ureq::config::Config;
use ureq::http::{Request, Response};
use ureq::tls::{PemItem, RootCerts, TlsConfig};

use crate::timeouts::{Line, Slowness};
use crate::{LIST_TIME, named_file};

/// A server that neither says nor takes anything for a minute is away, and so is one that trickles: the slowest links give more.
const SLOWNESS: Slowness = Slowness { silence: Duration::from_secs(60), least_bytes: 4 << 10, list: LIST_TIME };
/// The head of an answer is short, however slow the link is.
const HEAD: Duration = Duration::from_secs(300);
/// More lines than this are not kept when nobody uses them.
const IDLE_MAX: usize = 16;
const CONNECT: Duration = Duration::from_secs(10);
/// Answers that are looked at for words are not longer.
pub(crate) const WORDS_BYTES_MAX: u64 = 4 << 20;

/// A server, and the name of the volume on it.
pub(crate) struct Http {
    config: Config,
    /// Lines that no request has; the one used last is taken first.
    idle: Mutex<Vec<Line>>,
    text: String,
    slowness: Slowness,
}

/// What a server answered.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) length: Option<u64>,
    /// Where the body begins in the object, if it was said.
    from: Option<u64>,
    pub(crate) body: Vec<u8>,
}

/// A request under way: an answer whose body is still to be read, and its line.
pub(crate) struct Exchange<'a> {
    pub(crate) response: Response<ureq::Body>,
    pub(crate) lease: Lease<'a>,
}

/// A line for one request. It goes back when the answer was read.
pub(crate) struct Lease<'a> {
    http: &'a Http,
    line: Option<Line>,
}

impl Lease<'_> {
    fn line(&self) -> &Line {
        self.line.as_ref().expect("a lease has its line until it ends")
    }
}

impl Drop for Lease<'_> {
    fn drop(&mut self) {
        let mut idle = self.http.idle.lock();
        if let Some(line) = self.line.take().filter(|_| idle.len() < IDLE_MAX) {
            line.set_cancellation(Cancellation::NONE);
            idle.push(line);
        }
    }
}

/// What it means that an object was not given.
pub(crate) type Judge<'a> = &'a dyn Fn(&Answer) -> VolumeError;

impl Http {
    /// Says nothing to the server yet. At most so many redirects are followed.
    pub(crate) fn new(text: String, redirects_max: u32) -> Http {
        Http::with_limit(text, redirects_max, TlsConfig::default(), SLOWNESS)
    }

    /// Believes a server whose certificate is signed by one in this file, and no other.
    pub(crate) fn with_authorities(text: String, redirects_max: u32, path: &Path) -> Result<Http, String> {
        let pem = named_file::read(path)?;
        let items = ureq::tls::parse_pem(&pem).collect::<Result<Vec<_>, _>>();
        let items = items.map_err(|error| format!("{}: {error}", path.display()))?;
        let certificates = items.into_iter().filter_map(|item| match item {
            PemItem::Certificate(certificate) => Some(certificate),
            _ => None,
        });
        let certificates: Vec<_> = certificates.collect();
        if certificates.is_empty() {
            return Err(format!("{}: there is no certificate in it; it is wanted in PEM", path.display()));
        }
        let tls = TlsConfig::builder().root_certs(RootCerts::Specific(Arc::new(certificates))).build();
        Ok(Http::with_limit(text, redirects_max, tls, SLOWNESS))
    }

    fn with_limit(text: String, redirects_max: u32, tls: TlsConfig, slowness: Slowness) -> Http {
        let config = Agent::config_builder()
            .timeout_connect(Some(CONNECT))
            .timeout_recv_response(Some(HEAD))
            .http_status_as_error(false)
            .max_redirects(redirects_max)
            .allow_non_standard_methods(true)
            .tls_config(tls)
            .build();
        Http { config, idle: Mutex::default(), text, slowness }
    }

    pub(crate) fn describe(&self) -> String {
        self.text.clone()
    }

    pub(crate) fn away(&self, why: impl std::fmt::Display) -> VolumeError {
        VolumeError::Away { volume: self.text.clone(), why: why.to_string() }
    }

    /// The same of a request that may have been cancelled.
    fn ended(&self, lease: &Lease<'_>, why: impl std::fmt::Display) -> VolumeError {
        match lease.line().is_cancelled() {
            true => VolumeError::GivenUp { volume: self.text.clone() },
            false => self.away(why),
        }
    }

    fn lease(&self, cancellation: &Cancellation) -> Lease<'_> {
        let idle = self.idle.lock().pop();
        let line = idle.unwrap_or_else(|| Line::new(self.config.clone(), self.slowness));
        line.set_cancellation(cancellation.clone());
        Lease { http: self, line: Some(line) }
    }

    /// When a list that is begun now must have an end.
    pub(crate) fn list_deadline(&self) -> Instant {
        Instant::now() + self.slowness.list
    }

    pub(crate) fn full(&self) -> VolumeError {
        VolumeError::Full { volume: self.text.clone() }
    }

    pub(crate) fn no_object(&self, object: &str) -> VolumeError {
        VolumeError::NoObject { volume: self.text.clone(), object: object.to_owned() }
    }

    fn short(&self, object: &str, length: u64, needed: u64) -> VolumeError {
        VolumeError::Short { volume: self.text.clone(), object: object.to_owned(), length, needed }
    }

    /// Sends a request; the answer's body is still to come.
    pub(crate) fn send(&self, request: Request<&[u8]>) -> Result<Exchange<'_>, VolumeError> {
        let lease = self.lease(&Cancellation::NONE);
        let response = lease.line().agent.run(request).map_err(|error| self.away(error))?;
        Ok(Exchange { response, lease })
    }

    /// Sends a request that has no body.
    pub(crate) fn ask(&self, request: Request<()>, cancellation: &Cancellation) -> Result<Exchange<'_>, VolumeError> {
        let lease = self.lease(cancellation);
        let response = lease.line().agent.run(request).map_err(|error| self.ended(&lease, error))?;
        Ok(Exchange { response, lease })
    }

    /// At most so many bytes of an answer.
    pub(crate) fn read(&self, exchange: Exchange<'_>, most: u64) -> Result<Answer, VolumeError> {
        let Exchange { response, lease } = exchange;
        let status = response.status().as_u16();
        let header = |name| response.headers().get(name).and_then(|value| value.to_str().ok());
        let length = header("content-length").and_then(|text| text.parse::<u64>().ok());
        let from = header("content-range").and_then(range_start);
        let mut body = Vec::with_capacity(length.unwrap_or(0).min(most) as usize);
        let reader = response.into_body().into_reader();
        reader.take(most).read_to_end(&mut body).map_err(|error| self.ended(&lease, error))?;
        Ok(Answer { status, length, from, body })
    }

    /// Reads `into.len()` bytes of an object from `offset` on, with a GET that has no range yet.
    pub(crate) fn get_part(
        &self,
        get: Request<()>,
        object: &str,
        offset: u64,
        into: &mut [u8],
        judge: Judge<'_>,
        cancellation: &Cancellation,
    ) -> Result<(), VolumeError> {
        if into.is_empty() {
            return Ok(());
        }
        let needed = offset + into.len() as u64;
        let exchange = self.ask(with_range(get, offset, needed), cancellation)?;
        // A server that knows no ranges sends all of it.
        let mut answer = self.read(exchange, needed.max(WORDS_BYTES_MAX))?;
        let body = match answer.status {
            // Some servers (rclone) give the range and say 200; what they say of the body counts.
            200 | 206 if answer.from == Some(offset) => std::mem::take(&mut answer.body),
            200 | 206 if answer.from.is_some() => return Err(self.away("it gave another range than was asked for")),
            206 => std::mem::take(&mut answer.body),
            200 => answer.body.split_off((offset as usize).min(answer.body.len())),
            416 => return Err(self.short(object, offset.min(needed), needed)),
            _ => return Err(judge(&answer)),
        };
        match body.get(..into.len()) {
            Some(part) => {
                into.copy_from_slice(part);
                Ok(())
            }
            None => Err(self.short(object, offset + body.len() as u64, needed)),
        }
    }

    /// The same in pieces, as they arrive.
    pub(crate) fn stream_part(
        &self,
        get: Request<()>,
        object: &str,
        (offset, length): (u64, usize),
        take: &Take,
        judge: Judge<'_>,
        cancellation: &Cancellation,
    ) -> Result<(), VolumeError> {
        let needed = offset + length.max(1) as u64;
        let exchange = self.ask(with_range(get, offset, needed), cancellation)?;
        let short = |length: u64| self.short(object, length, needed);
        let status = exchange.response.status().as_u16();
        if !matches!(status, 200 | 206) {
            let answer = self.read(exchange, WORDS_BYTES_MAX)?;
            return Err(if status == 416 { short(offset) } else { judge(&answer) });
        }
        let Exchange { response, lease } = exchange;
        let header = |name| response.headers().get(name).and_then(|value| value.to_str().ok());
        let skipped = match header("content-range").and_then(range_start) {
            Some(from) if from == offset => 0,
            Some(_) => return Err(self.away("it gave another range than was asked for")),
            None if status == 206 => 0,
            // It knows no ranges, and sends all of it.
            None => offset,
        };
        let body_bytes = header("content-length").and_then(|text| text.parse().ok());
        let mut reader = response.into_body().into_reader();
        let passed = std::io::copy(&mut (&mut reader).take(skipped), &mut std::io::sink());
        if passed.map_err(|error| self.ended(&lease, error))? < skipped {
            return Err(short(skipped));
        }
        let mut reader = reader.take(length as u64);
        let given = self.give(&lease, &mut reader, length, take)?;
        if given < length {
            return Err(short(offset + given as u64));
        }
        if body_bytes == Some(skipped + length as u64) {
            // The end is seen, so that the connection serves the next request; nothing depends on it.
            drop(reader.into_inner().read(&mut [0]));
        }
        Ok(())
    }

    /// Hands on what arrives; says how much that was.
    fn give(
        &self,
        lease: &Lease<'_>,
        reader: &mut impl Read,
        length: usize,
        take: &Take,
    ) -> Result<usize, VolumeError> {
        let (mut piece, mut given, mut looked) = (vec![0; PIECE_BYTES.min(length)], 0, 0);
        while given < length {
            if given - looked >= LOOK_BYTES {
                looked = given;
                if lease.line().is_cancelled() {
                    return Err(self.ended(lease, "nobody wants it any more"));
                }
            }
            // Whatever has arrived: who waits for the front of it goes on.
            let count = reader.read(&mut piece).map_err(|error| self.ended(lease, error))?;
            if count == 0 {
                break;
            }
            take(&piece[..count]);
            given += count;
        }
        assert!(given <= length, "{given} bytes of {length} were handed on");
        Ok(given)
    }
}

/// A request for bytes up to `end`, not included.
fn with_range(mut get: Request<()>, start: u64, end: u64) -> Request<()> {
    assert!(start < end, "a range from {start} to {end}");
    let range = format!("bytes={start}-{}", end - 1);
    if let Ok(range) = range.parse() {
        get.headers_mut().insert("range", range);
    }
    get
}

/// The first byte of `bytes 5-9/10`.
fn range_start(text: &str) -> Option<u64> {
    text.trim().strip_prefix("bytes ")?.split_once('-')?.0.trim().parse().ok()
}

#[cfg(test)]
mod tests;
