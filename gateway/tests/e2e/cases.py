#!/usr/bin/env python3
"""Runs the shared cases against the real gateway, each in the configuration that it asks for.

The cases and their runner, which plays the provider, are in ../shared/cases beside a checkout (README.md there).
What a case does to a key outlives it, so that each meets a gateway of its own: a start takes milliseconds.

    python3 gateway/tests/e2e/cases.py
    python3 gateway/tests/e2e/cases.py --only 014,026 -v
"""

import argparse
import json
import pathlib
import random
import re
import socket
import subprocess
import sys

from gateway import ROOT, Gateway, add_arguments

SHARED = ROOT.parent / "shared" / "cases"
# The runner listens on the first four from its first port, and says that nothing listens on the tenth.
PORTS = range(10)
CASE_MAX_S = 120
NOT_YET = {
    "anthropic": "the gateway does not speak Anthropic's dialect yet",
    "gemini": "the gateway does not speak Gemini's dialect yet",
}


def openai(port, keys=("sk-test-a", "sk-test-b"), retries=2, **changes):
    """A provider as the configuration `default` has it."""
    provider = {
        "base_url": f"http://127.0.0.1:{port}/v1",
        "keys": [{"value": key, "weight": 0.5} for key in keys],
        "retries": {"max": retries, "backoff_initial": "50ms", "backoff_max": "200ms"},
    }
    return provider | changes


def single(port, **changes):
    """The provider of `single-key` with no retry, which most of the others build on."""
    return openai(port, keys=("sk-test-a",), retries=0, **changes)


def without_keys(provider):
    """The same, for keys that come from variables."""
    return {name: value for name, value in provider.items() if name != "keys"}


def configuration(name, port):
    """The settings and variables of a configuration (cases/README.md, "Configurations"); None if unknown."""
    base = f"http://127.0.0.1:{port}/v1"
    weights = [{"value": "sk-test-a", "weight": 0}, {"value": "sk-test-b", "weight": 0.004}]
    dirty = {"OPENAI_API_KEY_1": "sk-test-a\n", "OPENAI_API_KEY_2": "  sk-test-b\r\n"}
    second = openai(port + 1, keys=("sk-test-second",), retries=0)
    known = {
        "default": (openai(port), {}, {}),
        "fallback": (single(port, fallbacks=["second/gpt-4o-mini"]), {"providers": {"second": second}}, {}),
        "single-key": (openai(port, keys=("sk-test-a",)), {}, {}),
        "short-timeouts": (
            single(port, timeouts={"first_byte": "1s", "idle": "1s"}),
            {"server": {"header_timeout": "2s"}},
            {},
        ),
        "base-url-slash": (openai(port, base_url=f"{base}/"), {}, {}),
        "dirty-keys": (without_keys(openai(port)), {}, dirty),
        "weights": (openai(port) | {"keys": weights}, {}, {}),
        "small-queue": (single(port, concurrency=1), {"client": {"buffer_size": 1}}, {}),
        "dead-upstream": (single(port, base_url=f"http://127.0.0.1:{port + 9}/v1"), {}, {}),
        "dns-fail": (single(port, base_url="http://no-such-host.invalid/v1"), {}, {}),
        "tls-fail": (single(port, base_url=f"https://127.0.0.1:{port}/v1"), {}, {}),
    }
    if name not in known:
        return None
    provider, more, environment = known[name]
    settings = {**more, "providers": {"openai": provider, **more.get("providers", {})}}
    return settings, environment


def free_ports():
    """The first of ten ports in a row that nobody holds: others on this machine may run the cases, too."""
    for _ in range(100):
        first = random.randrange(20_000, 32_000, 10)
        held = []
        try:
            for port in PORTS:
                held.append(socket.create_server(("127.0.0.1", first + port)))
        except OSError:
            continue
        finally:
            for listener in held:
                listener.close()
        return first
    raise SystemExit("no ten free ports in a row")


def run(case, bin_dir, runner, verbose):
    """Runs a case. Returns why it failed, or None."""
    port = free_ports()
    found = configuration(case["config"], port)
    if found is None:
        return f"the configuration {case['config']!r} is not known here"
    settings, environment = found
    with Gateway(bin_dir, settings=settings, environment=environment) as gateway:
        command = [
            sys.executable, runner,
            "--gateway", f"http://{gateway.address}",
            "--upstream-port", str(port),
            "--cases", case["folder"],
            "--config-applied", case["config"],
            "--only", case["name"],
            *["-v"] * verbose,
        ]  # fmt: skip
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=CASE_MAX_S)
        if gateway.process.poll() is not None:
            return f"the gateway ended with {gateway.process.returncode}: {gateway.log()[-500:]}"
        if verbose > 1:
            print(gateway.log(), end="")
    if verbose:
        print(done.stdout, end="")
    if done.returncode == 0 and re.search(r"^1 passed, 0 failed$", done.stdout, re.MULTILINE):
        return None
    reasons = re.findall(r"^FAIL [^:]*: (.*)$", done.stdout, re.MULTILINE)
    return "; ".join(reasons) or f"the runner ended with {done.returncode}: {done.stdout}{done.stderr}"


def load(folders):
    """All cases in the folders, by configuration and name."""
    cases = []
    for folder in folders:
        for file in sorted(folder.glob("*.json")):
            case = json.loads(file.read_text(encoding="utf-8"))
            cases.append({"name": file.stem, "config": case["config"], "folder": folder})
    return sorted(cases, key=lambda case: (case["config"] != "default", case["config"], case["name"]))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser)
    parser.add_argument("--runner", type=pathlib.Path, default=SHARED / "run_cases.py")
    parser.add_argument(
        "--cases", action="append", type=pathlib.Path, metavar="DIR", help="folder of cases; repeatable"
    )
    parser.add_argument("--only", help="the beginnings of names, comma-separated: 014,026")
    parser.add_argument("--config", help="the cases of this configuration only")
    parser.add_argument("--at-least", type=int, metavar="N", help="succeed if so many pass, whatever else fails")
    parser.add_argument("-v", "--verbose", action="count", default=0)
    args = parser.parse_args()
    if not args.runner.exists():
        print(f"SKIPPED: {args.runner} is not there, so that no case can run")
        return 0
    cases = load(args.cases or [SHARED / "open"])
    if args.only:
        cases = [case for case in cases if case["name"].startswith(tuple(args.only.split(",")))]
    if args.config:
        cases = [case for case in cases if case["config"] == args.config]
    passed, failed, skipped = 0, 0, 0
    for config in dict.fromkeys(case["config"] for case in cases):
        chosen = [case for case in cases if case["config"] == config]
        if config in NOT_YET:
            skipped += len(chosen)
            for case in chosen:
                print(f"SKIP {case['name']} [{config}]: {NOT_YET[config]}")
            continue
        whole = 0
        for case in chosen:
            try:
                why = run(case, args.bin_dir, args.runner, args.verbose)
            except (OSError, RuntimeError, subprocess.TimeoutExpired) as error:
                why = str(error)
            whole += why is None
            if why is not None:
                print(f"FAIL {case['name']} [{config}]: {why}", flush=True)
        print(f"{config}: {whole} of {len(chosen)}", flush=True)
        passed += whole
        failed += len(chosen) - whole
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    if args.at_least is not None:
        return 0 if passed >= args.at_least else 1
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
