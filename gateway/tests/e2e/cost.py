#!/usr/bin/env python3
"""What a request costs: instructions and allocations of the thread that serves it, counted by valgrind's callgrind.

Times are noise on a shared machine, and these are not: a count differs by a per cent between runs. The
gateway is the real one, with a client and a provider on real sockets; so the count goes from the accepted bytes of a
request to the last written byte of its answer, the kernel's part left out. After some requests that warm everything
up, what a run of them adds is divided by their number.

    python3 gateway/tests/e2e/cost.py
    python3 gateway/tests/e2e/cost.py --bin-dir target/release --report   # figures only: the bounds are the dev profile's
"""

import argparse
import http.client
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile

from gateway import PATIENCE_S, add_arguments, clean_environment, wait_until

WARM_UP = 300
COUNT = 500
# A stream's events come one by one, as from a model that thinks: at this pace each is a packet of its own.
STREAMS = 20
CHUNKS = 50
# Under valgrind everything takes some fifty times as long.
SLOW = 6

# What a request may cost in the dev profile: some 5 % above what it costs. A change that makes it cost less lowers
# these with it: below LEAST of a bound, it is the count that is wrong, or the bound that guards nothing.
BOUNDS = {
    "plain": {"instructions": 102_500, "allocations": 38.1},
    "event": {"instructions": 27_200, "allocations": 2.9},
}
LEAST = 0.5

ALLOCATORS = {"_rjem_malloc", "_rjem_mallocx", "_rjem_calloc", "_rjem_realloc", "_rjem_rallocx"}
BODY = {"model": "openai/gpt-4o-mini", "messages": [{"role": "user", "content": "Hello, how are you today? " * 3}]}


class Provider:
    """The product's own mock, as a process."""

    def __init__(self, program):
        command = [program, "mock", "--delay", "0ms", "--chunks", str(CHUNKS), "--pace", "10ms"]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=clean_environment(), text=True
        )
        self.address = re.search(r"[\d.]+:\d+", self.process.stdout.readline()).group()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait(PATIENCE_S)


class Watched:
    """The gateway with one runtime, under callgrind."""

    def __init__(self, program, provider, directory):
        self.directory = pathlib.Path(directory)
        environment = clean_environment(
            BIFROST_PROVIDERS__OPENAI__BASE_URL=f"http://{provider}/v1",
            BIFROST_PROVIDERS__OPENAI__KEYS='[{value="sk-test"}]',
            BIFROST_SERVER__WORKERS="1",
            BIFROST_ADMIN__ENABLED="false",
            BIFROST_LOG__FORMAT="json",
        )
        command = ["valgrind", "--quiet", "--tool=callgrind", "--separate-threads=yes"]
        command += [f"--callgrind-out-file={self.directory}/count", "--dump-instr=no", program]
        command += ["--listen", "127.0.0.1:0", "--segment", self.directory / "segment"]
        self.log = self.directory / "log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=log, env=environment)

    def __enter__(self):
        self.address = wait_until("listening address", self._address, PATIENCE_S * SLOW)
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(PATIENCE_S * SLOW)

    def _address(self):
        text = self.log.read_text(encoding="utf-8")
        if self.process.poll() is not None:
            raise RuntimeError(f"the gateway ended with {self.process.returncode}: {text}")
        found = re.search(r'"serving".*"address":"([^"]+)"|"address":"([^"]+)".*"serving"', text)
        return found and (found.group(1) or found.group(2))

    def cost_of(self, work):
        """Instructions and allocations of the thread that had most to do while `work` was done."""
        self._dump()
        work()
        return max(counted(file) for file in self._dump())

    def _dump(self):
        """Has the counts since the last time written down, and gives their files."""
        before = set(self.directory.glob("count*"))
        command = ["callgrind_control", "--dump", str(self.process.pid)]
        subprocess.run(command, check=True, capture_output=True, timeout=PATIENCE_S * SLOW)
        return set(self.directory.glob("count*")) - before


def counted(file):
    """Instructions and allocations in a thread's counts."""
    names, callee, instructions, allocations = {}, None, 0, 0
    for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
        if line.startswith(("fn=", "cfn=")):
            number, _, name = line.partition("=")[2].partition(" ")
            callee = names.setdefault(number, name)
        elif line.startswith("calls=") and callee in ALLOCATORS:
            allocations += int(line.removeprefix("calls=").split()[0])
        elif line.startswith(("totals:", "summary:")):
            instructions = int(line.split()[1])
    return instructions, allocations


class Client:
    """A client with one connection."""

    def __init__(self, address):
        host, port = address.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), timeout=PATIENCE_S * SLOW)

    def ask(self, count, **more):
        """Asks so often, one after the other, and reads the answers to their ends."""
        body = json.dumps(BODY | more)
        head = "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        # In one packet: whether the gateway finds one or two when it looks would be chance.
        packet = f"{head}content-length: {len(body)}\r\n\r\n{body}".encode()
        for _ in range(count):
            self.socket.sendall(packet)
            answer = http.client.HTTPResponse(self.socket, method="POST")
            answer.begin()
            text = answer.read()
            if answer.status != 200 or (more and b"[DONE]" not in text):
                raise RuntimeError(f"{answer.status}: {text[:200]}")


def costs(program):
    """Cost of a plain request, and of an event of a stream, by name."""
    # The segment belongs into memory.
    place = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="bifrost-cost-", dir=place) as directory:
        with Provider(program) as provider, Watched(program, provider.address, directory) as gateway:
            client = Client(gateway.address)
            client.ask(WARM_UP)
            plain = gateway.cost_of(lambda: client.ask(COUNT))
            client.ask(1, stream=True)
            streams = gateway.cost_of(lambda: client.ask(STREAMS, stream=True))
    if plain[1] == 0:
        raise RuntimeError(f"no call of {', '.join(sorted(ALLOCATORS))} was found: is {program} stripped?")
    return {
        "plain": {"instructions": plain[0] / COUNT, "allocations": plain[1] / COUNT},
        "event": {"instructions": streams[0] / STREAMS / CHUNKS, "allocations": streams[1] / STREAMS / CHUNKS},
    }


def main():
    """The exit status: 1 if a bound is broken."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_arguments(parser)
    parser.add_argument("--report", action="store_true", help="print the figures and judge nothing")
    arguments = parser.parse_args()
    if shutil.which("valgrind") is None:
        # Where nobody reads that it was skipped, nobody would see that it never runs.
        print(f"{'FAILED' if os.environ.get('CI') else 'SKIPPED'}: valgrind is not installed")
        return 1 if os.environ.get("CI") else 0
    failed = 0
    for what, figures in costs(arguments.bin_dir / "bifrost-gateway").items():
        for unit, figure in figures.items():
            bound = BOUNDS[what][unit]
            is_wrong = not LEAST * bound <= figure <= bound and not arguments.report
            failed += is_wrong
            print(
                f"{'FAILED' if is_wrong else 'ok':6} {what}: {figure:,.1f} {unit},"
                f" {LEAST * bound:,.1f} to {bound:,} allowed"
            )
    print(f"{4 - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
