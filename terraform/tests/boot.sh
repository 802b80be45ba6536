#!/usr/bin/env bash
# Boots what Terraform handed to AWS: a Debian root file system in a container, with systemd and cloud-init, the real
# gateway and monitor, SSM, S3 and CloudWatch played by moto, and a mock provider. Takes root and some minutes, the first
# time for the root file system.
#
#   terraform/tests/boot.sh DIRECTORY             which holds bifrost-gateway and bifrost-monitor
#   terraform/tests/boot.sh DIRECTORY --release   they come from a file server; the first time with a wrong digest
#   terraform/tests/boot.sh DIRECTORY --source    they are built inside, with this machine's toolchain in rustup's place and
#                                                 its crates' source
set -euo pipefail
programs=$(realpath "$1")
delivery=${2:---binary}
tests=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$tests/../.." && pwd)

for program in terraform systemd-nspawn mmdebstrap nsenter; do
    if ! command -v "$program" >/dev/null; then echo "SKIPPED: $program is not there" && exit 0; fi
done
if [ "$(id -u)" -ne 0 ]; then echo 'SKIPPED: it takes root to boot a container' && exit 0; fi

work=$(mktemp -d)
# shellcheck source=terraform/tests/local/environment.sh
source "$tests/local/environment.sh"
port=$(low_port) next_port=$(low_port)
container='' mock_pid='' moto_pid='' files_pid='' names_pid=''
passed=0 failed=0

clean_up() {
    for pid in $container $names_pid $files_pid $mock_pid $moto_pid; do kill "$pid" 2>/dev/null || true; done
    wait
    if mountpoint --quiet "$work/machine"; then umount "$work/machine"; fi
    rm -rf "$work"
}

# check WHAT COMMAND…
check() {
    local began=$SECONDS
    set +e
    (set -e && "${@:2}") >"$work/said" 2>&1
    local status=$?
    set -e
    if [ $status -eq 0 ]; then
        passed=$((passed + 1))
        printf 'ok     %4d s  %s\n' $((SECONDS - began)) "$1"
    else
        failed=$((failed + 1))
        tail -n 40 "$work/said"
        printf 'FAILED %4d s  %s\n' $((SECONDS - began)) "$1"
    fi
}

# refused COMMAND…: it has to fail.
refused() {
    if "$@"; then echo "went through: $*" && return 1; fi
}

# --- AWS, a provider, and what Terraform makes of them --------------------------------------------------------------------

venv moto 'moto[server,ec2,iam,ssm,s3,cloudwatch]==5.2.5' grpcio==1.85.3 protobuf==5.29.6 tf==1.2.0 awscli
mirror
packages=systemd,systemd-sysv,dbus,libnss-myhostname,libnss-resolve,cloud-init,python3,sudo,curl,ca-certificates,awscli,procps,iproute2,gcc,libc6-dev,make
# What boots is a Debian, so `dnf` is a stand-in, and what one can see of it is that it was asked.
if [ "$(cat "$cache/rootfs.wanted" 2>/dev/null)" != "$packages" ]; then
    mmdebstrap --quiet --variant=apt --include="$packages" bookworm "$cache/rootfs.tar"
    printf '%s' "$packages" >"$cache/rootfs.wanted"
fi
start_moto
moto_pid=$!
trap clean_up EXIT
read_back() { "$cache/moto/bin/python" "$tests/local/read_back.py" "$moto" "$@"; }

# It ends with its standard input.
mkfifo "$work/open"
"$programs/bifrost-gateway" mock --delay 2s <"$work/open" >"$work/mock" &
mock_pid=$!
exec {provider}>"$work/open"
until_true 10 grep -q 127.0.0.1 "$work/mock"
provider_port=$(grep -o '127.0.0.1:[0-9]*' "$work/mock" | head -n 1 | cut -d : -f 2)

# Providers have names. Where the crates are fetched, too, they are the real ones, and the mock is asked by its address.
if [ "$delivery" = --source ]; then
    provider_url=http://127.0.0.1:$provider_port/v1
else
    name_server=127.0.0.54 # an address of loopback that nobody else takes
    provider_url=http://provider.example.test:$provider_port/v1
    python3 "$tests/local/name_server.py" "$name_server" >"$work/asked" 2>&1 &
    names_pid=$!
fi

