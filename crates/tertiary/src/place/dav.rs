//! A folder on a WebDAV server: `dav://host[:port]/folder,credentials=FILE`, or `davs://` with TLS.

use std::path::PathBuf;
use std::str::FromStr;

use url::Url;

use super::PlaceError;

const FORM: &str = "dav://host[:port]/folder[,credentials=FILE], or davs:// with TLS and perhaps ca=FILE";

/// A folder, and how to get there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DavPlace {
    /// The folder over HTTP, with a slash at its end.
    pub url: Url,
    /// A file with `user=` and `password=` in lines, and perhaps `host=`: then they are told to that host only. Without it nobody is named.
    pub credentials: Option<PathBuf>,
    /// Certificates in PEM that the server's may be signed by, in place of those that are generally believed.
    pub authorities: Option<PathBuf>,
}

impl FromStr for DavPlace {
    type Err = PlaceError;

    fn from_str(text: &str) -> Result<DavPlace, PlaceError> {
        let wrong = |why: &str| PlaceError {
            place: text.to_owned(),
            what: "folder on a WebDAV server",
            why: why.to_owned(),
            form: FORM,
        };
        let mut parts = text.split(',');
        let base = parts.next().unwrap_or_default();
        let (scheme, rest) = match base.split_once("://") {
            Some(("dav", rest)) => ("http", rest),
            Some(("davs", rest)) => ("https", rest),
            _ => return Err(wrong("it does not begin with dav:// or davs://")),
        };
        // An empty host would be filled from the path.
        if rest.starts_with('/') || rest.is_empty() {
            return Err(wrong("it names no host"));
        }
        let mut url = Url::parse(&format!("{scheme}://{}/", rest.trim_end_matches('/')))
            .map_err(|error| wrong(&format!("it is no URL ({error})")))?;
        if !url.username().is_empty() || url.password().is_some() {
            return Err(PlaceError {
                place: format!("{}://...@...", if scheme == "http" { "dav" } else { "davs" }),
                ..wrong("everybody could read a name and a password there; put them into a file")
            });
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err(wrong("'?' and '#' in a folder are written %3F and %23"));
        }
        url.set_fragment(None);
        let (mut credentials, mut authorities) = (None, None);
        for part in parts {
            match part.split_once('=') {
                Some(("credentials", value)) => credentials = Some(PathBuf::from(value)),
                Some(("ca", value)) if scheme == "https" => authorities = Some(PathBuf::from(value)),
                Some(("ca", _)) => return Err(wrong("there are no certificates without TLS: davs://")),
                _ => return Err(wrong(&format!("'{part}' is none of its keys"))),
            }
        }
        Ok(DavPlace { url, credentials, authorities })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_are_read() {
        let place: DavPlace = "dav://127.0.0.1:8080/a/b c/,credentials=/etc/keys".parse().unwrap();
        assert_eq!(place.url.as_str(), "http://127.0.0.1:8080/a/b%20c/");
        assert_eq!(place.credentials, Some(PathBuf::from("/etc/keys")));
        let place: DavPlace = "davs://[::1],ca=/etc/mine.pem".parse().unwrap();
        assert_eq!((place.url.as_str(), place.credentials), ("https://[::1]/", None));
        assert_eq!(place.authorities, Some(PathBuf::from("/etc/mine.pem")));
        for (wrong, words) in [
            ("dav://", "no host"),
            ("dav:///x", "no host"),
            ("http://x", "begin"),
            ("dav://x:y", "no URL"),
            ("dav://x,colour=red", "colour=red"),
            ("dav://x,credentials", "keys"),
            ("dav://x/?a", "%3F"),
            ("dav://x/#a", "%23"),
            ("dav://x,ca=/y", "TLS"),
            ("davs://me:secret@x/y", "file"),
        ] {
            let error = wrong.parse::<DavPlace>().unwrap_err().to_string();
            assert!(error.contains(words) && !error.contains("secret"), "{wrong}: {error}");
        }
    }
}
