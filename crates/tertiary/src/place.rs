//! Where a volume on another machine is, as people write it. A bucket here: `s3://bucket/prefix,endpoint=URL,region=NAME,credentials=FILE`;
//! others beside it.
//!
//! Places stand in the pool and are opened when it is mounted, whoever wrote them: so nothing in them may run a program or look like an
//! option of one, and secrets are in files that they name.

use std::path::PathBuf;
use std::str::FromStr;

use url::Url;

mod dav;
mod sftp;

pub use dav::DavPlace;
pub use sftp::SftpPlace;

/// A bucket, a prefix in it, and how to get there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    pub bucket: String,
    /// Without a slash at its ends; empty for the whole bucket.
    pub prefix: String,
    pub endpoint: Url,
    pub region: String,
    /// A file with `access_key=` and `secret_key=` in lines, and perhaps `host=`: then they are used for that server only; the environment's `AWS_ACCESS_KEY_ID` and `AWS_SECRET_ACCESS_KEY` if not given.
    pub credentials: Option<PathBuf>,
}

/// What is wrong with a place.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{place}' is no {what}: {why}; write {form}")]
pub struct PlaceError {
    place: String,
    what: &'static str,
    why: String,
    form: &'static str,
}

/// Where buckets are if nobody says so.
const REGION: &str = "us-east-1";
const FORM: &str = "s3://bucket/prefix,endpoint=https://server[,region=NAME][,credentials=FILE]";

impl FromStr for Place {
    type Err = PlaceError;

    fn from_str(text: &str) -> Result<Place, PlaceError> {
        let wrong = |why: &str| PlaceError { place: text.to_owned(), what: "bucket", why: why.to_owned(), form: FORM };
        let rest = text.strip_prefix("s3://").ok_or_else(|| wrong("it does not begin with s3://"))?;
        let mut parts = rest.split(',');
        let path = parts.next().unwrap_or_default();
        let (bucket, prefix) = path.split_once('/').unwrap_or((path, ""));
        if bucket.is_empty() {
            return Err(wrong("it names no bucket"));
        }
        let (mut endpoint, mut region, mut credentials) = (None, REGION.to_owned(), None);
        for part in parts {
            match part.split_once('=') {
                Some(("endpoint", value)) => {
                    endpoint =
                        Some(Url::parse(value).map_err(|error| wrong(&format!("its endpoint is no URL ({error})")))?);
                }
                Some(("region", value)) => region = value.to_owned(),
                Some(("credentials", value)) => credentials = Some(PathBuf::from(value)),
                _ => return Err(wrong(&format!("'{part}' is none of its keys"))),
            }
        }
        let default =
            || Url::parse(&format!("https://s3.{region}.amazonaws.com")).map_err(|_| wrong("its region is no name"));
        let endpoint = endpoint.map_or_else(default, Ok)?;
        let prefix = prefix.trim_matches('/').to_owned();
        Ok(Place { bucket: bucket.to_owned(), prefix, endpoint, region, credentials })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_read() {
        let place: Place =
            "s3://cold/a/b/,endpoint=http://127.0.0.1:7070,region=here,credentials=/etc/keys".parse().unwrap();
        assert_eq!((place.bucket.as_str(), place.prefix.as_str(), place.region.as_str()), ("cold", "a/b", "here"));
        assert_eq!(place.endpoint.as_str(), "http://127.0.0.1:7070/");
        assert_eq!(place.credentials, Some(PathBuf::from("/etc/keys")));
        let place: Place = "s3://cold".parse().unwrap();
        assert_eq!((place.prefix.as_str(), place.endpoint.as_str()), ("", "https://s3.us-east-1.amazonaws.com/"));
        for wrong in ["", "s3://", "dir:/x", "s3://cold,endpoint=nowhere", "s3://cold,colour=red", "s3://cold,endpoint"]
        {
            assert!(wrong.parse::<Place>().is_err(), "{wrong}");
        }
    }
}
