"""From a composed config to a checked one: `resolve` is the first line of every script.

A primary YAML (`configs/<script>.yaml`) lists its schema of `ragx.schema` first, so that a misspelt key, in a file or
on the command line, is an error. Hydra does not run `__post_init__` when it composes; `resolve` therefore builds the
dataclasses, makes paths absolute (from where the script was started, whatever `hydra.job.chdir` says) and reports
everything that is wrong in one `ConfigError`.
"""

from __future__ import annotations

import copy
import secrets
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import Field, fields, is_dataclass
from datetime import datetime
from functools import cache, wraps
from pathlib import Path
from typing import Any, TypeVar, cast

import torch
from hydra.core.config_store import ConfigStore
from hydra.core.hydra_config import HydraConfig
from hydra.utils import to_absolute_path
from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from torch.distributed.rendezvous import rendezvous
from transformers.utils import logging as transformers_logging

from ragx import atomic, environment
from ragx.decoding.choice import CLOSED_SET, DECODERS
from ragx.errors import ConfigError, RagxError
from ragx.generator.template import Template
from ragx.limits import EMBEDDED, HUB
from ragx.model import CLOSED_BOOK
from ragx.retriever import bm25
from ragx.retriever.kinds import resolve_parameters
from ragx.schema import SCRIPTS, BuildIndex, Demo, EvaluateRetrieval, Generate, HotSwap, IndexConfig, Train
from ragx.schema_ablation import SCRIPTS as ABLATION_SCRIPTS
from ragx.schema_chat import SCRIPTS as CHAT_SCRIPTS
from ragx.schema_retriever import RetrieverConfig

T = TypeVar("T")


@cache
def run_stamp() -> str:
    """Names the folder of this run: the time and six letters, so that jobs of the same second get two folders.

    All processes that `torchrun` (or accelerate) started for one job get the same, through the launcher's store.
    """
    stamp = f"{datetime.now():%Y-%m-%d_%H-%M-%S}-{secrets.token_hex(3)}"
    if not (torch.distributed.is_available() and torch.distributed.is_torchelastic_launched()):
        return stamp
    store, _, _ = next(rendezvous("env://"))
    _stores.append(store)  # where a process of the job holds it, it must not go before the others have read it
    return store.compare_set("ragx/run_stamp", "", stamp).decode()  # the first that comes names the folder


_stores: list[torch.distributed.Store] = []
OmegaConf.register_new_resolver("run_stamp", run_stamp, replace=True)

for _schema in (*SCRIPTS, *ABLATION_SCRIPTS, *CHAT_SCRIPTS):
    ConfigStore.instance().store(name=f"{_schema.__name__}_schema", node=_schema)


def resolve(raw: DictConfig, schema: type[T]) -> T:
    """The composed config as `schema`, with absolute paths.

    Raises:
        ConfigError: every problem at once, each with its dotted key.
    """
    got = OmegaConf.get_type(raw)
    if got is not schema:
        raise ConfigError([f"defaults must open with {schema.__name__}_schema, got a config of type {got}."])
    config = copy.deepcopy(raw)
    try:
        _make_absolute(config)
        missing = sorted(OmegaConf.missing_keys(config))
        problems = [f"{key} must be given, got nothing. Add {key}=... to the command line." for key in missing]
        problems += [*_unknown_keys(config), *_limit_problems(config), *_group_problems(config)]
    except OmegaConfBaseException as error:
        raise ConfigError([f"{error.full_key or 'config'} must resolve, got: {str(error).splitlines()[0]}."]) from error
    if problems:
        raise ConfigError(problems)
    return cast(T, OmegaConf.to_object(config))


def output_directory() -> Path:
    """The folder of this run, `runs/<script>/<stamp>`; `hydra.run.dir=...` names another, for instance to resume."""
    return Path(HydraConfig.get().runtime.output_dir)


def save(config: Any, directory: str | Path, *, ignored: Mapping[str, Any] | None = None) -> None:
    """Writes the resolved config, absolute paths included, as `config.yaml` into the folder of a run.

    Beside it stands what the run is made with, see `ragx.environment`.

    Args:
        ignored: generation defaults of a checkpoint, which are not in force; they follow as comments.
    """
    environment.record(directory)
    with atomic.open_file(Path(directory) / "config.yaml") as handle:
        handle.write(OmegaConf.to_yaml(OmegaConf.structured(config)))
        if ignored:
            handle.write("# The checkpoint's own defaults, which are not in force; what `decoding` says is:\n")
            handle.writelines(f"#   {name}: {value!r}\n" for name, value in ignored.items())


