"""Rollouts in a file of `torch.save`, read without torch and without running anything that the file asks for.

Such a file is a pickle in a zip, and a pickle may call whatever it names. Here it may name a dozen things, all of which
make tensors and nothing else (`_ADMITTED`): another name is refused before anything is called.
"""

from __future__ import annotations

import math
import pickle
from io import BytesIO
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from grpo_cli.errors import DataError
from grpo_cli.formats.containers import archive, line

if TYPE_CHECKING:
    import zipfile
    from collections.abc import Iterator, Mapping, Sequence

    from grpo_cli.files.inputs import Input

_STORAGES: Final = {
    "DoubleStorage": "f8", "FloatStorage": "f4", "HalfStorage": "f2", "BFloat16Storage": "bf16", "LongStorage": "i8",
    "IntStorage": "i4", "ShortStorage": "i2", "CharStorage": "i1", "ByteStorage": "u1", "BoolStorage": "?",
}  # fmt: skip
_ROWS: Final = ("samples", "episodes", "rollouts", "data")  # where the rows of a dump are, the first that is there
_OTHER: Final = "any other pickle runs code when it is opened: write its samples as JSON lines"
_BROKEN: Final = (
    pickle.UnpicklingError, AttributeError, EOFError, ImportError, IndexError, KeyError, MemoryError, OverflowError,
    RecursionError, TypeError, UnicodeDecodeError, ValueError,
)  # fmt: skip


class _Refused(Exception):
    """The pickle names something that is not admitted."""


class _Storage:
    """The numbers of a storage, which only a tensor can be made of."""

    __slots__ = ("numbers",)

    def __init__(self, numbers: np.ndarray[Any, Any]) -> None:
        self.numbers = numbers


class _Tensors:
    """What stands for torch's own function that makes a tensor: lists of its numbers. It has nothing that could be set."""

    __slots__ = ()

    def __call__(self, storage: Any, offset: int, size: Sequence[int], stride: Sequence[int], *_: Any) -> Any:
        if not isinstance(storage, _Storage) or not isinstance(storage.numbers, np.ndarray):
            raise TypeError("a tensor without a storage")
        numbers = storage.numbers
        shape, steps = tuple(map(int, size)), tuple(map(int, stride))
        count = math.prod(shape)
        last = offset + sum((length - 1) * step for length, step in zip(shape, steps, strict=True)) if count else offset
        if min((offset, *shape, *steps), default=0) < 0 or count > len(numbers) or (count and last >= len(numbers)):
            raise ValueError("a tensor beyond its storage")
        bytes_each = tuple(step * numbers.itemsize for step in steps)
        return np.lib.stride_tricks.as_strided(numbers[offset:], shape, bytes_each).tolist()


class _Ordered:
    """What stands for `OrderedDict`: a dictionary has an order."""

    __slots__ = ()

    def __call__(self, items: Any = ()) -> dict[Any, Any]:
        return dict(items)


_ADMITTED: Final[Mapping[tuple[str, str], Any]] = {
    ("torch._utils", "_rebuild_tensor_v2"): _Tensors(),
    ("torch._utils", "_rebuild_tensor"): _Tensors(),
    ("collections", "OrderedDict"): _Ordered(),
    **{("torch", name): dtype for name, dtype in _STORAGES.items()},
}


class _Unpickler(pickle.Unpickler):
    def __init__(self, data: bytes, found: zipfile.ZipFile, folder: str) -> None:
        super().__init__(BytesIO(data))
        self._zip, self._folder = found, folder

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ADMITTED:
            raise _Refused(f"{module}.{name}")
        return _ADMITTED[module, name]

    def persistent_load(self, pid: Any) -> _Storage:
        """The numbers of a storage."""
        kind, dtype, key, _, count, *_ = pid
        if kind != "storage" or dtype not in _STORAGES.values() or not str(key).isdigit():
            raise _Refused(f"a {kind} of {dtype}")
        data = _member(self._zip, f"{self._folder}data/{key}")
        if dtype == "bf16":  # the upper half of a 32-bit float
            numbers = (np.frombuffer(data, "<u2").astype(np.uint32) << 16).view(np.float32)
        else:
            numbers = np.frombuffer(data, np.dtype(dtype).newbyteorder("<"))
        return _Storage(numbers[: int(count)])


def _member(found: zipfile.ZipFile, name: str) -> bytes:
    """The bytes of a member. torch packs none: one that is packed may be any size, and is refused."""
    if found.getinfo(name).compress_type:
        raise ValueError(f"{name} is compressed")
    return found.read(name)


def samples(source: Input) -> Iterator[bytes]:
    """The rows of a dump: a list of dictionaries, by itself or as a member (`samples`), or columns of one length."""
    with source.open() as handle, archive(source, handle, "a file of torch.save", _OTHER) as found:
        try:
            name = next((name for name in found.namelist() if name.endswith("data.pkl")), "data.pkl")
            folder = name.removesuffix("data.pkl")
            content = _Unpickler(_member(found, name), found, folder).load()
        except _Refused as refused:
            cure = "it was not called; save plain dictionaries, lists, numbers, texts and tensors, or write JSON lines"
            raise DataError(f"{source.name}: its pickle would call {refused}, which is not admitted", cure) from None
        except _BROKEN as error:
            raise DataError(f"{source.name}: not a file of torch.save that can be read: {str(error).lower()}") from None
    try:
        yield from map(line, _rows_of(content))
    except (TypeError, ValueError, RecursionError) as error:
        wrong = f"{source.name}: no list of samples in it: {str(error).lower()}"
        raise DataError(wrong, "a row is a dictionary of texts, numbers, lists and tensors") from None


def _rows_of(content: Any) -> Iterator[dict[str, Any]]:
    around: dict[str, Any] = {}
    if isinstance(content, dict):
        name = next((name for name in _ROWS if isinstance(content.get(name), list)), None)
        if name is None:
            yield from _of_columns(content)
            return
        around = {key: value for key, value in content.items() if isinstance(value, (str, int, float))}
        content = content[name]
    if not isinstance(content, list) or not content:
        raise TypeError(f"it holds a {type(content).__name__}")
    for group, one in enumerate(content):
        for row in one if isinstance(one, list) else [one]:  # or the samples of each prompt in a list
            if not isinstance(row, dict):
                raise TypeError(f"a row is a {type(row).__name__}")
            yield {**around, **({"group_index": group} if isinstance(one, list) else {}), **row}


def _of_columns(content: dict[Any, Any]) -> Iterator[dict[str, Any]]:
    """The rows of columns: of the lists that have the length of the longest; what is no list is that of all rows."""
    lists = {name: value for name, value in content.items() if isinstance(value, list)}
    height = max(map(len, lists.values()), default=0)
    if not height:
        raise TypeError("it holds no list")
    short = [name for name, value in lists.items() if len(value) != height]
    if short:
        raise ValueError(f"{short[0]} has {len(lists[short[0]])} values, others {height}")
    for row in range(height):
        yield {str(name): value[row] if name in lists else value for name, value in content.items()}
