"""A pytest plugin for properties that are expected to fail: the smallest counterexample is not looked for."""

from hypothesis import Phase, settings

settings.register_profile("hasty", phases=(Phase.explicit, Phase.generate))
settings.load_profile("hasty")
