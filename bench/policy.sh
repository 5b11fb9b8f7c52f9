#!/bin/bash
# What rules cost whoever makes files, and how fast existing files are stored anew. Needs root and /dev/fuse.
#   sudo bench/policy.sh [--publish] rules|convert
# rules: 10,000 files (FILES) made and closed in one fresh directory through the mount, with no rules and with 1,000 (half of the files are
#   matched), alternately, ROUNDS (9) of each; fastest, median, slowest, and the ratio of the medians (the bar is 1.02).
# convert: GIGABYTES (10) written with copies=2 on five devices, then `parity=4+1`: bytes of content a second until all is as asked, beside
#   the rate at which one of the devices is written, and the time of cold reads of 4 KiB elsewhere in the pool before and meanwhile
#   (bars: 0.7 of what the devices can, twice). PLACE: where the images lie (one file system, so they share its rate).
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
stere=$(realpath "${STERE:-$here/target/release/stere}")
where=results
[ "${1:-}" = --publish ] && { where=published; shift; }
what=${1:?rules or convert}
folder=$(mktemp -d "${PLACE:-${TMPDIR:-/tmp}}/stere-policy.XXXXXX")
export STERE_STATE=$folder/state
begun=$(date -u +%Y-%m-%dT%H-%M-%S)
mkdir "$folder/m"
end() {
    cd /
    "$stere" umount "$folder/m" --force >/dev/null 2>&1 || true
    rm -rf --one-file-system "$folder"
}
trap end EXIT
note() { echo "$2" >>"$folder/figures.$1"; }
tell() { tee -a "$folder/told"; }
median() { sort -g "$folder/figures.$1" | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }
# name, unit
row() {
    sort -g "$folder/figures.$1" | awk -v name="$1" -v unit="$2" '{ v[NR] = $1 } END {
        printf "%-24s %9.2f %-6s (%.2f to %.2f, %d)\n", name, v[int((NR + 1) / 2)], unit, v[1], v[NR], NR }' | tell
}

# Microseconds each for making files in a directory.
make_files() {
    perl -MTime::HiRes=time -MFcntl -e '
        my ($directory, $files) = @ARGV;
        my $begun = time;
        for my $number (0 .. $files - 1) {
            sysopen(my $file, "$directory/file $number.e" . $number % 2000, O_CREAT | O_EXCL | O_WRONLY) or die $!;
            close $file;
        }
        printf "%.3f\n", (time - $begun) / $files * 1e6' "$1" "$2"
}

rules() {
    local files=${FILES:-10000} rounds=${ROUNDS:-9}
    perl -e 'for my $at (0 .. 999) {
        my $kind = $at % 10;
        print $kind == 0 ? "log-$at-*: copies=2\n" : $kind == 1 ? "src/dir$at/*.c: compress=lz4\n"
            : $kind == 2 ? "*.x$at size>${at}M: class=archive\n" : "*.e$at: compress=zstd\n";
    }' >"$folder/rules"
    "$stere" create tank "$folder/a.img,size=4G" >/dev/null
    "$stere" mount tank "$folder/m"
    for ((round = 0; round < rounds; round++)); do
        local order="none many"
        [ $((round % 2)) = 1 ] && order="many none"
        for kind in $order; do
            mkdir "$folder/m/$kind"
            [ "$kind" = none ] || "$stere" policy set "$folder/m/$kind" "rules=$(cat "$folder/rules")"
            "$stere" flush "$folder/m" --wait
            note "$kind" "$(make_files "$folder/m/$kind" "$files")"
            rm -r "$folder/m/$kind"
        done
    done
    row none us
    row many us
    awk -v a="$(median many)" -v b="$(median none)" 'BEGIN { printf "1,000 rules cost %.3f of none\n", a / b }' | tell
}

