"""Asks a service as tritonclient or kserve do by default: ``python oip_clients.py NAME HOST:PORT``.

Reads columns {"name": [values]} from standard input and writes what came back. A script of its
own, since the two packages may need other versions of pandas than this project.
"""

from __future__ import annotations

import asyncio
import json
import sys

import numpy as np

TYPES = {"f": "FP64", "b": "BOOL", "O": "BYTES"}


def columns(asked: dict) -> dict[str, np.ndarray]:
    found = {}
    for name, values in asked.items():
        if isinstance(values[0], str):
            found[name] = np.array(values, dtype=object)
        else:
            kind = bool if isinstance(values[0], bool) else float
            found[name] = np.array([np.nan if value is None else value for value in values], kind)
    return found


def tritonclient(place: str, asked: dict) -> dict:
    import tritonclient.http as triton

    client = triton.InferenceServerClient(place)
    inputs = []
    for name, values in columns(asked).items():
        inputs.append(triton.InferInput(name, list(values.shape), TYPES[values.dtype.kind]))
        inputs[-1].set_data_from_numpy(values)
    version = client.get_model_metadata("crumb")["versions"][0]
    answers = {
        "plain": client.infer("crumb", inputs, request_id="seven"),
        "version": client.infer("crumb", inputs, model_version=version),
        "gzip": client.infer(
            "crumb",
            inputs,
            request_compression_algorithm="gzip",
            response_compression_algorithm="gzip",
        ),
        "deflate": client.infer(
            "crumb",
            inputs,
            request_compression_algorithm="deflate",
            response_compression_algorithm="deflate",
        ),
    }
    for tensor, values in zip(inputs, columns(asked).values(), strict=True):
        if not any(value is None for value in asked[tensor.name()]):
            tensor.set_data_from_numpy(values, binary_data=False)
    only = [triton.InferRequestedOutput("label", binary_data=False)]
    labels = client.infer("crumb", inputs, outputs=only).as_numpy("label").tolist()
    found = {
        way: {
            "label": [label.decode() for label in answer.as_numpy("label")],
            "probabilities": answer.as_numpy("probabilities").tolist(),
        }
        for way, answer in answers.items()
    }
    try:
        client.infer("crumb", inputs, model_version="99")
        error = "none"
    except triton.InferenceServerException as raised:
        error = str(raised)
    ready = client.is_server_live(), client.is_server_ready(), client.is_model_ready("crumb")
    versions = client.is_model_ready("crumb", version), client.is_model_ready("crumb", "99")
    return {**found, "labels": labels, "ready": ready, "versions": versions, "error": error}


def kserve(place: str, asked: dict) -> dict:
    from kserve import InferenceRESTClient, InferInput, InferRequest
    from kserve.inference_client import RESTConfig

    async def go() -> dict:
        inputs = []
        for name, values in columns(asked).items():
            inputs.append(InferInput(name, list(values.shape), TYPES[values.dtype.kind]))
            inputs[-1].set_data_from_numpy(values)
        request = InferRequest(model_name="crumb", infer_inputs=inputs, request_id="seven")
        async with InferenceRESTClient(RESTConfig(protocol="v2")) as client:
            url = f"http://{place}"
            answer = await client.infer(url, request, model_name="crumb")
            ready = [
                await client.is_server_live(url),
                await client.is_server_ready(url),
                await client.is_model_ready(url, "crumb"),
            ]
        outputs = {output.name: output.as_numpy() for output in answer.outputs}
        texts = [one.decode() if isinstance(one, bytes) else one for one in outputs["label"]]
        plain = {"label": texts, "probabilities": outputs["probabilities"].tolist()}
        return {"plain": plain, "ready": ready, "id": answer.id}

    return asyncio.run(go())


if __name__ == "__main__":
    ask = {"tritonclient": tritonclient, "kserve": kserve}[sys.argv[1]]
    print(json.dumps(ask(sys.argv[2], json.load(sys.stdin))))
