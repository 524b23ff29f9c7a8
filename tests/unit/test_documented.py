"""Every setting, preset, method and option is in the documentation, with its default."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

from prowd.config.files import presets
from prowd.config.options import option_names
from prowd.config.schema import RunConfig, load_config
from prowd.methods import METHODS
from prowd.methods.prowd.dequantizer import DequantizerSettings
from prowd.nets.float32 import FloatSettings
from prowd.nets.lowbit.model import LowBitSettings

DOCS = Path(__file__).parents[2] / "docs"


def test_every_setting_is_documented_with_its_default() -> None:
    rows = re.findall(r"^\| `([a-z0-9_.]+)` \| (.+?) \| .*\|$", (DOCS / "configuration.md").read_text("utf-8"), re.M)
    documented = {name: default.strip("`").strip('"') for name, default in rows}
    defaults = {name: field.default for name, field in RunConfig.model_fields.items()}
    for table, settings in (("lowbit", LowBitSettings), ("float32", FloatSettings)):
        del defaults[table]
        defaults |= {f"{table}.{field.name}": field.default for field in dataclasses.fields(settings)}
    assert set(documented) == set(defaults)
    filled_in = {"name", "version", "data_sha256", "method_sha256", "init_sha256", "options"}
    for name in set(defaults) - filled_in:
        default = defaults[name]
        assert documented[name] == (str(list(default)) if isinstance(default, tuple) else str(default)), name


def test_every_preset_is_documented() -> None:
    page = (DOCS / "configuration.md").read_text("utf-8")
    assert [name for name in presets() if f"`{name}`" not in page] == []


def test_the_scale_of_the_cpu_presets_is_documented() -> None:
    config = load_config("table1-50-50-cpu")
    scale = f"{config.per_client:,} images", f"{config.rounds} rounds", f"{config.input_size}×{config.input_size}"
    for page in ("configuration.md", "reproduction.md"):
        text = " ".join((DOCS / page).read_text("utf-8").split())
        assert [words for words in (*scale, f"1/{1 / config.width:.0f}") if words not in text] == [], page
        assert re.search(rf"[Bb]atches (are )?of {config.batch}\b", text), page


def test_every_method_and_option_is_documented() -> None:
    sections = dict(
        re.findall(r"^### `([a-z-]+)`\n(.*?)(?=^##|\Z)", (DOCS / "methods.md").read_text("utf-8"), re.M | re.S)
    )
    assert set(sections) == set(METHODS)
    for name, method in METHODS.items():
        assert method.name == name
        assert method.summary
        assert all(f"`{option}`" in sections[name] for option in option_names(method)), name


def test_every_option_of_the_dequantizer_is_documented_with_its_default() -> None:
    rows = re.findall(r"^\| `([a-z]+)` \| (.+?) \|", (DOCS / "methods.md").read_text("utf-8"), re.M)
    documented = {name: default.strip("`") for name, default in rows}
    assert documented == {field.name: str(field.default) for field in dataclasses.fields(DequantizerSettings)}
