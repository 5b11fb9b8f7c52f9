#!/bin/bash
# Volumes on other machines in numbers: how fast a file goes down to a directory over SFTP and to a WebDAV folder, and comes back, beside
# the same bytes in objects of 4 MiB put and got by another client of the same server in the same run: `sftp` (one session) and `curl` (one connection).
#   sudo bench/remote.sh [sftp|dav ...]     needs sshd (openssh-server), ssh and sftp, rclone and curl in PATH
# Servers are this machine's own, started here, so the way to them costs nothing. Durable when the clock stops: archived means stored on the server, with
# SFTP synced there, read back and compared; the other client puts all of it and reads it back, and syncs nothing.
# ROUNDS (5) of each; median, least and most are printed. MIB (256): what goes down.
set -euo pipefail
stere=$(realpath "${STERE:-target/release/stere}")
rounds=${ROUNDS:-5}
mib=${MIB:-256}
[ $# -gt 0 ] || set -- sftp dav
folder=$(mktemp -d "${TMPDIR:-/tmp}/stere-remote.XXXXXX")
chmod 711 "$folder"
export STERE_STATE=$folder/state
server=""
end() {
    cd /
    "$stere" umount "$folder/m" --force >/dev/null 2>&1 || true
    [ -z "$server" ] || { kill -KILL "$server" && wait "$server"; } 2>/dev/null || true
    rm -rf "$folder"
}
trap 'tell; end' EXIT
now() { date +%s.%N; }
less() { awk -v a="$1" -v b="$2" 'BEGIN { printf "%.4f", a - b }'; }
per() { awk -v a="$1" -v b="$2" 'BEGIN { printf "%.4f", a / b }'; }
note() { echo "$2" >>"$folder/figures.$1"; }
tell() {
    for name in $(ls -tr "$folder" | grep '^figures' | sed 's/^figures\.//'); do
        sort -g "$folder/figures.$name" | awk -v name="$name" '{ v[NR] = $1 } END { printf "%-34s %9.4f  (%.4f to %.4f, %d)\n", name, v[int((NR + 1) / 2)], v[1], v[NR], NR }'
    done
}
for program in sftp:sshd sftp:sftp dav:rclone dav:curl; do
    [[ " $* " != *" ${program%:*} "* ]] || [ -n "$(type -p "${program#*:}")" ] || { echo "${program#*:} is not in PATH" >&2; exit 1; }
done
cd "$folder"
mkdir m data
head -c 4M /dev/urandom >object
port=$(shuf -i 20000-29999 -n 1)

serve_sftp() {
    for key in host key; do ssh-keygen -q -t ed25519 -N "" -f $key; done
    cp key.pub authorized
    echo "[127.0.0.1]:$port $(cat host.pub)" >known
    # It leaves its rights at the door: an account of its own would be wanted else.
    install -m 755 "$(type -p sshd)" own-sshd
    cat >sshd.conf <<CONF
ListenAddress 127.0.0.1
Port $port
HostKey $folder/host
AuthorizedKeysFile $folder/authorized
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM yes
StrictModes no
PidFile none
Subsystem sftp internal-sftp
CONF
    local beside
    for beside in sshd-session sshd-auth; do
        beside=$(dirname "$(type -p sshd)")/../lib/openssh/$beside
        [ ! -f "$beside" ] || { install -m 755 "$beside" . && echo "$(basename "$beside" | sed 's/sshd-s/SshdS/; s/sshd-a/SshdA/')Path $folder/$(basename "$beside")" >>sshd.conf; }
    done
    chown nobody:nogroup host data
    setpriv --reuid nobody --regid nogroup --clear-groups "$folder/own-sshd" -D -e -f sshd.conf >server.log 2>&1 &
    server=$!
    place=sftp://nobody@127.0.0.1:$port$folder/data/pool,identity=$folder/key,known_hosts=$folder/known
    client=(sftp -q -b - -P "$port" -i key -o "UserKnownHostsFile=$folder/known" -o BatchMode=yes nobody@127.0.0.1)
    until "${client[@]}" <<<"mkdir data" >/dev/null 2>&1 || "${client[@]}" <<<"ls $folder/data" >/dev/null 2>&1; do sleep 0.2; done
}
serve_dav() {
    rclone --config /dev/null --cache-dir "$folder/cache" serve webdav --dir-cache-time 0s --addr "127.0.0.1:$port" --user me --pass secret "$folder/data" >server.log 2>&1 &
    server=$!
    printf 'user=me\npassword=secret\n' >credentials
    place=dav://127.0.0.1:$port/pool,credentials=$folder/credentials
    until curl -sf -u me:secret "http://127.0.0.1:$port/" >/dev/null; do sleep 0.2; done
}
# All of it by the other client: put, then got.
all_of_it() {
    local number
    case $1-$2 in
    sftp-put) seq $((mib / 4)) | sed "s|.*|put object $folder/data/other/x&|" | "${client[@]}" >/dev/null ;;
    sftp-get) seq $((mib / 4)) | sed "s|.*|get $folder/data/other/x& got|" | "${client[@]}" >/dev/null ;;
    dav-put)
        for number in $(seq $((mib / 4))); do printf -- '-T object http://127.0.0.1:%s/other/x%s\n' "$port" "$number"; done |
            sed 's/^-T \(.*\) \(http.*\)/upload-file = \1\nurl = \2/' >urls
        curl -sf -u me:secret -K urls >/dev/null
        ;;
    dav-get) curl -sf -u me:secret "http://127.0.0.1:$port/other/x[1-$((mib / 4))]" >/dev/null ;;
    esac
}
megabytes=$(awk -v m="$mib" 'BEGIN { print m * 1.048576 }')
for kind in "$@"; do
    "serve_$kind"
    for _ in $(seq "$rounds"); do
        install -d -o nobody -g nogroup data/pool data/other
        "$stere" create tank a.img,size=3G b.img,size=3G --chunk-size 4M >/dev/null
        "$stere" mount tank m
        "$stere" device add tank "$place,name=cold" >/dev/null
        head -c "${mib}M" /dev/urandom >m/archived
        "$stere" flush m --wait
        echo 3 >/proc/sys/vm/drop_caches
        start=$(now)
        all_of_it "$kind" put
        put=$(now)
        all_of_it "$kind" get
        got=$(now)
        note "$kind-client-put-MBps" "$(per "$megabytes" "$(less "$put" "$start")")"
        note "$kind-client-get-MBps" "$(per "$megabytes" "$(less "$got" "$put")")"
        both=$(less "$got" "$start") get=$(less "$got" "$put")
        start=$(now)
        "$stere" tier archive m/archived --wait >/dev/null
        down=$(less "$(now)" "$start")
        note "$kind-archive-MBps" "$(per "$megabytes" "$down")"
        note "$kind-archive-of-put-and-get" "$(per "$both" "$down")"
        "$stere" tier release m/archived >/dev/null
        "$stere" umount m
        "$stere" mount tank m
        "$stere" media verify tank cold --quick >/dev/null
        echo 3 >/proc/sys/vm/drop_caches
        start=$(now)
        cat m/archived >/dev/null
        back=$(less "$(now)" "$start")
        note "$kind-recall-MBps" "$(per "$megabytes" "$back")"
        note "$kind-recall-of-get" "$(per "$get" "$back")"
        until "$stere" umount m 2>/dev/null; do sleep 0.2; done
        "$stere" pool export tank >/dev/null 2>&1 || true
        rm -rf a.img b.img state data/pool data/other
    done
    { kill -KILL "$server" && wait "$server"; } 2>/dev/null || true
    server=""
    port=$((port + 1))
done
