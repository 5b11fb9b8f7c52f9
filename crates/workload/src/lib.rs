//! What a load of requests is like: profiles, long-range dependence, traces, advice.

pub mod analyse;
pub mod call;
pub mod dependence;
pub mod distinct;
pub mod dxt;
pub mod error;
pub mod histogram;
pub mod hurst;
pub mod loads;
pub mod profile;
pub mod recent;
pub mod reuse;
pub mod subjects;
pub mod table_file;
pub mod trace;
