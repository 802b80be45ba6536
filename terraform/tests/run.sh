#!/usr/bin/env bash
# Everything that can be known of the module without an account: see README.md, "How it is tested".
#
#   terraform/tests/run.sh          all of it
#   terraform/tests/run.sh NAME…    these checks only
set -euo pipefail
tests=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$tests/../.." && pwd)

if ! command -v terraform >/dev/null; then
    echo 'SKIPPED: terraform is not there'
    exit 0
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# shellcheck source=terraform/tests/local/environment.sh
source "$tests/local/environment.sh"
passed=0
skipped=0
failed=0
wanted=("$@")

# check NAME COMMAND…: what it prints is shown if it fails.
check() {
    local name=$1 began=$SECONDS outcome=ok
    shift
    if [ ${#wanted[@]} -gt 0 ] && [[ " ${wanted[*]} " != *" $name "* ]]; then return; fi
    # Not `if command`, in which the command's own `set -e` would not hold.
    set +e
    (set -euo pipefail && "$@") >"$work/said" 2>&1
    local status=$?
    set -e
    if [ $status -eq 0 ] && grep -q 'SKIPPED: ' "$work/said"; then
        skipped=$((skipped + 1)) outcome=SKIP # all or a part of it: what, is below
    elif [ $status -eq 0 ]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1)) outcome=FAILED
        tail -n 80 "$work/said"
    fi
    printf '%-12s %-6s %4d s  %s\n' "$name" "$outcome" $((SECONDS - began)) "$(tail -n 1 "$work/said" | cut -c 1-90)"
    sed -n 's/^.*\(SKIPPED: .*\)/             \1/p' "$work/said"
}

install() {
    venv moto 'moto[server,ec2,iam,ssm,s3,cloudwatch]==5.2.5' grpcio==1.85.3 protobuf==5.29.6 tf==1.2.0 awscli &
    local moto=$!
    mirror
    if command -v npm >/dev/null; then
        bindings 19.65.1 >/dev/null
        bindings 21.22.1 >/dev/null
    fi
    wait "$moto"
    venv checkov checkov==3.3.30
    echo "what the checks need is in target/terraform"
}

form() {
    terraform fmt -check -recursive -diff "$root/terraform"
    echo 'as terraform fmt has it'
}

# against VERSION CHECKS: validates and tests with the schema of that provider, served by a stub.
against() {
    local directory=$work/schema-$1 attached
    if ! command -v npm >/dev/null; then echo 'SKIPPED: npm is not there to fetch the schema' && return; fi
    checkout "$directory"
    python3 "$tests/local/provider_schema.py" "$(bindings "$1")" "$root"/terraform/*.tf >"$directory/schema.json"
    mkfifo "$directory/open"
    "$cache/moto/bin/python" "$tests/local/provider_stub.py" "$directory/schema.json" <"$directory/open" >"$directory/attached" &
    exec {stub}>"$directory/open" # the stub ends when this does
    until_true 20 test -s "$directory/attached"
    attached=$(cat "$directory/attached")
    export TF_REATTACH_PROVIDERS=$attached
    cd "$directory/terraform"
    terraform init -no-color >/dev/null
    terraform validate -no-color
    for example in examples/*/; do
        terraform -chdir="$example" init -no-color >/dev/null
        terraform -chdir="$example" validate -no-color
    done
    if [ "$2" = refusals ]; then python3 tests/local/refusals.py .; fi
    terraform test -no-color
    exec {stub}>&-
}