# Milliseconds of the slowest in a hundred reads of 4 KiB at random places that are in no memory, and of the middle one.
read_some() {
    perl -MTime::HiRes=time -MFcntl -e '
        my ($path, $reads, $skip) = @ARGV;
        my $blocks = (-s $path) / 4096;
        my @times;
        srand($skip);
        for (1 .. $reads) {
            sysopen(my $file, $path, O_RDONLY | 040000) or die $!;
            sysseek($file, int(rand($blocks)) * 4096, 0);
            my $begun = time;
            sysread($file, my $buffer, 4096) == 4096 or die "short read";
            push @times, (time - $begun) * 1e3;
        }
        @times = sort { $a <=> $b } @times;
        printf "%.3f %.3f\n", $times[$reads / 2], $times[$reads * 99 / 100]' "$1" "$2" "$3"
}

convert() {
    local gigabytes=${GIGABYTES:-10} images="" number bytes start device seen=0
    for number in 1 2 3 4 5; do images="$images $folder/$number.img,size=$((gigabytes + 2))G"; done
    # shellcheck disable=SC2086
    "$stere" create tank $images >/dev/null
    "$stere" mount tank "$folder/m"
    mkdir "$folder/m/moved" "$folder/m/read"
    "$stere" policy set "$folder/m/moved" copies=2
    dd if=/dev/urandom of="$folder/m/read/file" bs=1M count=1024 conv=fsync status=none
    for ((number = 0; number < gigabytes; number++)); do
        dd if=/dev/urandom of="$folder/m/moved/$number" bs=1M count=1024 conv=fsync status=none
    done
    bytes=$((gigabytes << 30))
    start=$(date +%s%N)
    dd if=/dev/zero of="$folder/bare" bs=4M count=512 oflag=direct conv=fsync status=none
    device=$(awk -v a="$start" -v b="$(date +%s%N)" 'BEGIN { printf "%.1f", 512 * 4 * 1.048576 * 1e3 / ((b - a) / 1e6) }')
    rm "$folder/bare"
    read_some "$folder/m/read/file" 500 1 >"$folder/before"
    start=$(date +%s%N)
    "$stere" policy set "$folder/m/moved" parity=4+1
    "$stere" reconcile wait tank >/dev/null 2>"$folder/waited" &
    local waiting=$!
    while kill -0 "$waiting" 2>/dev/null; do
        seen=$((seen + 1))
        read_some "$folder/m/read/file" 200 $((seen + 1)) >>"$folder/meanwhile"
    done
    wait "$waiting" || { cat "$folder/waited" >&2; exit 1; }
    # What is read once and written once and a quarter more.
    awk -v a="$start" -v b="$(date +%s%N)" -v bytes="$bytes" -v device="$device" 'BEGIN {
        seconds = (b - a) / 1e9
        rate = bytes / 1e6 / seconds
        printf "%.1f GB of content stored anew in %.1f s: %.1f MB/s; with what is read and written %.1f MB/s, bare images %.1f MB/s: %.3f\n",
            bytes / 1e9, seconds, rate, rate * 2.25, device, rate * 2.25 / device }' | tell
    awk '{ print "reads before: " $1 " ms, slowest of a hundred " $2 " ms" }' "$folder/before" | tell
    sort -g "$folder/meanwhile" | awk '{ m[NR] = $1; w = $2 > w ? $2 : w } END { print "meanwhile: " m[int((NR + 1) / 2)] " ms, slowest of a hundred at most " w " ms" }' | tell
    [ "$("$stere" find 'type=file and state!=compliant' "$folder/m/moved" --count)" = 0 ] || { echo "not all of it is as asked" >&2; exit 1; }
}

case $what in
rules) rules ;;
convert) convert ;;
*) echo "rules or convert" >&2; exit 2 ;;
esac
mkdir -p "$here/bench/$where"
{
    echo "# policy.sh $what, $begun, $(nproc) cores, load $(cut -d' ' -f1 /proc/loadavg)"
    cat "$folder/told"
} >"$here/bench/$where/policy-$what-$begun.txt"
echo "kept in bench/$where/policy-$what-$begun.txt"
