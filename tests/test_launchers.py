"""The launcher configs compose with their plugin and say what is sent to SLURM; without it they say what to install."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from ragx import config  # noqa: F401  (registers the schemas and the stamp of a run)

CONFIGS = Path(__file__).parents[1] / "configs"
LAUNCHERS = sorted(path.stem for path in (CONFIGS / "hydra" / "launcher").glob("*.yaml"))
needs_plugin = pytest.mark.skipif(
    importlib.util.find_spec("hydra_plugins") is None
    or importlib.util.find_spec("hydra_plugins.hydra_submitit_launcher") is None,
    reason="needs the Hydra plugin: pip install 'ragx[slurm]'",
)


def launcher(script: str, *overrides: str) -> dict[str, Any]:
    with initialize_config_dir(str(CONFIGS), version_base="1.3"):
        composed = compose(script, overrides=list(overrides), return_hydra_config=True)
    found: Any = OmegaConf.to_container(composed.hydra.launcher, resolve=False)
    return dict(found)


def test_there_are_two() -> None:
    assert LAUNCHERS == ["slurm", "slurm_local"]


@needs_plugin
@pytest.mark.parametrize("name", LAUNCHERS)
@pytest.mark.parametrize("script", ["train", "ablate", "generate", "build_index", "evaluate"])
def test_every_launcher_composes_in_the_scripts_that_sweep(name: str, script: str) -> None:
    found = launcher(script, f"hydra/launcher={name}")
    kind = "SlurmLauncher" if name == "slurm" else "LocalLauncher"
    assert found["_target_"] == f"hydra_plugins.hydra_submitit_launcher.submitit_launcher.{kind}"
    assert found["submitit_folder"] == "${hydra.sweep.dir}/.submitit/%j" and found["timeout_min"] == 1440


@needs_plugin
def test_a_key_of_the_launcher_is_checked_and_can_be_given() -> None:
    found = launcher("train", "hydra/launcher=slurm", "hydra.launcher.partition=gpu", "hydra.launcher.gpus_per_node=8")
    assert (found["partition"], found["gpus_per_node"], found["array_parallelism"]) == ("gpu", 8, 16)
    with pytest.raises(Exception, match="Could not override 'hydra.launcher.partitoin'"):
        launcher("train", "hydra/launcher=slurm", "hydra.launcher.partitoin=gpu")


@pytest.mark.skipif(not needs_plugin.args[0], reason="the plugin is installed")
def test_without_the_plugin_the_error_names_what_is_missing() -> None:
    with pytest.raises(Exception, match="submitit_slurm"):
        launcher("train", "hydra/launcher=slurm")


@pytest.mark.slow
def test_processes_of_one_job_share_a_folder_and_two_jobs_do_not(tmp_path: Path) -> None:
    """FAULTS G1, G2: torchrun starts two processes of one job, twice in the same moment."""
    script = tmp_path / "folder.py"
    script.write_text("from pathlib import Path\nimport os\nfrom ragx import config\n"
                      "Path(f'{os.getppid()}-{os.environ[\"RANK\"]}').write_text(config.run_stamp())\n")  # fmt: skip
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(script)]
    environment = {**os.environ, "PYTHONPATH": str(CONFIGS.parent), "OMP_NUM_THREADS": "1"}
    jobs = [subprocess.Popen(command, cwd=tmp_path, env=environment) for _ in range(2)]
    assert [job.wait(timeout=500) for job in jobs] == [0, 0]
    stamps: dict[str, set[str]] = {}
    for file in tmp_path.glob("*-[01]"):
        stamps.setdefault(file.name.split("-")[0], set()).add(file.read_text())
    assert [len(of_job) for of_job in stamps.values()] == [1, 1] and len(set.union(*stamps.values())) == 2
