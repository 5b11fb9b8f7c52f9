#!/bin/bash
# `stere find` beside find(1) on the same mount, cold and warm, and what it costs others meanwhile. Needs root (dropping caches).
#   sudo bench/find.sh
# FILES (100000) in directories of a thousand; ROUNDS (5) of each; median, least and most are printed, times in milliseconds.
set -euo pipefail
stere=$(realpath "${STERE:-target/release/stere}")
files=${FILES:-100000}
rounds=${ROUNDS:-5}
folder=$(mktemp -d "${TMPDIR:-/tmp}/stere-find.XXXXXX")
export STERE_STATE=$folder/state
cd "$folder"
end() {
    cd /
    "$stere" umount "$folder/m" --force >/dev/null 2>&1 || true
    rm -rf "$folder"
}
trap 'tell; end' EXIT
mkdir m
now() { date +%s%N; }
note() { echo "$2" >>"$folder/figures.$1"; }
tell() {
    for name in $(ls -tr "$folder" | grep '^figures' | sed 's/^figures\.//'); do
        sort -g "$folder/figures.$name" | awk -v name="$name" '{ v[NR] = $1 } END { printf "%-34s %10.3f  (%.3f to %.3f, %d)\n", name, v[int((NR + 1) / 2)], v[1], v[NR], NR }'
    done
}
milliseconds() {
    local name=$1 start
    shift
    start=$(now)
    "$@" >out
    note "$name" "$(awk -v a="$start" -v b="$(now)" 'BEGIN { printf "%.3f", (b - a) / 1e6 }')"
}
cold() {
    "$stere" umount m
    echo 3 >/proc/sys/vm/drop_caches
    "$stere" mount tank m
}
count_is() { [ "$(wc -l <out)" = "$1" ] || { echo "$(wc -l <out) lines and not $1" >&2; exit 1; }; }

"$stere" create tank a.img,size=4G b.img,size=4G >/dev/null
"$stere" mount tank m
echo "making $files files"
perl -e '
    my ($files) = @ARGV;
    for my $number (0 .. $files - 1) {
        my $directory = sprintf("m/d%03d", $number / 1000);
        mkdir $directory if $number % 1000 == 0;
        open(my $file, ">", "$directory/f$number") or die;
        print $file "x" x ($number % 10 == 0 ? 8192 : 100);
    }' "$files"
large=100
mkdir m/large
for ((number = 0; number < large; number++)); do
    truncate -s 3M "m/large/$number"
    setfattr -n user.color -v red "m/d000/f$number"
done
"$stere" flush m --wait
many=$((files / 10 + large))
for ((round = 0; round < rounds; round++)); do
    cold
    milliseconds size-cold-stere "$stere" find 'type=file size>4K' m && count_is "$many"
    milliseconds size-warm-stere "$stere" find 'type=file size>4K' m && count_is "$many"
    milliseconds large-cold-index "$stere" find 'size>1M' m && count_is "$large"
    milliseconds large-warm-index "$stere" find 'size>1M' m && count_is "$large"
    milliseconds large-warm-pass "$stere" find 'size>1M' m --no-index && count_is "$large"
    milliseconds attribute-warm-index "$stere" find 'user.color=red' m && count_is "$large"
    milliseconds attribute-warm-pass "$stere" find 'user.color=red' m --no-index && count_is "$large"
    milliseconds size-count-warm-stere "$stere" find 'type=file size>4K' m --count
    milliseconds name-warm-stere "$stere" find 'type=file f*77' m && count_is $((files / 100))
    milliseconds all-json-warm-stere "$stere" find 'type=file' m --json && count_is $((files + large))
    milliseconds state-warm-stere "$stere" find 'type=file state!=compliant' m && count_is 0
    cold
    milliseconds size-cold-find1 find m -type f -size +4096c && count_is "$many"
    milliseconds size-warm-find1 find m -type f -size +4096c && count_is "$many"
    milliseconds name-warm-find1 find m -type f -name 'f*77' && count_is $((files / 100))
done
paste "figures.size-cold-find1" "figures.size-cold-stere" | awk '{ print $1 / $2 }' >"figures.ratio-cold"
paste "figures.size-warm-find1" "figures.size-warm-stere" | awk '{ print $1 / $2 }' >"figures.ratio-warm"

# Who makes, writes and looks at files beside searches that follow one another.
others() {
    perl -MTime::HiRes=time -e '
        my ($name) = @ARGV;
        my @took;
        for my $number (0 .. 1999) {
            my $start = time;
            open(my $file, ">", "m/beside") or die;
            syswrite($file, "y" x 4096);
            close($file);
            (stat("m/beside"))[7] == 4096 or die;
            push @took, (time - $start) * 1e3;
        }
        unlink "m/beside";
        @took = sort { $a <=> $b } @took;
        open(my $half, ">>", "figures.$name-median"); print $half "$took[1000]\n";
        open(my $most, ">>", "figures.$name-99th"); print $most "$took[1980]\n";' "$1"
}
for ((round = 0; round < rounds; round++)); do
    others write-alone
    touch searching
    (while [ -e searching ]; do "$stere" find 'type=file state!=compliant' m --count >/dev/null; done) &
    searching=$!
    others write-beside-searches
    rm searching
    wait "$searching"
done
