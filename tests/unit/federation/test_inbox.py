"""What came back in a round: the first reply counts, and what became of every client is said."""

from __future__ import annotations

from pathlib import Path

import pytest

from prowd.federation.engine import Federation, dispatch
from prowd.federation.inbox import LONGEST_REASON, Inbox, admit_all, sum_up
from prowd.federation.report import Absence, RoundReport
from prowd.federation.transport import Refusal, Silence
from prowd.methods import FedAvg
from prowd.numbers.bits import FLOAT32
from prowd.wire import Update, encode_update
from tests.unit.scenes import INT2, INT8, codes, honest, scene

GIVEN = Federation(scene(INT8, FLOAT32, INT8), FedAvg(), 1, 3)
STATE = FedAvg().init(GIVEN.scene)
PARCELS, *_ = dispatch(GIVEN, STATE, GIVEN.scene.clients)


@pytest.fixture
def replies(tmp_path: Path) -> dict[int, bytes]:
    answer = honest(GIVEN.scene, GIVEN.method, tmp_path)
    found = {client: answer(client, parcel.join()) for client, parcel in PARCELS.items()}
    return {client: reply for client, reply in found.items() if reply is not None}


def report(inbox: Inbox) -> tuple[list[int], RoundReport]:
    """Whose updates are used, and what is reported."""
    admitted = admit_all(GIVEN.scene, GIVEN.method, 1, GIVEN.scene.clients, inbox)
    summed = sum_up(1, GIVEN.scene.clients, PARCELS, inbox, admitted, {n: n for n in range(3)})
    return [update.client for update in admitted.updates], summed


def filled(*taken: tuple[int, bytes | Silence | Refusal]) -> Inbox:
    inbox = Inbox()
    for client, reply in taken:
        inbox.take(client, reply)
    return inbox


def test_replies_count_in_client_order(replies: dict[int, bytes]) -> None:
    used, found = report(filled(*reversed(replies.items())))
    assert used == [0, 1, 2]
    assert (found.clients.asked, found.clients.lost, found.clients.refused) == (3, [], [])
    assert found.traffic.up == {"int8": len(replies[0]) + len(replies[2]), "float32": len(replies[1])}


def test_the_first_reply_counts(replies: dict[int, bytes]) -> None:
    inbox = filled((0, replies[0]), (0, b"again"), (0, Refusal("and again")), (1, replies[1]), (2, replies[2]))
    used, found = report(inbox)
    assert used == [0, 1, 2]
    assert found.clients.refused == [
        Absence(0, "int8", "2 more replies than the one asked for; the first counts"),
    ]
    assert found.clients.lost == []
    assert found.traffic.up["int8"] == len(replies[0]) + len(replies[2])


def test_what_follows_a_refusal_is_not_looked_at(replies: dict[int, bytes]) -> None:
    used, found = report(filled((0, Refusal("no message")), (0, replies[0]), (1, replies[1])))
    assert used == [1]
    assert found.clients.refused == [
        Absence(0, "int8", "no message"),
        Absence(0, "int8", "1 more replies than the one asked for; the first counts"),
    ]
    assert found.clients.lost == [Absence(2, "int8", "no reply")]
    assert found.traffic.up == {"float32": len(replies[1])}
    assert found.traffic.clients == {n: (len(replies[1]) * (n == 1), len(PARCELS[n].join())) for n in range(3)}


def test_silence_has_a_reason(replies: dict[int, bytes]) -> None:
    inbox = filled((0, Silence("it sleeps")), (0, Silence("it still sleeps")), (1, replies[1]), (2, replies[2]))
    used, found = report(inbox)
    assert used == [1, 2]
    assert found.clients.lost == [Absence(0, "int8", "it sleeps")]
    assert found.clients.refused == []


def test_who_answers_after_all_is_not_lost(replies: dict[int, bytes]) -> None:
    used, found = report(filled((0, Silence("late")), *replies.items(), (1, Silence("gone since"))))
    assert used == [0, 1, 2]
    assert (found.clients.lost, found.clients.refused) == ([], [])
    _, refused = report(filled((0, Refusal("nonsense")), (0, Silence("gone since"))))
    assert [absence.client for absence in refused.clients.lost] == [1, 2]


def test_a_damaged_reply_is_refused_and_its_bytes_counted(replies: dict[int, bytes]) -> None:
    used, found = report(filled((0, replies[0][:-1]), (1, replies[1]), (2, replies[2])))
    assert used == [1, 2]
    (absence,) = found.clients.refused
    assert (absence.client, absence.width) == (0, "int8")
    assert "its header declares" in absence.reason
    assert found.traffic.up["int8"] == len(replies[0]) - 1 + len(replies[2])


def test_reasons_are_cut_short() -> None:
    talkative = encode_update(Update(1, 2, INT8, 12, {"z" * 200 + str(n): codes(INT2, 0) for n in range(9)}))
    _, found = report(filled((0, Silence("x" * 10**6)), (1, Refusal("y" * 10**6)), (2, talkative)))
    assert [len(absence.reason) for absence in (*found.clients.lost, *found.clients.refused)] == [LONGEST_REASON] * 3


def test_strangers_are_passed_over(replies: dict[int, bytes]) -> None:
    used, found = report(filled(*replies.items(), (7, replies[0]), (8, Refusal("x")), (9, Silence("x"))))
    assert used == [0, 1, 2]
    assert (found.clients.asked, found.clients.lost, found.clients.refused) == (3, [], [])
