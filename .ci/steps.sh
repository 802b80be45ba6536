# shellcheck shell=bash
# Steps that are timed and counted, and a table of them. Sourced by .ci/run and .ci/full.

logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
rows=()
passed=0
failed=0

# step NAME COMMAND…: runs it to its end, whatever becomes of it, and notes that.
step() {
    local name=$1 log=$logs/step outcome=ok began=$SECONDS count
    shift
    printf '\n=== %s: %s\n' "$name" "$*"
    if "$@" </dev/null 2>&1 | tee "$log"; then
        passed=$((passed + 1))
    else
        outcome=FAILED
        failed=$((failed + 1))
    fi
    if grep -q '^SKIPPED' "$log"; then outcome=SKIPPED; fi
    count=$(closing_count "$log")
    rows+=("$(printf '%-10s %-8s %5d s  %s' "$name" "$outcome" $((SECONDS - began)) "$count")")
    printf '=== %s\n' "${rows[-1]}"
}

# What a step's runner says at its end: cargo's sums over its test binaries, or a plain closing line.
closing_count() {
    awk '
        /^test result:/ { sum[0] += $4; sum[1] += $6; sum[2] += $8; cargo = 1 }
        /^SKIPPED/ { plain = $0 }
        /^[0-9]+ passed, [0-9]+ failed/ { plain = $0 }
        END {
            if (cargo) printf "%d passed, %d failed, %d ignored\n", sum[0], sum[1], sum[2]
            else if (plain) print plain
            else print "-"
        }' "$1"
}

# Prints the table. Fails if a step did.
close_steps() {
    printf '\n'
    printf '%s\n' "${rows[@]}"
    printf '\nin all %d s\n' "$SECONDS"
    printf 'steps: %d passed, %d failed\n' "$passed" "$failed"
    [ "$failed" -eq 0 ]
}

# install_missing PROGRAM=PACKAGE…: installs the Debian packages of programs that are not there.
install_missing() {
    local pair missing=()
    for pair in "$@"; do
        command -v "${pair%%=*}" >/dev/null || missing+=("${pair#*=}")
    done
    # Debian leaves this part of Python out.
    python3 -c 'import ensurepip, venv' 2>/dev/null || missing+=(python3 python3-venv)
    if [ ${#missing[@]} -eq 0 ]; then
        echo 'nothing is missing'
        return
    fi
    echo "installing ${missing[*]}"
    apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends "${missing[@]}"
}
