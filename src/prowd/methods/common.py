"""Parts that methods share: functions, not base classes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from prowd.device.measures import in_detail
from prowd.device.scene import ClientSpec, Scene
from prowd.device.training import Correction, Model, accuracy, build_model, fit
from prowd.methods.base import Device, ServerState, Slot
from prowd.nets.architecture import gain_name, init_limit, weight_name
from prowd.nets.float32 import initial_gains
from prowd.numbers import averages as rules
from prowd.numbers.bits import INT2, Bitwidth
from prowd.numbers.quantize import QTensor, Weights, quantize, ternarize
from prowd.numbers.seeds import generator
from prowd.wire import Task, Update

__all__ = [
    "MEASURE_IN_DETAIL",
    "MEASURE_RECEIVED",
    "MEASURE_TRAINED",
    "average",
    "averages",
    "global_model",
    "initial_state",
    "is_low",
    "local_round",
    "model_slots",
    "quantized_model",
    "received",
    "reply",
    "rescaled",
    "shares",
    "side_averages",
    "uplink",
    "uplink_slots",
    "values",
]

MEASURE_RECEIVED, MEASURE_TRAINED = "measure_received", "measure_trained"  # settings of a task
MEASURE_IN_DETAIL = "measure_in_detail"  # by class and person; see device.measures


# Server: the model everybody shares


def initial_state(scene: Scene) -> ServerState:
    """w ~ U(−L, L) by layer (Appendix B) or what the run starts from, and the gains of the Float32 twin."""
    vectors = {name: scene.start[name] for name in scene.architecture.shapes if scene.start}
    for layer in scene.architecture.weight_layers if not scene.start else ():
        uniform = torch.rand(layer.shape, generator=generator(scene.seed, "init", layer.name))
        vectors[weight_name(layer)] = (2 * uniform - 1) * init_limit(layer)
    with_gains = any(width.is_float for width in scene.counts)
    gains = initial_gains(scene.architecture, vectors) if with_gains else {}
    model = {**vectors, **{name: scene.start.get(name, fresh) for name, fresh in gains.items()}}
    return ServerState(0, rescaled(scene, model) if scene.start else model)


def quantized_model(scene: Scene, model: Mapping[str, Tensor], client: ClientSpec) -> dict[str, QTensor]:
    """Q_{s_n}(w_G) (Algorithm 1, line 5), and the gains where the client uses them."""
    return {name: quantize(model[name], client.width) for name in model_slots(scene, client)}


def received(scene: Scene, model: Mapping[str, Tensor], updates: Sequence[Update]) -> dict[Bitwidth, dict[str, Tensor]]:
    """What the clients of each width that have answered were sent of a model, as floats."""
    some = {update.width: scene.by_id[update.client] for update in updates}
    return {
        width: {name: tensor.value() for name, tensor in quantized_model(scene, model, client).items()}
        for width, client in some.items()
    }


def model_slots(scene: Scene, client: ClientSpec) -> dict[str, Slot]:
    """The tensors of the shared model as a client receives them."""
    slots = {name: Slot(shape, client.width) for name, shape in scene.architecture.shapes.items()}
    if client.width.is_float and scene.local.float32.gains == "average":
        for layer in scene.architecture.weight_layers:
            slots[gain_name(layer)] = Slot((layer.outputs,), client.width)
    return slots


def uplink_slots(scene: Scene, client: ClientSpec) -> dict[str, Slot]:
    """The tensors of the shared model as a client sends them."""
    ternary = scene.uplink == "ternary" and not client.width.is_float
    width = INT2 if ternary else client.width
    return {name: replace(slot, width=width) for name, slot in model_slots(scene, client).items()}


def is_low(scene: Scene, width: Bitwidth) -> bool:
    """Whether a width is below the mean bitwidth of the federation's widths (Section 4.3); Float32 counts 32."""
    bits = [one.bits for one in scene.counts]
    return width.bits < sum(bits) / len(bits)


def average(scene: Scene, tensors: Sequence[Tensor], shares: Sequence[float]) -> Tensor:
    """The mean by shares, or what the federation has chosen in its place: every average of updates is made here."""
    return rules.average(tensors, shares, scene.defence.robust)


def shares(updates: Sequence[Update]) -> list[float]:
    """How much each update counts: by its number of examples, as far as the server believes it."""
    return [float(update.num_examples) for update in updates]


