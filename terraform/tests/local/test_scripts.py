"""What the user data put onto the instance: that cloud-init and systemd accept it, and what its scripts do.

    test_scripts.py USER_DATA    as Terraform made it, unpacked
"""

import contextlib
import importlib.util
import io
import json
import os
import pathlib
import pwd
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import types
import unittest

TEMPLATES = pathlib.Path(__file__).resolve().parents[2] / "templates"
USER_DATA = pathlib.Path(sys.argv.pop(1)) if len(sys.argv) > 1 else None
sys.dont_write_bytecode = True


def script(name):
    spec = importlib.util.spec_from_file_location(name, TEMPLATES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def needs(program):
    if not shutil.which(program):
        print(f"SKIPPED: {program} is not there")
        raise unittest.SkipTest(program)


def run(*command):
    return subprocess.run(command, capture_output=True, text=True)


class UserData(unittest.TestCase):
    def test_cloud_init_knows_every_key(self):
        needs("cloud-init")
        done = run("cloud-init", "schema", "--config-file", str(USER_DATA))
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_it_uses_two_keys_only(self):
        # The schema lets unknown keys pass.
        keys = re.findall(r'^"?(\w+)"?:', USER_DATA.read_text(), re.MULTILINE)
        self.assertEqual(sorted(keys), ["runcmd", "write_files"])


class Units(unittest.TestCase):
    def setUp(self):
        needs("systemd-analyze")
        self.place = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        for unit in TEMPLATES.glob("bifrost*.*"):
            # What they start is not on this machine.
            text = re.sub(r"/usr/local/(bin|lib/bifrost)/[\w-]+", "/bin/true", unit.read_text())
            (self.place / unit.name).write_text(re.sub(r"(User|Group)=bifrost", r"\1=daemon", text))

    def test_systemd_understands_them(self):
        units = [str(unit) for unit in sorted(self.place.iterdir())]
        self.assertEqual(len(units), 4)
        done = run("systemd-analyze", "verify", "--man=no", *units)
        said = "".join(line for line in done.stderr.splitlines(True) if str(self.place) in line)
        self.assertEqual((done.returncode, said), (0, ""), done.stderr)

    def test_they_expose_little(self):
        for unit in ("bifrost.service", "bifrost-metrics.service"):
            done = run("systemd-analyze", "security", "--offline=true", "--threshold=20", "--no-pager", str(self.place / unit))
            self.assertEqual(done.returncode, 0, done.stdout[-400:])


class Boot(unittest.TestCase):
    def has_rust(self, found, wanted):
        """What the boot script's function of that name says, with a cargo of version `found`, if any."""
        function = re.search(r"^has_rust\(\) {\n.*?^}", (TEMPLATES / "boot.sh").read_text(), re.MULTILINE | re.DOTALL)
        with tempfile.TemporaryDirectory() as place:
            for program in ("cut", "sort"):
                os.symlink(shutil.which(program), os.path.join(place, program))
            if found:
                cargo = pathlib.Path(place, "cargo")
                cargo.write_text(f"#!/bin/sh\necho 'cargo {found} (0a1b2c3d4 2026-04-14)'\n")
                cargo.chmod(0o755)
            script = f"set -euo pipefail\n{function[0]}\nif has_rust {wanted}; then exit 0; else exit 1; fi"
            return subprocess.run([shutil.which("bash"), "-c", script], env={"PATH": place}).returncode == 0

    def test_a_rust_is_new_enough_or_not(self):
        rows = [("1.95.0", True), ("1.95.1", True), ("1.100.0", True), ("2.0.0", True), ("1.84.1", False), ("1.9.0", False), (None, False)]
        for found, expected in rows:
            self.assertEqual(self.has_rust(found, "1.95"), expected, found)


class FetchSettings(unittest.TestCase):
    """Against an SSM and a gateway that are shell scripts."""

    PARAMETERS = {"/bifrost/settings": None, "/bifrost/openai": 'sk-"$1`\\ \n', "/a/key": "-----BEGIN\nKEY\n"}
    WANTED = {
        "settings": {"log": {"access": True}},
        "variables": {"OPENAI_API_KEY": "/bifrost/openai"},
        "files": {"tls-key.pem": "/a/key"},
        "port": 8080,
        "scheme": "https",
        "publish": False,
    }

    def setUp(self):
        self.place = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.fetch = script("fetch_settings")
        self.fetch.DIRECTORY = self.place / "secrets"
        self.fetch.LAST = self.place / "last-settings.json"
        self.fetch.SYSTEMCTL = str(self.place / "systemctl")
        self.fetch.FACTS = self.place / "boot.env"
        self.fetch.GATEWAY = str(self.place / "gateway")
        self.fetch.PAUSES = [0, 0]
        # There is no such user here.
        self.fetch.pwd = types.SimpleNamespace(getpwnam=lambda name: pwd.getpwuid(os.getuid()))
        self.fetch.FACTS.write_text("REGION='eu-central-1'\nSETTINGS_PARAMETER='/bifrost/settings'\n")
        self.parameters = {**self.PARAMETERS, "/bifrost/settings": json.dumps(self.WANTED)}
        self.gateway("exit 0")
        self.program("systemctl", f'echo "$@" >>{self.place}/asked')
        self.calls = []
        self.fetch.call = self.ssm

    def ssm(self, region, names):
        self.calls.append((region, names))
        missing = [name for name in names if name not in self.parameters]
        found = [{"Name": name, "Value": self.parameters[name]} for name in names if name in self.parameters]
        answer = json.dumps({"Parameters": found, "InvalidParameters": missing})
        return types.SimpleNamespace(returncode=0, stdout=answer, stderr="")

    def gateway(self, body):
        self.program("gateway", body)

    def program(self, name, body):
        path = self.place / name
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)

    def main(self, task):
        self.fetch.sys = types.SimpleNamespace(argv=["fetch-settings", task], stderr=io.StringIO())
        with contextlib.redirect_stderr(self.fetch.sys.stderr):
            status = self.fetch.main()
        return status, self.fetch.sys.stderr.getvalue()

    def read(self, name):
        return (self.place / "secrets" / name).read_text()

    def whole(self):
        """All that is there, byte for byte, and by which name it is reached."""
        content = {path.name: path.read_bytes() for path in (self.place / "secrets").iterdir()}
        return content, os.readlink(self.place / "secrets"), sorted(path.name for path in self.place.iterdir())

    def set(self, **changes):
        self.parameters["/bifrost/settings"] = json.dumps({**self.WANTED, **changes})

    def test_everything_is_there_and_only_for_the_gateway(self):
        self.assertEqual(self.main("start"), (0, ""))
        self.assertEqual(json.loads(self.read("settings.json")), {"log": {"access": True}})
        self.assertEqual(self.read("environment"), 'OPENAI_API_KEY="sk-\\"\\$1\\`\\\\"\n')
        self.assertEqual(self.read("OPENAI_API_KEY"), 'sk-"$1`\\')
        self.assertEqual(self.read("tls-key.pem"), "-----BEGIN\nKEY\n")
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (self.place / "secrets").iterdir()}
        self.assertEqual(modes, dict.fromkeys(["OPENAI_API_KEY", "environment", "facts.env", "settings.json", "tls-key.pem"], 0o400))
        self.assertEqual(stat.S_IMODE((self.place / "secrets").stat().st_mode), 0o711)
        self.assertEqual([region for region, _ in self.calls], ["eu-central-1"] * 2)
        self.assertEqual(self.read("facts.env"), "PORT=8080\nSCHEME=https\n")

    def test_more_than_ten_are_asked_for_in_turn(self):
        names = {f"KEY_{number}": f"/key/{number}" for number in range(23)}
        self.parameters.update(dict.fromkeys(names.values(), "x"))
        self.parameters["/bifrost/settings"] = json.dumps({**self.WANTED, "variables": names, "files": {}})
        self.assertEqual(self.main("start")[0], 0)
        self.assertEqual([len(asked) for _, asked in self.calls], [1, 10, 10, 3])

    def test_a_parameter_that_is_not_there_is_named(self):
        del self.parameters["/a/key"]
        self.assertEqual(self.main("start"), (1, "SSM has no parameter /a/key\n"))

    def test_a_value_of_two_lines_is_no_variable(self):
        self.parameters["/bifrost/openai"] = "sk-one\nsk-two"
        status, said = self.main("start")
        self.assertEqual((status, said), (1, "OPENAI_API_KEY: its value has more than one line\n"))

    def test_ssm_is_asked_again_and_what_it_said_last_is_told(self):
        def broken(region, names):
            self.calls.append(names)
            return types.SimpleNamespace(returncode=255, stdout="", stderr="no credentials\n")

        self.fetch.call = broken
        self.assertEqual(self.main("start"), (1, "SSM: no credentials\n"))
        self.assertEqual(len(self.calls), 3)

    def test_wrong_settings_change_nothing_at_a_reload_and_do_not_stop_a_restart(self):
        self.assertEqual(self.main("start")[0], 0)
        before = self.whole()
        self.gateway("echo log.level: expected one of error, warn >&2; exit 78")
        self.set(settings={"log": {"level": "loud"}})
        # Nor does what else is new, which a value_file might read, and the gateway at its next look.
        self.parameters.update({"/bifrost/openai": "sk-new", "/a/key": "another"})
        status, said = self.main("reload")
        self.assertEqual((status, said), (1, "log.level: expected one of error, warn\n"))
        self.assertEqual(self.whole(), before)
        status, said = self.main("start")
        self.assertEqual(status, 0)
        self.assertIn("going on with the settings that were fetched before", said)
        self.assertEqual(self.whole(), before)

    def test_a_reload_puts_all_in_force_and_leaves_nothing_of_before(self):
        self.assertEqual(self.main("start")[0], 0)
        _, before, names = self.whole()
        self.set(settings={"log": {"access": False}}, files={})
        self.assertEqual(self.main("reload"), (0, ""))
        content, after, left = self.whole()
        self.assertEqual(sorted(content), ["OPENAI_API_KEY", "environment", "facts.env", "settings.json"])
        self.assertEqual(json.loads(content["settings.json"]), {"log": {"access": False}})
        self.assertNotEqual(after, before)
        self.assertEqual(len(left), len(names))

    def test_the_files_that_are_checked_are_the_new_ones(self):
        key = {"key": str(self.place / "secrets" / "tls-key.pem")}
        self.set(settings=key)
        self.assertEqual(self.main("start"), (0, ""))
        self.gateway("""grep -qx new "$(sed 's/.*"key": "\\(.*\\)".*/\\1/' "$2")" """)
        self.parameters["/a/key"] = "new"
        self.assertEqual(self.main("reload"), (0, ""))
        self.assertEqual(json.loads(self.read("settings.json")), key)

    def test_after_a_reboot_the_last_good_settings_are_taken(self):
        self.assertEqual(self.main("start")[0], 0)
        shutil.rmtree((self.place / "secrets").resolve())
        (self.place / "secrets").unlink()
        self.set(settings=5)
        self.parameters["/bifrost/openai"] = "sk-rotated"
        status, said = self.main("start")
        self.assertEqual(status, 0, said)
        self.assertEqual(json.loads(self.read("settings.json")), {"log": {"access": True}})
        self.assertEqual(self.read("OPENAI_API_KEY"), "sk-rotated")
        self.assertNotIn("sk-", self.fetch.LAST.read_text())

    def test_a_document_that_somebody_wrote_by_hand_is_no_outage(self):
        self.assertEqual(self.main("start")[0], 0)
        before = self.whole()
        for text in ("no json", "[]", "5", "{}", json.dumps({**self.WANTED, "files": {"../x": "/a/key"}}),
                     json.dumps({**self.WANTED, "variables": {"A": 5}}), json.dumps({**self.WANTED, "files": ["a"]})):
            self.parameters["/bifrost/settings"] = text
            status, said = self.main("reload")
            self.assertEqual(status, 1, text)
            self.assertTrue(said.startswith("the settings' parameter"), said)
            self.assertEqual(self.main("start")[0], 0, text)
            self.assertEqual(self.whole(), before)

    def test_a_variable_that_the_process_lacks_takes_a_restart(self):
        self.assertEqual(self.main("start")[0], 0)
        before = self.whole()
        self.set(variables={"OPENAI_API_KEY": "/bifrost/openai", "GROQ_API_KEY": "/bifrost/openai"})
        status, said = self.main("reload")
        self.assertEqual((status, said), (1, "a reload can't set or take away variables, only a restart can: GROQ_API_KEY\n"))
        self.assertEqual(self.whole(), before)
        self.assertEqual(self.main("start"), (0, ""))
        self.assertIn("GROQ_API_KEY", self.read("environment"))

    def test_a_variable_that_has_changed_is_told_of(self):
        self.assertEqual(self.main("start")[0], 0)
        self.parameters["/bifrost/openai"] = "sk-rotated"
        status, said = self.main("reload")
        self.assertEqual((status, said), (0, "a variable's value has changed: a restart puts it in force, or value_file\n"))

    def test_figures_are_published_while_the_settings_say_so(self):
        for publish in (True, False):
            self.set(publish=publish)
            self.assertEqual(self.main("start")[0], 0)
        asked = (self.place / "asked").read_text()
        self.assertEqual(asked, "--no-block start bifrost-metrics.timer\n--no-block stop bifrost-metrics.timer\n")

    def test_a_check_has_no_variable_of_an_earlier_start(self):
        self.gateway('[ -z "${GROQ_API_KEY+set}" ]')
        os.environ["GROQ_API_KEY"] = "of the unit"
        self.addCleanup(os.environ.pop, "GROQ_API_KEY")
        self.assertEqual(self.main("start"), (0, ""))

    def test_the_gateway_checks_what_it_will_get(self):
        self.gateway('[ "$OPENAI_API_KEY" = \'sk-"$1`\\\' ] && grep -q access "$2" && [ "$1 $3" = "--config check" ]')
        self.assertEqual(self.main("reload"), (0, ""))


