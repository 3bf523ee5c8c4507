"""Convert wikitext to prose: the passages of a page, one paragraph per line.

    wikitext -> comments and tags -> templates and tables -> links -> lines that are paragraphs -> tidying up

Every stage is one scan, so its time grows linearly with any page. Brackets that are never closed remove at most the
rest of their line. The gaps left by dropped formulas, notes and templates are tidied up:
"Oslo ({{IPA|..}}; founded 1048)" -> "Oslo (founded 1048)".
"""

import html
import re
from collections import Counter
from collections.abc import Collection, Iterator
from functools import cache

from ordsmed.text.markup.templates import BREAK, GONE, line_end, names_of, without_templates


def prose(wikitext: str, unshown: Collection[str] = ()) -> str:
    """Return the paragraphs of a page, one per line, without links into the `unshown` namespaces (in lower case)."""
    text = wikitext.replace(GONE, "").replace("\r", "")
    text = _without_tags(_POWER.sub(r"\g<0>^", text))
    text = _CONVERTED.sub(_converted, text) if "-{" in text else text
    text = without_templates("\n" + "".join(filter(None, _SIMPLE_LINK.split(text))))
    text = _without_links(_OUTER_LINK.sub(r"\1", text), UNSHOWN.union(unshown))
    return _tidied("\n".join(_paragraphs(text)))


def is_redirect(wikitext: str) -> bool:
    """Return whether a page is #REDIRECT [[Target]], in any language."""
    return _REDIRECT.match(wikitext) is not None


def is_disambiguation(wikitext: str) -> bool:
    """Return whether a page lists the meanings of its title, by templates of the larger Wikipedias."""
    return _DISAMBIGUATION.search(wikitext) is not None


def decoded(text: str) -> str:
    """Replace HTML entities by their characters, twice for text that was escaped twice (&amp;nbsp;)."""
    return _ENTITY.sub(_character, _ENTITY.sub(_character, text)) if "&" in text else text


_REDIRECT = re.compile(r"\s*+#[^\W\d]++\s*+:?\s*+\[\[")
_DISAMBIGUATION = re.compile(
    r"\{\{\s*+(?:disambig(?:uation)?|disamb|dab|hndis|geodis|begriffsklärung|homonymie|peker|förgrening|flertydig|dp"
    r"|неоднозначность|многозначность|багатозначність|desambiguación|desambiguação|disambigua|ujednoznacznienie"
    r"|täsmennyssivu|rozcestník|توضيح|ابهام‌زدایی|消歧义|消歧義"
    r"|曖昧さ回避|aimai|동음이의|định hướng|anlam ayrımı|פירושונים)"
    r"\s*+[|}]|__DISAMBIG__",
    re.IGNORECASE,
)


_ENTITY = re.compile(r"&(?:#\d{1,7}|#[xX][0-9a-fA-F]{1,6}|[a-zA-Z][a-zA-Z0-9]{1,31});")


def _character(entity: re.Match[str]) -> str:
    return html.unescape(entity[0])


# ---- comments and tags

_TAG = re.compile(r"<(?:!--|(/?)([a-zA-Z][a-zA-Z0-9]*+)([^<>]*+)>)")
_CONTAINERS = names_of(  # elements dropped with their content
    "categorytree ce chem dl gallery graph h1 h2 h3 h4 h5 h6 hiero imagemap includeonly indicator inputbox mapframe"
    " maplink math nowiki ol pre ref references score script source style syntaxhighlight table templatedata timeline"
    " ul"
)
_NESTING = names_of("dl ol table ul")
_BLOCKS = names_of(  # elements that end a paragraph
    "blockquote categorytree center dd div dl dt gallery graph h1 h2 h3 h4 h5 h6 hr imagemap inputbox li ol p poem pre"
    " references source syntaxhighlight table td th timeline tr ul"
)
_INSTEAD = dict.fromkeys(_BLOCKS, BREAK) | {"br": " ", "section": GONE}
_INLINE = names_of(
    "abbr b bdi bdo big cite code data del dfn em font i ins kbd langconvert mark noinclude nobr nobreak onlyinclude q"
    " rb rp rt rtc ruby s samp small span strike strong sub sup templatestyles time tt u var wbr"
)
_TEX = re.compile(r"[\\^_{}&]")
_POWER = re.compile(  # 10<sup>5</sup>; the pattern begins with letters, for which the search is fast
    r"up(?:(?<=[\d)]<[sS]up)>|(?<=[\d)]\{\{[sS]up)\|)(?=(?:[-+−–]|&(?:minus|\#8722);|\{\{minus\}\})?\d++(?:</|\}\}))"
)
_LITERALLY = str.maketrans({sign: f"&#{ord(sign)};" for sign in "!#'*-/:<=>[]_{|}~"})


