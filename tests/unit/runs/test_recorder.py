"""What is written down while a run goes on, in which order, and who is told."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor

from prowd.config.schema import Rounds, RunConfig
from prowd.device.scene import Scene
from prowd.errors import RunError
from prowd.federation.engine import Federation
from prowd.federation.report import Accuracy, Attendance, RoundReport, Traffic
from prowd.methods import FedAvg, Method, ServerState
from prowd.numbers.bits import FLOAT32
from prowd.runs.directory import RunDir
from prowd.runs.observe import Recorder, RunObserver
from prowd.runs.read import read_sessions
from prowd.runs.snapshots import BLOCKS, MODEL, Snapshots, read_snapshot, server_files
from prowd.wire import Update
from tests.unit.scenes import INT4, INT8, scene

MIX = scene(FLOAT32, INT8, INT4, FLOAT32)  # mean of the widths: 44/3


@dataclass
class Diary(RunObserver):
    """Writes down what it is told, and what is on the disk by then."""

    path: Path
    entries: list[tuple[Any, ...]] = field(default_factory=list)

    def began(self, config: RunConfig, federation: Federation, path: Path, done: int) -> None:
        assert path == self.path
        self.entries.append(("began", config.name, federation.rounds, done, self.files()))

    def replied(self, round_: int, done: int, asked: int) -> None:
        self.entries.append(("replied", round_, done, asked))

    def remarks(self, report: RoundReport) -> Mapping[str, Any]:
        return {"weather": "fine", "seconds": 0}

    def finished(self, report: RoundReport, state: ServerState) -> None:
        self.entries.append(("finished", report.round, state.round, self.files()))

    def files(self) -> list[str]:
        paths = sorted(self.path.rglob("*.js*")) + sorted(self.path.rglob("*.safetensors"))
        return [str(path.relative_to(self.path)) for path in paths]


@dataclass(frozen=True)
class Ladder(FedAvg):
    """Lifts by doubling, and remembers whom."""

    name: ClassVar[str] = "ladder"
    steps: int = 2
    lifted: list[int] = field(default_factory=list)

    def lift_in_stages(self, scene: Scene, state: ServerState, update: Update) -> Sequence[Mapping[str, Tensor]]:
        self.lifted.append(update.client)
        return [{"fc.weight": torch.full((3,), float(2**step))} for step in range(self.steps)]


@pytest.fixture
def rundir(tmp_path: Path) -> Iterator[RunDir]:
    made = RunDir.create(tmp_path / "run", "")
    yield made
    made.release()


def recorder(
    rundir: RunDir, method: Method | None = None, rounds: Rounds = "auto", observers: Sequence[RunObserver] = ()
) -> Recorder:
    federation = Federation(MIX, method or FedAvg(), rounds=9, cohort=4)
    snapshots = Snapshots(rundir.path / "snapshots", rounds, federation.rounds)
    return Recorder(rundir, federation, snapshots, observers)


def state(round_: int) -> ServerState:
    return ServerState(round_, {"fc.weight": torch.full((2, 2), float(round_))})


def updates(*clients: int) -> list[Update]:
    return [Update(1, client, MIX.clients[client].width, 12, {}) for client in clients]


def report(round_: int) -> RoundReport:
    traffic = Traffic(up={}, down={})
    return RoundReport(round=round_, accuracy=Accuracy(), traffic=traffic, clients=Attendance(asked=4), seconds=1.5)


def test_the_beginning_is_written_down_before_the_observer_is_told(rundir: RunDir) -> None:
    diary = Diary(rundir.path)
    recorder(rundir, observers=[diary]).began(RunConfig(name="mine"), state(0), {"version": "1"})
    assert diary.entries == [("began", "mine", 9, 0, ["provenance.json", "snapshots/round-000000.safetensors"])]
    assert read_sessions(rundir.path / "provenance.json") == [{"version": "1", "method": "fedavg", "round": 0}]
    assert read_snapshot(server_files(rundir.path / "snapshots")[0]).values[f"{MODEL}fc.weight"].tolist() == [0] * 4


def test_a_resume_is_written_down_and_takes_no_sample(rundir: RunDir) -> None:
    diary = Diary(rundir.path)
    given = recorder(rundir, observers=[diary])
    for round_ in (0, 5, 9):
        given.began(RunConfig(), state(round_), {"round": "is not the caller's to say"})
    assert [session["round"] for session in read_sessions(rundir.path / "provenance.json")] == [0, 5], (
        "at 9 all is made"
    )
    assert list(server_files(rundir.path / "snapshots")) == [0], "that of round 5 was taken when it was made"
    assert [entry[3] for entry in diary.entries] == [0, 5, 9]


def test_a_round_is_on_the_disk_before_the_observer_is_told(rundir: RunDir) -> None:
    diary = Diary(rundir.path)
    given = recorder(rundir, observers=[diary])
    given.replied(1, 1, 4)
    given.aggregated(state(1), updates(0, 1))
    assert diary.entries == [("replied", 1, 1, 4)], "of aggregation the observer is not told"
    given.finished(report(1), state(1))
    assert diary.entries[1:] == [
        (
            "finished",
            1,
            1,
            [
                "checkpoints/round-000001.json",
                "rounds.jsonl",
                "checkpoints/round-000001.safetensors",
                "snapshots/round-000001.safetensors",
            ],
        )
    ]
    assert [line.line() for line in rundir.lines()] == [{**report(1).line(), "weather": "fine", "seconds": 0}]
    restored = rundir.restore()
    assert restored is not None
    assert restored.round == 1


def test_several_observers_are_notified_in_their_order_and_all_may_remark(rundir: RunDir) -> None:
    entries: list[tuple[Any, ...]] = []

    class Second(Diary):
        def remarks(self, report: RoundReport) -> Mapping[str, Any]:
            return {"wind": "none"}

    both = recorder(rundir, observers=[Diary(rundir.path, entries), Second(rundir.path, entries)])
    both.began(RunConfig(), state(0), {})
    both.replied(1, 1, 4)
    both.finished(report(1), state(1))
    assert [entry[0] for entry in entries] == ["began", "began", "replied", "replied", "finished", "finished"]
    (line,) = (found.line() for found in rundir.lines())
    assert (line["weather"], line["wind"]) == ("fine", "none")


@pytest.mark.parametrize(
    ("rounds", "kept"), [("auto", [1, 2, 5, 9]), ("none", []), ((3, 4), [3, 4]), ((0,), []), ((), [])]
)
def test_samples_are_of_the_rounds_that_are_wanted(rounds: Rounds, kept: list[int], rundir: RunDir) -> None:
    method = Ladder()
    given = recorder(rundir, method, rounds)
    for round_ in range(1, 10):
        given.aggregated(state(round_), updates(0, 1))
    found = {round_: read_snapshot(path) for round_, path in server_files(rundir.path / "snapshots").items()}
    assert list(found) == kept
    assert all(one.values[f"{MODEL}fc.weight"].tolist() == [round_] * 4 for round_, one in found.items())
    assert len(method.lifted) == len(kept), "nothing is lifted for nobody"


@pytest.mark.parametrize(("there", "lifted"), [((0, 1, 2, 3), 1), ((0, 2, 3), 2), ((2, 1), 2), ((0, 3), -1), ((), -1)])
def test_stages_are_those_of_the_first_low_bit_client_that_is_there(
    there: tuple[int, ...], lifted: int, rundir: RunDir
) -> None:
    method = Ladder()
    recorder(rundir, method).aggregated(state(1), updates(*there))
    found = read_snapshot(server_files(rundir.path / "snapshots")[1])
    assert found.client == lifted
    assert method.lifted == ([lifted] if lifted >= 0 else [])
    stages = {name: values.tolist() for name, values in found.values.items() if name.startswith(BLOCKS)}
    expected = {f"{BLOCKS}0/fc.weight": [1.0] * 3, f"{BLOCKS}1/fc.weight": [2.0] * 3}
    assert stages == (expected if lifted >= 0 else {})


def test_a_method_that_lifts_nothing_says_of_whom_to_nobody(rundir: RunDir) -> None:
    recorder(rundir, Ladder(steps=0)).aggregated(state(1), updates(1))
    recorder(rundir, FedAvg()).aggregated(state(2), updates(1))
    found = [read_snapshot(path) for path in server_files(rundir.path / "snapshots").values()]
    assert [(one.client, list(one.values)) for one in found] == [(-1, [f"{MODEL}fc.weight"])] * 2


def test_a_disk_that_is_full_is_an_error_that_names_the_round(rundir: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    diary = Diary(rundir.path)
    given = recorder(rundir, observers=[diary])
    for part in ("append", "checkpoint"):
        with monkeypatch.context() as patch:
            patch.setattr(RunDir, part, full)
            with pytest.raises(
                RunError, match=rf"^round 3 cannot be saved: the disk is full: .* --resume {rundir.path}$"
            ):
                given.finished(report(3), state(3))
    monkeypatch.setattr(RunDir, "add_session", full)
    with pytest.raises(RunError, match=rf"^the disk is full: .* --resume {rundir.path}$"):
        given.began(RunConfig(), state(0), {})
    assert diary.entries == [], "what is not saved has not happened"
