//! A bucket as a volume.

use std::io::Read;
use std::time::Duration;

use rusty_s3::actions::ListObjectsV2;
use rusty_s3::{Bucket, Credentials, S3Action, UrlStyle};
use stere_device::{LOOK_BYTES, PIECE_BYTES, Patience, Take, Volume, VolumeError, waiting};
use ureq::Agent;

mod patient;

use crate::place::{Place, PlaceError};

/// How long a signed request may be used.
const SIGNED: Duration = Duration::from_secs(300);
/// A server that says nothing for so long is away.
const ANSWER: Duration = Duration::from_secs(60);
const CONNECT: Duration = Duration::from_secs(10);
/// Answers that are looked at for words are not longer.
const WORDS_BYTES_MAX: u64 = 4 << 20;

/// A bucket, or a prefix in one.
pub struct S3Volume {
    bucket: Bucket,
    prefix: String,
    credentials: Credentials,
    agent: Agent,
    text: String,
}

/// What a server answered.
struct Answer {
    status: u16,
    length: Option<u64>,
    /// Where the body begins in the object, if it was said.
    from: Option<u64>,
    body: Vec<u8>,
}

impl S3Volume {
    /// Says nothing to the server yet.
    pub fn new(place: &Place) -> Result<S3Volume, String> {
        let bucket = Bucket::new(place.endpoint.clone(), UrlStyle::Path, place.bucket.clone(), place.region.clone());
        let bucket = bucket.map_err(|error| format!("s3://{}: {error}", place.bucket))?;
        let config = Agent::config_builder()
            .timeout_connect(Some(CONNECT))
            .timeout_recv_response(Some(ANSWER))
            .timeout_recv_body(Some(ANSWER))
            .timeout_send_body(Some(ANSWER))
            .http_status_as_error(false)
            .build();
        let text = format!("s3://{}/{}", place.bucket, place.prefix);
        let credentials = credentials(place)?;
        Ok(S3Volume { bucket, prefix: place.prefix.clone(), credentials, agent: patient::agent(config), text })
    }

    /// The same for a place in words.
    pub fn open(place: &str) -> Result<S3Volume, String> {
        let place: Place = place.parse().map_err(|error: PlaceError| error.to_string())?;
        S3Volume::new(&place)
    }

    fn key(&self, object: &str) -> String {
        if self.prefix.is_empty() { object.to_owned() } else { format!("{}/{object}", self.prefix) }
    }

    fn away(&self, why: impl std::fmt::Display) -> VolumeError {
        if waiting::is_given_up() {
            return self.given_up();
        }
        VolumeError::Away { volume: self.text.clone(), why: why.to_string() }
    }

    fn given_up(&self) -> VolumeError {
        VolumeError::GivenUp { volume: self.text.clone() }
    }

    fn no_object(&self, object: &str) -> VolumeError {
        VolumeError::NoObject { volume: self.text.clone(), object: object.to_owned() }
    }

    /// Whatever is no success, in words.
    fn refused(&self, answer: &Answer) -> VolumeError {
        let words = String::from_utf8_lossy(&answer.body);
        let code =
            words.split_once("<Code>").and_then(|(_, rest)| rest.split_once("</Code>")).map_or("", |(code, _)| code);
        match (answer.status, code) {
            (507, _) | (_, "QuotaExceeded" | "XMinioStorageFull") => VolumeError::Full { volume: self.text.clone() },
            (403, _) => self.away(format!("the server refuses the credentials: {} {code}", answer.status)),
            (status, code) => self.away(format!("the server answers {status} {code}")),
        }
    }

    fn read(&self, response: ureq::http::Response<ureq::Body>, most: u64) -> Result<Answer, VolumeError> {
        let status = response.status().as_u16();
        let header = |name| response.headers().get(name).and_then(|value| value.to_str().ok());
        let length = header("content-length").and_then(|text| text.parse::<u64>().ok());
        let from = header("content-range").and_then(range_start);
        let mut body = Vec::with_capacity(length.unwrap_or(0).min(most) as usize);
        let reader = response.into_body().into_reader();
        reader.take(most).read_to_end(&mut body).map_err(|error| self.away(error))?;
        Ok(Answer { status, length, from, body })
    }
}

