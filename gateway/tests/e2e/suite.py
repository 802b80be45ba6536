"""The least of a test runner: functions whose names are sentences, and one closing line."""

import sys
import time
import traceback


def run(checks, *arguments):
    """Calls each check with the arguments. Returns the exit status."""
    failed = 0
    for check in checks:
        begun = time.monotonic()
        try:
            check(*arguments)
            outcome = "ok"
        except Exception:
            traceback.print_exc(file=sys.stdout)
            outcome = "FAILED"
            failed += 1
        print(f"{outcome:6} {check.__name__} ({time.monotonic() - begun:.2f} s)", flush=True)
    print(f"{len(checks) - failed} passed, {failed} failed")
    return 1 if failed else 0
