//! What comes of a change of devices: a forecast, or what was done.

use stere_control::change::Forecast;

/// What came of it.
pub enum Outcome {
    Forecast(Forecast),
    /// What was done, in words.
    Done(String),
}
