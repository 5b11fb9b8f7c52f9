//! What a load of requests is like: profiles, long-range dependence, traces, advice.

pub mod advise;
pub mod analyse;
pub mod call;
pub mod chart;
pub mod dependence;
pub mod distinct;
pub mod dxt;
pub mod error;
pub mod histogram;
pub mod hurst;
pub mod loads;
pub mod picture;
pub mod profile;
pub mod recent;
pub mod reuse;
pub mod rules;
pub mod subjects;
pub mod table;
pub mod table_file;
pub mod trace;
