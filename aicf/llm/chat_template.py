"""Chat templates: from the messages of a conversation to the text of a prompt, as a model's makers wrote them.

A template is a program in Jinja that comes with the model. It runs in Jinja's sandbox, which lets it read the messages
and compute, and change or call nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from importlib import import_module
from pathlib import Path
from traceback import walk_tb
from typing import Any, NoReturn

from aicf.errors import AicfError, BackendUnavailable, InputMismatch, InvalidIR
from aicf.frontends.gguf.reader import GgufFile
from aicf.support.extras import install
from aicf.support.files import reason_of

Message = Mapping[str, str]
"""`role`, such as `user`, and `content`."""
_CONFIG, _FILE = "tokenizer_config.json", "chat_template.jinja"
_TOKENS = ("bos_token", "eos_token")
_LONGEST = 1_000_000
"""Characters of a template."""


class ChatTemplate:
    """A template.

    Args:
        text: In Jinja.
        tokens: Texts of the tokens that it may name, `bos_token` and `eos_token`.
        location: Where it was read, for errors.
    """

    def __init__(self, text: str, tokens: Mapping[str, str], location: str) -> None:
        self.text, self.tokens, self.location = text, tokens, location

    def with_tokens(self, tokens: Mapping[str, str]) -> ChatTemplate:
        """This template with tokens of a model, where it has none of its own."""
        return ChatTemplate(self.text, {**tokens, **self.tokens}, self.location)

    def prompt(self, messages: Sequence[Message]) -> str:
        """The text of a conversation, up to where the answer begins.

        Raises:
            BackendUnavailable: the package jinja2 is missing.
            InputMismatch: the template refuses the messages, has an error, does what it may not, or makes only blanks.
        """
        template = self._template  # an error of its own
        try:
            text: str = template.render(
                messages=[dict(message) for message in messages],
                tools=None,
                documents=None,
                add_generation_prompt=True,
                **self.tokens,
            )
        except AicfError:
            raise
        except Exception as error:  # a template may raise anything
            raise self._error(error) from error
        if not text.strip():
            raise InputMismatch(
                "the chat template makes nothing of the messages; give another template",
                location=self.location,
            )
        return text

    def check(self) -> None:
        """Raises BackendUnavailable if the package jinja2 is missing, InputMismatch if the template is no Jinja."""
        _ = self._template

    @cached_property
    def _template(self) -> Any:
        try:
            jinja: Any = import_module("jinja2.sandbox")
        except ImportError:
            raise BackendUnavailable(f"a chat template needs the package jinja2; {install('llm')}") from None
        if len(self.text) > _LONGEST:
            raise InputMismatch(
                f"the chat template has {len(self.text):,} characters; at most {_LONGEST:,} are read",
                location=self.location,
            )
        sandbox = jinja.ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
        )
        sandbox.globals["raise_exception"] = self._refuse
        sandbox.filters["tojson"] = _as_json
        try:
            return sandbox.from_string(self.text)
        except Exception as error:  # also what deep nesting raises
            raise self._error(error) from error

    def _refuse(self, message: object) -> NoReturn:
        raise InputMismatch(f"the chat template refuses the messages: {message}", location=self.location)

    def _error(self, error: Exception) -> InputMismatch:
        line = _line_of(error)
        where = "" if line is None else f" in line {line}"
        reason = str(error).rstrip(".") or type(error).__name__
        return InputMismatch(
            f"the chat template has an error{where}: {reason}; give another template",
            location=self.location,
        )


def _line_of(error: Exception) -> int | None:
    """The line of a template that an error is about, of its text or of where it ran; Jinja calls it `<template>`."""
    frames = walk_tb(error.__traceback__)
    ran = [number for frame, number in frames if frame.f_code.co_filename == "<template>"]
    return getattr(error, "lineno", None) or next(reversed(ran), None)


def _as_json(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON as Python writes it, with the arguments that `transformers` has; the filter of Jinja writes it for HTML."""
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def gguf_template(file: GgufFile) -> ChatTemplate | None:
    """The template of a GGUF file; None if it has none. Raises InvalidIR if it is no text."""
    name = "tokenizer.chat_template"
    if name not in file.fields:
        return None
    return ChatTemplate(file.field(name, str), gguf_tokens(file), str(file.path))


def gguf_tokens(file: GgufFile) -> dict[str, str]:
    """The tokens of a GGUF file that templates may name."""
    vocabulary = file.fields.get("tokenizer.ggml.tokens")
    tokens: dict[str, str] = {}
    for token in _TOKENS:
        number: Any = file.fields.get(f"tokenizer.ggml.{token}_id")
        if isinstance(vocabulary, list) and isinstance(number, int) and 0 <= number < len(vocabulary):  # pyright: ignore[reportUnknownArgumentType]
            tokens[token] = str(vocabulary[number])  # pyright: ignore[reportUnknownArgumentType]
    return tokens


def folder_template(folder: Path) -> ChatTemplate | None:
    """The template of a Hugging Face folder: `chat_template.jinja`, or what `tokenizer_config.json` says; None if it
    has none. Raises InvalidIR if a file is damaged."""
    config, tokens = _config(folder / _CONFIG), folder_tokens(folder)
    alone = folder / _FILE
    if alone.is_file():
        return ChatTemplate(_read(alone), tokens, str(alone))
    found = config.get("chat_template")
    if isinstance(found, list):
        found = _default(found)  # pyright: ignore[reportUnknownArgumentType]
    if found is None:
        return None
    if not isinstance(found, str):
        raise InvalidIR(
            "'chat_template' is no text; write the template as one", location=str(folder / _CONFIG)
        )
    return ChatTemplate(found, tokens, str(folder / _CONFIG))


def folder_tokens(folder: Path) -> dict[str, str]:
    """The tokens of a Hugging Face folder that templates may name. Raises InvalidIR if its file is damaged."""
    config = _config(folder / _CONFIG)
    return {name: _text_of(config[name]) for name in _TOKENS if config.get(name) is not None}


def _default(templates: Sequence[Any]) -> Any:
    """Of several templates with names, the default one; what was given if they are no such thing."""
    try:
        return {each["name"]: each["template"] for each in templates}["default"]
    except (TypeError, KeyError):
        return templates


def file_template(path: Path) -> ChatTemplate:
    """A template that a user wrote into a file of its own; its tokens are those of the model that it is given to.

    Raises InvalidIR: the file cannot be read.
    """
    return ChatTemplate(_read(path), {}, str(path))


def _config(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        found = json.loads(_read(path))
    except (ValueError, RecursionError) as error:
        raise InvalidIR(f"it is no JSON: {error}; download it again", location=str(path)) from error
    if not isinstance(found, dict):
        raise InvalidIR("it is no JSON object; download it again", location=str(path))
    return found  # pyright: ignore[reportUnknownVariableType]


def _text_of(token: Any) -> str:
    """Of a token that is written as its text, or as an object with its `content`."""
    return str(token.get("content", "")) if isinstance(token, dict) else str(token)  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidIR(f"it is no UTF-8: {error.reason}; write it as UTF-8", location=str(path)) from error
    except OSError as error:
        raise InvalidIR(f"cannot read it: {reason_of(error)}; check the path", location=str(path)) from error
