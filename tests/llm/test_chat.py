"""Conversations with a model that answers as it is told: what it is asked, what is kept, and the command's lines."""

from __future__ import annotations

import io
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from aicf.errors import CaptureError, InputMismatch
from aicf.llm import Chat, LanguageModel, loading
from aicf.llm.chat_template import ChatTemplate
from aicf.llm.loading import OpenedModel
from aicf.tools.aicf_cli import main
from tests.llm.letters import letters

TEMPLATE = ChatTemplate(
    "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}", {}, "small.gguf"
)
CAPACITY = 100


class Scripted:
    """A model whose answers are given, and that notes what it was asked.

    Args:
        answers: Pieces of each answer; an exception is raised in its place.
    """

    def __init__(self, *answers: list[str | BaseException]) -> None:
        self.tokenizer, self.capacity, self.template = letters(), CAPACITY, TEMPLATE
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self._answers = iter(answers)

    def generate(self, prompt: str, **settings: Any) -> Iterator[str]:
        self.asked.append((prompt, settings))
        return self._pieces(next(self._answers))

    def _pieces(self, answer: list[str | BaseException]) -> Iterator[str]:
        for piece in answer:
            if isinstance(piece, BaseException):
                raise piece
            yield piece

    stats = "how fast it was"

    def chat(
        self, system: str | None = None, *, template: ChatTemplate | None = None, **settings: Any
    ) -> Chat:
        return Chat(cast(LanguageModel, self), template or TEMPLATE, system, settings)


def test_messages_are_kept_and_asked_again() -> None:
    model = Scripted(["one", " two"], ["three"])
    chat = model.chat("be short", temperature=0.5)
    assert list(chat.say("hello")) == ["one", " two"] and "".join(chat.say("more")) == "three"
    first, second = (prompt for prompt, _ in model.asked)
    assert first == "system: be short\nuser: hello\n"
    assert second == first + "assistant: one two\nuser: more\n"
    assert model.asked[1][1] == {"max_tokens": CAPACITY - len(second), "temperature": 0.5}
    assert [message["role"] for message in chat.messages] == ["system", *["user", "assistant"] * 2]


def test_an_answer_that_is_left_is_kept_as_far_as_it_came() -> None:
    model = Scripted(["one", "two", "three"], ["a", KeyboardInterrupt()], [])
    chat = model.chat()
    pieces = cast(Generator[str], chat.say("x"))
    assert next(pieces) == "one"
    pieces.close()
    with pytest.raises(KeyboardInterrupt):
        list(chat.say("y"))
    assert list(chat.say("z")) == []
    assert [message["content"] for message in chat.messages] == ["x", "one", "y", "a", "z", ""]


@pytest.mark.parametrize("error", [CaptureError("broken"), KeyboardInterrupt()])
def test_a_prompt_that_fails_leaves_the_conversation_as_it_was(error: BaseException) -> None:
    model = Scripted(["one"], [error], ["two"])
    chat = model.chat()
    list(chat.say("x"))
    with pytest.raises(type(error)):
        list(chat.say("y"))
    list(chat.say("z"))
    assert [message["content"] for message in chat.messages] == ["x", "one", "z", "two"]


def test_an_answer_is_as_long_as_fits() -> None:
    model = Scripted(["a"], ["b"])
    chat = model.chat(max_tokens=85)
    list(chat.say("x"))
    list(chat.say("y"))
    assert [settings["max_tokens"] for _, settings in model.asked] == [85, CAPACITY - len(model.asked[1][0])]


def test_beginning_anew() -> None:
    chat = Scripted(["a"], ["b"]).chat("old")
    list(chat.say("x"))
    chat.reset()
    assert chat.messages == [{"role": "system", "content": "old"}]
    chat.system = None
    assert chat.messages == []


def test_a_conversation_that_does_not_fit_is_told_and_not_kept() -> None:
    chat = Scripted([]).chat()
    with pytest.raises(InputMismatch, match="the conversation has 107 tokens and the cache 100 positions"):
        chat.say("x" * 100)
    with pytest.raises(InputMismatch, match="the message"):
        chat.say(5)  # type: ignore[arg-type]
    with pytest.raises(InputMismatch, match="the message holds bytes that are no UTF-8 at position 2; give"):
        chat.say("ab\udcff")
    assert chat.messages == []


def test_a_conversation_that_cannot_begin_is_told() -> None:
    model = LanguageModel.__new__(LanguageModel)
    model.template = TEMPLATE
    with pytest.raises(InputMismatch, match="top_p is 2; it is a number, 0 to 1"):
        model.chat(top_p=2, max_tokens=3)
    model.template = None
    with pytest.raises(InputMismatch, match="the model has no chat template; give one, or use generate"):
        model.chat()


