"""The setting that names boards."""

from __future__ import annotations

import pytest

from prowd.comparison.plan import make_plan
from prowd.config.files import read_pairs
from prowd.config.schema import load_config, validate
from prowd.errors import ConfigError


def test_links_are_clients_and_addresses() -> None:
    given = """links={3 = "exec:./board --fast", 0 = "serial:/dev/ttyACM0@115200"}"""
    config = load_config("quick", read_pairs([given]))
    assert config.links == {0: "serial:/dev/ttyACM0@115200", 3: "exec:./board --fast"}
    assert validate({**config.model_dump(mode="json")}).links == config.links
    assert load_config("quick", read_pairs(["links.1=tcp:board:7000"])).links == {1: "tcp:board:7000"}


@pytest.mark.parametrize(
    ("pair", "reason"),
    [
        ('links={0 = "ttyACM0"}', "link 'ttyACM0' is no address; accepted: exec:COMMAND, tcp:HOST:PORT or serial:"),
        ('links={10 = "exec:a"}', "links: client 10 of 'int8:5, float32:5'; accepted: 0 to 9"),
        ('links={-1 = "exec:a"}', "links: client -1 of "),
        ('links={watch = "exec:a"}', "links"),
        ("links=exec:a", "links"),
    ],
)
def test_what_is_wrong_with_links_is_named(pair: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        load_config("quick", {"clients": "int8:5, float32:5", **read_pairs([pair])})


def test_a_comparison_has_no_boards() -> None:
    with pytest.raises(ConfigError, match="links: a comparison makes several runs at once"):
        make_plan("quick", {"links": {"0": "exec:a"}}, ["fedavg"], [0])
