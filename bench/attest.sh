#!/bin/bash
# Selective protection on a real source tree, as in ATTEST (figures 4.8, 5.4, 5.5 and 7.14), and what compression and encryption leave
# of the bare library's rate. Needs root, /dev/fuse, a C compiler; btrfs-progs and gocryptfs for the rows beside them.
#   sudo bench/attest.sh [--publish] tree|rates|all SOURCES
# SOURCES: a directory of C sources, or a git repository (its HEAD is taken). BUILD (default: every *.c below it that the compiler takes,
# one process each, ROUNDS rounds) is run in the copy: give a line, such as BUILD='make -j2 MALLOC=libc', for a tree's own build.
# Every round goes through all rows in turn, each in a directory of its own, cold before it compiles. Printed: median, least and most
# of the seconds, and the ratio to the row without a plugin; written to bench/results, with --publish to bench/published.
# ROUNDS (5), MEGABYTES (1024) of the rates, CFLAGS for what the sources include from elsewhere in the tree. Of redis, half of the files
# compile by themselves with CFLAGS='-std=gnu11 -DREDIS_STATIC= -Ideps/hiredis -Ideps/linenoise -Ideps/lua/src -Ideps/hdr_histogram -Ideps/fpconv -Ideps/xxhash'.
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
stere=$(realpath "${STERE:-$here/target/release/stere}")
bare=$(realpath "${BARE:-$here/target/release/examples/bare_rates}" 2>/dev/null || true)
where=results
[ "${1:-}" = --publish ] && { where=published; shift; }
what=${1:-all}
sources=$(realpath "${2:?give a directory or git repository with C sources}")
rounds=${ROUNDS:-5}
megabytes=${MEGABYTES:-1024}
folder=$(mktemp -d "${TMPDIR:-/tmp}/stere-attest.XXXXXX")
export STERE_STATE=$folder/state
begun=$(date -u +%Y-%m-%dT%H-%M-%S)
mkdir -p "$folder/m" "$folder/sources" "$folder/cipher" "$folder/g" "$folder/b"
end() {
    cd /
    umount "$folder/g" "$folder/b" 2>/dev/null || true
    "$stere" umount "$folder/m" --force >/dev/null 2>&1 || true
    rm -rf --one-file-system "$folder"
}
trap end EXIT
now() { date +%s%N; }
note() { echo "$2" >>"$folder/figures.$1"; }
seconds() {
    local name=$1 start
    shift
    start=$(now)
    "$@"
    note "$name" "$(awk -v a="$start" -v b="$(now)" 'BEGIN { printf "%.4f", (b - a) / 1e9 }')"
}
# name, unit, the name whose median the ratio is to
row() {
    [ -e "$folder/figures.$1" ] || return 0
    local base
    base=$(sort -g "$folder/figures.$3" | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }')
    sort -g "$folder/figures.$1" | awk -v name="$1" -v unit="$2" -v base="$base" -v beside="$3" '{ v[NR] = $1 } END {
        m = v[int((NR + 1) / 2)]
        printf "%-28s %9.3f %-5s (%.3f to %.3f, %d)  %.3f of %s\n", name, m, unit, v[1], v[NR], NR, m / base, beside
    }' | tee -a "$folder/told"
}
cold() {
    sync
    "$stere" umount "$folder/m"
    echo 3 >/proc/sys/vm/drop_caches
    "$stere" mount tank "$folder/m" -o "keyfile=$folder/key"
}
pool() {
    head -c 32 /dev/urandom >"$folder/key" && chmod 600 "$folder/key"
    "$stere" create tank "$folder/a.img,size=12G" >/dev/null
    "$stere" mount tank "$folder/m"
    "$stere" key create tank family --key-file "$folder/key" >/dev/null
}

