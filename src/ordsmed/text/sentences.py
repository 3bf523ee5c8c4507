"""Sentence splitting: a text -> the offsets of its sentence ends, by rules for many languages, by lines, or by a
plug-in.

    "Dr. No left. He ran!\\nOK"  ->  [12, 20, 23]    a sentence is text[ends[i-1]:ends[i]], white space before it

The last end is the text's length without trailing white space. `rules` looks at a few dozen characters around each
stop, so its time is linear in the length of any text. The tables below hold the abbreviations.

Greek uses the semicolon as a question mark; the letters before it decide. Thai and Lao end sentences with a space only,
and use spaces inside sentences too. There a sentence has at least `PHRASE` characters and ends at a space that is not
followed by a conjunction, or after a particle that ends speech. Two short sentences may therefore stay together.
"""

import importlib
import re
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from ordsmed.base.errors import DataError, RecipeError, nearest
from ordsmed.text.document import Document

Splitter = Callable[[str], list[int]]
PHRASE = 40
NAMES = ("rules", "lines", "none", "blingfire")


def _words(table: str) -> frozenset[str]:
    return frozenset(table.split())


# Abbreviations before a name or a number: the stop after them never ends a sentence.
_LEADS = _words("""
    mr mrs ms mx dr drs prof messrs mme mmes mlle mgr msgr fr sr sra sres srta dra ing lic arq hr hrn fru frl frk adv
    cand siv mag dipl geb verw phd ph.d vs viz cf e.g i.e eg ie al approx aprox ca c.a circa resp esp incl excl ibid
    f.eks feks fks bl.a d.v.s dvs m.a.o m.h.t mht p.g.a pga i.h.t iht ifm i.f.m jf jfr evt ev tils tlf kl ang vedr
    kfr ift i.f.t o.s.v t.o.m t.ex s.k forts inkl exkl ekskl adr gl ggr st.f sml såk s.u i.s iflg hhv
    skt z.b zb u.a d.h dh u.u s.o vgl bzw bzgl sog ggf evtl bspw insb insg mio mrd z.t o.ä.u i.d.r i.a z.zt zzgl
    abzgl einschl str nr abb abs p.ex par.ex c.-à-d c.-à apr env bd p.ej pej vd vds ee dto p.es sigg dott avv
    esim vrt ks toim д.р г гор д с р о оз ул пл пер пос наб просп обл св тов гр т.е т.к т.н напр
    проф акад ген полк أ.د κ κα κος καθ βλ δηλ π.χ λ.χ αγ
""")

# The same for capitalized words only: in lower case they are words that end sentences in some language.
_TITLES = _words("Hon Sen Gen Col Maj Capt Cpt Cmdr Cdr Lt Sgt Cpl Adm Gov Supt Insp Rev St Dn Dña Av Avda")

# Abbreviations that may end a sentence: it ends only if the next word is in `_STARTERS`.
_CLOSERS_TOO = _words("""
    inc corp ltd co bros jr dept assn univ ave blvd rd mt ft dist est a.m p.m am pm etc et.c u.s u.k u.n u.s.a
    e.u d.c b.c a.d n.y l.a ph.d m.d b.a m.a jan feb apr jun jul aug sep sept oct nov dec okt des dez tue
    tues thu thur thurs a.s a/s gmbh s.a им см ред нач сер кон
""")

# Abbreviations that end a sentence if a capital follows, and do not if a small letter follows.
_TAILS = _words("""
    etc osv m.m mm m.v mv o.l ol o.a usw u.s.w o.ä u.ä f.f ff m.fl mfl jr sr usv osb enz mill milj mia stud a.c
    stk afd pers utg ehem urspr allg versch gegr gest jne yms tms puol ekr jkr f.kr e.kr т.д т.п т.о н.э
    руб коп долл тыс мин κ.λπ κλπ κ.τ.λ κτλ κ.ά κ.ο.κ
""")

# Abbreviations only before a number: the stop between the two ends no sentence.
_NUMBERS = _words("""
    no nos nr nrs num art arts fig figs eq sec sect ch chap vol vols p pp s ss pg pt § §§ abs bd kap pkt punkt
    rn rz abb tab núm núms n nº pag pág págs cap tit al ex ed v c d col op ver bl lnr gnr bnr kr eur usd sek dkk pr
    ca kl klo tlf tel puh mob stk max min mind jan feb mar apr jun jul aug sep sept oct okt nov dec des dez
    п пп ст т ч гл стр рис табл кв корп разд прил вып тел ном αρ σελ τηλ άρθρ ص ج م ت ط س رقم
""")