def _without_tags(text: str) -> str:
    parts: list[str] = []
    at, unclosed = 0, set[str]()
    while tag := _TAG.search(text, at):
        parts.append(text[at : tag.start()])
        at = tag.end()
        if tag[2] is None:
            end = text.find("-->", at)
            at = len(text) if end < 0 else end + len("-->")
        elif (name := tag[2].lower()) in _CONTAINERS:
            shown, at = _contained(name, tag, text, unclosed)
            parts.append(shown)
        elif name not in _INLINE:
            parts.append(_INSTEAD.get(name, tag[0]))
    return "".join([*parts, text[at:]])


def _contained(name: str, tag: re.Match[str], text: str, unclosed: set[str]) -> tuple[str, int]:
    """Return the replacement of an element and its end offset. An element that is never closed ends with its line."""
    instead = _INSTEAD.get(name, GONE)
    if tag[1] or tag[3].endswith("/"):
        return instead, tag.end()
    if name in unclosed or not (closing := _closing(name, text, tag.end())):
        unclosed.add(name)
        return instead, line_end(text, tag.end())
    content = text[tag.end() : closing.start()]
    if name == "nowiki" or (name in ("syntaxhighlight", "source") and "inline" in tag[3]):
        return content.translate(_LITERALLY), closing.end()
    if name in ("math", "ce", "chem") and not _TEX.search(content):
        return content.strip(), closing.end()
    return instead, closing.end()


def _closing(name: str, text: str, at: int) -> re.Match[str] | None:
    depth = 1
    for tag in _tags_of(name).finditer(text, at):
        if tag[1]:
            depth -= 1
        elif name in _NESTING:
            depth += 1
        if not depth:
            return tag
    return None


@cache
def _tags_of(name: str) -> re.Pattern[str]:
    return re.compile(rf"<(/?){name}\b[^<>]*+>", re.IGNORECASE)


# ---- links

# Lower-case names of the namespaces of files, media and categories; a dump adds the names of its site.
UNSHOWN = names_of(
    """
    file image media category datei bild medium kategorie fil bilde billede kategori bestand afbeelding categorie
    fichier catégorie archivo imagen categoría immagine ficheiro arquivo imagem categoria plik grafika kategoria файл
    изображение категория зображення категорія soubor súbor kategória tiedosto kuva luokka fájl kép dosya resim αρχείο
    εικόνα κατηγορία קובץ תמונה קטגוריה ملف صورة تصنيف پرونده تصویر رده चित्र श्रेणी ไฟล์ ภาพ หมวดหมู่
    文件 檔案 档案 图像 圖像 分类 分類 ファイル 画像 カテゴリ 파일 그림 분류 berkas gambar fitxer imatge fișier imagine
    картинка датотека слика категорија datoteka slika kategorija mynd flokkur pilt kategooria vaizdas attēls dosiero
    kategorio fitxategi
    """
) | {"tập tin", "hình", "thể loại"}
_SIMPLE_LINK = re.compile(r"\[\[(?:[^\[\]|:\n]*+\|([^\[\]|]++)|([^\[\]|:\n]++))\]\]")
_OUTER_LINK = re.compile(r"\[(?:mailto:|(?:https?:|ftp:|irc:)?//)[^\s\[\]<>]*+[ \t]*+([^\[\]\n]*+)\]")
_LINK_MARK = re.compile(r"\[\[|\]\]|\|")
_NAMESPACE = re.compile(r"\[\[(:?)\s*+([^\[\]|:\n]{1,60}+):")
_LANGUAGE = re.compile(r"(?!(?:doi|mw|rfc)\Z)(?:[a-z]{2,3}|simple|[a-z]{2,4}-[a-z-]{2,12})\Z")
_FLAGS = re.compile(r"[A-Za-z;\s-]*+\Z")  # flags of a conversion, or the language variants it applies to
_CONVERTED = re.compile(r"-\{([^{}]*+)\}-")


def _without_links(text: str, unshown: frozenset[str]) -> str:
    parts: list[str] = []
    at = 0
    for start, stop, instead in sorted(_cuts(text, unshown)):
        if start >= at:
            parts += (text[at:start], instead)
        at = max(at, stop)
    return "".join([*parts, text[at:]])


def _cuts(text: str, unshown: frozenset[str]) -> Iterator[tuple[int, int, str]]:
    waiting: list[tuple[int, int]] = []  # start, first bar (0: none yet)
    for mark in _LINK_MARK.finditer(text):
        if mark[0] == "[[":
            waiting.append((mark.start(), 0))
        elif waiting and mark[0] == "|":
            waiting[-1] = (waiting[-1][0], waiting[-1][1] or mark.start())
        elif waiting:
            begin, bar = waiting.pop()
            yield from _link(text, begin, bar, mark.start(), unshown)
    at = 0
    for begin, _ in waiting:
        if begin >= at:
            at = line_end(text, begin) if _is_unshown(text, begin, unshown) else begin + 2
            yield begin, at, GONE


