"""Keys and certificates: a certificate authority of one's own, the server's certificate, and a key for every node."""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import SECP384R1, EllipticCurvePrivateKey, generate_private_key
from cryptography.hazmat.primitives.hashes import SHA384
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from prowd.errors import ConfigError

__all__ = ["make_certificates", "make_node_key"]

HOST_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?")
CLOCKS = timedelta(hours=1)  # by which those of two machines may differ
ISSUER = "prowd federation"
SIGNING = {"key_cert_sign": True, "crl_sign": True}
USAGES = (
    "digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement",
    "key_cert_sign", "crl_sign", "encipher_only", "decipher_only",
)  # fmt: skip


def make_certificates(folder: Path, hosts: Sequence[str], days: int = 365) -> None:
    """Make ca.pem, server.pem and server.key for a server that is reached by these names or addresses.

    The key that signs is thrown away: nobody can make another certificate that the nodes would trust.
    """
    names = [_host(host) for host in hosts]
    _check_new(folder, ("ca.pem", "server.pem", "server.key"))
    ca, key = generate_private_key(SECP384R1()), generate_private_key(SECP384R1())
    authority = (
        _builder(ISSUER, ca, days)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.KeyUsage(**{usage: SIGNING.get(usage, False) for usage in USAGES}), critical=True)
        .sign(ca, SHA384())
    )
    certificate = (
        _builder("prowd server", key, days)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(ca.public_key()), critical=False)
        .sign(ca, SHA384())
    )
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    _write(folder / "ca.pem", authority.public_bytes(Encoding.PEM), 0o644)
    _write(folder / "server.pem", certificate.public_bytes(Encoding.PEM), 0o644)
    _write(folder / "server.key", private, 0o600)


def make_node_key(folder: Path, name: str) -> Path:
    """Make a node's private key, and its public key (``.pub``), by which the server knows it."""
    if not name or Path(name).name != name:
        raise ConfigError(f"name: {name!r}; accepted: the name of a file in {folder}")
    _check_new(folder, (name, f"{name}.pub"))
    key = generate_private_key(SECP384R1())
    _write(folder / name, key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()), 0o600)
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    _write(folder / f"{name}.pub", public + b"\n", 0o644)
    return folder / name


def _check_new(folder: Path, names: Sequence[str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        if (folder / name).exists():
            raise ConfigError(f"{folder / name} exists and is not overwritten; accepted: another folder or name")


def _builder(subject: str, key: EllipticCurvePrivateKey, days: int) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    names = [x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)]) for common in (subject, ISSUER)]
    return (
        x509.CertificateBuilder()
        .subject_name(names[0])
        .issuer_name(names[1])
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCKS)
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _host(host: str) -> x509.GeneralName:
    with suppress(ValueError):  # a name
        return x509.IPAddress(ipaddress.ip_address(host))
    if not HOST_NAME.fullmatch(host):
        raise ConfigError(f"host: {host!r} is no name; accepted: letters, digits, hyphens and dots, or an address")
    return x509.DNSName(host)


def _write(path: Path, data: bytes, mode: int) -> None:
    """Write a file that is nobody else's from its first byte on."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(data)