_MONTHS = _words("""
    januar februar mars april mai juni juli august september oktober november desember dezember december januari
    februari maj augusti jänner märz marts maart mei augustus tammikuuta jahrhundert jahrhunderts jahrhunderte
    weltkrieg weltkriegs weltkrieges bundesliga liga klasse platz kapitel auflage etage geburtstag feb febr jan
    mrz apr aug sept okt nov dez des stock stockwerk obergeschoss jahrestag lebensjahr semester quartal spieltag
    runde
""")

# Leads ("г. Тверь") that are units after a number and then end a sentence ("в 1990 г. Он ...").
_UNITS = _words("г р с д о")

_ERAS = frozenset({("v", "Chr"), ("n", "Chr"), ("av", "J"), ("apr", "J"), ("f", "Kr"), ("e", "Kr")})  # v. Chr.

# Verbs of speech: after a closing quotation mark they continue the sentence.
_SPEAKS = _words("قال قالت فقال فقالت سأل سألت أجاب أجابت صاح صاحت رد ردت هتف")
_SPEAKS_HAN = re.compile(r"(?:\w{0,4}?[说說问問喊叫笑]道|\w{0,4}?[说說问問喊]|\w{0,2}?(?:答道|回答))[，。：、！？,:]")

# Words that begin sentences: after an abbreviation or an initial they distinguish a new sentence from a name.
_STARTERS = _words("""
    The This That These Those He She It We They You There Their His Her Its Our My In On At As If When While
    After Before But And Or So For From With Without However Although Though Because Since What Who Where Why
    How Which Is Are Was Were Do Does Did Has Have Had Will Would Can Could Should May Not No Yes Now Then Here
    One Some Many Most All Each Every Also Please Thanks Both Another Such To Of By Det Den De Dette Disse Han
    Hun Vi Jeg Du Dere Som Når Da Men Og I På Etter Før Hvis Om Fra Med Uten Hva Hvem Hvor Hvorfor Er Var Har Så
    Der Nå Ikke Alle Noen Mange En Et Ett Ved Til Av Jag Ni Dom När Efter Innan Hur Vad Inte Hvad Hvornår Nu Die
    Das Ein Eine Sie Es Wir Ihr Ich Im Am Auf Nach Vor Wenn Als Aber Und Oder Doch Mit Ohne Für Bei Wer Wo Warum
    Wie Dies Diese Le La Les Un Une Il Elle Ils Elles Nous Vous Je Ce Cette Ces Dans Mais Ou Pour Avec Sans
    Quand Si Que Qui Où El Los Las Una Ella Ellos Esto Este Esta Pero Y Con Sin Cuando Por Para Lo Gli
    Hän Se Ne Tämä Nämä Mutta Ja Kun Jos Sitten Siellä Silloin Myös Niin Minä Sinä Oli Он Она Они Оно Мы Вы Я Ты Это Эти
    Этот Эта Но И А В На С По Потом Затем Тогда Так Там Когда Если Что Как Где Кто После Не Из За У Все Его Её Их
    Ο Η Το Οι Τα Στη Στην Στο Στον Αυτό Αυτή Αυτός Και Αλλά Δεν Είναι Με Από Για Θα Να Όταν Αν
""")