class PublishMetrics(unittest.TestCase):
    def data(self, queue_wait, load, memory, state="live"):
        triggers = {"queue_wait": queue_wait, "load": load, "memory": memory}
        triggers = {name: {"mean_60s": value} for name, value in triggers.items()}
        figures = {"state": state, "triggers": triggers, "memory_limit": 4_000}
        published = script("publish_metrics").data(figures, "i-1")
        for each in published:
            self.assertEqual(each["Dimensions"], [{"Name": "InstanceId", "Value": "i-1"}])
        return {each["MetricName"]: (each["Value"], each["Unit"]) for each in published}

    def test_a_gateway_that_has_died_leaves_its_alarm_without_figures(self):
        for state in ("dead", "stale", "stopped"):
            self.assertEqual(self.data(75_500, 4_000, 3_000, state), {}, state)
        self.assertEqual(len(self.data(75_500, 4_000, 3_000, "draining")), 3)

    def test_figures_have_the_units_of_the_alarms(self):
        expected = {"QueueWait": (75.5, "Microseconds"), "Load": (4_000, "Count/Second"), "Memory": (75.0, "Percent")}
        self.assertEqual(self.data(75_500, 4_000, 3_000), expected)

    def test_what_is_not_known_is_not_published(self):
        self.assertEqual(self.data(None, 0, None), {"Load": (0, "Count/Second")})


if __name__ == "__main__":
    unittest.main()
