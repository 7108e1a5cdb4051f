"""uvicorn's connection (h11), made safe against clients that send too slowly, too much, too finely.

- A head must be complete in time, and so must the next one once it has begun.
- Bytes are parsed in small portions, one a turn of the event loop, so that others have theirs: the
  application can refuse a request before more of its body is parsed.
- A body in absurdly small chunks is refused: each costs as much as a large one. So is one whose
  length is said in two ways, of which a proxy may believe the other.
- An answer that closes is followed by a lingering close. Closing at once would reset the
  connection, and the client would not read why; what still comes is thrown away unparsed, for a
  moment.
- Where there are too many connections, the one that has waited longest for a head makes room.
- A client that does not read its answer is cut off.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Any

import h11
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD = 10.0  # seconds for a head
LINGER = 1.0  # seconds for a client to read why it is refused
UNREAD = 30.0  # seconds in which an answer must be read
THROWN_AWAY = 2**20  # bytes that are thrown away meanwhile
HEAD_BYTES = 2**14
PORTION = 2**16  # bytes that are parsed at once
FINE = 2**11  # the same where heads or chunks come, which cost by the line
FREE_CHUNKS, CHUNK = 1_000, 64  # chunks beyond these must hold as many bytes on average
FULL = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


class Parser(h11.Connection):
    """Counts the pieces of a body."""

    chunks = size = 0

    def next_event(self) -> Any:
        event = super().next_event()
        if isinstance(event, h11.Request):
            self.chunks = self.size = 0
            if {b"content-length", b"transfer-encoding"} <= {name for name, _ in event.headers}:
                raise h11.RemoteProtocolError("two lengths of a body hide a second request")
        elif isinstance(event, h11.Data):
            self.chunks += 1
            self.size += len(event.data)
            if self.chunks > FREE_CHUNKS + self.size // CHUNK:
                raise h11.RemoteProtocolError("the body comes in too many small chunks")
        return event


class Flow(FlowControl):
    """Tells the connection when the application wants more of the body."""

    def __init__(self, transport: Any, wanted: Any):
        super().__init__(transport)
        self._wanted = wanted

    def resume_reading(self) -> None:
        super().resume_reading()
        self._wanted()


class Lingering:
    """A transport whose ``close`` lingers where the client still sends."""

    def __init__(self, transport: asyncio.Transport, connection: Connection):
        self._transport, self._connection = transport, connection

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def is_closing(self) -> bool:
        return self._connection.refused or self._transport.is_closing()

    def close(self) -> None:
        if self._connection.is_sending():
            self._connection.linger()
        else:
            self._transport.close()
            self._connection.hurry(UNREAD)


class Connection(H11Protocol):
    """``most``: connections that may be open together."""

    def __init__(self, *words: Any, most: int, **more: Any):
        super().__init__(*words, **more)
        self.conn = Parser(h11.SERVER, HEAD_BYTES)
        self._socket: asyncio.Transport = None  # type: ignore[assignment]
        self._arrived, self._thrown = bytearray(), 0
        self._turn: asyncio.Handle | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._most, self.since = most, time.monotonic()
        self.refused = False  # what comes is thrown away

    def connection_made(self, transport: Any) -> None:
        self._socket = transport
        super().connection_made(Lingering(transport, self))  # type: ignore[arg-type]
        self.flow = Flow(transport, self._go_on)
        self.hurry(HEAD)
        if len(self.connections) > self._most:
            self._make_room()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._turn is not None:
            self._turn.cancel()
        self.hurry(None)
        self._arrived.clear()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self.hurry(UNREAD)

    def resume_writing(self) -> None:
        super().resume_writing()
        if not self.transport.is_closing():
            self.hurry(None)

    def hurry(self, seconds: float | None) -> None:
        """Cut the connection after this time; None: it may last."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        if seconds is not None:
            self._timer = self.loop.call_later(seconds, self.abort)

    def abort(self) -> None:
        self._socket.abort()

    def data_received(self, data: bytes) -> None:
        if self.refused:
            self._thrown += len(data)
            if self._thrown > THROWN_AWAY:
                self.abort()
            return
        self._arrived += data
        if self._turn is None:
            self._parse()

    def waits_for_head(self) -> bool:
        done = self.cycle is None or self.cycle.response_complete
        return done and not self.transport.is_closing() and self.conn.their_state is h11.IDLE

    def is_sending(self) -> bool:
        """Whether more of the request may come."""
        return bool(self._arrived) or self.conn.their_state in (h11.SEND_BODY, h11.ERROR)

    def linger(self) -> None:
        """Say that the answer was all, and throw away what comes for a moment."""
        if self.refused or self._socket.is_closing():
            return
        self.refused = True
        self._arrived.clear()
        self.hurry(LINGER)
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        with contextlib.suppress(OSError):  # the client is gone
            if self._socket.can_write_eof():
                self._socket.write_eof()
        self._socket.resume_reading()

    # One portion a turn

    def _go_on(self) -> None:
        if self._turn is None and self._arrived and not self.refused:
            self._turn = self.loop.call_soon(self._parse)

    def _parse(self) -> None:
        self._turn = None
        if self.refused or self._socket.is_closing():
            return
        size = PORTION if self._is_smooth() else FINE
        portion = bytes(self._arrived[:size])
        del self._arrived[:size]
        try:
            super().data_received(portion)
        except h11.LocalProtocolError:  # wrong in the middle of an answer: there is none for it
            self.abort()
        if self.refused or self._socket.is_closing():
            return
        if not self.waits_for_head():
            self.hurry(None)
        elif self._timer is None:  # it has begun
            self.since = time.monotonic()
            self.hurry(HEAD)
        if not self._arrived and not self.flow.read_paused:
            self._socket.resume_reading()
            return
        self._socket.pause_reading()
        if not self.flow.read_paused:  # else ``Flow`` says when to go on
            self._go_on()

    def _is_smooth(self) -> bool:
        """Whether a body of a known length is on its way: any number of bytes is one event."""
        if self.conn.their_state is not h11.SEND_BODY:
            return False
        return any(key == b"content-length" for key, _ in self.headers)

    def _make_room(self) -> None:
        """The oldest of those that wait for a head goes; where none waits, this one does."""
        others: Any = self.connections - {self}
        waiting = [one for one in others if one.waits_for_head()]
        if waiting:
            min(waiting, key=lambda one: one.since).abort()  # now: the next one needs another place
        else:
            self._socket.write(FULL)
            self.linger()
