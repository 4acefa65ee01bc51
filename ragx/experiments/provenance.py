"""What decided an answer: model kind, weights, index, decoder and settings; stands in every prediction.

One decision: weights are hashed, not named. A path says where a checkpoint lay, its bytes say what answered.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import torch
from torch import nn

from ragx.citations.attribution import EmissionRule
from ragx.decoding.settings import DecodingSettings
from ragx.retriever.filtered import own_filter


def weights_sha256(model: nn.Module) -> str:
    """Hex digest over the names, shapes and exact bytes of every parameter and buffer, wherever they lie."""
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def provenance_of(
    model: Any, *, decoder: str, settings: DecodingSettings, given: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """A JSON object that two runs share exactly where the same questions must get the same answers.

    Args:
        model: a RagModel.
        decoder, settings: how it decodes.
        given: what the caller knows besides (checkpoint path, edition, seed); wins where names meet.
    """
    retriever = model.retriever
    found: dict[str, Any] = {
        "kind": model.kind,
        "n_docs": None if retriever is None else model.n_docs,
        "decoder": decoder,
        "decoding": asdict(settings),
        "index": None if retriever is None else retriever.fingerprint,
        "edition": getattr(retriever, "edition", None),
        "attribution": None if retriever is None else asdict(EmissionRule()),
        "filter": own_filter(retriever),
        **_reads(model),
    }
    given = dict(given or {})
    if "weights" not in given:
        found["weights"] = weights_sha256(model)
    whole: dict[str, Any] = json.loads(json.dumps({**found, **given}))
    return whole


def _reads(model: Any) -> dict[str, Any]:
    """How texts become inputs: no weight says so, and what is cut or written otherwise is answered otherwise."""
    inputs, encoder = model.generator.inputs, model.query_encoder
    tower = None if encoder is None else encoder.tower
    return {
        "template": inputs.template,
        "max_input_length": inputs.max_length,
        "bos_in_labels": inputs.bos_in_labels,
        "separator": inputs.separator,
        "max_query_length": None if tower is None else tower.max_length,
        "pooling": None if tower is None else tower.pooling,
        "null_document": None if model.null_document is None else model.null_document.kind,
    }
