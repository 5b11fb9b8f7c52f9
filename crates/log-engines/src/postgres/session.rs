//! One session with a PostgreSQL server that can be written to: how it is found, greeted, and driven from any thread.
//!
//! Invariants: nothing waits longer than the deadline of the call; a session whose work failed at the server is never used
//! again; `synchronous_commit` is at least `on`. A session has a runtime of its own, which runs while a call waits for it, so
//! that there is no thread and no lock between callers. Read next: `failure.rs`, `schema.rs`.

use std::future::Future;
use std::time::Duration;

use stere_shared_log::Error;
use tokio::runtime::Runtime;
use tokio_postgres::config::SslMode;
use tokio_postgres::{Client, Config, Statement};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::failure::{Failure, away_or_refused};
use super::schema;
use crate::address::{Address, Encryption};
use crate::deadline::Deadline;
use crate::tls;

/// PostgreSQL 15, as the server counts.
const VERSION_LEAST: i32 = 150_000;
/// A session that nobody uses for so long is ended by the server.
const IDLE: Duration = Duration::from_secs(600);
/// A machine that was cut off keeps no place of the server's from others: its sessions end some ten seconds later.
const KEEPALIVES: &str = "SET tcp_keepalives_idle = 5; SET tcp_keepalives_interval = 2; SET tcp_keepalives_count = 3";

/// What every session asks first. Waiting for a standby, where there is one, is what makes a record survive.
const GREETING: &str = "SELECT current_setting('server_version_num')::int4, current_setting('server_version'), \
     current_setting('fsync') = 'on', pg_is_in_recovery(), current_setting('transaction_read_only') = 'on', \
     set_config('synchronous_commit', CASE WHEN current_setting('synchronous_commit') IN ('on', 'remote_apply') \
     THEN current_setting('synchronous_commit') ELSE 'on' END, false)";

/// The statements of a put, prepared.
pub(super) struct Prepared {
    pub(super) insert: Statement,
    pub(super) check: Statement,
}

pub(super) struct Session {
    /// Always there, until it is shut down without waiting for what it still does.
    runtime: Option<Runtime>,
    pub(super) client: Client,
    pub(super) prepared: Option<Prepared>,
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Finds the server among the hosts of an address.
pub(super) struct Connector {
    tls: MakeRustlsConnect,
}

impl Connector {
    pub(super) fn new(address: &Address) -> Result<Self, Error> {
        let config = tls::config(address).map_err(|why| address.refused(why))?;
        Ok(Connector { tls: MakeRustlsConnect::new(config) })
    }

    /// A session with the first host that can be written to, from the one that was it last; and which host that is.
    pub(super) fn connect(
        &self,
        address: &Address,
        last: usize,
        deadline: Deadline,
        limit: Duration,
    ) -> Result<(Session, usize), Error> {
        let count = address.hosts.len();
        let mut errors = Vec::new();
        for attempt in 0..count {
            let host = (last + attempt) % count;
            match self.connect_to(address, host, deadline.share(count - attempt), limit) {
                Ok(session) => return Ok((session, host)),
                Err(error) => errors.push((host, error)),
            }
        }
        Err(summary(address, errors))
    }

    fn connect_to(
        &self,
        address: &Address,
        host: usize,
        deadline: Deadline,
        limit: Duration,
    ) -> Result<Session, Error> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| address.away(format!("no runtime can be made here: {error}")))?;
        let config = config(address, host, deadline);
        let begin = async {
            let (client, connection) = config.connect(self.tls.clone()).await?;
            // Its end shows in the client: every call fails then.
            runtime.spawn(connection);
            greet(address, &client, limit).await?;
            Ok(client)
        };
        match block_on(&runtime, deadline, begin) {
            Ok(client) => Ok(Session { runtime: Some(runtime), client, prepared: None }),
            Err(failure) => {
                runtime.shutdown_background();
                Err(away_or_refused(address, failure))
            }
        }
    }
}

