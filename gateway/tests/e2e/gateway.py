"""A gateway (and its monitor) as real processes, for the suites beside this file. Standard library only."""

import json
import os
import pathlib
import re
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[3]
DEBUG = ROOT / "target" / "debug"
# Until a process says what it has to say; a busy machine may take its time.
PATIENCE_S = 30


def add_arguments(parser):
    """What each suite takes."""
    parser.add_argument("--bin-dir", type=pathlib.Path, default=DEBUG, help="where the two programs are")


def wait_until(what, look, patience_s=PATIENCE_S):
    """Asks `look` until it answers with something, and gives that back. Raises when time is up."""
    give_up = time.monotonic() + patience_s
    while True:
        found = look()
        if found:
            return found
        if time.monotonic() > give_up:
            raise TimeoutError(f"no {what} within {patience_s} s")
        time.sleep(0.01)


def clean_environment(**extra):
    """The way to programs and nothing else: no key, no proxy, no setting of whoever runs the suite."""
    return {"PATH": os.environ["PATH"], "HOME": "/", "LANG": "C.UTF-8", **extra}


class Gateway:
    """A gateway that serves; left, it is asked to stop, and killed if it does not."""

    def __init__(self, bin_dir, *arguments, settings=None, environment=None):
        program = bin_dir / "bifrost-gateway"
        if not program.exists():
            raise SystemExit(f"{program} is missing: run cargo build --workspace")
        self.bin_dir = bin_dir
        # The segment belongs into memory; on a disk a write may wait, and the gateway warns.
        place = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        self.directory = tempfile.TemporaryDirectory(prefix="bifrost-e2e-", dir=place)
        self.segment = pathlib.Path(self.directory.name) / "segment"
        self.segment.mkdir()
        self.out_file = pathlib.Path(self.directory.name) / "stdout"
        self.log_file = pathlib.Path(self.directory.name) / "stderr"
        command = [program, "--listen", "127.0.0.1:0", "--segment", self.segment, *arguments]
        if settings is not None:
            file = pathlib.Path(self.directory.name) / "gateway.json"
            file.write_text(json.dumps(settings), encoding="utf-8")
            command += ["--config", file]
        environment = clean_environment(BIFROST_LOG__FORMAT="json", **(environment or {}))
        with self.out_file.open("wb") as out, self.log_file.open("wb") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=log, env=environment)

    def __enter__(self):
        try:
            self.address = wait_until("listening address", self._address)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self.process.terminate()
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.directory.cleanup()

    def _address(self):
        if self.process.poll() is not None:
            raise RuntimeError(f"the gateway ended with {self.process.returncode}: {self.log()}")
        for line in self.log().splitlines():
            found = re.search(r'"address":"([^"]+)"', line)
            if found and '"serving"' in line:
                return found.group(1)
        return None

    @property
    def url(self):
        """Where clients find it."""
        return f"http://{self.address}/v1"

    def out(self):
        """What it has said to people."""
        return self.out_file.read_text(encoding="utf-8")

    def log(self):
        """What it has logged."""
        return self.log_file.read_text(encoding="utf-8")

    def figures(self):
        """What `bifrost-monitor --json` reads from its segment."""
        command = [self.bin_dir / "bifrost-monitor", "--json", "--segment", self.segment]
        done = subprocess.run(command, env=clean_environment(), capture_output=True, timeout=PATIENCE_S, check=True)
        return json.loads(done.stdout)