# A server of files, whose certificate the machine trusts.
mkdir "$work/files"
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=files -addext subjectAltName=IP:127.0.0.1 \
    -keyout "$work/files.key" -out "$work/files.crt" 2>/dev/null
cat "$work/files.key" "$work/files.crt" >"$work/files.pem"
files=https://127.0.0.1:$(free_port)
python3 "$tests/local/file_server.py" "$work/files" "${files##*:}" "$work/files.pem" 2>"$work/files.log" &
files_pid=$!
until_true 10 curl --silent --fail --cacert "$work/files.crt" "$files/"

secret="sk-proj-$RANDOM\"\$HOME\\" # as awkward as a key can be
read_back put-secret /bifrost/openai "$secret"
real_module "$work/module"
printf 'disable_checkpoint = true\nprovider_installation {\n  filesystem_mirror {\n    path = "%s"\n  }\n}\n' "$cache/mirror" >"$work/mirror.tfrc"
export TF_CLI_CONFIG_FILE=$work/mirror.tfrc
cat >"$work/module/terraform/terraform.tfvars" <<VARIABLES
port              = $port
threshold_alarms  = true
secret_parameters = { OPENAI_API_KEY = "/bifrost/openai" }
VARIABLES
# released SHA256: the programs come from the file server.
released() {
    printf 'release = {\n  url    = "%s/bifrost.tar.gz"\n  sha256 = "%s"\n}\n' "$files" "$1" >"$work/module/terraform/delivery.auto.tfvars"
}
case $delivery in
--binary) printf 'binary_directory = "%s"\n' "$programs" >"$work/module/terraform/delivery.auto.tfvars" ;;
--release)
    tar --create --gzip --file "$work/files/bifrost.tar.gz" --directory "$programs" bifrost-gateway bifrost-monitor
    released "$(printf 'something else' | sha256sum | cut -d ' ' -f 1)"
    ;;
--source) printf 'rustup_url = "%s/rustup.sh"\n' "$files" >"$work/module/terraform/delivery.auto.tfvars" ;;
*) echo "$delivery: there is --release and --source" && exit 2 ;;
esac
settings() { printf 'settings = %s\n' "$1" >"$work/module/terraform/settings.auto.tfvars"; }
settings "{ providers = { openai = { base_url = \"$provider_url\" } } }"
applied() { terraform -chdir="$work/module/terraform" "$@" -no-color >"$work/terraform.log" || { cat "$work/terraform.log" && exit 1; }; }
applied init
applied apply -auto-approve

# --- The machine ------------------------------------------------------------------------------------------------------------

machine=$work/machine
binds=()
patience=240

# A root file system with the user data that AWS has for the instance.
make_machine() {
    if mountpoint --quiet "$machine"; then umount "$machine"; fi
    mkdir -p "$machine"
    # In memory, where nothing is built: 0.6 GB of small files take a busy disk minutes to write and to forget.
    if [ "$delivery" != --source ]; then mount -t tmpfs -o size=2g,mode=0755 machine "$machine"; fi
    tar --extract --file "$cache/rootfs.tar" --directory "$machine" --exclude='./dev/*'
    : >"$machine/etc/machine-id"
    mkdir -p "$machine/var/lib/cloud/seed/nocloud"
    read_back user-data --packed >"$machine/var/lib/cloud/seed/nocloud/user-data"
    printf 'instance-id: i-test\nlocal-hostname: bifrost\n' >"$machine/var/lib/cloud/seed/nocloud/meta-data"
    printf 'datasource_list: [NoCloud]\nlocale: false\n' >"$machine/etc/cloud/cloud.cfg.d/99-test.cfg"
    # The image has a newer AWS CLI, and the role; this one is told where AWS is.
    cat >"$machine/usr/local/bin/aws" <<AWS
#!/bin/sh
export AWS_ACCESS_KEY_ID=testing AWS_SECRET_ACCESS_KEY=testing
exec /usr/bin/aws --endpoint-url $moto "\$@"
AWS
    chmod 0755 "$machine/usr/local/bin/aws"
    # What this machine trusts, for the crates, and the file server.
    cat /etc/ssl/certs/ca-certificates.crt "$work/files.crt" >"$machine/etc/ssl/certs/ca-certificates.crt"
    # As on Amazon Linux and its kin.
    sed -i 's/^hosts:.*/hosts: files myhostname resolve [!UNAVAIL=return] dns/' "$machine/etc/nsswitch.conf"
    make_resolver
    if [ "$delivery" = --source ]; then make_toolchains; fi
}

