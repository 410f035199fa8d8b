"""Reads the comments of the extension module for the guide: its stub has the signatures, its Rust code the texts."""

import copy
import re
from pathlib import Path

import griffe

SOURCES = Path(__file__).resolve().parent.parent / "ffi/python/src"
# The classes of the methods that follow, or the class itself: its methods are elsewhere.
OWNER = re.compile(r"impl (\w+) \{|attributes! \{ (\w+) by|pub\(crate\) struct (\w+)")
MEMBER = re.compile(r"(?:pub\(crate\) )?(?:const )?(?:fn )?(\w+)[:(<]")


def comments():
    """Return the comments by the names of classes, and of attributes and methods behind those."""
    found = {}
    for file in SOURCES.glob("*.rs"):
        owner, text = "", []
        for line in map(str.strip, file.read_text().splitlines()):
            if line.startswith("///"):
                text.append(line[3:].removeprefix(" "))
                continue
            if match := OWNER.match(line):
                owner = next(filter(None, match.groups()))
                name = owner
            elif text and (match := MEMBER.match(line)):
                name = f"{owner}.{match[1]}"
            if text and match:
                found[name] = "\n".join(text)
            if not line.startswith("#["):
                text = []
    return found


class Native(griffe.Extension):
    """Gives native classes their texts, and the classes that inherit from them their members."""

    def on_package(self, *, pkg, **_):
        """Add them to the package."""
        native = pkg["_vkgdr"]
        for name, text in comments().items():
            owner, _, member = name.partition(".")
            if owner in native.members and (not member or member in native[owner].members):
                found = native[owner][member] if member else native[owner]
                found.docstring = griffe.Docstring(text, parent=found)
        # The native ones first: they inherit from each other.
        modules = [native, pkg, *(module for module in pkg.modules.values() if not module.is_alias)]
        modules += [module for module in pkg["compat"].modules.values() if not module.is_alias]
        for cls in (cls for module in modules for cls in module.classes.values() if not cls.is_alias):
            for base in cls.resolved_bases:
                if base.path.startswith(native.path):
                    for name, member in base.members.items():
                        if name not in cls.members and member.docstring:
                            cls.set_member(name, copy.copy(member))
