"""Keys and certificates."""

from __future__ import annotations

import stat
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from ipaddress import ip_address
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="flwr is not installed")

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

from prowd.errors import ConfigError
from prowd.flower.keys import make_certificates, make_node_key


def certificate(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def test_certificates_are_a_chain(tmp_path: Path) -> None:
    long = f"{'a' * 60}.{'b' * 60}.example.org"
    make_certificates(tmp_path / "keys", ["fl.example.org", long, "10.0.0.7", "::1"], days=30)
    ca, server = certificate(tmp_path / "keys" / "ca.pem"), certificate(tmp_path / "keys" / "server.pem")
    server.verify_directly_issued_by(ca)
    ca.verify_directly_issued_by(ca)
    store = x509.verification.Store([ca])
    for subject in (x509.DNSName("fl.example.org"), x509.DNSName(long), x509.IPAddress(ip_address("10.0.0.7"))):
        builder = x509.verification.PolicyBuilder().store(store).time(datetime.now(UTC))
        assert builder.build_server_verifier(subject).verify(server, []) == [server, ca]
    with pytest.raises(x509.verification.VerificationError):
        builder.build_server_verifier(x509.DNSName("other.example.org")).verify(server, [])
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.IPAddress) == [ip_address("10.0.0.7"), ip_address("::1")]
    assert not server.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert ca.extensions.get_extension_for_class(x509.BasicConstraints).value == x509.BasicConstraints(True, 0)
    assert ca.extensions.get_extension_for_class(x509.KeyUsage).value.key_cert_sign


def test_certificates_run_out(tmp_path: Path) -> None:
    make_certificates(tmp_path, ["localhost"], days=30)
    for name in ("ca.pem", "server.pem"):
        found, now = certificate(tmp_path / name), datetime.now(UTC)
        assert timedelta(days=29) < found.not_valid_after_utc - now <= timedelta(days=30)
        assert found.not_valid_before_utc < now - timedelta(minutes=30), "clocks differ"


def test_private_keys_are_private(tmp_path: Path) -> None:
    make_certificates(tmp_path, ["localhost"])
    make_node_key(tmp_path, "node-0")
    assert {path.name: oct(stat.S_IMODE(path.stat().st_mode)) for path in tmp_path.iterdir()} == {
        "ca.pem": "0o644", "server.pem": "0o644", "server.key": "0o600", "node-0": "0o600", "node-0.pub": "0o644",
    }  # fmt: skip
    private = serialization.load_pem_private_key((tmp_path / "server.key").read_bytes(), None)
    assert isinstance(private, EllipticCurvePrivateKey)
    assert private.public_key() == certificate(tmp_path / "server.pem").public_key()
    assert private.public_key() != certificate(tmp_path / "ca.pem").public_key(), "whose key is thrown away"


def test_a_node_key_is_a_pair(tmp_path: Path) -> None:
    path = make_node_key(tmp_path / "new", "node-0")
    assert path == tmp_path / "new" / "node-0"
    private = serialization.load_ssh_private_key(path.read_bytes(), None)
    public = serialization.load_ssh_public_key((tmp_path / "new" / "node-0.pub").read_bytes())
    assert isinstance(private, EllipticCurvePrivateKey)
    assert private.public_key() == public
    assert private.curve.name == "secp384r1", "as Flower wants it"
    other = make_node_key(tmp_path, "node-1")
    assert other.read_bytes() != path.read_bytes()


@pytest.mark.parametrize("name", ["ca.pem", "server.pem", "server.key", "node", "node.pub"])
def test_keys_are_not_overwritten(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("precious", "utf-8")
    certificates: Callable[[], object] = partial(make_certificates, tmp_path, ["localhost"])
    make = partial(make_node_key, tmp_path, "node") if name.startswith("node") else certificates
    with pytest.raises(ConfigError, match=f"{name} exists"):
        make()
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_text("utf-8") == "precious"


@pytest.mark.parametrize("host", ["münchen.de", ""])
def test_what_a_certificate_cannot_hold_is_named(host: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"host: .*{host}.*; accepted: "):
        make_certificates(tmp_path / "keys", ["localhost", host])
    assert not (tmp_path / "keys").exists()


@pytest.mark.parametrize("name", ["", "a/b", "../a", "/a", "."])
def test_a_node_key_stays_in_its_folder(name: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="name: "):
        make_node_key(tmp_path / "keys", name)
    assert list(tmp_path.iterdir()) == []
