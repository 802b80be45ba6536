#!/usr/bin/python3
"""Once a minute: what the monitor says of queue wait, load and memory goes to CloudWatch, for the alarms.

A figure that the monitor does not know is not published, and nothing is if no gateway serves: the segment of one that has
died still holds its last figures, and an alarm has to miss them.
"""

import json
import os
import pathlib
import subprocess
import sys

MONITOR = ["/usr/local/bin/bifrost-monitor", "--json", "--segment", "/run/bifrost"]
INSTANCE = pathlib.Path("/var/lib/cloud/data/instance-id")


def data(figures, instance):
    """The metrics of `instance` in `figures`, which is what `bifrost-monitor --json` prints."""
    if figures["state"] not in ("live", "draining"):
        return []

    def of(trigger):
        return figures["triggers"][trigger]["mean_60s"]

    queue_wait, load, memory = of("queue_wait"), of("load"), of("memory")
    metrics = [
        ("QueueWait", "Microseconds", None if queue_wait is None else queue_wait / 1000),
        ("Load", "Count/Second", load),
        ("Memory", "Percent", None if memory is None else 100 * memory / figures["memory_limit"]),
    ]
    return [
        {"MetricName": name, "Unit": unit, "Value": value, "Dimensions": [{"Name": "InstanceId", "Value": instance}]}
        for name, unit, value in metrics
        if value is not None
    ]


def main():
    done = subprocess.run(MONITOR, capture_output=True, text=True, timeout=20)
    if done.returncode != 0:
        print(done.stdout or done.stderr, file=sys.stderr)
        return 1
    metrics = data(json.loads(done.stdout), INSTANCE.read_text().strip())
    if not metrics:
        return 0
    command = ["aws", "cloudwatch", "put-metric-data", "--region", os.environ["REGION"]]
    command += ["--namespace", os.environ["NAMESPACE"], "--metric-data", json.dumps(metrics)]
    return subprocess.run(command, timeout=30).returncode


if __name__ == "__main__":
    sys.exit(main())
