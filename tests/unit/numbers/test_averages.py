"""How the rule of an average is written, and what each makes of numbers that can be checked by hand."""

from __future__ import annotations

import pytest
import torch

from prowd.errors import ConfigError
from prowd.numbers.averages import Rule, average, far_off

FIVE = [torch.tensor([value]) for value in (3.0, 1.0, 100.0, 2.0, 4.0)]


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("none", Rule()),
        ("median", Rule("median")),
        ("krum", Rule("krum")),
        ("trimmed:0.2", Rule("trimmed", 0.2)),
        ("trimmed:0", Rule("trimmed")),
    ],
)
def test_a_rule_is_read(text: str, rule: Rule) -> None:
    assert Rule.parse(text) == rule


@pytest.mark.parametrize(
    "text", ["", "mean", "trimmed", "trimmed:", "trimmed:0.5", "trimmed:-1", "trimmed:nan", "Krum"]
)
def test_another_text_is_refused_with_what_is_accepted(text: str) -> None:
    with pytest.raises(ConfigError, match="accepted: none, median, trimmed:SHARE"):
        Rule.parse(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("none", (3 + 2 * 1 + 100 + 2 + 4) / 6),  # the second counts twice
        ("median", 3.0),
        ("trimmed:0.4", (3 + 2 * 1 + 100 + 2 + 4) / 6),  # who is left out does not come this far
        ("krum", (3 + 2 * 1 + 2 + 4) / 5),  # one of five may be wrong, and 100 is far from all
    ],
)
def test_five_numbers(text: str, expected: float) -> None:
    assert average(FIVE, [1, 2, 1, 1, 1], Rule.parse(text)).item() == pytest.approx(expected)


@pytest.mark.parametrize(
    ("share", "count", "expected"),
    [
        *[(0.0, 9, 0), (0.2, 5, 1), (0.2, 6, 2), (0.2, 15, 3), (0.3, 5, 2), (0.4, 5, 2), (0.49, 5, 2)],
        *[(0.4, 4, 1), (0.2, 3, 1), (0.4, 2, 0), (0.4, 1, 0)],
    ],
)
def test_of_a_width_a_share_is_left_out_rounded_up_but_fewer_than_half(share: float, count: int, expected: int) -> None:
    assert Rule("trimmed", share).left_out(count) == expected


def test_how_far_off_five_clients_are() -> None:
    assert far_off([[one] for one in FIVE]) == [0.0, 2.0, 97.0, 1.0, 1.0], "the median is 3, the usual distance 1"
    pairs = [[one, torch.zeros(2)] for one in FIVE]
    assert far_off(pairs) == [0.0, 1.0, 48.5, 0.5, 0.5], "the mean over tensors; in the second all are alike"
    assert far_off([[torch.ones(1)], [torch.ones(1)], [torch.tensor([4.0])]]) == [0.0, 0.0, 3.0], "most are alike"


def test_of_an_even_number_the_median_is_between_the_middle_two() -> None:
    assert average(FIVE[:4], [1] * 4, Rule("median")).item() == 2.5
