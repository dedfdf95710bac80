"""Rules to be judged by, from a whole configuration file or from a file with only `rules`.

Invariant: rules are checked as strictly as when a gateway starts; what only this machine lacks (a secret, a
provider's program, a model's script) is no obstacle.
"""

from collections.abc import Mapping as AbstractMapping
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import ValidationError

from tyrum_gateway.config import model, rule_model
from tyrum_gateway.config.document import Document, Entry, Mapping, Node, plain, read_document
from tyrum_gateway.config.explain import explain
from tyrum_gateway.config.idle_rules import Replaceable, idle_rules, idle_rules_alone
from tyrum_gateway.config.load import check_file, read_file
from tyrum_gateway.config.policy import to_bundle
from tyrum_gateway.config.problems import ConfigProblems, Problem, did_you_mean, one_of, show_path
from tyrum_gateway.config.rules import rules
from tyrum_gateway.domain.policy import DEPLOYMENT, Bundle, together

_OF_THE_MACHINE = frozenset({"secret_unavailable", "program_not_found", "file_not_found", "package_missing"})


@dataclass(frozen=True, slots=True)
class RuleFile:
    """What decides on the calls of the agent `default`."""

    bundle: Bundle
    """The agent's rules, together with the deployment's."""
    path: tuple[str, ...]
    """Directories in which programs are looked for."""
    secrets: frozenset[str] | None
    """Names that a call may ask for; None when the file does not say."""
    agents: frozenset[str] | None
    """Agents that there are; None when the file does not say."""
    warnings: tuple[Problem, ...]
    """What seems to decide nothing in it."""

    def unknown(self, agent: str) -> str:
        """Say why there are no calls of an agent, with the nearest one; empty when there may be."""
        if self.agents is None or agent in self.agents:
            return ""
        hint = did_you_mean(agent, self.agents) or f"; `agents` declares {one_of(sorted(self.agents), 'and')}"
        return f"no agent of this name is declared{hint}"


def load_rules(path: Path, *, environment: AbstractMapping[str, str], replaceable: Replaceable) -> RuleFile:
    """Read rules.

    Args:
        path: Of the file.
        environment: Of the operator's command.
        replaceable: Tells which programs others than root can replace.

    Raises:
        ConfigProblems: the file cannot be used; it lists every problem by position.
    """
    file = str(path)
    tree = read_document(read_file(path), file)
    if tree.root is not None and set(tree.root.entries) == {"rules"}:
        bundle = _bundle_alone(tree, tree.root, file)
        warnings = idle_rules_alone(tree.root, bundle, file, replaceable)
        return RuleFile(to_bundle("default", bundle), model.DEFAULT_PATH, None, None, warnings)
    if tree.root is not None and (section := _section(tree.root, file)) is not None:
        raise ConfigProblems([section])
    checked = check_file(path, environment=environment, passing=_OF_THE_MACHINE)
    content = checked.content
    bundles = {name: to_bundle(name, bundle) for name, bundle in content.policy.items()}
    agent = content.agents.default
    chosen = agent.profiles.isolation
    profile = None if chosen is None else content.profiles.isolation[chosen]
    return RuleFile(
        together(bundles.get(DEPLOYMENT), bundles[agent.policy]),
        model.DEFAULT_PATH if profile is None else tuple(profile.path),
        frozenset(agent.secrets),
        frozenset(model.Agents.model_fields),
        idle_rules(checked, replaceable),
    )


def _section(root: Mapping, file: str) -> Problem | None:
    """Recognise a part that was copied out of a configuration; None when it is something else."""
    name, entry = next(iter(root.entries.items()), ("", None))
    if "policy" in root.entries and set(root.entries) <= {"policy", "version"}:
        name, entry = "policy", root.entries["policy"]
        bundles = entry.value.entries if isinstance(entry.value, Mapping) else {}
        above = "`policy` and " + (
            f"`{show_path((next(iter(bundles)),))}`" if bundles else "the bundle's name"
        )
    elif entry is not None and len(root.entries) == 1 and _holds_rules(entry.value):
        above = f"`{show_path((name,))}`"
    else:
        return None
    message = (
        f"a file of rules alone has `rules` at its top: leave out {above} above `rules`, "
        "or name the whole configuration file"
    )
    return Problem(file, entry.place, (name,), "rules_not_at_top", message)


def _holds_rules(node: Node) -> bool:
    return isinstance(node, Mapping) and set(node.entries) == {"rules"}


def _bundle_alone(tree: Document, root: Mapping, file: str) -> rule_model.Bundle:
    """Check the rules as if they stood in a bundle of a whole file."""
    bundle = Mapping(root.place, {"default": Entry(root.place, root)})
    within = Mapping(root.place, {"policy": Entry(root.place, bundle)})
    problems: list[Problem] = list(tree.problems)
    problems += [replace(problem, path=problem.path[2:]) for problem in rules(within, file)]
    content: rule_model.Bundle | None = None
    try:
        content = rule_model.Bundle.model_validate(plain(root))
    except ValidationError as error:
        problems += explain(error, tree, file, shape=rule_model.Bundle)
    if problems or content is None:
        raise ConfigProblems(problems)
    return content
