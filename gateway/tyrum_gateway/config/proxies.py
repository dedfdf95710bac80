"""What a model's proxy must not do: carry a key in the clear, or be asked for what it cannot reach."""

import urllib.parse
from collections.abc import Iterator

from tyrum_gateway.config import document
from tyrum_gateway.config.document import Scalar, descend, select
from tyrum_gateway.config.problems import Problem
from tyrum_gateway.config.values import is_loopback


def proxies(root: document.Mapping, file: str) -> Iterator[Problem]:
    """List what is wrong between a model's proxy and its other keys."""
    for path, node in select(root, ("models", "*", "proxy_login")):
        if descend(root, *path[:-1], "proxy") is None:
            message = "a login is shown to a proxy; without `proxy` it has no effect"
            yield Problem(file, node.place, path, "no_effect", message)
    for path, node in select(root, ("models", "*", "proxy")):
        proxy, server = _url(node), _url(descend(root, *path[:-1], "base_url"))
        if proxy is None or server is None:
            continue
        if server.scheme == "http" and not is_loopback(proxy.hostname or ""):
            message = (
                "a `base_url` on loopback without TLS is reached through a proxy on loopback only: elsewhere "
                "it would be another machine, and the key would travel in the clear; leave `proxy` out"
            )
            yield Problem(file, node.place, path, "not_loopback", message)
        if server.scheme == "https" and ":" in (server.hostname or ""):
            message = "a proxy is asked for a name or an IPv4 address; `base_url` has an IPv6 address"
            yield Problem(file, node.place, path, "no_effect", message)


def _url(node: document.Node | None) -> urllib.parse.SplitResult | None:
    value = node.value if isinstance(node, Scalar) else None
    try:
        url = urllib.parse.urlsplit(value) if isinstance(value, str) else None
        # Both raise for what is none; the shape of each is checked elsewhere.
        return url if url is not None and url.hostname else None
    except ValueError:
        return None
