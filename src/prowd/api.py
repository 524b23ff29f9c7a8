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
    from prowd.runs.observe import RunObserver
    from prowd.runs.run import RunResult, Session

__all__ = ["compare", "make_comparison", "observers_for", "open_session", "plan_comparison", "run"]

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
    keep_weights: bool = False,
    progress: bool = False,
    track: str | Sequence[str] = (),
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
        model: a model's name, or your own network, of which the shape is used: any module that torch.fx can trace
            into convolutions, linear layers, ReLU, pooling and additions (docs/extending.md). Biases are refused,
            unless the setting ``bias="drop"`` leaves them out.
        keep_weights: begin with the weights of the network too; batch norms are folded, as by ``prowd.convert``.
        progress: show the progress bar of the command line.
        track: trackers that every round is sent to: ``"tensorboard"``, ``"mlflow"``, ``"wandb"`` (docs/trackers.md).
        **settings: any setting of the configuration, such as ``rounds=5`` or ``float32={"lr": 0.1}``.

    Scripts that use more than one worker need the usual ``if __name__ == "__main__":`` guard.
    """
    from rich.console import Console

    _refuse_in_a_worker("prowd.run")
    _check_workers(workers)
    observers = observers_for(Console() if progress else None, _listed(track))
    session = open_session(source, settings, out=out, resume=resume, data=data, model=model, keep_weights=keep_weights)
    return session.run(workers, *observers)


def observers_for(console: Console | None, trackers: Sequence[str]) -> list[RunObserver]:
    """Those that show a run on the console, and send it to trackers, where that is wanted."""
    from prowd.views.console import RunView
    from prowd.views.trackers import load_trackers

    views = [RunView(console)] if console is not None else []
    return [*views, *(make() for make in load_trackers(trackers))]


def open_session(
    source: str | Path | None,
    settings: Mapping[str, Any],
    *,
    out: str | Path | None = None,
    resume: str | Path | None = None,
    data: Data = None,
    model: str | nn.Module | None = None,
    keep_weights: bool = False,
    progress: Progress | None = None,
) -> Session:
    """Prepare a new run, or one that goes on; ``progress`` is notified of a download."""
    from prowd.errors import ConfigError
    from prowd.runs.run import Session

    if resume is not None and (source, out, model, keep_weights) != (None, None, None, False):
        raise ConfigError("resume: goes with neither source, out, model nor weights, which the run directory has")
    settings = {**settings, **_names(data, model)}
    arrays = None if isinstance(data, str | Path) else data
    if resume is not None:
        return Session.resume(Path(resume), settings, data=arrays, progress=progress)
    net = None if isinstance(model, str) else model
    return Session.start(
        source or DEFAULT,
        settings,
        out=Path(out) if out else None,
        data=arrays,
        model=net,
        keep_weights=keep_weights,
        progress=progress,
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
    keep_weights: bool = False,
    progress: bool = False,
    track: str | Sequence[str] = (),
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
        data: as in ``prowd.run``.
        model: as in ``prowd.run``.
        keep_weights: as in ``prowd.run``.
        progress: as in ``prowd.run``.
        track: as in ``prowd.run``; one place for all runs.
        **settings: as in ``prowd.run``; an option without a method's name, such as ``options={"tau": 0.3}``, is for
            every method that has it.

    Runs that failed are in ``failures`` with their reasons, and not in ``rows``.
    """
    from rich.console import Console

    from prowd.views.trackers import load_trackers

    _refuse_in_a_worker("prowd.compare")
    _check_workers(workers)
    load_trackers(_listed(track))
    plan = plan_comparison(
        source,
        settings,
        methods=methods,
        seeds=seeds,
        out=out,
        baseline=baseline,
        data=data,
        model=model,
        keep_weights=keep_weights,
    )
    return make_comparison(plan, workers, Console() if progress else None, track=_listed(track))


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
    keep_weights: bool = False,
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
        keep_weights=keep_weights,
        progress=progress,
    )


def make_comparison(
    plan: Plan, workers: int | None, console: Console | None, *, track: Sequence[str] = ()
) -> Comparison:
    """Make what is missing of a comparison, shown on the console where there is one."""
    from prowd.comparison import ComparisonObserver, cores_for, make
    from prowd.views.console import ComparisonView
    from prowd.views.trackers import track_comparison

    cores = workers or cores_for(plan)
    make_observers = track_comparison(plan, track) if track else None
    if console is None:
        return make(plan, cores, ComparisonObserver(), make_observers)
    view = ComparisonView(console, plan)
    try:
        return make(plan, cores, view, make_observers)
    finally:
        view.close()


def _names(data: Data, model: str | nn.Module | None) -> dict[str, str]:
    """Data and a model that are given by name: settings like any other."""
    return {key: str(value) for key, value in (("data", data), ("model", model)) if isinstance(value, str | Path)}


def _listed(track: str | Sequence[str]) -> list[str]:
    return [track] if isinstance(track, str) else list(track)


def _refuse_in_a_worker(name: str) -> None:
    import multiprocessing

    from prowd.errors import ConfigError

    if getattr(multiprocessing.current_process(), "_inheriting", False):  # a worker that is importing the user's script
        raise ConfigError(f'{name}: call it under `if __name__ == "__main__":`, which worker processes skip')


def _check_workers(workers: int | None) -> None:
    from prowd.errors import ConfigError

    if workers is not None and (not isinstance(workers, int) or workers < 1):
        raise ConfigError(f"workers: {workers!r} is wrong; accepted: 1 or more")
