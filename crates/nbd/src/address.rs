//! How a device on another machine is named: `nbd://HOST[:PORT][/EXPORT]`, `nbds://...` with TLS, and behind a comma each the files that
//! TLS needs: `ca=`, and `certificate=` with `key=` where the server asks who we are. `stere://HOST[:PORT]/NAME` is on a stere node.

use std::path::PathBuf;

use crate::error::NbdError;
use crate::wire::extension::is_name;

const PORT: u16 = 10809;
const STERE: &str = "stere://";
/// With the beginnings of addresses, whether they mean TLS.
const SCHEMES: [(&str, bool); 3] = [("nbd://", false), ("nbds://", true), (STERE, false)];
const EXPORT_BYTES_MAX: usize = 4096;
const KEYS: &[&str] = &["ca", "certificate", "key"];

/// Whether this names a device on another machine, well or not.
pub fn is_address(text: &str) -> bool {
    SCHEMES.iter().any(|(scheme, _)| text.starts_with(scheme))
}

/// Whether this names a device on a stere node, which makes it where it is given a size.
pub fn is_stere(text: &str) -> bool {
    text.starts_with(STERE)
}

/// What may stand behind an address, as `key=value`, and belongs to it.
pub fn keys(text: &str) -> &'static [&'static str] {
    if text.starts_with("nbds://") { KEYS } else { &[] }
}

/// Where a device is, and how one gets there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    pub host: String,
    pub port: u16,
    pub export: String,
    pub tls: Option<Tls>,
    /// It is on a stere node, which makes exports and refuses older owners.
    pub is_stere: bool,
}

/// The files that TLS needs, in PEM.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tls {
    pub ca: PathBuf,
    /// Certificate and key of our own.
    pub own: Option<(PathBuf, PathBuf)>,
}

impl Address {
    pub fn parse(text: &str) -> Result<Address, NbdError> {
        let wrong = |why: &str| NbdError::Address { text: text.to_owned(), why: why.to_owned() };
        let mut parts = text.split(',');
        let place = parts.next().unwrap_or_default();
        let (rest, is_tls) = SCHEMES
            .iter()
            .find_map(|(scheme, is_tls)| Some((place.strip_prefix(scheme)?, *is_tls)))
            .ok_or_else(|| wrong("it begins with none of nbd://, nbds:// and stere://"))?;
        let (authority, export) = rest.split_once('/').unwrap_or((rest, ""));
        let (host, port) = split_port(authority).ok_or_else(|| wrong("its port is not a number from 1 to 65535"))?;
        if host.is_empty() || host.bytes().any(|byte| byte.is_ascii_whitespace() || byte.is_ascii_control()) {
            return Err(wrong("it has no host"));
        }
        if export.len() > EXPORT_BYTES_MAX {
            return Err(wrong("the name of its export is longer than 4096 bytes"));
        }
        let is_stere = place.starts_with(STERE);
        if is_stere && !is_name(export) {
            return Err(wrong(
                "the name of its export has 1 to 255 letters, digits and '-', '_', '.', and does not begin with '.'",
            ));
        }
        let (mut ca, mut certificate, mut key) = (None, None, None);
        for part in parts {
            match part.split_once('=') {
                Some(("ca", file)) if is_tls => ca = Some(PathBuf::from(file)),
                Some(("certificate", file)) if is_tls => certificate = Some(PathBuf::from(file)),
                Some(("key", file)) if is_tls => key = Some(PathBuf::from(file)),
                _ => return Err(wrong(&format!("'{part}' is not one of its keys"))),
            }
        }
        let own = match (certificate, key) {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (None, None) => None,
            _ => return Err(wrong("certificate= and key= belong together")),
        };
        let tls = match (is_tls, ca) {
            (false, _) => None,
            (true, Some(ca)) => Some(Tls { ca, own }),
            (true, None) => return Err(wrong("ca=FILE is missing: the certificate that the server's is signed by")),
        };
        Ok(Address { host: host.to_owned(), port, export: export.to_owned(), tls, is_stere })
    }
}

/// A host in brackets may hold colons, as IPv6 addresses do.
fn split_port(authority: &str) -> Option<(&str, u16)> {
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (host, behind) = rest.split_once(']')?;
            (host, if behind.is_empty() { None } else { Some(behind.strip_prefix(':')?) })
        }
        None => match authority.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        },
    };
    let port = port.map_or(Some(PORT), |port| port.parse().ok().filter(|port| *port != 0))?;
    Some((host, port))
}

#[cfg(test)]
mod tests;
