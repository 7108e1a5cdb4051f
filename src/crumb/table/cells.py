"""How a value becomes a cell: a number or a word. Tables, files and single rows all ask here.

- Missing are None, NaN, NaT and ``pd.NA``.
- As numbers, truth values are 0 and 1, dates are days since 1970 (UTC), durations are days.
- Numbers beyond ``LARGEST`` are infinite. The encoder puts them at the pool's extremes.
- As words, whole numbers have no decimals: 3, 3.0 and a category of either are "3".
- A column of text is one of dates where all its values in the pool are ISO dates.
- Where pool and queries hold a column in different types, a value goes to the category that it
  means (``Words``): "3" is 3, "True" is True, a date is its ISO text.
"""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Iterable
from contextlib import suppress
from decimal import Decimal
from functools import cached_property
from numbers import Integral, Real
from typing import Any

import numpy as np
import pandas as pd

from crumb.errors import InvalidInput

# Programs write 1e30, 9.97e36 or -3.4e38 where they have no data. A little less, so that 1e30 is
# beyond it in float32 too.
LARGEST = 9.9e29
LARGEST_WHOLE = 2**53  # up to here floats tell whole numbers apart
DAY = np.timedelta64(1, "D")
MISSING = "\0missing"  # as a word: a missing category is a category like any other
NESTED = (dict, list, set, frozenset, tuple, np.ndarray, pd.Series)
TRUTH = {"true": 1, "false": 0}
MOMENT = re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d+)?)?\s?(Z|[+-]\d\d(:?\d\d)?)?)?")


def is_missing(value: Any) -> bool:
    return value is None or value is pd.NA or value is pd.NaT or bool(value != value)


def number_of(value: Any) -> float:
    """The number that a value means, NaN where it is missing; ValueError where it means none."""
    if is_number(value):
        try:
            return float(value)
        except OverflowError:  # a whole number of hundreds of digits
            return math.inf if value > 0 else -math.inf
    if isinstance(value, (str, bytes)):
        found = _read(word_of(value))
        return days(found) if isinstance(found, np.datetime64) else number_of(found)
    _check_flat(value)
    if is_missing(value):
        return math.nan
    if (time := _time(value)) is not None:
        return days(time)
    raise ValueError(f"{value!r} is no number")


def word_of(value: Any) -> str:
    """A value as text, the same for 3 and 3.0, for a date and its midnight, for text and bytes."""
    if isinstance(value, str):  # what is no Unicode, such as half a pair, cannot be stored
        return value if value.isascii() else value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    if is_number(value):
        return _digits(value)
    _check_flat(value)
    time = _time(value)
    if isinstance(time, np.datetime64):
        text = str(time.astype("datetime64[us]")).replace("T", " ")
        return text.removesuffix(".000000").removesuffix(" 00:00:00")
    return str(value) if time is None else str(pd.Timedelta(time))


def is_number(value: Any) -> bool:
    """To numpy a duration is a whole number."""
    numbers = Real, Decimal, np.bool_
    return isinstance(value, numbers) and not isinstance(value, np.timedelta64)


def _digits(value: Any) -> str:
    if isinstance(value, (bool, np.bool_)):
        return str(bool(value))
    if isinstance(value, Integral):
        return str(int(value))
    if isinstance(value, Decimal):
        return f"{value.normalize():f}" if value.is_finite() else str(float(value))
    number = float(value)
    return str(int(number)) if number.is_integer() else repr(number)


def days(times: Any) -> Any:
    """Dates (since 1970) or durations. By microseconds: nanoseconds end in 2262."""
    if times.dtype.kind == "M":
        return (times.astype("datetime64[us]") - np.datetime64(0, "us")) / DAY
    return times.astype("timedelta64[us]") / DAY


def _time(value: Any) -> np.datetime64 | np.timedelta64 | None:
    """A date or a duration as numpy has it, dates in UTC; None for anything else."""
    if isinstance(value, (np.datetime64, np.timedelta64)):
        return value
    if isinstance(value, pd.Period):
        value = value.start_time
    if isinstance(value, pd.Timedelta):
        return value.to_timedelta64()
    if isinstance(value, dt.date):
        value = pd.Timestamp(value)
        return (value if value.tz is None else value.tz_convert(None)).to_datetime64()
    return np.timedelta64(value, "us") if isinstance(value, dt.timedelta) else None