_OPEN = "\"'“”„‘‚«»‹›([{¿¡「『（《〈【*_"
_SHUT = "\"'”’‘»«›)]}」』）》〉】*_\u200e\u200f"
_CLOSING = f"[{re.escape(_SHUT)}]*+"
_DASHES = ("—", "–", "-")
_STOPS = ".!?…‼⁇⁈⁉。！？｡．।॥؟۔։።။"
_TIGHT = frozenset("。！？｡．।॥؟۔።။")  # stops that need no white space after them
_ASKS = ";\u037e"  # Greek question marks
# and Lao, without the repetition marks
_THAI = "\u0e01-\u0e2e\u0e30-\u0e45\u0e47-\u0e4e\u0e81-\u0eae\u0eb0-\u0ec4\u0ec8-\u0ece"
_CANDIDATE = re.compile(
    rf"\n|(?<=[{_THAI}]) ++(?=[{_THAI}])|((?<![{_STOPS}])[{_STOPS}]++[{_ASKS}]*+|[{_ASKS}]++)"  # 1 the stops
    # 2 closing marks; “ closes in German, and opens after a Chinese stop
    rf"({_CLOSING}(?:“(?<![。！？”]“){_CLOSING})?+(?:[ \u00a0\u202f][»)\]](?=\s|\Z))?+)"
    r"(?=(\s++)?+"  # 3 white space
    rf"((?:[-–—•·>#]++[ \u00a0]|[{re.escape(_OPEN)}—–])*+)(\w{{1,20}}+)?+)"  # 4 opening marks, 5 the next word
)
_SHORTENED = _LEADS | _CLOSERS_TOO | _TAILS | {title.lower() for title in _TITLES}
_WORD = re.compile(r"[^\s()\[\]{}\"'“”„«»‹›…–—,;:!?/|*_\u3000-\u9fff\uff00-\uff0f]*\Z")
_PAIR = re.compile(r"(?<!\w)(\w)\.[ \u00a0\u202f](\w)\Z")  # "z. B", "т. е"
_GREEK = re.compile("[\u0370-\u037d\u037f-\u03ff\u1f00-\u1fff]")
_CLOSES_SPEECH = re.compile("(?:ครับ|ค่ะ|คะ|จ้ะ|จ๊ะ|จ้า|ฮะ)\\Z")
_CONJUNCTION = re.compile(
    "และ|หรือ|ที่|ซึ่ง|อัน|เช่น|ได้แก่|โดย|ว่า|เพราะ|เพื่อ|เนื่อง|จน|ของ|ใน|จาก|ตาม|ด้วย|กับ|แก่|ต่อ|เป็น|คือ|ถึง|รวม|ตลอด|พร้อม|ไม่ว่า"
)
_BACK = 30  # characters looked at before a stop


def splitter(name: str) -> Splitter:
    """Return the splitter that a recipe names: `rules`, `lines`, `none`, `blingfire`, or `package.module:function`."""
    if name == "blingfire":
        return _blingfire()
    if ":" in name:
        return _plug(name)
    known: dict[str, Splitter] = {"rules": rules, "lines": by_lines, "none": whole}
    if name not in known:
        raise RecipeError("sentences", f"`{name}`", "a splitter, or package.module:function", nearest(name, NAMES))
    return known[name]


def whole(text: str) -> list[int]:
    """Return the end of the text: the whole text is one sentence."""
    end = len(text.rstrip())
    return [end] if end else []


def by_lines(text: str) -> list[int]:
    ends: list[int] = []
    at = 0
    for line in text.split("\n"):
        if length := len(line.rstrip()):
            ends.append(at + length)
        at += len(line) + 1
    return ends


BETWEEN, OTHERS = "between", "meta"  # keys of a presplit line in addition to `text` and `id`
WITHIN, UNTOLD = "within", "untold"  # keys in `between` that are not white space
TAKEN = frozenset(("text", "id", BETWEEN, OTHERS))  # metadata with these names is written under OTHERS
_CLOSED = re.compile(r"[。！？｡．][”’」』）》〉】]*\Z")


def record(document: Document) -> dict[str, Any]:
    """Return a document as an object whose text has one sentence per line, which `presplit` reads back."""
    lines, between, at = list[str](), defaultdict[str, list[int]](list), 0
    for number, sentence in enumerate(document.sentences()):
        line = sentence.lstrip()
        blank = sentence[: len(sentence) - len(line)]
        if blank != (joint(lines[-1]) if lines else ""):
            between[blank].append(number)
        if "\n" in line:
            between[WITHIN] += (at + len(blank) + match.start() for match in re.finditer("\n", line))
        at += len(sentence)
        lines.append(line.replace("\n", " "))
    if at < len(document.text):
        between[document.text[at:]].append(len(lines))
    if not document.ends:
        between[UNTOLD] = []
    reserved = {key: value for key, value in document.meta.items() if key in TAKEN}
    exact = {BETWEEN: between} if between or any(line != line.strip() or not line for line in lines) else {}
    other_metadata = {key: value for key, value in document.meta.items() if key not in TAKEN}
    return {
        "text": "\n".join(lines),
        "id": document.id,
        **other_metadata,
        **({OTHERS: reserved} if reserved else {}),
        **exact,
    }


