#!/usr/bin/python3
"""Brings the gateway's settings and secrets from SSM into memory, before each start and at each reload.

    fetch-settings start    before a start: what was fetched before will do if SSM is out of reach, or the settings
                            have become wrong, so that a restart never makes an outage of somebody's mistake
    fetch-settings reload   fails, and says why, if they can't be fetched or are wrong; then nothing changes

The directory is root's and on tmpfs; what is in it, the gateway's user alone may read. No value is ever printed.
"""

import json
import os
import pathlib
import pwd
import re
import subprocess
import sys
import time

DIRECTORY = pathlib.Path("/run/bifrost-secrets")
FACTS = pathlib.Path("/etc/bifrost/boot.env")
GATEWAY = "/usr/local/bin/bifrost-gateway"
NAMES_MAX = 10  # in one call of GetParameters
PAUSES = [1, 2, 4, 8, 16]


class Trouble(Exception):
    """Something that a person has to put right."""


def facts():
    found = re.findall(r"^(\w+)='(.*)'$", FACTS.read_text(), re.MULTILINE)
    return dict(found)


def call(region, names):
    command = ["aws", "ssm", "get-parameters", "--region", region, "--with-decryption", "--output", "json", "--names"]
    return subprocess.run(command + names, capture_output=True, text=True, timeout=30)


def parameters(region, names):
    """The values of `names`. The role may not be there yet when an instance has just started."""
    values = {}
    for first in range(0, len(names), NAMES_MAX):
        for pause in [*PAUSES, None]:
            done = call(region, names[first : first + NAMES_MAX])
            if done.returncode == 0:
                break
            if pause is None:
                raise Trouble("SSM: " + done.stderr.strip())
            time.sleep(pause)
        answer = json.loads(done.stdout)
        if answer["InvalidParameters"]:
            raise Trouble("SSM has no parameter " + ", ".join(answer["InvalidParameters"]))
        values.update((each["Name"], each["Value"]) for each in answer["Parameters"])
    return values


def line(variable, value):
    """A line of systemd's EnvironmentFile."""
    if "\n" in value or "\0" in value:
        raise Trouble(f"{variable}: its value has more than one line")
    return variable + '="' + re.sub(r'([\\"`$])', r"\\\1", value) + '"\n'


def write(name, text):
    beside = DIRECTORY / f".{name}"
    beside.unlink(missing_ok=True)
    with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o400), "w") as file:
        os.fchown(file.fileno(), pwd.getpwnam("bifrost").pw_uid, -1)
        file.write(text)
    beside.rename(DIRECTORY / name)


def check(settings, variables):
    """Asks the gateway what it thinks of them. Its messages never show a secret."""
    write("next.json", json.dumps(settings))
    command = [GATEWAY, "--config", str(DIRECTORY / "next.json"), "check"]
    done = subprocess.run(command, env={**os.environ, **variables}, capture_output=True, text=True, timeout=30)
    (DIRECTORY / "next.json").unlink()
    if done.returncode != 0:
        raise Trouble(done.stderr.strip())


def fetch():
    known = facts()
    region, name = known["REGION"], known["SETTINGS_PARAMETER"]
    wanted = json.loads(parameters(region, [name])[name])
    variables, files = wanted["variables"], wanted["files"]
    values = parameters(region, sorted({*variables.values(), *files.values()}))
    variables = {variable: values[parameter].strip() for variable, parameter in variables.items()}
    environment = "".join(line(*each) for each in sorted(variables.items()))
    for file, parameter in files.items():
        write(file, values[parameter])
    # Each also as a file, for `value_file`: a reload reads those again, which it can't do for variables.
    for variable, value in variables.items():
        write(variable, value)
    check(wanted["settings"], variables)
    write("environment", environment)
    write("settings.json", json.dumps(wanted["settings"]))


def main():
    may_keep = sys.argv[1:] == ["start"]
    DIRECTORY.mkdir(exist_ok=True)
    DIRECTORY.chmod(0o711)
    try:
        fetch()
    except (Trouble, OSError, subprocess.TimeoutExpired) as trouble:
        print(trouble, file=sys.stderr)
        if may_keep and (DIRECTORY / "settings.json").exists():
            print("going on with the settings that were fetched before", file=sys.stderr)
            return 0
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
