"""The shape of `listen`: where clients reach the gateway, and who both sides are there."""

from typing import Annotated

from pydantic import Field

from tyrum_gateway.config.section import Section
from tyrum_gateway.config.values import (
    Address,
    FilePath,
    Line,
    LoopbackAddress,
    PrincipalName,
    SocketPath,
)


class Tls(Section):
    """Who the gateway is to clients on `tcp`, and whether they must prove who they are."""

    cert: FilePath = Field(
        description="PEM file with the certificate and its chain; a relative path starts at this file's "
        "directory."
    )
    key: FilePath = Field(
        description="PEM file with the certificate's private key, not encrypted, mode 0600; root's may be "
        "readable by a group of the gateway's, as systemd credentials are."
    )
    client_ca: FilePath | None = Field(
        default=None,
        description="PEM file with the authorities whose client certificates are admitted. With it, a client "
        "needs such a certificate besides its token.",
    )
    principals: dict[PrincipalName, Annotated[list[Line], Field(min_length=1, max_length=16)]] = Field(
        default={},
        max_length=1024,
        description="Principals that are bound to certificates: on `tcp` their tokens count only together "
        "with a client certificate of one of these names (its common name, or a subject alternative name). "
        "Needs `client_ca`; principals that are not named here may use any certificate that is admitted.",
    )


class Listen(Section):
    """Where clients reach the gateway."""

    unix: SocketPath | None = Field(
        default=None,
        description="Path of the gateway's socket; by default one of its own in the runtime directory.",
    )
    tcp: Address | None = Field(
        default=None,
        description="Address to listen on besides the socket, such as `127.0.0.1:7460`; port 0 takes a free "
        "one. Anything but loopback needs `tls`; `0.0.0.0` is every address of IPv4, `[::]` every "
        "one of both families. Off by default.",
    )
    tls: Tls | None = Field(
        default=None,
        description="Certificate for `tcp`. The files may be renewed at any time: new connections get what "
        "they hold then.",
    )
    ops: LoopbackAddress | None = Field(
        default=None,
        description="Loopback address for `/livez`, `/readyz` and `/metrics` over HTTP, such as "
        "`127.0.0.1:7461`; no token is asked there. Off by default.",
    )
