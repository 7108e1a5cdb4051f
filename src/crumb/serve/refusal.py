"""A request that gets no prediction: a status, a short reason, and one sentence that says why."""

from __future__ import annotations

from fastapi import HTTPException


class Refusal(HTTPException):
    """``reason`` is the word for logs and metrics: the sentence may quote the request."""

    def __init__(self, status: int, reason: str, message: str, retry_after: int | None = None):
        headers = None if retry_after is None else {"Retry-After": str(retry_after)}
        super().__init__(status, message, headers)
        self.reason = reason


def malformed(message: str) -> Refusal:
    return Refusal(400, "malformed", message)


def invalid(message: str) -> Refusal:
    return Refusal(422, "invalid", message)


def too_many_rows(rows: int, most: int) -> Refusal:
    message = f"The request has {rows:,} rows, at most {most:,} are taken at once."
    return Refusal(413, "too_many_rows", message)


def leaving() -> Refusal:
    message = "The service is shutting down and takes no more requests."
    return Refusal(503, "draining", message, retry_after=1)


def shown(name: object, limit: int = 60) -> str:
    """A name from a request as an error quotes it: short, on one line."""
    text = ascii(name)
    return text if len(text) <= limit else text[: limit - 1] + "…"
