#!/usr/bin/env bash
# Starts a tape library that tgt (Debian package tgt) emulates, reached by iSCSI on loopback: two drives (LUN 1 and 2), a changer (LUN 3),
# six cartridges in eight slots.
#   tgt-library.sh DIRECTORY PORT CONTROL MEBIBYTES     prints the daemon's process number; end it with kill -9
set -e
directory=$1 port=$2 control=$3 mebibytes=$4
cd "$directory"
truncate -s 1k changer
for number in 1 2 3 4 5 6; do
    tgtimg --op new --device-type tape --barcode "TAP00${number}L5" --size "$mebibytes" --type data --file "$directory/TAP00${number}L5" > /dev/null
done
tgtd --foreground --control-port "$control" --iscsi portal=127.0.0.1:"$port" > tgtd.log 2>&1 < /dev/null &
daemon=$!
admin() { tgtadm --control-port "$control" --lld iscsi "$@"; }
changer() { admin --op update --mode logicalunit --tid 1 --lun 3 --params "$1"; }
for _ in $(seq 50); do
    tgtadm --control-port "$control" --op show --mode sys > /dev/null 2>&1 && break
    sleep 0.1
done
admin --op new --mode target --tid 1 --targetname iqn.2026-11.test:library
for drive in 1 2; do
    admin --op new --mode logicalunit --tid 1 --lun $drive --backing-store "$directory/TAP00${drive}L5" --device-type tape
    admin --op update --mode logicalunit --tid 1 --lun $drive --params online=0
done
admin --op new --mode logicalunit --tid 1 --lun 3 --backing-store "$directory/changer" --device-type changer
changer media_home="$directory"
changer element_type=4,start_address=256,quantity=2
changer element_type=4,address=256,tid=1,lun=1
changer element_type=4,address=257,tid=1,lun=2
changer element_type=1,start_address=1,quantity=1
changer element_type=2,start_address=1024,quantity=8
changer element_type=3,start_address=16,quantity=1
for number in 1 2 3 4 5 6; do
    changer element_type=2,address=$((1023 + number)),barcode="TAP00${number}L5",sides=1
done
admin --op bind --mode target --tid 1 --initiator-address ALL
echo "$daemon"
