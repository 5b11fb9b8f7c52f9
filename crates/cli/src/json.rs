//! Answers as JSON.

use stere_machine::error::{Error, Result};

pub fn to_json(value: &(impl serde::Serialize + ?Sized)) -> Result<String> {
    serde_json::to_string_pretty(value).map_err(|error| Error::System(error.into()))
}
