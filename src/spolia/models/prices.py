"""What models cost at their hosts: `prices.csv`, in US dollars for a million tokens, as published in 2025."""

import csv
import re
from functools import cache
from pathlib import Path

TABLE = Path(__file__).with_name("prices.csv")


def usd_per_million(host: str, model: str) -> tuple[float, float]:
    """Price of a million tokens sent, and generated; (0, 0) where it is not known. Dated versions cost the same.

    >>> usd_per_million("api.openai.com", "gpt-4o-mini-2024-07-18"), usd_per_million("127.0.0.1", "gpt-4o-mini")
    ((0.15, 0.6), (0.0, 0.0))
    """
    undated = re.sub(r"-(?:\d{4}-\d{2}-\d{2}|\d{4})$", "", model)
    return _table().get((host, model)) or _table().get((host, undated)) or (0.0, 0.0)


@cache
def _table() -> dict[tuple[str, str], tuple[float, float]]:
    with TABLE.open(encoding="utf-8", newline="") as file:
        return {
            (row["host"], row["model"]): (float(row["input"]), float(row["output"])) for row in csv.DictReader(file)
        }
