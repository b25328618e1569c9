"""The command line. Heavy parts are imported by the command that needs them, inside its function."""

import gc
import os
import signal
import sys

GARBAGE = 50_000
"""Objects after which Python looks for cycles: frozen values have none, and looking takes a tenth of a study."""


def main() -> None:
    """Run the command line `spolia`."""
    # numpy starts as many threads as there are cores and lets them spin; nothing here is worth that.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    gc.set_threshold(GARBAGE)
    from spolia.cli.app import run

    if sys.argv[-1] in ("-h", "--help", "--help-all") and hasattr(signal, "SIGPIPE"):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `spolia --help | head` ends quietly
    run()
