"""Files that are damaged, or made to do harm: refused in CRUMB's own words, with their name."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import crumb
from crumb import CrumbClassifier, CrumbOnline, CrumbRegressor, Plan
from crumb.errors import CrumbError, InvalidFile, PlanMismatch
from crumb.files import UNPACKED_BYTES, read_archive, write_archive

rng = np.random.default_rng(0)
N = 40
FRAME = pd.DataFrame(
    {"x": rng.normal(size=N), "t": rng.choice(["a", "b"], N), "c": pd.Categorical([3, 1] * 20)}
)
LABELS = np.array(["no", "yes"])[np.arange(N) % 2]
SMALL = {"context_size": 10, "n_clusters": 2, "device": "cpu", "n_jobs": 1}


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("saved")
    model = CrumbClassifier(**SMALL).fit(FRAME, LABELS)
    model.save(folder / "frame.crumb")
    X = rng.normal(size=(N, 3))
    CrumbRegressor(**SMALL).fit(X, X[:, 0]).save(folder / "array.crumb")
    model.plan(FRAME).save(folder / "plan.crumb")
    with CrumbOnline(model, FRAME) as stream:
        stream.save(folder / "stream.crumb")
    return {path.stem: path for path in folder.iterdir()}


READ = {"frame": crumb.load, "array": crumb.load, "plan": Plan.load, "stream": CrumbOnline.load}


def corrupted(content: bytes, rng: np.random.Generator) -> bytes:
    """A part that is lost, doubled, overwritten or moved; or a few bytes that have changed."""
    data, size = bytearray(content), len(content)
    a, b = sorted(rng.integers(0, size, 2).tolist())
    way = rng.integers(6)
    if way == 0:
        return content[:a]
    if way == 1:
        return content[:a] + content[b:]
    if way == 2:
        return content[:b] + content[a:]
    if way == 3:
        data[a:b] = rng.bytes(b - a)
    # Zip keeps its lists at the end: damage there is the most varied.
    start = 0 if way == 4 else max(0, size - 1_500)
    for place in rng.integers(start, size, rng.integers(1, 5)).tolist():
        data[place] = rng.integers(256)
    return bytes(data)


def assert_own_error(read, path: Path) -> None:
    try:
        opened = read(path)
    except CrumbError as error:
        assert str(path) in str(error)  # noqa: PT017 (not every damage must raise)
    else:
        getattr(opened, "close", lambda: None)()


@pytest.mark.parametrize(("kind", "times"), [("frame", 150), ("array", 150), ("plan", 300)])
def test_damage_of_any_kind_is_told_in_one_way(saved, tmp_path, kind: str, times: int) -> None:
    content, path = saved[kind].read_bytes(), tmp_path / f"{kind}.crumb"
    for seed in range(times):
        path.write_bytes(corrupted(content, np.random.default_rng(seed)))
        assert_own_error(READ[kind], path)


def test_damage_of_a_stream_is_told_in_one_way(saved, tmp_path) -> None:
    content, path = saved["stream"].read_bytes(), tmp_path / "stream.crumb"
    for seed in range(40):
        path.write_bytes(corrupted(content, np.random.default_rng(seed)))
        assert_own_error(CrumbOnline.load, path)


def parts(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def rewrite(path: Path, content: dict[str, bytes]) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in content.items():
            archive.writestr(name, data)


@pytest.mark.parametrize("kind", ["frame", "array", "plan"])
def test_parts_that_are_damaged_or_missing(saved, tmp_path, kind: str) -> None:
    """As above, but with checksums that fit."""
    whole, path = parts(saved[kind]), tmp_path / f"{kind}.crumb"
    for seed in range(80):
        rng = np.random.default_rng(seed)
        name = rng.choice(list(whole))
        content = {**whole, name: corrupted(whole[name], rng)}
        if seed % 8 == 0:
            del content[name]
        rewrite(path, content)
        assert_own_error(READ[kind], path)
    about = json.loads(whole["about.json"])
    for key in about:
        for value in (None, [], {}, "x", -1, 1e400):
            rewrite(path, {**whole, "about.json": json.dumps({**about, key: value}).encode()})
            assert_own_error(READ[kind], path)


def test_a_table_is_no_saved_estimator(tmp_path) -> None:
    path = tmp_path / "table.csv"
    path.write_text("a,b\n1,2\n")
    for read, kind in ((crumb.load, "crumb-estimator"), (Plan.load, "crumb-plan")):
        with pytest.raises(InvalidFile, match=f"table.csv is not a complete '{kind}' file.*saves"):
            read(path)
    for missing in (tmp_path / "nothing.crumb", tmp_path):
        with pytest.raises(OSError, match=str(missing)):
            crumb.load(missing)


def test_a_file_cannot_choose_the_engine(saved, tmp_path) -> None:
    whole, path = parts(saved["array"]), tmp_path / "a.crumb"
    about = json.loads(whole["about.json"])
    about["params"]["engine"] = "ray"
    rewrite(path, {**whole, "about.json": json.dumps(about).encode()})
    assert crumb.load(path).engine == "local"


def test_an_archive_that_unpacks_to_a_gigabyte_is_not_unpacked(tmp_path) -> None:
    path = tmp_path / "bomb.crumb"
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("zeros.npy", "w", force_zip64=True) as member,
    ):
        for _ in range(1_000):
            member.write(bytes(1_000_000))
    assert path.stat().st_size < 1_100_000
    with pytest.raises(InvalidFile, match="would unpack to 1,000 MB"):
        crumb.load(path)


def test_a_table_that_unpacks_to_gigabytes_is_not_unpacked(saved, tmp_path) -> None:
    buffer, path = io.BytesIO(), tmp_path / "bomb.crumb"
    column = pa.array(np.zeros(2_000_000))
    pq.write_table(pa.table({str(i): column for i in range(60)}), buffer, compression="zstd")
    assert len(buffer.getvalue()) < 600_000
    rewrite(path, {**parts(saved["frame"]), "pool.parquet": buffer.getvalue()})
    with pytest.raises(InvalidFile, match="would unpack to 960 MB"):
        crumb.load(path)


def test_what_we_save_can_be_read_however_much_it_shrinks(tmp_path) -> None:
    zeros = np.zeros(UNPACKED_BYTES // 8 + 10)
    write_archive(tmp_path / "z.crumb", "kind", 1, {}, {"zeros": zeros})
    assert len(read_archive(tmp_path / "z.crumb", "kind", 1)[1]["zeros"]) == len(zeros)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_centroids_that_are_no_numbers(saved, tmp_path, value: float) -> None:
    plan = Plan.load(saved["plan"])
    plan.centroids[0, 0] = value
    plan.save(tmp_path / "p.crumb")
    with pytest.raises(PlanMismatch, match=r"p\.crumb.*contradicts itself"):
        Plan.load(tmp_path / "p.crumb")


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("name", ["mmd2", "query_distance"])
def test_evidence_that_is_no_number(saved, tmp_path, name: str, value: float) -> None:
    plan = Plan.load(saved["plan"])
    part = plan.mmd2[1] if name == "mmd2" else plan.query_distance
    part[3] = value
    plan.save(tmp_path / "p.crumb")
    with pytest.raises(PlanMismatch, match=r"p\.crumb.*contradicts itself"):
        Plan.load(tmp_path / "p.crumb")


def test_contexts_with_a_row_twice(saved, tmp_path) -> None:
    plan = Plan.load(saved["plan"])
    plan.contexts[0][1] = plan.contexts[0][0]
    plan.save(tmp_path / "p.crumb")
    with pytest.raises(InvalidFile, match="a row twice"):
        Plan.load(tmp_path / "p.crumb")
