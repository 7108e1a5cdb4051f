"""Random numbers that belong to rows."""

from __future__ import annotations

import numpy as np
import pytest

from crumb.draws import random_numbers


@pytest.mark.parametrize("seed", [0, 1, 2**31 - 2])
def test_random_numbers_belong_to_rows(seed):
    drawn = random_numbers(np.arange(200_000), seed)
    assert (drawn >= 0).all()
    assert (drawn < 1).all()
    assert abs(np.histogram(drawn, 20)[0] / 10_000 - 1).max() < 0.05
    assert abs(np.corrcoef(drawn[:-1], drawn[1:])[0, 1]) < 0.01
    np.testing.assert_array_equal(random_numbers(np.arange(5_000, 5_010), seed), drawn[5_000:5_010])
    assert abs(np.corrcoef(drawn, random_numbers(np.arange(200_000), seed + 1))[0, 1]) < 0.01
