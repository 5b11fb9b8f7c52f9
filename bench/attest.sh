#!/bin/bash
# Selective protection on a real source tree, as in ATTEST (figures 4.8, 5.4, 5.5 and 7.14), and what compression and encryption leave
# of the bare library's rate. Needs root, /dev/fuse, a C compiler; btrfs-progs and gocryptfs for the rows beside them.
#   sudo bench/attest.sh [--publish] tree|rates|all [SOURCES]
# SOURCES: a directory of C sources, or a git repository (its HEAD is taken). Without it redis's, of Debian's sources, which apt fetches
# and verifies. BUILD (default: every *.c below it that the compiler takes, one process each, ROUNDS rounds) is run in the copy: give a line,
# such as BUILD='make -j2 MALLOC=libc', for a tree's own build. ROWS: a pattern of which rows of the tree are run (all).
# Every round goes through all rows in turn, each in a directory of its own, cold before it is read and before it compiles. Printed: median,
# least and most, and the ratio to the row without a plugin; written to bench/results, with --publish to bench/published.
# ROUNDS (5), MEGABYTES (1024) of the rates, CFLAGS for what the sources include from elsewhere in the tree.
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
stere=$(realpath "${STERE:-$here/target/release/stere}")
bare=$(realpath "${BARE:-$here/target/release/examples/bare_rates}" 2>/dev/null || true)
streams=$(realpath "${STREAMS:-$here/target/release/examples/streams}" 2>/dev/null || true)
where=results
[ "${1:-}" = --publish ] && { where=published; shift; }
what=${1:-all}
sources=${2:+$(realpath "$2")}
rounds=${ROUNDS:-5}
megabytes=${MEGABYTES:-1024}
folder=$(mktemp -d "${TMPDIR:-/tmp}/stere-attest.XXXXXX")
export STERE_STATE=$folder/state
begun=$(date -u +%Y-%m-%dT%H-%M-%S)
mkdir -p "$folder/m" "$folder/sources" "$folder/cipher" "$folder/g" "$folder/b" "$folder/plain"
end() {
    cd /
    umount "$folder/g" "$folder/b" 2>/dev/null || true
    "$stere" umount "$folder/m" --force >/dev/null 2>&1 || true
    rm -rf --one-file-system "$folder"
}
trap end EXIT
now() { date +%s%N; }
note() { echo "$2" >>"$folder/figures.$1"; }
# Hundredths of a second of processors that the pool's daemon has taken.
daemon_ticks() {
    local pid
    pid=$(pgrep -o -f "^$stere mount --foreground .*$folder/m") && awk '{ print $14 + $15 }' "/proc/$pid/stat"
}
# Runs the rest; notes seconds, and those of the daemon's processors.
seconds() {
    local name=$1 start before
    shift
    before=$(daemon_ticks)
    start=$(now)
    "$@"
    note "$name" "$(awk -v a="$start" -v b="$(now)" 'BEGIN { printf "%.4f", (b - a) / 1e9 }')"
    note "daemon-$name" "$(awk -v a="$before" -v b="$(daemon_ticks)" 'BEGIN { printf "%.2f", (b - a) / 100 }')"
}
# name, unit, the name whose median the ratio is to
row() {
    [ -e "$folder/figures.$1" ] || return 0
    local base
    base=$(sort -g "$folder/figures.$3" | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }')
    sort -g "$folder/figures.$1" | awk -v name="$1" -v unit="$2" -v base="$base" -v beside="$3" '{ v[NR] = $1 } END {
        m = v[int((NR + 1) / 2)]
        printf "%-32s %9.3f %-5s (%.3f to %.3f, %d)  %.3f of %s\n", name, m, unit, v[1], v[NR], NR, base ? m / base : 0, beside
    }' | tee -a "$folder/told"
}
cold() {
    sync -f "$folder/m"
    "$stere" umount "$folder/m"
    echo 3 >/proc/sys/vm/drop_caches
    "$stere" mount tank "$folder/m" -o "keyfile=$folder/key"
}
# Redis's sources by apt, with lists of its own, so that nothing of this machine's changes.
fetch() {
    local apt=$folder/apt
    mkdir -p "$apt/lists/partial" "$apt/cache/archives/partial"
    echo "deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] ${MIRROR:-http://deb.debian.org/debian} bookworm main" >"$apt/sources.list"
    local options=(-qq -o "Dir::Etc::SourceList=$apt/sources.list" -o Dir::Etc::SourceParts=/dev/null
        -o "Dir::State::Lists=$apt/lists" -o "Dir::Cache=$apt/cache" -o APT::Sandbox::User=root)
    apt-get "${options[@]}" update
    (cd "$apt" && apt-get "${options[@]}" source --download-only --tar-only redis)
    mkdir "$apt/redis"
    tar xf "$apt"/redis_*.orig.tar.* -C "$apt/redis" --strip-components 1
    sources=$apt/redis
    # With these, more than half of the files compile by themselves.
    CFLAGS=${CFLAGS:--std=gnu11 -DREDIS_STATIC= -Ideps/hiredis -Ideps/linenoise -Ideps/lua/src -Ideps/hdr_histogram -Ideps/fpconv -Ideps/xxhash}
}
take_sources() {
    [ -n "$sources" ] || fetch
    if git -C "$sources" rev-parse --git-dir >/dev/null 2>&1 && [ "$(git -C "$sources" rev-parse --is-bare-repository)" = true ]; then
        git -C "$sources" archive HEAD | tar x -C "$folder/sources"
    else
        cp -a "$sources/." "$folder/sources/"
    fi
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

read_all() { find "$1" -type f -exec cat {} + >/dev/null; }

# Name and policy of each row of the tree. Only `usual` has what nobody asked for: CRC32C of every block. BLAKE3 is a digest of each record beside them.
settings() {
    grep -E "^(none|${ROWS:-.*})( |\$)" <<'END'
none checksum=none
usual
encrypted-all checksum=none encrypt=yes
encrypted-c checksum=none rules=*.c:encrypt=yes
integrity-all checksum=blake3
integrity-c checksum=none rules=*.c:checksum=blake3
zstd-all checksum=none compress=zstd
zstd-c checksum=none rules=*.c:compress=zstd
watched-all checksum=none audit=yes provenance=yes
watched-c checksum=none rules=*.c:audit=yes,provenance=yes
END
}

tree() {
    cd "$folder/sources"
    : >"$folder/compiles"
    if [ -z "${BUILD:-}" ]; then
        find . -name '*.c' | sort | xargs -P 2 -I{} sh -c \
            'cc -O0 -w -Isrc -Iinclude -I"$(dirname "{}")" '"${CFLAGS:-}"' -c "{}" -o /dev/null 2>/dev/null && echo "{}" || true' | sort >"$folder/compiles"
    fi
    cd "$folder"
    bytes() { find sources -type f -name "$1" -printf '%s\n' | awk '{ sum += $1 } END { printf "%.1f MB", sum / 1e6 }'; }
    echo "$(find sources -type f | wc -l) files of $(bytes '*'), $(find sources -name '*.c' | wc -l) of them *.c, of $(bytes '*.c'); $(wc -l <compiles) compiled one by one" | tee told
    pool
    for ((round = 0; round < rounds; round++)); do
        # Each round begins with another row, and the sources are in memory for all.
        while read -r name policy; do
            read_all "$folder/sources"
            mkdir "$folder/m/$name"
            # shellcheck disable=SC2086
            for setting in $policy; do "$stere" policy set "$folder/m/$name" "$setting"; done
            seconds "copy-$name" sh -c "cp -r '$folder/sources/.' '$folder/m/$name' && sync -f '$folder/m/$name'"
            cold
            seconds "read-$name" read_all "$folder/m/$name"
            cold
            seconds "compile-$name" compile "$folder/m/$name"
            rm -rf "${folder:?}/m/$name"
        done < <({ settings; settings; } | tail -n "+$((round % $(settings | wc -l) + 1))" | head -n "$(settings | wc -l)")
    done
    for phase in copy read compile; do
        while read -r name _; do row "$phase-$name" s "$phase-none"; done < <(settings)
    done
    # What the daemon's processors did, which no disk and no compiler hides.
    for phase in copy read compile; do
        while read -r name _; do row "daemon-$phase-$name" s "daemon-$phase-none"; done < <(settings)
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
# Notes a rate, and processor seconds per GiB.
note_rate() {
    note "$1" "$2"
    note "processors-$1" "$3"
}
# Name, files or pool, write or read, folder, device: two threads, half of the content each. What a daemon takes is added.
stream() {
    local name=$1 ticks=0 rate processors
    shift
    if [ "${name#*-mount}" != "$name" ]; then ticks=$(daemon_ticks); fi
    read -r rate processors < <("$streams" "$1" "$2" "$folder/content" 2 "${@:3}")
    if [ "${name#*-mount}" != "$name" ]; then ticks=$(($(daemon_ticks) - ticks)); fi
    note_rate "$name" "${rate:?a stream failed}" "$(awk -v p="$processors" -v t="$ticks" -v m="$megabytes" 'BEGIN { printf "%.3f", p + t / 100 / (m / 1024) }')"
}
# Name, folder, how to make it cold
one_rate() {
    local name=$1 place=$2 remount=$3
    stream "write-$name" files write "$place"
    $remount
    stream "read-$name" files read "$place"
    cmp <(cat "$place/stream-0" "$place/stream-1") "$folder/content" || { echo "$name read something else" >&2; exit 1; }
    rm "$place/stream-0" "$place/stream-1"
}
# The same in a pool that is not mounted, by the library in the program's own process.
one_rate_direct() {
    "$stere" umount "$folder/m"
    stream "write-$1-direct" pool write "$1" "$folder/a.img"
    echo 3 >/proc/sys/vm/drop_caches
    stream "read-$1-direct" pool read "$1" "$folder/a.img"
    "$stere" mount tank "$folder/m" -o "keyfile=$folder/key"
    cmp <(cat "$folder/m/$1/stream-0" "$folder/m/$1/stream-1") "$folder/content" || { echo "$1 read something else" >&2; exit 1; }
    rm "$folder/m/$1/stream-0" "$folder/m/$1/stream-1"
}
again_plain() { echo 3 >/proc/sys/vm/drop_caches; }
again_btrfs() { umount "$folder/b" && echo 3 >/proc/sys/vm/drop_caches && mount -o loop,compress-force=zstd:3 "$folder/b.img" "$folder/b"; }
again_gocryptfs() { umount "$folder/g" && echo 3 >/proc/sys/vm/drop_caches && gocryptfs -q -extpass "echo x" "$folder/cipher" "$folder/g"; }

rates() {
    [ -x "$bare" ] && [ -x "$streams" ] || {
        echo "build them first: cargo build --release -p stere-file --example bare_rates; cargo build --release -p libstere --example streams" >&2
        exit 1
    }
    content
    pool
    local btrfs="" gocryptfs=""
    if command -v mkfs.btrfs >/dev/null; then
        truncate -s 8G "$folder/b.img" && mkfs.btrfs -q "$folder/b.img" && mount -o loop,compress-force=zstd:3 "$folder/b.img" "$folder/b" && btrfs=yes
    else
        echo "btrfs is missing: apt-get install btrfs-progs" | tee -a "$folder/told"
    fi
    if command -v gocryptfs >/dev/null; then
        gocryptfs -q -init -extpass "echo x" "$folder/cipher" && gocryptfs -q -extpass "echo x" "$folder/cipher" "$folder/g" && gocryptfs=yes ||
            echo "gocryptfs cannot mount: apt-get install fuse3" | tee -a "$folder/told"
    else
        echo "gocryptfs is missing: apt-get install gocryptfs" | tee -a "$folder/told"
    fi
    mkdir "$folder/m/zstd" "$folder/m/encrypted" "$folder/m/plain"
    "$stere" policy set "$folder/m/zstd" compress=zstd:3
    "$stere" policy set "$folder/m/encrypted" encrypt=yes
    for ((round = 0; round < rounds; round++)); do
        "$bare" "$folder/content" 2 zstd:3 "$folder/plain" >"$folder/bare"
        while read -r name rate processors; do note_rate "bare-$name" "$rate" "$processors"; done <"$folder/bare"
        for name in plain zstd encrypted; do one_rate "$name-mount" "$folder/m/$name" cold; done
        for name in plain zstd; do one_rate_direct "$name"; done
        one_rate no-library "$folder/plain" again_plain
        [ -z "$btrfs" ] || one_rate btrfs-zstd "$folder/b" again_btrfs
        [ -z "$gocryptfs" ] || one_rate gocryptfs "$folder/g" again_gocryptfs
    done
    tell_rates
}
# Beside the library in memory; beside it with plain files of the file system that the pool's image lies on; beside no encoding; beside others.
tell_rates() {
    local pair phase name
    for pair in write-zstd:encode read-zstd:decode write-encrypted:seal read-encrypted:open; do
        name=${pair#*:}
        row "${pair%:*}-mount" MB/s "bare-$name"
        row "${pair%:*}-direct" MB/s "bare-$name"
    done
    for pair in write-zstd:store-encode read-zstd:fetch-decode write-encrypted:store-seal read-encrypted:fetch-open; do
        row "${pair%:*}-mount" MB/s "bare-${pair#*:}"
        row "${pair%:*}-direct" MB/s "bare-${pair#*:}"
        row "bare-${pair#*:}" MB/s "bare-${pair##*-}"
    done
    for phase in write read; do
        for name in zstd encrypted; do row "$phase-$name-mount" MB/s "$phase-plain-mount"; done
        row "$phase-zstd-direct" MB/s "$phase-plain-direct"
        for name in plain-mount plain-direct no-library; do row "$phase-$name" MB/s "$phase-no-library"; done
    done
    for name in encode decode seal open; do row "bare-$name" MB/s "bare-$name"; done
    for phase in write read; do
        row "$phase-btrfs-zstd" MB/s "$phase-zstd-mount"
        row "$phase-gocryptfs" MB/s "$phase-encrypted-mount"
    done
    echo "processor seconds per GiB; of a mount those of the daemon and the program" | tee -a "$folder/told"
    for name in bare-encode bare-store-encode write-{zstd,encrypted,plain}-mount write-{zstd,plain}-direct write-no-library \
        bare-decode bare-fetch-decode read-{zstd,encrypted,plain}-mount read-{zstd,plain}-direct read-no-library; do
        row "processors-$name" s/GiB "processors-$(case $name in write* | *encode) echo bare-encode ;; *) echo bare-decode ;; esac)"
    done
}

case $what in tree | rates | all) take_sources ;; esac
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
