"""Options of functions that read and write JSON, CSV and XML: only those that change how a text is read.

Others name files (`rowValidationXSDPath`), or how much memory a reader takes (`maxColumns`).
"""

from __future__ import annotations

from sqlglot import exp

from headrace.language.sql.report import Fault
from headrace.language.suggest import nearest
from headrace.language.words import words

__all__ = ["TEXT_OPTIONS", "TEXT_OPTIONS_OF", "check_options"]

# A schema deeper than this overflows the stack of the one who reads it.
MOST_LEVELS = 50

_COMMON = "mode columnNameOfCorruptRecord dateFormat timestampFormat timestampNTZFormat locale timeZone"
_JSON = f"""{_COMMON} primitivesAsString prefersDecimal allowComments allowUnquotedFieldNames allowSingleQuotes
    allowNumericLeadingZeros allowNonNumericNumbers allowBackslashEscapingAnyCharacter allowUnquotedControlChars
    dropFieldIfAllNull ignoreNullFields pretty writeNonAsciiCharacterAsCodePoint"""
_CSV = f"""{_COMMON} sep delimiter quote escape comment ignoreLeadingWhiteSpace ignoreTrailingWhiteSpace nullValue
    nanValue positiveInf negativeInf emptyValue quoteAll escapeQuotes charToEscapeQuoteEscaping unescapedQuoteHandling
    enableDateTimeParsingFallback"""
_XML = f"""{_COMMON} attributePrefix valueTag excludeAttribute ignoreSurroundingSpaces ignoreNamespace nullValue
    wildcardColName arrayElementName"""
# Options that change how a text is read or written, in small letters.
TEXT_OPTIONS = frozenset(word.lower() for text in (_JSON, _CSV, _XML) for word in words(text))
# The same as people write them, by the format of the text.
TEXT_OPTIONS_OF = {name: tuple(sorted(words(text))) for name, text in (("json", _JSON), ("csv", _CSV), ("xml", _XML))}
# Call -> the place of its options, and their names.
_ALLOWED = {
    name: (place, words(text))
    for place, text, names in (
        (2, _JSON, "from_json"), (1, _JSON, "to_json schema_of_json"), (2, _CSV, "from_csv"),
        (1, _CSV, "to_csv schema_of_csv"), (2, _XML, "from_xml"),
    )
    for name in names.split()
}  # fmt: skip
_WITH_SCHEMA = words("from_json from_csv from_xml")


def check_options(node: exp.Expr) -> None:
    """Raise Fault for the first call whose options or schema are not written in the query, or not on the list."""
    for call in node.find_all(exp.Anonymous):
        name = call.name.lower()
        if name in _WITH_SCHEMA and len(call.expressions) > 1:
            _check_schema(name, call.expressions[1])
        if name in _ALLOWED and len(call.expressions) > _ALLOWED[name][0]:
            _check_map(name, call.expressions[_ALLOWED[name][0]])


def _check_schema(name: str, node: exp.Expr) -> None:
    text = node.this if isinstance(node, exp.Literal) and node.is_string else None
    if text is None:
        raise Fault(f"the schema of {name} must be written in the query", node, "write it, such as 'a INT, b STRING'")
    if text.count("<") + text.count("{") > MOST_LEVELS:
        raise Fault(f"the schema of {name} has more than {MOST_LEVELS} levels", node, "write it flatter")


def _check_map(name: str, node: exp.Expr) -> None:
    pairs = node.expressions if isinstance(node, exp.Anonymous) and node.name.lower() == "map" else None
    if pairs is None or len(pairs) % 2 or not all(isinstance(p, exp.Literal) and p.is_string for p in pairs):
        raise Fault(f"options of {name} must be written in the query", node, "write map('mode', 'FAILFAST')")
    allowed = _ALLOWED[name][1]
    for key in pairs[::2]:
        if key.this.lower() not in (word.lower() for word in allowed):
            raise Fault(f"{name} does not take the option '{key.this}' here", key, nearest(key.this, sorted(allowed)))
