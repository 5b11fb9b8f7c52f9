//! Questions to the daemon about media.

use std::time::Duration;

use stere_control::connection::Connection;
use stere_control::message::{Answer, Request};
use stere_control::tier::Order;
use stere_control::tier::report::{SurveyReport, TierReport, Told};
use stere_machine::error::{Result, refused};
use stere_machine::registry::Registry;

pub const POLL: Duration = Duration::from_millis(200);

/// So long something is in the way before it is told.
pub const STANDSTILL: Duration = Duration::from_secs(3);

pub fn ask(connection: &mut Connection, order: Order) -> Result<Told> {
    match connection.ask(Request::Tier { order })? {
        Answer::Tier(told) => Ok(told),
        _ => refused("the pool's daemon gave an answer that was not asked for; unmount and mount it again"),
    }
}

pub fn ask_tier(connection: &mut Connection, order: Order) -> Result<TierReport> {
    match ask(connection, order)? {
        Told::Tier(report) => Ok(report),
        _ => refused("the pool's daemon gave an answer that was not asked for; unmount and mount it again"),
    }
}

pub fn ask_survey(connection: &mut Connection, order: Order) -> Result<SurveyReport> {
    match ask(connection, order)? {
        Told::Survey(report) => Ok(report),
        _ => refused("the pool's daemon gave an answer that was not asked for; unmount and mount it again"),
    }
}

pub fn open(registry: &Registry, pool: &str) -> Result<Connection> {
    match Connection::open(registry, pool) {
        Some(mut connection) => {
            connection.wait_without_limit()?;
            Ok(connection)
        }
        None => refused(format!("the pool '{pool}' is not mounted; media are used while it is: mount it")),
    }
}
