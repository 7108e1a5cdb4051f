"""Random numbers that belong to rows."""

from __future__ import annotations

import numpy as np
import pytest

from crumb.rng import generator, row_numbers


@pytest.mark.parametrize("seed", [0, 1, 2**31 - 2])
def test_random_numbers_belong_to_rows(seed):
    drawn = row_numbers(np.arange(200_000), seed, "test")
    assert (drawn >= 0).all()
    assert (drawn < 1).all()
    assert abs(np.histogram(drawn, 20)[0] / 10_000 - 1).max() < 0.05
    assert abs(np.corrcoef(drawn[:-1], drawn[1:])[0, 1]) < 0.01
    np.testing.assert_array_equal(
        row_numbers(np.arange(5_000, 5_010), seed, "test"), drawn[5_000:5_010]
    )
    assert abs(np.corrcoef(drawn, row_numbers(np.arange(200_000), seed + 1, "test"))[0, 1]) < 0.01
    assert abs(np.corrcoef(drawn, row_numbers(np.arange(200_000), seed, "other"))[0, 1]) < 0.01


def test_each_purpose_has_a_generator_of_its_own():
    first, again, other = (generator(3, purpose).random(5) for purpose in ("a", "a", "b"))
    np.testing.assert_array_equal(first, again)
    assert not np.allclose(first, other)
