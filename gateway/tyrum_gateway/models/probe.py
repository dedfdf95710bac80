"""One harmless question to a model's server: its list of models, which costs no tokens."""

import asyncio
import json
from dataclasses import dataclass
from typing import Literal

import httpx2

from tyrum_gateway.domain.errors import ModelUnavailable
from tyrum_gateway.models import server_words
from tyrum_gateway.models.endpoint import Endpoint
from tyrum_gateway.models.guarded_http import BROKEN, http_client, trust
from tyrum_gateway.models.remote import credentials_of, failures_of, unanswered

SECONDS = 15.0
_MOST = 4 * 1024 * 1024
_PATHS = {"openai": "/models", "anthropic": "/v1/models"}


@dataclass(frozen=True, slots=True)
class Probed:
    """What came back."""

    model: str
    """Name in the configuration."""
    result: Literal["ok", "warn", "fail"]
    """`warn`: the server is there, and whether it serves the model does not show."""
    detail: str


async def probe(endpoint: Endpoint, kind: Literal["openai", "anthropic"]) -> Probed:
    """Ask for the list of models; takes at most 15 s and raises nothing."""
    try:
        async with asyncio.timeout(SECONDS):
            return await _ask(endpoint, kind)
    except ModelUnavailable as error:
        return Probed(endpoint.name, "fail", error.public)
    except TimeoutError:
        return Probed(
            endpoint.name, "fail", f"the server at `{endpoint.address}` gave no answer within {SECONDS:g} s"
        )
    except OSError as error:
        return Probed(endpoint.name, "fail", f"`ca_file` cannot be read: {error.strerror}")


async def _ask(endpoint: Endpoint, kind: Literal["openai", "anthropic"]) -> Probed:
    credentials = await credentials_of(endpoint)
    failures = failures_of(endpoint, credentials)
    url, body = endpoint.base_url + _PATHS[kind], b""
    headers = {"anthropic-version": "2023-06-01"} if kind == "anthropic" else {}
    async with http_client(endpoint, credentials, trust(endpoint.ca_file)) as http:
        try:
            async with http.stream("GET", url, headers=headers) as response:
                async for chunk in response.aiter_raw():
                    body += chunk
                    if len(body) > _MOST:
                        break
        except (httpx2.HTTPError, *BROKEN) as error:
            raise unanswered(failures, error) from None
    content = _read(body)
    if not response.is_success:
        said = content or body.decode(errors="replace")
        refused = failures.of_status(response.status_code, response.headers, said)
        # Not every compatible server lists its models.
        unlisted = response.status_code in {404, 405, 501}
        return Probed(endpoint.name, "warn" if unlisted else "fail", f"`GET {url}`: {refused.public}")
    if not isinstance(content, dict):
        shown = server_words.shown(body[:4096].decode(errors="replace"), failures.mask)
        what = f"`GET {url}` (HTTP {response.status_code}) is answered by what is no JSON"
        return Probed(endpoint.name, "warn", f"{what}: {shown}" if shown else what)
    listed = content.get("data")
    names = [item.get("id") for item in listed if isinstance(item, dict)] if isinstance(listed, list) else []
    answers = f"answers at `{endpoint.address}`"
    if names and endpoint.model not in names:
        answers += f"; `{endpoint.model}` is not among the {len(names)} models that it lists"
        return Probed(endpoint.name, "warn", answers)
    return Probed(endpoint.name, "ok", answers)


def _read(body: bytes) -> object:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None
