"""Progress bars for long work; silent unless asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress_bar(total: int, what: str, verbose: int | bool) -> Iterator[Callable[[int], object]]:
    """A function that advances a bar on standard error, or one that does nothing."""
    if not verbose:
        yield lambda steps: None
        return
    from tqdm import tqdm

    with tqdm(total=total, desc=what, leave=False, dynamic_ncols=True) as bar:
        yield bar.update
