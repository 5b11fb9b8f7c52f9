#!/bin/bash
# What it costs that each append is durable when it returns: `sync=always` beside O_DSYNC on ext4, in one run on the same disk. Needs root
# and /dev/fuse.
#   sudo bench/sync.sh [--publish]
# APPENDS (2,000) lines of 64 bytes by one writer, and as many by each of WRITERS (8) at once to files of their own; the file is opened and
# closed for each line, as a shell does. ROUNDS (5) of each, alternately; medians of microseconds an append, and ext4 by stere. Both lie
# on loop devices of the same size in PLACE.
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
stere=$(realpath "${STERE:-$here/target/release/stere}")
where=results
[ "${1:-}" = --publish ] && { where=published; shift; }
folder=$(mktemp -d "${PLACE:-${TMPDIR:-/tmp}}/stere-sync.XXXXXX")
export STERE_STATE=$folder/state
begun=$(date -u +%Y-%m-%dT%H-%M-%S)
mkdir "$folder/stere" "$folder/ext4"
loops=()
end() {
    cd /
    "$stere" umount "$folder/stere" --force >/dev/null 2>&1 || true
    umount "$folder/ext4" 2>/dev/null || true
    for loop in "${loops[@]}"; do losetup -d "$loop" || true; done
    rm -rf --one-file-system "$folder"
}
trap end EXIT
tell() { tee -a "$folder/told"; }
median() { sort -g "$folder/figures.$1" | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }

# Microseconds an append, of all writers together.
appends() {
    perl -MTime::HiRes=time -MFcntl -e '
        my ($top, $writers, $appends, $flags) = @ARGV;
        my $line = "x" x 63 . "\n";
        unlink glob("$top/file.*");
        my $begun = time;
        for my $writer (1 .. $writers) {
            next if fork;
            for (1 .. $appends) {
                sysopen(my $file, "$top/file.$writer", O_WRONLY | O_CREAT | O_APPEND | $flags) or die $!;
                syswrite($file, $line) == 64 or die $!;
                close $file or die $!;
            }
            exit 0;
        }
        1 while wait != -1;
        my $seconds = time - $begun;
        for my $writer (1 .. $writers) { -s "$top/file.$writer" == 64 * $appends or die "file.$writer" }
        printf "%.1f\n", $seconds / ($writers * $appends) * 1e6' "$@"
}

for name in stere ext4; do
    truncate -s 1G "$folder/$name.img"
    loops+=("$(losetup -f --show --direct-io=on "$folder/$name.img")")
done
mkfs.ext4 -q "${loops[1]}"
mount "${loops[1]}" "$folder/ext4"
"$stere" create tank "${loops[0]}" >/dev/null
"$stere" mount tank "$folder/stere"
mkdir "$folder/stere/log" "$folder/ext4/log"
"$stere" policy set "$folder/stere/log" sync=always >/dev/null
dsync=$(perl -MFcntl -e 'print O_DSYNC')
for ((round = 0; round < ${ROUNDS:-5}; round++)); do
    for writers in 1 "${WRITERS:-8}"; do
        order="stere ext4"
        [ $((round % 2)) = 1 ] && order="ext4 stere"
        for name in $order; do
            flags=0
            [ "$name" = ext4 ] && flags=$dsync
            appends "$folder/$name/log" "$writers" "${APPENDS:-2000}" "$flags" >>"$folder/figures.$name.$writers"
        done
    done
done
for writers in 1 "${WRITERS:-8}"; do
    ours=$(median "stere.$writers") theirs=$(median "ext4.$writers")
    ratio=$(awk "BEGIN { printf \"%.2f\", $theirs / $ours }")
    echo "{\"writers\": $writers, \"stere_us\": $ours, \"ext4_dsync_us\": $theirs, \"ext4_by_stere\": $ratio}" | tell
done
mkdir -p "$here/bench/$where"
cp "$folder/told" "$here/bench/$where/sync-$begun.json"
