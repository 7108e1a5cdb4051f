"""Tables in files: reading, aligning, and telling classes from numbers."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crumb.cli.report import note, one_line
from crumb.errors import InvalidInput

if TYPE_CHECKING:
    import pandas as pd

TABLES = (".csv", ".csv.gz", ".parquet")
PICTURES = (".png", ".pdf", ".svg", ".jpg")
FEW_VALUES = 20  # whole numbers with at most so many values are taken for classes


@dataclass(frozen=True)
class Tables:
    """Training and test rows with the same columns, and their targets where there are any."""

    X_train: pd.DataFrame
    X_test: pd.DataFrame
    y_train: pd.Series | None = None
    y_test: pd.Series | None = None


def load_tables(
    train: str, test: str, target: str | None, drop_missing_target: bool = False
) -> Tables:
    """Read both files; of the test table the columns of the training table are used, found by name."""
    pool = read_table(train)
    if target is not None and target not in pool.columns:
        raise InvalidInput(
            f"{train} has no column {target!r}{suggestion(target, list(pool.columns))}"
        )
    # Codes such as "007" are text in a column that holds "A12" as well, also where a file has the codes only.
    texts = [name for name in pool.columns if _is_text(pool[name])]
    queries = read_table(test, texts)
    y_train = y_test = None
    if target is not None:
        pool = _with_target(pool, target, train, drop_missing_target)
        y_train = pool.pop(target)
        y_test = queries.pop(target) if target in queries.columns else None
        if not len(pool.columns):
            raise InvalidInput(f"{train} has no column besides the target {target!r}.")
    return Tables(pool, _aligned(queries, list(pool.columns), train, test), y_train, y_test)


def _is_text(column: pd.Series) -> bool:
    """Text, and not bools that a missing value has turned into objects."""
    return column.dtype in (object, "str") and all(
        isinstance(value, str) for value in column.dropna()
    )


def read_table(path: str, texts: Iterable[str] = ()) -> pd.DataFrame:
    """A table with at least one row; columns named in ``texts`` are read as text."""
    import pandas as pd

    suffix = check_suffix(path, TABLES)
    try:
        if suffix == ".parquet":
            table = pd.read_parquet(path)
        else:
            table = pd.read_csv(path, low_memory=False, dtype=dict.fromkeys(texts, "str"))
    except (
        Exception
    ) as error:  # the readers raise a dozen unrelated types; each means the same to a user
        if isinstance(error, OSError) and error.errno:
            raise  # no such file, no permission
        raise InvalidInput(
            f"{path} cannot be read as a {suffix} table: {one_line(str(error))}"
        ) from error
    if not len(table):
        raise InvalidInput(f"{path} has no rows.")
    table.columns = table.columns.map(str)
    return table


def write_table(table: pd.DataFrame, path: str) -> None:
    """Write a table whole or not at all."""
    from crumb.files import atomic_write

    suffix = check_suffix(path, TABLES)
    with atomic_write(path) as file:
        if suffix == ".parquet":
            table.to_parquet(file, index=False)
        else:
            # Without the time of day in the header, equal tables are equal files.
            gzip: Any = {"method": "gzip", "mtime": 0} if suffix == ".csv.gz" else None
            table.to_csv(file, index=False, compression=gzip)


def check_output(path: str | None, suffixes: Sequence[str], inputs: Sequence[str] = ()) -> None:
    """Whether a file can be written there, found out before the long work and not after it."""
    if path is None:
        return
    if suffixes:
        check_suffix(path, suffixes)
    if any(Path(path).resolve() == Path(other).resolve() for other in inputs):
        raise InvalidInput(f"The output {path} is one of the inputs: give it another name.")
    if Path(path).is_dir():
        raise IsADirectoryError(f"{path} is a folder: give the name of a file in it.")
    folder = Path(path).resolve().parent
    while not folder.exists():  # missing folders are made when the file is written
        folder = folder.parent
    if not folder.is_dir():
        raise NotADirectoryError(f"{path} cannot be written: {folder} is not a folder.")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise PermissionError(f"{path} cannot be written: no permission to write in {folder}.")


def check_suffix(path: str, suffixes: Sequence[str]) -> str:
    for suffix in sorted(suffixes, key=len, reverse=True):
        if path.lower().endswith(suffix):
            return suffix
    raise InvalidInput(f"The name {path} must end in {', '.join(suffixes[:-1])} or {suffixes[-1]}.")


def chosen_task(args: Any, y: pd.Series) -> str:
    """What ``--task`` says, or else what the target looks like."""
    task = args.task
    if task is None:
        task, reason = infer_task(y)
        note(f"the target {args.target!r} {reason}: {task} (--task overrides).")
    check_task(args, task)
    return task


def check_task(args: Any, task: str) -> None:
    """Options that are for the other task are a mistake."""
    if task == "classification" and args.quantiles:
        raise InvalidInput("--quantiles are for regression, but this is classification.")
    if task == "regression" and getattr(args, "no_proba", False):
        raise InvalidInput("--no-proba is for classification, but this is regression.")


def infer_task(y: pd.Series) -> tuple[str, str]:
    """Classification or regression, and the reason in words."""
    import pandas as pd

    distinct = y.nunique()
    if pd.api.types.is_bool_dtype(y.dtype):
        return "classification", "is true or false"
    if not pd.api.types.is_numeric_dtype(y.dtype):
        return "classification", f"holds text or categories ({distinct:,} values)"
    if distinct <= FEW_VALUES and are_whole(y):
        return "classification", f"holds whole numbers with {distinct} values"
    return "regression", f"holds numbers with {distinct:,} values"


def are_whole(y: pd.Series) -> bool:
    import pandas as pd

    return bool(pd.api.types.is_numeric_dtype(y.dtype) and (y.dropna() % 1 == 0).all())


def as_classes(y: pd.Series) -> Any:
    """Class labels as an array; whole numbers that a gap had turned into 1.0, 2.0 are 1, 2 again."""
    import pandas as pd

    if pd.api.types.is_bool_dtype(y.dtype):
        return y.to_numpy(dtype=bool)
    if are_whole(y):
        return y.to_numpy(dtype="int64")
    return y.to_numpy(dtype=object) if not pd.api.types.is_numeric_dtype(y.dtype) else y.to_numpy()


def _with_target(pool: pd.DataFrame, target: str, path: str, drop_missing: bool) -> pd.DataFrame:
    missing = pool[target].isna()
    count = int(missing.sum())
    if count == len(pool):
        raise InvalidInput(f"The target {target!r} is missing in all {count:,} rows of {path}.")
    if count and not drop_missing:
        raise InvalidInput(
            f"The target {target!r} is missing in {count:,} of {len(pool):,} rows of {path}: fill them in, "
            f"or leave these rows out with --drop-missing-target."
        )
    if count:
        note(f"{count:,} rows of {path} without a target are left out.")
    return pool[~missing].reset_index(drop=True)


def _aligned(queries: pd.DataFrame, columns: list[str], train: str, test: str) -> pd.DataFrame:
    missing = [name for name in columns if name not in queries.columns]
    if len(missing) == len(columns):
        raise InvalidInput(
            f"{test} has no column in common with {train}; both need a line of names at the top."
        )
    if missing:
        raise InvalidInput(
            f"{test} lacks {len(missing)} of the columns of {train}: {_listed(missing)}."
        )
    extra = [name for name in queries.columns if name not in columns]
    if extra:
        note(f"columns of {test} that {train} does not have are ignored: {_listed(extra)}.")
    return queries[columns]


def suggestion(name: str, known: list[str]) -> str:
    by_lower = {other.lower(): other for other in known}
    close = difflib.get_close_matches(name.lower(), by_lower, n=3)
    if close:
        return f"; did you mean {' or '.join(repr(by_lower[match]) for match in close)}?"
    if len(known) == 1 and any(separator in known[0] for separator in ";\t|"):
        return f"; its only column is {known[0]!r}: columns must be separated by commas."
    return f"; it has {_listed(known)}."


def _listed(names: list[str], limit: int = 10) -> str:
    more = f" and {len(names) - limit:,} more" if len(names) > limit else ""
    return ", ".join(repr(name) for name in names[:limit]) + more
