"""A round's report for the tests of trackers."""

from __future__ import annotations

from typing import Any

from prowd.federation.report import Absence, Accuracy, Attendance, RoundReport, Traffic


def report(round_: int = 1, **changes: Any) -> RoundReport:
    values: dict[str, Any] = {
        "accuracy": Accuracy(
            received={"int8": 0.25, "float32": 0.5},
            trained={"int8": 0.5, "float32": 0.75},
            server={"int8": 0.5},
            clients={0: 0.5, 3: 0.75},
            own={0: 0.625},
            classes={"int8": {0: 0.25, 1: 0.75}},
            people={"float32": {7: 0.125}},
        ),
        "loss": {"int8": 2.0, "float32": 1.0},
        "traffic": Traffic(up={"int8": 100, "float32": 400}, down={"int8": 500, "float32": 600}),
        "clients": Attendance(asked=4, lost=[Absence(3, "float32", "gone")]),
        "seconds": 1.5,
    }
    return RoundReport(round=round_, **{**values, **changes})