def _link(text: str, begin: int, bar: int, end: int, unshown: frozenset[str]) -> Iterator[tuple[int, int, str]]:
    if _is_unshown(text, begin, unshown):
        yield begin, end + 2, GONE
    elif bar == end - 1:  # [[Help:Oslo (town)|]] shows Oslo
        yield begin, end + 2, re.sub(r"\s*\(.*", "", text[begin + 2 : bar].split(":")[-1])
    else:
        yield begin, bar + 1 if bar else begin + 2 + text.startswith(":", begin + 2), ""
        yield end, end + 2, ""


def _is_unshown(text: str, begin: int, unshown: frozenset[str]) -> bool:
    named = _NAMESPACE.match(text, begin)
    if not named or named[1]:
        return False
    name = named[2].strip().replace("_", " ")
    return name.lower() in unshown or _LANGUAGE.match(name) is not None


def _converted(match: re.Match[str]) -> str:
    """Return the first variant of a conversion of Chinese and other languages: -{zh-hans:one; zh-hant:other}-."""
    flags, bar, body = match[1].partition("|")
    if not bar or not _FLAGS.match(flags):
        flags, body = "", match[1]
    if flags.strip() in ("H", "T", "-"):
        return ""
    first = body.split(";")[0]
    return first.partition(":")[2].strip() if re.match(r"\s*[a-z]{2,3}(?:-[a-z]+)?\s*:", first) else body


# ---- lines

_NO_PROSE = (*"*#:;|=! ", "----")


def _paragraphs(text: str) -> Iterator[str]:
    """Yield paragraphs: runs of consecutive lines except headings, lists, code and remains of tables."""
    lines: list[str] = []
    for line in text.split("\n"):
        if line.strip(" \t\x01") and not line.startswith(_NO_PROSE):
            lines.append(_without_quotes(line) if "''" in line else line)
        elif lines:
            yield " ".join(lines)
            lines = []
    if lines:
        yield " ".join(lines)


def _without_quotes(line: str) -> str:
    """Remove bold and italic marks, but keep an apostrophe before them, as in L'''Odissea'' (MediaWiki's rule)."""
    if "'''" in line:
        runs = Counter(min(len(run), 5) for run in _QUOTES.findall(line))
        if (runs[3] + runs[4] + runs[5]) % 2 and (runs[2] + runs[5]) % 2:
            elided = _ELIDED_LETTER if _ELIDED_LETTER.search(line) else _ELIDED
            line = elided.sub("'", line, count=1)
    return _BOLD.sub("", line)


_QUOTES = re.compile("'{2,}")
_ELIDED = re.compile(r"(?<=\w)'''(?!')")
_ELIDED_LETTER = re.compile(r"(?<= \w)'''(?!')")  # preferred: after a word of one letter
_BOLD = re.compile(r"'''''|'''?")


# ---- tidying up

_STRAY = re.compile(r"\[\[|\]\]|\{\{|\}\}|\{\||\|\}")
_SWITCH = re.compile(r"__[^\W\d]{3,40}?__")
_HOLLOW = (re.compile(r"(\()([^()\n\x01]*+\x01[^()\n]*+)(\))"), re.compile(r"(（)([^（）\n\x01]*+\x01[^（）\n]*+)(）)"))
_SEPARATOR = re.compile(r"([,;،؛，；、])")
_TWICE = re.compile(r"([,;،؛])(?:\x01[\x01 ]*+\1)+")
_GAP = re.compile(r"\x01[\x01 ]*+([.,;:!?،؛؟)\]])?")
_BLANK = re.compile("[\t\x0b\x0c\xa0\u1680\u2000-\u200a\u202f\u205f\u3000]")
_BLANKS = re.compile("  +")
_WORD = re.compile(r"[^\W_]")


def _tidied(text: str) -> str:
    """Remove magic words, stray brackets, entities and gaps, and lines without a letter or digit."""
    if "__" in text:
        text = _SWITCH.sub(lambda word: "" if word[0] == word[0].upper() else word[0], text)
    text = _BLANK.sub(" ", decoded(_STRAY.sub("", text)).replace("\xad", ""))
    for brackets in _HOLLOW:
        text = brackets.sub(_filled, text)
    text = _TWICE.sub(r"\1", text.replace(" " + GONE, GONE + " "))
    text = _GAP.sub(lambda gap: gap[1] or " " * (" " in gap[0]), text)
    return "\n".join(line.strip() for line in _BLANKS.sub(" ", text).split("\n") if _WORD.search(line))


def _filled(brackets: re.Match[str]) -> str:
    """Return brackets without the empty parts that dropped text left, and their separators: (; born 1900)."""
    parts = _SEPARATOR.split(brackets[2])
    filled = [pair for pair in zip(["", *parts[1::2]], parts[::2], strict=True) if _WORD.search(pair[1])]
    if not filled:
        return GONE
    inside = filled[0][1] + "".join(sign + part for sign, part in filled[1:])
    return brackets[1] + inside.strip(" \x01") + brackets[3]
