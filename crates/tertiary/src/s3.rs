//! A bucket as a volume.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use rusty_s3::actions::{ListObjectsV2, ListObjectsV2Response};
use rusty_s3::{Bucket, Credentials, S3Action, UrlStyle};
use stere_device::{Cancellation, MediumWait, Take, Volume, VolumeError};
use ureq::http::{Method, Request};
use url::Url;

use crate::http::{Answer, Http, WORDS_BYTES_MAX};
use crate::place::{Place, PlaceError};
use crate::{LIST_WITHOUT_END, NAMES_MAX, named_file};

/// How long a signed request may be used.
const SIGNED: Duration = Duration::from_secs(300);
/// Some servers send those who ask to another of theirs.
const REDIRECTS_MAX: u32 = 10;
/// Pages in a row without a name; some servers send one where much was deleted.
const EMPTY_PAGES_MAX: usize = 1000;
/// Words with which a server wants to be asked for the next page; they are kept to know one that comes twice.
const TOKEN_BYTES_MAX: usize = 8 << 10;

/// A bucket, or a prefix in one.
pub struct S3Volume {
    bucket: Bucket,
    prefix: String,
    credentials: Credentials,
    pub(crate) http: Http,
}

impl S3Volume {
    /// Says nothing to the server yet.
    pub fn new(place: &Place) -> Result<S3Volume, String> {
        let bucket = Bucket::new(place.endpoint.clone(), UrlStyle::Path, place.bucket.clone(), place.region.clone());
        let bucket = bucket.map_err(|error| format!("s3://{}: {error}", place.bucket))?;
        let text = format!("s3://{}/{}", place.bucket, place.prefix);
        let http = Http::new(text, REDIRECTS_MAX);
        Ok(S3Volume { bucket, prefix: place.prefix.clone(), credentials: credentials(place)?, http })
    }

    /// The same for a place in words.
    pub fn open(place: &str) -> Result<S3Volume, String> {
        let place: Place = place.parse().map_err(|error: PlaceError| error.to_string())?;
        S3Volume::new(&place)
    }

    fn key(&self, object: &str) -> String {
        if self.prefix.is_empty() { object.to_owned() } else { format!("{}/{object}", self.prefix) }
    }

    fn request(&self, method: Method, url: &Url) -> Result<Request<()>, VolumeError> {
        Request::builder().method(method).uri(url.as_str()).body(()).map_err(|error| self.http.away(error))
    }

    fn ask(&self, method: Method, url: &Url, most: u64) -> Result<Answer, VolumeError> {
        self.http.read(self.http.ask(self.request(method, url)?, &Cancellation::NONE)?, most)
    }

    fn get_request(&self, object: &str) -> Result<Request<()>, VolumeError> {
        let key = self.key(object);
        self.request(Method::GET, &self.bucket.get_object(Some(&self.credentials), &key).sign(SIGNED))
    }

    /// One page of a list.
    fn list_page(&self, prefix: &str, token: Option<String>) -> Result<ListObjectsV2Response, VolumeError> {
        let mut action: ListObjectsV2<'_> = self.bucket.list_objects_v2(Some(&self.credentials));
        action.with_prefix(prefix.to_owned());
        if let Some(token) = token {
            action.with_continuation_token(token);
        }
        let answer = self.ask(Method::GET, &action.sign(SIGNED), WORDS_BYTES_MAX)?;
        if answer.status != 200 {
            return Err(self.refused(&answer));
        }
        let text = String::from_utf8_lossy(&answer.body);
        ListObjectsV2::parse_response(&text)
            .map_err(|error| self.http.away(format!("its list is not understood: {error}")))
    }

    /// Why an object was not given.
    fn not_given(&self, object: &str, answer: &Answer) -> VolumeError {
        match answer.status {
            404 if is_no_such_key(answer) => self.http.no_object(object),
            _ => self.refused(answer),
        }
    }

    /// Whatever is no success, in words.
    fn refused(&self, answer: &Answer) -> VolumeError {
        let words = String::from_utf8_lossy(&answer.body);
        let code =
            words.split_once("<Code>").and_then(|(_, rest)| rest.split_once("</Code>")).map_or("", |(code, _)| code);
        match (answer.status, code) {
            (507, _) | (_, "QuotaExceeded" | "XMinioStorageFull") => self.http.full(),
            (403, _) => self.http.away(format!("the server refuses the credentials: {} {code}", answer.status)),
            (status, code) => self.http.away(format!("the server answers {status} {code}")),
        }
    }
}

