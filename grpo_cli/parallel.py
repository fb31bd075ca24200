"""Work on blocks of a file on up to four cores, with the results in order and only a few of them in memory."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain, islice
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")
_WORKERS = min(4, os.cpu_count() or 1)  # threads, each with a block in memory


def ahead(work: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
    """Map in threads: the work of polars, pyarrow and numpy on one block does not hold up Python's other threads."""
    items = iter(items)
    first = list(islice(items, 2))
    if len(first) == 1:  # threads for one small file would take longer than its work
        yield work(first[0])
        return
    with ThreadPoolExecutor(_WORKERS) as pool:
        waiting: deque[Future[R]] = deque()
        try:
            for item in chain(first, items):
                waiting.append(pool.submit(work, item))
                if len(waiting) > _WORKERS:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()
