"""Checkpoint files that are not what they should be: refused in one sentence, and never run."""

from __future__ import annotations

import io
import os
import pickle
import shutil
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from checkpoints import tabicl_v2_classifier
from small_tables import classes, numbers, targets

from crumb import CrumbClassifier, CrumbRegressor
from crumb.errors import InvalidCheckpoint
from crumb.pfn import models
from crumb.pfn.models import CARDS, checksum, read_checkpoint


def fit(path: Path | str) -> CrumbClassifier:
    return CrumbClassifier(model=path, device="cpu").fit(numbers(20, 1), classes(20, 2))


def zipped(**files: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in files.items():
            archive.writestr(name.replace("__", "/"), content)
    return buffer.getvalue()


def test_facts(tabicl_classifier: Path, tabicl_regressor: Path) -> None:
    classifier, regressor = (
        read_checkpoint(tabicl_classifier),
        read_checkpoint(str(tabicl_regressor)),
    )
    assert (classifier.family, classifier.task, classifier.max_classes) == (
        "tabicl",
        "classification",
        10,
    )
    assert (regressor.family, regressor.task, regressor.max_classes) == ("tabicl", "regression", 0)


def test_facts_of_tabpfn(tabpfn_classifier: Path, tabpfn_regressor: Path) -> None:
    classifier, regressor = read_checkpoint(tabpfn_classifier), read_checkpoint(tabpfn_regressor)
    assert (classifier.family, classifier.task, classifier.max_classes) == (
        "tabpfn",
        "classification",
        10,
    )
    assert (regressor.family, regressor.task, regressor.max_classes) == ("tabpfn", "regression", 0)


def test_configuration_that_leaves_everything_at_its_default(
    tabicl_classifier: Path, tmp_path: Path
) -> None:
    """The network of tabicl is known by the names of its weights."""
    content = torch.load(tabicl_classifier, weights_only=True)
    torch.save({**content, "config": {}}, tmp_path / "bare.ckpt")
    bare = read_checkpoint(tmp_path / "bare.ckpt")
    assert (bare.family, bare.task, bare.max_classes) == ("tabicl", "classification", 10)


@pytest.mark.parametrize("family", ["tabicl", "tabpfn"])
def test_network_for_the_other_task(family: str, request: pytest.FixtureRequest) -> None:
    X = numbers(20, 1)
    regressor = request.getfixturevalue(f"{family}_regressor")
    with pytest.raises(
        InvalidCheckpoint, match="holds a network for regression, but classification was asked"
    ):
        CrumbClassifier(model=regressor).fit(X, classes(20, 2))
    classifier = request.getfixturevalue(f"{family}_classifier")
    with pytest.raises(
        InvalidCheckpoint, match="holds a network for classification, but regression was asked"
    ):
        CrumbRegressor(model=classifier).fit(X, targets(20, 2))


@pytest.mark.parametrize("share", [0.01, 0.5, 0.99])
def test_truncated_file(share: float, tabicl_classifier: Path, tmp_path: Path) -> None:
    content = tabicl_classifier.read_bytes()
    path = tmp_path / "half.ckpt"
    path.write_bytes(content[: int(share * len(content))])
    with pytest.raises(
        InvalidCheckpoint, match=r"half\.ckpt cannot be read as a checkpoint: it is truncated"
    ):
        fit(path)


@pytest.mark.parametrize("source", ["tabicl_classifier", "tabpfn_v1"])
def test_altered_weights(source: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    whole = request.getfixturevalue(source)
    path = tmp_path / f"altered{whole.suffix}"
    with zipfile.ZipFile(whole) as archive:
        part = max(archive.infolist(), key=lambda one: one.file_size)
        weights = archive.read(part)
    path.write_bytes(whole.read_bytes().replace(weights, weights[:-4] + bytes([0, 0, 128, 63])))
    with pytest.raises(InvalidCheckpoint) as caught:
        fit(path)
    sentence = f"altered after it was written (the checksum of {part.filename!r} in it differs): "
    assert sentence + "download or copy it again." in str(caught.value)


@pytest.mark.parametrize("how", ["in the old format", "without checksums"])
def test_files_that_have_no_checksums(how: str, tabicl_classifier: Path, tmp_path: Path) -> None:
    content, path = torch.load(tabicl_classifier, weights_only=True), tmp_path / "plain.ckpt"
    if how == "in the old format":
        torch.save(content, path, _use_new_zipfile_serialization=False)
        assert not zipfile.is_zipfile(path)
    else:
        if not hasattr(torch.serialization, "set_crc32_options"):
            pytest.skip("this torch always writes them")
        torch.serialization.set_crc32_options(False)
        try:
            torch.save(content, path)
        finally:
            torch.serialization.set_crc32_options(True)
        assert zipfile.ZipFile(path).testzip() is not None
    fit(path)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"hello, world\n" * 10,
        b"<!DOCTYPE html><html><body>404</body></html>",
        b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n",
        bytes(range(256)) * 40,
        zipped(a__txt=b"no checkpoint"),
        zipped(archive__data=b"no checkpoint", archive__version=b"3"),
        zipped(**{"archive__data.pkl": b"garbage", "archive__version": b"3"}),
        pickle.dumps({"config": {}, "state_dict": {}}),
    ],
    ids=[
        "empty",
        "text",
        "web page",
        "pointer",
        "bytes",
        "zip",
        "zip folder",
        "zip garbage",
        "pickle",
    ],
)
@pytest.mark.parametrize("ending", ["ckpt", "safetensors"])
def test_other_kind_of_file(ending: str, content: bytes, tmp_path: Path) -> None:
    if ending == "safetensors":
        pytest.importorskip("safetensors")
    path = tmp_path / f"model.{ending}"
    path.write_bytes(content)
    with pytest.raises(InvalidCheckpoint, match="cannot be read as a checkpoint"):
        fit(path)


