# SPDX-License-Identifier: Apache-2.0
"""What secure aggregation needs of the library `cryptography`: X25519, HKDF, ChaCha20 and ChaCha20-Poly1305.

Every key is derived for one use in one round, and serves once: therefore its nonce may be constant.
"""

from __future__ import annotations

import functools
import hashlib
from typing import TYPE_CHECKING

import numpy as np

from idiolect.core import RequestError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

KEY_BYTES = 32
TAG_BYTES = 16


@functools.cache
def need_cryptography() -> None:
    """RequestError where the library is not there."""
    try:
        import cryptography as cryptography
    except ImportError:
        raise RequestError(
            "Secure aggregation needs the package cryptography: pip install 'idiolect[deploy]'."
        ) from None


def _private(secret: bytes) -> X25519PrivateKey:
    need_cryptography()
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    return X25519PrivateKey.from_private_bytes(hashlib.sha256(b"idiolect x25519" + secret).digest())


def public_of(secret: bytes) -> bytes:
    """The public key of a secret."""
    return _private(secret).public_key().public_bytes_raw()


def agreed_secret(secret: bytes, public: bytes) -> bytes:
    """What the holders of two secrets, who know each other's public keys, both know."""
    own = _private(secret)
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey

    try:
        return own.exchange(X25519PublicKey.from_public_bytes(public))
    except ValueError:
        raise RequestError("A public key of this round of secure aggregation is none: refused.") from None


def digest_of(seed: bytes) -> bytes:
    """By which a seed is known again, and not guessed."""
    return hashlib.sha256(b"idiolect own mask" + seed).digest()


def derived_key(secret: bytes, session: bytes, use: bytes, *parties: int) -> bytes:
    """A key for one use in one round."""
    need_cryptography()
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    info = use + b"".join(party.to_bytes(4, "big") for party in parties)
    return HKDF(algorithm=hashes.SHA256(), length=KEY_BYTES, salt=session, info=info).derive(secret)


def mask_stream(key: bytes, length: int) -> np.ndarray:
    """So many numbers modulo 2^64 that look random without the key."""
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

    drawn = Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None).encryptor().update(bytes(8 * length))
    return np.frombuffer(drawn, "<u8").astype(np.uint64)


def seal(key: bytes, plain: bytes) -> bytes:
    """Encrypted, with a tag that shows any change."""
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

    return ChaCha20Poly1305(key).encrypt(bytes(12), plain, None)


def unseal(key: bytes, box: bytes) -> bytes | None:
    """What was sealed; None: it was changed, or sealed with another key."""
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

    try:
        return ChaCha20Poly1305(key).decrypt(bytes(12), box, None)
    except InvalidTag:
        return None
