"""Weights to begin with: of a network, a file, a run; what each becomes, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

import prowd
from prowd.config.schema import RunConfig, load_config
from prowd.device.scene import ClientSpec, Scene
from prowd.errors import ConfigError
from prowd.methods import common
from prowd.nets import Architecture, Conv, Flatten, Linear, describe
from prowd.nets.tracing import read
from prowd.numbers.bits import FLOAT32, Bitwidth
from prowd.runs.start import checked, encode, of_network, read_start, start_of
from tests.runs import TINY, arrays, data_file, outcome, run_tiny

SHAPE = (1, 8, 8)
SETTINGS = {**TINY, "snapshots": "none", "workers": 1}


def net(seed: int = 0) -> nn.Sequential:
    """Every α is 2 or more, so that one left out changes the function."""
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1, bias=False), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 4, 3, padding=1, bias=False), nn.ReLU(), nn.Flatten(), nn.Linear(64, 3, bias=False),
    )  # fmt: skip


def architecture() -> Architecture:
    return describe(net(), SHAPE)


def saved(path: Path, **changes: Tensor) -> Path:
    save_file({**net().state_dict(), **changes}, path)
    return path


def right(model: nn.Module) -> float:
    """The share of the test images that a network of PyTorch takes for what they are."""
    found = model(torch.from_numpy(arrays()["x_test"]) / 127.5 - 1).argmax(1)
    return float((found == torch.from_numpy(arrays()["y_test"])).float().mean())


def test_a_file_holds_weights_as_pytorch_has_them(tmp_path: Path) -> None:
    found = read_start(saved(tmp_path / "net.safetensors"), architecture())
    (first, second, third), given = found.values(), net().state_dict()
    assert architecture().alphas == (1, 4, 4)
    assert torch.equal(first, given["0.weight"])
    assert torch.equal(second, 4 * given["3.weight"])
    assert torch.equal(third, 4 * given["6.weight"])
    assert all(torch.equal(one, found[name]) for name, one in of_network(read(net(), SHAPE)).items())


def test_kernels_of_one_dimension_have_one_column(tmp_path: Path) -> None:
    layers = (Conv("a", 2, 3, (5, 1), (1, 1), (2, 0)), Flatten(), Linear("b", 24, 2, relu=False))
    weights = {"a.weight": torch.randn(3, 2, 5), "b.weight": torch.randn(2, 24)}
    save_file(weights, tmp_path / "net.safetensors")
    found = read_start(tmp_path / "net.safetensors", Architecture(layers, (2, 8, 1)))
    assert torch.equal(found["a.weight"], weights["a.weight"][..., None])


def test_the_first_state_is_what_it_starts_from() -> None:
    clients = (ClientSpec(0, Bitwidth(8), 1), ClientSpec(1, FLOAT32, 1))
    start = of_network(read(net(), SHAPE))
    model = common.initial_state(Scene(architecture(), clients, start=start)).model
    assert all(torch.equal(model[name], tensor) for name, tensor in start.items())
    norms = net().state_dict()["3.weight"].flatten(1).norm(dim=1)
    torch.testing.assert_close(model["3.gain"], norms)  # ‖v‖/α = ‖w‖
    gains = {"3.gain": torch.arange(4.0)}
    model = common.initial_state(Scene(architecture(), clients, rescale="layer", start={**start, **gains})).model
    assert torch.equal(model["3.gain"], gains["3.gain"])
    assert float(model["3.weight"].square().mean().sqrt()) == pytest.approx(0.75 / 3**0.5, rel=1e-5)


@pytest.mark.parametrize("method", ["fedavg", "prowd-plus", "local"])
def test_clients_receive_the_function_of_the_network(tmp_path: Path, method: str) -> None:
    given = net(seed=3)
    result = prowd.run(out=tmp_path / "run", data=arrays(), model=given, keep_weights=True, method=method, **SETTINGS)
    assert result.rounds[0]["accuracy"]["received"]["float32"] == pytest.approx(right(given))
    assert load_config(tmp_path / "run" / "config.toml").init == "given"


def test_all_ways_to_begin_with_the_same_weights_give_the_same_run(tmp_path: Path) -> None:
    data, path = data_file(tmp_path), saved(tmp_path / "net.safetensors")
    one = prowd.run(out=tmp_path / "one", data=data, model=net(), init=str(path), **SETTINGS)
    two = prowd.run(out=tmp_path / "two", data=data, model=net(), keep_weights=True, **{**SETTINGS, "workers": 2})
    kept = str(two.path / "init.safetensors")
    three = prowd.run(out=tmp_path / "three", data=data, model=net(), init=kept, **SETTINGS)
    other = prowd.run(out=tmp_path / "other", data=data, model=net(), **SETTINGS)
    hashes = [each.summary["weights_sha256"] for each in (one, two, three, other)]
    assert len(set(hashes[:3])) == 1
    assert hashes[3] != hashes[0]
    again = prowd.run(one.path / "config.toml", out=tmp_path / "again", workers=1)
    assert again.summary["weights_sha256"] == hashes[0]


def test_a_stopped_run_goes_on_from_what_it_kept(tmp_path: Path) -> None:
    settings = {**SETTINGS, "method": "local", "cohort": 2}  # a client may come late, and begins there
    data, path = data_file(tmp_path), saved(tmp_path / "net.safetensors")
    whole = prowd.run(out=tmp_path / "whole", data=data, model=net(), init=str(path), **settings)
    part = prowd.run(out=tmp_path / "part", data=data, model=net(), init=str(path), **{**settings, "rounds": 1})
    path.unlink()
    prowd.run(resume=part.path, rounds=3, workers=1)
    assert outcome(part.path) == outcome(whole.path)
    (part.path / "init.safetensors").write_bytes(encode(of_network(read(net(seed=1), SHAPE))))
    with pytest.raises(ConfigError, match=r"init: \S+net.safetensors has changed; accepted: weights of hash"):
        prowd.run(resume=part.path, rounds=4)


@pytest.mark.parametrize("method", ["fedavg", "prowd-plus", "fedgroupedavg"])
def test_a_run_goes_on_from_where_another_came_to(tmp_path: Path, method: str) -> None:
    first = run_tiny(tmp_path / "first", method=method)
    second = run_tiny(tmp_path / "second", method="fedavg", rounds=1, init=str(first.path))
    predicted = prowd.load(first.path).predict(arrays()["x_test"])
    found = float((predicted == torch.from_numpy(arrays()["y_test"])).float().mean())
    assert second.rounds[0]["accuracy"]["received"]["float32"] == pytest.approx(found)


def test_a_comparison_begins_with_the_weights_of_a_network(tmp_path: Path) -> None:
    settings = {key: value for key, value in SETTINGS.items() if key != "workers"}
    table = prowd.compare(
        methods=["fedavg"], seeds=[0], out=tmp_path / "table", workers=1, data=arrays(), model=net(), keep_weights=True,
        **settings,
    )  # fmt: skip
    alone = prowd.run(out=tmp_path / "one", data=arrays(), model=net(), keep_weights=True, **SETTINGS)
    assert [each.weights_sha256 for each in table.outcomes] == [alone.summary["weights_sha256"]]


def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    net_, path = architecture(), tmp_path / "net.safetensors"
    for changes, said in (
        (
            {"3.weight": torch.zeros(4, 16, 5, 5)},
            r"has 3.weight of shape \(4, 16, 5, 5\); accepted: shape \(4, 16, 3, 3\)",
        ),
        (
            {"0.bias": torch.zeros(16)},
            r"has 0.bias of shape \(16,\); accepted: 0.weight, 3.weight, 6.weight and nothing",
        ),
        ({"0.weight": torch.full((16, 1, 3, 3), torch.nan)}, "not all finite; accepted: finite floats"),
        ({"0.weight": torch.zeros(16, 1, 3, 3, dtype=torch.int32)}, "is torch.int32"),
    ):
        with pytest.raises(ConfigError, match=rf"^init: .*{said}"):
            read_start(saved(path, **changes), net_)
    assert set(read_start(saved(path, **{"0.bias": torch.zeros(16)}), net_, "drop")) == set(net_.shapes)
    save_file({"0.weight": torch.zeros(16, 1, 3, 3)}, path)
    with pytest.raises(ConfigError, match=r"lacks 3.weight; accepted: 0.weight, 3.weight, 6.weight"):
        read_start(path, net_)
    path.write_bytes(b"no such format")
    for place in (path, tmp_path / "nowhere.safetensors"):
        with pytest.raises(ConfigError, match=r"cannot be read: .*; accepted: a .safetensors file, a run"):
            read_start(place, net_)


def test_runs_without_a_model_of_the_same_network_are_refused(tmp_path: Path) -> None:
    other = run_tiny(tmp_path / "other", rounds=1)
    with pytest.raises(ConfigError, match=r"init: .*/other has no 0.weight; accepted: a run of the same network"):
        start_of(RunConfig(init=str(other.path)), architecture())
    local = run_tiny(tmp_path / "local", method="local", rounds=1)
    with pytest.raises(ConfigError, match="local has no model of float32 on the server"):
        run_tiny(tmp_path / "again", init=str(local.path))


def test_what_was_given_in_python_is_given_again() -> None:
    with pytest.raises(ConfigError, match=r"^init: 'given' are the weights of a network .*keep_weights=True\) again"):
        start_of(RunConfig(init="given"), architecture())
    with pytest.raises(ConfigError, match=r"^keep_weights: the model is None; accepted: with a network"):
        prowd.run(keep_weights=True)
    with pytest.raises(ConfigError, match=r"^init: 'x' goes not with keep_weights=True"):
        prowd.run(model=net(), keep_weights=True, init="x")
    with pytest.raises(ConfigError, match=r"^resume: goes with neither"):
        prowd.run(resume="runs/x", keep_weights=True)


def test_random_weights_have_no_hash() -> None:
    assert checked(RunConfig(), {}).init_sha256 == ""
