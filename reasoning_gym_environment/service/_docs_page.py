"""The page at `/docs`: the OpenAPI document for readers, without scripts or other files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

CONTENT_SECURITY_POLICY = "default-src 'none'; style-src 'unsafe-inline'"

_STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 60rem; padding: 0 1rem; }
table { border-collapse: collapse; width: 100%; }
th, td { border-bottom: 1px solid #8888; padding: .3rem .6rem; }
th, td { text-align: left; vertical-align: top; }
code { overflow-wrap: anywhere; }
h2 { border-top: 1px solid #8888; margin-top: 2rem; padding-top: 1rem; }
"""

_UNITS = {"Length": "characters", "Items": "items", "imum": ""}
"""What a bound counts, by the end of its JSON Schema key: `maxLength`, `minItems`, `maximum`."""

_ERROR = 'application/json, <a href="#ErrorReply">ErrorReply</a>'


def docs_page(document: Mapping[str, Any]) -> str:
    """Return an OpenAPI document as an HTML page.

    Example:
        >>> info = {"title": "A service", "version": "1", "description": "It adds."}
        >>> "<h1>A service 1</h1>" in docs_page({"info": info, "paths": {}, "components": {}})
        True
    """
    info = document["info"]
    title = escape(f"{info['title']} {info['version']}")
    body = [
        f"<h1>{title}</h1>",
        f"<p>{escape(info['description'])}</p>",
        '<p>The same for programs: <a href="openapi.json">openapi.json</a>.</p>',
        *_routes(document["paths"]),
        "<h2>Types</h2>",
    ]
    for name, schema in document["components"].get("schemas", {}).items():
        body += _type(name, schema)
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width">\n<title>{title}</title>\n'
        f"<style>{_STYLE}</style>\n</head>\n<body>\n"
        + "\n".join(body)
        + "\n</body>\n</html>\n"
    )


def _routes(paths: Mapping[str, Any]) -> Iterator[str]:
    """Yield each route with its body and replies; then the errors, which many share, once."""
    errors: dict[str, str] = {}
    for path, methods in paths.items():
        for method, operation in methods.items():
            yield f"<h2><code>{method.upper()} {escape(path)}</code></h2>"
            yield f"<p>{escape(operation['description'])}</p>"
            content = operation.get("requestBody", {}).get("content", {})
            for kind, body in content.items():
                yield f"<p>Body: {escape(kind)}, {_describe(body['schema'])}</p>"
            for status, reply in operation["responses"].items():
                kinds = _kinds(reply)
                if kinds == _ERROR:
                    errors[status] = reply["description"]
                else:
                    yield f"<p>Reply {escape(status)}: {kinds}</p>"
    yield "<h2>Errors</h2>"
    yield f"<p>{_ERROR}</p>"
    rows = [
        (escape(status), escape(meaning)) for status, meaning in sorted(errors.items())
    ]
    yield _table(("status", "meaning"), rows)


def _kinds(reply: Mapping[str, Any]) -> str:
    return " or ".join(
        f"{escape(kind)}, {_describe(body.get('schema', {}))}"
        for kind, body in reply.get("content", {}).items()
    )


def _type(name: str, schema: Mapping[str, Any]) -> Iterator[str]:
    yield f'<h3 id="{escape(name)}">{escape(name)}</h3>'
    yield f"<p>{escape(schema.get('description', ''))}</p>"
    fields = schema.get("properties")
    if fields is None:
        yield f"<p>{_describe(schema)}</p>"
        return
    required = schema.get("required", [])
    rows = [
        (
            f"<code>{escape(field)}</code>",
            "yes" if field in required else "no",
            _describe(each),
        )
        for field, each in fields.items()
    ]
    yield _table(("field", "required", "value"), rows)


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """Return a table of cells that are HTML."""
    lines = ["".join(f"<td>{cell}</td>" for cell in row) for row in rows]
    names = "".join(f"<th>{name}</th>" for name in head)
    return "\n".join(f"<tr>{cells}</tr>" for cells in (names, *lines)).join(
        ("<table>\n", "\n</table>")
    )


def _describe(schema: Mapping[str, Any]) -> str:
    """Return a JSON Schema in one sentence of HTML.

    Example:
        >>> _describe({"type": "array", "maxItems": 2, "items": {"type": "string", "minLength": 1}})
        'array, items ≤ 2, each string, characters ≥ 1'
    """
    if "$ref" in schema:
        name = escape(schema["$ref"].rpartition("/")[2])
        return f'<a href="#{name}">{name}</a>'
    kind = schema.get("type", "")
    parts = [" or ".join(kind) if isinstance(kind, list) else kind]
    parts += _bounds(schema)
    if "enum" in schema:
        parts.append("one of " + ", ".join(map(_code, schema["enum"])))
    if "pattern" in schema:
        parts.append(f"pattern {_code(schema['pattern'])}")
    if "anyOf" in schema:
        parts.append(" or ".join(dict.fromkeys(map(_describe, schema["anyOf"]))))
    if schema.get("items"):
        parts.append(f"each {_describe(schema['items'])}")
    if schema.get("default") is not None:
        parts.append(f"default {_code(schema['default'])}")
    if schema.get("description") and "properties" not in schema:
        parts.append(escape(schema["description"]))
    return ", ".join(filter(None, parts)) or "any JSON"


def _code(value: Any) -> str:
    return f"<code>{escape(str(value))}</code>"


def _bounds(schema: Mapping[str, Any]) -> Iterator[str]:
    for start, sign in (("min", "≥"), ("max", "≤")):
        for end, unit in _UNITS.items():
            if (bound := schema.get(start + end)) is not None:
                number = f"{bound:,}".removesuffix(".0")  # pydantic's are floats
                yield f"{unit} {sign} {number}".strip()
