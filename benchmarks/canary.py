"""What a canary decides where the truth is known: simulated users, many canaries, a look after every user.

    python benchmarks/canary.py [--runs 2000] [--share 0.2] [--maximum 2000] [--json FILE]

Users are those of `thresher.train.loop.simulated`: position-biased clicks, citations, ratings, reformulations, silence.
Signals are read as production reads them, and decided on as the loop decides. Rates have 95 % intervals (Wilson);
`users` is the median number of users, of both arms together, until the decision.

The last row is a known limit: a policy that makes people open things without use is taken for one of more use.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from thresher.train.loop.settings import CanarySettings
from thresher.train.loop.simulated import Policy, Users, canaries

LIVE = Policy()
CASES: dict[str, tuple[Policy, Policy, Users]] = {
    "equal": (LIVE, LIVE, Users()),
    "equal, users nearly silent": (LIVE, LIVE, Users(speaks=0.1)),
    "equal, clicks alone": (LIVE, LIVE, Users(cites=0.0, rates=0.0, asks_again=0.0, leaves=0.0)),
    "better: finds 80 % for 60 %": (LIVE, Policy(finds=0.8, first=0.7), Users()),
    "slightly better: 70 % for 60 %": (LIVE, Policy(finds=0.7), Users()),
    "worse: 40 % for 60 %": (LIVE, Policy(finds=0.4, first=0.3), Users()),
    "equal, silences who it fails": (LIVE, Policy(silences=1.0), Users()),
    "worse, silences who it fails": (LIVE, Policy(finds=0.4, first=0.3, silences=1.0), Users()),
    "equal, makes the silent open something": (LIVE, Policy(nags=1.0), Users()),
}


def main() -> None:
    """Print a row for each case."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--runs", type=int, default=2_000)
    parser.add_argument("--share", type=float, default=0.2)
    parser.add_argument("--maximum", type=int, default=2_000)
    parser.add_argument("--pool", type=int, default=8_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    settings = CanarySettings(share=given.share, maximum=given.maximum)
    found: dict[str, Any] = {}
    print(f"{given.runs} canaries each, share {given.share:g}, at most {given.maximum} users, seed {given.seed}\n")
    print("| candidate | promoted | users | rolled back | users | withdrawn |")
    print("|---|---|---|---|---|---|")
    started = time.perf_counter()
    for name, (live, candidate, users) in CASES.items():
        rates = canaries(live, candidate, settings, users=users, runs=given.runs, pool=given.pool, seed=given.seed)
        found[name] = asdict(rates)
        cells = [
            rates.told("promoted"),
            rates.users_promoted or "–",
            rates.told("rolled_back"),
            rates.users_rolled_back or "–",
            rates.told("withdrawn"),
        ]
        print(f"| {name} | {' | '.join(map(str, cells))} |", flush=True)
    print(f"\n{time.perf_counter() - started:.0f} s")
    if given.json:
        given.json.write_text(json.dumps({**vars(given), "json": None, "cases": found}, indent=2) + "\n")


if __name__ == "__main__":
    main()
