#!/bin/sh
# What damage costs a reader and how fast scrubbing is, on two image files in DIRECTORY: bench/repair.sh [DIRECTORY] [RUNS]
# After Loris (2010), table 1. Prints medians. Needs 1 GiB in DIRECTORY, which should lie on the device to be measured.
set -e
cd "$(dirname "$0")/.."
exec cargo run --release -q -p stere-naming --example rot -- "${1:-${TMPDIR:-/tmp}}" "${2:-5}"
