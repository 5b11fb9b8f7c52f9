//! A folder on a WebDAV server as a volume (RFC 4918).
//!
//! An object is a file. It is stored under another name and moved (`PUT`, `MOVE`), because servers differ in what they do with half a
//! `PUT`. The volume's own folder is never made here, as with directories: where a disk is not mounted behind the server, nothing is
//! written beside it; folders in it are.
//!
//! Invariants: redirects are not followed and name and password go to the server that was named, so nobody else gets them. Whether an
//! object is missing, only a server that has the volume's folder can say.
//! Read next: `http.rs`, `dav/multistatus.rs`.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use base64::Engine;
use parking_lot::Mutex;
use stere_device::{Cancellation, MediumWait, Take, Volume, VolumeError};
use ureq::http::{HeaderValue, Method, Request};
use url::Url;

use crate::http::{Answer, Exchange, Http, WORDS_BYTES_MAX};
use crate::partial::{Partials, is_partial};
use crate::place::{DavPlace, PlaceError};
use crate::{LIST_WITHOUT_END, NAMES_MAX, named_file};

pub mod multistatus;

use multistatus::Member;

/// What is asked of a folder and what is in it.
const PROPERTIES: &str = concat!(
    r#"<?xml version="1.0" encoding="utf-8"?><propfind xmlns="DAV:">"#,
    "<prop><resourcetype/><getcontentlength/></prop></propfind>"
);
/// A server that did something for the volume just now has its folder still.
const STILL: Duration = Duration::from_secs(10);

/// A folder on a WebDAV server.
pub struct DavVolume {
    pub(crate) http: Http,
    folder: Url,
    authorization: Option<HeaderValue>,
    partials: Partials,
    /// Folders in the volume's that are there.
    folders: Mutex<BTreeSet<String>>,
    /// When the server did something for the volume last.
    seen: Mutex<Option<Instant>>,
}

impl DavVolume {
    /// Says nothing to the server yet.
    pub fn new(place: &DavPlace) -> Result<DavVolume, String> {
        let folder = place.url.clone();
        let scheme = if folder.scheme() == "https" { "davs" } else { "dav" };
        let text = folder.as_str().trim_end_matches('/').replacen(folder.scheme(), scheme, 1);
        let authorization = match &place.credentials {
            Some(path) => Some(authorization(path, folder.host_str().unwrap_or_default())?),
            None => None,
        };
        let http = match &place.authorities {
            Some(path) => Http::with_authorities(text, 0, path)?,
            None => Http::new(text, 0),
        };
        let (partials, folders, seen) = Default::default();
        Ok(DavVolume { http, folder, authorization, partials, folders, seen })
    }

    /// The same for a place in words.
    pub fn open(place: &str) -> Result<DavVolume, String> {
        let place: DavPlace = place.parse().map_err(|error: PlaceError| error.to_string())?;
        DavVolume::new(&place)
    }

    fn url(&self, object: &str) -> Url {
        let is_plain = |part: &str| !part.is_empty() && part != "." && part != "..";
        assert!(object.split('/').all(is_plain), "an object's name leads nowhere else: {object}");
        let mut url = self.folder.clone();
        if let Ok(mut parts) = url.path_segments_mut() {
            parts.pop_if_empty().extend(object.split('/'));
        }
        url
    }

    fn request<B>(
        &self,
        method: &str,
        url: &Url,
        headers: &[(&str, &str)],
        body: B,
    ) -> Result<Request<B>, VolumeError> {
        let method = Method::from_bytes(method.as_bytes()).map_err(|error| self.http.away(error))?;
        let mut request = Request::builder().method(method).uri(url.as_str());
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        if let Some(value) = &self.authorization {
            request = request.header("authorization", value);
        }
        request.body(body).map_err(|error| self.http.away(error))
    }

    fn ask(&self, method: &str, url: &Url, headers: &[(&str, &str)]) -> Result<Answer, VolumeError> {
        self.ask_for(method, url, headers, &Cancellation::NONE)
    }

