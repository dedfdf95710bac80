"""The composition root: settings become a running gateway. The only room that knows every other."""

from tyrum_gateway.bootstrap.compose import Composition, compose
from tyrum_gateway.bootstrap.serve import serve
from tyrum_gateway.bootstrap.state_directory import StateDirectory, default_state_dir

__all__ = ["Composition", "StateDirectory", "compose", "default_state_dir", "serve"]
