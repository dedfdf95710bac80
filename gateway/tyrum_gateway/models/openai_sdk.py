"""Chat Completions through OpenAI's SDK; imported only when a model of this kind is configured."""

import logging
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any

import openai
from openai.resources.chat.completions import AsyncCompletions

from tyrum_gateway.domain.model import Prompt
from tyrum_gateway.models.answer import Answer
from tyrum_gateway.models.chat_completions import ChatReader, render
from tyrum_gateway.models.endpoint import Credentials, Endpoint
from tyrum_gateway.models.guarded_http import http_client, trust
from tyrum_gateway.models.remote import Reader, failures_of, unanswered
from tyrum_gateway.models.tool_names import ToolNames

# An environment variable makes it tell requests at `debug`; what is logged is the gateway's business.
logging.getLogger("openai").setLevel(logging.WARNING)


class ChatCompletions:
    """One configured model."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._trust = trust(endpoint.ca_file)

    def reader(self) -> Reader:
        """Make the reader of one step."""
        return ChatReader()

    @asynccontextmanager
    async def stream(
        self, prompt: Prompt, names: ToolNames, credentials: Credentials
    ) -> AsyncIterator[Answer]:
        """Send a request; the context holds its answer.

        Raises:
            ModelUnavailable: The server cannot be reached, or refuses.
        """
        endpoint, failures = self._endpoint, failures_of(self._endpoint, credentials)
        body: Any = render(prompt, names, model=endpoint.model, max_output_tokens=endpoint.max_output_tokens)
        async with http_client(endpoint, credentials, self._trust) as http:
            client = openai.AsyncOpenAI(
                api_key=credentials.key,
                # Empty rather than absent: what is absent is taken from the environment.
                admin_api_key="",
                organization="",
                project="",
                webhook_secret="",
                base_url=endpoint.base_url,
                max_retries=0,
                timeout=http.timeout,
                http_client=http,
            )
            try:
                async with (
                    AsyncCompletions(client).with_streaming_response.create(**body) as response,
                    aclosing(response.iter_bytes()) as chunks,
                ):
                    yield Answer(response.headers.get("content-type", ""), chunks)
            except openai.APIStatusError as error:
                raise failures.of_status(error.status_code, error.response.headers, error.body) from None
            except openai.APIConnectionError as error:
                raise unanswered(failures, error) from None
