#!/usr/bin/env python3
"""The monitor in a real terminal of 80×24 (tmux), in front of a demo gateway under load: live figures, another size,
and a terminal that is as it was, whichever way the monitor ends.

    python3 gateway/tests/e2e/screen.py
    python3 gateway/tests/e2e/screen.py --print       # the screen alone, after 75 s: what README.md shows
"""

import argparse
import os
import pathlib
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time

from gateway import PATIENCE_S, Gateway, add_arguments, clean_environment, wait_until
from suite import run

SIZE = (80, 24)
STAGES = [
    "Queue wait", "Key selection", "Message formatting", "Params preparation", "Request body prep", "JSON marshaling",
    "Request setup", "HTTP request", "Error handling", "Response parsing", "Overhead (sum of *)", "Unattributed",
]  # fmt: skip
# A 60 s mean is one after 60 s.
WHOLE_MINUTE_S = 75


class Terminal:
    """A shell in a tmux of its own."""

    def __init__(self, size=SIZE):
        self.directory = tempfile.TemporaryDirectory(prefix="bifrost-screen-")
        self.home = pathlib.Path(self.directory.name)
        (self.home / "tmux.conf").write_text("set -g status off\n", encoding="utf-8")
        self.asked = 0
        width, height = (str(number) for number in size)
        self.tmux("-f", self.home / "tmux.conf", "new-session", "-d", "-x", width, "-y", height, "env PS1='$ ' sh")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.tmux("kill-server")
        self.directory.cleanup()

    def tmux(self, *arguments):
        """What a tmux command prints."""
        command = ["tmux", "-S", self.home / "socket", *arguments]
        done = subprocess.run(command, env=clean_environment(), capture_output=True, text=True, timeout=30, check=True)
        return done.stdout

    def types(self, line):
        """Types a line, with the key that ends it."""
        self.tmux("send-keys", "-l", line)
        self.tmux("send-keys", "Enter")

    def shows(self, *expected, without=(), patience_s=PATIENCE_S):
        """The screen, once all that is expected (regular expressions) stands on it."""

        def look():
            text = self.text()
            found = all(re.search(one, text) for one in expected)
            return text if found and not any(re.search(one, text) for one in without) else None

        try:
            return wait_until(f"screen with {expected}", look, patience_s)
        except TimeoutError as error:
            raise AssertionError(f"{error}:\n{self.text()}") from error

    def text(self):
        """What the screen shows now."""
        return self.tmux("capture-pane", "-p")

    def settings(self):
        """The line discipline's settings, as `stty -g` in the same terminal says them."""
        self.asked += 1
        said = self.home / f"stty-{self.asked}"
        self.types(f"stty -g > {said}.new; echo status $? >> {said}.new; mv {said}.new {said}")
        return wait_until("stty", lambda: said.exists() and said.read_text(encoding="utf-8"))

    def starts(self, gateway, environment=""):
        """Starts the monitor there. Returns its process id."""
        pid = self.home / "pid"
        pid.unlink(missing_ok=True)
        monitor = shlex.join([str(gateway.bin_dir / "bifrost-monitor"), "--segment", str(gateway.segment)])
        self.types(f"sh -c 'echo $$ > {pid}; exec env {environment} {monitor}'; echo it ended with $?")
        return int(wait_until("process id", lambda: pid.exists() and pid.read_text(encoding="utf-8").strip()))


def live_figures_stand_on_80_by_24(gateway, _):
    with Terminal() as terminal:
        terminal.starts(gateway)
        screen = terminal.shows(
            "LIVE", r"Load +[1-9][0-9]*/s", "(STAY|WATCH|UPGRADE|NO LIMITS)", *map(re.escape, STAGES)
        )
        print(screen)
        lines = screen.splitlines()
        assert len(lines) == SIZE[1] and max(map(len, lines)) <= SIZE[0], screen
        assert "q quit" in lines[-1], screen


