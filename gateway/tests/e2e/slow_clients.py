#!/usr/bin/env python3
"""Thousands of clients that send their head a byte a second: is a fast client served in normal time?

By hand, or from .ci/full. Needs descriptors: the gateway as many as there are clients and some, and so does this.

    python3 gateway/tests/e2e/slow_clients.py --bin-dir target/release --clients 8000
"""

import argparse
import collections
import http.client
import json
import multiprocessing
import resource
import selectors
import socket
import sys
import time

sys.dont_write_bytecode = True
from gateway import Gateway, add_arguments, wait_until  # noqa: E402

HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\nx-slow: " + b"y" * 4096
BODY = json.dumps({"model": "demo/gpt-4o-mini", "messages": [{"role": "user", "content": "hi"}]})
# A connection whose head took too long is opened again, so that there are always as many.
OPENED_AT_ONCE = 200


def connect(address):
    """A connection under way."""
    connection = socket.socket()
    connection.setblocking(False)
    connection.connect_ex(address)
    return connection


def be_slow(address, count, open_count, stop):
    """Keeps `count` connections open, each of which sends a byte a second."""
    poll = selectors.DefaultSelector()
    sent = {}
    due = collections.deque()
    while not stop.is_set():
        for _ in range(min(OPENED_AT_ONCE, count - len(sent))):
            connection = connect(address)
            sent[connection] = 0
            due.append((time.monotonic(), connection))
            poll.register(connection, selectors.EVENT_READ)
        for key, _ in poll.select(0.01):
            # Anything that can be read is the gateway's last word.
            poll.unregister(key.fileobj)
            key.fileobj.close()
            del sent[key.fileobj]
        while due and due[0][0] <= time.monotonic():
            _, connection = due.popleft()
            at = sent.get(connection)
            if at is None:
                continue
            due.append((time.monotonic() + 1, connection))
            try:
                connection.send(HEAD[at : at + 1])
                sent[connection] = at + 1
            except OSError:
                pass  # not connected yet, or gone: the poll tells
        open_count.value = len(sent)


def ask(address, count):
    """Milliseconds that each of `count` requests took, one after the other on one connection."""
    connection = http.client.HTTPConnection(*address)
    took = []
    for _ in range(count):
        begun = time.perf_counter()
        connection.request("POST", "/v1/chat/completions", BODY, {"content-type": "application/json"})
        answer = connection.getresponse()
        answer.read()
        if answer.status != 200:
            raise AssertionError(f"status {answer.status}")
        took.append((time.perf_counter() - begun) * 1e3)
    return sorted(took)


def connect_and_ask(address, count):
    """The same with a connection each."""
    return sorted(ask(address, 1)[0] for _ in range(count))


def summary(took):
    """Median, p99 and maximum."""
    return f"p50 {took[len(took) // 2]:7.2f} ms   p99 {took[len(took) * 99 // 100]:7.2f} ms   max {took[-1]:7.2f} ms"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_arguments(parser)
    parser.add_argument("--clients", type=int, default=8000)
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--p99-max-ms", type=float, default=100, help="what is still normal, the mock's 50 ms included")
    arguments = parser.parse_args()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with Gateway(arguments.bin_dir, "--demo") as gateway:
        host, port = gateway.address.rsplit(":", 1)
        address = (host, int(port))
        print("alone:              ", summary(ask(address, arguments.requests)), flush=True)
        open_count, stop = multiprocessing.Value("i", 0), multiprocessing.Event()
        slow = multiprocessing.Process(target=be_slow, args=(address, arguments.clients, open_count, stop), daemon=True)
        slow.start()
        wait_until("slow clients", lambda: gateway.figures()["gauges"]["connections"] >= arguments.clients * 0.95)
        kept = ask(address, arguments.requests)
        fresh = connect_and_ask(address, arguments.requests)
        gauges = gateway.figures()["gauges"]
        stop.set()
        print("one connection:     ", summary(kept))
        print("a connection each:  ", summary(fresh))
        print(f"slow clients: {open_count.value}; the gateway's connections: {gauges['connections']}, RSS {gauges['rss'] >> 20} MiB")
        slow.join(10)
    worst = max(took[len(took) * 99 // 100] for took in (kept, fresh))
    if gauges["connections"] < arguments.clients * 0.9 or worst > arguments.p99_max_ms:
        raise SystemExit("1 passed, 1 failed" if worst <= arguments.p99_max_ms else f"p99 {worst:.1f} ms is not normal")


if __name__ == "__main__":
    main()
