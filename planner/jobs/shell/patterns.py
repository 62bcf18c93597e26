"""Patterns of the shell (``*``, ``?``, ``[a-z]``, ``+(a|b)``) as regular expressions, and what is done with them."""

from __future__ import annotations

import re
from typing import Final

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


def matches(text: str, pattern: str) -> bool:
    """Whether all of a text is of a pattern."""
    return re.fullmatch(translated(pattern), text, re.DOTALL) is not None


def without_front(text: str, pattern: str, *, longest: bool) -> str:
    """A text without what of a pattern it begins with."""
    found = re.match(translated(pattern, greedy=longest), text, re.DOTALL)
    return text[found.end() :] if found else text


def without_end(text: str, pattern: str, *, longest: bool) -> str:
    """A text without what of a pattern it ends with."""
    expression = re.compile(translated(pattern), re.DOTALL)
    places = range(len(text) + 1) if longest else range(len(text), -1, -1)
    return next((text[:place] for place in places if expression.fullmatch(text, place)), text)


def replaced(text: str, pattern: str, new: str, *, where: str) -> str:
    """A text with what is of a pattern replaced: the first (/), all (//), in front (/#), at the end (/%)."""
    if not pattern and where in {"/", "//"}:
        return text
    expression = translated(pattern)
    expression = {"/#": rf"\A(?:{expression})", "/%": rf"(?:{expression})\Z"}.get(where, expression)
    return re.sub(expression, lambda _: new, text, count=0 if where == "//" else 1, flags=re.DOTALL)
