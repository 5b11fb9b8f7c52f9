//! A log in PostgreSQL: one row for each record.
//!
//! Invariants: a put is one transaction that is sent at once, in one round trip; whether its number was trimmed is asked in
//! it after the insert, by a snapshot of its own (`schema.rs` says why that suffices). A call that finds an old connection
//! broken is repeated on a new one: every call may be carried out twice. Read next: `postgres/schema.rs`,
//! `postgres/session.rs`.

mod failure;
mod machines;
mod manage;
mod schema;
mod session;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::{join3, join4};
use parking_lot::Mutex;
use stere_shared_log::{Bounds, ENTRY_BYTES_MAX, Error, Machine, Put, RECORD_BYTES_MAX, Record, SharedLog};
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{ToSql, Type};

use self::failure::{Failure, away_or_refused};
use self::session::{Connector, Prepared, Session, prepared};
use crate::address::Address;
use crate::deadline::Deadline;
use crate::{Pool, Renew, no_log, past_the_end, random_id};

/// Sessions that are kept while nobody uses them.
const IDLE_MAX: usize = 4;
/// One page of a read: what a slow link carries within a deadline, too.
const PAGE_BYTES: usize = 4 << 20;
const PAGE_RECORDS: i64 = 4096;
/// Records that one statement deletes.
const DELETED_AT_ONCE: i64 = 500;
/// Somebody's record came between the look and the insert; more often than that it does not happen.
const ATTEMPTS: u32 = 8;

pub(crate) struct PostgresLog {
    address: Address,
    /// The user and the password that were taken last, in an address that is like the other.
    login: Mutex<Address>,
    renew: Option<Renew>,
    pool: Pool,
    writer: [u8; 16],
    deadline: Duration,
    connector: Connector,
    idle: Mutex<Vec<Session>>,
    /// The host that could be written to last.
    host: AtomicUsize,
}

/// What became of one transaction of a put.
enum Attempt {
    Inserted,
    /// Somebody else has the number, or it is trimmed, or the log ends before it.
    Nothing,
}

/// Records of one page, and whether it ends because it is full.
struct Page {
    records: Vec<Record>,
    bytes: usize,
    first: u64,
}

fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

/// Numbers beyond what a table can hold are as far away as its last.
fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

impl PostgresLog {
    pub(crate) fn new(address: Address, pool: Pool, deadline: Duration) -> Result<Self, Error> {
        let (connector, writer) = (Connector::new(&address)?, random_id(&address)?);
        let (idle, host) = (Mutex::default(), AtomicUsize::new(0));
        let login = Mutex::new(address.clone());
        Ok(PostgresLog { address, login, renew: None, pool, writer, deadline, connector, idle, host })
    }

    /// The same, and where its user is refused, it asks for another address.
    pub(crate) fn renewed_by(self, renew: Renew) -> Self {
        PostgresLog { renew: Some(renew), ..self }
    }

    /// Does the work on a session that is unused, or a new one. It is done again when an old connection proves to be broken.
    fn run<T>(&self, work: impl AsyncFn(&Client, &mut Option<Prepared>) -> Result<T, Failure>) -> Result<T, Error> {
        self.run_within(Deadline::after(self.deadline), work)
    }

    fn run_within<T>(
        &self,
        deadline: Deadline,
        work: impl AsyncFn(&Client, &mut Option<Prepared>) -> Result<T, Failure>,
    ) -> Result<T, Error> {
        loop {
            let idle = self.idle.lock().pop();
            let was_idle = idle.is_some();
            let mut session = match idle {
                Some(session) => session,
                None => self.connect(deadline)?,
            };
            let outcome = session.drive(deadline, &work);
            if matches!(outcome, Ok(_) | Err(Failure::Told(_))) {
                let mut idle = self.idle.lock();
                if idle.len() < IDLE_MAX {
                    idle.push(session);
                }
            } else {
                // What broke one connection has broken the others that wait.
                self.idle.lock().clear();
            }
            match outcome {
                Err(failure) if was_idle && failure.is_broken() && !deadline.is_over() => continue,
                outcome => return outcome.map_err(|failure| away_or_refused(&self.address, failure)),
            }
        }
    }

    fn connect(&self, deadline: Deadline) -> Result<Session, Error> {
        let last = self.host.load(Ordering::Relaxed);
        let login = self.login.lock().clone();
        let connect = |login: &Address| self.connector.connect(login, last, deadline, self.deadline);
        let (session, host) = match connect(&login) {
            Err(error @ Error::Refused { .. }) => {
                let newer = self.newer_login(&login).ok_or(error)?;
                let connected = connect(&newer)?;
                *self.login.lock() = newer;
                connected
            }
            connected => connected?,
        };
        self.host.store(host, Ordering::Relaxed);
        Ok(session)
    }

