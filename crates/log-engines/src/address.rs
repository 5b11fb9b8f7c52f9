//! Addresses of engines: `postgres://USER:PASSWORD@HOST:PORT,HOST2/DATABASE?sslmode=...` and `etcd://HOST:PORT,HOST2`.
//!
//! Invariant: what an error or a message shows of an address has no password in it. Read next: `tls.rs`.

use std::path::PathBuf;

use stere_shared_log::Error;

const POSTGRES_PORT: u16 = 5432;
const ETCD_PORT: u16 = 2379;
const HIDDEN: &str = "***";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Engine {
    Postgres,
    Etcd,
}

/// What is asked of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Encryption {
    Never,
    /// If the server can, without looking who it is.
    IfPossible,
    /// Without looking who the server is.
    Always,
    /// And the server proves that it has the name in the address.
    Verified,
}

/// The parts of an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    pub(crate) engine: Engine,
    /// As it may be shown.
    pub(crate) shown: String,
    pub(crate) user: Option<String>,
    pub(crate) password: Option<String>,
    pub(crate) hosts: Vec<(String, u16)>,
    pub(crate) database: String,
    pub(crate) encryption: Encryption,
    /// Certificates of authorities that are believed, in PEM; without it those of this machine.
    pub(crate) authorities: Option<PathBuf>,
    /// Our own certificate and its key.
    pub(crate) own: Option<(PathBuf, PathBuf)>,
}

fn engine_of(address: &str) -> Option<(Engine, bool, &str)> {
    let (scheme, rest) = address.split_once("://")?;
    match scheme {
        "postgres" | "postgresql" => Some((Engine::Postgres, false, rest)),
        "etcd" => Some((Engine::Etcd, false, rest)),
        "etcds" => Some((Engine::Etcd, true, rest)),
        _ => None,
    }
}

/// Whether this is meant as the address of an engine.
pub fn is_address(text: &str) -> bool {
    engine_of(text).is_some()
}

/// The address as it may be shown to anybody: what stands where a password does is hidden.
pub fn without_secrets(address: &str) -> String {
    let Some((scheme, rest)) = address.split_once("://") else { return address.to_owned() };
    // A password that was not encoded may have any character in it, so the last `@` ends it.
    let (who, rest) = rest.rsplit_once('@').map_or((None, rest), |(who, rest)| (Some(who), rest));
    let who = match who.map(|who| who.split_once(':').map_or((who, None), |(user, _)| (user, Some(HIDDEN)))) {
        None => String::new(),
        Some((user, None)) => format!("{user}@"),
        Some((user, Some(hidden))) => format!("{user}:{hidden}@"),
    };
    let Some((place, query)) = rest.split_once('?') else { return format!("{scheme}://{who}{rest}") };
    let shown = query.split('&').map(|pair| match pair.split_once('=') {
        Some((name, _)) if name.to_lowercase().contains("pass") => format!("{name}={HIDDEN}"),
        _ => pair.to_owned(),
    });
    format!("{scheme}://{who}{place}?{}", shown.collect::<Vec<_>>().join("&"))
}

/// The first host of an address, and its port.
pub fn first_host(address: &str) -> Option<(String, u16)> {
    Address::parse(address).ok()?.hosts.into_iter().next()
}

impl Address {
    pub(crate) fn parse(text: &str) -> Result<Address, Error> {
        let shown = without_secrets(text);
        let wrong = |why: String| Error::Address { address: shown.clone(), why };
        let (engine, is_encrypted, rest) = engine_of(text)
            .ok_or_else(|| wrong("addresses of engines begin with postgres://, etcd:// or etcds://".into()))?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        if query.contains('@') {
            return Err(wrong("a ? in a user's name or password is written %3F, an @ in an option %40".into()));
        }
        let (who, place) = rest.rsplit_once('@').map_or((None, rest), |(who, place)| (Some(who), place));
        let (hosts, database) = place.split_once('/').unwrap_or((place, ""));
        let port = if engine == Engine::Postgres { POSTGRES_PORT } else { ETCD_PORT };
        let hosts = hosts.split(',').map(|host| parse_host(host, port)).collect::<Result<_, _>>().map_err(&wrong)?;
        let (user, password) = match who.map(|who| who.split_once(':').map_or((who, None), |(u, p)| (u, Some(p)))) {
            None => (None, None),
            Some((user, password)) => {
                (Some(decoded(user).map_err(&wrong)?), password.map(decoded).transpose().map_err(&wrong)?)
            }
        };
        let encryption = match (engine, is_encrypted) {
            (Engine::Postgres, _) => Encryption::IfPossible,
            (_, true) => Encryption::Verified,
            (_, false) => Encryption::Never,
        };
        let database = decoded(database).map_err(&wrong)?;
        let (authorities, own) = (None, None);
        let mut address =
            Address { engine, shown: shown.clone(), user, password, hosts, database, encryption, authorities, own };
        address.check().and_then(|()| address.take_query(query)).map_err(wrong)?;
        Ok(address)
    }

