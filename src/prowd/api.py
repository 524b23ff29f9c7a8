"""The Python interface: what ``import prowd`` offers. Heavy imports wait until they are needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import nn

    from prowd.comparison import Comparison
    from prowd.device.training import Model
    from prowd.numbers.bits import Bitwidth
    from prowd.runs.run import RunResult

__all__ = ["compare", "convert", "run"]


def run(
    source: str | Path | None = None,
    *,
    out: str | Path | None = None,
    resume: str | Path | None = None,
    workers: int | None = None,
    data: str | Path | Mapping[str, Any] | None = None,
    model: str | nn.Sequential | None = None,
    progress: bool = False,
    tensorboard: bool = False,
    **settings: Any,
) -> RunResult:
    """Run a federation, or continue one, and return its results.

    Args:
        source: a preset's name or the path of a TOML file; by default ``quick``.
        out: the run directory to make; by default a new one under ``runs/``.
        resume: a run directory to continue instead; only ``rounds`` and ``kernel`` may be given with it.
        workers: processes that train clients; by default one a core. Results do not depend on it.
        data: a data set's name, an ``.npz`` file, or a dict of the arrays ``x_train``, ``y_train``, ``x_test`` and
            ``y_test`` (uint8 NCHW, or floats in [−1, 1]).
        model: a model's name, or your own Sequential of Conv2d, Linear, ReLU, MaxPool2d and Flatten, of which only the
            shape is used.
        progress: show the progress bar of the command line.
        tensorboard: write event files to the folder ``tensorboard`` of the run directory too (docs/tensorboard.md).
        settings: any setting of the configuration, such as ``rounds=5`` or ``float32={"lr": 0.1}``.

    Scripts that use more than one worker need the usual ``if __name__ == "__main__":`` guard.
    """
    from rich.console import Console

    from prowd.errors import ConfigError
    from prowd.runs.run import Session, Watcher
    from prowd.runs.tensorboard import TensorBoard, beside
    from prowd.views.console import RunView

    _refuse_in_a_worker("prowd.run")
    _check_workers(workers)
    if resume is not None and (source, out, model) != (None, None, None):
        raise ConfigError("resume: goes with neither source, out nor model, which the run directory already has")
    board = TensorBoard() if tensorboard else None
    settings |= {key: str(value) for key, value in (("data", data), ("model", model)) if isinstance(value, str | Path)}
    arrays = None if isinstance(data, str | Path) else data
    net = None if isinstance(model, str) else model
    if resume is not None:
        session = Session.resume(Path(resume), settings, data=arrays)
    else:
        session = Session.start(source or "quick", settings, out=Path(out) if out else None, data=arrays, model=net)
    view = RunView(Console()) if progress else None
    try:
        with beside(view or Watcher(), board) as watcher:
            return session.run(workers, watcher)
    finally:
        if view is not None:
            view.close()


def compare(
    source: str | Path | None = None,
    *,
    methods: Sequence[str] | None = None,
    seeds: Sequence[int] | None = None,
    out: str | Path | None = None,
    workers: int | None = None,
    baseline: str | None = None,
    data: str | Path | Mapping[str, Any] | None = None,
    model: str | nn.Sequential | None = None,
    progress: bool = False,
    tensorboard: bool = False,
    **settings: Any,
) -> Comparison:
    """Run methods over seeds, in parallel, and return their table; what is already made is not made again.

    Args:
        source: a preset's name or the path of a TOML file; by default ``quick``.
        methods: names of methods, your own as ``FILE.py:CLASS`` or ``package.module:CLASS``; by default what the source
            suggests, or FedAvg and ProWD.
        seeds: one run for each, of every method; by default what the source suggests, or 0, 1, 2.
        out: the directory of the comparison; by default one under ``runs/``, the same for the same settings.
        workers: processes at work at once; by default one a core. Results do not depend on it.
        baseline: the method with which the others are compared, seed by seed; by default FedAvg, or the first.
        tensorboard: write event files to the folder ``tensorboard`` of the directory too, one folder for each run.
        data, model, progress, settings: as in ``prowd.run``; an option without a method's name, such as
            ``options={"sparsity": 0.3}``, is for every method that has it.

    Runs that failed are in ``failures`` with their reasons, and not in ``rows``.
    """
    _refuse_in_a_worker("prowd.compare")
    import operator

    from rich.console import Console

    from prowd.comparison import Onlooker, cores_for, make, make_plan
    from prowd.config.files import read_suggestion
    from prowd.errors import ConfigError
    from prowd.runs.build import as_arrays
    from prowd.runs.tensorboard import load_writer
    from prowd.views.console import ComparisonView

    _check_workers(workers)
    if methods is not None and (isinstance(methods, str) or not all(isinstance(name, str) for name in methods)):
        raise ConfigError(f"methods: {methods!r} is wrong; accepted: a list of names")
    try:
        numbers = None if seeds is None else [operator.index(seed) for seed in seeds]
    except TypeError:
        raise ConfigError(f"seeds: {seeds!r} is wrong; accepted: a list of whole numbers") from None
    settings |= {key: str(value) for key, value in (("data", data), ("model", model)) if isinstance(value, str | Path)}
    if tensorboard:
        load_writer()
    suggested = read_suggestion(source or "quick")
    plan = make_plan(
        source or "quick",
        settings,
        list(suggested.methods if methods is None else methods),
        list(suggested.seeds if numbers is None else numbers),
        out=Path(out) if out else None,
        baseline=baseline,
        arrays=None if isinstance(data, str | Path) else as_arrays(data),
        model=None if isinstance(model, str) else model,
    )
    cores = workers or cores_for(plan)
    if not progress:
        return make(plan, cores, Onlooker(), tensorboard=tensorboard)
    view = ComparisonView(Console(), plan)
    try:
        return make(plan, cores, view, tensorboard=tensorboard)
    finally:
        view.close()


def _refuse_in_a_worker(name: str) -> None:
    import multiprocessing

    from prowd.errors import ConfigError

    if getattr(multiprocessing.current_process(), "_inheriting", False):  # a worker that is importing the user's script
        raise ConfigError(f'{name}: call it under `if __name__ == "__main__":`, which worker processes skip')


def _check_workers(workers: int | None) -> None:
    from prowd.errors import ConfigError

    if workers is not None and (not isinstance(workers, int) or workers < 1):
        raise ConfigError(f"workers: {workers!r} is wrong; accepted: 1 or more")


def convert(
    net: nn.Sequential, width: str | Bitwidth, input_shape: tuple[int, int, int], *, device: str = "cpu"
) -> Model:
    """Convert a network to a width, weights included, and return it with ``step``, ``logits`` and ``weights``.

    Weights enter the space that all widths share as α·w, where they are quantized; at Float32 the function of the
    network is unchanged (but for biases, which are left out).
    """
    import torch

    from prowd.device.scene import Scene
    from prowd.device.training import build_model
    from prowd.nets.architecture import weight_name
    from prowd.nets.sequential import describe, weight_modules
    from prowd.numbers.bits import Bitwidth
    from prowd.numbers.quantize import quantize

    architecture = describe(net, input_shape)
    target = Bitwidth.parse(width) if isinstance(width, str) else width
    modules = weight_modules(net)
    weights = {
        weight_name(layer): quantize(modules[layer.name].weight.detach().float() * alpha, target)
        for layer, alpha in zip(architecture.weight_layers, architecture.alphas, strict=True)
    }
    return build_model(Scene(architecture, (), device=torch.device(device)), target, weights, round_=0, client=0)
