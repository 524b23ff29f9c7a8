"""The Python interface, and what it shares with the command line. Heavy imports wait until they are needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console
    from torch import nn

    from prowd.comparison import Comparison, Plan
    from prowd.data import Progress
    from prowd.device.training import Model
    from prowd.nets.tracing import Bias
    from prowd.numbers.bits import Bitwidth
    from prowd.runs.observe import RunObserver
    from prowd.runs.run import RunResult, Session

__all__ = ["compare", "convert", "make_comparison", "observers_for", "open_session", "plan_comparison", "run"]

DEFAULT = "quick"
Data = str | Path | Mapping[str, Any] | None


def run(
    source: str | Path | None = None,
    *,
    out: str | Path | None = None,
    resume: str | Path | None = None,
    workers: int | None = None,
    data: Data = None,
    model: str | nn.Module | None = None,
    progress: bool = False,
    tensorboard: bool = False,
    **settings: Any,
) -> RunResult:
    """Run a federation, or continue one, and return its results.

    Args:
        source: a preset's name or the path of a TOML file; by default ``quick``.
        out: the run directory to make; by default a new one under ``runs/``.
        resume: a run directory to continue instead; only ``rounds``, ``kernel`` and ``links`` may be given with it.
        workers: processes that train clients; by default one a core. Results do not depend on it.
        data: a data set's name, an ``.npz`` file, or a dict of the arrays ``x_train``, ``y_train``, ``x_test`` and
            ``y_test`` (images NCHW: uint8, int8 codes, or floats in [−1, 1]).
        model: a model's name, or your own network, of which only the shape is used: any module that torch.fx can trace
            into convolutions, linear layers, ReLU, pooling and additions (docs/extending.md). Biases are refused,
            unless the setting ``bias="drop"`` leaves them out.
        progress: show the progress bar of the command line.
        tensorboard: write event files to the folder ``tensorboard`` of the run directory too (docs/tensorboard.md).
        **settings: any setting of the configuration, such as ``rounds=5`` or ``float32={"lr": 0.1}``.

    Scripts that use more than one worker need the usual ``if __name__ == "__main__":`` guard.
    """
    from rich.console import Console

    _refuse_in_a_worker("prowd.run")
    _check_workers(workers)
    observers = observers_for(Console() if progress else None, tensorboard=tensorboard)
    session = open_session(source, settings, out=out, resume=resume, data=data, model=model)
    return session.run(workers, *observers)


def observers_for(console: Console | None, *, tensorboard: bool) -> list[RunObserver]:
    """Those that show a run on the console, and write it for TensorBoard, where that is wanted."""
    from prowd.views.console import RunView
    from prowd.views.tensorboard import TensorBoard

    views = [RunView(console)] if console is not None else []
    boards = [TensorBoard()] if tensorboard else []
    return [*views, *boards]


def open_session(
    source: str | Path | None,
    settings: Mapping[str, Any],
    *,
    out: str | Path | None = None,
    resume: str | Path | None = None,
    data: Data = None,
    model: str | nn.Module | None = None,
    progress: Progress | None = None,
) -> Session:
    """Prepare a new run, or one that goes on; ``progress`` is notified of a download."""
    from prowd.errors import ConfigError
    from prowd.runs.run import Session

    if resume is not None and (source, out, model) != (None, None, None):
        raise ConfigError("resume: goes with neither source, out nor model, which the run directory already has")
    settings = {**settings, **_names(data, model)}
    arrays = None if isinstance(data, str | Path) else data
    if resume is not None:
        return Session.resume(Path(resume), settings, data=arrays, progress=progress)
    net = None if isinstance(model, str) else model
    return Session.start(
        source or DEFAULT, settings, out=Path(out) if out else None, data=arrays, model=net, progress=progress
    )


def compare(
    source: str | Path | None = None,
    *,
    methods: Sequence[str] | None = None,
    seeds: Sequence[int] | None = None,
    out: str | Path | None = None,
    workers: int | None = None,
    baseline: str | None = None,
    data: Data = None,
    model: str | nn.Module | None = None,
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
        data: as in ``prowd.run``.
        model: as in ``prowd.run``.
        progress: as in ``prowd.run``.
        **settings: as in ``prowd.run``; an option without a method's name, such as ``options={"tau": 0.3}``, is for
            every method that has it.

    Runs that failed are in ``failures`` with their reasons, and not in ``rows``.
    """
    from rich.console import Console

    from prowd.views.tensorboard import load_writer

    _refuse_in_a_worker("prowd.compare")
    _check_workers(workers)
    if tensorboard:
        load_writer()
    plan = plan_comparison(
        source, settings, methods=methods, seeds=seeds, out=out, baseline=baseline, data=data, model=model
    )
    return make_comparison(plan, workers, Console() if progress else None, tensorboard=tensorboard)


