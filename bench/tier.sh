#!/bin/bash
# Tertiary storage in numbers, in one run: requests for each small file that goes down, requests to bring a directory of a thousand
# files back (by command and by reading), first byte and whole of a released file beside the same bytes from the volume itself.
#   sudo bench/tier.sh [PLACE]      PLACE: dir:/empty/directory or s3://bucket/prefix,endpoint=...; a directory in $TMPDIR if not given
set -euo pipefail
stere=${STERE:-target/release/stere}
stere=$(realpath "$stere")
files=${FILES:-10000}
folder=$(mktemp -d "${TMPDIR:-/tmp}/stere-tier.XXXXXX")
export STERE_STATE=$folder/state
cd "$folder"
trap 'cd /; "$stere" umount "$folder/m" --force >/dev/null 2>&1 || true; rm -rf "$folder"' EXIT
mkdir m volume
place=${1:-dir:$folder/volume}
field() { "$stere" tier queue tank --json | sed -n "s/^  \"$1\": \([0-9]*\),*\$/\1/p" | head -n 1; }
drop() { sync; echo 3 >/proc/sys/vm/drop_caches; }
now() { date +%s.%N; }
since() { awk -v a="$1" -v b="$(now)" 'BEGIN { printf "%.3f", b - a }'; }
"$stere" create tank a.img,size=2G b.img,size=2G >/dev/null
"$stere" mount tank m
"$stere" device add tank "$place,name=cold" >/dev/null

mkdir -p m/small
for group in $(seq 0 $((files / 1000 - 1))); do
    mkdir "m/small/$group"
    head -c 4096000 /dev/urandom | split -b 4096 -a 3 -d - "m/small/$group/f"
done
"$stere" flush m --wait
before=$(field requests)
start=$(now)
"$stere" tier archive m/small --wait >/dev/null
seconds=$(since "$start")
requests=$(($(field requests) - before))
echo "archive: $files files of 4 KiB in $seconds s, $requests requests: $(awk -v r="$requests" -v f="$files" 'BEGIN { printf "%.4f", r / f }') a file (bar: below 0.01)"

"$stere" tier release m/small >/dev/null
before=$(field requests)
"$stere" tier stage m/small/0 --wait >/dev/null
staged=$(($(field requests) - before))
"$stere" tier release m/small >/dev/null
drop
before=$(field requests)
start=$(now)
cat m/small/1/* >/dev/null
seconds=$(since "$start")
echo "stage of 1,000 files: $staged requests; reading another 1,000 released files: $(($(field requests) - before)) requests, $seconds s"

head -c 10M /dev/urandom >m/large
"$stere" tier archive m/large --wait >/dev/null
for size in 10K 100K 1M 10M; do
    "$stere" tier release m/large >/dev/null
    drop
    start=$(now)
    head -c 1 m/large >/dev/null
    first=$(since "$start")
    "$stere" tier release m/large >/dev/null
    drop
    start=$(now)
    head -c "$size" m/large >/dev/null
    echo "released file, $size: first byte $first s, all $(since "$start") s"
done
if [ -d volume/segments ]; then
    drop
    start=$(now)
    cat $(ls -t volume/segments/* | head -n 3) >/dev/null
    echo "the same from the volume itself, three objects: $(since "$start") s"
fi
"$stere" umount m
