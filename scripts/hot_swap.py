"""Replaces the index under fixed weights and scores both editions (section 4.5); options in configs/hot_swap.yaml."""

from __future__ import annotations

import json
from pathlib import Path

import hydra
from omegaconf import DictConfig

from ragx import atomic, build, config, schema
from ragx.experiments.hot_swap import hot_swap


@hydra.main(version_base="1.3", config_path="../configs", config_name="hot_swap")
@config.plain_errors
def main(raw: DictConfig) -> None:
    """Prints exact match of each edition's questions on its own index (matched) and on the other (mismatched)."""
    cfg = config.resolve(raw, schema.HotSwap)
    config.save(cfg, config.output_directory())
    editions = build.editions(cfg.before, cfg.after)
    retriever = build.dense_retriever(cfg.retriever, directory=cfg.before.index)
    model = build.trained_model(cfg.model, retriever=retriever).to(build.device(cfg.decoding.device))
    results = hot_swap(
        model,
        retriever=retriever,
        index_dirs={name: part.index for name, part in editions.items()},
        questions={name: build.examples(part.questions) for name, part in editions.items()},
        decoder=build.decoder(cfg.decoding.decoder, model.kind),
        settings=cfg.decoding.settings(),
    )
    output = Path(cfg.output or config.output_directory() / "results.json")
    with atomic.open_file(output) as handle:
        handle.write(json.dumps(results, indent=2) + "\n")
    for name in editions:
        matched, mismatched = results["matched"][name], results["mismatched"][name]
        print(f"{name}  matched {matched:.3f}  mismatched {mismatched:.3f}  n {results['n'][name]}")
    print(output)


if __name__ == "__main__":
    main()
