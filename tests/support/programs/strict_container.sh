#!/usr/bin/env bash
# Runs a command as a strict container does, without one: not root, no capability, no new privileges,
# a root file system that is read-only, 64 MB of /dev/shm, a process namespace of its own.
#
#     sudo tests/support/programs/strict_container.sh FOLDER_OF_PYTHON COMMAND ...
set -euo pipefail
exec unshare --mount --pid --ipc --uts --fork --mount-proc --kill-child bash -euc '
    mount --make-rprivate /
    mount -t tmpfs -o size=64m,mode=1777 shm /dev/shm
    mount -t tmpfs -o size=256m,mode=1777 tmp /var/tmp
    case $1 in /root/*) # which nobody else may enter
        mkdir /var/tmp/python
        mount --bind "$1" /var/tmp/python
        mount -t tmpfs -o mode=755 root /root
        mkdir -p "$1"
        mount --move /var/tmp/python "$1"
        rmdir /var/tmp/python
    esac
    shift
    mount -o remount,bind,ro /
    export HOME=/var/tmp TMPDIR=/var/tmp
    exec setpriv --reuid 65534 --regid 65534 --clear-groups --inh-caps=-all --bounding-set=-all \
        --no-new-privs "$@"
' strict_container "$@"