def presplit(text: str, meta: dict[str, Any]) -> tuple[str, list[int]]:
    """Return the text and sentence ends of a document with one sentence per line. Remove the keys it uses from `meta`.

    `meta["between"]` maps the white space before sentences to their numbers: {"\\n": [3, 7], "": [9]} is a line end
    before the sentences 3 and 7, and nothing before 9. "within" lists offsets of line ends inside sentences. "untold"
    means that the text was not split. Other sentences are separated by a space, or by nothing after a Chinese or
    Japanese stop. Without that key the lines are trimmed and empty lines are dropped.
    """
    if isinstance(reserved := meta.get(OTHERS), dict) and reserved and TAKEN.issuperset(reserved):
        del meta[OTHERS]
    else:
        reserved = {}
    known = meta.pop(BETWEEN) if isinstance(meta.get(BETWEEN), dict) else None
    meta |= reserved
    lines = text.split("\n") if known is not None else [line for raw in text.split("\n") if (line := raw.strip())]
    return _united(lines, known or {})


def joint(line: str) -> str:
    """Return the default separator after a sentence: a space, or nothing after a stop that needs none."""
    return "" if _CLOSED.search(line[-8:]) else " "


def _united(lines: list[str], known: dict[str, list[int]]) -> tuple[str, list[int]]:
    try:
        blanks = {n: blank for blank, numbers in known.items() if blank not in (WITHIN, UNTOLD) for n in numbers}
        breaks = [int(n) for n in known.get(WITHIN, ())]
    except TypeError:
        problem = f"`{BETWEEN}` holds {str(known)[:60]}"
        remedy = "write it again"
        raise DataError("presplit text", problem, "white space and the numbers of sentences", remedy) from None
    pieces, ends, at = list[str](), list[int](), 0
    for number, line in enumerate(lines):
        blank = blanks.get(number, joint(lines[number - 1]) if number else "")
        pieces += (blank, line)
        at += len(blank) + len(line)
        ends.append(at)
    whole = "".join(pieces) + blanks.get(len(lines), "")
    starts = [0, *(n + 1 for n in breaks)]
    whole = "\n".join(whole[a:b] for a, b in zip(starts, [*breaks, len(whole)], strict=True))
    return whole, [] if UNTOLD in known else ends


def rules(text: str) -> list[int]:
    """Return sentence ends found by rules on stops, the characters around them, and line ends."""
    stop = len(text.rstrip())
    ends: list[int] = []
    last = 0  # where the current sentence begins
    for match in _CANDIDATE.finditer(text, 0, stop):
        end = match.end()
        if match[1] is None:
            end = match.start()
            if text[end] != "\n" and not _ends_thai(match, last):
                continue
            while end > last and text[end - 1].isspace():
                end -= 1
            if end > last:
                ends.append(end)
            last = match.end()
        elif _ends_here(match, last):
            ends.append(end)
            last = end
    if stop and (not ends or ends[-1] < stop):
        ends.append(stop)
    return ends


def _ends_here(match: re.Match[str], last: int) -> bool:
    stops, shut, blank, marks, word = match.groups()
    if stops[-1] in _ASKS:
        if blank is None or not _is_greek(match, last):
            return False
        stops = "?"
    if blank is None:
        return (stops[-1] in _TIGHT or (stops[-1] in "!?" and _amid_han(match))) and _ends_without_space(match)
    if word is None:
        # a symbol or the end follows, not a word
        at = match.end() + len(match[3]) + len(match[4])
        return match.string[at : at + 1] not in ",;:)]}" + _STOPS
    if marks[:1] in _DASHES and word[0].islower():
        return False
    if stops == ".":
        return _dot_ends(match, last, word) if not shut else not (word[0].islower() or word in _SPEAKS)
    if word[0].islower():
        return (stops[-1] in "!?" and not shut and "." not in stops) or word in ("http", "https", "www")
    return not shut or word not in _SPEAKS


def _ends_thai(match: re.Match[str], last: int) -> bool:
    """Return whether the sentence that begins at `last` ends at this space between two Thai or Lao letters."""
    text, at = match.string, match.start()
    if match.end() - at > 1 or _CLOSES_SPEECH.search(text, max(last, at - 4), at):
        return True
    return at - last >= PHRASE and not _CONJUNCTION.match(text, match.end())


