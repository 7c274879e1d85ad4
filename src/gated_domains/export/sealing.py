"""The seal of an ONNX file: a last record with the SHA-256 of all that comes before it.

An ONNX file is a protobuf message, in which records may follow one another and the last of a list is simply its last
entry: one more entry of ``metadata_props``, put after the end, leaves a file that everybody reads, and tells whether
all of it is still there.
"""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

from gated_domains.data.errors import DataError

ABOUT = "gated_domains"
"""The entry of ``metadata_props`` with all that we say of a model."""
_SEAL = b"gated_domains_sha256"
_METADATA_PROPS, _KEY, _VALUE = 14, 1, 2  # fields of ModelProto and of StringStringEntryProto, as ONNX numbers them
_AGAIN = "export it again, or get another copy"


def sealed(content: bytes) -> bytes:
    """The content of a file with its seal."""
    return content + _record(sha256(content).hexdigest())


def unsealed(content: bytes, where: Path) -> bytes:
    """What was sealed; refused where it is not all there, or no longer as it was, or not of ours."""
    size = len(_record("0" * 64))
    body, seal = content[:-size], content[-size:]
    if seal == _record(sha256(body).hexdigest()):
        return body
    if seal.startswith(_record("0" * 64)[:-64]):
        raise DataError(f"{where} was changed after it was exported: its SHA-256 is another; {_AGAIN}")
    if _SEAL in content or ABOUT.encode() in content:
        raise DataError(f"{where} is cut short, or something was put after its end; {_AGAIN}")
    raise DataError(
        f"{where} was not exported by gated-domains, or little of it is left; models come from `gated-domains export "
        "RUN --to onnx`"
    )


def _record(digest: str) -> bytes:
    entry = _field(_KEY, _SEAL) + _field(_VALUE, digest.encode())
    return _field(_METADATA_PROPS, entry)


def _field(number: int, content: bytes) -> bytes:
    """A field of bytes as protobuf writes it; all of ours are shorter than 128 bytes."""
    assert len(content) < 128
    return bytes([number << 3 | 2, len(content)]) + content