/// The keys from a file, or from the environment.
fn credentials(place: &Place) -> Result<Credentials, String> {
    let (mut access, mut secret) =
        (std::env::var("AWS_ACCESS_KEY_ID").ok(), std::env::var("AWS_SECRET_ACCESS_KEY").ok());
    if let Some(path) = &place.credentials {
        let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
        let value = |key: &str| {
            text.lines().find_map(|line| {
                line.trim().strip_prefix(key)?.trim_start().strip_prefix('=').map(|value| value.trim().to_owned())
            })
        };
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
        let response = self.agent.put(url.as_str()).send(bytes).map_err(|error| self.away(error))?;
        let answer = self.read(response, WORDS_BYTES_MAX)?;
        if answer.status / 100 == 2 { Ok(()) } else { Err(self.refused(&answer)) }
    }

    fn get(&self, object: &str, offset: u64, into: &mut [u8], _: Patience) -> Result<(), VolumeError> {
        if into.is_empty() {
            return Ok(());
        }
        let key = self.key(object);
        let url = self.bucket.get_object(Some(&self.credentials), &key).sign(SIGNED);
        let needed = offset + into.len() as u64;
        let range = format!("bytes={offset}-{}", needed - 1);
        let response = self.agent.get(url.as_str()).header("range", range).call().map_err(|error| self.away(error))?;
        // A server that knows no ranges sends all of it.
        let mut answer = self.read(response, needed.max(WORDS_BYTES_MAX))?;
        let short =
            |length: u64| VolumeError::Short { volume: self.text.clone(), object: object.to_owned(), length, needed };
        let body = match answer.status {
            // Some servers (rclone) give the range and say 200; what they say of the body counts.
            200 | 206 if answer.from == Some(offset) => std::mem::take(&mut answer.body),
            200 | 206 if answer.from.is_some() => return Err(self.away("it gave another range than was asked for")),
            206 => std::mem::take(&mut answer.body),
            200 => answer.body.split_off((offset as usize).min(answer.body.len())),
            416 => return Err(short(offset.min(needed))),
            404 if is_no_such_key(&answer) => return Err(self.no_object(object)),
            _ => return Err(self.refused(&answer)),
        };
        match body.get(..into.len()) {
            Some(part) => {
                into.copy_from_slice(part);
                Ok(())
            }
            None => Err(short(offset + body.len() as u64)),
        }
    }

    fn stream(&self, object: &str, length: usize, take: &Take) -> Result<(), VolumeError> {
        self.stream_part(object, 0, length, take)
    }

    fn stream_part(&self, object: &str, offset: u64, length: usize, take: &Take) -> Result<(), VolumeError> {
        let key = self.key(object);
        let url = self.bucket.get_object(Some(&self.credentials), &key).sign(SIGNED);
        let needed = offset + length.max(1) as u64;
        let range = format!("bytes={offset}-{}", needed - 1);
        let response = self.agent.get(url.as_str()).header("range", range).call().map_err(|error| self.away(error))?;
        let short =
            |length: u64| VolumeError::Short { volume: self.text.clone(), object: object.to_owned(), length, needed };
        let status = response.status().as_u16();
        if !matches!(status, 200 | 206) {
            let answer = self.read(response, WORDS_BYTES_MAX)?;
            return Err(match answer.status {
                404 if is_no_such_key(&answer) => self.no_object(object),
                416 => short(offset),
                _ => self.refused(&answer),
            });
        }
        let said = response.headers().get("content-range").and_then(|value| value.to_str().ok()).and_then(range_start);
        let skipped = match said {
            Some(from) if from == offset => 0,
            Some(_) => return Err(self.away("it gave another range than was asked for")),
            None if status == 206 => 0,
            // It knows no ranges, and sends all of it.
            None => offset,
        };
        let body_bytes = response.headers().get("content-length").and_then(|value| value.to_str().ok()?.parse().ok());
        let mut reader = response.into_body().into_reader();
        let passed = std::io::copy(&mut (&mut reader).take(skipped), &mut std::io::sink());
        if passed.map_err(|error| self.away(error))? < skipped {
            return Err(short(skipped));
        }
        let mut reader = reader.take(length as u64);
        let (mut piece, mut given, mut looked) = (vec![0; PIECE_BYTES.min(length)], 0, 0);
        while given < length {
            if given - looked >= LOOK_BYTES {
                looked = given;
                if waiting::is_given_up() {
                    return Err(self.given_up());
                }
            }
            // Whatever has arrived: who waits for the front of it goes on.
            let count = reader.read(&mut piece).map_err(|error| self.away(error))?;
            if count == 0 {
                return Err(short(offset + given as u64));
            }
            take(&piece[..count]);
            given += count;
        }
        if body_bytes == Some(skipped + length as u64) {
            // The end is seen, so that the connection serves the next request; nothing depends on it.
            drop(reader.into_inner().read(&mut [0]));
        }
        Ok(())
    }

    fn length(&self, object: &str) -> Result<Option<u64>, VolumeError> {
        let key = self.key(object);
        let url = self.bucket.head_object(Some(&self.credentials), &key).sign(SIGNED);
        let response = self.agent.head(url.as_str()).call().map_err(|error| self.away(error))?;
        let answer = self.read(response, 0)?;
        match answer.status {
            200 => Ok(Some(answer.length.unwrap_or(0))),
            404 => Ok(None),
            _ => Err(self.refused(&answer)),
        }
    }

    fn delete(&self, object: &str) -> Result<(), VolumeError> {
        let key = self.key(object);
        let url = self.bucket.delete_object(Some(&self.credentials), &key).sign(SIGNED);
        let response = self.agent.delete(url.as_str()).call().map_err(|error| self.away(error))?;
        let answer = self.read(response, WORDS_BYTES_MAX)?;
        let is_gone = answer.status == 404 && is_no_such_key(&answer);
        if answer.status / 100 == 2 || is_gone { Ok(()) } else { Err(self.refused(&answer)) }
    }

    fn list(&self, prefix: &str) -> Result<Vec<(String, u64)>, VolumeError> {
        let (mut found, mut token) = (Vec::new(), None::<String>);
        let wanted = self.key(prefix);
        loop {
            let mut action: ListObjectsV2<'_> = self.bucket.list_objects_v2(Some(&self.credentials));
            action.with_prefix(wanted.clone());
            if let Some(token) = token.take() {
                action.with_continuation_token(token);
            }
            let url = action.sign(SIGNED);
            let response = self.agent.get(url.as_str()).call().map_err(|error| self.away(error))?;
            let answer = self.read(response, WORDS_BYTES_MAX)?;
            if answer.status != 200 {
                return Err(self.refused(&answer));
            }
            let text = String::from_utf8_lossy(&answer.body);
            let page = ListObjectsV2::parse_response(&text)
                .map_err(|error| self.away(format!("its list is not understood: {error}")))?;
            let before = if self.prefix.is_empty() { 0 } else { self.prefix.len() + 1 };
            // Names are escaped in answers, but ours have nothing to escape behind the prefix.
            found.extend(
                page.contents.into_iter().filter_map(|one| Some((one.key.get(before..)?.to_owned(), one.size))),
            );
            match page.next_continuation_token {
                Some(next) => token = Some(next),
                None => break,
            }
        }
        found.sort_unstable();
        Ok(found)
    }

    fn describe(&self) -> String {
        self.text.clone()
    }
}

/// The first byte of `bytes 5-9/10`.
fn range_start(text: &str) -> Option<u64> {
    text.trim().strip_prefix("bytes ")?.split_once('-')?.0.trim().parse().ok()
}

/// A missing bucket is a volume that is away, not an object that is missing.
fn is_no_such_key(answer: &Answer) -> bool {
    let words = String::from_utf8_lossy(&answer.body);
    !words.contains("NoSuchBucket")
}

#[cfg(test)]
mod tests;
