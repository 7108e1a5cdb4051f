"""A request that gets no prediction: the status, and one sentence that says why."""

from __future__ import annotations


class Refusal(Exception):
    """``reason`` is the short word that logs and metrics use: the sentence may quote the request, these must not."""

    def __init__(self, status: int, reason: str, message: str, retry_after: int | None = None):
        super().__init__(message)
        self.status, self.reason, self.message, self.retry_after = (
            status,
            reason,
            message,
            retry_after,
        )


def malformed(message: str) -> Refusal:
    return Refusal(400, "malformed", message)


def invalid(message: str) -> Refusal:
    return Refusal(422, "invalid", message)


def too_many_rows(rows: int, most: int) -> Refusal:
    return Refusal(
        413, "too_many_rows", f"The request has {rows:,} rows, at most {most:,} are taken at once."
    )


def shown(name: object, limit: int = 60) -> str:
    """A name of the client's as an error quotes it: short, on one line."""
    text = ascii(name)
    return text if len(text) <= limit else text[: limit - 1] + "…"
