"""The `thresher` command."""


def main() -> None:
    """Entry point of the console script."""
    import sys
    from typing import TextIO, cast

    from thresher.api.cli.app import app
    from thresher.api.cli.console import NamedOutput

    for stream in (sys.stdout, sys.stderr):
        # A file name that is not valid Unicode, or a terminal that is not UTF-8, must not end a command.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    sys.stdout = cast(TextIO, NamedOutput(sys.stdout))
    app()
