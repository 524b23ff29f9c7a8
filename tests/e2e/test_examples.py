"""The public names of prowd, and the examples, which need no others."""

from __future__ import annotations

import ast
import csv
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import prowd
from prowd.config.schema import load_config
from prowd.errors import ConfigError
from prowd.methods import METHODS, FedAvg, find_method
from prowd.numbers.bits import FLOAT32
from prowd.wire import Update
from tests.runs import TIMEOUT, call, config_file, environment
from tests.unit.scenes import dot, floats, scene

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "fedavgm.py"
NAME = "fc.weight"


def imported(source: str) -> set[str]:
    """The modules that a file imports from."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module or ".")
    return found


OF_ARRAYS = ("own_data.py", "own_network.py")
EXAMPLES = [path.relative_to(ROOT) for path in sorted(EXAMPLE.parent.rglob("*.py"))]


@pytest.mark.parametrize("path", [*EXAMPLES, Path("README.md"), Path("CONTRIBUTING.md")], ids=str)
def test_examples_import_nothing_but_prowd_and_what_it_brings(path: Path) -> None:
    text = (ROOT / path).read_text("utf-8")
    modules = imported("".join(re.findall(r"```python\n(.*?)```", text, re.S)) if path.suffix == ".md" else text)
    assert "prowd" in modules
    others = {module.split(".")[0] for module in modules} - {"prowd"} - sys.stdlib_module_names
    assert others <= ({"numpy", "torch"} if path.name in OF_ARRAYS else set())


def test_every_public_name_can_be_had_from_prowd_itself() -> None:
    assert all(getattr(prowd, name) is not None for name in prowd.__all__)
    assert set(prowd.__all__) <= set(dir(prowd))
    assert {method.__name__ for method in METHODS.values()} <= set(prowd.__all__)
    with pytest.raises(AttributeError, match="nonsense"):
        _ = prowd.nonsense


def test_public_names_are_loaded_when_they_are_used() -> None:
    seen = "print('torch' in sys.modules)"
    program = f"import sys, prowd; prowd.ConfigError; {seen}; prowd.common; {seen}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == ["False", "True"]


@pytest.mark.parametrize("beta", [-0.1, 1.0])
def test_momentum_has_its_bounds(beta: float) -> None:
    with pytest.raises(ConfigError, match=r"options\.beta"):
        load_config("quick", {"method": f"{EXAMPLE}:FedAvgM", "options.beta": beta})


def test_momentum_by_hand() -> None:
    method = find_method(f"{EXAMPLE}:FedAvgM")(beta=0.5)  # type: ignore[call-arg]
    given = scene(FLOAT32, architecture=dot())
    state = replace(method.init(given), model={NAME: torch.zeros(2, 2)})
    seen = []
    for _ in range(3):
        sent = {NAME: floats(1.0, 1.0, 1.0, 1.0, shape=(2, 2))}
        state = method.aggregate(given, state, [Update(1, 0, FLOAT32, 12, sent)])
        seen.append(float(state.model[NAME][0, 0]))
    assert seen == [1.0, 1.5, 1.25], "0+1, 1+(0+0.5), 1.5+(−0.5+0.25)"


def test_without_momentum_it_is_fedavg() -> None:
    given = scene(FLOAT32, FLOAT32, architecture=dot())
    sent = [{NAME: floats(0.5, 1.0, n, 0.25, shape=(2, 2))} for n in range(2)]
    updates = [Update(1, n, FLOAT32, 12, weights) for n, weights in enumerate(sent)]
    method = find_method(f"{EXAMPLE}:FedAvgM")(beta=0.0)  # type: ignore[call-arg]
    start = replace(FedAvg().init(given), model={NAME: torch.zeros(2, 2)})
    assert torch.equal(
        method.aggregate(given, start, updates).model[NAME], FedAvg().aggregate(given, start, updates).model[NAME]
    )


def test_it_is_as_short_as_it_says() -> None:
    code = EXAMPLE.read_text("utf-8").partition('"""  # fmt: skip')[2]
    assert len([line for line in code.splitlines() if line.strip()]) <= 30


def test_the_commands_it_shows_work(tmp_path: Path) -> None:
    shown = re.findall(r"^    prowd (.+)$", EXAMPLE.read_text("utf-8"), re.M)
    assert [command.split()[0] for command in shown] == ["compare", "run"]
    tiny, (compare, run) = config_file(tmp_path, rounds=2), (command.split() for command in shown)

    def adapted(arguments: list[str]) -> list[str]:
        found = [argument.replace("examples/", f"{EXAMPLE.parent}/").replace("0-2", "0") for argument in arguments]
        return [str(tiny) if argument == "quick" else argument for argument in found]

    compared = call(*adapted(compare), "--out", "c", cwd=tmp_path)
    assert compared.returncode == 0, compared.stderr
    with (tmp_path / "c" / "table.csv").open(encoding="utf-8") as file:
        assert [row["method"] for row in csv.DictReader(file)] == ["fedavg", "fedavgm"]
    made = call(*adapted(run), "--out", "r", cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    assert "fedavgm after 2 rounds" in made.stdout
    assert "beta = 0.5" in (tmp_path / "r" / "config.toml").read_text("utf-8")
    resumed = call("run", "--resume", "r", "-s", "rounds=3", cwd=tmp_path)
    assert resumed.returncode == 0, resumed.stderr


@pytest.mark.parametrize(
    ("name", "pattern"),
    [
        ("own_data", r"int8 +\d+\.\d% .*\nfloat32 +\d+\.\d% .*\nruns/watch-prowd-plus-\S+\n"),
        ("own_network", r"\{'int4': .*, 'int8': .*, 'float32': .*\}\nclasses of five images: \[\d(, \d){4}\]\n"),
        ("board", r"(?s)memory for .*\nthe same weights with the C client and without\n"),
        ("compare", r"(?s)fedavg .* ± .*prowd-plus .* against fedavg: .*(fedavg|prowd-plus) 1 .*failed: none\n"),
    ],
    ids=["own_data", "own_network", "board", "compare"],
)
def test_an_example_runs_as_it_is(name: str, pattern: str, tmp_path: Path) -> None:
    if name == "board" and not (shutil.which("make") and shutil.which("cc")):
        pytest.skip("needs make and a C compiler")
    command = [sys.executable, str(EXAMPLE.with_name(f"{name}.py"))]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=4 * TIMEOUT, check=False
    )
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(pattern, done.stdout), done.stdout


def test_the_index_lists_every_example() -> None:
    listed = set(re.findall(r"\]\(([\w.]+)\)", (EXAMPLE.parent / "README.md").read_text("utf-8")))
    assert listed == {path.name for path in EXAMPLE.parent.glob("*.*")} - {"README.md"}
