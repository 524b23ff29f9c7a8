"""How the rule of an average is written, and what each makes of numbers that can be checked by hand."""

from __future__ import annotations

import pytest
import torch

from prowd.errors import ConfigError
from prowd.numbers.averages import Rule, average

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
        ("trimmed:0.2", 3.0),  # 1 and 100 are left out
        ("trimmed:0.4", 3.0),
        ("trimmed:0.1", (3 + 2 * 1 + 100 + 2 + 4) / 6),  # a tenth of five is none
        ("krum", (3 + 2 * 1 + 2 + 4) / 5),  # one of five may be wrong, and 100 is far from all
    ],
)
def test_five_numbers(text: str, expected: float) -> None:
    assert average(FIVE, [1, 2, 1, 1, 1], Rule.parse(text)).item() == pytest.approx(expected)


def test_shares_count_among_what_is_not_trimmed() -> None:
    assert average(FIVE, [1, 1, 1, 7, 2], Rule("trimmed", 0.2)).item() == pytest.approx((3 + 7 * 2 + 2 * 4) / 10)


def test_of_an_even_number_the_median_is_between_the_middle_two() -> None:
    assert average(FIVE[:4], [1] * 4, Rule("median")).item() == 2.5
