"""What a run came to, taken away: loaded at any width, as a module, an ONNX file and a header for C."""

from __future__ import annotations

import importlib.util
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import prowd
from prowd.config.schema import load_config
from prowd.errors import ConfigError, DataError, RunError
from prowd.nets.lowbit.kernels import why_not_c99
from prowd.runs.build import as_used, load_data
from tests.embedded.driver import CORE, compiler
from tests.runs import TINY, arrays, ask, data_file, refused, run_tiny

WIDTHS = ("float32", "int8", "int4")
SETTINGS = {**TINY, "snapshots": "none"}


class Net(nn.Module):
    """A shortcut, a depthwise convolution and an average."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, 4, 3, padding=1, bias=False)
        self.deep = nn.Conv2d(4, 4, 3, padding=1, groups=4, bias=False)
        self.head = nn.Linear(16, 3, bias=False)
        self.pools = nn.Sequential(nn.MaxPool2d(2), nn.AvgPool2d(2))

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.stem(x))
        return self.head(self.pools(torch.relu(self.deep(x) + x)).flatten(1))  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    file = data_file(folder)
    return prowd.run(out=folder / "run", data=file, model=Net(), workers=1, **SETTINGS).path


def images() -> Tensor:
    return torch.from_numpy(arrays()["x_test"])


def exported(run: Path, target: str, width: str, out: Path) -> None:
    done = ask("export", run, "--to", target, "--width", width, "--out", out, cwd=run.parent)
    assert done.returncode == 0, done.stderr


def test_clients_of_the_run_load_what_they_are_sent(run: Path) -> None:
    for width in ("float32", "int8"):
        trained = prowd.load(run, width)
        assert trained.predict(images()).tolist() == trained.logits(images()).argmax(1).tolist()
        found = float((trained.predict(images().numpy()) == torch.from_numpy(arrays()["y_test"])).float().mean())
        assert 0 <= found <= 1
    assert prowd.load(run, "int4").weights["stem.weight"].codes.abs().max() <= 7  # no client has it
    with pytest.raises(DataError, match=r"images: torch.float32 of shape .*; accepted: torch.uint8 of shape"):
        prowd.load(run).predict(images().float())


def test_what_has_no_model_is_refused(run: Path, tmp_path: Path) -> None:
    with pytest.raises(RunError, match="is not a run directory"):
        prowd.load(tmp_path)
    local = run_tiny(tmp_path / "local", method="local", rounds=1).path
    with pytest.raises(ConfigError, match="local has no model of int8 on the server"):
        prowd.load(local, "int8", data=arrays())


def module_of(folder: Path) -> Any:
    spec = importlib.util.spec_from_file_location("net", folder / "net.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("width", WIDTHS)
def test_the_module_needs_nothing_of_prowd_and_gives_the_same(run: Path, tmp_path: Path, width: str) -> None:
    exported(run, "torch", width, tmp_path)
    assert "import prowd" not in (tmp_path / "net.py").read_text("utf-8")
    with torch.no_grad():
        logits = module_of(tmp_path).load()(images())
    trained = prowd.load(run, width)
    expected = trained.logits(images())
    if width == "float32":
        torch.testing.assert_close(logits, expected)
    else:  # codes, where the model's logits are values times the logit scale
        assert torch.equal(logits * (8.0 / trained.width.steps), expected)
    assert torch.equal(logits.argmax(1), trained.predict(images()))


@pytest.mark.parametrize("width", WIDTHS)
def test_onnxruntime_predicts_the_same(run: Path, tmp_path: Path, width: str) -> None:
    pytest.importorskip("onnx")
    runtime = pytest.importorskip("onnxruntime")
    exported(run, "onnx", width, tmp_path)
    session = runtime.InferenceSession(str(tmp_path / "net.onnx"), providers=["CPUExecutionProvider"])
    (logits,) = session.run(None, {"images": images().numpy()})
    trained = prowd.load(run, width)
    assert logits.argmax(1).tolist() == trained.predict(images()).tolist()
    if width != "float32":
        assert np.array_equal(logits * np.float32(8.0 / trained.width.steps), trained.logits(images()).numpy())


def test_onnxruntime_predicts_the_same_for_every_test_window_of_watch(tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    runtime = pytest.importorskip("onnxruntime")
    settings: dict[str, Any] = {"method": "fedavg", "rounds": 1, "steps": 10, "snapshots": "none"}
    watch = prowd.run("watch", out=tmp_path / "watch", workers=1, **settings).path
    config = load_config(watch / "config.toml")
    windows = as_used(config, load_data(config)).x_test
    assert windows.shape[1:] == (6, 128, 1)
    assert len(windows) > 600  # of two people
    for width in WIDTHS:
        exported(watch, "onnx", width, tmp_path / width)
        session = runtime.InferenceSession(str(tmp_path / width / "net.onnx"), providers=["CPUExecutionProvider"])
        (logits,) = session.run(None, {"images": windows.numpy()})
        predicted = prowd.load(watch, width).predict(windows)
        assert logits.argmax(1).tolist() == predicted.tolist()
        assert len(set(predicted.tolist())) > 2


PROGRAM = """
#include <stdio.h>
#include <stdlib.h>
#include "net.h"

int main(void) {
    uint8_t image[NET_INPUTS];
    int16_t *memory = malloc(prowd_memory(&net, 1, 0));
    if (prowd_check(&net)) return 1;
    while (fread(image, 1, NET_INPUTS, stdin) == NET_INPUTS) {
        prowd_codes(image, NET_INPUTS, net_table, memory);
        const int16_t *logits = prowd_forward(&net, (const int16_t *const *)net_weights, 1, memory, 0);
        for (int i = 0; i < NET_CLASSES; i++) printf("%d ", logits[i]);
    }
    free(memory);
    return 0;
}
"""


@pytest.mark.skipif(compiler() is None or why_not_c99(torch.device("cpu")) is not None, reason="no C compiler")
@pytest.mark.parametrize("width", ["int8", "int4"])
def test_c_computes_the_same_logits(run: Path, tmp_path: Path, width: str) -> None:
    exported(run, "c", width, tmp_path)
    (tmp_path / "main.c").write_text(PROGRAM, "utf-8")
    sources = [*map(str, sorted(CORE.glob("*.c"))), str(tmp_path / "main.c")]
    flags = ["-std=c99", "-Wall", "-Wextra", "-Werror", f"-I{CORE}", f"-I{tmp_path}"]
    subprocess.run([compiler() or "cc", *flags, *sources, "-o", str(tmp_path / "main")], check=True)
    ran = subprocess.run([tmp_path / "main"], input=images().numpy().tobytes(), capture_output=True, check=True)
    trained = prowd.load(run, width)
    codes = trained.logits(images()) * (trained.width.steps / 8.0)
    assert list(map(int, ran.stdout.split())) == codes.flatten().int().tolist()


def test_floats_have_no_codes_for_c(run: Path) -> None:
    said = refused("export", run, "--to", "c", "--width", "float32", cwd=run.parent)
    assert "width: float32 has no codes for C; accepted: int2 to int16" in said
