#!/usr/bin/env python3
"""The three load shapes of ../shared/bench (README.md there) against a gateway, with its figures.

    python3 gateway/tests/e2e/bench.py --bin-dir target/release

S1 is as fast as it goes with 64 connections and a provider without latency; S2 is 5,000 requests a second against a
provider that takes 1.5 s; S3 is 200 streams of 50 events, 20 ms apart. Each has a gateway and a provider of its own,
first asked directly, so that what the gateway adds is a difference. A request that fails makes the shape fail. Needs
16,000 descriptors; on a machine that others use, put `chrt -r 1` in front, or S2 fails for want of processor time.
"""

import argparse
import contextlib
import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile

from gateway import ROOT, Gateway, add_arguments, wait_until

BENCH = ROOT.parent / "shared" / "bench"
TOOLS = ROOT / "target" / "bench"
SHAPES = {
    "S1": ([], ["--shape", "closed", "--connections", "64", "--duration", "20"], "request.json"),
    "S2": (
        ["--latency-ms", "1500"],
        ["--shape", "open", "--rate", "5000", "--warmup", "4", "--duration", "30"],
        "request.json",
    ),
    "S3": (
        ["--chunks", "50", "--chunk-delay-ms", "20"],
        ["--shape", "events", "--connections", "200", "--requests-each", "3", "--duration", "3", "--warmup", "0"],
        "request-stream.json",
    ),
}


def build(bench):
    """Builds the two tools. From a copy, since the folder they come in may not be written to; and one elsewhere, since
    cargo would take it for a part of our workspace."""
    environment = {**os.environ, "CARGO_TARGET_DIR": str(TOOLS)}
    with tempfile.TemporaryDirectory(prefix="bifrost-bench-") as elsewhere:
        for tool in ("mock-upstream", "loadgen"):
            source = pathlib.Path(elsewhere) / tool
            for file in (bench / tool).rglob("*"):
                if file.is_file():
                    copy = source / file.relative_to(bench / tool)
                    copy.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(file, copy)
            subprocess.run(["cargo", "build", "--quiet", "--release"], cwd=source, env=environment, check=True)


@contextlib.contextmanager
def upstream(flags):
    """A provider on a free port."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    process = subprocess.Popen([TOOLS / "release" / "mock-upstream", "--port", str(port), *flags])
    try:
        wait_until("provider", lambda: is_open(port))
        yield port
    finally:
        process.kill()
        process.wait()


def is_open(port):
    """Whether something listens there."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def measure(bench, bin_dir, upstream_flags, load_flags, body):
    """One shape. Returns what measure.py found, and what the gateway's own segment says."""
    with upstream(upstream_flags) as port:
        provider = {"base_url": f"http://127.0.0.1:{port}/v1", "keys": [{"value": "sk-bench"}]}
        with Gateway(bin_dir, settings={"providers": {"mock": provider}}) as gateway:
            command = [
                sys.executable, bench / "measure.py",
                "--loadgen", TOOLS / "release" / "loadgen",
                "--pid", str(gateway.process.pid),
                "--url", f"{gateway.url}/chat/completions",
                "--direct-url", f"http://127.0.0.1:{port}/v1/chat/completions",
                "--body", bench / body,
                *load_flags,
            ]  # fmt: skip
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            return json.loads(done.stdout), gateway.figures()


def report(name, found, figures):
    """A few lines. Returns whether no request failed."""
    load, used, added = found["load"], found["gateway"], found["added"]
    mean = {key: figures[key]["since_start"]["mean_ns"] for key in ("overhead", "added", "unattributed")}
    print(f"{name}: {load['ok']} ok, {load['failed']} failed, {load['ok'] / load['seconds']:.0f} requests/s")
    print(
        f"  CPU {used['cpu_us_per_request']} µs a request, {used['cpu_us_per_event']} µs an event, {used['cpu_cores']} cores"
    )
    print(
        f"  added p50 {added['service_p50_us']} µs, p99 {added['service_p99_us']} µs (service time, gateway minus direct)"
    )
    print(f"  peak RSS {used['vm_hwm_mb']} MB, {used['fds_peak']} descriptors")
    print(
        f"  its own means: overhead {mean['overhead']} ns, added in process {mean['added']} ns, unattributed {mean['unattributed']} ns"
    )
    print(f"  {json.dumps(found)}", flush=True)
    return load["failed"] == 0 and figures["counters"]["failed"] == 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser)
    parser.add_argument("--bench", type=pathlib.Path, default=BENCH)
    parser.add_argument("--shape", action="append", choices=SHAPES, help="these only; repeatable")
    args = parser.parse_args()
    if not args.bench.exists():
        print(f"SKIPPED: {args.bench} is not there, so that nothing can be measured")
        return 0
    build(args.bench)
    names = args.shape or list(SHAPES)
    good = [report(name, *measure(args.bench, args.bin_dir, *SHAPES[name])) for name in names]
    print(f"{sum(good)} passed, {len(good) - sum(good)} failed")
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
