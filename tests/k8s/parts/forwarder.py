"""Forwards TCP connections from a listener of the host to the API server in the node.

The listener is made in the host's network namespace and handed down; connections from here are made in the node's. So the
forwarder can be a process of the node and ends with it.
"""
import asyncio

CONNECTIONS_MAX = 256
CHUNK = 64 * 1024


class Forwarder:
    def __init__(self, host, port, connections_max=CONNECTIONS_MAX):
        self._target = (host, port)
        self._free = connections_max

    async def start(self, listener):
        return await asyncio.start_server(self._serve, sock=listener, limit=CHUNK)

    async def _serve(self, reader, writer):
        if self._free == 0:
            writer.transport.abort()
            return
        self._free -= 1
        try:
            await self._forward(reader, writer)
        finally:
            self._free += 1
            writer.transport.abort()

    async def _forward(self, reader, writer):
        try:
            far_reader, far_writer = await asyncio.open_connection(*self._target, limit=CHUNK)
        except OSError:
            return
        try:
            await asyncio.gather(_copy(reader, far_writer), _copy(far_reader, writer))
        finally:
            far_writer.close()
            writer.close()


async def _copy(source, sink):
    """Copies until the source ends, then ends the sink's direction. A failure of either side ends both."""
    try:
        while data := await source.read(CHUNK):
            sink.write(data)
            await sink.drain()
        if sink.can_write_eof():
            sink.write_eof()
    except OSError:
        sink.transport.abort()