class Trap:
    """Unpickling it makes a file."""

    def __init__(self, marker: Path):
        self.marker = marker

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.marker),)


@pytest.mark.parametrize("where", ["pickle", "torch", "torch, old format", "weights"])
def test_file_that_would_run_code(where: str, tabicl_classifier: Path, tmp_path: Path) -> None:
    path, marker = tmp_path / "trap.ckpt", tmp_path / "sprung"
    content: Any = torch.load(tabicl_classifier, weights_only=True)
    part = "state_dict" if where == "weights" else "config"
    content[part]["trap"] = Trap(marker)
    if where == "pickle":
        path.write_bytes(pickle.dumps(content))
    else:
        torch.save(content, path, _use_new_zipfile_serialization=where != "torch, old format")
    with pytest.raises(InvalidCheckpoint):
        fit(path)
    assert not marker.exists()
    torch.load(path, weights_only=False) if where != "pickle" else pickle.loads(path.read_bytes())
    assert marker.exists(), "the trap itself must work"


def test_reason_is_given_for_python_objects(tabicl_classifier: Path, tmp_path: Path) -> None:
    content = torch.load(tabicl_classifier, weights_only=True)
    torch.save(
        {**content, "config": {**content["config"], "trap": Trap(tmp_path)}}, tmp_path / "trap.ckpt"
    )
    with pytest.raises(
        InvalidCheckpoint, match="holds Python objects besides tensors and was not opened"
    ):
        fit(tmp_path / "trap.ckpt")


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ([1, 2], "has no 'config' and 'state_dict'"),
        ((1, 2), "has no 'config' and 'state_dict'"),
        ((1, 2, 3), "'config' or 'state_dict' is no dictionary"),
        ({"state_dict": {}}, "has no 'config' and 'state_dict'"),
        ({"config": 3, "state_dict": {}}, "'config' or 'state_dict' is no dictionary"),
        ({"config": {}, "state_dict": [1]}, "'config' or 'state_dict' is no dictionary"),
        ({"config": {"layers": 3}, "state_dict": {}}, "none that CRUMB knows"),
        (
            {"config": {"emsize": 3, "max_num_classes": "ten"}, "state_dict": {}},
            "none that CRUMB knows",
        ),
    ],
)
def test_checkpoint_of_something_else(content: Any, sentence: str, tmp_path: Path) -> None:
    torch.save(content, tmp_path / "other.ckpt")
    with pytest.raises(InvalidCheckpoint, match=sentence):
        fit(tmp_path / "other.ckpt")


@pytest.mark.parametrize("family", ["tabicl", "tabpfn"])
def test_weights_that_are_not_numbers(
    family: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    content = torch.load(request.getfixturevalue(f"{family}_classifier"), weights_only=True)
    name = list(content["state_dict"])[-1]
    content["state_dict"][name].view(-1)[-1] = torch.nan
    torch.save(content, tmp_path / "failed.ckpt")
    with pytest.raises(InvalidCheckpoint, match=rf"'{name}' in .*failed\.ckpt are not numbers"):
        fit(tmp_path / "failed.ckpt")


def test_missing_file_and_folder(tmp_path: Path) -> None:
    with pytest.raises(InvalidCheckpoint, match=r"no checkpoint file at .*nowhere\.ckpt"):
        fit(tmp_path / "nowhere.ckpt")
    with pytest.raises(InvalidCheckpoint, match="no checkpoint file at"):
        fit(tmp_path)
    with pytest.raises(InvalidCheckpoint, match="no checkpoint file at"):
        fit(f"{tmp_path}{os.sep}")


def test_link_into_a_cache(tabicl_classifier: Path, tmp_path: Path) -> None:
    """The hub's cache names its files by their checksums, and has readable links to them."""
    blob = tmp_path / "0123abcd"
    shutil.copy(tabicl_classifier, blob)
    (tmp_path / "model.ckpt").symlink_to(blob)
    assert fit(tmp_path / "model.ckpt").backend_.path.name == "model.ckpt"


def test_file_that_was_replaced_is_read_again(tmp_path: Path) -> None:
    path = tabicl_v2_classifier(tmp_path / "model.ckpt")
    before = read_checkpoint(path)
    assert read_checkpoint(path) is before
    tabicl_v2_classifier(path, seed=1)
    assert read_checkpoint(path) is not before


def test_embedded_weights_are_those_that_were_shipped() -> None:
    for card in CARDS:
        if card.repository is None:
            assert checksum(models.EMBEDDED / card.file) == card.sha256


def test_embedded_weights_that_were_changed(
    tabicl_classifier: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(models, "EMBEDDED", tmp_path)
    shutil.copy(tabicl_classifier, tmp_path / "classifier.ckpt")
    with pytest.raises(
        InvalidCheckpoint,
        match=r"not the file that 'embedded' names \(its checksum differs\): reinstall",
    ):
        fit("embedded")
    (tmp_path / "classifier.ckpt").unlink()
    with pytest.raises(InvalidCheckpoint, match="no checkpoint file at"):
        fit("embedded")