def plan_comparison(
    source: str | Path | None,
    settings: Mapping[str, Any],
    *,
    methods: Sequence[str] | None = None,
    seeds: Sequence[int] | None = None,
    out: str | Path | None = None,
    baseline: str | None = None,
    data: Data = None,
    model: str | nn.Module | None = None,
    progress: Progress | None = None,
) -> Plan:
    """Plan a comparison, of what the source suggests where no methods or seeds are given."""
    import operator

    from prowd.comparison import make_plan
    from prowd.config.files import read_suggestion
    from prowd.errors import ConfigError
    from prowd.runs.build import as_arrays

    if methods is not None and (isinstance(methods, str) or not all(isinstance(name, str) for name in methods)):
        raise ConfigError(f"methods: {methods!r} is wrong; accepted: a list of names")
    try:
        numbers = None if seeds is None else [operator.index(seed) for seed in seeds]
    except TypeError:
        raise ConfigError(f"seeds: {seeds!r} is wrong; accepted: a list of whole numbers") from None
    suggested = read_suggestion(source or DEFAULT)
    return make_plan(
        source or DEFAULT,
        {**settings, **_names(data, model)},
        list(suggested.methods if methods is None else methods),
        list(suggested.seeds if numbers is None else numbers),
        out=Path(out) if out else None,
        baseline=baseline,
        arrays=None if isinstance(data, str | Path) else as_arrays(data),
        model=None if isinstance(model, str) else model,
        progress=progress,
    )


def make_comparison(
    plan: Plan, workers: int | None, console: Console | None, *, tensorboard: bool = False
) -> Comparison:
    """Make what is missing of a comparison, shown on the console where there is one."""
    from prowd.comparison import ComparisonObserver, cores_for, make
    from prowd.views.console import ComparisonView
    from prowd.views.tensorboard import observe_comparison

    cores = workers or cores_for(plan)
    make_observer = observe_comparison(plan) if tensorboard else None
    if console is None:
        return make(plan, cores, ComparisonObserver(), make_observer)
    view = ComparisonView(console, plan)
    try:
        return make(plan, cores, view, make_observer)
    finally:
        view.close()


def _names(data: Data, model: str | nn.Module | None) -> dict[str, str]:
    """Data and a model that are given by name: settings like any other."""
    return {key: str(value) for key, value in (("data", data), ("model", model)) if isinstance(value, str | Path)}


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
    net: nn.Module,
    width: str | Bitwidth,
    input_shape: tuple[int, int, int],
    *,
    bias: Bias = "refuse",
    device: str = "cpu",
) -> Model:
    """Convert a network to a width, weights included, and return it with ``step``, ``logits`` and ``weights``.

    Images are bytes, uint8 or int8 codes, at every width.
    Weights enter the space that all widths share as α·w, where they are quantized; at Float32 the function of the
    network is unchanged. Batch norms are folded. What a network has of biases, or gets by that, is refused, unless
    ``bias="drop"`` leaves them out.
    """
    import torch

    from prowd.device.scene import Scene
    from prowd.device.training import build_model
    from prowd.nets.tracing import read
    from prowd.numbers.bits import Bitwidth
    from prowd.numbers.quantize import quantize
    from prowd.wire import Task

    reading = read(net, input_shape, bias, trained=True)
    architecture = reading.architecture
    target = Bitwidth.parse(width) if isinstance(width, str) else width
    found = reading.weights().items()
    weights = {name: quantize(w * alpha, target) for (name, w), alpha in zip(found, architecture.alphas, strict=True)}
    scene = Scene(architecture, (), device=torch.device(device))
    return build_model(scene, target, weights, Task(0, scene.seed, 0, weights, work=scene.work(target, 0)))
