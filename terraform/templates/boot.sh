#!/usr/bin/env bash
# Once, when the instance starts for the first time, and again if it was rebooted in the middle: brings the programs onto
# it and starts the gateway. bifrost-boot.service runs it; what it does, and how it ended, is in /var/log/bifrost-boot.log and /var/lib/bifrost/boot-state: "ready", or "failed" and at what.
set -euo pipefail

log=/var/log/bifrost-boot.log
state=/var/lib/bifrost/boot-state
work=/var/tmp/bifrost-boot # on disk: /tmp is memory
step=begin

mkdir -p "$(dirname "$state")" "$work"

begin() {
    step=$1
    printf '%s %s\n' "$(date -u +%FT%TZ)" "$step"
    printf 'working: %s\n' "$step" >"$state"
}

ended() {
    local status=$?
    if [ "$status" -ne 0 ]; then
        printf 'failed: %s (exit status %d), see %s\n' "$step" "$status" "$log" | tee "$state"
        journalctl --unit bifrost.service --lines 20 --no-pager 2>/dev/null || true
    fi
}
trap ended EXIT

# retry COMMAND…: the network, the role and the package mirrors may each be late. Some two minutes in all.
retry() {
    local pause
    for pause in 1 2 4 8 16 32 64; do
        "$@" && return
        printf 'failed, again in %d s: %s\n' "$pause" "$*"
        sleep "$pause"
    done
    "$@"
}

is_intact() {
    printf '%s  %s\n' "$2" "$1" | sha256sum --check --quiet
}

# from_bucket URI SHA256 FILE
from_bucket() {
    retry aws s3 cp --region "$REGION" --only-show-errors "$1" "$3"
    is_intact "$3" "$2"
}

by_release() {
    retry curl --proto '=https' --fail --silent --show-error --location --output "$work/release.tar.gz" "$RELEASE_URL"
    is_intact "$work/release.tar.gz" "$RELEASE_SHA256"
    tar --extract --gzip --no-same-owner --file "$work/release.tar.gz" --directory "$work" bifrost-gateway bifrost-monitor
}

by_binary() {
    from_bucket "$GATEWAY_URI" "$GATEWAY_SHA256" "$work/bifrost-gateway"
    from_bucket "$MONITOR_URI" "$MONITOR_SHA256" "$work/bifrost-monitor"
}

# has_rust VERSION: whether there is a cargo, and at least of that version.
has_rust() {
    local found
    found=$(cargo --version 2>/dev/null | cut --delimiter ' ' --fields 2)
    [ -n "$found" ] && printf '%s\n' "$1" "$found" | sort --check=quiet --version-sort
}

# The distribution's own Rust, if it is new enough: it comes with the same signatures as all else here. Amazon Linux takes
# a newer one at its quarterly releases only, which can be too late for us; then rustup's.
toolchain() {
    local wanted
    wanted=$(sed -n 's/^rust-version = "\(.*\)"$/\1/p' "$work/source/Cargo.toml")
    export CARGO_HOME=$work/cargo RUSTUP_HOME=$work/rustup PATH=$work/cargo/bin:$PATH
    # Not rust-toolchain.toml's: without what only developers need, and the same one tomorrow.
    export RUSTUP_TOOLCHAIN=$wanted
    if ! command -v cc >/dev/null || ! command -v make >/dev/null; then retry dnf --assumeyes --quiet install gcc make; fi
    if ! has_rust "$wanted"; then dnf --assumeyes --quiet install cargo || true; fi
    if ! has_rust "$wanted"; then
        printf 'no Rust %s among the packages: rustup brings one\n' "$wanted"
        retry curl --proto '=https' --tlsv1.2 --fail --silent --show-error --output "$work/rustup.sh" "$RUSTUP_URL"
        retry sh "$work/rustup.sh" -y --quiet --no-modify-path --profile minimal --default-toolchain "$wanted"
    fi
    cargo --version
}

# The digest is of the bundle itself, since Terraform and Terraform's next version may compress it differently.
by_source() {
    retry aws s3 cp --region "$REGION" --only-show-errors "$BUNDLE_URI" "$work/source.json.gz"
    gzip --decompress --force "$work/source.json.gz"
    is_intact "$work/source.json" "$BUNDLE_SHA256"
    python3 - "$work/source.json" "$work/source" <<'PYTHON'
import base64, json, pathlib, sys
bundle, target = sys.argv[1], pathlib.Path(sys.argv[2])
for path, content in json.load(open(bundle)).items():
    file = target / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(base64.b64decode(content))
PYTHON
    toolchain
    # Thin LTO and more units take minutes where the release profile takes a quarter of an hour, and give 2 % away.
    export CARGO_PROFILE_RELEASE_LTO=thin CARGO_PROFILE_RELEASE_CODEGEN_UNITS=4
    (cd "$work/source" && retry cargo fetch --quiet --locked)
    (cd "$work/source" && cargo build --release --locked --offline --bin bifrost-gateway --bin bifrost-monitor)
    mv "$work/source/target/release/bifrost-gateway" "$work/source/target/release/bifrost-monitor" "$work/"
}

begin 'reading what Terraform said'
# shellcheck disable=SC1091 # written by Terraform
set -a && . /etc/bifrost/boot.env && set +a
export HOME=${HOME:-/root} AWS_DEFAULT_REGION=$REGION

begin 'making the user'
# And its group, whose members may run the monitor.
getent passwd bifrost >/dev/null || useradd --system --user-group --no-create-home --home-dir / --shell /usr/sbin/nologin bifrost

begin 'tuning the kernel'
sysctl --quiet --load /etc/sysctl.d/90-bifrost.conf || printf 'some values can not be set here\n'

begin "getting the programs by $DELIVERY"
"by_$DELIVERY"
install --mode 0755 "$work/bifrost-gateway" "$work/bifrost-monitor" /usr/local/bin/
rm -rf "$work"

begin 'starting the gateway'
/usr/local/bin/bifrost-gateway --version
systemctl daemon-reload
systemctl try-restart systemd-journald.service
systemctl enable --quiet bifrost.service
systemctl start bifrost.service

begin 'waiting until it is ready'
# What the settings' parameter said of it, as fetched for that start.
# shellcheck disable=SC1091 # written by fetch-settings
. /run/bifrost-secrets/facts.env
# By its address alone: the certificate is for the name that clients use.
retry curl --insecure --fail --silent --show-error --max-time 5 "$SCHEME://127.0.0.1:$PORT/readyz"

begin 'done'
touch /var/lib/bifrost/booted
printf 'ready\n' >"$state"
