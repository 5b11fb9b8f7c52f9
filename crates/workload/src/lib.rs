//! What a load of requests is like: profiles, long-range dependence, traces, advice.

pub mod call;
pub mod dependence;
pub mod distinct;
pub mod histogram;
pub mod hurst;
pub mod profile;
pub mod recent;
pub mod reuse;
pub mod subjects;
