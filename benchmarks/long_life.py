"""Months of a life in minutes: a moved clock, a scripted model, restarts and outages; what stays bounded.

    python benchmarks/long_life.py                     # 90 days, the table of docs/long-life.md
    python benchmarks/long_life.py --days 7 --check    # a week; exit 1 with what did not hold

The real daemon in a process of its own (clock.trial), a real HTTP endpoint with a scripted model. Each day
brings messages in two languages and reports that are nearly alike; some days bring nothing; some nights the
process is killed; some mornings the model is away.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.life.days import Calendar
from benchmarks.life.living import Life
from benchmarks.life.verdict import judge, table


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--days", type=int, default=90)
    parser.add_argument("--events", type=int, default=300, help="a day")
    parser.add_argument("--seconds", type=float, default=24.0, help="real seconds of a day")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, help="live here and leave it; else a temporary folder")
    parser.add_argument("--check", action="store_true", help="exit 1 if anything did not hold")
    asked = parser.parse_args()
    calendar = Calendar(asked.days, asked.events, random.Random(asked.seed))
    with tempfile.TemporaryDirectory() as folder:
        home = asked.keep or Path(folder)
        account = Life(home, calendar, seconds_per_day=asked.seconds).live()
        findings = judge(account, calendar)
    print(table(account, calendar, findings))
    broken = [finding for finding in findings if not finding.holds]
    return 1 if asked.check and broken else 0


if __name__ == "__main__":
    raise SystemExit(main())
