//! Requests to etcd by its JSON gateway: HTTP, hosts one after the other, tokens, what its errors mean.
//!
//! Invariants: a call ends within its deadline; a request may be carried out twice, so every one must be harmless then; the
//! connections of a host that failed are not used again. Read next: `../etcd.rs`.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use serde_json::{Value, json};
use stere_shared_log::Error;
use ureq::Agent;
use ureq::tls::{Certificate, ClientCert, PrivateKey, RootCerts, TlsConfig};

use crate::address::{Address, Encryption};
use crate::deadline::Deadline;
use crate::tls;

/// A page of records in base64 is far below.
const ANSWER_BYTES_MAX: u64 = 256 << 20;
/// Codes of gRPC that etcd answers with.
const INVALID_ARGUMENT: u64 = 3;
const DEADLINE_EXCEEDED: u64 = 4;
const RESOURCE_EXHAUSTED: u64 = 8;
const UNAVAILABLE: u64 = 14;
const UNAUTHENTICATED: u64 = 16;

pub(super) struct Gateway {
    pub(super) address: Address,
    tls: TlsConfig,
    /// Replaced when one of its connections broke: the others are as old.
    agent: Mutex<Agent>,
    /// The host that answered last.
    host: AtomicUsize,
    token: Mutex<Option<String>>,
}

enum Failure {
    /// This host does not answer, or cannot now; another may.
    Away(String),
    /// The token is too old, or there is none yet.
    NoToken(String),
    Refused(String),
}

impl Gateway {
    pub(super) fn new(address: Address) -> Result<Self, Error> {
        let tls = match address.encryption {
            Encryption::Never => TlsConfig::default(),
            _ => tls_config(&address).map_err(|why| address.refused(why))?,
        };
        let (agent, host, token) = (Mutex::new(agent(&tls)), AtomicUsize::new(0), Mutex::new(None));
        Ok(Gateway { address, tls, agent, host, token })
    }

    /// What etcd answers to a request; some host, with a token if the address names a user.
    pub(super) fn ask(&self, deadline: Deadline, path: &str, body: &Value) -> Result<Value, Error> {
        let body = body.to_string();
        let first = self.host.load(Ordering::Relaxed);
        let count = self.address.hosts.len();
        // One more, because the first may only have found that its old connection is broken.
        let attempts = count + 1;
        let mut reasons = Vec::new();
        for attempt in 0..attempts {
            let host = (first + attempt.saturating_sub(usize::from(count == 1))) % count;
            let share = if count == 1 { deadline } else { deadline.share(attempts - attempt) };
            match self.ask_with_token(share, host, path, &body) {
                Ok(answer) => {
                    self.host.store(host, Ordering::Relaxed);
                    return Ok(answer);
                }
                Err(Failure::Refused(why) | Failure::NoToken(why)) => return Err(self.address.refused(why)),
                Err(Failure::Away(why)) => {
                    let (name, port) = &self.address.hosts[host];
                    reasons.push(if count == 1 { why } else { format!("{name}:{port}: {why}") });
                    *self.agent.lock() = agent(&self.tls);
                }
            }
            if deadline.is_over() {
                break;
            }
        }
        reasons.dedup();
        Err(self.address.away(reasons.join("; ")))
    }

    fn ask_with_token(&self, deadline: Deadline, host: usize, path: &str, body: &str) -> Result<Value, Failure> {
        let Some((user, password)) = self.address.user.as_ref().zip(self.address.password.as_ref()) else {
            return self.send(deadline, host, path, body, None);
        };
        let known = self.token.lock().clone();
        if let Some(token) = known {
            match self.send(deadline, host, path, body, Some(&token)) {
                Err(Failure::NoToken(_)) => {}
                outcome => return outcome,
            }
        }
        let who = json!({ "name": user, "password": password }).to_string();
        let answer = self.send(deadline, host, "/v3/auth/authenticate", &who, None)?;
        let token = answer["token"].as_str().unwrap_or_default().to_owned();
        *self.token.lock() = Some(token.clone());
        self.send(deadline, host, path, body, Some(&token))
    }

    fn send(
        &self,
        deadline: Deadline,
        host: usize,
        path: &str,
        body: &str,
        token: Option<&str>,
    ) -> Result<Value, Failure> {
        let agent = self.agent.lock().clone();
        let mut request = agent.post(self.url(host, path)).header("content-type", "application/json");
        if let Some(token) = token {
            request = request.header("authorization", token);
        }
        let request = request.config().timeout_global(Some(deadline.left())).build();
        let away = |error: ureq::Error| Failure::Away(unanswered(&error));
        let mut response = request.send(body).map_err(away)?;
        let status = response.status().as_u16();
        let text = response.body_mut().with_config().limit(ANSWER_BYTES_MAX).read_to_vec().map_err(away)?;
        let answer: Value = serde_json::from_slice(&text).unwrap_or(Value::Null);
        match status {
            200 if answer.is_object() => Ok(answer),
            _ => Err(meaning(status, &answer)),
        }
    }

    fn url(&self, host: usize, path: &str) -> String {
        let (name, port) = &self.address.hosts[host];
        let scheme = if self.address.encryption == Encryption::Never { "http" } else { "https" };
        let name = if name.contains(':') { format!("[{name}]") } else { name.clone() };
        format!("{scheme}://{name}:{port}{path}")
    }

