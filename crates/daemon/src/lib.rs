//! The process of a mount: it owns the pool, the file system and the session, and answers commands and programs.
//!
//! `serve.rs` starts and ends it. Its threads of background work (`worker.rs`) each have a file: `work.rs` (commits, cleaning),
//! `repair.rs`, `tertiary.rs` (media), `backup.rs`, `follow.rs` (events of plugins). `control_socket.rs` answers commands (by
//! `answer/`), `public.rs` answers those who only use the mount. On a machine that does not own the
//! pool `client_control.rs` and `client_questions.rs` have both asked of the owner. Read next: `daemon.rs`, what they share.

mod admit;
mod answer;
mod background;
mod backup;
mod backups;
mod client_control;
mod client_keys;
mod client_media;
mod client_names;
mod client_plugins;
mod client_questions;
pub mod clients;
mod control_socket;
mod daemon;
mod ending;
mod follow;
mod from_afar;
mod give_way;
mod junctions;
mod learn_places;
mod library;
mod metrics;
pub mod mount;
pub mod mount_request;
mod nodes;
mod notify;
mod options;
mod public;
pub mod receiver;
pub mod remount;
mod repair;
mod seek_owner;
mod serve;
pub mod serve_client;
mod tertiary;
mod work;
mod worker;
