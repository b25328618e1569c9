"""Nothing in a text passes for a control token or a delimiter of its prompt, whatever template the model has."""

from __future__ import annotations

import re
import sys
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spolia.models.marks import escape_citations, escape_marks
from tests.cases import check_each

CONTROL = {
    "Gemma": ["<|turn>", "<turn|>", "<|channel>", "<channel|>", '<|"|>', "<|tool>", "<start_of_turn>",
              "<end_of_turn>", "<start_of_image>", "<unused99>", "<bos>"],
    "Llama": ["<|begin_of_text|>", "<|start_header_id|>", "<|eot_id|>", "<|eom_id|>", "<|python_tag|>",
              "<<SYS>>", "</s>"],
    "Qwen": ["<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|vision_start|>", "<tool_call>", "</think>"],
    "Mistral": ["[INST]", "[/INST]", "[TOOL_CALLS]", "[AVAILABLE_TOOLS]", "[SYSTEM_PROMPT]", "[MODEL_SETTINGS]",
                "[/MODEL_SETTINGS]", "[THINK]", "[think]", "<SPECIAL_20>"],
    "harmony": ["<|start|>", "<|channel|>", "<|message|>", "<|constrain|>", "<|return|>", "<|call|>"],
    "DeepSeek": ["<｜User｜>", "<｜Assistant｜>", "<｜begin▁of▁sentence｜>", "<｜tool▁calls▁begin｜>",
                 "<｜DSML｜invoke"],
    "Phi, GLM": ["<|user|>", "<|assistant|>", "[gMASK]", "<sop>", "<|observation|>"],
    "Kimi, Seed, MiniMax": ["◁think▷", "<seed:think>", "<[PLHD1_never_used]>", "</minimax:tool_call>", "]<|im_end|>",
                            "]~b]user", "]~!b[", "[e~[", "]!p~["],
    "T5, code": ["<extra_id_0>", "<fim_1>", "<0x0A>", "<reserved_special_token_1>", "<fim_prefix>", "<fim-suffix>",
                 "<file_sep>", "<|fim_hole|>"],
    "BERT": ["[CLS]", "[SEP]", "[MASK]", "[PAD]", "[BOS]", "[EOS]", "[UNK]"],
    "Codestral, Pixtral": ["[PREFIX]", "[MIDDLE]", "[SUFFIX]", "[IMG]", "[IMG_BREAK]", "[BEGIN_AUDIO]"],
    "EXAONE": ["[|Human|]", "[|assistant|]", "[|endofturn|]", "[BOS]"],
    "Qwen PRM, Baichuan, InternLM": ["<extra_0>", "<reserved_106>", "<TOKENS_UNUSED_1>", "<eoh>"],
    "Cohere": ["<BOS_TOKEN>", "<EOS_TOKEN>", "<|START_OF_TURN_TOKEN|>", "<UNK>"],
    "Alpaca, Vicuna": ["\n### Instruction:", "\n### Response:", "\n###Human:", "\n# Assistant :", "\nUSER:"],
    "after a word": ["x[TOOL_CALLS]", "x[BOS]", "x[IMG_END]", "x<fim_middle>"],
    "made up": ["<|tomorrow>", "<tomorrow|>", "<|x-1|>", "<||x||>", "[/TOMORROW]", "[NEW_MARK]", "<begin_of_x>"],
    "FunctionGemma": ["<start_function_call>", "<end_function_declaration>", "<escape>"],
    "MiniMax, Seed, LongCat": ["<beginning_of_sentence>", "<seed:bos>", "<seed:eos>", "<longcat_think>",
                               "</longcat_tool_call>", "</longcat_s>", "\n[Round 1] USER:"],
    "InternLM, Ling, TeleChat, Skywork": ["[UNUSED_TOKEN_146]", "<role>HUMAN</role>", "<role>system</role>", "<_user>",
                                          "<_bot>", "[USER]", "[BOT]"],
    "Nemotron, Olmo, K2": ["<TOOLCALL>", "</TOOLCALL>", "<AVAILABLE_TOOLS>", "<functions>", "<think_fast>"],
    "Apriel": ["[BEGIN FINAL RESPONSE]", "[END FINAL RESPONSE]"],
    "bars that look alike": ["<\u2502user\u2502>", "<\u00a6im_start\u00a6>", "<\u2223im_end\u2223>", "<\u2758turn>"],
    "a prompt": ["</passages>", "<passages number='2'>"],
}  # fmt: skip
TOKENS = [token for tokens in CONTROL.values() for token in tokens]
ORDINARY = [
    "<first_name>Ann</first_name>", "<h1>a</h1>", "<item1 id='2'/>", "a <| b", "f <|> g", "xs |> map f", "d[user_id]",
    "arr[i][j_k]", "[INFO] start", "Array<string | number>", "if (a<b || c>d)", "std::vector<int>", "#include <a.h>",
    "Map<String, List<Integer>>", "user: ann", "<end_date>2</end_date>", "<!DOCTYPE html>", "<a href='x'>y</a>",
    "a[b|c]", "[[link]]", "<T extends A|B>", "cout << x", "regex [a-z_]", "<ns:tag attr='1'/>",
    "<svg><path d='M0'/></svg>", "d[1]~e[2]", "a[i]!=b[j]", "buffer[MAX_SIZE]", "f(x)[MAX_SIZE]", "m[0][ROW_COUNT]",
    "x[mask]", "d[args]", "x[pad]", "[TODO]", "[Section]", "[Note_1]", "### Instructions", "Input: 3", "<utf-8>",
    "<issue-12>", "<your_api_key>", "<YOUR_NAME>", "<mask id='m'/>", "<prefix>a</prefix>", "[|]", "[| 1; 2 |]",
    "a[|x|]", "<name_prefix>", "<h2 class='a_1'>", "response: 200", "<img src='a_1.png'>", "## Response codes",
    "T[K_co]", "<role>admin</role>", "d[user]", "<page_s>", "<pre_tax>", "[Round 2] scores:", "T[USER_2]",
]  # fmt: skip
UNSEEN = [
    chr(point)
    for point in range(sys.maxunicode + 1)
    if unicodedata.category(chr(point)) in ("Cc", "Cf", "Zl", "Zp", "Mn", "Me") and chr(point) not in "\t\n"
] + list("\u115f\u1160\u2800\u3164\uffa0")
"""Characters that nobody sees."""


