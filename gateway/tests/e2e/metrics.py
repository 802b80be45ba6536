#!/usr/bin/env python3
"""Has Prometheus' own tool read /metrics of a gateway that has answered, refused and failed.

    python3 gateway/tests/e2e/metrics.py
"""

import argparse
import json
import re
import shutil
import subprocess
import sys
import urllib.error
import urllib.request

import suite
from gateway import PATIENCE_S, Gateway, add_arguments, wait_until

MODEL = "demo/gpt-4o-mini"


def ask(gateway, body):
    """Sends a chat; returns the status."""
    headers = {"content-type": "application/json"}
    request = urllib.request.Request(f"{gateway.url}/chat/completions", body.encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            answer.read()
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code


def page(gateway):
    """The page, as Prometheus gets it."""
    admin = re.search(r'"admin":"([^"]+)"', gateway.log()).group(1)
    with urllib.request.urlopen(f"http://{admin}/metrics", timeout=PATIENCE_S) as answer:
        return answer.read().decode()


def promtool_has_nothing_to_say(gateway):
    chat = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}]}
    bodies = [chat, chat | {"stream": True}, chat | {"model": "demo/"}]
    statuses = [ask(gateway, body) for body in map(json.dumps, bodies)] + [ask(gateway, "no JSON")]
    assert statuses == [200, 200, 404, 400], statuses
    wait_until("last record", lambda: "\nbifrost_records_total 4\n" in page(gateway))
    command = ["promtool", "check", "metrics"]
    done = subprocess.run(command, input=page(gateway), capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", ""), done


def promtool_would_have_said_something(gateway):
    spoilt = page(gateway).replace("bifrost_retries_total", "bifrost_retries")
    command = ["promtool", "check", "metrics"]
    done = subprocess.run(command, input=spoilt, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode != 0 and "_total" in done.stderr, done


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser)
    args = parser.parse_args()
    if shutil.which("promtool") is None:
        print("SKIPPED: promtool (Debian's prometheus) is not here, so that nobody reads the page")
        return 0
    with Gateway(args.bin_dir, "--demo", environment={"BIFROST_ADMIN__LISTEN": "127.0.0.1:0"}) as gateway:
        return suite.run([promtool_has_nothing_to_say, promtool_would_have_said_something], gateway)


if __name__ == "__main__":
    sys.exit(main())
