"""A canary that is no better is promoted in at most 5 % of cases, however often one looks, and a better one is.

Compared: what the loop decides, with the truth, which simulated users know: position-biased clicks, citations,
    ratings, reformulations, silence. Signals are read as production reads them, with a look after every user.
Command: python benchmarks/canary.py --json canary.json
Takes: about 2 minutes.
Output: the share of canaries promoted and rolled back, with 95 % intervals (Wilson); `users` is the median number of
    users, of both arms together, until the decision.
Not shown: real users. The last row is a known limit: a policy that makes people open things without use is taken for
    one of more use.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from support.command import begin, leave, parse, parser

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
    made = parser(__doc__)
    made.add_argument("--runs", type=int, default=2_000)
    made.add_argument("--share", type=float, default=0.2)
    made.add_argument("--maximum", type=int, default=2_000)
    made.add_argument("--pool", type=int, default=8_000)
    made.add_argument("--seed", type=int, default=0)
    given = parse(made, quick={"runs": 20, "pool": 200, "maximum": 300})
    head = begin(given)
    settings = CanarySettings(share=given.share, maximum=given.maximum)
    found: dict[str, Any] = {}
    print(f"{given.runs} canaries each, share {given.share:g}, at most {given.maximum} users, seed {given.seed}\n")
    print("| candidate | promoted | users | rolled back | users | withdrawn |")
    print("|---|---|---|---|---|---|")
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
    leave(given, head, {"runs": given.runs, "cases": found})


if __name__ == "__main__":
    main()
