"""Expand wikitext templates to the text they show, in the English Wikipedia and some others; remove tables.

{{convert|5|km|mi}} -> 5 km    {{lang|de|Volk}} -> Volk    {{infobox ...}}, {| ... |} -> nothing
"""

import itertools
import re
from collections.abc import Callable

Arguments = dict[str, str]
Rule = Callable[[Arguments], str]

DEEPEST = 40  # deepest nesting of templates; deeper ones are dropped
GONE = "\x01"  # marks where something was dropped; it cannot occur in XML
BREAK = "\n\n" + GONE


def names_of(table: str) -> frozenset[str]:
    return frozenset(table.split())


def line_end(text: str, at: int) -> int:
    end = text.find("\n", at)
    return len(text) if end < 0 else end


_BRACES = re.compile(r"\{\{|\}\}|\n[ \t:*#;]*+(?:\{\||\|\}(?!\}))")
_NAME = re.compile(r"\{\{\s*+([^|:{}\[\]<>\n\x01]*+)\s*+(?:[|:]|(?=\}))")
_NAMED = re.compile(r"\s*+([\w-]{1,20}+)\s*+=(?!=)")


def without_templates(text: str) -> str:
    """Remove tables, and replace templates by the text that `_RULES` gives."""
    opened, closed = _paired(text)
    opened.reverse()
    return _unfolded(text, 0, len(text), opened, closed)


def _paired(text: str) -> tuple[list[int], dict[int, int]]:
    """Return the start offsets of templates and tables, and a map from start to end for those that are closed."""
    opened: list[int] = []
    closed: dict[int, int] = {}
    waiting: list[tuple[int, bool]] = []  # start offset, and whether it is a table
    tables = 0
    for brace in _BRACES.finditer(text):
        mark = brace[0]
        if mark == "{{" or mark[-1] == "|":
            opened.append(brace.start())
            waiting.append((brace.start(), mark != "{{"))
            tables += mark != "{{"
        elif mark == "}}":
            if waiting and not waiting[-1][1]:
                closed[waiting.pop()[0]] = brace.end()
        elif tables:
            while not waiting[-1][1]:  # templates that were left open in a cell
                waiting.pop()
            closed[waiting.pop()[0]] = brace.end()
            tables -= 1
    return opened, closed


def _unfolded(text: str, at: int, stop: int, opened: list[int], closed: dict[int, int], depth: int = 0) -> str:
    """Return text[at:stop] with templates and tables replaced. `opened` is the stack of their start offsets."""
    parts: list[str] = []
    while opened and opened[-1] < stop:
        begin = opened.pop()
        if begin < at:  # inside a dropped part
            continue
        parts.append(text[at:begin])
        at = closed.get(begin, 0) or min(stop, line_end(text, begin + 1))
        name = _NAME.match(text, begin, at)
        rule = _rule(name[1]) if name and begin in closed and depth < DEEPEST else None
        if name and rule:
            parts.append(rule(_arguments(_unfolded(text, name.end(), at - 2, opened, closed, depth + 1))))
        else:
            parts.append(GONE if text[begin] == "{" else BREAK)
    parts.append(text[at:stop])
    return "".join(parts)


def _arguments(body: str) -> Arguments:
    arguments: Arguments = {}
    number = 0
    for argument in body.split("|"):
        if named := _NAMED.match(argument):
            arguments[named[1]] = argument[named.end() :].strip()
        else:
            number += 1
            arguments[str(number)] = argument.strip()
    return arguments


def _numbered(arguments: Arguments) -> list[str]:
    numbers = itertools.takewhile(arguments.__contains__, map(str, itertools.count(1)))
    return [arguments[number] for number in numbers if arguments[number]]


def _rule(name: str) -> Rule | None:
    name = name.strip().replace("_", " ").lower()
    return _RULES.get(name) or (_first if name.startswith("lang-") else None)


def _first(arguments: Arguments) -> str:
    return arguments.get("1") or arguments.get("text") or GONE


def _behind(before: str) -> Rule:
    return lambda arguments: before + arguments.get("1", "")


def _sign(shown: str) -> Rule:
    return lambda arguments: shown