    fn check(&self) -> Result<(), String> {
        match self.engine {
            Engine::Postgres if self.user.is_none() => Err("it names no user: postgres://USER@HOST/DATABASE".into()),
            Engine::Postgres if self.database.is_empty() || self.database.contains('/') => {
                Err("it names no database: postgres://USER@HOST/DATABASE".into())
            }
            Engine::Etcd if !self.database.is_empty() => {
                Err("nothing may follow the hosts but options: etcd://HOST:PORT,HOST2:PORT".into())
            }
            Engine::Etcd if self.user.is_some() != self.password.is_some() => {
                Err("a user of etcd has a password: etcd://USER:PASSWORD@HOST:PORT".into())
            }
            _ => Ok(()),
        }
    }

    fn take_query(&mut self, query: &str) -> Result<(), String> {
        let (mut certificate, mut key) = (None, None);
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').ok_or_else(|| format!("the option {pair} has no value"))?;
            let value = decoded(value)?;
            match (self.engine, name) {
                (Engine::Postgres, "sslmode") => self.encryption = encryption(&value)?,
                (Engine::Postgres, "sslrootcert") | (Engine::Etcd, "cacert") => self.authorities = Some(value.into()),
                (Engine::Postgres, "sslcert") | (Engine::Etcd, "cert") => certificate = Some(value.into()),
                (Engine::Postgres, "sslkey") | (Engine::Etcd, "key") => key = Some(value.into()),
                // Nothing else is possible: a log is written.
                (Engine::Postgres, "target_session_attrs") if value == "read-write" => {}
                (Engine::Postgres, _) => {
                    return Err(format!(
                        "there is no option {name}={value}; there are sslmode, sslrootcert, sslcert and sslkey"
                    ));
                }
                (Engine::Etcd, _) => return Err(format!("there is no option {name}; there are cacert, cert and key")),
            }
        }
        self.own = match (certificate, key) {
            (None, None) => None,
            (Some(certificate), Some(key)) => Some((certificate, key)),
            _ => return Err("a certificate of our own and its key are given together".into()),
        };
        // As other clients of PostgreSQL have it: authorities that are named are asked.
        if self.encryption == Encryption::Always && self.authorities.is_some() {
            self.encryption = Encryption::Verified;
        }
        Ok(())
    }

    pub(crate) fn away(&self, why: impl std::fmt::Display) -> Error {
        Error::Away { address: self.shown.clone(), why: why.to_string() }
    }

    pub(crate) fn refused(&self, why: impl std::fmt::Display) -> Error {
        Error::Refused { address: self.shown.clone(), why: why.to_string() }
    }

    pub(crate) fn damaged(&self, why: impl std::fmt::Display) -> Error {
        Error::Damaged { address: self.shown.clone(), why: why.to_string() }
    }
}

fn encryption(mode: &str) -> Result<Encryption, String> {
    match mode {
        "disable" => Ok(Encryption::Never),
        "allow" | "prefer" => Ok(Encryption::IfPossible),
        "require" => Ok(Encryption::Always),
        "verify-ca" | "verify-full" => Ok(Encryption::Verified),
        _ => Err(format!("there is no sslmode {mode}; there are disable, prefer, require and verify-full")),
    }
}

fn parse_host(text: &str, port: u16) -> Result<(String, u16), String> {
    let (host, after) = match text.strip_prefix('[') {
        Some(rest) => rest.split_once(']').ok_or_else(|| format!("{text} lacks a closing bracket"))?,
        None => text.split_once(':').map_or((text, ""), |(host, _)| (host, &text[host.len()..])),
    };
    let port = match after.strip_prefix(':') {
        None if after.is_empty() => port,
        Some(number) => number.parse().map_err(|_| format!("{number} is no port"))?,
        None => return Err(format!("{text} is no host")),
    };
    match decoded(host)? {
        host if host.is_empty() => Err("it names no host".into()),
        host => Ok((host, port)),
    }
}

/// Takes `%41` for `A`.
fn decoded(text: &str) -> Result<String, String> {
    let wrong = || "a % in it is not followed by two hexadecimal digits; % itself is written %25".to_owned();
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('%') {
        bytes.extend(before.as_bytes());
        let digits = after.get(..2).ok_or_else(wrong)?;
        bytes.push(u8::from_str_radix(digits, 16).map_err(|_| wrong())?);
        rest = &after[2..];
    }
    bytes.extend(rest.as_bytes());
    String::from_utf8(bytes).map_err(|_| wrong())
}

#[cfg(test)]
mod tests;
