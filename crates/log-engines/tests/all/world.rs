//! What the tests share: an engine of either kind, and handles with a short deadline. Read next: `contract.rs`.

use std::sync::Arc;
use std::time::Duration;

use stere_log_engines::test_engines::{Etcd, PostgreSql};
use stere_shared_log::SharedLog;

pub const POOL: [u8; 16] = *b"pool of the test";
/// Long enough for a busy machine.
pub const DEADLINE: Duration = Duration::from_secs(10);

pub enum Server {
    Postgres(PostgreSql),
    Etcd(Etcd),
}

macro_rules! both {
    ($self:ident, $server:ident => $act:expr) => {
        match $self {
            Server::Postgres($server) => $act,
            Server::Etcd($server) => $act,
        }
    };
}

impl Server {
    pub fn postgres() -> Option<Server> {
        PostgreSql::start().map(Server::Postgres)
    }

    pub fn etcd() -> Option<Server> {
        Etcd::start().map(Server::Etcd)
    }

    pub fn address(&self) -> String {
        both!(self, server => server.address())
    }

    /// The same by another port.
    pub fn address_by(&self, port: u16) -> String {
        let own = both!(self, server => server.port());
        self.address().replace(&own.to_string(), &port.to_string())
    }

    pub fn port(&self) -> u16 {
        both!(self, server => server.port())
    }

    pub fn restart(&mut self) {
        both!(self, server => server.restart());
    }

    pub fn kill_and_restart(&mut self) {
        both!(self, server => {
            server.kill();
            server.restart();
        });
    }

    pub fn pause(&self) {
        both!(self, server => server.pause());
    }

    pub fn resume(&self) {
        both!(self, server => server.resume());
    }

    pub fn save_state(&mut self) {
        both!(self, server => server.save_state());
    }

    pub fn restore_state(&mut self) {
        both!(self, server => server.restore_state());
    }

    /// As if the logs there had been made before there was a registry of machines.
    pub fn forget_machines(&self) {
        if let Server::Postgres(server) = self {
            server.execute("DROP TABLE stere_log_machine");
        }
    }

    pub fn create(&self) -> Arc<dyn SharedLog> {
        stere_log_engines::create(&self.address(), POOL, "test").unwrap()
    }

    pub fn open(&self) -> Arc<dyn SharedLog> {
        stere_log_engines::open_with(&self.address(), POOL, DEADLINE).unwrap()
    }
}

/// Runs a test on both engines, each in a test of its own.
#[macro_export]
macro_rules! on_both {
    ($($name:ident),+ $(,)?) => {
        mod on_postgres {
            $(#[test] fn $name() { $crate::world::Server::postgres().into_iter().for_each(super::$name); })+
        }
        mod on_etcd {
            $(#[test] fn $name() { $crate::world::Server::etcd().into_iter().for_each(super::$name); })+
        }
    };
}
