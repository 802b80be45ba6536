#!/usr/bin/python3
"""Brings the gateway's settings and secrets from SSM into memory, before each start and at each reload.

    fetch-settings start    before a start: what was fetched before will do if SSM is out of reach, or the settings
                            have become wrong, so that a restart never makes an outage of somebody's mistake. After a
                            reboot, when nothing is in memory, the last good settings are taken, and the secrets that
                            they name fetched anew: those alone need SSM
    fetch-settings reload   fails, and says why, if they can't be fetched or are wrong; then nothing changes

All is written into a directory beside, checked there, and put in the place of the one before in one step. It is root's
and on tmpfs; what is in it, the gateway's user alone may read. No value is ever printed.
"""

import json
import os
import pathlib
import pwd
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time

DIRECTORY = pathlib.Path("/run/bifrost-secrets")  # a link to the directory in force
LAST = pathlib.Path("/var/lib/bifrost/last-settings.json")  # names of secrets, and no secret
FACTS = pathlib.Path("/etc/bifrost/boot.env")
GATEWAY = "/usr/local/bin/bifrost-gateway"
SYSTEMCTL = "/usr/bin/systemctl"
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


def write(directory, name, text):
    with open(os.open(directory / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o400), "w") as file:
        os.fchown(file.fileno(), pwd.getpwnam("bifrost").pw_uid, -1)
        file.write(text)


def understood(text):
    """The document that Terraform writes, or somebody by hand."""
    try:
        wanted = json.loads(text)
        names = {**wanted["variables"], **wanted["files"]}
        if not isinstance(wanted["settings"], dict) or {"port", "scheme", "publish"} - wanted.keys():
            raise KeyError("settings, port, scheme or publish")
    except (ValueError, KeyError, TypeError) as error:
        raise Trouble(f"the settings' parameter is not as Terraform writes it: {error!r}") from None
    for name, parameter in names.items():
        if not re.fullmatch(r"[A-Za-z_][\w.-]*", name) or not isinstance(parameter, str):
            raise Trouble(f"the settings' parameter names a secret as no file can be named: {name!r}")
    return wanted


def check(directory, settings, variables):
    """Asks the gateway what it thinks of them, with the files that are beside. Its messages never show a secret."""
    text = json.dumps(settings).replace(f"{DIRECTORY}/", f"{directory}/")
    write(directory, "next.json", text)
    command = [GATEWAY, "--config", str(directory / "next.json"), "check"]
    # No variable that an earlier start of the unit was given: the next one will not have it.
    environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", **variables}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=30)
    (directory / "next.json").unlink()
    if done.returncode != 0:
        raise Trouble(done.stderr.strip().replace(f"{directory}/", f"{DIRECTORY}/"))


def names_of(environment):
    return set(re.findall(r"^(\w+)=", environment, re.MULTILINE))


def compare(environment):
    """What a reload can't bring: a process keeps the variables that it was started with."""
    running = DIRECTORY / "environment"
    if not running.exists():
        return
    before = running.read_text()
    if other := names_of(before) ^ names_of(environment):
        raise Trouble(f"a reload can't set or take away variables, only a restart can: {', '.join(sorted(other))}")
    if before != environment:
        print("a variable's value has changed: a restart puts it in force, or value_file", file=sys.stderr)


def fill(directory, region, wanted):
    """Settings and secrets into `directory`; the environment that the gateway will get."""
    variables, files = wanted["variables"], wanted["files"]
    values = parameters(region, sorted({*variables.values(), *files.values()}))
    variables = {variable: values[parameter].strip() for variable, parameter in variables.items()}
    environment = "".join(line(*each) for each in sorted(variables.items()))
    # Each variable also as a file, for `value_file`: a reload reads those again, which it can't do for variables.
    for name, text in {**variables, **{file: values[parameter] for file, parameter in files.items()}}.items():
        write(directory, name, text)
    check(directory, wanted["settings"], variables)
    write(directory, "environment", environment)
    write(directory, "settings.json", json.dumps(wanted["settings"]))
    facts = {"PORT": str(wanted["port"]), "SCHEME": str(wanted["scheme"])}
    write(directory, "facts.env", "".join(f"{name}={shlex.quote(value)}\n" for name, value in facts.items()))
    return environment


def swap(directory):
    """Puts `directory` in force, whole and in one step, and takes away what was before or was left half-done."""
    directory.chmod(0o711)
    link = DIRECTORY.with_name(f".{DIRECTORY.name}")
    link.unlink(missing_ok=True)
    link.symlink_to(directory)
    link.rename(DIRECTORY)
    for other in DIRECTORY.parent.glob(f"{DIRECTORY.name}-*"):
        if other != directory:
            shutil.rmtree(other, ignore_errors=True)


def remember(text):
    beside = LAST.with_suffix(".part")
    beside.write_text(text)
    beside.rename(LAST)


def put_in_force(text, region, reloads):
    wanted = understood(text)
    directory = pathlib.Path(tempfile.mkdtemp(prefix=f"{DIRECTORY.name}-", dir=DIRECTORY.parent))
    try:
        environment = fill(directory, region, wanted)
        if reloads:
            compare(environment)
        remember(text)
        swap(directory)
    except BaseException:
        shutil.rmtree(directory, ignore_errors=True)
        raise
    # Whether figures go to CloudWatch follows the settings, too. Not waited for: this may be a part of the boot.
    task = "start" if wanted["publish"] else "stop"
    subprocess.run([SYSTEMCTL, "--no-block", task, "bifrost-metrics.timer"], check=False, timeout=30)


def begin(region, fetched):
    """For a start: the settings of SSM, or those in memory, or the last good ones."""
    try:
        put_in_force(fetched(), region, reloads=False)
        return
    except (Trouble, OSError, subprocess.TimeoutExpired) as trouble:
        if not DIRECTORY.exists() and not LAST.exists():
            raise
        print(trouble, file=sys.stderr)
    print("going on with the settings that were fetched before", file=sys.stderr)
    if not DIRECTORY.exists():
        put_in_force(LAST.read_text(), region, reloads=False)


def main():
    known = facts()
    region, name = known["REGION"], known["SETTINGS_PARAMETER"]

    def fetched():
        return parameters(region, [name])[name]

    try:
        if sys.argv[1:] == ["start"]:
            begin(region, fetched)
        else:
            put_in_force(fetched(), region, reloads=True)
    except (Trouble, OSError, subprocess.TimeoutExpired) as trouble:
        print(trouble, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
