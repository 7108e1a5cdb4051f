"""The Open Inference Protocol's bodies, without a server."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from pydantic import ValidationError

from crumb.online import Answer
from crumb.serve.infer_v2 import (
    InferenceRequest,
    example,
    metadata,
    read_records,
    wanted_outputs,
    write_inference,
)
from crumb.serve.limits import Refusal
from crumb.serve.schema import Outputs, Prediction, Schema, refusal

NUMBERS = Schema.of(pd.DataFrame({"a": [1.0, 2.0], "b": [1, 2]}))
MIXED = Schema.of(pd.DataFrame({"a": [1.0, None], "flag": [True, False], "town": ["Rome", "Oslo"]}))
TENSORS = Outputs("proba").tensors(np.array(["x", "y"]))


def tensor(name, data, shape=None, datatype="FP64"):
    return {
        "name": name,
        "datatype": datatype,
        "shape": [len(data)] if shape is None else shape,
        "data": data,
    }


def read(schema, *inputs, max_rows=10, **more):
    """The request, the names of the outputs, and the values by column."""
    body = {"inputs": list(inputs), **more}
    try:
        asked = InferenceRequest.model_validate(body)
    except ValidationError as error:  # as the application does with FastAPI's
        found = [{**each, "loc": ("body", *each["loc"])} for each in error.errors()]
        raise refusal(found, body, schema) from error
    records = read_records(asked.inputs, schema, max_rows)
    columns = {name: [record[name] for record in records] for name in schema.names}
    return asked, wanted_outputs(asked, TENSORS), columns


@pytest.mark.parametrize("data", [[1, 2, 3, 4], [[1, 2], [3, 4]]])
def test_one_tensor_of_all_columns(data):
    _, _, columns = read(NUMBERS, tensor("table", data, [2, 2], "FP32"))
    assert columns == {"a": [1, 3], "b": [2, 4]}


def test_one_tensor_a_column_in_any_order():
    flag, town = (
        tensor("flag", [0, 1], datatype="UINT8"),
        tensor("town", ["Rome", "Bonn"], [2, 1], "BYTES"),
    )
    inputs = town, flag, tensor("a", [None, 3])
    asked, wanted, columns = read(MIXED, *inputs, id="x", parameters={"deadline": 2})
    assert (asked.id, asked.parameters.deadline, wanted) == ("x", 2.0, ["label", "probabilities"])
    assert columns == {"a": [None, 3], "flag": [0, 1], "town": ["Rome", "Bonn"]}


A, B = tensor("a", [1.0]), tensor("b", [1])
WRONG = [
    ([], "0 inputs for column 'a'"),
    ([A], "0 inputs for column 'b'"),
    ([A, A, B], "2 inputs for column 'a'"),
    ([A, B, tensor("c", [1])], "'c' is no column"),
    ([tensor(["a"], [1, 2], [1, 2])], "'inputs.0.name': Input should be a valid string"),
    ([tensor("t", [1, 2, 3], [1, 3])], r"has the shape \[rows, 2\]"),
    ([tensor("t", [1, 2], [1, 2], "BYTES")], "takes tensors of type FP64, FP32.*not BYTES"),
    ([tensor("t", [1, "2"], [1, 2])], "Column 'b' of record 0: Input should be a valid number"),
    ([tensor("t", [[1, 2], [3]], [2, 2])], "do not have its shape"),
    ([tensor("t", [[[1, 2]]], [1, 2])], "do not have its shape|valid number|has 1 values"),
    ([A, tensor("b", [1, 2])], "has 2 rows, the others have 1"),
    ([A, tensor("b", [1, 2], [1])], "has 2 values"),
    ([A, tensor("b", [1], [1, 1, 1])], "'inputs.1.shape': List should have at most 2 items"),
    ([A, tensor("b", [1], [True])], r"'inputs.1.shape.0': Input should be a valid integer"),
    (
        [A, tensor("b", [1], [-1])],
        r"'inputs.1.shape.0': Input should be greater than or equal to 0",
    ),
    ([A, tensor("b", [1], datatype="DOUBLE")], "'inputs.1.datatype': Input should be 'BOOL', "),
    ([A, tensor("b", "1", [1])], "'inputs.1.data': Input should be a valid list"),
    ([tensor("t", [], [0, 2])], "no rows"),
]


@pytest.mark.parametrize(("inputs", "said"), WRONG)
def test_wrong_tensors(inputs, said):
    with pytest.raises(Refusal, match=said) as refused:
        read(NUMBERS, *inputs)
    assert refused.value.status_code == 422


def test_too_many_rows_are_found_before_their_values_are_read():
    with pytest.raises(Refusal) as refused:
        read(NUMBERS, tensor("t", [], [10**12, 2]))
    assert refused.value.status_code == 413


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"id": 1}, "'id': Input should be a valid string"),
        ({"parameters": []}, "'parameters': Input should be .* instance of Parameters"),
        ({"parameters": {"deadline": 0}}, "'parameters.deadline': Input should be greater than 0"),
        ({"outputs": "label"}, "'outputs': Input should be a valid list"),
        ({"outputs": [{"name": "logits"}]}, "no output 'logits'; there are label, probabilities"),
        ({"outputs": [{"name": "label"}, {"name": "label"}]}, "asked for twice"),
    ],
)
def test_wrong_words_around_the_tensors(more, said):
    with pytest.raises(Refusal, match=said):
        read(NUMBERS, A, B, **more)


def test_the_example_can_be_read_and_fits_the_metadata():
    assert len(read(MIXED, *example(MIXED)["inputs"], max_rows=1)[2]["a"]) == 1
    about = metadata("m", 3, MIXED, TENSORS)
    assert about["versions"] == ["3"]
    assert [tensor["name"] for tensor in about["inputs"]] == MIXED.names
    assert [tensor["datatype"] for tensor in about["inputs"]] == [
        t["datatype"] for t in example(MIXED)["inputs"]
    ]


@pytest.mark.parametrize(
    ("classes", "datatype", "label", "keys"),
    [
        (np.array(["no", "yes"], dtype=object), "BYTES", "yes", ["no", "yes"]),
        (np.array([3, 7]), "INT64", 7, ["3", "7"]),
        (np.array([False, True]), "BOOL", True, ["false", "true"]),
        (np.array([0.5, 1.5]), "FP64", 1.5, ["0.5", "1.5"]),
    ],
)
def test_answers_with_classes(classes, datatype, label, keys):
    answers = [Answer(np.array([0.25, 0.75]), 4, 0, classes)]
    wanted = ["label", "probabilities"]
    written = write_inference("m", "i", wanted, answers, Outputs("proba"))
    assert (written["id"], written["model_version"], written["parameters"]["plan_version"]) == (
        "i",
        "4",
        4,
    )
    assert json.loads(written["parameters"]["classes"]) == keys
    assert written["outputs"] == [
        {"name": "label", "datatype": datatype, "shape": [1], "data": [label]},
        {"name": "probabilities", "datatype": "FP64", "shape": [1, 2], "data": [0.25, 0.75]},
    ]
    json.dumps(written)
    plain = Outputs("proba").record(answers[0])
    assert plain == {"label": label, "probabilities": dict(zip(keys, [0.25, 0.75], strict=True))}
    assert Prediction.model_validate(plain).model_dump(exclude_unset=True) == plain


@pytest.mark.parametrize(
    ("outputs", "value", "written", "record"),
    [
        (Outputs("mean"), np.float64(2.5), ("prediction", [1], [2.5]), {"prediction": 2.5}),
        (
            Outputs("quantiles", (0.1, 0.9)),
            np.array([1.0, 2.0]),
            ("quantiles", [1, 2], [1.0, 2.0]),
            {"quantiles": {"0.1": 1.0, "0.9": 2.0}},
        ),
    ],
)
def test_answers_that_are_numbers(outputs, value, written, record):
    answers = [Answer(value, 1, 0, None)]
    wanted = [tensor["name"] for tensor in outputs.tensors(None)]
    found = write_inference("m", None, wanted, answers, outputs)["outputs"][0]
    assert (found["name"], found["shape"], found["data"]) == written
    assert outputs.record(answers[0]) == record
    assert Prediction.model_validate(record).model_dump(exclude_unset=True) == record


def test_labels_without_probabilities():
    answer = Answer(np.str_("yes"), 1, 0, np.array(["no", "yes"]))
    assert Outputs("label").record(answer) == {"label": "yes"}