# The command


def talked(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    model: Scripted,
    lines: str | io.TextIOWrapper,
    *more: str,
) -> tuple[int, str, str]:
    opened = OpenedModel(cast(Any, None), model.tokenizer, model.template, {})
    monkeypatch.setattr(loading, "open_model", lambda path: opened)
    monkeypatch.setattr(loading, "load_opened", lambda given, target, **options: model)
    monkeypatch.setattr("sys.stdin", io.StringIO(lines) if isinstance(lines, str) else lines)
    status = main(["chat", "small.gguf", *more])
    out, err = capsys.readouterr()
    return status, out, err


def test_lines_of_the_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Ctrl-C ends an answer and an error ends an answer; the conversation goes on after both."""
    model = Scripted(["one"], ["tw", KeyboardInterrupt()], [CaptureError("broken")], ["four"], ["five"])
    lines = "a\n\nb\nc\n/stats\n/odd\n/help\n/system be short\nd\n/reset\ne\n/exit\nnot read\n"
    status, out, err = talked(
        monkeypatch, capsys, model, lines, "--system", "old", "--top-k", "3", "--stop", "x", "--stop", "y"
    )
    assert status == 0 and err == "error: broken\n"
    assert out.startswith(
        "small, 100 positions. /help says what a line may be.\n> one\n> > tw\n> > how fast it was\n"
    )
    assert "there is no /odd; /help lists what there is" in out and "/reset         begins" in out
    assert out.endswith("> (a new conversation)\n> four\n> (a new conversation)\n> five\n> ")
    prompts = [prompt for prompt, _ in model.asked]
    assert prompts[0] == "system: old\nuser: a\n"
    assert prompts[3:] == [f"system: be short\nuser: {line}\n" for line in "de"]
    assert model.asked[0][1]["stop"] == ("x", "y")
    assert model.asked[0][1]["top_k"] == 3 and model.asked[0][1]["temperature"] == 0.7


def test_one_answer_and_the_end_of_input(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model = Scripted(["one", "two"])
    more = ("--prompt", "hello", "--max-tokens", "7", "--temperature", "0")
    assert talked(monkeypatch, capsys, model, "", *more) == (0, "onetwo\n", "")
    assert model.asked[0][1]["max_tokens"] == 7 and model.asked[0][1]["stop"] == ()
    assert talked(monkeypatch, capsys, model, "")[1].endswith("> \n")


def test_templates_are_checked_before_a_model_is_compiled(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model = Scripted()
    model.template = ChatTemplate("{% if %}", {}, "small.gguf")
    (status, out, err) = talked(monkeypatch, capsys, model, "")
    assert (
        status == 1
        and out == ""
        and err.startswith("small.gguf: error: the chat template has an error in line 1")
    )
    monkeypatch.setattr(model, "template", None)
    status, out, err = talked(monkeypatch, capsys, model, "")
    assert (status, out) == (1, "")
    assert err == "small.gguf: error: the model has no chat template; give one with --template\n"


def test_lines_that_are_no_utf8_end_no_conversation(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model = Scripted(["one"])
    stream = io.TextIOWrapper(io.BytesIO(b"\xff\nb\n"), "utf-8", "strict")
    status, out, err = talked(monkeypatch, capsys, model, stream)
    assert status == 0 and out.endswith("> > one\n> \n")
    assert err == "error: the message holds bytes that are no UTF-8 at position 0; give text in UTF-8\n"


def test_an_error_of_one_answer_is_the_status(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    model = Scripted([CaptureError("broken")])
    assert talked(monkeypatch, capsys, model, "", "--prompt", "x") == (1, "", "aicf: error: broken\n")
    assert talked(monkeypatch, capsys, model, "", "--template", str(tmp_path / "no"))[2].startswith(
        f"{tmp_path / 'no'}: error: cannot read it"
    )
    monkeypatch.undo()
    assert main(["chat", "x.gguf", "--temperature", "-1"]) == 1  # before the model is loaded
    assert capsys.readouterr().err == "aicf: error: temperature is -1.0; it is a number, 0 or more\n"
    assert main(["chat", "x.gguf", "--stop", "a", "--stop", ""]) == 1
    assert capsys.readouterr().err == "aicf: error: a stop string is ''; give text of one character or more\n"
    assert main(["chat", str(tmp_path / "missing.gguf")]) == 1
    assert capsys.readouterr().err.count("\n") == 1