def _convert(arguments: Arguments) -> str:
    """Return the first measure of {{convert}}: 5|km -> 5 km, 5|to|10|km -> 5 to 10 km, 6|ft|2|in -> 6 ft 2 in."""
    numbered = _numbered(arguments)
    unit = 1
    while numbered[unit : unit + 1] and numbered[unit] in _BETWEEN:
        unit += 2
    last = unit
    while (
        len(numbered) > last + 2
        and numbered[last + 1][0].isdigit()
        and f"{numbered[last]}|{numbered[last + 2]}" in _AND_LESSER
    ):
        last += 2
    numbers = "".join(
        n if n in ("-", "–") else f" {n.removesuffix('(-)')} " if n in _BETWEEN else n for n in numbered[:unit]
    )
    return " ".join([numbers, *(_UNITS.get(name, name) for name in numbered[unit : last + 1])])


def _fraction(arguments: Arguments) -> str:
    """Return a fraction: 2 -> 1/2, 1|2 -> 1/2, 3|1|2 -> 3 1/2."""
    numbered = _numbered(arguments)[:3]
    if not numbered:
        return GONE
    *whole, above, below = numbered if len(numbered) > 1 else ["1", *numbered]
    return " ".join([*whole, f"{above}/{below}"])


def _value(arguments: Arguments) -> str:
    """Return a value with its uncertainty, power and unit: 12|3|e=5|u=km -> 12 ± 3 × 10^5 km."""
    number = " ± ".join(_numbered(arguments)[:2])
    power = f" × 10^{arguments['e']}" if "e" in arguments else ""
    return f"{number}{power} {arguments.get('u') or arguments.get('ul') or ''}".strip()


_BETWEEN = names_of("- – to to(-) and and(-) or by x × +/- ± bis und à et og til до и")
_AND_LESSER = names_of(
    "mi|furlong mi|ch mi|chain mi|yd mi|ft furlong|ch furlong|yd ch|yd ch|ft yd|ft yd|in ft|in foot|in"
    " LT|cwt LT|lb ST|lb cwt|qtr cwt|lb qtr|lb st|lb lb|oz"
)
_UNITS = {
    "C": "°C",
    "F": "°F",
    "sqmi": "sq mi",
    "sqkm": "km²",
    "km2": "km²",
    "m2": "m²",
    "cm2": "cm²",
    "m3": "m³",
    "km3": "km³",
    "cm3": "cm³",
    "sqft": "sq ft",
    "cuft": "cu ft",
    "kg/m3": "kg/m³",
}

# The text that templates show, in the English Wikipedia and some others. Templates not listed show nothing.
_NAMES: dict[str, Rule] = {
    "nowrap nobr nobreak small smaller large larger big sub sup abbr abbrlink tooltip hover sic unicode math"
    " mvar mono code key em strong underline smallcaps sc nihongo nihongo2 ill interlanguage_link vanchor"
    " visible_anchor angbr flag flagcountry linktext not_a_typo proper_name text noitalic script polytonic formatnum"
    " num нп нп3 нп5 не_переведено lj lien nts ens citation": _first,
    "lang langx langue språk color colour font_color color_text": lambda a: a.get("2") or a.get("text") or GONE,
    "transl transliteration": lambda a: (_numbered(a) or [GONE])[-1],
    "chem chem2 s": lambda a: "".join(_numbered(a)),
    "date dato unité unit nombre ship": lambda a: " ".join(_numbered(a)[:3]),
    "quote quotation cquote blockquote bquote zitat sitat citat цитата": lambda a: BREAK + _first(a) + BREAK,
    "convert cvt": _convert,
    "frac fraction sfrac": _fraction,
    "val": _value,
    "e x10^ ×10^": lambda a: f" × 10^{a['1']}" if a.get("1") else GONE,  # 23 -> × 10^23
    "as_of": lambda a: ("as of " if "lc" in a else "As of ") + a.get("1", ""),
    **{name: _behind(f"{name} ") for name in sorted(names_of("USS HMS HMAS HMCS RMS SS SMS MV USCGC"))},
    "circa c. ca ca. cca": _behind("c. "),
    "floruit fl. fl": _behind("fl. "),
    "$ us$ usd": _behind("$"),
    "£ gbp": _behind("£"),
    "€ eur": _behind("€"),
    "nbsp space spaces thinsp thin_space hairsp zwsp": _sign(" "),
    "ndash endash en_dash": _sign("–"),
    "snd spnd snds spaced_ndash": _sign(" – "),
    "minus −": _sign("−"),
    "mdash emdash em_dash": _sign("—"),
    "· middot dot": _sign(" · "),
    "• bull": _sign(" • "),
    "'": _sign("'"),
    "'s": _sign("'s"),
    "=": _sign("="),
    "! pipe": _sign("|"),
}
_RULES = {name.replace("_", " ").lower(): rule for names, rule in _NAMES.items() for name in names.split()}
