"""Whether a Parquet file is another file with new columns after its data: its bytes, then a footer that says the same of them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import pairwise
from os.path import commonprefix
from typing import BinaryIO, NamedTuple

from grpo_cli.errors import DataError
from grpo_cli.files.inputs import Input
from grpo_cli.formats.parquet import footer, thrift
from grpo_cli.formats.parquet.footer import Column, Footer
from grpo_cli.formats.parquet.thrift import I32

_BLOCK = 1 << 22  # bytes that are compared at once


class _Side(NamedTuple):
    """The footer of one of the two files, without the added columns."""

    footer: Footer
    columns: Sequence[Column]

    def chunks(self, group: int) -> list[bytes]:
        """The metadata of the compared chunks of a row group: where their bytes are, among others."""
        raw = self.footer.raw
        spans = list(pairwise(self.footer.chunks(self.footer.groups[group])))
        return [raw[slice(*spans[leaf])] for column in self.columns for leaf in range(column.first, column.last)]

    def schema(self) -> list[bytes]:
        """The schema elements of the root, with its number of children set to 0, and of the columns."""
        raw = self.footer.raw
        at = self.footer.root
        root = thrift.changed(raw, thrift.walk(raw, at), {footer.CHILDREN: (I32, thrift.whole(0))})
        return [root, *(raw[column.start : column.end] for column in self.columns)]


def spliced_after(old: Input, new: Input, added: Collection[str]) -> int | None:
    """Where the new bytes begin; None if the new footer says anything else of the old columns than the old footer."""
    with old.open() as first, new.open() as second:
        before = _side(first, old, added)
        after = _side(second, new, added)
    try:
        if before.schema() != after.schema() or before.footer.rows() != after.footer.rows():
            return None
        groups = range(len(before.footer.groups))
        return before.footer.start if all(before.chunks(group) == after.chunks(group) for group in groups) else None
    except footer.BROKEN as error:
        raise DataError(f"{new.name}: the footer cannot be parsed") from error


def _side(handle: BinaryIO, source: Input, added: Collection[str]) -> _Side:
    try:
        found = footer.read(handle, source.pin.size)
    except footer.Unspliceable as why:
        raise DataError(f"{source.name}: {why}") from None
    return _Side(found, [column for column in found.columns if column.name not in added])


def first_difference(old: Input, new: Input, length: int) -> int | None:
    """The offset of the first of this many bytes that differs; None if there is none."""
    with old.open() as first, new.open() as second:
        for start in range(0, length, _BLOCK):
            size = min(_BLOCK, length - start)
            was = first.read(size)
            now = second.read(size)
            if was != now:
                return start + len(commonprefix([was, now]))  # noqa: RUF071 - of bytes, not of paths
    return None
