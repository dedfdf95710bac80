"""Loads a configuration file into checked settings, or says everything that is wrong with it."""

import hashlib
from collections.abc import Mapping as AbstractMapping
from dataclasses import dataclass
from importlib import resources
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import assert_never

from pydantic import ValidationError

from tyrum_gateway.config import model
from tyrum_gateway.config.authorities import authority_problem
from tyrum_gateway.config.checks import Surroundings, check, find_program
from tyrum_gateway.config.document import MAX_BYTES, Mapping, Node, plain, read_document
from tyrum_gateway.config.explain import explain
from tyrum_gateway.config.instructions import InstructionsUnusable, read_instructions
from tyrum_gateway.config.listening import certificate_doubts, certificate_problems, expiry_warning
from tyrum_gateway.config.model_kinds import AnthropicModel, Model, OfflineModel, OpenAiModel, ScriptedModel
from tyrum_gateway.config.policy import to_bundle
from tyrum_gateway.config.problems import MOST_OF_A_SORT, START, ConfigProblems, Place, Problem
from tyrum_gateway.config.quantities import parse_duration, parse_size
from tyrum_gateway.config.regular_file import read_regular_file
from tyrum_gateway.config.secrets import SecretReference
from tyrum_gateway.config.settings import (
    AgentSettings,
    IsolationProfileSettings,
    LimitSettings,
    ListenSettings,
    ModelSettings,
    OfflineModelSettings,
    ProviderSettings,
    RemoteModelSettings,
    ScriptedModelSettings,
    Settings,
    TcpAddress,
    TlsSettings,
)
from tyrum_gateway.config.values import split_tcp


@dataclass(frozen=True, slots=True)
class CheckedFile:
    """A file without problems, in the shape it was written."""

    path: Path
    directory: Path
    content: model.ConfigFile
    digest: str
    """`sha256:` and the hexadecimal digest of the file."""


def quickstart_path() -> Path:
    """Return the configuration used when none is given; it is installed with the package."""
    return Path(str(resources.files("tyrum_gateway.config") / "quickstart.yaml"))


def load_settings(path: Path, *, environment: AbstractMapping[str, str], state_dir: Path) -> Settings:
    """Read, check and convert a configuration file.

    Secrets are looked up once to see that they exist, and left as references; other files are looked at.

    Raises:
        ConfigProblems: the file cannot be used; it lists every problem by position.
    """
    checked = check_file(path, environment=environment)
    check_files(checked, state_dir)
    return _settings(checked, environment, state_dir)


def check_file(
    path: Path, *, environment: AbstractMapping[str, str], passing: frozenset[str] = frozenset()
) -> CheckedFile:
    """Read and check a configuration file without binding it to a state directory.

    Problems whose code is in `passing` are passed over.

    Raises:
        ConfigProblems: the file cannot be used; it lists every problem by position.
    """
    file = str(path)
    read = read_file(path)
    tree = read_document(read, file)
    problems = list(tree.problems)
    if tree.root is None:
        raise ConfigProblems(problems)
    around = Surroundings(file, path.absolute().parent, environment)
    problems += islice(check(tree.root, around), MOST_OF_A_SORT)
    content: model.ConfigFile | None = None
    try:
        content = model.ConfigFile.model_validate(plain(tree.root))
    except ValidationError as error:
        problems += islice(explain(error, tree, file), MOST_OF_A_SORT)
    problems = [problem for problem in problems if problem.code not in passing]
    if problems or content is None:
        # Raised out of the handler's reach: the library's own error knows the file's values.
        raise ConfigProblems(problems)
    digest = "sha256:" + hashlib.sha256(read).hexdigest()
    return CheckedFile(path, around.directory, content, digest)