    fn ask_for(
        &self,
        method: &str,
        url: &Url,
        headers: &[(&str, &str)],
        cancellation: &Cancellation,
    ) -> Result<Answer, VolumeError> {
        let response = self.http.ask(self.request(method, url, headers, ())?, cancellation)?;
        self.http.read(response, if method == "HEAD" { 0 } else { WORDS_BYTES_MAX })
    }

    /// Whatever is no success, in words.
    fn refused(&self, answer: &Answer) -> VolumeError {
        match answer.status {
            507 => self.http.full(),
            401 | 403 if self.authorization.is_none() => self.http.away(format!(
                "the server answers {}: it wants to know who asks; name a file with user= and password= as credentials=",
                answer.status
            )),
            status @ (401 | 403) => self.http.away(format!("the server refuses the user and the password: {status}")),
            status @ 300..=399 => self.http.away(format!("the server answers {status}: it sends elsewhere; name that place")),
            404 | 409 => self.http.away("the server has no such folder; make it, or mount what it lies on"),
            413 => self.http.away("the server answers 413: it takes no files of this size; it can be told to"),
            status @ (405 | 501) => self.http.away(format!("the server answers {status}: this is no WebDAV, or it takes no changes")),
            status => self.http.away(format!("the server answers {status}")),
        }
    }

    fn note(&self) {
        *self.seen.lock() = Some(Instant::now());
    }

    /// What the server says of a folder, and of what is in it with `depth` 1.
    fn properties(&self, url: &Url, depth: &str) -> Result<Option<Vec<Member>>, VolumeError> {
        let headers = [("depth", depth), ("content-type", "application/xml; charset=utf-8")];
        let exchange = self.http.send(self.request("PROPFIND", url, &headers, PROPERTIES.as_bytes())?)?;
        match exchange.response.status().as_u16() {
            207 => {
                let Exchange { response, lease: _until_read } = exchange;
                let body = Timed { inner: response.into_body().into_reader(), deadline: self.http.list_deadline() };
                let body = std::io::BufReader::with_capacity(64 << 10, body);
                multistatus::read(body).map(Some).map_err(|error| self.http.away(error))
            }
            404 => Ok(None),
            _ => Err(self.refused(&self.http.read(exchange, WORDS_BYTES_MAX)?)),
        }
    }

    /// An object, or a folder in the volume's, that the server does not know is only missing if it knows the volume's.
    fn missing(&self, object: &str) -> VolumeError {
        match self.properties(&self.folder, "0") {
            Ok(Some(found)) if found.iter().any(|member| member.is_folder) => {
                self.note();
                self.http.no_object(object)
            }
            Ok(_) => self.http.away("the server has no such folder; make it, or mount what it lies on"),
            Err(error) => error,
        }
    }

    fn not_given(&self, object: &str, answer: &Answer) -> VolumeError {
        if answer.status == 404 { self.missing(object) } else { self.refused(answer) }
    }

    /// Makes the folder of an object in the volume's own, which must be there. Not when it turns out to be missing: a server may refuse an
    /// object by closing the connection, and its answer is lost.
    fn prepare(&self, object: &str) -> Result<(), VolumeError> {
        let Some((above, _)) = object.rsplit_once('/') else { return Ok(()) };
        if self.folders.lock().contains(above) {
            return Ok(());
        }
        match self.missing(object) {
            VolumeError::NoObject { .. } => {}
            error => return Err(error),
        }
        let answer = self.ask("MKCOL", &folder_of(self.url(above)), &[])?;
        // 405: it was there.
        if !matches!(answer.status, 201 | 405) {
            return Err(self.refused(&answer));
        }
        self.folders.lock().insert(above.to_owned());
        Ok(())
    }

