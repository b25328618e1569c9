"""The command line. Heavy parts are imported by the command that needs them, inside its function."""

import gc
import os


def main() -> None:
    """The entry point `spolia`."""
    # numpy starts as many threads as there are cores and lets them spin; nothing here is worth that.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # Frozen values are hardly ever in cycles: to look for garbage less often takes a tenth of the time off a study.
    gc.set_threshold(50_000)
    from spolia.cli.app import run

    run()
