//! What went wrong with a statement, and whether waiting may help. Read next: `session.rs`.

use stere_shared_log::Error;
use tokio_postgres::error::SqlState;

use crate::address::Address;

pub(super) enum Failure {
    /// The answer is understood, and is this error; the session is good.
    Told(Error),
    Server(tokio_postgres::Error),
    /// The deadline is over.
    Late,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure::Told(error)
    }
}

impl From<tokio_postgres::Error> for Failure {
    fn from(error: tokio_postgres::Error) -> Self {
        Failure::Server(error)
    }
}

impl Failure {
    pub(super) fn state(&self) -> Option<&SqlState> {
        match self {
            Failure::Server(error) => error.code(),
            _ => None,
        }
    }

    /// Whether the connection itself broke, as one that waited unused may have done long ago.
    pub(super) fn is_broken(&self) -> bool {
        match self {
            Failure::Server(error) => error
                .code()
                .is_none_or(|state| is_end_of_session(state) || *state == SqlState::READ_ONLY_SQL_TRANSACTION),
            _ => false,
        }
    }
}

/// The server ended the session, or will.
fn is_end_of_session(state: &SqlState) -> bool {
    let class = state.code().get(..2);
    class == Some("08") || state.code().starts_with("57P")
}

fn may_help_to_wait(state: &SqlState) -> bool {
    let passing = [
        SqlState::QUERY_CANCELED,
        SqlState::LOCK_NOT_AVAILABLE,
        SqlState::TOO_MANY_CONNECTIONS,
        SqlState::T_R_SERIALIZATION_FAILURE,
        SqlState::T_R_DEADLOCK_DETECTED,
        SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT,
    ];
    is_end_of_session(state) || passing.contains(state)
}

/// What to do about an answer that waiting does not change.
fn advice(state: &SqlState) -> &'static str {
    match *state {
        SqlState::DISK_FULL => "; give its disk more space",
        SqlState::INVALID_PASSWORD => "; put the right password into the address",
        SqlState::INVALID_AUTHORIZATION_SPECIFICATION => "; let this user in by pg_hba.conf, or name another",
        SqlState::INVALID_CATALOG_NAME => "; create the database, or name the right one",
        SqlState::INSUFFICIENT_PRIVILEGE => {
            "; grant this user SELECT, INSERT, UPDATE and DELETE on stere_log and stere_log_record, and to create them \
             let it own the database"
        }
        SqlState::UNDEFINED_TABLE => "; no pool has a log in this database: is it the right one?",
        SqlState::READ_ONLY_SQL_TRANSACTION => "; name the primary too, or promote the standby (pg_ctl promote)",
        _ => "",
    }
}

/// All the words of an error and of what caused it.
fn words(error: &tokio_postgres::Error) -> String {
    if let Some(told) = error.as_db_error() {
        return format!("{} ({})", told.message(), told.code().code());
    }
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(deeper) = cause {
        let deeper_text = deeper.to_string();
        if !text.contains(&deeper_text) {
            text = format!("{text}: {deeper_text}");
        }
        cause = deeper.source();
    }
    text
}

pub(super) fn away_or_refused(address: &Address, failure: Failure) -> Error {
    match failure {
        Failure::Told(error) => error,
        Failure::Late => address.away("no answer within the deadline"),
        Failure::Server(error) => match error.code() {
            Some(state) if may_help_to_wait(state) => address.away(words(&error)),
            Some(state) => address.refused(format!("{}{}", words(&error), advice(state))),
            // TLS that is refused stays so, but a connection that broke while it was agreed on looks alike.
            None => address.away(words(&error)),
        },
    }
}
