#!/bin/sh
# The live dashboard, for every member of the group bifrost-monitor. The segment is the gateway's alone, so the monitor
# runs as the gateway's user by the rule in /etc/sudoers.d/bifrost: as the screen, or with --once, --json or --watch.
case "${TERM:-dumb}" in dumb) TERM=xterm-256color ;; esac
export TERM LANG="${LANG:-C.UTF-8}"
exec sudo -n -u bifrost /usr/local/bin/bifrost-monitor --segment /run/bifrost "$@"