def averages(
    scene: Scene,
    updates: Sequence[Update],
    values: Sequence[Mapping[str, Tensor]],
    counts: Sequence[float] | None = None,
) -> dict[str, Tensor]:
    """Mean of each tensor over the clients that have it (gains: the Float32 clients), by examples or given shares."""
    weights = shares(updates) if counts is None else counts
    means: dict[str, Tensor] = {}
    for name in dict.fromkeys(name for sent in values for name in sent):
        members = [n for n, sent in enumerate(values) if name in sent]
        means[name] = average(scene, [values[n][name] for n in members], [weights[n] for n in members])
    return means


def side_averages(
    scene: Scene, updates: Sequence[Update], values: Sequence[Mapping[str, Tensor]]
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Average weights of the low-bit and of the high-bit clients; nothing for a side that is absent."""
    sides: list[dict[str, Tensor]] = []
    for low in (True, False):
        members = [n for n, update in enumerate(updates) if is_low(scene, update.width) == low]
        counts = shares([updates[n] for n in members])
        names = scene.architecture.shapes if members else ()
        sides.append({name: average(scene, [values[n][name] for n in members], counts) for name in names})
    return sides[0], sides[1]


def values(updates: Sequence[Update]) -> list[dict[str, Tensor]]:
    """What was sent, as floats."""
    return [{name: tensor.value() for name, tensor in update.weights.items()} for update in updates]


def global_model(
    scene: Scene, model: Mapping[str, Tensor], updates: Sequence[Update], shares: Sequence[float]
) -> dict[str, Tensor]:
    """Average what was sent, then rescale; what nobody sent stays."""
    return rescaled(scene, {**model, **averages(scene, updates, values(updates), shares)})


def rescaled(scene: Scene, model: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Bring v back to the rms of its initialisation, L/√3: ternarization depends on it, Float32 clients do not."""
    scaled = dict(model)
    for layer in scene.architecture.weight_layers if scene.rescale != "none" else ():
        vector = model[weight_name(layer)].double()
        axes = tuple(range(1 if scene.rescale == "channel" else 0, vector.dim()))
        rms = vector.square().mean(axes, keepdim=True).sqrt()
        factor = torch.where(rms > 0, init_limit(layer) / math.sqrt(3) / rms, 1.0)
        scaled[weight_name(layer)] = (vector * factor).float()
    return scaled


# Client: one round of local work


def local_round(
    scene: Scene,
    task: Task,
    device: Device,
    weights: Weights,
    correction: Correction | None = None,
) -> tuple[Model, dict[str, float]]:
    """Measure the model as received, train it as the task says, measure it again (as far as it asks)."""
    gains = [gain_name(layer) for layer in scene.architecture.weight_layers]
    own_gains = device.spec.width.is_float and not set(gains) & set(weights)  # they are neither sent nor received
    remembered = (device.memory.load(task.round) or {}) if own_gains else {}
    model = build_model(scene, device.spec.width, {**weights, **remembered}, task)
    metrics: dict[str, float] = {}
    if task.settings.get(MEASURE_RECEIVED):
        metrics["accuracy_received"] = accuracy(model, device.test, scene.device)
    metrics["loss"] = fit(model, device.train, scene, task, correction)
    if device.snapshots is not None and device.snapshots.wants(task.round) and _is_sampled(scene, device):
        trained = model.weights()
        samples = {name: trained[name] for name in scene.architecture.shapes}
        device.snapshots.keep_client(task.round, task.client, samples)
    if task.settings.get(MEASURE_TRAINED):
        metrics["accuracy_trained"] = accuracy(model, device.test, scene.device)
        if device.own is not None and len(device.own):
            metrics["accuracy_own"] = accuracy(model, device.own, scene.device)
        if detail := task.settings.get(MEASURE_IN_DETAIL):
            metrics |= in_detail(model, device.test, scene.architecture.classes, detail, scene.device)
    if own_gains:
        trained = model.weights()
        device.memory.save(task.round, {gain: trained[gain] for gain in gains})
    return model, metrics


def _is_sampled(scene: Scene, device: Device) -> bool:
    """Whether a client is among those of its width whose weights are kept."""
    return device.snapshots is not None and device.snapshots.wants_client(scene.ranks[device.spec.id])


def uplink(scene: Scene, client: ClientSpec, weights: Weights) -> dict[str, QTensor]:
    """What a client sends: Q_Int2(q) or q at integer widths, the floats themselves at Float32."""
    slots = uplink_slots(scene, client)
    return {name: ternarize(weights[name]) if slot.width == INT2 else weights[name] for name, slot in slots.items()}


def reply(task: Task, device: Device, weights: Weights, metrics: Mapping[str, float]) -> Update:
    """Address an update."""
    return Update(task.round, task.client, device.spec.width, device.spec.num_examples, weights, metrics)
