fn main() { eprintln!("stere: not built yet"); std::process::exit(1); }
