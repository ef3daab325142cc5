# SPDX-License-Identifier: Apache-2.0
"""Certificates for the reference transport: an authority of the run's own, one certificate for each party.

Only what makes or reads certificates imports this: serving and joining need the standard library's TLS alone.
"""

from __future__ import annotations

import datetime
import ipaddress
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from idiolect.core.checks import RequestError
from idiolect.engines.deploy.tls import SERVER_NAME, Papers

try:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
except ImportError:
    raise RequestError("Certificates need the package cryptography: pip install 'idiolect[deploy]'.") from None

DAYS = 360
MAY_NOT = (  # what an authority's key is not for: it signs certificates, and lists of revoked ones
    *("digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement"),
    *("encipher_only", "decipher_only"),
)


class Authority(NamedTuple):
    """Signs certificates; its key is needed for new kits alone."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey


def make_authority(name: str) -> Authority:
    """An authority that signs itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _name(f"{name} authority")
    usage = x509.KeyUsage(key_cert_sign=True, crl_sign=True, **dict.fromkeys(MAY_NOT, False))
    builder = (
        _builder(subject, subject, key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    return Authority(builder.sign(key, hashes.SHA256()), key)


def make_papers(folder: Path, authority: Authority, name: str, server: bool, hosts: Sequence[str] = ()) -> Papers:
    """A party's certificate and key in a folder of its own. A site's does not serve as the server's, nor vice versa.

    Our own sites know the server by a name that no host has; `hosts` are for programs that ask for the address.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    purpose = ExtendedKeyUsageOID.SERVER_AUTH if server else ExtendedKeyUsageOID.CLIENT_AUTH
    identifier = authority.certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    builder = (
        _builder(_name(name), authority.certificate.subject, key)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([purpose]), critical=True)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier), critical=False)
    )
    if server:
        names = [x509.DNSName(SERVER_NAME), *map(_host_name, dict.fromkeys(hosts))]
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    folder.mkdir(parents=True, exist_ok=True)
    papers, pem = Papers.of(folder), serialization.Encoding.PEM
    papers.certificate.write_bytes(builder.sign(authority.key, hashes.SHA256()).public_bytes(pem))
    papers.authority.write_bytes(authority.certificate.public_bytes(pem))
    write_secret(papers.key, key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()))
    return papers


def write_secret(path: Path, content: bytes) -> None:
    """A file for its owner alone from the start: there is no moment in which others could read it."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(content)


def check_certified(kit: Path, name: str) -> None:
    """RequestError where a kit's certificate is of another name than its file."""
    path = Papers.of(kit).certificate
    try:
        subject = x509.load_pem_x509_certificate(path.read_bytes()).subject
    except ValueError:
        raise RequestError(f"{path} is no certificate; ask for the kit again.") from None
    certified = [str(part.value) for part in subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    if certified != [name]:
        raise RequestError(
            f"The name in site.toml must be that of the certificate, {', '.join(certified)!r}, got {name!r}; change it."
        )


def _name(text: str) -> x509.Name:
    if len(text) > 64:
        raise RequestError(f"A site's name must have at most 64 letters, got {text!r}.")
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _host_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))  # clocks differ
        .not_valid_after(now + datetime.timedelta(days=DAYS))
    )