def _is_greek(match: re.Match[str], last: int) -> bool:
    preceding = match.string[max(last, match.start() - _BACK) : match.start()]
    return "\u037e" in match[1] or 2 * len(_GREEK.findall(preceding)) > sum(map(str.isalpha, preceding))


def _amid_han(match: re.Match[str]) -> bool:
    text, start, end = match.string, match.start(), match.end()
    return "\u3040" <= text[start - 1 : start] <= "\u9fff" and "\u3040" <= text[end : end + 1] <= "\u9fff"


def _ends_without_space(match: re.Match[str]) -> bool:
    """Return whether a stop that needs no space ends the sentence: not before a comma or a verb of speech."""
    text, start, end = match.string, match.start(), match.end()
    following = text[end : end + 1]
    if match[1] == "．" and text[start - 1 : start].isdigit():
        return False
    continues = match[2] and ("ぁ" <= following <= "ゟ" or _SPEAKS_HAN.match(text, end))
    return following not in "、，,；;：:" and not continues


def _dot_ends(match: re.Match[str], last: int, following: str) -> bool:
    """Return whether a full stop between two words ends the sentence, rather than an abbreviation or an ordinal."""
    text, at = match.string, match.start()
    preceding = text[max(last, at - _BACK) : at]
    word = preceding[preceding.rfind(" ") + 1 :]
    # a fast check for the common case, in which the pattern would find the same word
    if not (word.isalpha() and word[0] < "\u3000"):
        word = _WORD.search(word)[0]  # type: ignore[index]
    low = word.lower()
    if "\u0e01" <= word[-1:] <= "\u0e4e":  # Thai uses the stop only in abbreviations: พ.ศ. 2550
        return len(word) - word.rfind(".") > 5 and following[0] > "9"
    if len(low) == 1 and (pair := _PAIR.search(text, max(last, at - 5), at)):
        low = f"{pair[1]}.{pair[2]}".lower()
    if following[0].isdigit():
        street = low.endswith(("str", "gt"))
        return not (low in _NUMBERS or low in _LEADS or street or (low in _CLOSERS_TOO and len(following) < 4))
    if following[0].islower():
        return len(low) > 3 and low.isalpha() and low not in _SHORTENED
    if low in _LEADS or word in _TITLES:
        return low in _UNITS and text[at - 2 : at - 1].isspace() and text[at - 3 : at - 2].isdigit()
    if low in _TAILS:
        return True
    if low in _CLOSERS_TOO or _dotted(word):
        return following in _STARTERS
    if len(word) == 1 and word.isalpha():
        if len(following) == 1 and text[match.end(5) : match.end(5) + 1] == ".":  # J. R. Marsh, z. B., a. C.
            return False
        return (word.islower() and (word, following) not in _ERAS) or following in _STARTERS
    if word.isdigit() and len(word) < 3:
        return not (following.lower() in _MONTHS or (at - last < 9 and not text[last : at - len(word)].strip(" \n*#-")))
    return (word, following) not in _ERAS


def _dotted(word: str) -> bool:
    """Return whether a word is letters with stops between them, as in `U.S`: not a number, a date or a file name."""
    return "." in word and not word[-1].isdigit() and max(map(len, word.split("."))) <= 3


def _blingfire() -> Splitter:
    try:
        import blingfire
    except ImportError:
        problem = "`blingfire` is not installed"
        raise RecipeError("sentences", problem, "", "`pip install blingfire`, or use `rules`") from None

    def split(text: str) -> list[int]:
        if not (stop := whole(text)):
            return []
        ends = {end for _, end in blingfire.text_to_sentences_and_offsets(text)[1]}
        return sorted(end for end in ends if 0 < end < stop[0]) + stop

    return split


def _plug(name: str) -> Splitter:
    """Return a function of outside code as a splitter that checks its results."""
    module, _, attribute = name.partition(":")
    try:
        function = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        remedy = "put its folder on PYTHONPATH or install it"
        raise RecipeError("sentences", f"`{name}`: {error}", "package.module:function", remedy) from None

    def split(text: str) -> list[int]:
        ends = list(function(text))
        steps = zip([0, *ends], ends, strict=False)
        if (ends[-1:] or [0]) != [len(text.rstrip())] or not all(isinstance(b, int) and a < b for a, b in steps):
            problem = f"returned {str(ends)[:60]}"
            raise DataError(name, problem, f"rising end offsets, the last {len(text.rstrip())}", "fix the function")
        return ends

    return split
