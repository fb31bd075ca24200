"""Rollouts in a file of `torch.save`, read without torch and without running anything that the file asks for.

Such a file is a pickle in a zip, and a pickle can call whatever it names. Here only a dozen names are allowed, which
make tensors and nothing else (`_ADMITTED`); any other name is refused before anything is called. Memory is bounded by
the size of the file: the pickle is checked before it is opened (`_refuse_bomb`), tensors stay views of their storage,
and a row is measured before it is made.
"""

from __future__ import annotations

import math
import pickle
import pickletools
import re
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from io import BytesIO
from typing import Any, Final

import numpy as np

from grpo_cli.errors import DataError
from grpo_cli.files.inputs import Input
from grpo_cli.formats.containers import BROKEN, Budget, archive, in_one_line, line, plain

_STORAGES = {
    "DoubleStorage": "f8", "FloatStorage": "f4", "HalfStorage": "f2", "BFloat16Storage": "bf16", "LongStorage": "i8",
    "IntStorage": "i4", "ShortStorage": "i2", "CharStorage": "i1", "ByteStorage": "u1", "BoolStorage": "?",
}  # fmt: skip
_ROWS = ("samples", "episodes", "rollouts", "data")  # keys of the rows of a dump; the first that exists counts
_OTHER = "any other pickle runs code when it is opened: write its samples as JSON lines"
_BROKEN = (*BROKEN, pickle.UnpicklingError, AttributeError, ImportError, IndexError)
_NUMBER = 24  # bytes of a number as text, with its comma
_VIEWS = 8  # most bytes of tensors for each byte of the file: few tensors share a storage
_LONG = 20  # bytes of the longest integer


class _Refused(Exception):
    """The pickle names something that is not allowed."""


class _Storage:
    """The numbers of a storage, from which only tensors can be made."""

    __slots__ = ("numbers",)

    def __init__(self, numbers: np.ndarray[Any, Any]) -> None:
        self.numbers = numbers


class _Tensor:
    """A lazy view of the numbers of a storage, since many tensors may share a storage."""

    __slots__ = ("view",)

    def __init__(self, view: np.ndarray[Any, Any]) -> None:
        self.view = view

    def numbers(self) -> np.ndarray[Any, Any]:
        """The view; a pickle may have replaced it with anything."""
        if not isinstance(self.view, np.ndarray):
            raise TypeError("a tensor without a storage")
        return self.view


class _Tensors:
    """A stand-in for torch's function that makes a tensor. It has no attributes that could be set."""

    __slots__ = ()

    def __call__(self, storage: Any, offset: int, size: Sequence[int], stride: Sequence[int], *_: Any) -> Any:
        if not isinstance(storage, _Storage) or not isinstance(storage.numbers, np.ndarray):
            raise TypeError("a tensor without a storage")
        numbers = storage.numbers
        shape = tuple(map(int, size))
        steps = tuple(map(int, stride))
        count = math.prod(shape)
        last = offset + sum((length - 1) * step for length, step in zip(shape, steps, strict=True)) if count else offset
        is_negative = min(offset, *shape, *steps, 0) < 0
        is_beyond = count > len(numbers) or (count and last >= len(numbers))
        if is_negative or is_beyond:
            raise ValueError("a tensor beyond its storage")
        bytes_each = tuple(step * numbers.itemsize for step in steps)
        view = np.lib.stride_tricks.as_strided(numbers[offset:], shape, bytes_each)
        return _Tensor(view) if shape else view.item()


_ADMITTED: Final[Mapping[tuple[str, str], Any]] = {
    ("torch._utils", "_rebuild_tensor_v2"): _Tensors(),
    ("torch._utils", "_rebuild_tensor"): _Tensors(),
    ("collections", "OrderedDict"): dict,  # whose attributes cannot be set either
    **{("torch", name): dtype for name, dtype in _STORAGES.items()},
}