def plain_errors(main: Callable[[DictConfig], None]) -> Callable[[DictConfig], None]:
    """Prints what ragx and the file system raise without a traceback and exits with status 2; a bug keeps its trace."""

    @wraps(main)
    def wrapped(raw: DictConfig) -> None:
        transformers_logging.disable_progress_bar()  # the bars shown are those of ragx
        # Passages that do not explain the answer get gradients near 1e-40; a CPU takes twice as long over those. Set
        # here, before torch starts its threads, so that all of them flush such numbers to zero.
        torch.set_flush_denormal(True)
        try:
            main(raw)
        except (RagxError, OSError) as error:
            sys.stderr.writelines(f"error: {line}\n" for line in str(error).splitlines())
            raise SystemExit(2) from None

    return wrapped


def _fields(node: DictConfig) -> tuple[Field[Any], ...]:
    return fields(cast(Any, OmegaConf.get_type(node)))


def _walk(node: DictConfig, prefix: str = "") -> Iterator[tuple[DictConfig, str, Field[Any], Any]]:
    """Every value that is given: the node it stands in, its dotted key, its field and itself."""
    for item in _fields(node):
        if not OmegaConf.is_missing(node, item.name):
            value = node[item.name]
            if isinstance(value, DictConfig) and is_dataclass(OmegaConf.get_type(value)):
                yield from _walk(value, f"{prefix}{item.name}.")
            else:
                yield node, prefix + item.name, item, list(value) if isinstance(value, ListConfig) else value


def _make_absolute(config: DictConfig) -> None:
    for node, _, item, value in _walk(config):
        if "path" in item.metadata and value is not None:
            by_name = "name" in item.metadata
            several = isinstance(value, list)
            node[item.name] = [_absolute(v, by_name) for v in value] if several else _absolute(value, by_name)


def _absolute(value: str, by_name: bool) -> str:
    """A path from where the script was started; what is embedded, or only a name, stays as it is."""
    path = value if value.startswith((EMBEDDED, HUB)) else to_absolute_path(str(Path(value).expanduser()))
    return value if by_name and not Path(path).exists() else path


def _unknown_keys(node: DictConfig, prefix: str = "") -> Iterator[str]:
    """Keys that `+key=value` added; Hydra itself refuses every other unknown key."""
    known = {item.name for item in _fields(node)}
    for name in map(str, node):
        if name not in known:
            yield f"{prefix}{name} must be a key of the schema, got an unknown one. Known: {', '.join(sorted(known))}."
        elif not OmegaConf.is_missing(node, name) and is_dataclass(OmegaConf.get_type(node, name)):
            yield from _unknown_keys(node[name], f"{prefix}{name}.")


def _limit_problems(config: DictConfig) -> Iterator[str]:
    """What a single value shows."""
    for _, key, item, value in _walk(config):
        if "holds" in item.metadata and value is not None and not item.metadata["holds"](value):
            yield f"{key} must {item.metadata['condition']}, got {value!r}."


