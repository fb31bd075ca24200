"""Which columns of the new footer are old ones and which are new, and how its parts are put together."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from grpo_cli.formats import footer, spell, thrift
from grpo_cli.formats.thrift import I32, I64, LIST, STRUCT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from grpo_cli.formats.footer import Column, Footer
    from grpo_cli.formats.thrift import Field


class Run(NamedTuple):
    """Neighbours among the columns, or among their leaves, of the new footer or of the old one."""

    new: bool
    first: int
    last: int


class Gone(NamedTuple):
    """Sizes of the chunks that a row group loses, and all of their bytes that stay in the file unread."""

    plain: int
    packed: int
    dead: int


@dataclass(frozen=True, slots=True)
class Layout:
    """The columns of the new footer in their order. `gone` are the leaves that only the old one has."""

    old: Footer
    new: Footer
    columns: Sequence[tuple[bool, Column]]
    leaves: Sequence[Run]
    gone: Sequence[int]

    @classmethod
    def of(cls, old: Footer, new: Footer) -> Layout:
        """Put each new column into the place of the old one of its name, or behind all others."""
        fresh = {one.name: (True, one) for one in new.columns}
        order = dict.fromkeys(fresh.get(one.name, (False, one)) for one in old.columns)
        columns = list(order | dict.fromkeys(fresh.values()))
        gone = [leaf for one in old.columns if one.name in fresh for leaf in range(one.first, one.last)]
        return cls(old, new, columns, _runs(columns), gone)

    def schema(self) -> bytes:
        """List the schema elements; of the old ones only the root changes."""
        raw, elements = self.old.raw, thrift.fields(self.old.raw, self.old.root)[0]
        root = spell.changed(raw, elements, {footer.CHILDREN: (I32, spell.whole(len(self.columns)))})
        spans = [(self.new if new else self.old).raw[one.start : one.end] for new, one in self.columns]
        return spell.listed(STRUCT, 1 + sum(one.elements for _, one in self.columns), b"".join([root, *spans]))

    def orders(self) -> bytes:
        """List the order of each leaf."""
        return self._listed(_spans(self.old, self.old.fields), _spans(self.new, self.new.fields))

    def group(self, group: Mapping[int, Field], sizes: tuple[int, int], new: Sequence[bytes]) -> tuple[bytes, int]:
        """Describe a row group with its new chunks, of these sizes plain and packed; count the bytes that die."""
        raw, gone = self.old.raw, Gone(0, 0, 0)
        if self.gone:
            old = _cut(raw, self.old.chunks(group))
            gone = _gone([old[leaf] for leaf in self.gone])
            chunks = self._listed(old, new)
        else:  # behind all others: nobody has to know where each old chunk begins
            _, count, at = thrift.opened(raw, group[footer.CHUNKS].start)
            chunks = spell.listed(STRUCT, count + len(new), raw[at : group[footer.CHUNKS].end] + b"".join(new))
        values = {footer.CHUNKS: (LIST, chunks)}
        for name, more, less in zip((footer.PLAIN_SIZE, footer.PACKED_SIZE), sizes, gone[:2], strict=True):
            if name in group:
                values[name] = (I64, spell.whole(thrift.number(raw, group[name].start) + more - less))
        return spell.changed(raw, self._sorted_by(group, values), values), gone.dead

    def _listed(self, old: Sequence[bytes], new: Sequence[bytes]) -> bytes:
        found = [one for run in self.leaves for one in (new if run.new else old)[run.first : run.last]]
        return spell.listed(STRUCT, len(found), b"".join(found))

    def _sorted_by(self, group: Mapping[int, Field], values: dict[int, tuple[int, bytes]]) -> list[Field]:
        """Number the sorting columns anew where leaves have gone; give the fields that the row group keeps."""
        if not self.gone or footer.SORTING not in group:
            return list(group.values())
        sorting = self._sorting(group[footer.SORTING].start)
        if sorting:
            values[footer.SORTING] = (LIST, sorting)
        return [one for one in group.values() if sorting or one.id != footer.SORTING]

    def _sorting(self, at: int) -> bytes:
        """Rows stay sorted by the columns before the first that is gone; the rest move to other numbers."""
        raw, marks, kept = self.old.raw, thrift.items(self.old.raw, at), []
        places = {leaf: to for to, leaf in enumerate(self._old_leaves()) if leaf is not None}
        for start in marks[:-1]:
            found, _ = thrift.fields(raw, start)
            leaf = next(thrift.number(raw, one.start) for one in found if one.id == footer.SORTED_BY)
            if leaf not in places:
                break
            kept.append(spell.changed(raw, found, {footer.SORTED_BY: (I32, spell.whole(places[leaf]))}))
        return spell.listed(STRUCT, len(kept), b"".join(kept)) if kept else b""

    def _old_leaves(self) -> list[int | None]:
        return [None if run.new else leaf for run in self.leaves for leaf in range(run.first, run.last)]


def _runs(columns: Sequence[tuple[bool, Column]]) -> list[Run]:
    return [Run(new, one.first, one.last) for new, one in columns]


def _gone(chunks: Sequence[bytes]) -> Gone:
    plain = packed = beside = 0
    for chunk in chunks:
        places = thrift.by_id(chunk, 0)
        meta = thrift.by_id(chunk, places[footer.META].start)
        plain += thrift.number(chunk, meta[footer.PLAIN].start)
        packed += thrift.number(chunk, meta[footer.PACKED].start)
        indexes = [places.get(footer.OFFSETS_SIZE), places.get(footer.INDEX_SIZE), meta.get(footer.BLOOM_SIZE)]
        beside += sum(thrift.number(chunk, one.start) for one in indexes if one)
    return Gone(plain, packed, packed + beside)


def _spans(side: Footer, fields: Mapping[int, Field]) -> list[bytes]:
    return _cut(side.raw, thrift.items(side.raw, fields[footer.ORDERS].start))


def _cut(raw: bytes, marks: Sequence[int]) -> list[bytes]:
    return [raw[start:end] for start, end in pairwise(marks)]
