//! The registry of machines in PostgreSQL: a row for each, in a table that is made when it is first needed. Read next: `schema.rs`.

use stere_shared_log::{MACHINES_MAX, Machine, Put, too_many_machines};
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{ToSql, Type};

use super::failure::Failure;
use super::{PostgresLog, schema};
use crate::no_log;

impl PostgresLog {
    pub(super) async fn read_machines(&self, client: &Client) -> Result<Vec<(Machine, Vec<u8>)>, Failure> {
        let pool = self.id();
        let parameters: [(&(dyn ToSql + Sync), Type); 1] = [(&pool, Type::BYTEA)];
        let rows = match client.query_typed(schema::MACHINES, &parameters).await.map_err(Failure::from) {
            // The log is older than the registry.
            Err(failure) if failure.state() == Some(&SqlState::UNDEFINED_TABLE) => {
                let log = client.query_typed_opt(schema::LAST_BEAT, &parameters).await?;
                return log.map(|_| Vec::new()).ok_or_else(|| no_log(&self.address, self.pool).into());
            }
            rows => rows.map_err(|failure| self.advised(failure))?,
        };
        if rows.is_empty() {
            return Err(no_log(&self.address, self.pool).into());
        }
        let mut machines = Vec::new();
        for row in &rows {
            let Some(id) = row.try_get::<_, Option<Vec<u8>>>(0)? else { continue };
            let id = id.try_into().map_err(|_| self.address.damaged("the id of a machine has not 16 bytes"))?;
            machines.push((id, row.try_get(1)?));
        }
        Ok(machines)
    }

    /// Says what to grant where that is what is missing.
    fn advised(&self, failure: Failure) -> Failure {
        if failure.state() != Some(&SqlState::INSUFFICIENT_PRIVILEGE) {
            return failure;
        }
        let user = self.address.user.as_deref().unwrap_or_default();
        let why = format!(
            "the user {user} may not keep the registry of machines there; let the owner of the table stere_log mount the \
             pool once, which makes it, and grant SELECT, INSERT and UPDATE on stere_log_machine"
        );
        self.address.refused(why).into()
    }

    /// Within a transaction, and with the lock for tables.
    pub(super) async fn make_machine_table(&self, client: &Client) -> Result<(), Failure> {
        if !client.query_typed_one(schema::HAS_MACHINE_TABLE, &[]).await?.try_get::<_, bool>(0)? {
            client.batch_execute(schema::MACHINE_TABLE).await?;
        }
        Ok(())
    }

    pub(super) async fn change_machine(
        &self,
        client: &Client,
        machine: Machine,
        before: Option<&[u8]>,
        entry: &[u8],
    ) -> Result<Put, Failure> {
        self.exclusively(client, async || {
            if !client.query_typed_one(schema::HAS_MACHINE_TABLE, &[]).await?.try_get::<_, bool>(0)? {
                client.query_typed(schema::LOCK_FOR_TABLES, &[]).await?;
                self.make_machine_table(client).await?;
            }
            let (pool, machine, count) = (self.id(), &machine[..], MACHINES_MAX as i64);
            let log = client.query_typed_opt(schema::LOCK_LOG, &[(&pool, Type::BYTEA)]).await?;
            log.ok_or_else(|| no_log(&self.address, self.pool))?;
            let replaced: [(&(dyn ToSql + Sync), Type); 4] =
                [(&pool, Type::BYTEA), (&machine, Type::BYTEA), (&entry, Type::BYTEA), (&before, Type::BYTEA)];
            if client.execute_typed(schema::REPLACE_MACHINE, &replaced).await? == 1 {
                return Ok(Put::Mine);
            }
            if client.query_typed_opt(schema::MACHINE, &replaced[..2]).await?.is_some() || before.is_some() {
                return Ok(Put::Taken);
            }
            let added: [(&(dyn ToSql + Sync), Type); 4] =
                [(&pool, Type::BYTEA), (&machine, Type::BYTEA), (&entry, Type::BYTEA), (&count, Type::INT8)];
            match client.execute_typed(schema::ADD_MACHINE, &added).await? {
                1 => Ok(Put::Mine),
                _ => Err(Failure::from(self.address.refused(too_many_machines()))),
            }
        })
        .await
        .map_err(|failure| self.advised(failure))
    }
}
