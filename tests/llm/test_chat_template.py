"""Chat templates: what they make of messages, where they come from, and what they may not do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from aicf.errors import AicfError, InputMismatch, InvalidIR
from aicf.frontends.gguf.reader import parsed
from aicf.llm.chat_template import ChatTemplate, file_template, folder_template, gguf_template
from aicf.llm.model import LanguageModel
from tests.frontends.gguf.writer import gguf
from tests.llm.letters import letters

CHATML = """\
{%- if messages[0].role != 'system' %}{{ bos_token }}system: helpful
{% endif %}
{%- for message in messages %}
    {%- if message.role == 'tool' %}{% continue %}{% endif %}
{{ message.role }}: {{ message.content | trim }}{{ eos_token }}
{% endfor %}
{%- if add_generation_prompt %}assistant:{% endif %}"""
MESSAGES = [
    {"role": "user", "content": " one {{ 7 * 6 }} "},
    {"role": "tool", "content": "left out"},
    {"role": "assistant", "content": "<two> & ü"},
    {"role": "user", "content": "three"},
]
PROMPT = (
    "<s>system: helpful\nuser: one {{ 7 * 6 }}</s>\nassistant: <two> & ü</s>\nuser: three</s>\nassistant:"
)
TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}


def template(text: str) -> ChatTemplate:
    return ChatTemplate(text, TOKENS, "small.gguf")


def test_the_text_of_a_conversation() -> None:
    """Messages are text, not templates, and nothing is escaped."""
    assert template(CHATML).prompt(MESSAGES) == PROMPT
    assert template("{{ messages | tojson }}").prompt(MESSAGES[2:3]) == json.dumps(
        MESSAGES[2:3], ensure_ascii=False
    )


def test_what_transformers_gives_templates_besides() -> None:
    text = (
        "{% if tools is none and documents is none %}{{ {'b': 1, 'a': 'ü'} | tojson(**options) }}{% endif %}"
    )
    for options in ({}, {"indent": 2}, {"separators": (",", ":")}, {"sort_keys": True, "ensure_ascii": True}):
        named = ChatTemplate(text, {"options": options}, "small.gguf")  # type: ignore[dict-item]
        written = json.dumps({"b": 1, "a": "ü"}, **{"ensure_ascii": False, **options})  # type: ignore[arg-type]
        assert named.prompt([]) == written


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{% for m in messages %}", "an error in line 1: Unexpected end of template"),
        ("a\n{{ 1 + }}", "an error in line 2: unexpected 'end of print statement'"),
        (
            "{{ messages[0].content.missing.more }}",
            "an error in line 1: 'str object' has no attribute 'missing'",
        ),
        ("\n\n{{ 1 / 0 }}\n", "an error in line 3: division by zero; give"),
        ("{{ raise_exception('roles must\nalternate') }}", "refuses the messages: roles must alternate"),
        ("{{ messages.append(1) }}", "an error in line 1: .*unsafe; give"),
        ("{{ ''.__class__.__mro__ }}", "an error in line 1: .*unsafe; give"),
        ("{{ messages.__init__.__globals__ }}", "an error in line 1: .*unsafe; give"),
        ("{{ cycler.__init__.__globals__.os.system('true') }}", "an error in line 1: .*unsafe; give"),
        ("{% include 'other' %}", "an error in line 1: no loader"),
        ("{{ range(999999999) | list }}", "an error in line 1: Range too big"),
        ("{{ open('file') }}", "an error in line 1: 'open' is undefined"),
        (
            "{% if add_generation_prompt is false %}a{% endif %}",
            "makes nothing of the messages; give another",
        ),
        ("\n {{ ' ' }}\n", "makes nothing of the messages; give another"),
        ("{{ " + "(" * 5000 + ")" * 5000 + " }}", "has an error"),
    ],
)
def test_errors_are_told_in_one_line(text: str, message: str) -> None:
    with pytest.raises(InputMismatch, match=message) as caught:
        template(text).prompt(MESSAGES)
    assert "\n" not in caught.value.message and caught.value.location == "small.gguf"


def test_the_template_of_a_gguf_file() -> None:
    fields: dict[str, Any] = {
        "tokenizer.chat_template": CHATML,
        "tokenizer.ggml.tokens": ["a", "<s>", "</s>"],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
    }

    def read(changes: dict[str, Any]) -> ChatTemplate | None:
        changed = {name: value for name, value in {**fields, **changes}.items() if value is not None}
        return gguf_template(parsed(gguf(changed, {}), Path("small.gguf")))

    found = read({})
    assert found is not None and found.prompt(MESSAGES) == PROMPT
    outside = read({"tokenizer.ggml.bos_token_id": 3})
    assert outside is not None and outside.tokens == {"eos_token": "</s>"}
    assert read({"tokenizer.chat_template": None}) is None
    with pytest.raises(InvalidIR, match="'tokenizer.chat_template' is 5"):
        read({"tokenizer.chat_template": 5})


def test_the_template_of_a_folder(tmp_path: Path) -> None:
    """A file of its own comes before the setting; of several named ones the default is taken."""
    assert folder_template(tmp_path) is None
    config = tmp_path / "tokenizer_config.json"
    named = [{"name": "tools", "template": "no"}, {"name": "default", "template": CHATML}]
    for value in (CHATML, named):
        config.write_text(
            json.dumps({"bos_token": {"content": "<s>"}, "eos_token": "</s>", "chat_template": value})
        )
        found = folder_template(tmp_path)
        assert found is not None and found.prompt(MESSAGES) == PROMPT
    (tmp_path / "chat_template.jinja").write_text("alone{{ bos_token }}")
    found = folder_template(tmp_path)
    assert found is not None and found.prompt(MESSAGES) == "alone<s>"


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (b"{", "it is no JSON"),
        (b"[" * 100_000, "it is no JSON"),
        (b"[]", "it is no JSON object"),
        (b'{"chat_template": 5}', "'chat_template' is no text"),
        (b'{"chat_template": [{"name": 1}]}', "'chat_template' is no text"),
        (b'{"chat_template": ["a"]}', "'chat_template' is no text"),
        (b'{"chat_template": "\xff"}', "it is no UTF-8"),
    ],
)
def test_damaged_files_of_a_folder(tmp_path: Path, config: bytes, message: str) -> None:
    (tmp_path / "tokenizer_config.json").write_bytes(config)
    with pytest.raises(InvalidIR, match=message) as caught:
        folder_template(tmp_path)
    assert "\n" not in caught.value.message


def test_the_template_of_a_user(tmp_path: Path) -> None:
    with pytest.raises(AicfError, match="cannot read it: No such file"):
        file_template(tmp_path / "missing")
    (tmp_path / "own").write_text("hello")
    assert file_template(tmp_path / "own").prompt(MESSAGES) == "hello"


@pytest.mark.parametrize("own", [None, template("the model's")])
def test_a_template_of_a_user_has_the_tokens_of_the_model(tmp_path: Path, own: ChatTemplate | None) -> None:
    (tmp_path / "own").write_text("{{ bos_token }}{{ messages[0].content }}{{ eos_token }}")
    model = LanguageModel.__new__(LanguageModel)
    model.template, model.named_tokens, model.tokenizer, model.capacity = own, TOKENS, letters(), 99
    asked = list[str]()
    model.generate = lambda prompt, **settings: iter([asked.append(prompt) or "yes"])  # type: ignore[method-assign]
    assert list(model.chat(template=file_template(tmp_path / "own")).say("hello")) == ["yes"]
    assert asked == ["<s>hello</s>"]