def check_files(checked: CheckedFile, state_dir: Path | None = None) -> None:
    """Look at the files that `listen.tls`, `audit.heads` and the `ca_file` of models name.

    Args:
        checked: The file that names them.
        state_dir: Where the gateway will keep its state, if that is known; it makes this directory itself.

    Raises:
        ConfigProblems: they cannot be served with; it lists every problem by the position of the key.
    """
    tls = _tls(checked)
    found = [(("listen", "tls", key), message) for key, message in (certificate_problems(tls) if tls else ())]
    for name, item in checked.content.models.items():
        named = item.ca_file if isinstance(item, OpenAiModel | AnthropicModel) else None
        if named is not None and (message := authority_problem(checked.directory / named)):
            found.append((("models", name, "ca_file"), message))
    problems = [_problem(checked, keys, "certificate", message) for keys, message in found]
    heads = checked.content.audit.heads
    if heads is not None and _is_missing(Path(heads).parent, state_dir):
        message = "the directory of this file does not exist: is its disk mounted?"
        problems.append(_problem(checked, ("audit", "heads"), "directory_not_found", message))
    if problems:
        raise ConfigProblems(problems)


def _is_missing(directory: Path, state_dir: Path | None) -> bool:
    if state_dir is not None and directory in {state_dir, state_dir / "audit"}:
        return False
    try:
        return not directory.is_dir()
    except OSError:
        return False  # whoever validates may not see what the gateway's user sees


def certificate_warnings(checked: CheckedFile) -> tuple[Problem, ...]:
    """List why clients refuse the certificate of a file that was checked, and that it ends soon.

    Raises:
        ConfigProblems: the file cannot be read again.
    """
    tls = _tls(checked)
    if tls is None:
        return ()
    found = (*certificate_doubts(tls.cert), expiry_warning(tls.cert))
    return tuple(
        _problem(checked, ("listen", "tls", "cert"), "certificate", message) for message in found if message
    )


def _problem(checked: CheckedFile, keys: tuple[str, ...], code: str, message: str) -> Problem:
    return Problem(str(checked.path), place_of(checked.path, *keys), keys, code, message)


def place_of(path: Path, *keys: str) -> Place:
    """Return where a key of a file stands; the beginning when it does not, or no longer does.

    Raises:
        ConfigProblems: the file cannot be read.
    """
    place: Place = START
    node: Node | None = read_document(read_file(path), str(path)).root
    for key in keys:
        if not isinstance(node, Mapping) or key not in node.entries:
            return START
        place, node = node.entries[key].place, node.entries[key].value
    return place


def read_file(path: Path) -> bytes:
    """Read a file as far as its size is sane.

    Raises:
        ConfigProblems: it cannot be read.
    """

    def refuse(message: str) -> ConfigProblems:
        return ConfigProblems([Problem(str(path), START, (), "unreadable", message)])

    try:
        return read_regular_file(path, limit=MAX_BYTES)
    except OSError as error:
        raise refuse(f"cannot read the file: {error.strerror}") from None
    except ValueError:
        raise refuse("the file's name holds a NUL character") from None


def _address(text: str | None) -> TcpAddress | None:
    return None if text is None else TcpAddress(*split_tcp(text))


def _tls(checked: CheckedFile) -> TlsSettings | None:
    tls = checked.content.listen.tls
    if tls is None:
        return None
    return TlsSettings(
        cert=checked.directory / tls.cert,
        key=checked.directory / tls.key,
        client_ca=None if tls.client_ca is None else checked.directory / tls.client_ca,
        principals=MappingProxyType({name: frozenset(names) for name, names in tls.principals.items()}),
    )


