"""The composition root: settings become a running gateway. The only room that knows every other."""

from tyrum_gateway.bootstrap.compose import Composition, Seams, compose
from tyrum_gateway.bootstrap.serve import Serving, serve
from tyrum_gateway.bootstrap.state_directory import StateDirectory

__all__ = ["Composition", "Seams", "Serving", "StateDirectory", "compose", "serve"]
