"""From the settings of a model to its transport, with its secrets within reach and nowhere else."""

from collections.abc import Callable
from typing import assert_never

from tyrum_gateway.config.settings import (
    ModelSettings,
    OfflineModelSettings,
    RemoteModelSettings,
    ScriptedModelSettings,
)
from tyrum_gateway.domain.errors import StateUnusable
from tyrum_gateway.domain.model import Model
from tyrum_gateway.models.catalog import Anthropic, Offline, OpenAi, Scripted, build_model
from tyrum_gateway.models.endpoint import Endpoint, KeyUnavailable, Proxy, Secret
from tyrum_gateway.tools.process_run import SecretUnavailable


def transport(
    settings: ModelSettings, reveal: Callable[[str], str], version: str, mask: Callable[[str], str] = str
) -> Model:
    """Build the transport of a model.

    Args:
        settings: The operator's.
        reveal: Fetches a secret by name; raises SecretUnavailable.
        version: Of the gateway, told to servers.
        mask: Masks every secret of the gateway in what servers say.

    Raises:
        ScriptInvalid: The script of a scripted model cannot be used.
        StateUnusable: The authorities of a model's server cannot be read any more.
    """
    match settings:
        case OfflineModelSettings():
            return build_model(Offline())
        case ScriptedModelSettings(script=script):
            return build_model(Scripted(script))
        case RemoteModelSettings():
            endpoint = endpoint_of(settings, reveal, version, mask)
            try:
                return build_model(OpenAi(endpoint) if settings.kind == "openai" else Anthropic(endpoint))
            except OSError as error:
                raise StateUnusable(f"cannot use `{settings.ca_file}`: {error.strerror}") from error
        case _:
            assert_never(settings)


def endpoint_of(
    settings: RemoteModelSettings,
    reveal: Callable[[str], str],
    version: str,
    mask: Callable[[str], str] = str,
) -> Endpoint:
    """Describe where a model is reached; the arguments are those of `transport`."""
    proxy, login = settings.proxy, settings.proxy_login
    return Endpoint(
        name=settings.name,
        model=settings.model,
        base_url=settings.base_url,
        key=_secret(settings.api_key, reveal),
        agent=f"tyrum/{version}",
        max_output_tokens=settings.max_output_tokens,
        ca_file=settings.ca_file,
        proxy=None if proxy is None else Proxy(proxy, None if login is None else _secret(login, reveal)),
        mask=mask,
    )


def _secret(name: str, reveal: Callable[[str], str]) -> Secret:
    def fetch() -> str:
        try:
            return reveal(name)
        except SecretUnavailable as error:
            raise KeyUnavailable(str(error)) from None

    return Secret(name, fetch)