    fn send(&self, object: &str, bytes: &[u8]) -> Result<Answer, VolumeError> {
        let headers = [("content-type", "application/octet-stream")];
        let response = self.http.send(self.request("PUT", &self.url(object), &headers, bytes)?)?;
        self.http.read(response, WORDS_BYTES_MAX)
    }

    /// Under another name, and moved when it is whole.
    fn put_as(&self, partial: &str, object: &str, bytes: &[u8]) -> Result<(), VolumeError> {
        self.prepare(object)?;
        let answer = self.send(partial, bytes)?;
        if answer.status / 100 != 2 {
            return Err(self.refused(&answer));
        }
        let to = self.url(object);
        let answer = self.ask("MOVE", &self.url(partial), &[("destination", to.as_str()), ("overwrite", "T")])?;
        if matches!(answer.status, 201 | 204) { Ok(()) } else { Err(self.refused(&answer)) }
    }

    /// What is in one folder, without those that are not whole yet; none if it is not there.
    fn members(&self, folder: &Url) -> Result<Option<Vec<Member>>, VolumeError> {
        let Some(found) = self.properties(folder, "1")? else { return Ok(None) };
        let depth = folder.path_segments().into_iter().flatten().filter(|part| !part.is_empty()).count();
        // Behind some proxies paths have other fronts; that is no list of this folder.
        if !found.iter().any(|member| member.is_folder && member.path.len() == depth) {
            return Err(self.http.away("its list is of another folder than was asked for"));
        }
        let is_in = |member: &Member| {
            member.path.len() == depth + 1 && !member.path[depth].contains('/') && !is_partial(&member.path[depth])
        };
        Ok(Some(found.into_iter().filter(is_in).collect()))
    }
}

/// An answer that must have an end by then.
struct Timed<R> {
    inner: R,
    deadline: Instant,
}

impl<R: std::io::Read> std::io::Read for Timed<R> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        if Instant::now() > self.deadline {
            return Err(std::io::Error::new(std::io::ErrorKind::TimedOut, LIST_WITHOUT_END));
        }
        self.inner.read(into)
    }
}

/// A folder's URL ends with a slash: some servers insist.
fn folder_of(mut url: Url) -> Url {
    if let Ok(mut parts) = url.path_segments_mut() {
        parts.pop_if_empty().push("");
    }
    assert!(url.path().ends_with('/'), "a folder ends with a slash: {url}");
    url
}

/// The header that says who asks, from a file.
fn authorization(path: &Path, host: &str) -> Result<HeaderValue, String> {
    let text = named_file::read_text(path)?;
    let value = |key: &str| {
        text.lines().find_map(|line| line.trim().strip_prefix(key)?.trim_start().strip_prefix('=').map(str::trim))
    };
    if let Some(only) = value("host").filter(|only| *only != host) {
        return Err(format!("{}: it is for the host {only} and is not told to {host}", path.display()));
    }
    let (Some(user), Some(password)) = (value("user"), value("password")) else {
        return Err(format!("{}: it needs the lines user= and password=", path.display()));
    };
    if user.contains(':') {
        return Err(format!("{}: a user's name has no colon here", path.display()));
    }
    let text = base64::engine::general_purpose::STANDARD.encode(format!("{user}:{password}"));
    let mut value = HeaderValue::from_str(&format!("Basic {text}")).map_err(|error| error.to_string())?;
    value.set_sensitive(true);
    Ok(value)
}

impl Volume for DavVolume {
    fn put(&self, object: &str, bytes: &[u8]) -> Result<(), VolumeError> {
        let partial = self.partials.take(object);
        let outcome = self.put_as(&partial.name, object, bytes);
        match &outcome {
            Ok(()) => self.note(),
            Err(error) => {
                // What is missing will be looked for again.
                self.folders.lock().clear();
                // Nothing waits for a server that is gone a second time.
                if matches!(error, VolumeError::Full { .. }) {
                    drop(self.ask("DELETE", &self.url(&partial.name), &[]));
                }
            }
        }
        outcome
    }

