"""The documentation says what the code has."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest

from prowd.config.files import presets
from prowd.config.schema import RunConfig
from prowd.federation.engine import Federation, run_round
from prowd.methods import METHODS
from prowd.nets.float32 import FloatSettings
from prowd.nets.lowbit.model import LowBitSettings
from prowd.numbers.bits import FLOAT32

from .scenes import INT8, FakeTransport, honest, same, scene

ROOT = Path(__file__).parents[2]


def test_every_setting_is_documented_with_its_default() -> None:
    rows = re.findall(r"^\| `([a-z0-9_.]+)` \| (.+?) \|", (ROOT / "docs/configuration.md").read_text("utf-8"), re.M)
    documented = {name: default.strip("`").strip('"') for name, default in rows}
    defaults = {name: field.default for name, field in RunConfig.model_fields.items()}
    for table, settings in (("lowbit", LowBitSettings), ("float32", FloatSettings)):
        del defaults[table]
        defaults |= {f"{table}.{field.name}": field.default for field in dataclasses.fields(settings)}
    assert set(documented) == set(defaults)
    filled_in = {"name", "version", "data_sha256", "method_sha256", "options"}
    for name in set(defaults) - filled_in:
        default = defaults[name]
        assert documented[name] == (str(list(default)) if isinstance(default, tuple) else str(default)), name


@pytest.mark.parametrize("name", presets())
def test_readme_names_every_preset(name: str) -> None:
    assert f"`{name}`" in (ROOT / "README.md").read_text("utf-8")


def test_every_method_says_what_it_does() -> None:
    for name, method in METHODS.items():
        assert method.name == name
        assert method.summary


def test_every_method_and_option_is_documented() -> None:
    text = (ROOT / "docs/methods.md").read_text("utf-8")
    for name, method in METHODS.items():
        start = text.index(f"**`{name}`**")
        end = text.find("\n\n**", start)
        paragraph = text[start : end if end > 0 else None]
        assert all(f"`{field.name}`" in paragraph for field in dataclasses.fields(method)), name


def test_the_method_of_contributing_works(tmp_path: Path) -> None:
    (block,) = re.findall(r"```python\n(.*?)```", (ROOT / "CONTRIBUTING.md").read_text("utf-8"), re.S)
    names: dict[str, Any] = {"__name__": "contributing"}
    exec(compile(block, "CONTRIBUTING.md", "exec", dont_inherit=True), names)
    method, given = names["WidthMean"](), scene(INT8, INT8, FLOAT32)
    federation = Federation(given, method, rounds=1, cohort=3)
    report, state = run_round(federation, method.init(given), FakeTransport(honest(given, method, tmp_path)))
    assert not report.refused
    assert not same(state.model, method.init(given).model)