def _group_problems(config: DictConfig) -> Iterator[str]:
    """What shows only in a whole group; training, decoding and the template know their own rules."""
    given = {name: config[name] for name in config if not OmegaConf.is_missing(config, name)}
    whole: dict[Any, Any] = {name: OmegaConf.to_object(group) for name, group in given.items() if _is_whole(group)}
    if "model" in whole and whole["model"].checkpoint is None:
        for key in ("kind", "n_docs"):
            if getattr(whole["model"], key) is None:
                yield f"model.{key} must be given where model.checkpoint is not, got null. Give one of the two."
    if "model" in whole and whole["model"].checkpoint is not None:
        yield from _ignored_options()
    if "model" in whole and whole["model"].kind == CLOSED_BOOK and whole["model"].null_document is not None:
        got = whole["model"].null_document
        yield f"model.null_document must be null with closed_book, which reads no passages, got {got!r}. Leave it out."
    if "index" in whole and "retriever" in whole:
        yield from _index_problems(whole["index"], whole["retriever"])
    if "retriever" in whole:
        yield from _retriever_problems(whole["retriever"])
    if OmegaConf.get_type(config) in (HotSwap, Demo) and "retriever" in whole and whole["retriever"].kind != "dense":
        got = whole["retriever"].kind
        yield f"retriever.kind must be dense where an index is swapped, got {got}. Give retriever=dpr_nano."
    asks = issubclass(OmegaConf.get_type(config) or object, BuildIndex | Train | Generate | EvaluateRetrieval)
    if "retriever" in whole and whole["retriever"].filter.by_question and not asks:
        got = list(whole["retriever"].filter.by_question)
        yield f"retriever.filter.by_question must be empty in this script, which does not look at it, got {got}."
    if "generator" in whole:
        yield from _raised(lambda: Template.parse(whole["generator"].template))
    if "decoding" in whole:
        yield from (f"decoding.{problem}" for problem in _raised(whole["decoding"].settings))
        fitting = DECODERS.get(whole["model"].kind) if "model" in whole else None
        if fitting and whole["decoding"].decoder not in (None, CLOSED_SET, *fitting):
            got = f"{whole['decoding'].decoder!r} with model.kind {whole['model'].kind}"
            yield f"decoding.decoder must be null or one of {', '.join([*fitting, CLOSED_SET])}, got {got}."
    if "training" in whole and "retriever" in whole and whole["training"].live_refresh:
        if whole["retriever"].kind != "dense" or whole["retriever"].reranker.checkpoint is not None:
            got = f"{whole['training'].live_refresh} with retriever.kind {whole['retriever'].kind}"
            yield f"training.live_refresh must be 0 but with retriever.kind dense and no reranker, got {got}."
    if "training" in whole and "experiment" in whole:
        yield from whole["training"].settings(seed=whole["experiment"].seed).problems("training")


def _ignored_options() -> Iterator[str]:
    """What the command line sets and a checkpoint brings along; a config file may hold it for when there is none."""
    for given in HydraConfig.get().overrides.task if HydraConfig.initialized() else ():
        key = given.partition("=")[0].lstrip("+~")
        # The group `retriever` stays: the index is compared with its passage encoder.
        if key.partition(".")[0] == "generator" or key in ("retriever.query_encoder", "retriever.max_query_length"):
            problem = f"{key} must be left out with model.checkpoint, which has its own, got {given}"
            yield f"{problem}. Leave one of them out."


def _retriever_problems(retriever: RetrieverConfig) -> Iterator[str]:
    for kind, name, advice in (("given", "given", "Name a file"), ("hybrid", "fusion", "Give retriever=hybrid")):
        value = getattr(retriever, name)
        if (retriever.kind == kind) != (value is not None):
            got = f"{value!r} with kind {retriever.kind}"
            yield f"retriever.{name} must be set with retriever.kind {kind} and null without, got {got}. {advice}."
    yield from (f"retriever.{problem}" for problem in _raised(retriever.filter.passage_filter))
    if retriever.shards and retriever.kind != "dense":
        got = f"{retriever.shards} with kind {retriever.kind}"
        yield f"retriever.shards must be 0 where retriever.kind is not dense, got {got}. Leave it out."


def _index_problems(index: IndexConfig, retriever: RetrieverConfig) -> Iterator[str]:
    if retriever.kind == "given":  # no index is opened
        return
    if (index.kind == "bm25") != (retriever.kind == "bm25"):
        got = f"index {index.kind} and retriever {retriever.kind}"
        yield f"index.kind must be bm25 with retriever.kind bm25 alone, got {got}. Give retriever=bm25 index=bm25."
    elif index.kind != "bm25":
        yield from (f"index.{problem}" for problem in _raised(lambda: resolve_parameters(index.kind, index.parameters)))
    else:
        yield from (f"index.{problem}" for problem in _raised(lambda: bm25.resolve_parameters(index.parameters)))


def _is_whole(group: Any) -> bool:
    return isinstance(group, DictConfig) and not OmegaConf.missing_keys(group) and not any(_unknown_keys(group))


def _raised(check: Callable[[], object]) -> tuple[str, ...]:
    try:
        check()
    except ConfigError as error:
        return error.problems
    return ()
