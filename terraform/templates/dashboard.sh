#!/bin/sh
# The live dashboard, for members of the group bifrost, who may read the gateway's segment, and for whoever may use sudo.
# Its other forms, too: --once, --json, --watch, …
monitor='/usr/local/bin/bifrost-monitor --segment /run/bifrost'
case "${TERM:-dumb}" in dumb) TERM=xterm-256color ;; esac
export TERM LANG="${LANG:-C.UTF-8}"

is_reader() { [ "$(id -u)" -eq 0 ] || id -nG | tr ' ' '\n' | grep -qx bifrost; }
# shellcheck disable=SC2086 # a program and its arguments
if is_reader; then exec $monitor "$@"; fi
if ! sudo -n -u bifrost true 2>/dev/null; then
    echo "bifrost-dashboard: only the group bifrost sees it, and $(id -un) is not in it: usermod -aG bifrost $(id -un)" >&2
    exit 1
fi
# shellcheck disable=SC2086
exec sudo -n -u bifrost $monitor "$@"
