# SPDX-License-Identifier: Apache-2.0
"""Certificates for the reference transport: an authority of the run's own, one certificate for each party."""

from __future__ import annotations

import datetime
import ipaddress
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from idiolect.core.checks import RequestError
from idiolect.engines.deploy.tls import SERVER_NAME, Papers

DAYS = 360
CERTIFICATE, KEY, AUTHORITY = "own.crt", "own.key", "authority.crt"


class Authority(NamedTuple):
    """Signs certificates; its key is needed for new kits alone."""

    certificate: Any
    key: Any


def _cryptography() -> Any:
    try:
        from cryptography import x509
    except ImportError:
        raise RequestError("Certificates need the package cryptography: pip install 'idiolect[deploy]'.") from None
    return x509


def make_authority(name: str) -> Authority:
    """An authority that signs itself."""
    x509 = _cryptography()
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    usage = x509.KeyUsage(
        digital_signature=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=True,
        encipher_only=False,
        decipher_only=False,
    )
    subject = _name(f"{name} authority")
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    builder = (
        _builder(subject, subject, key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(identifier, critical=False)
    )
    return Authority(_signed(builder, key), key)


def make_papers(folder: Path, authority: Authority, name: str, server: bool, hosts: Sequence[str] = ()) -> Papers:
    """A party's certificate and key in a folder of its own. A site's does not serve as the server's, nor vice versa.

    Our own sites know the server by a name that no host has; `hosts` are for programs that ask for the address.
    """
    x509 = _cryptography()
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID as Usage

    key = ec.generate_private_key(ec.SECP256R1())
    purpose = Usage.SERVER_AUTH if server else Usage.CLIENT_AUTH
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
    pem = serialization.Encoding.PEM
    plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    papers = Papers(folder / CERTIFICATE, folder / KEY, folder / AUTHORITY)
    papers.certificate.write_bytes(_signed(builder, authority.key).public_bytes(pem))
    papers.authority.write_bytes(authority.certificate.public_bytes(pem))
    # made for its owner alone from the start: no moment in which others could read it
    with os.fdopen(os.open(papers.key, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(key.private_bytes(pem, *plain))
    return papers


def papers_in(folder: Path) -> Papers:
    """Those of a kit."""
    return Papers(folder / CERTIFICATE, folder / KEY, folder / AUTHORITY)


def check_certified(kit: Path, name: str) -> None:
    """RequestError where a kit's certificate is of another name than its file; a kit of FLARE has its own checks."""
    path = kit / CERTIFICATE
    if not path.is_file():
        return
    x509 = _cryptography()
    try:
        subject = x509.load_pem_x509_certificate(path.read_bytes()).subject
    except ValueError:
        raise RequestError(f"{path} is no certificate; ask for the kit again.") from None
    certified = [str(part.value) for part in subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)]
    if certified != [name]:
        raise RequestError(
            f"The name in site.toml must be that of the certificate, {', '.join(certified)!r}, got {name!r}; change it."
        )


def _name(text: str) -> Any:
    x509 = _cryptography()
    if len(text) > 64:
        raise RequestError(f"A site's name must have at most 64 letters, got {text!r}.")
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)])


def _host_name(host: str) -> Any:
    x509 = _cryptography()
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _builder(subject: Any, issuer: Any, key: Any) -> Any:
    x509 = _cryptography()
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


def _signed(builder: Any, key: Any) -> Any:
    from cryptography.hazmat.primitives import hashes

    return builder.sign(key, hashes.SHA256())