# From nothing to an empty state, on 3.39.0 and moto. Each step builds on the one before.
lifecycle() {
    local instance address
    start_moto
    real_module "$work/real"
    cd "$work/real/terraform"
    cat >"$work/mirror.tfrc" <<RC
disable_checkpoint = true
provider_installation {
  filesystem_mirror {
    path = "$cache/mirror"
  }
}
RC
    export TF_CLI_CONFIG_FILE=$work/mirror.tfrc
    export TF_VAR_secret_parameters='{ OPENAI_API_KEY = "/bifrost/openai" }'
    export TF_VAR_threshold_alarms=true
    read_back() { "$cache/moto/bin/python" "$tests/local/read_back.py" "$moto" "$@"; }
    apply() { terraform apply -no-color -auto-approve >apply.log || { cat apply.log && return 1; }; }
    planned() { grep -q -F "$1" plan.log || { cat plan.log && echo "not planned: $1" && return 1; }; }
    plan_says() {
        local expected=$1 said=0
        shift
        terraform plan -no-color -detailed-exitcode "$@" >plan.log || said=$?
        [ "$said" -eq "$expected" ] || { cat plan.log && echo "plan -detailed-exitcode: $said, not $expected" && return 1; }
    }

    read_back put-secret /bifrost/openai sk-proj-not-to-be-seen
    terraform init -no-color >/dev/null
    terraform validate -no-color
    apply
    plan_says 0
    echo 'a second plan has nothing to do'
    read_back check
    read_back user-data >"$cache/user-data"
    instance=$(terraform output -raw instance_id) address=$(terraform output -raw public_ip)

    export TF_VAR_settings='{ log = { access = true } }'
    plan_says 2
    planned 'aws_ssm_parameter.settings will be updated in-place'
    planned '0 to add, 1 to change, 0 to destroy'
    apply
    [ "$(terraform output -raw instance_id)" = "$instance" ]
    read_back setting log.access true
    plan_says 0
    echo 'a changed setting changes the parameter in place'

    # Where it listens and whether it is watched are settings, too.
    TF_VAR_port=9000 TF_VAR_threshold_alarms=false apply
    [ "$(terraform output -raw instance_id)" = "$instance" ]
    read_back setting server.listen '"127.0.0.1:9000"'
    TF_VAR_port=9000 TF_VAR_threshold_alarms=false plan_says 0
    apply
    [ "$(terraform output -raw instance_id)" = "$instance" ]
    echo 'another port and other alarms keep the instance'

    printf '// changed\n' >>../gateway/src/main.rs
    plan_says 2
    planned 'aws_instance.gateway must be replaced'
    # Else the provider would not wait for the new instance before it moves the address.
    planned 'aws_ssm_association.ready[0] will be replaced due to changes in replace_triggered_by'
    apply
    [ "$(terraform output -raw instance_id)" != "$instance" ]
    [ "$(terraform output -raw public_ip)" = "$address" ]
    read_back check
    plan_says 0
    echo 'a changed program replaces the instance, and the address is kept'

    TF_VAR_binary_directory=./tests/local/programs plan_says 2
    planned 'aws_s3_bucket_object.program["bifrost-monitor"] will be created'

    if grep -q sk-proj-not-to-be-seen terraform.tfstate; then echo 'the secret is in the state' && return 1; fi
    terraform destroy -no-color -auto-approve >/dev/null
    [ -z "$(terraform state list)" ]
    read_back nothing-left
    echo 'applied, planned, changed, replaced and destroyed'
}

security() {
    # Its findings are for the module as it is committed; --skip-download, since it asks its vendor otherwise.
    cd "$root/terraform"
    # The examples only call the module, and through them checkov loses what a security group is attached to.
    "$cache/checkov/bin/checkov" --directory . --framework terraform --compact --skip-download --skip-path tests --skip-path examples >"$work/checkov.log" || { grep -B1 -A4 FAILED "$work/checkov.log" && return 1; }
    grep 'Passed checks' "$work/checkov.log"
    if grep 'Error parsing' "$work/checkov.log"; then return 1; fi
}

scripts() {
    cd "$root/terraform"
    shellcheck --external-sources --source-path="$root" tests/run.sh tests/boot.sh tests/local/environment.sh templates/boot.sh templates/dashboard.sh
    # With the user data that Terraform last handed to AWS.
    python3 "$tests/local/test_scripts.py" "$cache/user-data"
}

check install install
check form form
check v6 against 21.22.1 refusals
check v5 against 19.65.1 -
check lifecycle lifecycle
check documents python3 "$tests/local/documents.py" "$root/terraform"
check security security
check scripts scripts

printf '%d passed, %d skipped, %d failed\n' "$passed" "$skipped" "$failed"
[ "$failed" -eq 0 ]
