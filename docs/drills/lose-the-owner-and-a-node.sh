#!/bin/sh
# The machine that owns a pool and a node are killed at the same instant: another machine goes on, and no synced file is lost.
# Two machines and three nodes on this one, each with a folder of its own. Needs PostgreSQL, which keeps the pool's log.
. "$(dirname "$0")/drill.sh"

bin=$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | tail -1)
[ -n "$bin" ] || fail "PostgreSQL is not installed here (apt-get install postgresql)"
port=$((20000 + $$ % 20000))
one=$folder/one
export STERE_STATE="$folder/two"
mkdir "$folder/mount-one"
chmod 755 "$folder"

as_postgres() { runuser -u postgres -- env -C / "$@"; }

stop_all() {
    pkill -KILL -f "$one/run/lab.owned" || true
    pkill -KILL -f "$folder/mount-one" || true
    umount -l "$folder/mount-one" "$one/run/lab.owned" 2>/dev/null || true
    pkill -f "node serve $folder/" || true
    as_postgres "$bin/pg_ctl" -D "$folder/log" -m immediate stop >/dev/null 2>&1 || true
    umount -l "$folder/two/run/lab.owned" 2>/dev/null || true
}
at_end=stop_all

# start NODE: a node that offers what is in its folder.
start() {
    mkdir -p "$folder/n$1"
    "$stere" node serve "$folder/n$1" --listen "127.0.0.1:$((port + $1))" >>"$folder/n$1.log" 2>&1 &
}

say "A log in PostgreSQL, three nodes, and a pool on them."
install -d -o postgres "$folder/log"
as_postgres "$bin/initdb" -D "$folder/log" -A trust >/dev/null
as_postgres "$bin/pg_ctl" -w -D "$folder/log" -l "$folder/log/out" -o "-p $port -k $folder/log" start >/dev/null
log=postgres://postgres@127.0.0.1:$port/postgres
devices="" places=""
for node in 1 2 3; do
    start "$node"
    places="$places stere://127.0.0.1:$((port + node))/disk"
    devices="$devices stere://127.0.0.1:$((port + node))/disk,size=256M,name=n$node,host=n$node"
done
sleep 1
# shellcheck disable=SC2086
STERE_STATE=$one "$stere" create lab $devices --log "$log"
STERE_STATE=$one "$stere" mount lab "$folder/mount-one" --standby
# It owns the pool once it has answered; the other one stands by.
ls "$folder/mount-one" >/dev/null
# shellcheck disable=SC2086
run pool import $places --log "$log"
run mount lab "$mountpoint" --standby
fill files 60
run flush "$mountpoint" --wait
run status lab

say "The owner's machine and node 2 die at once."
begun=$(date +%s)
pkill -KILL -f "$one/run/lab.owned"
pkill -KILL -f "node serve $folder/n2 "
pkill -KILL -f "$folder/mount-one"
fill more 40
run flush "$mountpoint" --wait
took=$(($(date +%s) - begun))
echo "files were written again after $took s or less"
[ "$took" -lt 60 ] || fail "that took too long"
compare files
compare more
expect 3 status lab

say "Node 2 is back, and catches up on what it missed."
start 2
tries=0
until "$stere" status lab >/dev/null 2>&1; do
    tries=$((tries + 1))
    [ $tries -lt 300 ] || fail "the node did not catch up"
    sleep 0.2
done
run status lab
compare files
run umount "$mountpoint"
run check lab
