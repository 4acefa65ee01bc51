"""Turns the raw leader lists into the tidy CSVs of the embedded knowledge base (run once; the CSVs are committed).

    python scripts/tidy_world_leaders.py RAW_FOLDER

RAW_FOLDER holds `reign_leaderlist_2021_03.csv`, `leaders.csv` and `leaders_unchanged.csv`.
"""

from __future__ import annotations

import sys
from pathlib import Path

from ragx.data.world_leaders import tidy


def main() -> None:
    """Writes spells.csv, offices.csv and dropped.csv beside the package's loader."""
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    for name, rows in tidy.tidy_all(Path(sys.argv[1])).items():
        print(f"{name}: {rows} rows")


if __name__ == "__main__":
    main()
