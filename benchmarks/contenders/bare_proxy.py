"""A proxy of aiohttp that only passes on: `python bare_proxy.py UPSTREAM`; prints its address."""

import asyncio
import sys

import aiohttp
from aiohttp import web


async def main() -> None:
    """Serve until it is ended."""
    upstream = sys.argv[1]
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as session:

        async def handle(request: web.BaseRequest) -> web.StreamResponse:
            body = await request.read()
            headers = {"content-type": "application/json", "authorization": "Bearer key"}
            url = upstream + request.path
            async with session.post(url, data=body, headers=headers) as answer:
                kind = answer.headers.get("content-type", "")
                if "event-stream" not in kind:
                    whole = await answer.read()
                    return web.Response(
                        body=whole, status=answer.status, headers={"content-type": kind}
                    )
                response = web.StreamResponse(headers={"content-type": kind})
                await response.prepare(request)
                async for part in answer.content.iter_any():
                    await response.write(part)
                return response

        loop = asyncio.get_running_loop()
        server = await loop.create_server(web.Server(handle, access_log=None), "127.0.0.1", 0)
        print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