# The test's own name server, or this machine's, which knows where crates are. As a file, which is where the root file
# system's systemd-resolved looks for one.
make_resolver() {
    binds=(--resolv-conf=off)
    rm -f "$machine/etc/resolv.conf"
    if [ "$delivery" = --source ]; then
        cp --dereference /etc/resolv.conf "$machine/etc/resolv.conf"
    else
        printf 'nameserver %s\n' "$name_server" >"$machine/etc/resolv.conf"
    fi
}

# A distribution whose Rust is too old, and a rustup that brings this machine's.
make_toolchains() {
    cat >"$machine/usr/local/bin/dnf" <<'DNF'
#!/bin/sh
echo "$@" >>/var/log/dnf-asked
printf '#!/bin/sh\necho "cargo 1.84.1 (of the distribution)"\n[ "$1" = --version ]\n' >/usr/local/bin/cargo
chmod 0755 /usr/local/bin/cargo
DNF
    chmod 0755 "$machine/usr/local/bin/dnf"
    cat >"$work/files/rustup.sh" <<'RUSTUP'
echo "rustup: $*"
mkdir -p "$CARGO_HOME/bin"
ln -s /opt/rust/bin/cargo /opt/rust/bin/rustc "$CARGO_HOME/bin/"
RUSTUP
    binds+=(--bind-ro="$(rustc --print sysroot):/opt/rust")
    patience=3600
    mkdir -p "$machine/etc/systemd/system/bifrost-boot.service.d"
    printf '[Service]\nEnvironment=CARGO_BUILD_JOBS=%s\n' "${CARGO_BUILD_JOBS:-2}" >"$machine/etc/systemd/system/bifrost-boot.service.d/jobs.conf"
}

leader() { pgrep --parent "$container" | head -n 1; }
inside() { nsenter --target "$(leader)" --all -- /usr/bin/env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin TERM=xterm "$@"; }
state() { cat "$machine/var/lib/bifrost/boot-state" 2>/dev/null; }
has_ended() { state | grep -q '^ready\|^failed'; }

# Until the boot script has ended, whichever way.
boot_machine() {
    local began=$SECONDS
    systemd-nspawn --quiet "${binds[@]}" --register=no --keep-unit --console=pipe --directory "$machine" --boot <"$work/open" >"$work/console" 2>&1 &
    container=$!
    until_true "$patience" has_ended || true
    printf 'boot: %s, after %d s\n' "$(state)" $((SECONDS - began))
}

stop_machine() {
    inside systemctl poweroff 2>/dev/null || true
    until_true 20 refused kill -0 "$container" || true
}

# --- What has to hold ---------------------------------------------------------------------------------------------------------

api=http://127.0.0.1:$port
chat() {
    curl --silent --show-error --fail --max-time 20 "$api/v1/chat/completions" -H 'content-type: application/json' \
        -d '{"model":"openai/gpt-4o-mini","messages":[{"role":"user","content":"Hello"}]}'
}
property() { inside systemctl show --value --property "$1" bifrost.service; }
watcher() { inside runuser -u watcher -- "$@"; }

# As Session Manager's user, who is in no group and may use sudo: the command that an output prints.
printed() {
    terraform -chdir="$work/module/terraform" output -raw "$1" | sed "s/.*--parameters '\(.*\)'\$/\1/" |
        python3 -c 'import json, sys; print(json.load(sys.stdin)["command"][0])'
}
in_session() { inside runuser -u session -- sh -c "$(printed "$1")"; }