class _Unpickler(pickle.Unpickler):
    def __init__(self, data: bytes, members: _Members) -> None:
        super().__init__(BytesIO(data))
        self._members, self._storages = members, dict[tuple[str, str, int], _Storage]()

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ADMITTED:
            raise _Refused(f"{module}.{name}")
        return _ADMITTED[module, name]

    def persistent_load(self, pid: Any) -> _Storage:
        """The numbers of a storage; further references to it get the same object."""
        kind, dtype, key, _, count, *_ = pid
        if kind != "storage" or dtype not in _STORAGES.values() or not str(key).isdigit():
            raise _Refused(f"a {kind} of {dtype}")
        found = (dtype, str(key), int(count))
        if found not in self._storages:
            data = self._members.read(f"data/{key}")
            if dtype == "bf16":  # the upper half of a 32-bit float
                numbers = (np.frombuffer(data, "<u2").astype(np.uint32) << 16).view(np.float32)
            else:
                numbers = np.frombuffer(data, np.dtype(dtype).newbyteorder("<"))
            self._storages[found] = _Storage(numbers[: int(count)])
        return self._storages[found]


class _Members:
    """The members of a zip that torch wrote, uncompressed: a compressed member could have any size, and is refused."""

    def __init__(self, found: zipfile.ZipFile, size: int) -> None:
        self._zip, self._left = found, size
        self.pickle = next((name for name in found.namelist() if name.endswith("data.pkl")), "data.pkl")

    def read(self, name: str) -> bytes:
        """The bytes of the pickle or of a member beside it; together never more than the file has."""
        full = f"{self.pickle.removesuffix('data.pkl')}{name}"
        info = self._zip.getinfo(full)
        if info.compress_type:
            raise ValueError(f"{full} is compressed")
        self._left -= info.file_size
        if self._left < 0:
            raise ValueError(f"{full} and those before it are larger than the file")
        return self._zip.read(full)


_STOP, _LONG_PUT = b".r"  # the end, and what keeps a value by a number of four bytes
_PUTS = frozenset({"PUT", "LONG_BINPUT"})
_CODES = {ord(code.code): code for code in pickletools.opcodes}


def _codes_of_fixed_size() -> re.Pattern[bytes]:
    """A run of opcodes of fixed size: nearly all opcodes; of four-byte memo numbers those below 65,536."""
    found = [b"r..\\x00\\x00"]
    for size in range(9):
        codes = {at for at, code in _CODES.items() if (code.arg.n if code.arg else 0) == size}
        codes -= {_STOP, _LONG_PUT}
        if codes:
            heads = b"".join(re.escape(bytes([code])) for code in sorted(codes))
            found.append(b"[%b]%b" % (heads, b"." * size))
    return re.compile(b"(?:%b)++" % b"|".join(found), re.DOTALL)


_FIXED = _codes_of_fixed_size()


def _refuse_bomb(data: bytes) -> None:
    """Refuse a pickle with memo numbers beyond its size (the memo is a list of that length), or with long integers."""
    at = 0
    size = len(data)
    stream = BytesIO(data)
    while at < size:
        if fixed := _FIXED.match(data, at):
            at = fixed.end()
            continue
        code = _CODES.get(data[at])
        if code is None or code.arg is None:  # the end, or what the unpickler reports
            return
        stream.seek(at + 1)
        value = code.arg.reader(stream)
        if code.name in _PUTS and value > size:
            raise ValueError(f"memo number {value} in a pickle of {size} bytes")
        if isinstance(value, int) and value.bit_length() > _LONG * 8:
            raise ValueError(f"an integer of {value.bit_length() // 8 + 1} bytes")
        at = stream.tell()


