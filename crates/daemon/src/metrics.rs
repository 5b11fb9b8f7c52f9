//! Metrics for Prometheus: the state of the pool as text, over HTTP, at the address of the mount option `metrics=`.
//!
//! Names begin with `stere_` and end in their base unit; labels are pool, device, class and state, never a path.

use std::fmt::Write;
use std::net::{SocketAddr, ToSocketAddrs};

use stere_control::status::{State, StatusReport};
use stere_machine::error::{Error, Result, refused};

const CONTENT_TYPE: &str = "Content-Type: text/plain; version=0.0.4; charset=utf-8";

/// `ADDR` as people give it: `9464`, `:9464` (both on this machine only), `[::1]:9464`, `0.0.0.0:9464`.
pub fn parse_address(text: &str) -> Option<SocketAddr> {
    let text = match text.strip_prefix(':').unwrap_or(text) {
        port if port.bytes().all(|byte| byte.is_ascii_digit()) => format!("127.0.0.1:{port}"),
        full => full.to_owned(),
    };
    text.to_socket_addrs().ok()?.next()
}

/// Takes the address, before anything is mounted.
pub fn listen(address: SocketAddr) -> Result<tiny_http::Server> {
    match tiny_http::Server::http(address) {
        Ok(server) => Ok(server),
        Err(error) => refused(format!("metrics cannot be served at {address}: {error}; name another address")),
    }
}

/// Answers `GET /metrics` in a thread of its own until the process ends; every answer is made anew.
pub fn serve(server: tiny_http::Server, text: impl Fn() -> String + Send + 'static) -> Result<()> {
    let header: tiny_http::Header = CONTENT_TYPE.parse().map_err(|()| Error::Refused("a wrong header".into()))?;
    let work = move || {
        for request in server.incoming_requests() {
            let answered = match (request.method(), request.url()) {
                (tiny_http::Method::Get, "/metrics" | "/") => {
                    let response = tiny_http::Response::from_string(text());
                    request.respond(response.with_header(header.clone()))
                }
                _ => request.respond(tiny_http::Response::from_string("see /metrics\n").with_status_code(404)),
            };
            if let Err(error) = answered {
                tracing::debug!(%error, "whoever asked for metrics has gone");
            }
        }
    };
    std::thread::Builder::new().name("metrics".into()).spawn(work).map(drop).map_err(Error::System)
}

/// One family of metrics: its help and its samples.
struct Family<'a> {
    text: &'a mut String,
    name: &'a str,
}

impl<'a> Family<'a> {
    fn begin(text: &'a mut String, name: &'a str, kind: &str, help: &str) -> Family<'a> {
        // Writing to a string does not fail.
        let _ = writeln!(text, "# HELP stere_{name} {help}\n# TYPE stere_{name} {kind}");
        Family { text, name }
    }

    fn sample(&mut self, labels: &[(&str, &str)], value: impl std::fmt::Display) {
        let labels: Vec<String> = labels.iter().map(|(key, value)| format!("{key}=\"{}\"", escape(value))).collect();
        let _ = writeln!(self.text, "stere_{}{{{}}} {value}", self.name, labels.join(","));
    }
}

