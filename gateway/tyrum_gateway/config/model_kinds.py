"""The shape of what stands under `models`: one section for each kind of model."""

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag

from tyrum_gateway.config.section import Section
from tyrum_gateway.config.values import BaseUrl, FilePath, Line, ProxyUrl, SecretName


class OfflineModel(Section):
    """Deterministic answers without a key or a network; understands `/run TEXT`."""

    kind: Literal["offline"] = Field(description="Which kind of model.")


class ScriptedModel(Section):
    """Steps read from a script, for tests and demonstrations."""

    kind: Literal["scripted"] = Field(description="Which kind of model.")
    script: FilePath = Field(
        min_length=1, description="YAML file with the steps; a relative path starts at this file's directory."
    )


class RemoteModel(Section):
    """A model behind HTTP; the key stays a secret, and the gateway's environment decides nothing."""

    model: Line = Field(description="Name of the model at its server.")
    api_key: SecretName = Field(
        description="Name of the secret that holds the API key; it is fetched for each request."
    )
    base_url: BaseUrl | None = Field(
        default=None,
        description="Where the server is, when it is not the provider's own: an https address without query, "
        "or http on loopback. The path up to the part that the protocol adds belongs to it.",
    )
    ca_file: FilePath | None = Field(
        default=None,
        description="PEM file with the authorities that may vouch for the server, instead of those that the "
        "operating system trusts; a relative path starts at this file's directory. Read at the start.",
    )
    proxy: ProxyUrl | None = Field(
        default=None,
        description="Forward proxy through which alone the server is reached, such as "
        "`http://proxy.example.org:3128`: http or https, without user, password or path; without a port 80, "
        "with https 443. Off by default, whatever the environment says.",
    )
    proxy_login: SecretName | None = Field(
        default=None,
        description="Name of the secret that holds `USER:PASSWORD` for the proxy; it is fetched for each "
        "request and shown to the proxy alone.",
    )
    max_output_tokens: int | None = Field(
        default=None,
        ge=1,
        le=1_000_000,
        description="Longest answer of one step, in tokens; one that reaches it fails the turn. Without it, "
        "what the server allows; for `anthropic`, 8192.",
    )


class OpenAiModel(RemoteModel):
    """Chat Completions of OpenAI or any compatible server; needs the extra `openai`."""

    kind: Literal["openai"] = Field(description="Which kind of model.")


class AnthropicModel(RemoteModel):
    """Messages of Anthropic or a compatible server; needs the extra `anthropic`."""

    kind: Literal["anthropic"] = Field(description="Which kind of model.")


def _kind(value: Any) -> str | None:
    kind = value.get("kind") if isinstance(value, dict) else None
    return f"<{kind}>" if isinstance(kind, str) else None


Model = Annotated[
    Annotated[OfflineModel, Tag("<offline>")]
    | Annotated[ScriptedModel, Tag("<scripted>")]
    | Annotated[OpenAiModel, Tag("<openai>")]
    | Annotated[AnthropicModel, Tag("<anthropic>")],
    Discriminator(_kind, custom_error_type="kind", custom_error_message="`kind` must name a known kind"),
]
