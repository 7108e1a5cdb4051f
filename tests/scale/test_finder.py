"""The questions of strategies have the same answers in memory and in files."""

from __future__ import annotations

import numpy as np
import pytest
from scale_tables import numbers, stay_on_disk, truncate, write

from crumb.errors import InvalidInput
from crumb.options import Options
from crumb.scale import pool as finders
from crumb.scale.engine import LocalEngine
from crumb.scale.pool import FilePool, read_whole
from crumb.scale.source import count_rows, open_source
from crumb.selection.base import CellRows, Nearest, TableFinder


@pytest.fixture
def both(tmp_path, monkeypatch):
    """Finders of one pool: in memory, and in files."""
    stay_on_disk(monkeypatch)
    truncate(monkeypatch)
    engine, options = LocalEngine(1), Options.of(random_state=3)
    source = count_rows(open_source(write(tmp_path / "t", numbers(900)), "target"), engine)
    pool = FilePool(source, engine, options, classify=True)
    frame, _ = read_whole(source)
    points = pool.encode(frame)[1]
    return TableFinder(points, seed=3), pool.finder(options)


def test_questions_have_the_same_answers(both):
    memory, files = both
    assert (memory.whole, files.whole) == (True, False)
    centroids = memory.held.points[[5, 100, 417, 733, 899]]
    questions = (
        Nearest(centroids, 30),
        CellRows(centroids, 25, np.array([0, 2, 3])),
        [np.array([800, 3]), np.array([77])],
    )
    answers = files.find(centroids, *questions)
    for mine, theirs in zip(answers, memory.find(centroids, *questions), strict=True):
        assert len(mine) == len(theirs)
        for one, other in zip(mine, theirs, strict=True):
            np.testing.assert_array_equal(one, other)
            # What is held of the files is enough for evidence and rare classes.
            held = files.held.points[files.held.places(one)]
            np.testing.assert_allclose(held, memory.held.points[other])
    assert len(files.held.points) < files.size
    np.testing.assert_array_equal(
        files.held.numbers(files.held.places(answers[0][1])), answers[0][1]
    )


def test_centroids_of_the_pool(both):
    memory, _ = both
    for finder in both:
        centroids = finder.centroids(8)
        assert centroids.shape == (8, 5)
        near = [((memory.held.points - one) ** 2).sum(axis=1).min() for one in centroids]
        assert max(near) < 3.0  # every centroid lies where rows are


def test_too_many_neighbours_are_refused(both, monkeypatch):
    memory, files = both
    monkeypatch.setattr(finders, "KNN_ENTRIES", 50)
    with pytest.raises(InvalidInput, match="at most 2 queries at a time"):
        files.find(memory.held.points[:3], Nearest(memory.held.points[:3], 25))
