"""Presets of the paper's tables have the hyperparameters that it prints, but for the one departure that is said."""

from __future__ import annotations

from typing import Any

import pytest

from prowd.config.files import presets, read_suggestion
from prowd.config.options import make_method
from prowd.config.schema import RunConfig, load_config
from prowd.methods import FedCom, FedComGate, FedGroupedAvg, FedGroupedAvgAsymmetric, FedProx, Method, ProWD

OURS = ("quick", "watch")  # presets of data that the paper does not have
PAPER = sorted(name for name in presets() if name not in OURS)
FULL = [name for name in PAPER if not name.endswith("-cpu")]
MIXES = {
    "table1-50-50": ("int8:5, float32:5", "ternary"),
    "table1-80-20": ("int8:8, float32:2", "ternary"),
    "ablation-50-50": ("int8:5, float32:5", "ternary"),
    "ablation-80-20": ("int8:8, float32:2", "ternary"),
    "table2": ("int6:3, int8:3, int12:2, int16:2", "native"),
    "multibit": ("int6:3, int7:2, int8:2, float32:3", "native"),
}


def method_of(name: str, method: str, kind: type[Method]) -> Any:
    config = load_config(name, {"method": method})
    made = make_method(config.method, config.options)
    assert isinstance(made, kind)
    return made


def test_every_table_has_a_preset_of_both_sizes() -> None:
    assert sorted(MIXES) == FULL
    assert sorted(f"{name}-cpu" for name in MIXES) == [name for name in PAPER if name.endswith("-cpu")]


@pytest.mark.parametrize("name", PAPER)
def test_what_the_paper_prints_of_every_client(name: str) -> None:
    """Appendix: 200 local steps, momentum 0.9, gradients clipped to 2.0, η = 8. The rate is that of v/α."""
    config: RunConfig = load_config(name)
    assert (config.clients, config.uplink) == MIXES[name.removesuffix("-cpu")]
    assert (config.data, config.partition, config.model, config.steps) == ("cifar10", "iid", "vgg7", 200)
    assert (config.float32.momentum, config.float32.clip) == (0.9, 2.0)
    assert (config.float32.lr, config.float32.update_exponent) == (0.03, 2)
    assert (config.lowbit.rate, config.lowbit.loss) == (8.0, "cross-entropy")
    assert config.rescale == "none"


@pytest.mark.parametrize("name", FULL)
def test_what_the_paper_prints_of_the_experiment(name: str) -> None:
    config = load_config(name)
    assert (config.width, config.input_size, config.per_client, config.rounds) == (1.0, "native", "all", 400)
    assert (config.augment, config.decay) == (("crop", "flip", "rotate"), "none")


@pytest.mark.parametrize("name", PAPER)
def test_what_the_paper_prints_of_the_methods(name: str) -> None:
    assert method_of(name, "fedprox", FedProx).mu == 0.01
    assert method_of(name, "fedcom", FedCom).gamma == method_of(name, "fedcomgate", FedComGate).gamma == 10
    assert method_of(name, "fedgroupedavg", FedGroupedAvg).scale_rate
    assert method_of(name, "fedgroupedavg-asymmetric", FedGroupedAvgAsymmetric).scale_rate
    phi = method_of(name, "prowd", ProWD).dequantizer
    assert (phi.tau, phi.lam) == (0.1, 1.0)
    assert method_of(name, "prowd", ProWD).tau == 1.0, "Eq. 8 as printed, without a further limit"


@pytest.mark.parametrize("name", FULL)
def test_the_dequantizer_of_the_paper_s_size(name: str) -> None:
    for method in ("prowd", "prowd-deq"):
        phi = method_of(name, method, ProWD).dequantizer
        assert (phi.module, phi.growth, phi.optimizer, phi.lr) == (64, 32, "sgd", 0.01)
        assert (phi.batch, phi.epochs, phi.steps) == (16, 5, 0)


@pytest.mark.parametrize("tail", ["", "-cpu"])
def test_presets_of_several_widths_have_their_ladders(tail: str) -> None:
    assert method_of(f"table1-50-50{tail}", "prowd", ProWD).ladder == "int2, int4, int8, int16, float32"
    assert method_of(f"table2{tail}", "prowd", ProWD).ladder == "int6, int8, int10, int12, int16"
    assert method_of(f"multibit{tail}", "prowd", ProWD).ladder == "int6, int7, int8, int16, float32"


@pytest.mark.parametrize("mix", ["50-50", "80-20"])
@pytest.mark.parametrize("tail", ["", "-cpu"])
def test_the_ablation_is_table_1_with_the_parts_of_prowd(mix: str, tail: str) -> None:
    ablation, table = (load_config(f"{name}-{mix}{tail}") for name in ("ablation", "table1"))
    assert ablation.model_copy(update={"name": table.name}) == table
    assert read_suggestion(f"ablation-{mix}{tail}").methods == ("fedavg", "prowd-deq", "prowd-swa", "prowd")
    assert len(read_suggestion(f"table1-{mix}{tail}").methods) == 9
    assert len(read_suggestion(f"table2{tail}").methods) == 8, "the paper's Table 2 has no FedProx"