# What `apply` waits for, and ends with an error by: see readiness.tf.
is_found_ready() {
    local command
    command=$(terraform -chdir="$work/module/terraform" show -json | python3 -c '
import json, sys
resources = json.load(sys.stdin)["values"]["root_module"]["resources"]
print(*[each["values"]["parameters"]["commands"] for each in resources if each["type"] == "aws_ssm_association"])')
    inside sh -c "$command"
}

boots() {
    [ "$(state)" = ready ] || { cat "$machine/var/log/bifrost-boot.log" && tail -n 60 "$work/console" && return 1; }
    is_found_ready | grep '^active'
    # It would go on after a reboot in the middle, and does nothing once it is done.
    inside systemctl is-enabled bifrost-boot.service
    cp "$machine/var/log/bifrost-boot.log" "$work/boot.log"
    inside systemctl start bifrost-boot.service
    cmp "$work/boot.log" "$machine/var/log/bifrost-boot.log"
}
cloud_init_is_done() {
    inside cloud-init status --wait --long
    inside cloud-init status | grep 'status: done'
    inside cloud-init schema --system
}
exposes_little() { inside systemd-analyze security --no-pager --threshold=20 bifrost.service; }
is_ready() { curl --silent --show-error --fail "$api/readyz"; }
answers() {
    chat | grep '"content"'
    if [ -n "$names_pid" ]; then grep '^provider.example.test 1$' "$work/asked"; fi
}
fails_clearly() {
    state | grep 'failed: getting the programs by release (exit status 1), see /var/log/bifrost-boot.log'
    grep 'computed checksum did NOT match' "$machine/var/log/bifrost-boot.log"
    refused is_found_ready
    refused inside cloud-init status --wait >"$work/status"
    grep 'status: error' "$work/status"
    refused inside systemctl is-active bifrost.service
    # The next start of the machine tries again.
    refused inside systemctl start bifrost-boot.service
    [ "$(grep -c 'computed checksum did NOT match' "$machine/var/log/bifrost-boot.log")" -eq 2 ]
    [ ! -e "$machine/usr/local/bin/bifrost-gateway" ]
}
takes_the_newer_rust() {
    cat "$machine/var/log/dnf-asked"
    [ "$(cat "$machine/var/log/dnf-asked")" = '--assumeyes --quiet install cargo' ]
    grep "rustup: -y --quiet --no-modify-path --profile minimal --default-toolchain $(sed -n 's/^rust-version = "\(.*\)"$/\1/p' "$root/Cargo.toml")" "$machine/var/log/bifrost-boot.log"
    [ ! -e "$machine/var/tmp/bifrost-boot" ]
}
# The figures of the gateway and of the machine's /proc, seen by whoever is in the group, without sudo.
monitor_shows_it() {
    inside useradd --groups bifrost watcher
    watcher bifrost-monitor --segment /run/bifrost --json >"$work/figures"
    python3 - "$work/figures" <<'PYTHON'
import json, sys
figures = json.load(open(sys.argv[1]))
gauges = figures["gauges"]
assert figures["state"] == "live" and figures["counters"]["completed"] >= 1, figures
assert gauges["rss"] > 0 and gauges["descriptors"] > 0 and gauges["host_cpu_permille"] > 0, gauges
assert figures["triggers"]["memory"]["mean_60s"] > 0 and figures["memory_limit"] > 0, figures["triggers"]
PYTHON
    watcher bifrost-dashboard --once | grep LIVE
}
others_see_nothing() {
    refused watcher ls /run/bifrost-secrets
    refused watcher cat /run/bifrost-secrets/environment
    refused watcher sh -c 'echo > /run/bifrost/mine'
    inside useradd stranger
    refused inside runuser -u stranger -- ls /run/bifrost
    refused inside runuser -u stranger -- bifrost-dashboard --once 2>&1 | grep 'usermod -aG bifrost stranger'
    inside useradd session
    printf 'session ALL=(ALL) NOPASSWD:ALL\n' >"$machine/etc/sudoers.d/session"
    inside runuser -u session -- bifrost-dashboard --once | grep LIVE
}
keeps_the_secret() {
    # It is there, as it was given, and nowhere but there.
    [ "$(inside cat /run/bifrost-secrets/OPENAI_API_KEY)" = "$secret" ]
    inside journalctl --no-pager >"$work/journal"
    local found
    # Status 2, that something could not be read, is no answer.
    found=$(grep -rlF --devices=skip "${secret%%\"*}" "$work/journal" "$machine/etc" "$machine/var/log" "$machine/var/lib" "$work/console" "$work/module/terraform") || [ $? -eq 1 ]
    [ -z "$found" ] || { echo "$found" && return 1; }
}
has_figures() { read_back metrics | grep -q 'Load Memory'; }
# By itself, a minute after the gateway's start.
publishes() {
    inside systemctl is-active bifrost-metrics.timer
    until_true 120 has_figures
    read_back metrics i-test
}
change() { settings "$1" && applied apply -auto-approve; }
knows_the_other_model() { curl --silent "$api/v1/models" | grep -q other-model; }
reloads() {
    local before
    before=$(property MainPID)
    change "{ providers = { openai = { base_url = \"$provider_url\" }, other = { base_url = \"$provider_url\", keyless = true, models = [\"other-model\"] } } }"
    in_session reload_command | tee "$work/status"
    grep 'Active: active' "$work/status"
    until_true 10 knows_the_other_model
    [ "$(property MainPID)" = "$before" ]
}
refuses_wrong_settings() {
    change '{ log = { level = "loud" } }'
    inside sh -c 'cat /run/bifrost-secrets/*' | sha256sum >"$work/before"
    # The command shows why, though its user may not read the journal.
    in_session reload_command 2>&1 | grep 'log.level'
    refused inside systemctl reload bifrost.service
    inside sh -c 'cat /run/bifrost-secrets/*' | sha256sum | cmp - "$work/before"
    chat
}
# One and the same monitor sees the gateway go and come, and then has nobody to tell. Nothing that came in by `inside` may
# be left at the machine's end, which would wait for it.
watches_it_come_back() {
    set +o pipefail
    watcher timeout 60 bifrost-dashboard --watch | tee "$work/watched" |
        awk '/DEAD/ { died = 1 } died && /LIVE/ { came = 1; exit } END { exit !came }'
}
comes_back() {
    local before
    before=$(property MainPID)
    watches_it_come_back &
    local watching=$!
    until_true 10 grep LIVE "$work/watched"
    inside kill -KILL "$before"
    until_true 20 is_ready
    wait "$watching"
    [ "$(property MainPID)" != "$before" ]
    # Wrong settings in SSM do not make an outage of a restart.
    chat
    watcher bifrost-dashboard --json | grep "\"pid\": $(property MainPID)"
}
# Other port, no figures: the same machine, by a restart.
moves() {
    settings "{ providers = { openai = { base_url = \"$provider_url\" } } }"
    printf 'port = %s\nthreshold_alarms = false\n' "$next_port" >"$work/module/terraform/later.auto.tfvars"
    local before
    before=$(terraform -chdir="$work/module/terraform" output -raw instance_id)
    applied apply -auto-approve
    [ "$(terraform -chdir="$work/module/terraform" output -raw instance_id)" = "$before" ]
    in_session restart_command | grep 'Active: active'
    curl --silent --show-error --fail "http://127.0.0.1:$next_port/readyz"
    refused is_ready
    [ "$(inside systemctl is-active bifrost-metrics.timer)" = inactive ]
}
is_in_flight() { watcher bifrost-dashboard --json | grep -q '"in_flight": [1-9]'; }
drains() {
    chat >"$work/answer" &
    local request=$!
    until_true 2 is_in_flight
    inside systemctl stop bifrost.service
    wait "$request"
    grep -q '"content"' "$work/answer"
    inside journalctl --unit bifrost.service --no-pager --lines 10 | grep 'drained=Whole'
}
restarts_with_the_machine() { inside systemctl is-enabled bifrost.service; }

if [ "$delivery" = --release ]; then
    make_machine
    boot_machine
    check 'a release of another digest is not started, and that is said' fails_clearly
    stop_machine
    released "$(sha256sum "$work/files/bifrost.tar.gz" | cut -d ' ' -f 1)"
    applied apply -auto-approve
fi
make_machine
boot_machine
check 'the user data boot the machine' boots
if [ "$delivery" = --source ]; then check 'the toolchain is the one that is new enough' takes_the_newer_rust; fi
check 'cloud-init has no complaint' cloud_init_is_done
check '/readyz is 200' is_ready
check 'a chat goes through to the provider' answers
check 'the monitor shows it to a member of its group' monitor_shows_it
check 'nobody else sees figures or secrets' others_see_nothing
check 'the running unit exposes little' exposes_little
check 'the key is in memory, and nowhere else' keeps_the_secret
check 'a reload puts settings in force' reloads
check 'a reload with wrong settings fails and changes nothing' refuses_wrong_settings
check 'a gateway that was killed comes back, and the monitor follows' comes_back
check 'figures reach CloudWatch' publishes
check 'another port comes with a restart, on the same instance' moves
api=http://127.0.0.1:$next_port
check 'a stop lets a request finish' drains
check 'the unit starts with the machine' restarts_with_the_machine

stop_machine
exec {provider}>&-
printf '%d passed, %d failed\n' "$passed" "$failed"
[ "$failed" -eq 0 ]
