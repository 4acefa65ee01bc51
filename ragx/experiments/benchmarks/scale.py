"""What an index of 21 million passages takes, carried over from a smaller one that was measured.

    bytes     counted from the format of each kind, so they are computed, not measured, at any size
    seconds   grow with the work:  flat, torch  N      hnsw  log N      sq, ivf_pq  N / nlist + nlist  ~  sqrt N
    building  grows with           hnsw  N log N       sq, ivf_pq  N nlist  ~  N sqrt N

The laws are those of memory that holds the index; a disk that must be read instead is slower by its own measure.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ragx.retriever.kinds import CENTROIDS, settle

WIKIPEDIA = 21_015_324  # passages of the paper's dump
GB = 1e9
_HARDWARE = {
    "flat": "memory for all vectors; many cores, or patience",
    "torch": "a GPU that holds the vectors, or several",
    "hnsw": "one server; all of the graph in memory",
    "sq": "one server; a local SSD holds the vectors",
    "ivf_pq": "a workstation; a local SSD holds the vectors",
}


class Bytes(NamedTuple):
    """On disk in all, and held in memory while searching."""

    disk: int
    memory: int


def index_bytes(kind: str, *, count: int, dimension: int, parameters: Mapping[str, int] | None = None) -> int:
    """The size of index.faiss, short of a few hundred bytes; 0 for the kinds that need none.

    hnsw: the vectors, 2 m links of 4 bytes on the ground, m on each higher level, where 1 node in m rises.
    sq, ivf_pq: the code and 8 bytes of row for each vector, the centroids of lists and of codes.
    """
    kind, settled = settle(kind, parameters or {}, count=count, dimension=dimension)
    if kind == "hnsw":
        m = settled["m"]
        rises = 1 / (m - 1)  # 1/m + 1/m^2 + ...: levels above the ground a node has on average
        return round(count * (4 * dimension + 4 + 8 + 4 * (2 * m + m * rises)))
    if kind == "sq":
        code = dimension * settled["bits"] // 8
        return count * (code + 8) + 4 * dimension * (settled["nlist"] + 2)
    if kind == "ivf_pq":
        return count * (settled["m"] + 8) + 4 * dimension * (settled["nlist"] + CENTROIDS)
    return 0


def needed(kind: str, *, count: int, dimension: int, vector_bytes: int = 4) -> Bytes:
    """Disk for vectors and index (the passages' text apart), memory for what each search runs through."""
    vectors = vector_bytes * count * dimension
    index = index_bytes(kind, count=count, dimension=dimension)
    return Bytes(vectors + index, index or vectors)


def search_growth(kind: str, *, measured: int, count: int) -> float:
    """How many times as long a search takes over `count` vectors as over `measured`."""
    if kind == "hnsw":
        return math.log(count) / math.log(measured)
    ratio = count / measured
    return math.sqrt(ratio) if kind in ("sq", "ivf_pq") else ratio


def build_growth(kind: str, *, measured: int, count: int) -> float:
    """How many times as long building takes; the exact kinds read every vector once."""
    ratio = count / measured
    if kind == "hnsw":
        return ratio * math.log(count) / math.log(measured)
    return ratio**1.5 if kind in ("sq", "ivf_pq") else ratio


def scaled(rows: Sequence[Mapping[str, Any]], *, count: int = WIKIPEDIA) -> list[dict[str, Any]]:
    """For each kind its largest measured row, carried to `count` vectors of the same dimension.

    Args:
        rows: of work `search`; of one kind and size, the smallest batch counts, for a user who waits.
    """
    best: dict[str, Mapping[str, Any]] = {}
    for row in rows:
        held = best.get(row["index"])
        if held is None or (row["vectors"], -row["batch_size"]) > (held["vectors"], -held["batch_size"]):
            best[row["index"]] = row
    table = []
    for kind, row in best.items():
        size = needed(kind, count=count, dimension=row["dimension"])
        sizes = {"measured": row["vectors"], "count": count}
        query_ms = 1000 * row["ours_s"] / row["batch_size"]
        table.append(
            {
                "index": kind,
                "measured_at": row["vectors"],
                "recall": row["recall"],
                "query_ms": query_ms,
                "cost": row["ours_s"] / row["peer_s"],
                "build_s": row["build_s"],
                "build_mib": row["build_mib"],
                "computed_at": count,
                "computed_query_ms": query_ms * search_growth(kind, **sizes),
                "computed_build_h": row["build_s"] * build_growth(kind, **sizes) / 3600,
                "computed_disk_gb": size.disk / GB,
                "computed_memory_gb": size.memory / GB,
                "hardware": _HARDWARE[kind],
            }
        )
    return table


def scale_table(rows: Sequence[Mapping[str, Any]], *, count: int = WIKIPEDIA) -> str:
    """`scaled` for people: left of the bar what was measured, right of it what is computed."""
    lines = [
        f"measured here | computed for {count:,} passages (fp32 vectors, without their text; encoding apart)",
        f"{'index':>7} {'vectors':>9} {'recall@10':>9} {'query ms':>8} {'queries/s':>9} {'x FAISS':>7} {'build s':>8} "
        f"{'build MiB':>9} | {'query ms':>8} {'build h':>7} {'disk GB':>7} {'memory GB':>9}  hardware",
    ]
    for row in scaled(rows, count=count):
        memory = "-" if row["build_mib"] is None else f"{row['build_mib']:.0f}"
        lines.append(
            f"{row['index']:>7} {row['measured_at']:>9} {row['recall']:>9.3f} {row['query_ms']:>8.3g} "
            f"{1000 / row['query_ms']:>9.4g} {row['cost']:>7.2f} {row['build_s']:>8.3g} {memory:>9} | "
            f"{row['computed_query_ms']:>8.3g} {row['computed_build_h']:>7.2g} {row['computed_disk_gb']:>7.1f} "
            f"{row['computed_memory_gb']:>9.1f}  {row['hardware']}"
        )
    lines.append(
        "x FAISS: our seconds over those of bare FAISS doing the same search; build MiB: private memory, without "
        "mapped vectors; recall holds at the size where it was measured and is not carried over"
    )
    return "\n".join(lines)
