"""Patterns of the shell (``*``, ``?``, ``[a-z]``, ``+(a|b)``) as regular expressions, and what is done with them."""

from __future__ import annotations

import re
from math import comb
from typing import Final

from planner.errors import BadRequest

_GROUPS: Final = {"?": "?", "*": "*", "+": "+", "@": "", "!": ""}
"""What a group of an extended pattern is followed by, by the sign in front of it."""


def translated(pattern: str, *, greedy: bool = True) -> str:
    """A pattern as a regular expression."""
    many = ".*" if greedy else ".*?"
    found, place, closing = "", 0, []
    while place < len(pattern):
        sign, after = pattern[place], pattern[place + 1 : place + 2]
        if sign == "\\":
            found += re.escape(after)
            place += 1
        elif sign in _GROUPS and after == "(":
            found += "(?!(?:" if sign == "!" else "(?:"
            closing.append(")$)" + many if sign == "!" else ")" + _GROUPS[sign])
            place += 1
        elif closing and sign in "|)":
            found += "|" if sign == "|" else closing.pop()
        elif sign == "[" and (end := _class_end(pattern, place)):
            inner = pattern[place + 1 : end].replace("\\", "\\\\")
            inner = "^" + inner[1:] if inner[:1] in {"!", "^"} else inner
            for name, meant in _CLASSES.items():
                inner = inner.replace(f"[:{name}:]", meant)
            found += f"[{inner}]"
            place = end
        else:
            found += many if sign == "*" else "." if sign == "?" else re.escape(sign)
        place += 1
    return found


_CLASSES: Final = {
    "digit": "0-9", "alpha": "a-zA-Z", "alnum": "a-zA-Z0-9", "upper": "A-Z", "lower": "a-z", "space": r"\s",
    "punct": r"!-/:-@\[-`{-~", "blank": r" \t", "xdigit": "0-9a-fA-F",
}  # fmt: skip


def _class_end(pattern: str, start: int) -> int:
    """Where the class that begins here ends, 0 where it is none."""
    place = start + 1 + (pattern[start + 1 : start + 2] in {"!", "^"})
    place += pattern[place : place + 1] == "]"
    while place < len(pattern) and pattern[place] != "]":
        place = pattern.find(":]", place) + 2 if pattern.startswith("[:", place) else place + 1
    return place if place < len(pattern) else 0


_MOST: Final = 10**8
"""Ways of a text through a pattern that may be tried, a second or two at most; nothing stops a regular expression."""
_NESTED: Final = 24
"""Characters that a repeated choice, or repetition, of which each may be taken in two ways, is tried on."""


def affordable(text: str, expression: str, *, anywhere: int = 0) -> None:
    """Whether a regular expression comes to an end on a text soon, whatever they are.

    Repetitions side by side share the text out, in as many ways as there are places for their borders; one of a group
    that has another in it, or a choice, may double with every character.

    Args:
        text: that is tried.
        expression: regular expression.
        anywhere: how many borders more are tried: 1 where it may begin, or end, at any place.

    Raises:
        BadRequest: it may not.
    """
    plain = re.sub(r"\\.|\[\^?\]?[^\]]*\]", "x", expression, flags=re.DOTALL)
    borders = anywhere + len(re.findall(r"[*+{]", re.sub(r"(\.\*\??)+\Z", "", plain)))
    ways = comb(len(text) + borders, borders) * (1 + len(expression) // 100)
    ways *= 2 ** len(re.findall(r"(?<![(*+}?])\?", plain))
    nested, open_ = False, [(False, 1)]
    for place, sign in enumerate(plain):
        inner, choices = open_[-1]
        if sign == "(":
            open_.append((False, 1))
        elif sign == ")" and len(open_) > 1:
            repeated = plain[place + 1 : place + 2] in {"*", "+", "{"}
            open_.pop()
            nested, ways = nested or (inner and repeated), ways * choices
            open_[-1] = (open_[-1][0] or inner or repeated, open_[-1][1])
        elif sign in "*+{|?" and plain[place - 1 : place] != "(":
            open_[-1] = (True, choices + (sign == "|"))
    if ways > _MOST or (nested and len(text) > _NESTED):
        sizes = f"a pattern of {len(expression):,} characters on a text of {len(text):,}"
        raise BadRequest(f"{sizes} has too many ways to match")


def matches(text: str, pattern: str) -> bool:
    """Whether all of a text is of a pattern."""
    affordable(text, translated(pattern))
    return re.fullmatch(translated(pattern), text, re.DOTALL) is not None


def without_front(text: str, pattern: str, *, longest: bool) -> str:
    """A text without what of a pattern it begins with."""
    affordable(text, translated(pattern))
    found = re.match(translated(pattern, greedy=longest), text, re.DOTALL)
    return text[found.end() :] if found else text


def without_end(text: str, pattern: str, *, longest: bool) -> str:
    """A text without what of a pattern it ends with."""
    affordable(text, translated(pattern), anywhere=1)
    expression = re.compile(translated(pattern), re.DOTALL)
    places = range(len(text) + 1) if longest else range(len(text), -1, -1)
    return next((text[:place] for place in places if expression.fullmatch(text, place)), text)


def replaced(text: str, pattern: str, new: str, *, where: str) -> str:
    """A text with what is of a pattern replaced: the first (/), all (//), in front (/#), at the end (/%)."""
    if not pattern and where in {"/", "//"}:
        return text
    expression = translated(pattern)
    affordable(text, expression, anywhere=int(where != "/#"))
    expression = {"/#": rf"\A(?:{expression})", "/%": rf"(?:{expression})\Z"}.get(where, expression)
    return re.sub(expression, lambda _: new, text, count=0 if where == "//" else 1, flags=re.DOTALL)