    /// The version of the server and what it says of the whole cluster's: `3.4.23`, `3.4.0`.
    pub(super) fn version(&self, deadline: Deadline) -> Result<String, Error> {
        let agent = self.agent.lock().clone();
        let count = self.address.hosts.len();
        let mut reasons = Vec::new();
        for host in 0..count {
            let request = agent.get(self.url(host, "/version")).config();
            let request = request.timeout_global(Some(deadline.share(count - host).left())).build();
            let outcome = request.call().and_then(|mut response| response.body_mut().read_to_vec());
            match outcome.map(|text| serde_json::from_slice::<Value>(&text).unwrap_or_default()) {
                Ok(answer) if answer["etcdserver"].is_string() => {
                    self.host.store(host, Ordering::Relaxed);
                    return Ok(answer["etcdserver"].as_str().unwrap_or_default().to_owned());
                }
                Ok(_) => return Err(self.address.refused("what answers there is no etcd; is it the right port?")),
                Err(error) => reasons.push(unanswered(&error)),
            }
        }
        reasons.dedup();
        Err(self.address.away(reasons.join("; ")))
    }
}

fn agent(tls: &TlsConfig) -> Agent {
    let config = Agent::config_builder().http_status_as_error(false).max_redirects(0).proxy(None);
    config.tls_config(tls.clone()).build().into()
}

fn tls_config(address: &Address) -> Result<TlsConfig, String> {
    let roots: Vec<Certificate<'static>> =
        tls::authorities(address)?.iter().map(|one| Certificate::from_der(one).to_owned()).collect();
    let mut config = TlsConfig::builder().root_certs(RootCerts::Specific(Arc::new(roots)));
    if let Some((certificate, key)) = &address.own {
        let chain = tls::certificates(certificate)?;
        let chain: Vec<_> = chain.iter().map(|one| Certificate::from_der(one).to_owned()).collect();
        let wrong = |why: String| format!("{}: {why}", key.display());
        let text = std::fs::read(key).map_err(|error| wrong(error.to_string()))?;
        let key = PrivateKey::from_pem(&text).map_err(|error| wrong(error.to_string()))?;
        config = config.client_cert(Some(ClientCert::new_with_certs(&chain, key)));
    }
    Ok(config.build())
}

fn unanswered(error: &ureq::Error) -> String {
    match error {
        ureq::Error::Timeout(_) => "no answer within the deadline".into(),
        other => other.to_string(),
    }
}

/// What an answer means that is not the one that was asked for.
fn meaning(status: u16, answer: &Value) -> Failure {
    // Answers of a stream have it one level deeper.
    let error = if answer["error"].is_object() { &answer["error"] } else { answer };
    let code = error["code"].as_u64().unwrap_or(0);
    let text = error["message"].as_str().or(error["error"].as_str()).unwrap_or_default();
    let has = |words: &str| text.contains(words);
    let said = if text.is_empty() { format!("it answers with HTTP status {status}") } else { text.to_owned() };
    match code {
        RESOURCE_EXHAUSTED if has("database space exceeded") => {
            Failure::Refused(format!("{said}; compact and defragment it, then disarm its alarm (etcdctl alarm disarm)"))
        }
        UNAVAILABLE | DEADLINE_EXCEEDED | RESOURCE_EXHAUSTED => Failure::Away(said),
        UNAUTHENTICATED => Failure::NoToken(said),
        INVALID_ARGUMENT if has("user name is empty") => {
            Failure::Refused(format!("{said}; name a user in the address: etcd://USER:PASSWORD@HOST"))
        }
        INVALID_ARGUMENT if has("authentication failed") => {
            Failure::Refused(format!("{said}; put the right user and password into the address"))
        }
        INVALID_ARGUMENT if has("request is too large") => {
            Failure::Refused(format!("{said}; start it with --max-request-bytes=1572864 or more"))
        }
        _ if has("permission denied") => {
            Failure::Refused(format!("{said}; grant this user readwrite on the prefix stere/"))
        }
        0 if status >= 500 || status == 429 || status == 200 => Failure::Away(said),
        _ if has("no leader") || has("timed out") || has("leader changed") => Failure::Away(said),
        _ => Failure::Refused(said),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_refused(status: u16, answer: Value) -> bool {
        matches!(meaning(status, &answer), Failure::Refused(_))
    }

    #[test]
    fn an_error_of_etcd_is_away_or_refused() {
        assert!(is_refused(429, json!({ "code": 8, "message": "etcdserver: mvcc: database space exceeded" })));
        assert!(!is_refused(429, json!({ "code": 8, "message": "etcdserver: too many requests" })));
        assert!(!is_refused(503, json!({ "code": 14, "error": "etcdserver: no leader" })));
        assert!(!is_refused(502, Value::Null));
        assert!(is_refused(404, Value::Null));
        assert!(is_refused(403, json!({ "code": 7, "error": "etcdserver: permission denied" })));
        assert!(matches!(meaning(401, &json!({ "code": 16 })), Failure::NoToken(_)));
    }
}
