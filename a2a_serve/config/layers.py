"""Settings in layers: defaults < config file < `A2A_SERVE_*` < flags, and where each value came from (H4)."""

from __future__ import annotations

import difflib
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, NoReturn, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from a2a_serve.config import yaml_file
from a2a_serve.config.directory import AgentDir
from a2a_serve.config.settings import MODELS, Settings
from a2a_serve.config.yaml_file import KeyPath, YamlFile
from a2a_serve.core.errors import ConfigError

PREFIX = "A2A_SERVE_"
NOT_SETTINGS = frozenset({"DEBUG"})
"""Names after PREFIX that mean something else."""
DEFAULT_AGENT, OTHER_AGENT = "demo", "custom"

Flags = Mapping[str, tuple[str, Any]]
"""From a flag as typed (`--port`) to the setting it sets (`listen.port`) and its value."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """The merged settings. Both mappings go by the setting's dotted name.

    `origins`: `default`, `<file>:<line>`, a variable's name or a flag. `raw`: the text of a value of the file that
    named a variable, for showing it without what the variable holds.
    """

    settings: Settings
    origins: dict[str, str]
    raw: dict[str, str] = field(default_factory=dict)


def load(directory: AgentDir, environment: Mapping[str, str], flags: Flags | None = None) -> Loaded:
    """Merge the layers and check the result. Raises ConfigError naming file and line, variable or flag, and the key."""
    file = yaml_file.read(directory.config, environment)
    layers = _Layers(file)
    layers.add({"models": {name: api.model_dump() for name, api in MODELS.items()}}, lambda path: "default")
    layers.add(file.tree, layers.place)
    for name, path, value in _from_environment(environment):
        layers.put(path, value, name)
    for name, (dotted, value) in (flags or {}).items():
        layers.put(tuple(dotted.split(".")), value, name)
    settings = layers.check()
    if not settings.card.name:
        card = settings.card.model_copy(update={"name": directory.root.name or "agent"})
        settings = settings.model_copy(update={"card": card})
    origins = {".".join(path): layers.origin(path) for path, _ in leaves(settings.model_dump())}
    return Loaded(settings, origins, {".".join(path): text for path, text in file.raw.items()})


def choose_agent(settings: Settings, environment: Mapping[str, str], key_envs: Mapping[str, str]) -> str:
    """The agent kind (H1): as set, else the first of `key_envs` (kind to variable, in order) whose key is there.

    `custom` stands for an agent that is only a command; `demo` is what needs no key.
    """
    if settings.agent.kind:
        return settings.agent.kind
    if settings.agent.command:
        return OTHER_AGENT
    found = (kind for kind, variable in key_envs.items() if variable and environment.get(variable, "").strip())
    return next(found, DEFAULT_AGENT)


def leaves(tree: Mapping[str, Any], at: KeyPath = ()) -> Iterator[tuple[KeyPath, Any]]:
    """Every value that is not a mapping with something in it, with its path."""
    for key, value in tree.items():
        if isinstance(value, Mapping) and value:
            yield from leaves(value, (*at, key))
        else:
            yield (*at, key), value


class _Layers:
    """One tree, and for each path who set it last."""

    def __init__(self, file: YamlFile) -> None:
        self._file = file
        self.tree: dict[str, Any] = {}
        self._origins: dict[KeyPath, str] = {}

    def place(self, path: KeyPath) -> str:
        """Where the file says `path`."""
        return f"{self._file.path}:{self._file.line(path)}"

    def add(self, tree: Mapping[str, Any], origin: Callable[[KeyPath], str]) -> None:
        for path, value in leaves(tree):
            self.put(path, value, origin(path))

    def put(self, path: KeyPath, value: Any, origin: str) -> None:
        if value is None and len(path) == 1:  # a section's name with nothing below it
            return
        *above, key = path
        node = self.tree
        for depth, step in enumerate(above, 1):
            if node.get(step) is None:
                node[step] = {}
            node = node[step]
            if not isinstance(node, dict):
                self._refuse_value_for_section(path[:depth])
        if not (isinstance(value, Mapping) and not value and isinstance(node.get(key), dict)):
            node[key] = value
        self._origins[path] = origin

    def _refuse_value_for_section(self, path: KeyPath) -> NoReturn:
        """A weaker layer has a plain value where a stronger one sets something below it."""
        where = self.origin(path)
        raise ConfigError(f"{where}: {'.'.join(path)}: is a section, with settings below it.", "Correct the line.")

    def origin(self, path: KeyPath) -> str:
        while path and path not in self._origins:
            path = path[:-1]
        return self._origins.get(path, "default")

    def check(self) -> Settings:
        try:
            return Settings.model_validate(self.tree)
        except ValidationError as error:
            problems = error.errors(include_url=False, include_input=False, include_context=False)
            raise self._refusal(problems[0]["type"], problems[0]["loc"], problems[0]["msg"], len(problems)) from None

    def _refusal(self, kind: str, loc: tuple[int | str, ...], message: str, count: int) -> ConfigError:
        path = tuple(str(step) for step in loc)
        origin = self._nearest(path)
        where = "" if origin == "default" else f"{origin}: "
        more = f" ({count - 1} more after this one.)" if count > 1 else ""
        if kind == "extra_forbidden":
            sentence, hint = f"{where}{'.'.join(path)}: there is no such setting.", _suggest(path)
        else:
            problem = message.removeprefix("Value error, ").removeprefix("Input should ").removesuffix(".")
            must = "should " if message.startswith("Input should ") else ""
            sentence = f"{where}{'.'.join(path)}: {must}{problem[:1].lower()}{problem[1:]}."
            hint = "`a2a-serve config show` tells what is set and where."
        return ConfigError(sentence, hint + more)

    def _nearest(self, path: KeyPath) -> str:
        """Who set `path`, something below it, or the nearest thing above it."""
        if path not in self._origins:
            for known, origin in reversed(self._origins.items()):
                if known[: len(path)] == path:
                    return origin
        origin = self.origin(path)
        return self.place(path) if origin.startswith(f"{self._file.path}:") else origin


def _suggest(path: KeyPath) -> str:
    model, _ = _descend(path[:-1])
    names = list(model.model_fields) if model is not None else []
    close = difflib.get_close_matches(path[-1], names, n=1)
    if close:
        return f"Did you mean {close[0]}?"
    return f"Known here: {', '.join(names)}." if names else ""


def _from_environment(environment: Mapping[str, str]) -> Iterator[tuple[str, KeyPath, Any]]:
    for name in sorted(environment):
        rest = name.removeprefix(PREFIX)
        if rest == name or rest in NOT_SETTINGS:
            continue
        path, annotation = _locate(name, rest.split("__"))
        yield name, path, _typed(name, environment[name], annotation)


def _locate(name: str, steps: list[str]) -> tuple[KeyPath, Any]:
    """The path that a variable names. Names of settings are in any case; keys of a plain mapping are as written."""
    path: KeyPath = ()
    for step in steps:
        model, mapped = _descend(path)
        known = step if model is None and _model_of(mapped) is None else step.lower()
        if not step or (model is None and mapped is None) or (model is not None and known not in model.model_fields):
            wrong = ".".join((*path, known))
            raise ConfigError(f"{name}: there is no setting {wrong}.", _suggest((*path, known)))
        path = (*path, known)
    return path, _annotation(path)


def _annotation(path: KeyPath) -> Any:
    model, mapped = _descend(path[:-1])
    return model.model_fields[path[-1]].annotation if model is not None else mapped


def _descend(path: KeyPath) -> tuple[type[BaseModel] | None, Any]:
    """What is at `path`: (a section, None), or (None, the type of a mapping's values), or (None, None)."""
    model: type[BaseModel] | None = Settings
    mapped: Any = None
    for step in path:
        if model is not None:
            field_ = model.model_fields.get(step)
            annotation = field_.annotation if field_ else None
        else:
            annotation = mapped
        model, mapped = _model_of(annotation), _mapped(annotation)
    return model, mapped


def _alternatives(annotation: Any) -> tuple[Any, ...]:
    if get_origin(annotation) is Annotated:
        return _alternatives(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        return tuple(inner for each in get_args(annotation) for inner in _alternatives(each))
    return (annotation,)


def _model_of(annotation: Any) -> type[BaseModel] | None:
    found = (each for each in _alternatives(annotation) if isinstance(each, type) and issubclass(each, BaseModel))
    return next(found, None)


def _mapped(annotation: Any) -> Any:
    return next((get_args(each)[1] for each in _alternatives(annotation) if get_origin(each) is dict), None)


def _typed(name: str, text: str, annotation: Any) -> Any:
    """A variable's text as the setting's type wants it: lists with commas or as YAML, sections and mappings as YAML."""
    kinds = _alternatives(annotation)
    if not text and type(None) in kinds:
        return None
    is_list = any(get_origin(each) is list for each in kinds)
    if is_list and not text.lstrip().startswith("["):
        return [word.strip() for word in text.split(",")] if _is_choices(annotation) else text
    if is_list or _model_of(annotation) or _mapped(annotation) is not None:
        try:
            return YAML(typ="safe", pure=True).load(text)
        except (YAMLError, ValueError, RecursionError) as error:
            raise ConfigError(f"{name}: this is not YAML.", 'Lists are written as "[a, b]".') from error
    return text


def _is_choices(annotation: Any) -> bool:
    """Whether it is a list of choices, which a comma separates; a command line is split as a shell would."""
    inner = next(get_args(each)[0] for each in _alternatives(annotation) if get_origin(each) is list)
    return inner is not str