    /// Another user or password than the one that was refused, if the machine knows of one by now.
    fn newer_login(&self, refused: &Address) -> Option<Address> {
        let renewed = Address::parse(&self.renew.as_ref()?()?).ok()?;
        let Address { user, password, .. } = renewed;
        let newer = Address { user, password, ..refused.clone() };
        (newer != *refused).then_some(newer)
    }

    fn id(&self) -> &[u8] {
        &self.pool
    }

    /// All in one round trip: what is sent does not wait for answers.
    async fn try_put(
        &self,
        client: &Client,
        held: &mut Option<Prepared>,
        number: i64,
        record: &[u8],
    ) -> Result<Attempt, Failure> {
        let statements = prepared(client, held).await?;
        let (pool, writer) = (self.id(), &self.writer[..]);
        let inserted: [&(dyn ToSql + Sync); 4] = [&pool, &number, &writer, &record];
        let checked: [&(dyn ToSql + Sync); 2] = [&pool, &number];
        let (begun, inserted, checked, committed) = join4(
            client.batch_execute(schema::BEGIN),
            client.execute(&statements.insert, &inserted),
            client.query(&statements.check, &checked),
            client.batch_execute("COMMIT"),
        )
        .await;
        begun?;
        let count = inserted?;
        if let Err(error) = checked {
            let is_trimmed = error.code() == Some(&SqlState::DIVISION_BY_ZERO);
            return if is_trimmed { Ok(Attempt::Nothing) } else { Err(error.into()) };
        }
        committed?;
        Ok(if count == 1 { Attempt::Inserted } else { Attempt::Nothing })
    }

    /// Whose record has the number; nobody's is `None`, and then the log ends right before it.
    async fn whose(&self, client: &Client, number: i64, record: &[u8]) -> Result<Option<Put>, Failure> {
        let pool = self.id();
        let row = client.query_typed_opt(schema::WHOSE, &[(&pool, Type::BYTEA), (&number, Type::INT8)]).await?;
        let row = row.ok_or_else(|| no_log(&self.address, self.pool))?;
        let (first, last): (i64, Option<i64>) = (row.try_get(0)?, row.try_get(3)?);
        let (writer, found): (Option<&[u8]>, Option<&[u8]>) = (row.try_get(1)?, row.try_get(2)?);
        if number < first {
            return Ok(Some(Put::Taken));
        }
        if let Some(writer) = writer {
            let is_mine = writer == self.writer && found == Some(record);
            return Ok(Some(if is_mine { Put::Mine } else { Put::Taken }));
        }
        let next = last.map_or(first, |last| last + 1);
        if number > next {
            return Err(past_the_end(&self.address, unsigned(number), unsigned(next)).into());
        }
        if number < next || number > last.unwrap_or(0) + 1 {
            return Err(self.address.damaged(format!("record {number} is missing before {next}")).into());
        }
        Ok(None)
    }

    async fn page(&self, client: &Client, from: u64, bytes_max: usize) -> Result<Page, Failure> {
        let (pool, number, limit) = (self.id(), signed(from), PAGE_RECORDS);
        let bytes_max = bytes_max as i64;
        let parameters: [(&(dyn ToSql + Sync), Type); 4] =
            [(&pool, Type::BYTEA), (&number, Type::INT8), (&bytes_max, Type::INT8), (&limit, Type::INT8)];
        let rows = client.query_typed(schema::PAGE, &parameters).await?;
        let head = rows.first().ok_or_else(|| no_log(&self.address, self.pool))?;
        let mut page = Page { records: Vec::new(), bytes: 0, first: unsigned(head.try_get(0)?) };
        for row in &rows {
            let Some(number) = row.try_get::<_, Option<i64>>(1)? else { continue };
            let (sequence, expected) = (unsigned(number), from + page.records.len() as u64);
            if sequence != expected && from >= page.first {
                let why = format!("record {expected} is missing, and {sequence} is there");
                return Err(self.address.damaged(why).into());
            }
            let bytes: Vec<u8> = row.try_get(2)?;
            page.bytes += bytes.len();
            page.records.push(Record { sequence, bytes });
        }
        Ok(page)
    }

    /// Changes one row of this pool's in `stere_log`, lightly: not durable at once.
    async fn change_lightly(&self, client: &Client, beat: &[u8]) -> Result<(), Failure> {
        let pool = self.id();
        let parameters: [(&(dyn ToSql + Sync), Type); 2] = [(&pool, Type::BYTEA), (&beat, Type::BYTEA)];
        let begin = format!("{}; {}", schema::BEGIN, schema::BEAT_IS_LIGHT);
        let (begun, changed, committed) = join3(
            client.batch_execute(&begin),
            client.execute_typed(schema::BEAT, &parameters),
            client.batch_execute("COMMIT"),
        )
        .await;
        begun?;
        let count = changed?;
        committed?;
        if count == 1 { Ok(()) } else { Err(no_log(&self.address, self.pool).into()) }
    }
}

