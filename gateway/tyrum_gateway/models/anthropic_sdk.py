"""Messages through Anthropic's SDK; imported only when a model of this kind is configured.

The raw stream is read, never the SDK's helper: of a stream that is cut off the helper makes a message whose
calls have empty arguments.
"""

import logging
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any

import anthropic
from anthropic.resources.messages import AsyncMessages

from tyrum_gateway.domain.model import Prompt
from tyrum_gateway.models.answer import Answer
from tyrum_gateway.models.anthropic_messages import MessageReader, render
from tyrum_gateway.models.endpoint import Credentials, Endpoint
from tyrum_gateway.models.guarded_http import http_client, trust
from tyrum_gateway.models.remote import Reader, failures_of, unanswered
from tyrum_gateway.models.tool_names import ToolNames

DEFAULT_MAX_OUTPUT_TOKENS = 8192
"""The protocol demands a number."""

# An environment variable makes it tell requests at `debug`; what is logged is the gateway's business.
logging.getLogger("anthropic").setLevel(logging.WARNING)


class Messages:
    """One configured model."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._trust = trust(endpoint.ca_file)

    def reader(self) -> Reader:
        """Make the reader of one step."""
        return MessageReader()

    @asynccontextmanager
    async def stream(
        self, prompt: Prompt, names: ToolNames, credentials: Credentials
    ) -> AsyncIterator[Answer]:
        """Send a request; the context holds its answer.

        Raises:
            ModelUnavailable: The server cannot be reached, or refuses.
        """
        endpoint, failures = self._endpoint, failures_of(self._endpoint, credentials)
        most = endpoint.max_output_tokens or DEFAULT_MAX_OUTPUT_TOKENS
        body: Any = render(prompt, names, model=endpoint.model, max_output_tokens=most)
        async with http_client(endpoint, credentials, self._trust) as http:
            client = anthropic.AsyncAnthropic(
                api_key=credentials.key,
                # Empty rather than absent: what is absent is taken from the environment.
                webhook_key="",
                base_url=endpoint.base_url,
                max_retries=0,
                timeout=http.timeout,
                open_telemetry=False,
                http_client=http,
            )
            try:
                async with (
                    AsyncMessages(client).with_streaming_response.create(**body) as response,
                    aclosing(response.iter_bytes()) as chunks,
                ):
                    yield Answer(response.headers.get("content-type", ""), chunks)
            except anthropic.APIStatusError as error:
                raise failures.of_status(error.status_code, error.response.headers, error.body) from None
            except anthropic.APIConnectionError as error:
                raise unanswered(failures, error) from None
