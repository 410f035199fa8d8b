#!/usr/bin/env python3
"""Checks the sentences of Markdown files, its arguments: their length, and words that CONTRIBUTING.md forbids.

Vale would do this, and none of its packages holds it: those of PyPI and npm fetch it from GitHub, and Debian has none.
textlint needs Node on every machine, and proselint has no rules of a project's own.
"""

import re
import sys
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

LONGEST = 25  # words of a sentence
PHRASES = {
    r"\b(some|any|every)body\b|\bwho(m|so)?ever\b": "name the person or the part",
    r"\bas (?!well\b|soon\b|long\b)\w+ as\b": "use a noun, or compare by 'than'",
    r"\bwhat \w+( \w+)? (has|have|had)\b": "use a noun",
    r"\bfor ever\b": "say 'without end'",
    r"\b(shall|utili[sz]e|in order to|please|simply|easily|obviously)\b": "leave it out, or say 'must'",
    r"\b(cannot|can't) be meant\b": "say 'invalid'",
    r"\b(synchroni|initiali|optimi|recogni|seriali)z": "write '-ise'",
}
# Pages have no abbreviation that ends with a full stop.
END = re.compile(r"(?<=[.?!])[\"'”)]*\s+")


def text_of(block: Token) -> str:
    """Return the text of a block with code as one word."""
    parts = {"code_inline": "\0", "softbreak": " ", "hardbreak": ". ", "image": ""}
    return "".join(parts.get(part.type, part.content) for part in block.children or [])


def faults(page: str) -> list[str]:
    """Return what is wrong with a page, by lines."""
    found, line = [], 0
    for block in MarkdownIt("commonmark").enable("table").parse(Path(page).read_text()):
        line = block.map[0] + 1 if block.map else line
        for sentence in END.split(text_of(block)) if block.type == "inline" else []:
            shown = f"{page}:{line}: {sentence.replace(chr(0), '`…`')}"
            words = [word for word in sentence.split() if re.search(r"[\w\0]", word)]
            if len(words) > LONGEST:
                found.append(f"{shown}\n    {len(words)} words, of at most {LONGEST}")
            own = re.sub('"[^"]*"', "", sentence)
            for phrase, advice in PHRASES.items():
                if match := re.search(phrase, own, re.IGNORECASE):
                    found.append(f"{shown}\n    '{match[0]}': {advice}")
    return found


if __name__ == "__main__":
    sys.exit("\n".join(fault for page in sys.argv[1:] for fault in faults(page)) or None)
