//! Logs in PostgreSQL are opened, made, removed and listed. Read next: `schema.rs`.

use futures_util::TryFutureExt;
use stere_shared_log::Error;
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{ToSql, Type};

use super::failure::Failure;
use super::session::Prepared;
use super::{PostgresLog, schema};
use crate::{Pool, has_log, no_log};

impl PostgresLog {
    /// Looks whether the log is there and this user may write to it.
    pub(crate) fn open(&self) -> Result<(), Error> {
        self.run(async |client, held| {
            let pool = self.id();
            let row = client.query_typed_opt(schema::OPEN, &[(&pool, Type::BYTEA)]).await?;
            let row = row.ok_or_else(|| no_log(&self.address, self.pool))?;
            let (version, may_write): (i32, bool) = (row.try_get(0)?, row.try_get(1)?);
            if version != schema::VERSION {
                let why = format!("the log there has version {version}, which a newer stere wrote; use a newer one");
                return Err(self.address.refused(why).into());
            }
            if !may_write {
                let user = self.address.user.as_deref().unwrap_or_default();
                let why = format!(
                    "the user {user} may not write to it; grant it SELECT, INSERT, UPDATE and DELETE on stere_log and \
                     stere_log_record"
                );
                return Err(self.address.refused(why).into());
            }
            super::prepared(client, held).await.map(drop)
        })
    }

    /// Does the work in a transaction that ends with the tables locked to puts.
    pub(super) async fn exclusively<T>(
        &self,
        client: &Client,
        work: impl AsyncFnOnce() -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        client.batch_execute(schema::BEGIN).await?;
        let outcome = work().await;
        match outcome {
            Ok(value) => client.batch_execute("COMMIT").map_ok(|()| value).await.map_err(Failure::from),
            Err(failure) => {
                client.batch_execute("ROLLBACK").await?;
                Err(failure)
            }
        }
    }

    pub(crate) fn create(&self, name: &str) -> Result<(), Error> {
        self.run(async |client, _: &mut Option<Prepared>| {
            self.exclusively(client, async || {
                client.query_typed(schema::LOCK_FOR_TABLES, &[]).await?;
                if !client.query_typed_one(schema::HAS_TABLES, &[]).await?.try_get::<_, bool>(0)? {
                    client.batch_execute(schema::TABLES).await?;
                }
                self.make_machine_table(client).await?;
                client.batch_execute(schema::LOCK_RECORDS).await?;
                let pool = self.id();
                let used = client.query_typed_opt(schema::IS_USED, &[(&pool, Type::BYTEA)]).await?;
                if used.map(|row| row.try_get(0)).transpose()? == Some(true) {
                    return Err(has_log(&self.address, self.pool).into());
                }
                let parameters: [(&(dyn ToSql + Sync), Type); 3] =
                    [(&pool, Type::BYTEA), (&schema::VERSION, Type::INT4), (&name, Type::TEXT)];
                client.execute_typed(schema::DELETE_RECORDS, &parameters[..1]).await?;
                client.execute_typed(schema::DELETE_MACHINES, &parameters[..1]).await?;
                client.execute_typed(schema::ADD, &parameters).await?;
                Ok(())
            })
            .await
        })
    }

    pub(crate) fn remove(&self) -> Result<(), Error> {
        self.run(async |client, _: &mut Option<Prepared>| {
            self.exclusively(client, async || {
                client.batch_execute(schema::LOCK_RECORDS).await?;
                let pool = self.id();
                let parameters: [(&(dyn ToSql + Sync), Type); 1] = [(&pool, Type::BYTEA)];
                let count = client.execute_typed(schema::DELETE_LOG, &parameters).await?;
                client.execute_typed(schema::DELETE_RECORDS, &parameters).await?;
                if client.query_typed_one(schema::HAS_MACHINE_TABLE, &[]).await?.try_get::<_, bool>(0)? {
                    client.execute_typed(schema::DELETE_MACHINES, &parameters).await?;
                }
                if count == 1 { Ok(()) } else { Err(no_log(&self.address, self.pool).into()) }
            })
            .await
        })
    }

    pub(crate) fn pools(&self) -> Result<Vec<(Pool, String)>, Error> {
        self.run(async |client, _| {
            let rows = match client.query_typed(schema::POOLS, &[]).await.map_err(Failure::from) {
                Err(failure) if failure.state() == Some(&SqlState::UNDEFINED_TABLE) => return Ok(Vec::new()),
                rows => rows?,
            };
            let one = |row: &tokio_postgres::Row| {
                let id: Vec<u8> = row.try_get(0)?;
                let id = id.try_into().map_err(|_| self.address.damaged("the id of a pool has not 16 bytes"))?;
                Ok((id, row.try_get(1)?))
            };
            rows.iter().map(one).collect()
        })
    }
}