compile() {
    cd "$1"
    if [ -n "${BUILD:-}" ]; then
        sh -c "$BUILD" >"$folder/build.log" 2>&1
    else
        # The same files in every row: those that compile by themselves.
        xargs -P 2 -n 1 sh -c 'cc -O0 -w -Isrc -Iinclude -I"$(dirname "$0")" '"${CFLAGS:-}"' -c "$0" -o "$0.o"' <"$folder/compiles"
    fi
    sync -f "$1"
    cd "$folder"
}

# name and policy of each row of the tree
settings() {
    cat <<'END'
none
encrypted-all encrypt=yes
encrypted-c rules=*.c:encrypt=yes
integrity-all audit=yes provenance=yes
integrity-c rules=*.c:audit=yes,provenance=yes
zstd-all compress=zstd
zstd-c rules=*.c:compress=zstd
END
}

tree() {
    if git -C "$sources" rev-parse --git-dir >/dev/null 2>&1 && [ "$(git -C "$sources" rev-parse --is-bare-repository)" = true ]; then
        git -C "$sources" archive HEAD | tar x -C "$folder/sources"
    else
        cp -a "$sources/." "$folder/sources/"
    fi
    cd "$folder/sources"
    : >"$folder/compiles"
    if [ -z "${BUILD:-}" ]; then
        find . -name '*.c' | sort | xargs -P 2 -I{} sh -c \
            'cc -O0 -w -Isrc -Iinclude -I"$(dirname "{}")" '"${CFLAGS:-}"' -c "{}" -o /dev/null 2>/dev/null && echo "{}" || true' | sort >"$folder/compiles"
    fi
    cd "$folder"
    echo "$(find sources -type f | wc -l) files, $(find sources -name '*.c' | wc -l) of them *.c, $(wc -l <compiles) compiled one by one" | tee told
    pool
    for ((round = 0; round < rounds; round++)); do
        # Each round begins with another row, and the sources are in memory for all.
        while read -r name policy; do
            find "$folder/sources" -type f -exec cat {} + >/dev/null
            mkdir "$folder/m/$name"
            # shellcheck disable=SC2086
            for setting in $policy; do "$stere" policy set "$folder/m/$name" "$setting"; done
            seconds "copy-$name" sh -c "cp -r '$folder/sources/.' '$folder/m/$name' && sync -f '$folder/m/$name'"
            cold
            seconds "compile-$name" compile "$folder/m/$name"
            rm -rf "${folder:?}/m/$name"
        done < <({ settings; settings; } | tail -n "+$((round % $(settings | wc -l) + 1))" | head -n "$(settings | wc -l)")
    done
    for phase in copy compile; do
        while read -r name _; do row "$phase-$name" s "$phase-none"; done < <(settings)
    done
    "$stere" umount "$folder/m"
    rm -f "$folder/a.img"
    "$stere" pool export tank >/dev/null 2>&1 || true
}

# What compresses about as sources do: the sources themselves, again and again, each time from elsewhere.
content() {
    find "$folder/sources" -type f -name '*.[ch]' -exec cat {} + >"$folder/once"
    local size
    size=$(stat -c %s "$folder/once")
    for ((at = 0; ; at++)); do
        [ $((at * size)) -ge $((megabytes << 20)) ] && break
        tail -c +$((at * 7919 % size + 1)) "$folder/once"
        head -c $((at * 7919 % size)) "$folder/once"
    done | head -c $((megabytes << 20)) >"$folder/content" || true
}
# two threads, half of the content each
write_two() {
    local half=$((megabytes / 2))
    dd if="$folder/content" of="$1/one" bs=1M count=$half conv=fsync status=none &
    dd if="$folder/content" of="$1/two" bs=1M count=$half skip=$half conv=fsync status=none
    wait
}
read_two() {
    dd if="$1/one" of=/dev/null bs=1M status=none &
    dd if="$1/two" of=/dev/null bs=1M status=none
    wait
}
rate() {
    local name=$1 start
    shift
    start=$(now)
    "$@"
    note "$name" "$(awk -v a="$start" -v b="$(now)" -v m="$megabytes" 'BEGIN { printf "%.1f", m * 1.048576 * 1e9 / (b - a) }')"
}
one_rate() {
    local name=$1 place=$2 remount=$3
    rate "write-$name" write_two "$place"
    $remount
    cat "$folder/content" >/dev/null
    rate "read-$name" read_two "$place"
    cmp <(cat "$place/one" "$place/two") "$folder/content" || { echo "$name read something else" >&2; exit 1; }
    rm "$place/one" "$place/two"
}
again_btrfs() { umount "$folder/b" && echo 3 >/proc/sys/vm/drop_caches && mount -o loop,compress-force=zstd:3 "$folder/b.img" "$folder/b"; }
again_gocryptfs() { umount "$folder/g" && echo 3 >/proc/sys/vm/drop_caches && gocryptfs -q -extpass "echo x" "$folder/cipher" "$folder/g"; }

