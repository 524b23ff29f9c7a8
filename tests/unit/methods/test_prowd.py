"""ProWD: against a naive transcription of Algorithm 1, in its identities, and through a restart."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest
import torch

import prowd
from prowd.config.schema import load_config
from prowd.device.scene import ClientSpec, Scene
from prowd.errors import ConfigError
from prowd.methods import FedAvg, LiftsInStages, ProWD, ProWDDeq, ProWDSwa, ServerState
from prowd.methods.prowd.dequantizer import Dequantizer, DequantizerSettings, Ladder, dequantize
from prowd.methods.prowd.lifting import LAST, PHI, Lifter
from prowd.methods.prowd.method import HIGH, LOW
from prowd.nets import Architecture, Conv, Flatten, Linear
from prowd.numbers.bits import FLOAT32
from prowd.numbers.quantize import QTensor, Weights, quantize, ternarize
from prowd.wire import Update
from tests.reference.naive_prowd import best_mask, mean, selective_mean
from tests.runs import arrays, outcome
from tests.unit.scenes import INT4, INT6, INT8, INT16, codes, dot, floats, liftable, same, scene

DOT = replace(
    scene(INT8, INT8, FLOAT32, FLOAT32, architecture=dot(3, 2)),
    clients=tuple(ClientSpec(n, width, 10 * (n + 1)) for n, width in enumerate((INT8, INT8, FLOAT32, FLOAT32))),
)
SMALL = DequantizerSettings(module=4, growth=2, epochs=1, images=4)


def conv_scene(seed: int = 5) -> Scene:
    """A net with one layer that φ takes, of two modules, and images for the server."""
    layers = (Conv("a", 1, 4), Conv("b", 4, 8), Flatten(), Linear("fc", 8 * 16, 2, relu=False))
    made = scene(INT8, INT8, FLOAT32, FLOAT32, architecture=Architecture(layers, (1, 4, 4)))
    images = torch.rand(6, 1, 4, 4, generator=torch.Generator().manual_seed(1)) * 2 - 1
    return replace(made, seed=seed, buffer=images)


def random_updates(given: Scene, round_: int) -> list[Update]:
    """What clients might send: floats, and ternary codes of integer clients."""
    random = torch.Generator().manual_seed(round_)
    updates = []
    for client in given.clients:
        weights: dict[str, QTensor] = {}
        for name, slot in FedAvg().expects(given, client).items():
            drawn = torch.rand(slot.shape, generator=random) * 2 - 1
            weights[name] = quantize(drawn, FLOAT32) if client.width.is_float else ternarize(quantize(drawn, INT8))
        updates.append(Update(round_, client.id, client.width, client.num_examples, weights))
    return updates


def after(method: ProWD | FedAvg, given: Scene, rounds: int = 3) -> ServerState:
    state = method.init(given)
    for round_ in range(1, rounds + 1):
        state = replace(method.aggregate(given, state, random_updates(given, round_)), round=round_)
    return state


@pytest.mark.parametrize("tau", [1.0, 0.5, 0.2])
def test_selection_is_algorithm_1(tau: float) -> None:
    method, name = ProWDSwa(tau=tau), "fc.weight"
    state = method.init(DOT)
    before: tuple[list[float], list[float]] | None = None
    kept = 0
    for round_ in range(1, 6):
        updates = random_updates(DOT, round_)
        vectors = [update.weights[name].value().flatten().tolist() for update in updates]
        shares = [float(update.num_examples) for update in updates]
        now = mean(vectors[:2], shares[:2]), mean(vectors[2:], shares[2:])
        mask: tuple[int, ...] = (1,) * 6
        if before is not None:
            moved = [[b - a for a, b in zip(old, new, strict=True)] for old, new in zip(before, now, strict=True)]
            mask = best_mask(moved[0], moved[1], int(tau * 6))
            kept += sum(mask)
        expected = selective_mean(vectors, shares, [True, True, False, False], mask)
        state = replace(method.aggregate(DOT, state, updates), round=round_)
        torch.testing.assert_close(state.model[name].flatten(), torch.tensor(expected), rtol=1e-6, atol=1e-7)
        before = now
    assert 4 <= kept <= 18, "the masks have something to decide"


def test_of_float_clients_prowd_is_fedavg_to_the_bit() -> None:
    given = replace(conv_scene(), clients=tuple(ClientSpec(n, FLOAT32, 10 + n) for n in range(3)))
    expected = after(FedAvg(), given).model
    for method in (ProWD(dequantizer=SMALL), ProWDDeq(dequantizer=SMALL), ProWDSwa()):
        assert same(after(method, given).model, expected)


def test_prowd_is_selection_among_what_the_dequantizer_made() -> None:
    given, method = conv_scene(), ProWD(dequantizer=SMALL)
    first = replace(method.aggregate(given, method.init(given), random_updates(given, 1)), round=1)
    updates = random_updates(given, 2)
    second = method.aggregate(given, first, updates)
    phi = Dequantizer(Ladder.parse(method.ladder), SMALL, given.seed)
    phi.load({name.removeprefix(PHI): tensor for name, tensor in second.memory.items() if name.startswith(PHI)})

    def lifted(weights: Weights) -> dict[str, QTensor]:
        with torch.no_grad():
            return {name: QTensor(t, FLOAT32) for name, t in dequantize(phi, given.architecture, weights).items()}

    made = [replace(update, weights=lifted(update.weights)) for update in updates]
    sides = {name: tensor for name, tensor in first.memory.items() if name.startswith((LOW, HIGH))}
    assert same(ProWDSwa().aggregate(given, replace(first, memory=sides), made).model, second.model)
    plain = ProWDSwa().aggregate(given, replace(first, memory=sides), updates)
    assert not same(plain.model, second.model), "the dequantizer has an effect"


def test_the_dequantizer_learns_is_kept_and_is_deterministic() -> None:
    given, method = conv_scene(), ProWDDeq(dequantizer=SMALL)
    start, end = method.init(given), after(method, given)
    assert same(end.memory, after(method, given).memory)
    changed = [name for name in start.memory if not torch.equal(start.memory[name], end.memory[name])]
    assert changed
    assert all(name.startswith(PHI) for name in end.memory)
    assert not same(start.memory, method.init(conv_scene(seed=6)).memory)


def test_a_side_that_is_absent_keeps_its_average_and_masks_nothing() -> None:
    method = ProWDSwa()
    state = after(method, DOT, rounds=2)
    updates = random_updates(DOT, 3)
    only_high = method.aggregate(DOT, state, updates[2:])
    assert torch.equal(only_high.memory[f"{LOW}fc.weight"], state.memory[f"{LOW}fc.weight"])
    assert not torch.equal(only_high.memory[f"{HIGH}fc.weight"], state.memory[f"{HIGH}fc.weight"])
    assert same(only_high.model, FedAvg().aggregate(DOT, state, updates[2:]).model)
    only_low = method.aggregate(DOT, state, updates[:2])
    assert same(only_low.model, FedAvg().aggregate(DOT, state, updates[:2]).model)


def test_low_is_below_the_mean_of_the_widths_not_of_the_clients() -> None:
    given = replace(scene(INT6, INT6, INT6, INT8, INT16, architecture=dot()), uplink="native")  # mean 10
    name, method = "fc.weight", ProWDSwa()
    weights = {n: codes(given.clients[n].width, n + 1, 0, 0, 0, shape=(2, 2)) for n in range(5)}
    updates = [Update(1, n, given.clients[n].width, 12, {name: weights[n]}) for n in range(5)]
    found = method.aggregate(given, method.init(given), updates).memory
    assert float(found[f"{HIGH}{name}"][0, 0]) == 5 / 2**15
    torch.testing.assert_close(found[f"{LOW}{name}"][0, 0], torch.tensor(((1 + 2 + 3) / 32 + 4 / 128) / 4))


def test_what_did_not_move_is_dropped_and_tau_is_heeded() -> None:
    still, moving = floats(0.5, 0.5, 0.5, 0.5, shape=(2, 2)), floats(0.5, 0.75, 0.75, 0.25, shape=(2, 2))
    given = scene(INT8, FLOAT32, architecture=dot())

    def round_(low: QTensor, high: QTensor) -> list[Update]:
        weights = (low, INT8), (high, FLOAT32)
        return [Update(1, n, width, 12, {"fc.weight": tensor}) for n, (tensor, width) in enumerate(weights)]

    def kept(method: ProWDSwa) -> list[bool]:
        state = method.aggregate(given, method.init(given), round_(still, still))
        found = method.aggregate(given, state, round_(moving, floats(1, 1, 0.75, 1, shape=(2, 2)))).model["fc.weight"]
        return (found.flatten() != torch.tensor([1, 1, 0.75, 1.0])).tolist()[:2]

    assert kept(ProWDSwa()) == [False, True]
    assert kept(ProWDSwa(tau=0.2)) == [False, False]


def test_an_unknown_option_is_refused_with_those_it_has() -> None:
    with pytest.raises(ConfigError, match=r"options.sparsity: .*; accepted: ladder, dequantizer, fit, tau$"):
        load_config("quick", {"method": "prowd", "options.sparsity": 1.0})


def test_a_ladder_without_a_client_s_width_is_refused_at_the_start() -> None:
    given = scene(INT4, INT6, FLOAT32, architecture=liftable())
    given = replace(given, uplink="native", buffer=torch.zeros(1, 2, 8, 8))
    with pytest.raises(ConfigError, match="buffer: 0 images"):
        ProWD().init(replace(given, buffer=torch.empty(0)))
    with pytest.raises(ConfigError, match="no rung for int6"):
        ProWD().init(given)
    assert ProWD(ladder="int4, int6, float32").init(given).memory


@pytest.mark.parametrize("method", [ProWD(), ProWDDeq()])
def test_a_network_with_nothing_to_lift_is_refused(method: ProWD) -> None:
    given = replace(scene(INT8, FLOAT32), buffer=torch.zeros(1, 2, 8, 8))
    with pytest.raises(ConfigError, match=r"dequantizer.module: 16, .* accepted: a smaller square"):
        method.init(given)
    assert ProWDSwa().init(given).model


def test_a_concurrent_fit_is_an_inline_fit_a_round_later() -> None:
    given = conv_scene()
    inline, concurrent = ProWDDeq(dequantizer=SMALL), ProWDDeq(dequantizer=SMALL, fit="concurrent")
    first = replace(concurrent.aggregate(given, concurrent.init(given), random_updates(given, 1)), round=1)
    assert same(phi_of(first), phi_of(inline.init(given))), "nothing to learn from before the first round"
    worked = concurrent.meanwhile(given, first)
    late = inline.aggregate(given, replace(inline.init(given), round=1), random_updates(given, 1))
    assert same(phi_of(worked), phi_of(late)), "the same fit, with the random stream of its round"
    second = concurrent.aggregate(given, worked, random_updates(given, 2))
    assert same(phi_of(second), phi_of(worked))
    assert second.notes["phi"] == late.notes["phi"]
    last = {name: tensor for name, tensor in second.memory.items() if name.startswith(LAST)}
    floats_only = {f"{LAST}{n}/{name}" for n in (2, 3) for name in random_updates(given, 2)[n].weights}
    assert set(last) == floats_only, "ternary weights teach nothing"
    assert all(torch.equal(last[f"{LAST}2/{name}"], t.codes) for name, t in random_updates(given, 2)[2].weights.items())


def test_native_weights_of_every_width_are_recalled() -> None:
    given = replace(scene(INT4, INT8, INT16, architecture=conv_scene().architecture), uplink="native", seed=5)
    given = replace(given, buffer=conv_scene().buffer)
    method = ProWDDeq(ladder="int4, int8, int16", dequantizer=SMALL, fit="concurrent")
    random = torch.Generator().manual_seed(1)
    updates = []
    for client in given.clients:
        slots = method.expects(given, client).items()
        drawn = {name: torch.rand(slot.shape, generator=random) * 2 - 1 for name, slot in slots}
        weights = {name: quantize(values, client.width) for name, values in drawn.items()}
        updates.append(Update(1, client.id, client.width, 12, weights))
    lifter = Lifter(given, Ladder.parse(method.ladder), SMALL)
    memory = lifter.remember(updates)
    last = [given.by_id[client] for client in lifter.remembered(memory)]
    found = lifter.recall(memory, {client: method.expects(given, client) for client in last})
    assert [net.width for net in found] == [INT8, INT16]
    for net, update in zip(found, updates[1:], strict=True):
        assert all(torch.equal(net.weights[name].value(), update.weights[name].value()) for name in update.weights)


@pytest.mark.parametrize("fit", ["inline", "concurrent"])
def test_stages_end_in_what_was_averaged(fit: Literal["inline", "concurrent"]) -> None:
    given, method = conv_scene(), ProWDDeq(dequantizer=SMALL, fit=fit)
    state, updates = method.init(given), random_updates(given, 1)[:1]
    after = method.aggregate(given, method.meanwhile(given, state), updates)
    stages = method.lift_in_stages(given, replace(after, round=1), updates[0])
    assert [list(stage) for stage in stages] == [["b.weight"]] * 5, "Int2 to Float32 in four blocks"
    assert torch.equal(stages[0]["b.weight"], updates[0].weights["b.weight"].value())
    torch.testing.assert_close(stages[-1]["b.weight"], after.model["b.weight"], rtol=0, atol=0)
    assert not torch.equal(stages[-1]["b.weight"], stages[0]["b.weight"])


def test_who_lifts_in_stages() -> None:
    given, updates = conv_scene(), random_updates(conv_scene(), 1)
    assert isinstance(ProWD(), LiftsInStages)
    assert not isinstance(FedAvg(), LiftsInStages)
    swa, whole = ProWDSwa(), ProWD(dequantizer=SMALL)
    assert swa.lift_in_stages(given, swa.init(given), updates[0]) == [], "selection alone lifts nothing"
    assert whole.lift_in_stages(given, whole.init(given), updates[2]) == [], "a Float32 client is where it is to go"


def phi_of(state: ServerState) -> dict[str, torch.Tensor]:
    return {name: tensor for name, tensor in state.memory.items() if name.startswith(PHI)}


@pytest.mark.parametrize("fit", ["inline", "concurrent"])
def test_prowd_survives_a_restart(fit: str, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"clients": "int8:2, float32:2", "steps": 2, "batch": 8, "buffer": 6, "method": "prowd"}
    options = {"dequantizer": {"epochs": 1, "images": 4, "steps": 4}, "fit": fit}
    whole = prowd.run(out=tmp_path / "a", data=arrays(), workers=1, rounds=3, options=options, **settings)
    prowd.run(out=tmp_path / "b", data=arrays(), workers=2, rounds=2, options=options, **settings)
    prowd.run(resume=tmp_path / "b", data=arrays(), workers=1, rounds=3)
    assert outcome(tmp_path / "b") == outcome(whole.path)
    assert [len(line["notes"]["phi"]["recon"]) for line in whole.rounds] == [int(fit == "inline"), 1, 1]