def _read(word: str) -> Any:
    """What a text stands for: a number, a truth value as 0 or 1, a date; ValueError for others."""
    text = word.strip()
    if text.lower() in TRUTH:
        return TRUTH[text.lower()]
    if "_" in text:  # a digit separator to Python alone
        raise ValueError(f"{word!r} is no number")
    try:
        return int(text) if text.lstrip("+-").isdecimal() else float(text)
    except ValueError:
        return _moment(text)


def _moment(text: str) -> Any:
    """An ISO date, in UTC; ValueError for other text, TypeError for other values."""
    found = MOMENT.fullmatch(str.strip(text))
    if found is None:
        raise ValueError(f"{text!r} is neither a number nor a date")
    return _time(pd.Timestamp(found[0])) if found[4] else np.datetime64(found[0], "us")


def _moments(texts: Iterable[str]) -> np.ndarray:
    """Many of them, and a missing one at the end."""
    return np.array([*map(_moment, texts), "NaT"], dtype="datetime64[us]")


def _check_flat(value: Any) -> None:
    if isinstance(value, NESTED):
        raise TypeError("nested values; each argument must be a string or a number")


class Words:
    """The categories of a column of the pool, and which of them a value of a query means.

    Cells are numbers where all categories are (and floats tell them apart), else text.
    """

    def __init__(self, values: Iterable[Any] = (), numbers: bool = True):
        values = list(values)
        self.measured = numbers  # whether they may be numbers
        self.numbers = numbers and bool(values) and all(map(_is_plain_number, values))
        read = number_of if self.numbers else word_of
        self.cells: list[Any] = list(dict.fromkeys(map(read, values)))
        self._dates = bool(values) and all(MOMENT.fullmatch(str(cell)) for cell in self.cells)

    def learned(self, words: Iterable[str]) -> Words:
        """The same column, with categories that are known by their text."""
        return Words(map(_read, words) if self.measured else words, self.measured)

    def cell(self, value: Any) -> Any:
        """A category of the pool, or a new one; NaN for missing; ValueError for text as number."""
        if type(value) is str and not (self.numbers or self._dates):
            return word_of(value)
        _check_flat(value)
        if is_missing(value):
            return math.nan
        if self.numbers:
            return min(max(number_of(value), -LARGEST), LARGEST)
        word = word_of(value)
        is_text = isinstance(value, (str, bytes))
        if word in self._known or (is_text and not self._dates):  # "07" and "7" are two codes
            return word
        meaning = _meaning(word if is_text else value)
        if is_text and isinstance(meaning, tuple):  # a date that is new is the same however written
            word = word_of(_read(word))
        return word if meaning is None else self._meanings.get(meaning, word)

    @cached_property
    def _known(self) -> frozenset[Any]:
        return frozenset(self.cells)

    @cached_property
    def _meanings(self) -> dict[Any, Any]:
        """The shortest word with each meaning."""
        by_length = sorted(self.cells, key=lambda word: (len(word), word), reverse=True)
        return {_meaning(word): word for word in by_length}


def _meaning(value: Any) -> Any:
    """Equal for a number or a date and for its text; None where there is nothing to compare."""
    try:
        value = _read(value) if isinstance(value, str) else value
    except ValueError:
        return None
    if isinstance(value, (np.bool_, Decimal, np.floating)):
        value = float(value)
    if isinstance(value, (Real, str)):
        return value
    time = _time(value)
    return None if time is None else (float(days(time)), time.dtype.kind)


def _is_plain_number(value: Any) -> bool:
    """Whether a float is as good: neither a truth value nor a decimal nor too large."""
    is_plain = is_number(value) and not isinstance(value, (bool, np.bool_, Decimal))
    return is_plain and -LARGEST_WHOLE <= value <= LARGEST_WHOLE


def distinct(column: pd.Series) -> tuple[np.ndarray, list[Any]]:
    """For each row the place of its value in a list, −1 where it is missing; and the list."""
    if isinstance(column.dtype, pd.CategoricalDtype):
        column = column.cat.remove_unused_categories()
        return column.cat.codes.to_numpy(), list(column.cat.categories)
    try:
        if column.dtype != object or _all_text(column):
            codes, values = pd.factorize(column)
            return codes, list(values)
        # To Python 1, 1.0 and True are equal; as words they are not.
        found: dict[Any, int] = {}
        places = (
            -1 if is_missing(value) else found.setdefault((type(value), value), len(found))
            for value in column
        )
        codes = np.fromiter(places, dtype=np.intp, count=len(column))
        return codes, [value for _, value in found]
    except (TypeError, ValueError) as error:  # what cannot be hashed or compared
        raise _nested(column) from error


