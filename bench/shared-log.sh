#!/bin/bash
# What a shared log costs: fsync of 4 KiB appends on five nodes (nbdkit on loopback, 4+1), with the log on the nodes themselves and in
# PostgreSQL, in one that replicates synchronously to a standby, in turns; and names from a client through the owner beside the owner's own.
# Needs root, /dev/fuse, nbdkit, PostgreSQL.
#   sudo bench/shared-log.sh
# Printed: the median of each round in microseconds, the medians of all rounds, and their ratio. ROUNDS (5), CALLS (200).
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
stere=$(realpath "${STERE:-$here/target/release/stere}")
rounds=${ROUNDS:-5}
calls=${CALLS:-200}
folder=$(mktemp -d "${TMPDIR:-/tmp}/stere-shared-log.XXXXXX")
chmod 755 "$folder"
bin=$(ls -d /usr/lib/postgresql/*/bin | tail -1)
nodes=()
end() {
    cd /
    for pool in own shared standby; do STERE_STATE=$folder/$pool "$stere" umount "$folder/m-$pool" --force >/dev/null 2>&1 || true; done
    STERE_STATE=$folder/client "$stere" umount "$folder/m-client" --force >/dev/null 2>&1 || true
    kill "${nodes[@]}" 2>/dev/null || true
    for data in pg primary follower; do runuser -u postgres -- "$bin/pg_ctl" -D "$folder/$data" -m immediate stop >/dev/null 2>&1 || true; done
    rm -rf --one-file-system "$folder"
}
trap end EXIT
mkdir -p "$folder"/{own,shared,standby,client,m-own,m-shared,m-standby,m-client,pg,primary,follower}
chown postgres "$folder"/{pg,primary,follower}
chmod 700 "$folder/follower"
port=$((20000 + RANDOM % 10000))
start_engine() {
    runuser -u postgres -- "$bin/pg_ctl" -w -D "$folder/$1" -o "-p $2 -k $folder/$1 -c listen_addresses=127.0.0.1" -l "$folder/$1/log" start >/dev/null
}
for data in pg primary; do
    runuser -u postgres -- "$bin/initdb" -D "$folder/$data" -A trust >/dev/null
    number=$port
    [ $data = pg ] || number=$((port + 50))
    start_engine $data $number
    runuser -u postgres -- "$bin/createdb" -h 127.0.0.1 -p $number lab
done
runuser -u postgres -- "$bin/pg_basebackup" -d "host=127.0.0.1 port=$((port + 50)) application_name=follower" -R -c fast -D "$folder/follower"
start_engine follower $((port + 51))
for statement in "ALTER SYSTEM SET synchronous_standby_names = 'follower'" "SELECT pg_reload_conf()"; do
    runuser -u postgres -- "$bin/psql" -q -h 127.0.0.1 -p $((port + 50)) -c "$statement" >/dev/null
done
until runuser -u postgres -- "$bin/psql" -Atq -h 127.0.0.1 -p $((port + 50)) -c "SELECT sync_state FROM pg_stat_replication" | grep -qx sync; do sleep 0.1; done
for pool in own shared standby; do
    devices=()
    for node in 1 2 3 4 5; do
        image=$folder/$pool-$node.raw
        truncate -s 1G "$image"
        number=$((port + 1 + ${#nodes[@]}))
        nbdkit -f -i 127.0.0.1 -p "$number" file "$image" &
        nodes+=($!)
        devices+=("nbd://127.0.0.1:$number,host=n$node")
    done
    sleep 1
    log=()
    [ $pool = shared ] && log=(--log "postgres://postgres@127.0.0.1:$port/lab")
    [ $pool = standby ] && log=(--log "postgres://postgres@127.0.0.1:$((port + 50)),127.0.0.1:$((port + 51))/lab")
    STERE_STATE=$folder/$pool "$stere" create $pool "${devices[@]}" "${log[@]}" >/dev/null
    STERE_STATE=$folder/$pool "$stere" mount $pool "$folder/m-$pool"
    "$stere" policy set "$folder/m-$pool" parity=4+1 >/dev/null
    [ $pool != shared ] || places=("${devices[@]%%,*}")
done
STERE_STATE=$folder/client "$stere" pool import "${places[@]}" --log "postgres://postgres@127.0.0.1:$port/lab" >/dev/null
STERE_STATE=$folder/client "$stere" mount shared "$folder/m-client"
cat > "$folder/measure.py" <<'P'
import os, statistics, sys, time
kind, path, calls = sys.argv[1], sys.argv[2], int(sys.argv[3])
took = []
if kind == "fsync":
    file = os.open(os.path.join(path, "appended"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for _ in range(calls):
        os.write(file, b"x" * 4096)
        begun = time.perf_counter()
        os.fsync(file)
        took.append(time.perf_counter() - begun)
else:
    place = os.path.join(path, "names-%d" % time.time_ns())
    os.mkdir(place)
    for number in range(calls):
        begun = time.perf_counter()
        os.close(os.open(os.path.join(place, str(number)), os.O_WRONLY | os.O_CREAT | os.O_EXCL))
        took.append(time.perf_counter() - begun)
print(round(statistics.median(took) * 1e6))
P
declare -A all
for round in $(seq "$rounds"); do
    for row in "fsync own" "fsync shared" "fsync standby" "fsync client" "create own" "create shared" "create client"; do
        read -r kind pool <<< "$row"
        median=$(python3 "$folder/measure.py" "$kind" "$folder/m-$pool" "$calls")
        all[$row]+="$median "
        echo "round $round: $row $median us"
    done
done
middle() { tr ' ' '\n' <<< "$1" | grep . | sort -n | sed -n "$(((rounds + 1) / 2))p"; }
for kind in fsync create; do
    base=$(middle "${all[$kind own]}")
    for pool in own shared standby client; do
        [ -n "${all[$kind $pool]:-}" ] || continue
        median=$(middle "${all[$kind $pool]}")
        echo "$kind, $pool: $median us, ratio $(awk "BEGIN { printf \"%.2f\", $median / $base }")"
    done
done
