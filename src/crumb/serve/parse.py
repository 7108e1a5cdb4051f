"""Bodies as objects: JSON, and the binary extension of the Open Inference Protocol.

Parsing holds Python's lock, a second and more for megabytes of brackets. Large bodies are parsed in
another process, which imports no more than this module; only what is small enough comes back.
"""

import json
from typing import Any, NoReturn

SMALL = 2**17  # bytes that are parsed here: some milliseconds at worst
DTYPES = {"BOOL": "?", "FP16": "<f2", "FP32": "<f4", "FP64": "<f8", "BF16": "<u2"}
DTYPES |= {f"INT{8 * size}": f"<i{size}" for size in (1, 2, 4, 8)}
DTYPES |= {f"UINT{8 * size}": f"<u{size}" for size in (1, 2, 4, 8)}


class NotJson(ValueError):
    """Says what is wrong in a sentence."""


class TooManyValues(ValueError):
    """More than the largest request that is taken can hold."""


def parse(body: bytes, header: int | None, most: int) -> Any:
    """What a body says. ``header``: bytes of JSON before binary tensors; ``most``: values in it."""
    text = body if header is None else body[:header]
    try:
        content = json.loads(text, parse_constant=_no_constant)
        if len(body) > SMALL:
            _count(content, most)
    except (NotJson, TooManyValues):
        raise
    except (RecursionError, ValueError) as error:
        raise NotJson(f"The body is not JSON: {error}.") from None
    if header is not None:
        _read_binary(content, body[header:], most)
    return content


def _no_constant(name: str) -> NoReturn:
    """NaN and Infinity, which Python would read, are no JSON."""
    raise NotJson(f"{name} is not JSON: write null for a missing value.")


def _count(content: Any, most: int) -> None:
    pending = [content]
    while pending:
        one = pending.pop()
        if isinstance(one, (list, dict)):
            pending.extend(one.values() if isinstance(one, dict) else one)
            most -= len(one)
            if most < 0:
                raise TooManyValues


def _read_binary(content: Any, rest: bytes, most: int) -> None:
    """Give each binary tensor its ``data``; forms that are wrong are left to the checks of JSON."""
    inputs = content.get("inputs") if isinstance(content, dict) else None
    for tensor in inputs if isinstance(inputs, list) else ():
        parameters = tensor.get("parameters") if isinstance(tensor, dict) else None
        size = parameters.get("binary_data_size") if isinstance(parameters, dict) else None
        if type(size) is not int or "data" in tensor:
            continue
        if not 0 <= size <= len(rest):
            raise NotJson("The binary tensors do not have the sizes that are said.")
        tensor["data"] = _values(tensor.get("datatype"), rest[:size], most)
        rest, most = rest[size:], most - len(tensor["data"])
    if rest:
        raise NotJson(f"{len(rest):,} bytes belong to no tensor.")


def _values(datatype: Any, raw: bytes, most: int) -> list[Any]:
    import numpy as np

    if datatype == "BYTES":
        return _texts(raw, most)
    dtype = np.dtype(DTYPES[datatype]) if datatype in DTYPES else None
    if dtype is None or len(raw) % dtype.itemsize:
        raise NotJson("A binary tensor has a datatype that is unknown or does not fit its size.")
    if len(raw) > most * dtype.itemsize:
        raise TooManyValues
    values = np.frombuffer(raw, dtype)
    if datatype == "BF16":  # the upper half of a float32
        values = (values.astype("<u4") << 16).view("<f4")
    if values.dtype.kind != "f":
        return values.tolist()
    return [None if value != value else value for value in values.tolist()]  # NaN is missing


def _texts(raw: bytes, most: int) -> list[str]:
    """Each text after its length in four bytes."""
    texts: list[str] = []
    place = 0
    while place < len(raw):
        start = place + 4
        place = start + int.from_bytes(raw[place:start], "little")
        if place > len(raw) or start > len(raw):
            raise NotJson("A binary tensor of texts ends in the middle of one.")
        if len(texts) >= most:
            raise TooManyValues
        try:
            texts.append(raw[start:place].decode())
        except UnicodeDecodeError:
            raise NotJson("A binary tensor holds a text that is not UTF-8.") from None
    return texts


def binary(datatype: str, values: list[Any]) -> bytes:
    """The values of an output, as the binary extension has them."""
    import numpy as np

    if datatype != "BYTES":
        return np.array(values, dtype=DTYPES[datatype]).tobytes()
    texts = [str(value).encode() for value in values]
    return b"".join(len(text).to_bytes(4, "little") + text for text in texts)