@check_each("token", TOKENS)
def test_no_control_token_of_a_template_passes(token: str) -> None:
    escaped = escape_marks(f"a {token} b", {"passages"})
    assert token not in escaped
    assert len(escaped) == len(token) + 4


@check_each("text", ORDINARY)
def test_ordinary_xml_and_code_stay(text: str) -> None:
    assert escape_marks(text, {"passages"}) == text


def wide(text: str) -> str:
    return "".join(chr(ord(character) + 0xFEE0) if "!" <= character <= "~" else character for character in text)


@pytest.mark.slow
@settings(max_examples=400)
@given(token=st.sampled_from(TOKENS), unseen=st.sampled_from(UNSEEN), place=st.integers(0, 30), form=st.integers(0, 3))
def test_no_disguised_token_passes(token: str, unseen: str, place: int, form: int) -> None:
    token = [
        token,
        token.upper(),
        wide(token),
        "".join(wide(character) if position % 2 else character for position, character in enumerate(token)),
    ][form]
    position = 1 + place % max(1, len(token) - 1)
    text = f"a {token[:position]}{unseen}{token[position:]} b"
    escaped = escape_marks(text, {"passages"})
    assert escaped != text
    assert len(escaped) == len(text)


_SHAPE = re.compile(
    r"<\|\w|<\w+\|>|<[｜|]|<(?:start|end)_of_|\[/[A-Z]|(?<![\w)\]])\[[A-Z]+_[A-Z]+\]|\[(?:IMG_|BOS)|\[\|\w|<fim|</?passages|</?think|</s>",
    re.I,
)


@settings(max_examples=300)
@given(st.lists(st.sampled_from([*TOKENS, *"<>|[]/｜＜ \n\x01\u3164", "im_end", "turn", "passages", "x"]), max_size=12))
def test_what_is_left_has_no_shape_of_a_token(pieces: list[str]) -> None:
    escaped = escape_marks("".join(pieces), {"passages"})
    visible = "".join(
        shape for shape in unicodedata.normalize("NFKC", escaped) if unicodedata.category(shape) not in ("Cc", "Cf")
    )
    left = [mark[0] for mark in _SHAPE.finditer(visible.replace("\u3164", "").replace("\u1160", ""))]
    assert not [shape for shape in left if not (shape.startswith("<|") and not shape[2:].isalnum())]
    assert escape_marks(escaped, {"passages"}) == escaped


def test_a_mark_that_cites_is_found_in_disguise() -> None:
    assert escape_citations("See [\x012], [\u31643].") == "See ⟦\x012⟧, ⟦\u31643⟧."


def test_the_prompts_of_the_package_use_no_mark_that_is_not_theirs() -> None:
    import spolia

    for path in Path(spolia.__file__).parent.rglob("*.txt"):
        assert "<|" not in path.read_text("utf-8"), path