fn escape(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// The whole text.
pub fn render(report: &StatusReport) -> String {
    let mut text = String::new();
    render_pool(&mut text, report);
    render_devices(&mut text, report);
    render_classes(&mut text, report);
    render_cleaning(&mut text, report);
    text
}

/// The whole text of a mount through the pool's owner: without an answer of the owner nothing is known but that.
pub fn render_through(pool: &str, report: Option<&StatusReport>) -> String {
    let mut text = report.map(render).unwrap_or_default();
    Family::begin(&mut text, "owner_answers", "gauge", "1 if the pool's owner answers this mount.")
        .sample(&[("pool", pool)], u8::from(report.is_some()));
    text
}

fn render_pool(text: &mut String, report: &StatusReport) {
    let pool = [("pool", report.pool.as_str())];
    let mut family = Family::begin(text, "pool_state", "gauge", "1 for the state that the pool is in.");
    let states =
        [(State::Healthy, "healthy"), (State::Degraded, "degraded"), (State::AtRisk, "at_risk"), (State::Lost, "lost")];
    for (state, word) in states {
        family.sample(&[pool[0], ("state", word)], u8::from(report.state == state));
    }
    let seconds = report.recovery.duration_ms as f64 / 1000.0;
    Family::begin(text, "recovery_duration_seconds", "gauge", "How long the last mount took to recover.")
        .sample(&pool, seconds);
    let gauges = [
        ("pool_survives_losses", "Device losses that are survived from now on.", u64::from(report.survives)),
        ("pool_read_only", "1 if the pool is mounted for reading only.", u64::from(report.read_only)),
        ("pool_size_bytes", "Room for segments on all devices.", report.raw_bytes),
        ("pool_live_bytes", "What is in use of it, with copies and parity.", report.live_raw_bytes),
        ("journal_size_bytes", "Room in the journal.", report.journal_bytes),
        ("journal_used_bytes", "What is in use of it.", report.journal_used_bytes),
        ("unreadable_bytes", "Content that cannot be read from the devices that are there.", report.unreadable_bytes),
        ("repair_left_bytes", "What repair has still to write.", report.work.bytes_left),
        ("repair_impossible_chunks", "Chunks that find no place or no source.", report.work.impossible_chunks),
        ("scrub_checked_bytes", "What the present or last scrub has verified.", report.scrub.bytes_checked),
        ("scrub_findings", "What it found and could not repair.", report.scrub.findings),
    ];
    for (name, help, value) in gauges {
        Family::begin(text, name, "gauge", help).sample(&pool, value);
    }
}

fn render_cleaning(text: &mut String, report: &StatusReport) {
    let (pool, cleaning) = ([("pool", report.pool.as_str())], &report.cleaning);
    let counters = [
        ("content_written_bytes_total", "Content as it is stored, written since the mount.", cleaning.written_bytes),
        ("cleaning_moved_bytes_total", "Content that cleaning moved.", cleaning.moved_bytes),
        ("cleaning_emptied_segments_total", "Segments that cleaning emptied.", cleaning.emptied_segments),
    ];
    for (name, help, value) in counters {
        Family::begin(text, name, "counter", help).sample(&pool, value);
    }
    let help = "Full segments of content by tenths of them in use: as written, or survivors of a cleaning.";
    let mut family = Family::begin(text, "segments_in_use", "gauge", help);
    for (kind, counts) in [("written", &cleaning.segments_new), ("survived", &cleaning.segments_survived)] {
        for (tenth, count) in counts.iter().enumerate() {
            family.sample(&[pool[0], ("kind", kind), ("tenth", &tenth.to_string())], count);
        }
    }
}

fn render_devices(text: &mut String, report: &StatusReport) {
    let mut family = Family::begin(text, "device_state", "gauge", "1 for the state that the device is in.");
    for device in &report.devices {
        family.sample(&[("pool", &report.pool), ("device", &device.name), ("state", &device.state)], 1);
    }
    type Read = fn(&stere_control::status::DeviceReport) -> u64;
    let families: [(&str, &str, &str, Read); 7] = [
        ("device_size_bytes", "gauge", "Size of the device.", |device| device.size_bytes),
        ("device_used_bytes", "gauge", "What is in use of it.", |device| device.used_bytes),
        ("device_behind_bytes", "gauge", "What it lacks of what it should hold.", |device| device.behind_bytes),
        ("device_read_errors_total", "counter", "Failed reads.", |device| device.read_errors),
        ("device_write_errors_total", "counter", "Failed writes.", |device| device.write_errors),
        ("device_checksum_errors_total", "counter", "Blocks that were wrong.", |device| device.checksum_errors),
        ("device_repaired_blocks_total", "counter", "Blocks that were mended.", |device| device.repaired_blocks),
    ];
    for (name, kind, help, read) in families {
        let mut family = Family::begin(text, name, kind, help);
        for device in &report.devices {
            family.sample(&[("pool", &report.pool), ("device", &device.name)], read(device));
        }
    }
}

fn render_classes(text: &mut String, report: &StatusReport) {
    type Read = fn(&stere_control::status::ClassReport) -> u64;
    let families: [(&str, &str, Read); 2] = [
        ("class_size_bytes", "Room for content of this class if all were of it.", |class| class.total_bytes),
        ("class_free_bytes", "What is free of it.", |class| class.free_bytes),
    ];
    for (name, help, read) in families {
        let mut family = Family::begin(text, name, "gauge", help);
        for class in &report.classes {
            family.sample(&[("pool", &report.pool), ("class", &class.class)], read(class));
        }
    }
}

#[cfg(test)]
mod tests;