/// The keys from a file, or from the environment.
fn credentials(place: &Place) -> Result<Credentials, String> {
    let (mut access, mut secret) =
        (std::env::var("AWS_ACCESS_KEY_ID").ok(), std::env::var("AWS_SECRET_ACCESS_KEY").ok());
    if let Some(path) = &place.credentials {
        let text = named_file::read_text(path)?;
        let value = |key: &str| {
            text.lines().find_map(|line| {
                line.trim().strip_prefix(key)?.trim_start().strip_prefix('=').map(|value| value.trim().to_owned())
            })
        };
        if let Some(host) = value("host").filter(|host| place.endpoint.host_str() != Some(host)) {
            return Err(format!("{} is for {host}, and not for this server; name another file", path.display()));
        }
        (access, secret) = (value("access_key"), value("secret_key"));
    }
    match (access, secret) {
        (Some(access), Some(secret)) => Ok(Credentials::new(access, secret)),
        _ => Err(format!(
            "s3://{}: there are no credentials; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or name a file with \
             access_key= and secret_key= as credentials=",
            place.bucket
        )),
    }
}

impl Volume for S3Volume {
    fn put(&self, object: &str, bytes: &[u8]) -> Result<(), VolumeError> {
        let key = self.key(object);
        let url = self.bucket.put_object(Some(&self.credentials), &key).sign(SIGNED);
        let request = Request::builder().method(Method::PUT).uri(url.as_str()).body(bytes);
        let response = self.http.send(request.map_err(|error| self.http.away(error))?)?;
        let answer = self.http.read(response, WORDS_BYTES_MAX)?;
        if answer.status / 100 == 2 { Ok(()) } else { Err(self.refused(&answer)) }
    }

    fn get(&self, object: &str, offset: u64, into: &mut [u8], wait: &MediumWait) -> Result<(), VolumeError> {
        let judge = |answer: &Answer| self.not_given(object, answer);
        self.http.get_part(self.get_request(object)?, object, offset, into, &judge, &wait.cancellation)
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
        let judge = |answer: &Answer| self.not_given(object, answer);
        self.http.stream_part(self.get_request(object)?, object, (offset, length), take, &judge, cancellation)
    }

    fn length(&self, object: &str) -> Result<Option<u64>, VolumeError> {
        self.length_for(object, &Cancellation::NONE)
    }

    fn length_for(&self, object: &str, cancellation: &Cancellation) -> Result<Option<u64>, VolumeError> {
        let key = self.key(object);
        let url = self.bucket.head_object(Some(&self.credentials), &key).sign(SIGNED);
        let exchange = self.http.ask(self.request(Method::HEAD, &url)?, cancellation)?;
        let answer = self.http.read(exchange, 0)?;
        match answer.status {
            200 => Ok(Some(answer.length.unwrap_or(0))),
            404 => Ok(None),
            _ => Err(self.refused(&answer)),
        }
    }

    fn delete(&self, object: &str) -> Result<(), VolumeError> {
        let key = self.key(object);
        let url = self.bucket.delete_object(Some(&self.credentials), &key).sign(SIGNED);
        let answer = self.ask(Method::DELETE, &url, WORDS_BYTES_MAX)?;
        let is_gone = answer.status == 404 && is_no_such_key(&answer);
        if answer.status / 100 == 2 || is_gone { Ok(()) } else { Err(self.refused(&answer)) }
    }

    fn list(&self, prefix: &str) -> Result<Vec<(String, u64)>, VolumeError> {
        let (mut found, mut token) = (Vec::new(), None::<String>);
        let (mut tokens, mut empty_pages) = (HashSet::new(), 0);
        let (wanted, deadline) = (self.key(prefix), self.http.list_deadline());
        let before = if self.prefix.is_empty() { 0 } else { self.prefix.len() + 1 };
        loop {
            let page = self.list_page(&wanted, token.take())?;
            empty_pages = if page.contents.is_empty() { empty_pages + 1 } else { 0 };
            // Names are escaped in answers, but ours have nothing to escape behind the prefix.
            found.extend(
                page.contents.into_iter().filter_map(|one| Some((one.key.get(before..)?.to_owned(), one.size))),
            );
            let Some(next) = page.next_continuation_token else { break };
            // Each page goes on from the one before; a server whose pages do not would be asked for ever.
            let is_long = found.len() > NAMES_MAX || empty_pages > EMPTY_PAGES_MAX || next.len() > TOKEN_BYTES_MAX;
            if is_long || Instant::now() > deadline || !tokens.insert(next.clone()) {
                return Err(self.http.away(LIST_WITHOUT_END));
            }
            token = Some(next);
        }
        found.sort_unstable();
        Ok(found)
    }

    fn describe(&self) -> String {
        self.http.describe()
    }
}

/// A missing bucket is a volume that is away, not an object that is missing.
fn is_no_such_key(answer: &Answer) -> bool {
    let words = String::from_utf8_lossy(&answer.body);
    !words.contains("NoSuchBucket")
}

#[cfg(test)]
mod tests;
