#!/bin/busybox sh
# What daemon-death.sh does in its virtual machine (P-166). Every line that begins with `vm:` is a result.
/bin/busybox --install -s /bin
export PATH=/bin STERE_STATE=/w/state HOME=/root
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mount -t tmpfs tmp /w
echo 1 >/proc/sys/kernel/printk
echo; echo "vm: begin"
for module in $(cat /modules/order); do insmod "/modules/$module" 2>/dev/null; done
mount -t fusectl fusectl /sys/fs/fuse/connections 2>/dev/null
mkdir -p /w/m /w/state /w/seen
[ -e /dev/loop-control ] && [ -b /dev/vda ] && [ -c /dev/fuse ] || echo "vm: FAIL the machine lacks a device"
count=0
cases=$(sed -n 's/.*cases=\([^ ]*\).*/\1/p' /proc/cmdline)
wanted() { case ",$cases," in ,, | *",$1,"*) return 0 ;; *) return 1 ;; esac; }

ok() { echo "vm: ok $*"; }
bad() {
    echo "vm: FAIL $*"
    for process in $(pidof stere) $(pidof sync); do
        for task in /proc/"$process"/task/*; do echo "-- $task $(cat "$task/comm")"; cat "$task/stack"; done
    done
}
# Whether the rest ends within so many seconds. It may not be killable, so it is not waited for.
within() {
    local limit=$1 mark
    shift
    count=$((count + 1))
    mark=/w/seen/$count
    (
        "$@" >/dev/null 2>&1
        : >"$mark"
    ) &
    while [ ! -e "$mark" ]; do
        [ "$limit" -gt 0 ] || return 1
        limit=$((limit - 1))
        sleep 1
    done
}
drop() { echo 2 >/proc/sys/vm/drop_caches; }
host_is_well() {
    if within 60 sync && within 60 drop; then ok "$1: sync(2) and drop_caches return"; else bad "$1: sync(2) or drop_caches hangs"; fi
}
# Whether sync(2) asks a fuseblk mount to sync: since Linux 6.18.
is_sent() { uname -r | awk -F. '{ exit !($1 > 6 || ($1 == 6 && $2 + 0 >= 18)) }'; }
# The daemon's process; one pool is mounted at a time.
daemon() { pidof stere | tr ' ' '\n' | while read -r one; do grep -q foreground "/proc/$one/cmdline" && echo "$one"; done | head -n 1; }
kind() { awk '$5 == "/w/m" { for (i = 7; i <= NF; i++) if ($i == "-") print $(i + 1) }' "/proc/$1/mountinfo"; }
# The processes in the mount namespace of this one, itself last: its receiver is one of them.
all_of() {
    for one in /proc/[0-9]*; do
        [ "$(readlink "$one/ns/mnt")" = "$(readlink "/proc/$1/ns/mnt")" ] && [ "$one" != "/proc/$1" ] && echo "${one#/proc/}"
    done
    echo "$1"
}
is_gone() { [ ! -e "/proc/$1" ] || grep -q '^State:.*Z' "/proc/$1/status"; }
has_died() {
    for _ in $(seq 60); do
        is_gone "$1" && return 0
        sleep 1
    done
    return 1
}
expect_kind() { [ "$(kind "$2")" = "$3" ] && ok "$1: mounted as $3" || bad "$1: mounted as '$(kind "$2")', not $3"; }
wait_for_daemon() {
    for _ in $(seq 90); do
        [ -e /w/ready ] && [ -n "$(daemon)" ] && return 0
        sleep 1
    done
    bad "$1: no daemon"
    return 1
}
mount_said() { stere mount tank /w/m >/w/said 2>&1; }
kept() {
    # A mount whose daemon died is in the way until it is unmounted, as that of any FUSE file system.
    within 30 umount -l /w/m
    if within 120 mount_said && grep -q "$2" /w/m/file; then
        ok "$1: what was synced is there after the next mount"
    else
        bad "$1: not mounted, or what was synced is gone: $(cat /w/said)"
    fi
    within 120 stere umount /w/m || bad "$1: cannot be unmounted"
}

# NAME, how the namespace is made, and what is killed: the daemon itself, or process 1 of its PID namespace.
in_namespace() {
    local name=$1 victim=$2 process
    shift 2
    rm -f /w/ready
    # Detached, so that nobody but the daemon is left in the namespace.
    setsid unshare "$@" sh -c "
        stere mount tank /w/m $OPTIONS || exit 1
        echo '$name' >/w/m/file && sync /w/m/file && : >/w/ready
        [ '$victim' = first ] && exec sleep 100000" >/w/said 2>&1 &
    wait_for_daemon "$name" || { cat /w/said; return; }
    sleep 2
    process=$(daemon)
    expect_kind "$name" "$process" fuse.stere
    case $victim in
        daemon)
            for one in $(all_of "$process"); do grep -q stere "/proc/$one/cmdline" || bad "$name: somebody else is in its namespace: $(cat "/proc/$one/cmdline")"; done
            kill -9 $(all_of "$process")
            ;;
        first) kill -9 "$(pidof sleep | tr ' ' '\n' | while read -r one; do grep -q 100000 "/proc/$one/cmdline" && echo "$one"; done)" ;;
    esac
    has_died "$process" && ok "$name: it has died" || bad "$name: it has not died"
    host_is_well "$name"
    kept "$name" "$name"
}

stere create tank /dev/vda --force >/w/said 2>&1 || { cat /w/said; bad "create"; }
OPTIONS=
for transport in dev uring; do
    wanted "$transport" || continue
    [ "$transport" = uring ] && [ ! -e /sys/module/fuse/parameters/enable_uring ] && continue
    OPTIONS="-o transport=$transport"
    in_namespace "$transport, namespace of its own" daemon -m --propagation private
    in_namespace "$transport, PrivateMounts" daemon -m --propagation slave
    in_namespace "$transport, container" first -m -p -f --propagation private --mount-proc

    name="$transport, the machine's namespace"
    stere mount tank /w/m $OPTIONS || bad "$name: cannot mount"
    process=$(daemon)
    expect_kind "$name" "$process" fuseblk.stere
    echo "$name" >/w/m/file
    # Where the kernel sends it to us, sync(2) and nothing else makes it durable.
    is_sent || sync /w/m/file
    host_is_well "$name, alive"
    kill -9 "$process"
    has_died "$process" && ok "$name: it has died" || bad "$name: it has not died"
    host_is_well "$name"
    kept "$name" "$name"

    # A namespace with a copy of the mount is the last to hold it.
    name="$transport, held by another namespace"
    for order in daemon holder; do
        stere mount tank /w/m $OPTIONS || bad "$name: cannot mount"
        process=$(daemon)
        echo "$name $order" >/w/m/file
        is_sent && sync || sync /w/m/file
        setsid unshare -m --propagation private sleep 200000 &
        sleep 2
        holder=$(pidof sleep | tr ' ' '\n' | while read -r one; do grep -q 200000 "/proc/$one/cmdline" && echo "$one"; done)
        umount -l /w/m
        [ $order = daemon ] && kill -9 "$process" && has_died "$process"
        kill -9 "$holder"
        has_died "$holder" && has_died "$process" && ok "$name: both have died, the $order first" || bad "$name: somebody has not died, the $order first"
        host_is_well "$name"
        kept "$name" "$name $order"
    done
done

# Killed while it ends: systemd and docker send SIGKILL to who takes too long after SIGTERM. The disk is slow, so much is still under way.
stere create slow /dev/vdb --force >/w/said 2>&1 || { cat /w/said; bad "create slow"; }
for how in umount SIGTERM lazy; do
    wanted ending || continue
    name="killed while it ends ($how)"
    stere mount slow /w/m || bad "$name: cannot mount"
    process=$(daemon)
    expect_kind "$name" "$process" fuseblk.stere
    dd if=/dev/urandom of=/w/m/file.$how bs=1M count=24 2>/dev/null
    case $how in
        umount) stere umount /w/m >/dev/null 2>&1 & ;;
        lazy) stere umount --lazy /w/m >/dev/null 2>&1 & ;;
        SIGTERM) kill -TERM "$process" ;;
    esac
    for _ in $(seq 20); do
        grep -q ' /w/m ' /proc/mounts || break
        sleep 1
    done
    is_gone "$process" && bad "$name: it ended before it could be killed"
    kill -9 "$process"
    has_died "$process" && ok "$name: it has died" || bad "$name: it has not died"
    host_is_well "$name"
done

# The control: what this guards against. It must hang, or nothing above proves anything.
name="control"
rm -f /w/ready
setsid unshare -m --propagation private sh -c 'LD_PRELOAD=/bin/shim.so stere mount tank /w/m || exit 1; : >/w/ready' &
if wait_for_daemon "$name"; then
    sleep 2
    process=$(daemon)
    expect_kind "$name" "$process" fuseblk.stere
    kill -9 $(all_of "$process")
    sleep 5
    if grep -q fuse /proc/"$process"/task/*/stack; then ok "$name: the daemon waits for its own answer"; else bad "$name: the daemon does not wait"; fi
    if within 30 sync; then bad "$name: sync(2) returns"; else ok "$name: sync(2) hangs"; fi
fi
echo "vm: end"
# Nothing that would sync.
echo o >/proc/sysrq-trigger
sleep 5
poweroff -n -f
