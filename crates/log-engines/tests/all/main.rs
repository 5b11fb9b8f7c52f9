//! Shared logs in real engines. Each module is run by itself. Read next: `contract.rs`.

mod absence;
mod contract;
mod limits;
mod proxy;
mod world;
