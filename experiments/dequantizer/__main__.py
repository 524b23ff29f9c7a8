"""What φ recovers from ternary weights. Run with ``python -m experiments.dequantizer [--seeds 0 1 2]``.

Ten Float32 nets learn the digits, each on its own tenth of the images, for some rounds. After every round φ is fitted
on the weights that five of them have by then (Algorithm 2, warm-started); at the end the other five, which φ has never
seen, send their modules as Q_Int2(v), and a network is rebuilt from what each dequantizer makes of them:

identity       the ternary values as they are
level mean     the mean of the fitted nets' weights at each of the three levels
φ, untrained   before the first fit
φ              after the last
memory         the mean of the fitted nets' weights, the message ignored (a reference, not a dequantizer)

--start shared (default): all nets start from the same weights, as in a federation. --start own: each from its own.
Weights are drawn uniformly, so that with starts of their own the ternary values are the conditional medians already and
hold nothing about each other: there φ has nothing to find. What φ learns in a federation is the common start.

--epochs is by default four times that of a round's fit (DequantizerSettings): 20 rounds here stand for 80.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from prowd.data import Dataset, load, partition
from prowd.device.scene import LocalSettings, Scene
from prowd.device.training import Examples, build_model
from prowd.device.training import fit as train
from prowd.methods.prowd.dequantizer import Dequantizer, DequantizerSettings, Ladder, Net, Source, fit, lift
from prowd.nets import Architecture, build
from prowd.nets.architecture import init_limit, weight_name
from prowd.nets.float32 import initial_gains
from prowd.nets.inputs import to_unit
from prowd.numbers.bits import FLOAT32
from prowd.numbers.quantize import QTensor
from prowd.numbers.seeds import generator
from prowd.wire import Task

CLIENTS, FITTED, STEPS, BUFFER = 10, 5, 10, 50
LADDER = Ladder.parse("int2, int4, int8, int16, float32")
LEVELS = (-0.5, 0.0, 0.5)
CPU = torch.device("cpu")

Modules = dict[tuple[int, int], Tensor]
"""The modules of a net, by the shape of their kernels."""
Result = tuple[float, float]
"""Mean |w − ŵ| and accuracy of one held-out net on images that nobody concerned has seen."""


def start(architecture: Architecture, seed: int, client: int) -> dict[str, QTensor]:
    """Weights of the initialisation (Appendix B)."""
    vectors: dict[str, Tensor] = {}
    for layer in architecture.weight_layers:
        uniform = torch.rand(layer.shape, generator=generator(seed, "init", layer.name, client))
        vectors[weight_name(layer)] = (2 * uniform - 1) * init_limit(layer)
    tensors = {**vectors, **initial_gains(architecture, vectors)}
    return {name: QTensor(tensor, FLOAT32) for name, tensor in tensors.items()}


def evaluate(source: Source, modules: Modules, unseen: Examples) -> Result:
    """How far ``modules`` are from the net's own, and what the net does with them."""
    weights = {
        name: weight
        for kernel, group in source.groups.items()
        for name, weight in group.tensors(modules[kernel]).items()
    }
    with torch.no_grad():
        predicted = source.predict(to_unit(unseen.images), weights).argmax(1)
    distances = torch.cat([(true - modules[kernel]).abs().flatten() for kernel, true in truth(source).items()])
    return float(distances.mean()), float((predicted == unseen.labels).float().mean())


def unseen_by(client: int, data: Sequence[Examples], dataset: Dataset) -> Examples:
    """The test set, and the images of the other held-out nets: seen neither by this net nor by those φ learns from."""
    others = [data[other] for other in range(FITTED, CLIENTS) if other != client]
    images = torch.cat([dataset.x_test, *(examples.images for examples in others)])
    return Examples(images, torch.cat([dataset.y_test, *(examples.labels for examples in others)]))


