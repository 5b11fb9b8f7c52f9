//! A directory that ssh reaches: `sftp://[user@]host[:port]/path,identity=FILE,known_hosts=FILE`.
//!
//! Parts of it become arguments of `ssh`, and `ssh` fills in variables of its own (`%h`, `${HOME}`): so what could be an option, a
//! variable or a word of a shell is refused, and no key names a configuration or a command.

use std::path::PathBuf;
use std::str::FromStr;

use percent_encoding::percent_decode_str;

use super::PlaceError;

const FORM: &str = "sftp://[user@]host[:port]/path[,identity=FILE][,known_hosts=FILE]; /~/path begins at home";

/// A directory, and how to get there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SftpPlace {
    /// Empty for whom ssh's configuration says.
    pub user: String,
    /// Its name, its address, or how ssh's configuration calls it.
    pub host: String,
    pub port: Option<u16>,
    /// From the root, or from home where it does not begin with a slash; without one at its end.
    pub path: String,
    /// A key without a passphrase, in place of those that ssh finds by itself.
    pub identity: Option<PathBuf>,
    /// The keys of hosts, in place of where ssh looks for them.
    pub known_hosts: Option<PathBuf>,
}

impl FromStr for SftpPlace {
    type Err = PlaceError;

    fn from_str(text: &str) -> Result<SftpPlace, PlaceError> {
        let wrong = |why: &str| PlaceError {
            place: text.to_owned(),
            what: "directory over SFTP",
            why: why.to_owned(),
            form: FORM,
        };
        let mut parts = text.split(',');
        let base = parts.next().unwrap_or_default();
        let rest = base.strip_prefix("sftp://").ok_or_else(|| wrong("it does not begin with sftp://"))?;
        let (authority, path) = rest.split_once('/').ok_or_else(|| wrong("it names no path"))?;
        let (user, address) = authority.rsplit_once('@').unwrap_or(("", authority));
        let (host, port) = host_and_port(address).map_err(wrong)?;
        if user.contains(':') {
            return Err(PlaceError {
                place: "sftp://...@...".into(),
                ..wrong("it has a password, and everybody could read it there; ssh is let in by keys")
            });
        }
        if authority.contains('@') && !is_word(user) {
            return Err(wrong("its user is no name of letters, digits and . _ - +"));
        }
        if !is_word(&host.replace(':', ".")) {
            return Err(wrong("its host is no name of letters, digits and . _ - +"));
        }
        let path = percent_decode_str(path).decode_utf8().map_err(|_| wrong("its path is not UTF-8"))?;
        if path.chars().any(char::is_control) {
            return Err(wrong("its path has control characters"));
        }
        let path = match path.strip_prefix("~/").or_else(|| (path == "~").then_some("")) {
            Some("") => ".".to_owned(),
            Some(path) => path.trim_end_matches('/').to_owned(),
            None => format!("/{path}").trim_end_matches('/').to_owned(),
        };
        let (mut identity, mut known_hosts) = (None, None);
        for part in parts {
            let (key, value) = part.split_once('=').unwrap_or((part, ""));
            let file = match key {
                "identity" => &mut identity,
                "known_hosts" => &mut known_hosts,
                _ => return Err(wrong(&format!("'{part}' is none of its keys"))),
            };
            if !value.starts_with('/') || value.contains(['"', '\\', '%', '$']) || value.chars().any(char::is_control) {
                return Err(wrong(&format!("{key}= wants the whole path of a file, without any of \" \\ % $")));
            }
            *file = Some(PathBuf::from(value));
        }
        Ok(SftpPlace { user: user.to_owned(), host: host.to_owned(), port, path, identity, known_hosts })
    }
}

/// What cannot be taken for an option, or for more than a word.
fn is_word(text: &str) -> bool {
    let is_plain = |one: char| one.is_ascii_alphanumeric() || "._-+".contains(one);
    !text.is_empty() && !text.starts_with('-') && text.chars().all(is_plain)
}

fn host_and_port(address: &str) -> Result<(&str, Option<u16>), &'static str> {
    let (host, port) = match address.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']').ok_or("its host has no closing bracket")?;
            if host.parse::<std::net::Ipv6Addr>().is_err() {
                return Err("what is in brackets is no address");
            }
            (host, port)
        }
        None => address.split_at(address.find(':').unwrap_or(address.len())),
    };
    let port = match port.strip_prefix(':') {
        Some(number) => Some(number.parse().ok().filter(|number| *number > 0).ok_or("its port is no number")?),
        None if port.is_empty() => None,
        None => return Err("something follows its host"),
    };
    if host.is_empty() { Err("it names no host") } else { Ok((host, port)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_are_read() {
        let place: SftpPlace =
            "sftp://me@shed.example:2022/srv/cold%2C%20old/,identity=/k,known_hosts=/h".parse().unwrap();
        assert_eq!((place.user.as_str(), place.host.as_str(), place.port), ("me", "shed.example", Some(2022)));
        assert_eq!(place.path, "/srv/cold, old");
        assert_eq!((place.identity, place.known_hosts), (Some("/k".into()), Some("/h".into())));
        let place: SftpPlace = "sftp://[::1]/~/cold".parse().unwrap();
        assert_eq!((place.user.as_str(), place.host.as_str(), place.port), ("", "::1", None));
        assert_eq!(place.path, "cold");
        assert_eq!("sftp://shed/~".parse::<SftpPlace>().unwrap().path, ".");
        assert_eq!("sftp://shed/~/".parse::<SftpPlace>().unwrap().path, ".");
        assert_eq!("sftp://shed/".parse::<SftpPlace>().unwrap().path, "");
    }

    #[test]
    fn what_could_be_more_than_a_place_is_refused() {
        for (wrong, words) in [
            ("sftp://", "no path"),
            ("sftp:///x", "no host"),
            ("sftp://shed", "no path"),
            ("ssh://shed/x", "begin"),
            ("sftp://-oProxyCommand=id/x", "host"),
            ("sftp://-oProxyCommand=id@shed/x", "user"),
            ("sftp://@shed/x", "user"),
            ("sftp://$(id)@shed/x", "user"),
            ("sftp://shed%h/x", "host"),
            ("sftp://she d/x", "host"),
            ("sftp://[shed]/x", "address"),
            ("sftp://[::1/x", "bracket"),
            ("sftp://shed:0/x", "port"),
            ("sftp://shed:x/x", "port"),
            ("sftp://shed/a%0Ab", "control"),
            ("sftp://shed/a%FF", "UTF-8"),
            ("sftp://shed/x,identity=key", "whole path"),
            ("sftp://shed/x,identity=/%h", "whole path"),
            ("sftp://shed/x,known_hosts=/${HOME}", "whole path"),
            ("sftp://shed/x,config=/tmp/mine", "config=/tmp/mine"),
            ("sftp://shed/x,identity", "whole path"),
            ("sftp://me:secret@shed/x", "keys"),
        ] {
            let error = wrong.parse::<SftpPlace>().unwrap_err().to_string();
            assert!(error.contains(words) && !error.contains("secret"), "{wrong}: {error}");
        }
    }
}
