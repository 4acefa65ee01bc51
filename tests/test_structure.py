"""The shape of the repository: sizes, names, docstrings, and that every module can be imported."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MODULES = sorted((ROOT / "ragx").rglob("*.py"))
SCRIPTS = sorted((ROOT / "scripts").glob("*.py"))
YAMLS = sorted((ROOT / "configs").rglob("*.yaml"))
TOP_LEVEL = {
    "pyproject.toml", "README.md", "configs", "ragx", "scripts", "tests", "notebooks", "LICENSE", "CHANGELOG.md",
    "CONTRIBUTING.md", "Makefile", ".pre-commit-config.yaml", ".gitignore", ".ci",
}  # fmt: skip
VAGUE = {"utils", "util", "helpers", "common", "base", "misc"}
TORCH_ONLY = ("losses", "decoding")


def name_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def lines(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def too_long(paths: list[Path], limit: int) -> dict[str, int]:
    return {str(path.relative_to(ROOT)): lines(path) for path in paths if lines(path) > limit}


def public_definitions(path: Path) -> list[ast.ClassDef | ast.FunctionDef]:
    """Classes and functions of a module, and methods of its classes, that do not begin with an underscore."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found = [node for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef)]
    public = [node for node in found if not node.name.startswith("_")]
    methods = [node for owner in public if isinstance(owner, ast.ClassDef) for node in owner.body]
    return public + [node for node in methods if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")]


def repeats_another(node: ast.ClassDef | ast.FunctionDef) -> bool:
    """An overload or a property's setter, which the definition beside it documents."""
    return any(ast.unparse(item).rpartition(".")[2] in ("overload", "setter") for item in node.decorator_list)


def test_there_is_something_to_check() -> None:
    assert len(MODULES) > 30 and len(SCRIPTS) >= 5 and len(YAMLS) >= 20


def test_sizes() -> None:
    assert too_long(MODULES, 300) == {}
    assert too_long(SCRIPTS, 80) == {}
    assert too_long([path for path in YAMLS if path.stem != "reproduction"], 60) == {}  # that one is a table of rows


def test_no_vague_or_shadowing_module_name() -> None:
    names = {path.stem for path in MODULES if path.stem != "__init__"}
    assert names & VAGUE == set()
    assert names & set(sys.stdlib_module_names) == set()


def test_every_package_init_holds_only_a_docstring() -> None:
    packages = sorted({path.parent for path in MODULES})
    for package in packages:
        body = ast.parse((package / "__init__.py").read_text(encoding="utf-8")).body
        assert len(body) == 1 and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant), package


def test_everything_public_has_a_docstring() -> None:
    bare = []
    for path in MODULES + SCRIPTS:
        if ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) is None:
            bare.append(str(path))
        definitions = [node for node in public_definitions(path) if not repeats_another(node)]
        bare += [f"{path}:{node.name}" for node in definitions if not ast.get_docstring(node)]
    assert bare == []


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_every_module_imports(path: Path) -> None:
    assert importlib.import_module(name_of(path)).__doc__


@pytest.mark.parametrize("package", TORCH_ONLY)
def test_likelihoods_and_decoders_import_torch_and_nothing_else(package: str) -> None:
    allowed = set(sys.stdlib_module_names) | {"torch", "ragx"}
    for path in (ROOT / "ragx" / package).glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            roots = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            roots += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert {root.split(".")[0] for root in roots} <= allowed, f"{path} line {node.lineno}"


def test_nothing_is_unpickled_and_nothing_printed() -> None:
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                call = ast.unparse(node.func)
                assert call not in ("print", "torch.load", "pickle.load", "pickle.loads"), f"{path} line {node.lineno}"
                pickles = [k for k in node.keywords if k.arg == "allow_pickle" and ast.unparse(k.value) != "False"]
                assert not pickles, f"{path} line {node.lineno}"


def test_one_primary_config_per_script() -> None:
    # The file of rows that reproduce.py reads and writes is no config.
    primaries = {path.stem for path in (ROOT / "configs").glob("*.yaml")} - {"reproduction"}
    with_config = {path.stem for path in SCRIPTS if "hydra.main" in path.read_text(encoding="utf-8")}
    assert primaries == with_config
    for stem in with_config:
        assert f'config_name="{stem}"' in (ROOT / "scripts" / f"{stem}.py").read_text(encoding="utf-8")


def test_nothing_else_at_top_level() -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode != 0:
        pytest.skip("not a git checkout")
    top = {name.split("/")[0] for name in listed.stdout.split("\0") if name}
    assert top - TOP_LEVEL == set()


def test_every_pytest_raises_says_what_it_expects() -> None:
    for path in sorted((ROOT / "tests").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.raises":
                assert "match" in {keyword.arg for keyword in node.keywords}, f"{path} line {node.lineno}"