def limits_of_ones_own_are_judged_by_at_once(_, bin_dir):
    for limit, verdict in [(2_000, "STAY"), (210, "WATCH: load")]:
        shows_under_load(bin_dir, limit, verdict)


def a_load_that_stays_over_its_limit_asks_for_an_upgrade(_, bin_dir):
    # 48 of the minute's seconds have to be over it.
    shows_under_load(bin_dir, 100, "UPGRADE: load", patience_s=90)


def shows_under_load(bin_dir, limit, verdict, patience_s=PATIENCE_S):
    """Shows 200 requests a second against a limit, which gives a verdict on hosts of any size."""
    limits = {"BIFROST_TELEMETRY__THRESHOLDS__LOAD": str(limit)}
    with Gateway(bin_dir, "--demo", "--demo-load", "200", environment=limits) as gateway, Terminal() as terminal:
        terminal.starts(gateway)
        print(terminal.shows("LIVE", f"\n {verdict}", patience_s=patience_s).splitlines()[2])


def another_size_is_filled(gateway, _):
    with Terminal() as terminal:
        terminal.starts(gateway)
        terminal.shows("LIVE")
        for (width, height), expected in [((160, 48), "(limit|reference) 87 µs"), ((60, 12), "Trigger"), (SIZE, "Unattributed")]:
            terminal.tmux("resize-window", "-x", str(width), "-y", str(height))
            terminal.shows(rf"(?s){expected}.*q quit[^\n]*\n\Z", "LIVE")


def the_terminal_is_as_it_was_after_q(gateway, _):
    ends(gateway, lambda terminal, _: terminal.tmux("send-keys", "q"), status=0)


def the_terminal_is_as_it_was_after_sigterm(gateway, _):
    ends(gateway, lambda _, pid: os.kill(pid, signal.SIGTERM), status=0)


def the_terminal_is_as_it_was_after_a_panic(gateway, _):
    ends(gateway, None, status=101, environment="BIFROST_MONITOR_TEST_PANIC=1")


def ends(gateway, end, status, environment=""):
    """Starts the monitor and ends it, and holds the terminal against what it was."""
    with Terminal() as terminal:
        before = terminal.settings()
        assert before.endswith("status 0\n"), before
        terminal.types("echo written before")
        terminal.shows("\nwritten before")
        pid = terminal.starts(gateway, environment)
        if end:
            terminal.shows("LIVE", "q quit", without=["written before"])
            end(terminal, pid)
        # The shell's own screen is back, with what was on it.
        terminal.shows(f"it ended with {status}", "\nwritten before", without=["q quit"])
        after = terminal.settings()
        assert after == before, f"{before} is now {after}"


CHECKS = [
    live_figures_stand_on_80_by_24,
    limits_of_ones_own_are_judged_by_at_once,
    another_size_is_filled,
    the_terminal_is_as_it_was_after_q,
    the_terminal_is_as_it_was_after_sigterm,
    the_terminal_is_as_it_was_after_a_panic,
]
SLOW_CHECKS = [a_load_that_stays_over_its_limit_asks_for_an_upgrade]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser)
    parser.add_argument("--slow", action="store_true", help="also what takes a minute")
    parser.add_argument("--print", action="store_true", help="print the screen after 75 s, and nothing else")
    args = parser.parse_args()
    if args.print:
        with Gateway(args.bin_dir, "--demo", "--demo-load", "200") as gateway, Terminal() as terminal:
            terminal.starts(gateway)
            time.sleep(WHOLE_MINUTE_S)
            print(terminal.text(), end="")
        return 0
    checks = CHECKS + SLOW_CHECKS * args.slow
    if args.bin_dir.name == "release":
        checks = [check for check in checks if check is not the_terminal_is_as_it_was_after_a_panic]
        print("SKIP the_terminal_is_as_it_was_after_a_panic: a release build can't be told to panic")
    with Gateway(args.bin_dir, "--demo", "--demo-load", "200") as gateway:
        return run(checks, gateway, args.bin_dir)


if __name__ == "__main__":
    sys.exit(main())
