"""Which kinds of index there are, and what each may be told.

    flat     every vector is compared; nothing but embeddings.npy is stored
    torch    the same, in torch, for a device that holds the vectors
    hnsw     a graph over the vectors, the paper's (section 2.2)
    sq       lists of near vectors, `bits` bits a number
    ivf_pq   lists of near vectors, `m` bytes a vector

`sq` and `ivf_pq` only choose candidates: the best `rerank` of them are compared again by their stored vectors. A
parameter that is 0 is settled by the size of the corpus, so that the defaults hold for any.

The defaults are those that find .95 of the exact ten for real questions: of 1,355 questions of Natural Questions over
38,096 passages (all-MiniLM-L6-v2, 781 lists), `sq` found .866, .955 and .971 with 64, 192 and 256 lists, `ivf_pq` .857
with 64 lists and 200 compared again, .956 with 256 and 400, `hnsw` .994. Clustered random vectors are easier: 1.000.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping

from ragx.errors import ConfigError

# hnsw: links a node, candidates while building and while searching. sq and ivf_pq: lists, lists that are searched.
KINDS: dict[str, dict[str, int]] = {
    "flat": {},
    "torch": {},
    "hnsw": {"m": 32, "ef_construction": 200, "ef_search": 128},
    "sq": {"bits": 8, "nlist": 0, "nprobe": 256, "rerank": 32, "seed": 0},
    "ivf_pq": {"m": 0, "nlist": 0, "nprobe": 256, "rerank": 400, "seed": 0},
}
EXACT = ("flat", "torch")
PER_CENTROID = 39  # training vectors that FAISS asks for, for each centroid
CENTROIDS = 256  # of a byte of a product quantizer
_LEAST = {("hnsw", "m"): 2, ("sq", "nlist"): 0, ("ivf_pq", "nlist"): 0, ("ivf_pq", "m"): 0}  # m=1 ends the process
_MOST = 2**31 - 1  # what FAISS counts with
_BITS = (4, 6, 8, 16)
_PER_BYTE = 8  # numbers that one byte of a product quantizer stands for, unless m says otherwise
_logger = logging.getLogger(__name__)


def resolve_parameters(kind: str, parameters: Mapping[str, int] | None = None) -> dict[str, int]:
    """The defaults of `kind` with `parameters` laid over them.

    Raises:
        ConfigError: unknown kind, unknown parameter name, or a value that is too small or too large.
    """
    if kind not in KINDS:
        raise ConfigError([f"kind must be one of {', '.join(KINDS)}, got {kind!r}."])
    given = dict(parameters or {})
    known = ", ".join(KINDS[kind]) or "none"
    problems = [
        f"parameters of {kind} must be among: {known}, got {name!r}." for name in given if name not in KINDS[kind]
    ]
    for name, value in given.items():
        least = 0 if name == "seed" else _LEAST.get((kind, name), 1)
        whole = isinstance(value, int) and not isinstance(value, bool)
        if name in KINDS[kind] and not (whole and least <= value <= _MOST):
            problems.append(f"{name} must be an integer from {least} to {_MOST}, got {value!r}.")
        elif (kind, name) == ("sq", "bits") and value not in _BITS:
            problems.append(f"bits must be one of {', '.join(map(str, _BITS))}, got {value}.")
    if problems:
        raise ConfigError(problems)
    return {**KINDS[kind], **given}


def settle(kind: str, parameters: Mapping[str, int], *, count: int, dimension: int) -> tuple[str, dict[str, int]]:
    """The kind and parameters that `count` vectors allow; what was asked for and is impossible is warned of.

    Too few vectors to train on make fewer lists, and in place of `ivf_pq` a `flat` index: 39 for each centroid.

    Raises:
        ConfigError: see `resolve_parameters`; or an `m` that does not divide `dimension`.
    """
    settled = resolve_parameters(kind, parameters)
    if kind == "ivf_pq":
        needed = PER_CENTROID * CENTROIDS
        if settled["m"] and dimension % settled["m"]:
            raise ConfigError([f"m must divide the dimension {dimension}, got {settled['m']}. Take 0 to choose one."])
        if count < needed:
            _logger.warning(
                "ivf_pq needs %d vectors to train on (%d for each of %d centroids), got %d: a flat index is built",
                needed, PER_CENTROID, CENTROIDS, count,
            )  # fmt: skip
            return "flat", {}
        settled["m"] = settled["m"] or _bytes(dimension)
    if "nlist" in settled:
        most = max(1, count // PER_CENTROID)
        if settled["nlist"] > most:
            _logger.warning(
                "nlist %d needs %d vectors (%d for each list), got %d: %d lists are made",
                settled["nlist"], settled["nlist"] * PER_CENTROID, PER_CENTROID, count, most,
            )  # fmt: skip
        settled["nlist"] = min(most, settled["nlist"] or max(1, round(4 * math.sqrt(count))))
    return kind, settled


def _bytes(dimension: int) -> int:
    """The largest divisor of `dimension` that leaves at least eight numbers to a byte."""
    most = max(1, dimension // _PER_BYTE)
    return next(number for number in range(most, 0, -1) if dimension % number == 0)
