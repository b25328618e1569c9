"""The command line. Heavy parts are imported by the command that needs them, inside its function."""


def main() -> None:
    """The entry point `spolia`."""
    from spolia.cli.app import run

    run()