def run(seed: int, arguments: argparse.Namespace, dataset: Dataset) -> dict[str, list[Result]]:
    """One seed: the results of every dequantizer on every held-out net."""
    architecture = build("digits", dataset.image_shape, dataset.classes)
    scene = Scene(architecture, (), seed, local=LocalSettings(steps=STEPS, batch=32))
    parts = partition(
        dataset.y_train, dataset.classes, CLIENTS, scheme="iid", alpha=1, per_client=None, buffer=BUFFER, seed=seed
    )
    buffer = to_unit(dataset.x_train[parts.buffer])
    data = [Examples(dataset.x_train[rows], dataset.y_train[rows]) for rows in parts.clients]
    own = arguments.start == "own"
    weights = [start(architecture, seed, client if own else 0) for client in range(CLIENTS)]
    settings = DequantizerSettings(
        optimizer=arguments.optimizer,
        lr=arguments.lr,
        epochs=arguments.epochs,
        tau=arguments.tau,
        form=arguments.form,
        growth=arguments.growth,
        lam=arguments.lam,
    )
    phi, untrained = Dequantizer(LADDER, settings, seed), Dequantizer(LADDER, settings, seed)
    spent = []
    for round_ in range(arguments.rounds):
        for client in range(CLIENTS):
            task = Task(round_, seed, client, weights[client], work=scene.work(FLOAT32, round_))
            model = build_model(scene, FLOAT32, weights[client], task)
            train(model, data[client], scene, task)
            weights[client] = model.weights()
        began = time.process_time()
        nets = [Net(architecture, FLOAT32, weights[client]) for client in range(FITTED)]
        losses = fit(phi, nets, buffer, generator(seed, "phi", "fit", round_))
        spent.append(time.process_time() - began)
        if arguments.verbose:
            print(f"  round {round_ + 1}: recon {losses.recon[-1]:.4f}, distill {losses.distill[-1]:.4f}", flush=True)
    sources = [Source(Net(architecture, FLOAT32, weights[n]), LADDER, settings.module, CPU) for n in range(CLIENTS)]
    print(f"seed {seed}: {statistics.median(spent):.1f} processor seconds a fit", flush=True)
    return {
        name: [evaluate(sources[n], rebuild(sources[n]), unseen_by(n, data, dataset)) for n in range(FITTED, CLIENTS)]
        for name, rebuild in dequantizers(sources[:FITTED], untrained, phi).items()
    }


def dequantizers(
    fitted: Sequence[Source], untrained: Dequantizer, phi: Dequantizer
) -> dict[str, Callable[[Source], Modules]]:
    """Every way of rebuilding a net's modules from its ternary ones."""
    ternary, true = (
        torch.cat([modules.flatten() for source in fitted for modules in part(source).values()])
        for part in (foot, truth)
    )
    means = {level: true[ternary == level].mean() for level in LEVELS}

    def level_mean(source: Source) -> Modules:
        rebuilt = {kernel: modules.clone() for kernel, modules in foot(source).items()}
        for kernel, modules in foot(source).items():
            for level, mean in means.items():
                rebuilt[kernel][modules == level] = mean
        return rebuilt

    memory = {kernel: torch.stack([truth(source)[kernel] for source in fitted]).mean(0) for kernel in fitted[0].groups}
    return {
        "identity": foot,
        "level mean": level_mean,
        "φ, untrained": lambda source: lift(untrained, source),
        "φ": lambda source: lift(phi, source),
        "memory": lambda _: memory,
        "true weights": truth,
    }


def foot(source: Source) -> Modules:
    """q_0, the ternary modules."""
    return {kernel: group.rungs[0] for kernel, group in source.groups.items()}


def truth(source: Source) -> Modules:
    """The modules themselves, clipped to ±1."""
    return {kernel: group.rungs[-1] for kernel, group in source.groups.items()}


def spread(values: Sequence[float], digits: int) -> str:
    """Mean and standard deviation."""
    deviation = statistics.stdev(values) if len(values) > 1 else 0.0
    return f"{statistics.mean(values):.{digits}f} ± {deviation:.{digits}f}"


def main() -> None:
    """Print the table: each seed counts once, with the mean of its held-out nets."""
    defaults = DequantizerSettings()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--start", choices=["shared", "own"], default="shared")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--optimizer", choices=["adam", "sgd"], default=defaults.optimizer)
    parser.add_argument("--form", choices=["residual", "printed"], default=defaults.form)
    for name in ("lr", "tau", "lam"):
        parser.add_argument(f"--{name}", type=float, default=getattr(defaults, name))
    parser.add_argument("--growth", type=int, default=defaults.growth)
    parser.add_argument("--epochs", type=int, default=4 * defaults.epochs)
    parser.add_argument("--verbose", action="store_true", help="print the losses of every round")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    dataset = load("digits")
    runs = [run(seed, arguments, dataset) for seed in arguments.seeds]
    nets = CLIENTS - FITTED
    print(f"{arguments.start} start, {nets} held-out nets, seeds {arguments.seeds}: mean ± deviation over seeds")
    print(f"{'':14}{'mean |w − ŵ|':>20}{'accuracy, %':>20}{'net by net against φ':>24}")
    for name in runs[0]:
        errors, accuracies = ([statistics.mean(r[i] for r in found[name]) for found in runs] for i in (0, 1))
        gaps = [100 * (a[1] - b[1]) for found in runs for a, b in zip(found[name], found["φ"], strict=True)]
        percent = [100 * accuracy for accuracy in accuracies]
        print(f"{name:14}{spread(errors, 4):>20}{spread(percent, 1):>20}{spread(gaps, 1):>24}")


if __name__ == "__main__":
    main()