impl SharedLog for PostgresLog {
    fn put(&self, sequence: u64, record: &[u8]) -> Result<Put, Error> {
        assert!(record.len() <= RECORD_BYTES_MAX, "a record of {} bytes is cut before it is put", record.len());
        let number = signed(sequence);
        self.run(async |client, held| {
            for _ in 0..ATTEMPTS {
                if let Attempt::Inserted = self.try_put(client, held, number, record).await? {
                    return Ok(Put::Mine);
                }
                if let Some(put) = self.whose(client, number, record).await? {
                    return Ok(put);
                }
            }
            Err(self.address.away(format!("record {sequence} could not be put, and nobody has it")).into())
        })
    }

    fn read(&self, from: u64, bytes_max: usize) -> Result<Vec<Record>, Error> {
        let deadline = Deadline::after(self.deadline);
        let mut found: Vec<Record> = Vec::new();
        let mut bytes = 0;
        loop {
            let (at, wanted) = (from + found.len() as u64, (bytes_max - bytes).min(PAGE_BYTES));
            let page = self.run_within(deadline, async |client, _| self.page(client, at, wanted).await);
            let page = match page {
                Ok(page) if page.first <= at => page,
                Ok(page) if found.is_empty() => return Err(Error::Trimmed { asked: from, first: page.first }),
                Err(error) if found.is_empty() => return Err(error),
                // What was read is right; the next call says what is wrong with the rest.
                _ => return Ok(found),
            };
            if page.records.is_empty() || (!found.is_empty() && bytes + page.bytes > bytes_max) {
                return Ok(found);
            }
            bytes += page.bytes;
            found.extend(page.records);
            if bytes >= bytes_max {
                return Ok(found);
            }
        }
    }

    fn trim(&self, before: u64) -> Result<(), Error> {
        let deadline = Deadline::after(self.deadline);
        let (pool, before) = (self.id(), signed(before));
        self.run_within(deadline, async |client, _| {
            let parameters: [(&(dyn ToSql + Sync), Type); 2] = [(&pool, Type::BYTEA), (&before, Type::INT8)];
            let row = client.query_typed_opt(schema::MOVE_FIRST, &parameters).await?;
            row.map(drop).ok_or_else(|| no_log(&self.address, self.pool).into())
        })?;
        // They are trimmed now. Rows that are not deleted in time are by the next trim.
        let delete = async |client: &Client, _: &mut Option<Prepared>| {
            let parameters: [(&(dyn ToSql + Sync), Type); 2] = [(&pool, Type::BYTEA), (&DELETED_AT_ONCE, Type::INT8)];
            Ok(client.execute_typed(schema::DELETE_TRIMMED, &parameters).await?)
        };
        let half = deadline.share(2);
        while !half.is_over() && self.run_within(deadline, delete)? == DELETED_AT_ONCE as u64 {}
        Ok(())
    }

    fn bounds(&self) -> Result<Bounds, Error> {
        self.run(async |client, _| {
            let pool = self.id();
            let row = client.query_typed_opt(schema::BOUNDS, &[(&pool, Type::BYTEA)]).await?;
            let row = row.ok_or_else(|| no_log(&self.address, self.pool))?;
            let (first, last, is_first_there): (i64, Option<i64>, bool) =
                (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
            if !is_first_there && (first > 1 || last.is_some()) {
                return Err(self.address.damaged(format!("record {first}, its first, is missing")).into());
            }
            Ok(Bounds { first: unsigned(first), next: unsigned(last.map_or(first, |last| last + 1)) })
        })
    }

    fn beat(&self, beat: &[u8]) -> Result<(), Error> {
        self.run(async |client, _| self.change_lightly(client, beat).await)
    }

    fn last_beat(&self) -> Result<Vec<u8>, Error> {
        self.run(async |client, _| {
            let pool = self.id();
            let row = client.query_typed_opt(schema::LAST_BEAT, &[(&pool, Type::BYTEA)]).await?;
            let row = row.ok_or_else(|| no_log(&self.address, self.pool))?;
            Ok(row.try_get(0)?)
        })
    }

    fn machines(&self) -> Result<Vec<(Machine, Vec<u8>)>, Error> {
        self.run(async |client, _| self.read_machines(client).await)
    }

    fn put_machine(&self, machine: Machine, before: Option<&[u8]>, entry: &[u8]) -> Result<Put, Error> {
        assert!(entry.len() <= ENTRY_BYTES_MAX, "an entry of {} bytes is no machine's", entry.len());
        self.run(async |client, _| self.change_machine(client, machine, before, entry).await)
    }
}
