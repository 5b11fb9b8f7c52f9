#!/bin/bash
# Two builds of stere beside each other, on images in memory, where devices are equal and the processors are the limit:
#
#   sudo bench/builds.sh OLD NEW [ROUNDS] [WORKLOAD...]
#
# OLD and NEW are binaries, both of `cargo build --release -p stere` without CARGO_INCREMENTAL (those of test runs are optimized less). In each round every workload runs on both, one after the
# other; printed are the medians of each figure, their ratio (above 1: NEW is faster) and the spread of OLD, and for each workload
# the instructions in user space that the daemon took (perf(1); below 1: NEW takes fewer). Times vary by several percent from run
# to run, instructions by less than one; but most of the time goes by in the kernel and in
# cache misses, which instructions do not show. Needs 6 GiB of /dev/shm, and `cargo build --release -p stere-bench`.
set -eu
[ $# -ge 2 ] || { sed -n '2,10s/^# \{0,1\}//p' "$0"; exit 2; }
old=$(realpath "$1") new=$(realpath "$2") rounds=${3:-5}
shift $(($# < 3 ? $# : 3))
workloads=${*:-"sequential random-read random-write small-files postmark tree"}
cd "$(dirname "$0")/.."
bench=${CARGO_TARGET_DIR:-target}/release/stere-bench
[ -x "$bench" ] || { echo "build it first: cargo build --release -p stere-bench" >&2; exit 2; }
folder=$(mktemp -d)
image=$(mktemp /dev/shm/stere-builds-XXXXXX)
export HOME=$folder
mount=$folder/mount
mkdir "$mount"
trap 'umount "$mount" 2>/dev/null; rm -rf "$image" "$folder"' EXIT

turn() { # BINARY LABEL WORKLOAD ROUND
    rm -f "$image"
    truncate -s 6G "$image"
    "$1" create "builds$$" "$image" --force --yes >/dev/null
    "$1" mount "builds$$" "$mount" >/dev/null
    daemon=$(pgrep -f "^$1 .*$mount" | head -1)
    perf stat -x, -e instructions:u -p "$daemon" -o "$folder/counts" 2>/dev/null &
    counter=$!
    sleep 0.2
    "$bench" run "$3" "$mount" >"$folder/$2-$3-$4.json"
    kill -INT $counter
    wait $counter 2>/dev/null || true
    grep instructions "$folder/counts" | cut -d, -f1 >"$folder/$2-$3-$4.count"
    "$1" umount "$mount" >/dev/null
    "$1" pool export "builds$$" >/dev/null
}

for round in $(seq "$rounds"); do
    for workload in $workloads; do
        turn "$old" old "$workload" "$round"
        turn "$new" new "$workload" "$round"
        echo "round $round: $workload" >&2
    done
done

python3 - "$folder" "$rounds" $workloads <<'PYTHON'
import json, statistics, sys
folder, rounds, workloads = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
def figures(build, workload):
    found = {}
    for number in range(1, rounds + 1):
        for metric in json.load(open(f"{folder}/{build}-{workload}-{number}.json"))["metrics"]:
            found.setdefault(metric["name"], []).append(metric["value"])
    return found
def count(text):
    # A virtual machine may count no instructions.
    return float(text) if text.strip().isdigit() else 0
def counts(build, workload):
    return [count(open(f"{folder}/{build}-{workload}-{number}.count").read()) for number in range(1, rounds + 1)]
print(f"{'figure':24} {'old':>10} {'new':>10} {'new/old':>8} {'spread':>7}")
for workload in workloads:
    old, new = figures("old", workload), figures("new", workload)
    for name in old:
        before, after = statistics.median(old[name]), statistics.median(new[name])
        spread = (max(old[name]) - min(old[name])) / before
        print(f"{name:24} {before:10.0f} {after:10.0f} {after / before:8.3f} {spread:7.2f}")
    before, after = statistics.median(counts("old", workload)), statistics.median(counts("new", workload))
    if before:
        print(f"{workload + ', instructions':24} {before / 1e6:9.0f}M {after / 1e6:9.0f}M {after / before:8.3f}")
PYTHON