rates() {
    [ -e "$folder/sources/." ] && [ -n "$(ls "$folder/sources")" ] || cp -a "$sources/." "$folder/sources/"
    [ -x "$bare" ] || { echo "build it first: cargo build --release -p stere-file --example bare_rates" >&2; exit 1; }
    content
    pool
    local btrfs="" gocryptfs=""
    if command -v mkfs.btrfs >/dev/null; then
        truncate -s 8G "$folder/b.img" && mkfs.btrfs -q "$folder/b.img" && mount -o loop,compress-force=zstd:3 "$folder/b.img" "$folder/b" && btrfs=yes
    else
        echo "btrfs is missing: apt-get install btrfs-progs" | tee -a "$folder/told"
    fi
    if command -v gocryptfs >/dev/null; then
        gocryptfs -q -init -extpass "echo x" "$folder/cipher" && gocryptfs -q -extpass "echo x" "$folder/cipher" "$folder/g" && gocryptfs=yes
    else
        echo "gocryptfs is missing: apt-get install gocryptfs" | tee -a "$folder/told"
    fi
    mkdir "$folder/m/zstd" "$folder/m/encrypted" "$folder/m/plain"
    "$stere" policy set "$folder/m/zstd" compress=zstd:3
    "$stere" policy set "$folder/m/encrypted" encrypt=yes
    for ((round = 0; round < rounds; round++)); do
        "$bare" "$folder/content" 2 zstd:3 | while read -r name value; do note "bare-$name" "$value"; done
        for name in plain zstd encrypted; do one_rate "$name" "$folder/m/$name" cold; done
        [ -z "$btrfs" ] || one_rate btrfs-zstd "$folder/b" again_btrfs
        [ -z "$gocryptfs" ] || one_rate gocryptfs "$folder/g" again_gocryptfs
    done
    row write-zstd MB/s bare-encode
    row read-zstd MB/s bare-decode
    row write-encrypted MB/s bare-seal
    row read-encrypted MB/s bare-open
    # No file system of this machine is faster than it is without any encoding.
    for phase in write read; do
        for name in zstd encrypted plain; do row "$phase-$name" MB/s "$phase-plain"; done
    done
    row bare-encode MB/s bare-encode
    row bare-decode MB/s bare-decode
    row bare-seal MB/s bare-seal
    row bare-open MB/s bare-open
    for phase in write read; do
        row "$phase-btrfs-zstd" MB/s "$phase-zstd"
        row "$phase-gocryptfs" MB/s "$phase-encrypted"
    done
}

case $what in
tree) tree ;;
rates) rates ;;
all) tree && rates ;;
*) echo "tree, rates or all" >&2; exit 2 ;;
esac
mkdir -p "$here/bench/$where"
{
    echo "# attest.sh $what, $begun, $(nproc) cores, load $(cut -d' ' -f1 /proc/loadavg), $rounds rounds, $(basename "$sources")"
    cat "$folder/told"
} >"$here/bench/$where/attest-$begun.txt"
echo "kept in bench/$where/attest-$begun.txt"