def samples(source: Input) -> Iterator[bytes]:
    """The rows of a dump: a list of dictionaries, by itself or as a member (`samples`), or columns of one length."""
    with (
        source.open() as handle,
        archive(source, handle, "a torch.save file", _OTHER) as found,
        in_one_line(_BROKEN, f"{source.name}: not readable as a torch.save file"),
    ):
        members = _Members(found, source.pin.size)
        data = members.read("data.pkl")
        _refuse_bomb(data)
        try:
            content = _Unpickler(data, members).load()
        except _Refused as refused:
            cures = [
                "it was not called",
                "save plain dictionaries, lists, numbers, texts and tensors, or write JSON lines",
            ]
            raise DataError(f"{source.name}: its pickle would call {refused}, which is not allowed", cures) from None
    budget = Budget(source)
    sizes = _Sizes(_VIEWS * source.pin.size)
    cure = "a row must be a dictionary of texts, numbers, lists and tensors"
    with in_one_line((TypeError, ValueError, RecursionError), f"{source.name}: has no list of samples", cure):
        for row in _rows_of(content, sizes):
            budget.spend(sum(map(sizes.of, (*row, *row.values()))), "a row")
            yield line(row, _plain)


class _Sizes:
    """How many bytes of JSON values take at most. Tensors may be `left` bytes: many may be views of one storage."""

    def __init__(self, left: int) -> None:
        self._left = left
        self._known = dict[int, int]()  # sizes of lists already measured: the same list may occur in many places

    def of(self, value: Any) -> int:
        """The size of a value, whose lists stay where they are."""
        if isinstance(value, _Tensor):
            self._left -= value.numbers().nbytes
            if self._left < 0:
                raise ValueError("its tensors repeat the same numbers")
            return value.numbers().size * _NUMBER
        if isinstance(value, (str, bytes, bytearray)):
            return len(value) * (1 if isinstance(value, str) and value.isascii() else 6) + _NUMBER
        if not isinstance(value, (list, tuple, dict)) or not value:
            return _NUMBER
        if id(value) not in self._known:
            if isinstance(value, list) and {int, float, bool, type(None)}.issuperset(map(type, value)):
                size = len(value) * _NUMBER
            else:
                size = sum(map(self.of, (*value, *value.values()) if isinstance(value, dict) else value))
            self._known[id(value)] = size + _NUMBER
        return self._known[id(value)]


def _plain(value: Any) -> Any:
    return value.numbers().tolist() if isinstance(value, _Tensor) else plain(value)


def _rows_of(content: Any, sizes: _Sizes) -> Iterator[dict[str, Any]]:
    around = {}
    if isinstance(content, dict):
        name = next((name for name in _ROWS if isinstance(content.get(name), list)), None)
        if name is None:
            yield from _of_columns(content, sizes)
            return
        around = {key: value for key, value in content.items() if isinstance(value, (str, int, float))}
        content = content[name]
    if not isinstance(content, list) or not content:
        raise TypeError(f"its content is a {type(content).__name__}")
    for group, sample in enumerate(content):
        for row in sample if isinstance(sample, list) else [sample]:  # or the samples of each prompt in a list
            if not isinstance(row, dict):
                raise TypeError(f"a row is a {type(row).__name__}")
            yield {**around, **({"group_index": group} if isinstance(sample, list) else {}), **row}


def _of_columns(content: dict[Any, Any], sizes: _Sizes) -> Iterator[dict[str, Any]]:
    """The rows of columns: lists with the length of the longest give a value per row, anything else is repeated."""
    lists: dict[Any, list[Any] | np.ndarray[Any, Any]] = {}
    for name, value in content.items():
        if isinstance(value, _Tensor):
            sizes.of(value)  # before a row is made
            lists[name] = value.numbers()
        elif isinstance(value, list):
            lists[name] = value
    height = max(map(len, lists.values()), default=0)
    if not height:
        raise TypeError("no value is a list")
    short = [name for name, value in lists.items() if len(value) != height]
    if short:
        raise ValueError(f"{short[0]} has {len(lists[short[0]])} values, others {height}")
    for row in range(height):
        yield {str(name): _at(lists[name], row) if name in lists else value for name, value in content.items()}


def _at(column: list[Any] | np.ndarray[Any, Any], row: int) -> Any:
    value = column[row]
    return value if isinstance(column, list) else _Tensor(value) if column.ndim > 1 else value.item()