/// What is said when no host would do: the reason itself when there is one host.
fn summary(address: &Address, errors: Vec<(usize, Error)>) -> Error {
    let text = |error: &Error| match error {
        Error::Away { why, .. }
        | Error::Address { why, .. }
        | Error::Refused { why, .. }
        | Error::Damaged { why, .. } => why.clone(),
        other => other.to_string(),
    };
    let is_away = errors.iter().any(|(_, error)| error.is_away());
    let why = match errors.as_slice() {
        [(_, error)] => text(error),
        several => {
            let told = several.iter().map(|(host, error)| {
                let (name, port) = &address.hosts[*host];
                format!("{name}:{port}: {}", text(error))
            });
            format!("none of its hosts can be written to: {}", told.collect::<Vec<_>>().join("; "))
        }
    };
    if is_away { address.away(why) } else { address.refused(why) }
}

fn config(address: &Address, host: usize, deadline: Deadline) -> Config {
    let (name, port) = &address.hosts[host];
    let mut config = Config::new();
    config.host(name).port(*port).dbname(&address.database).application_name("stere");
    config.user(address.user.as_deref().unwrap_or_default());
    if let Some(password) = &address.password {
        config.password(password);
    }
    config.ssl_mode(match address.encryption {
        Encryption::Never => SslMode::Disable,
        Encryption::IfPossible => SslMode::Prefer,
        Encryption::Always | Encryption::Verified => SslMode::Require,
    });
    config.connect_timeout(deadline.left()).tcp_user_timeout(deadline.left()).keepalives_idle(Duration::from_secs(30));
    config
}

async fn greet(address: &Address, client: &Client, limit: Duration) -> Result<(), Failure> {
    let row = client.query_typed_one(GREETING, &[]).await?;
    let (version, name): (i32, String) = (row.try_get(0)?, row.try_get(1)?);
    let (is_synced, is_standby, is_read_only): (bool, bool, bool) = (row.try_get(2)?, row.try_get(3)?, row.try_get(4)?);
    if version < VERSION_LEAST {
        return Err(address.refused(format!("it is PostgreSQL {name}, and 15 or newer is needed; update it")).into());
    }
    if is_standby {
        let why = "it is a standby, which only reads; name the primary too, or promote the standby (pg_ctl promote)";
        return Err(address.refused(why).into());
    }
    if is_read_only {
        let why = "it only reads (default_transaction_read_only is on); switch that off for this user and database";
        return Err(address.refused(why).into());
    }
    if !is_synced {
        let why = "it runs with fsync=off and would lose records with its power; set fsync=on and restart it";
        return Err(address.refused(why).into());
    }
    let (limit, idle) = (limit.as_millis().max(1), IDLE.as_millis());
    // Plans are kept for long, and every statement of ours asks for a few rows by the table's key.
    let settings = format!(
        "SET statement_timeout = {limit}; SET lock_timeout = {limit}; SET idle_session_timeout = {idle}; \
         SET enable_seqscan = off; SET idle_in_transaction_session_timeout = {limit}; SET tcp_user_timeout = {limit}; {KEEPALIVES}"
    );
    Ok(client.batch_execute(&settings).await?)
}

fn block_on<T>(
    runtime: &Runtime,
    deadline: Deadline,
    work: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    // The timer is made within the runtime.
    runtime.block_on(async { tokio::time::timeout(deadline.left(), work).await }).unwrap_or(Err(Failure::Late))
}

impl Session {
    /// Drives the session until the work is done, or the deadline is over.
    pub(super) fn drive<T>(
        &mut self,
        deadline: Deadline,
        work: impl AsyncFnOnce(&Client, &mut Option<Prepared>) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let Some(runtime) = &self.runtime else { return Err(Failure::Late) };
        block_on(runtime, deadline, work(&self.client, &mut self.prepared))
    }
}

/// The statements of a put, prepared in this session by now.
pub(super) async fn prepared<'a>(client: &Client, held: &'a mut Option<Prepared>) -> Result<&'a Prepared, Failure> {
    if held.is_none() {
        let both = futures_util::future::join(client.prepare(schema::INSERT), client.prepare(schema::CHECK)).await;
        *held = Some(Prepared { insert: both.0?, check: both.1? });
    }
    held.as_ref().ok_or(Failure::Late)
}