def _all_text(column: pd.Series) -> bool:
    return pd.api.types.infer_dtype(column, skipna=True) == "string"


def kind_of(column: pd.Series) -> str:
    """What a column of the pool is: "number", "text", "category" or "empty"."""
    if column.isna().all():
        return "empty"
    if isinstance(column.dtype, pd.CategoricalDtype):
        return "category"
    if pd.api.types.is_complex_dtype(column.dtype):
        raise InvalidInput(f"Column {column.name!r} is complex. Complex data not supported.")
    is_time = isinstance(column.dtype, pd.PeriodDtype) or column.dtype.kind in "mM"
    if is_time or pd.api.types.is_numeric_dtype(column.dtype):
        return "number"
    return _kind_of_objects(column)


def _kind_of_objects(column: pd.Series) -> str:
    if _all_text(column):
        try:
            _moments(column.dropna().unique())
        except ValueError:  # at the first text of most columns
            return "text"
        return "number"
    types = set(map(type, column[column.notna()]))
    if any(issubclass(kind, NESTED) for kind in types):
        raise _nested(column)
    if any(issubclass(kind, (complex, np.complexfloating)) for kind in types):
        raise InvalidInput(f"Column {column.name!r} is complex. Complex data not supported.")
    for alike in (
        (Real, Decimal, np.bool_),
        (dt.date, np.datetime64, pd.Period),
        (dt.timedelta, np.timedelta64),
    ):
        if all(issubclass(kind, alike) for kind in types):
            return "number"
    return "text"


def _nested(column: pd.Series) -> TypeError:
    said = f"Column {column.name!r} holds nested values"
    return TypeError(f"{said}; each argument must be a string or a number.")


def numbers(column: pd.Series) -> np.ndarray:
    """A column as floats or whole numbers; InvalidInput names the row that holds something else."""
    dtype = column.dtype
    if isinstance(dtype, pd.DatetimeTZDtype):
        return days(column.dt.tz_convert(None).to_numpy())
    if isinstance(dtype, pd.PeriodDtype):
        return days(column.dt.to_timestamp().to_numpy())
    if isinstance(dtype, np.dtype) and dtype.kind in "mM":
        return days(column.to_numpy())
    if isinstance(dtype, np.dtype) and dtype.kind in "fiu" and dtype.itemsize <= 8:
        return column.to_numpy()
    if pd.api.types.is_numeric_dtype(dtype):  # bool counts as numeric in pandas
        return column.to_numpy(dtype=np.float64, na_value=np.nan)
    codes, values = distinct(column)
    with suppress(TypeError, ValueError):
        return days(_moments(values))[codes]
    found = each(column, codes, values, number_of)
    return np.array([*found, np.nan], dtype=np.float64)[codes]


def each(column: pd.Series, codes: np.ndarray, values: list[Any], read: Any) -> list[Any]:
    """``read`` of every distinct value; the column and the row are named where it cannot be."""
    found: list[Any] = []
    try:
        found.extend(map(read, values))
    except TypeError as error:
        raise _nested(column) from error
    except ValueError as error:
        row = int(np.argmax(codes == len(found)))
        raise InvalidInput(
            f"Column {column.name!r} held numbers or dates in the training table, but row {row} "
            f"of the queries holds text; clean it, or train with it as a category of text."
        ) from error
    return found


def from_arrow(column: Any) -> pd.Series:
    """An Arrow column as pandas holds it best: whole numbers stay whole beside missing ones."""
    import pyarrow as pa

    kind, types = column.type, pa.types
    if types.is_decimal(kind):
        column = _from_decimal(column)
    elif types.is_null(kind):
        column = column.cast(pa.float64())
    nullable = {pa.int64(): pd.Int64Dtype(), pa.uint64(): pd.UInt64Dtype()}
    nullable[pa.bool_()] = pd.BooleanDtype()
    held = nullable.get if column.null_count else None
    return pd.Series(column.to_pandas(date_as_object=False, types_mapper=held))


def _from_decimal(column: Any) -> Any:
    """Codes of databases are whole decimals of up to 38 digits; other decimals are measures."""
    import pyarrow as pa

    if column.type.scale > 0 or column.type.precision <= 15:
        return column.cast(pa.float64(), safe=False)
    try:
        return column.cast(pa.int64())
    except pa.ArrowInvalid:
        return column
