#!/bin/bash
# What counting calls costs those who make them (`stere io`, always on): the same loads on one pool, mounted with and without `noiostat`,
# alternately. Needs root and /dev/fuse.
#   sudo bench/iostat.sh [--publish]
# FILES (20,000) made and closed, looked at and removed in a fresh directory, and READS (60,000) direct reads of 4 KiB of a file of 64 MiB;
# ROUNDS (7) of each, medians, and their ratio (the bar is 1.01). PLACE: where the image lies.
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
stere=$(realpath "${STERE:-$here/target/release/stere}")
where=results
[ "${1:-}" = --publish ] && { where=published; shift; }
folder=$(mktemp -d "${PLACE:-${TMPDIR:-/tmp}}/stere-iostat.XXXXXX")
export STERE_STATE=$folder/state
begun=$(date -u +%Y-%m-%dT%H-%M-%S)
mkdir "$folder/m"
end() {
    cd /
    "$stere" umount "$folder/m" --force >/dev/null 2>&1 || true
    rm -rf --one-file-system "$folder"
}
trap end EXIT
tell() { tee -a "$folder/told"; }
median() { sort -g "$folder/figures.$1" | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }

# Microseconds each: files made, looked at, removed; direct reads.
loads() {
    perl -MTime::HiRes=time -MFcntl -e '
        my ($top, $files, $reads, $kind, $folder) = @ARGV;
        my $directory = "$top/fresh";
        mkdir $directory or die $!;
        sub note { my ($what, $each) = @_; open(my $out, ">>", "$folder/figures.$what.$kind"); printf $out "%.3f\n", $each }
        my $begun = time;
        for my $number (1 .. $files) {
            sysopen(my $file, "$directory/$number", O_CREAT | O_EXCL | O_WRONLY) or die $!;
            close $file;
        }
        note("made", (time - $begun) / $files * 1e6);
        $begun = time;
        for my $number (1 .. $files) { open(my $file, "<", "$directory/$number") or die $!; close $file }
        note("opened", (time - $begun) / $files * 1e6);
        $begun = time;
        for my $number (1 .. $files) { unlink("$directory/$number") or die $! }
        note("removed", (time - $begun) / $files * 1e6);
        rmdir $directory;
        sysopen(my $file, "$top/file", O_RDONLY | 040000) or die $!;
        srand(7);
        $begun = time;
        for (1 .. $reads) {
            sysseek($file, int(rand(16384)) * 4096, 0);
            sysread($file, my $bytes, 4096) == 4096 or die $!;
        }
        note("read", (time - $begun) / $reads * 1e6)' "$folder/m" "${FILES:-20000}" "${READS:-60000}" "$1" "$folder"
}

"$stere" create tank "$folder/a.img,size=4G" >/dev/null
for ((round = 0; round < ${ROUNDS:-7}; round++)); do
    order="on off"
    [ $((round % 2)) = 1 ] && order="off on"
    for kind in $order; do
        options=noatime
        [ "$kind" = off ] && options=noatime,noiostat
        "$stere" mount tank "$folder/m" -o "$options" >/dev/null
        [ -e "$folder/m/file" ] || head -c 67108864 /dev/urandom >"$folder/m/file"
        "$stere" flush "$folder/m" --wait >/dev/null
        cat "$folder/m/file" >/dev/null
        loads "$kind"
        "$stere" umount "$folder/m" >/dev/null
    done
done
for what in made opened removed read; do
    awk -v what=$what -v on="$(median $what.on)" -v off="$(median $what.off)" 'BEGIN {
        printf "%-8s %8.2f us counted, %8.2f us not counted: %.3f\n", what, on, off, on / off }' | tell
done
mkdir -p "$here/bench/$where"
cp "$folder/told" "$here/bench/$where/iostat-$begun.txt"
