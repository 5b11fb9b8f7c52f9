//! Progress of long work: a bar on a terminal, a plain line now and then elsewhere.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use stere_machine::size;

const WIDTH: u64 = 40;
const LINE_EVERY: Duration = Duration::from_secs(10);

pub struct Bar {
    what: &'static str,
    is_terminal: bool,
    last_line: Instant,
    is_shown: bool,
}

impl Bar {
    pub fn new(what: &'static str) -> Bar {
        Bar { what, is_terminal: std::io::stderr().is_terminal(), last_line: Instant::now(), is_shown: false }
    }

    pub fn show(&mut self, done: u64, total: u64) {
        if total == 0 {
            return;
        }
        let percent = done.min(total) * 100 / total;
        if self.is_terminal {
            let filled = (done.min(total) * WIDTH / total) as usize;
            let bar = format!("{:-<width$}", "#".repeat(filled), width = WIDTH as usize);
            eprint!("\r{} [{bar}] {percent:3} % of {}  ", self.what, size::show(total));
            // A terminal that is gone shows nothing; the work goes on.
            drop(std::io::stderr().flush());
            self.is_shown = true;
        } else if self.last_line.elapsed() >= LINE_EVERY {
            self.last_line = Instant::now();
            eprintln!("{}: {percent} % of {}", self.what, size::show(total));
        }
    }

    /// Leaves the line.
    pub fn end(&mut self) {
        if std::mem::take(&mut self.is_shown) {
            eprintln!();
        }
    }
}