    fn get(&self, object: &str, offset: u64, into: &mut [u8], wait: &MediumWait) -> Result<(), VolumeError> {
        let request = self.request("GET", &self.url(object), &[], ())?;
        let judge = |answer: &Answer| self.not_given(object, answer);
        let outcome = self.http.get_part(request, object, offset, into, &judge, &wait.cancellation);
        outcome.inspect(|()| self.note())
    }

    fn stream(&self, object: &str, length: usize, take: &Take, cancellation: &Cancellation) -> Result<(), VolumeError> {
        self.stream_part(object, 0, length, take, cancellation)
    }

    fn stream_part(
        &self,
        object: &str,
        offset: u64,
        length: usize,
        take: &Take,
        cancellation: &Cancellation,
    ) -> Result<(), VolumeError> {
        let request = self.request("GET", &self.url(object), &[], ())?;
        let judge = |answer: &Answer| self.not_given(object, answer);
        self.http.stream_part(request, object, (offset, length), take, &judge, cancellation).inspect(|()| self.note())
    }

    fn length(&self, object: &str) -> Result<Option<u64>, VolumeError> {
        self.length_for(object, &Cancellation::NONE)
    }

    fn length_for(&self, object: &str, cancellation: &Cancellation) -> Result<Option<u64>, VolumeError> {
        let answer = self.ask_for("HEAD", &self.url(object), &[], cancellation)?;
        match answer.status {
            200 => Ok(Some(answer.length.unwrap_or(0))),
            // What is asked before each object is stored costs no second request.
            404 if self.seen.lock().is_some_and(|seen| seen.elapsed() < STILL) => Ok(None),
            404 => match self.missing(object) {
                VolumeError::NoObject { .. } => Ok(None),
                error => Err(error),
            },
            _ => Err(self.refused(&answer)),
        }
    }

    fn delete(&self, object: &str) -> Result<(), VolumeError> {
        let answer = self.ask("DELETE", &self.url(object), &[])?;
        match answer.status {
            200..=299 => Ok(()),
            404 => match self.missing(object) {
                VolumeError::NoObject { .. } => Ok(()),
                error => Err(error),
            },
            _ => Err(self.refused(&answer)),
        }
    }

    fn list(&self, prefix: &str) -> Result<Vec<(String, u64)>, VolumeError> {
        let mut found = Vec::new();
        let mut take = |before: &str, members: Vec<Member>| {
            let files = members.into_iter().filter(|member| !member.is_folder);
            let named =
                files.filter_map(|mut member| Some((format!("{before}{}", member.path.pop()?), member.length?)));
            found.extend(named.filter(|(name, _)| name.starts_with(prefix)));
        };
        let folders = match prefix.rsplit_once('/') {
            Some((folder, _)) => vec![folder.to_owned()],
            None => {
                let members = self.members(&self.folder)?;
                let members = members.ok_or_else(|| self.missing("")).or_else(|error| match error {
                    VolumeError::NoObject { .. } => Ok(Vec::new()),
                    error => Err(error),
                })?;
                let folders = members.iter().filter(|member| member.is_folder);
                let names =
                    folders.filter_map(|member| member.path.last().cloned()).filter(|name| name.starts_with(prefix));
                let names = names.collect();
                take("", members);
                names
            }
        };
        let (mut names, deadline) = (0, self.http.list_deadline());
        for folder in folders {
            match self.members(&folder_of(self.url(&folder)))? {
                Some(members) => {
                    names += members.len();
                    if names > NAMES_MAX || Instant::now() > deadline {
                        return Err(self.http.away(LIST_WITHOUT_END));
                    }
                    take(&format!("{folder}/"), members);
                }
                None => match self.missing(&folder) {
                    VolumeError::NoObject { .. } => {}
                    error => return Err(error),
                },
            }
        }
        found.sort_unstable();
        self.note();
        Ok(found)
    }

    fn describe(&self) -> String {
        self.http.describe()
    }
}

#[cfg(test)]
mod tests;