def _settings(checked: CheckedFile, environment: AbstractMapping[str, str], state_dir: Path) -> Settings:
    content = checked.content
    agent = content.agents.default
    limits = content.limits
    return Settings(
        source=checked.path,
        source_digest=checked.digest,
        state_dir=state_dir,
        listen=ListenSettings(
            unix=None if content.listen.unix is None else Path(content.listen.unix),
            tcp=_address(content.listen.tcp),
            tls=_tls(checked),
            ops=_address(content.listen.ops),
        ),
        secrets=MappingProxyType(
            {
                name: SecretReference.parse(text, environment=environment, directory=checked.directory)
                for name, text in content.secrets.items()
            }
        ),
        models=MappingProxyType(
            {name: _model(name, item, checked.directory) for name, item in content.models.items()}
        ),
        agents=MappingProxyType(
            {
                "default": AgentSettings(
                    name="default",
                    models=(agent.model,) if isinstance(agent.model, str) else tuple(agent.model),
                    policy=agent.policy,
                    workspace=state_dir / agent.workspace,
                    secrets=tuple(agent.secrets),
                    isolation_profile=agent.profiles.isolation,
                    instructions=_instructions(checked),
                )
            }
        ),
        providers=MappingProxyType(
            {name: _provider(name, item, environment) for name, item in content.providers.items()}
        ),
        isolation_profiles=MappingProxyType(
            {name: _profile(name, item) for name, item in content.profiles.isolation.items()}
        ),
        policies=MappingProxyType({name: to_bundle(name, item) for name, item in content.policy.items()}),
        approval_expiry=parse_duration(content.approvals.expiry),
        requester_may_approve=content.approvals.requester_may_resolve,
        audit_heads=None if content.audit.heads is None else Path(content.audit.heads),
        limits=LimitSettings(
            steps_per_turn=limits.steps_per_turn,
            attempts_per_step=limits.attempts_per_step,
            turn_time=parse_duration(limits.turn_time),
            step_time=parse_duration(limits.step_time),
            queued_per_conversation=limits.queued_per_conversation,
            unfinished_turns_per_principal=limits.unfinished_turns_per_principal,
            concurrent_turns=limits.concurrent_turns,
            tokens_per_turn=limits.tokens_per_turn,
            daily_tokens_per_principal=limits.daily_tokens_per_principal,
        ),
    )


def _instructions(checked: CheckedFile) -> str:
    """Read the agent's instructions; the file was looked at before, and may have changed since.

    Raises:
        ConfigProblems: it cannot be used any more.
    """
    agent = checked.content.agents.default
    if agent.instructions_file is None:
        return agent.instructions
    try:
        return read_instructions(checked.directory / agent.instructions_file)
    except InstructionsUnusable as error:
        keys = ("agents", "default", "instructions_file")
        raise ConfigProblems([_problem(checked, keys, "file_unusable", str(error))]) from None


_BASE_URLS = {"openai": "https://api.openai.com/v1", "anthropic": "https://api.anthropic.com"}


def _model(name: str, item: Model, directory: Path) -> ModelSettings:
    match item:
        case OfflineModel():
            return OfflineModelSettings()
        case ScriptedModel(script=script):
            return ScriptedModelSettings(directory / script)
        case OpenAiModel() | AnthropicModel():
            return RemoteModelSettings(
                kind=item.kind,
                name=name,
                model=item.model,
                api_key=item.api_key,
                base_url=item.base_url or _BASE_URLS[item.kind],
                max_output_tokens=item.max_output_tokens,
                ca_file=None if item.ca_file is None else directory / item.ca_file,
                proxy=item.proxy,
                proxy_login=item.proxy_login,
            )
        case _:
            assert_never(item)


def _provider(name: str, item: model.Provider, environment: AbstractMapping[str, str]) -> ProviderSettings:
    program, *arguments = item.command
    return ProviderSettings(
        name=name,
        kind=item.kind,
        # Gone since the check: the name itself, which then fails to start with its reason.
        command=(find_program(program, environment) or program, *arguments),
        config=MappingProxyType(dict(item.config)),
        secrets=MappingProxyType(dict(item.secrets)),
        trust=item.trust,
        deployment=item.deployment,
        implementation_version=item.implementation_version,
        start_timeout=parse_duration(item.start_timeout),
        artifact_sha256=item.artifact_sha256,
        trust_claims=item.trust_claims,
    )


def _profile(name: str, item: model.IsolationProfile) -> IsolationProfileSettings:
    return IsolationProfileSettings(
        name=name,
        provider=item.provider,
        path=tuple(Path(directory) for directory in item.path),
        required_claims=tuple(item.required_claims),
        wall_time=parse_duration(item.wall_time),
        output_bytes=parse_size(item.output),
        kill_grace=parse_duration(item.kill_grace),
    )
