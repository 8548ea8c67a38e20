"""Memory with many streams open: holds them open through a target and reads what it occupies."""

import asyncio
import threading

import bodies

STREAMS = 1_000
BATCH = 50
PATIENCE = 60
# Streams of agents are open for minutes: allocators have given back by then what they only keep ready.
SETTLED = 12


class SlowProvider:
    """Answers each request with the start of a stream and ends it when told to."""

    def __init__(self):
        self.loop = asyncio.new_event_loop()
        self.release = asyncio.Event()
        self.started = threading.Event()
        self.port = None
        threading.Thread(target=self._run, daemon=True).start()
        self.started.wait()

    def _run(self):
        asyncio.set_event_loop(self.loop)
        server = self.loop.run_until_complete(
            asyncio.start_server(self._serve, "127.0.0.1", 0, backlog=4096)
        )
        self.port = server.sockets[0].getsockname()[1]
        self.started.set()
        self.loop.run_forever()

    async def _serve(self, reader, writer):
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = next(
                    (int(l.split(b":")[1]) for l in head.lower().split(b"\r\n") if l.startswith(b"content-length:")),
                    None,
                )
                if length is None:
                    while (size := int(await reader.readline(), 16)) > 0:
                        await reader.readexactly(size + 2)
                    await reader.readline()
                else:
                    await reader.readexactly(length)
                writer.write(
                    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
                    b"transfer-encoding: chunked\r\n\r\n" + _chunk(bodies.stream_start())
                )
                for _ in range(5):
                    writer.write(_chunk(bodies.stream_delta()))
                await writer.drain()
                await self.release.wait()
                writer.write(_chunk(bodies.stream_end()) + b"0\r\n\r\n")
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    def let_go(self):
        self.loop.call_soon_threadsafe(self.release.set)

    def again(self):
        self.loop.call_soon_threadsafe(self.release.clear)


def _chunk(text):
    return b"%x\r\n%s\r\n" % (len(text), text.encode())


async def _open(port, body, headers):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    lines = "".join(f"{h}\r\n" for h in headers)
    writer.write(
        f"POST /v1/messages HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
        f"content-length: {len(body)}\r\n{lines}\r\n".encode() + body
    )
    await asyncio.wait_for(reader.readuntil(b"message_start"), PATIENCE)
    return reader, writer


async def _finish(reader, writer):
    await asyncio.wait_for(reader.readuntil(b"message_stop"), PATIENCE)
    writer.close()


async def _hold(target, provider, body, headers):
    await asyncio.sleep(SETTLED)
    before = target.rss_bytes()
    streams = []
    for at in range(0, STREAMS, BATCH):
        number = range(at, at + BATCH)
        mark = bodies.MARK.encode()
        opened = [
            _open(target.port, body.replace(mark, b"%0*d" % (len(mark), n)), headers) for n in number
        ]
        streams += await asyncio.gather(*opened)
    await asyncio.sleep(SETTLED)
    held = target.rss_bytes()
    provider.let_go()
    await asyncio.gather(*(_finish(*stream) for stream in streams))
    provider.again()
    return before, held


def hold(target, provider, headers):
    """Resident bytes of the target when idle and with the streams open; all of them then end."""
    body = bodies.request("10 kB", True)
    return asyncio.run(_hold(target, provider, body, headers))
