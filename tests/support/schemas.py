"""The JSON schemas of what ``--json`` prints, made of the records that are printed.

``python -m tests.support.schemas`` writes them to docs/schemas.
"""

import dataclasses
import json
import types
import typing
from typing import Any, Final

from jsonschema import Draft202012Validator

from scrapy_gp4c.commands.action import Action
from scrapy_gp4c.commands.actions import ACTIONS
from tests.support.sources import ROOT

FOLDER: Final = ROOT / "docs" / "schemas"
PLAIN: Final = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}
DOCUMENTS: Final[dict[str, Any]] = {
    name: action.document
    for name, action in ACTIONS.items()
    if isinstance(action, Action) and action.document is not None
}
"""Action -> the record that it prints."""


def schema_of(kind: Any) -> dict[str, Any]:
    """The JSON schema of a type: a dataclass, a typed dictionary, a plain type, a list, a dict or a union."""
    if dataclasses.is_dataclass(kind) or typing.is_typeddict(kind):
        hints = typing.get_type_hints(kind)
        return {
            "type": "object",
            "properties": {name: schema_of(hint) for name, hint in hints.items()},
            "required": list(hints),
            "additionalProperties": False,
        }
    if kind in PLAIN:
        return {"type": PLAIN[kind]}
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        return {"anyOf": [schema_of(one) for one in arguments]}
    if origin in (list, tuple):
        return {"type": "array", "items": schema_of(arguments[0])}
    assert origin is dict, kind
    return {"type": "object", "additionalProperties": schema_of(arguments[1])}


def document(action: str) -> dict[str, Any]:
    """The schema of what an action prints."""
    return {
        "$schema": Draft202012Validator.META_SCHEMA["$id"],
        "title": f"scrapy gp4c {action} --json",
        **schema_of(DOCUMENTS[action]),
    }


def checked(action: str, text: str) -> Any:
    """Parse what an action printed, and validate it by the schema in docs/schemas."""
    document = json.loads(text)
    Draft202012Validator(json.loads((FOLDER / f"{action}.json").read_text("utf-8"))).validate(document)
    return document


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for action in DOCUMENTS:
        (FOLDER / f"{action}.json").write_text(json.dumps(document(action), indent=1) + "\n", "utf-8")
