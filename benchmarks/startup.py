"""`thresher --help` answers in under half a second: nothing heavy is imported before it is needed.

Compared: the command with the interpreter alone (`python -c pass`), taking turns, and with `thresher --version`.
Command: python benchmarks/startup.py --json startup.json
Takes: 20 seconds.
Output: median and 95th percentile of the wall time in milliseconds, and how many times the bare interpreter's it is.
Not shown: the first start after an installation, when files are not in the page cache and byte code is not compiled;
    commands that open a collection or a model, which take seconds.
"""

from __future__ import annotations

import subprocess
import sys
import time

from support.command import begin, leave, parse, parser, print_table
from support.timing import summary

START = "import sys; sys.argv[0] = 'thresher'; from thresher.api.cli import main; main()"
COMMANDS = {
    "python -c pass": ["-c", "pass"],
    "thresher --version": ["-c", START, "--version"],
    "thresher --help": ["-c", START, "--help"],
}


def main() -> None:
    """Print a row a command."""
    made = parser(__doc__)
    made.add_argument("--repeat", type=int, default=20)
    options = parse(made, quick={"repeat": 3})
    head = begin(options)
    taken: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for number in range(options.repeat + 1):
        for name, command in COMMANDS.items():
            started = time.perf_counter()
            subprocess.run([sys.executable, *command], stdout=subprocess.DEVNULL, check=True)
            if number:  # the first reads files that the others find in memory
                taken[name].append((time.perf_counter() - started) * 1e3)
    rows = {name: summary(own) for name, own in taken.items()}
    bare = rows["python -c pass"]["p50"]
    print_table(
        ["command", "p50 ms", "p95 ms", "times the interpreter"],
        [[name, row["p50"], row["p95"], f"{row['p50'] / bare:.1f}"] for name, row in rows.items()],
    )
    leave(options, head, {"commands": rows})


if __name__ == "__main__":
    main()
