//! Clients and owners over loopback, without kernels: requests as kernels send them, on a pool on devices in memory.

mod admission;
mod calls;
mod commands;
mod early;
mod gather;
mod leases;
mod mounted;
mod once;
mod owners;
mod sharing;
mod site;
mod strangers;
