"""Wikitext to prose: what is shown stays, what is markup goes, and nothing hostile takes long."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ordsmed.text.markup.templates import _RULES
from ordsmed.text.markup.wikitext import decoded, is_disambiguation, is_redirect, prose


@pytest.mark.parametrize(
    ("wikitext", "shown"),
    [
        ("'''Ula''' is a ''small'' [[town]].", "Ula is a small town."),
        ("Two [[boat]]s, [[Ula (town)|Ula]] and [[Ula (river)|]].", "Two boats, Ula and Ula."),
        ("See [[:Category:Boats]] or [[2001: A Boat]].", "See Category:Boats or 2001: A Boat."),
        ("A [[a|b [[c]] d]] e.", "A b c d e."),
        ("[https://a.org its page], [https://a.org] and [//b.org b].", "its page, and b."),
        ("A[[Category:Towns]] b [[de:Ula]][[zh-min-nan:Ula]].", "A b."),
        ("[[wikt:boat|boat]] [[fr:Bateau|bateau]]s [[doi:1/2|here]]", "boat s here"),
        ("[[File:a.jpg|thumb|A [[boat]] {{x|[[y]]}} [http://a b]]]After.", "After."),
        ("One\n[[Image:a.jpg|left|a\n* b]]\nTwo", "One\nTwo"),
        ("One<ref>Not ''this''</ref> two<ref name=a/>.<ref name='b'>{{cite|a}}</ref>", "One two."),
        ("One <!-- not [[ this --> two.<!-- nor {{ this", "One two."),
        ("Text{{citation needed|date=May}} , more {{unknown}}.", "Text, more."),
        ("{{Infobox\n| a = {{b|c}}\n| d = {|\n| e\n|}\n}}\nText", "Text"),
        ("Before\n{| class=x\n! a\n|-\n| b || {{c}}\n{|\n| inner\n|}\n|}\nAfter", "Before\nAfter"),
        ("== A ==\nOne.\n=== B ===<!-- c -->\n* x\n# y\n: z\n; q\n----\nTwo.", "One.\nTwo."),
        ("One line\nand its next.\n\nTwo.", "One line and its next.\nTwo."),
        ("One\n code = 1\nTwo", "One\nTwo"),
        ("L'''Odissea'' di '''lui'''.", "L'Odissea di lui."),
        ("''''a''''", "'a'"),
        ("un'''altra volta", "unaltra volta"),  # bold that nobody closes, and no italics: no apostrophe
        ("un'''altra''' ''volta", "unaltra volta"),
        ("l'''un'' e ''''x'''", "l'un e 'x"),  # four are an apostrophe and three
        ("un'''a ''''b'' c", "una 'b c"),
        ("'''''Uno'' e due''' l'''altro'' fine", "Uno e due l'altro fine"),  # five are both; one letter goes first
        ("'''''Uno''' l'''altro", "Uno l'altro"),
        ("''Uno'' dell'''a'' dell'''b''' c", "Uno dell'a dellb c"),  # without such a letter the first
        ("A&nbsp;b &amp;nbsp;c &amp;amp; AT&T&mdash;d &lt;x&gt;", "A b c & AT&T—d <x>"),
        ("&#99999999999999; &#x41;&#65;&nosuch;", "&#99999999999999; AA&nosuch;"),
        ("__TOC__ One __init__ __ОГЛАВЛЕНИЕ__", "One __init__"),
        ("Say <nowiki>[[a]] '' {{b}}</nowiki>", "Say [[a]] '' {{b}}"),
        ("10<sup>5</sup>, (a)<sup>&minus;2</sup>, 10{{sup|{{minus}}3}}", "10^5, (a)^−2, 10^−3"),
        ("5<sup>th</sup> 2<sup>n</sup> <sup>18</sup>O {{nowrap|10<sup>5}}", "5th 2n 18O 10^5"),
        ("x<sub>1</sub><sup>2</sup> <small>y</small><br/>z <code>a()</code>", "x12 y z a()"),
        ("Where <math>n</math> is <math>\\frac{a}{b}</math>.", "Where n is."),
        ("A <pre>no</pre> b <syntaxhighlight lang=c>no</syntaxhighlight> <source inline>yes</source>", "A\nb\nyes"),
        ("A<gallery>\na.jpg|b\n</gallery>b", "A\nb"),
        ("A<ol><li>x</ol>b<table><tr><td>x</table>c<pre/>d</ul>e", "A\nb\nc\nd\ne"),
        ("A <ul><li>b<ul><li>c</ul></ul> d <blockquote>Said.</blockquote>", "A\nd\nSaid."),
        ("<section begin=x/> One <section end=x /> two<section begin=y/>.", "One two."),
        ("If a <b and c> d, then #include <stdio.h>.", "If a d, then #include <stdio.h>."),
        ("[mailto:a@b.c write] [mailto:a@b.c]", "write"),
        ("-{zh-hans:[[网络|网]]; zh-hant:[[網路]]}--{zh-hans;zh-hant|[[甲|乙]]}--{A|zh-cn:[[a|丙]]}-", "网乙丙"),
        ("-{zh-hans:计算机; zh-hant:電腦}-和-{A|zh-cn:甲;zh-tw:乙}-与-{字}--{H|zh-cn:丙}-", "计算机和甲与字"),
    ],
)
def test_what_is_shown(wikitext: str, shown: str) -> None:
    assert prose(wikitext) == shown


@pytest.mark.parametrize(
    ("template", "shown"),
    [
        ("{{lang|nb|[[By|by]]}}", "by"),
        ("{{Lang-de|Stadt}}", "Stadt"),
        ("{{lang|ru|2=город}}", "город"),
        ("{{langx|no|Tekst}} {{langx|no|text=Tekst}}", "Tekst Tekst"),
        ("{{transl|ar|DIN|madīna}}", "madīna"),
        ("{{convert|5|km}}", "5 km"),
        ("{{convert|5.5|to|10|km2|sqmi|abbr=on}}", "5.5 to 10 km²"),
        ("{{convert|60|and(-)|80|kg}}", "60 and 80 kg"),
        ("{{cvt|5|-|6|C}}", "5-6 °C"),
        ("{{convert|5}}", "5"),
        ("{{convert|6|ft|2|in|m}}, {{convert|3|st|4|lb}}", "6 ft 2 in, 3 st 4 lb"),
        ("{{convert|1|yd|2|ft|3|in|m}}, {{cvt|6|ft|0}}, {{cvt|6|ft|m|in}}", "1 yd 2 ft 3 in, 6 ft, 6 ft"),
        ("6.02{{e|23}}, 1 {{x10^|-3}}{{e}}", "6.02 × 10^23, 1 × 10^-3"),
        ("1{{nbsp}}000{{ndash}}{{spaced ndash}}", "1 000– –"),
        ("{{circa|1900}}", "c. 1900"),
        ("{{nowrap|a {{sup|b}} c}}", "a b c"),
        ("{{abbr|km|kilometre}}", "km"),
        ("{{val|12|3|e=5|u=km}}", "12 ± 3 × 10^5 km"),
        ("{{frac|2}} {{frac|1|3}} {{frac|4|1|3}}", "1/2 1/3 4 1/3"),
        ("{{formatnum:1000}}", "1000"),
        ("{{As of|2010}} and {{as_of|2011|lc=y}}", "As of 2010 and as of 2011"),
        ("the {{USS|Ula|B-1}} {{'}}", "the USS Ula '"),
        ("It: {{quote|Said so.|who}} And on.", "It:\nSaid so.\nAnd on."),
        ("a{{IPA|xyz}}b", "ab"),
        ("a {{nowrap}}{{lang}}{{frac}}{{val}} b", "a b"),
    ],
)
def test_templates_with_prose(template: str, shown: str) -> None:
    assert prose(f"x {template} y") == f"x {shown} y".replace("  ", " ")


@pytest.mark.parametrize(
    ("wikitext", "shown"),
    [
        ("Ula ({{IPA|u}}; born 1900) is", "Ula (born 1900) is"),
        ("Ula ( , {{IPA|u}} ) is", "Ula is"),
        ("Ula ({{IPA|u}}, {{x}}, a, {{y}}, b; {{z}}) is", "Ula (a, b) is"),
        ("Ula (a<ref>b</ref>, c) is f( )", "Ula (a, c) is f( )"),
        ("such as {{IPA|a}}, {{IPA|b}}, {{IPA|c}}, or d", "such as, or d"),
        ("عاصمة ({{x}})، و ({{x}})؟", "عاصمة، و؟"),
        ("({{x}}، a، {{y}}؛ b) {{x}}؛", "(a؛ b)؛"),
        ("乌拉（{{x}}；生于1900年）是", "乌拉（生于1900年）是"),
    ],
)
def test_gaps_are_closed(wikitext: str, shown: str) -> None:
    assert prose(wikitext) == shown


@pytest.mark.parametrize(
    "page",
    [
        "[[Datei:a.jpg|mini|Ein [[Boot]]]]Text[[Kategorie:Ort]]",
        "[[Fil:a.jpg|mini|En [[båt]]]]Text[[Kategori:Sted]]",
        "[[Файл:a.jpg|мини|[[лодка]]]]Text[[Категория:Город]]",
        "[[ملف:a.jpg|تصغير|[[قارب]]]]Text[[تصنيف:مدن]]",
        "[[文件:a.jpg|缩略图|[[船]]]]Text[[分类:城市]]",
        "[[Own Files:a.jpg|x]]Text[[own_kinds:y]]",
    ],
)
def test_pictures_and_categories_of_other_languages(page: str) -> None:
    assert prose(page, ["own files", "own kinds"]) == "Text"


def test_what_is_never_closed_takes_its_line_at_most() -> None:
    assert prose("One {{Infobox\n| a = b\nTwo") == "One\nTwo"
    assert prose("{| class=x\n| a\n! b\nOne") == "One"
    assert prose("One [[two\nThree ]] four }} |}") == "One two Three four"
    assert prose("One <ref>not this\nTwo <table>nor this\nThree") == "One Two\nThree"
    assert prose("One [[File:a|b\nTwo") == "One Two"


@pytest.mark.long
@pytest.mark.parametrize(
    "bad",
    [
        "{{" * 100_000,
        "[[" * 100_000,
        "<ref>" * 100_000,
        "<table>" * 50_000 + "</table>" * 49_999,
        "-{" * 100_000,
        "{|\n" + "| a || b\n" * 400_000,
        "<!--" + "a " * 2_000_000,
        "\n{|" * 100_000 + "\n|}" * 100_000,
        "{{nowrap|" * 50_000 + "*" * 500_000 + "}}" * 50_000,
        "[[a|" * 100_000 + "]]" * 100_000,
        "[[File:" * 100_000,
        "," + "{{x}}" * 100_000,
        "(" + "{{x}}, " * 100_000,
        "'" * 1_000_000,
        "[http://a" + " " * 1_000_000,
    ],
)
def test_hostile_pages_come_to_an_end(bad: str) -> None:
    begun = prose(f"One.\n\n{bad}")
    assert begun.startswith("One.")
    assert not set("{}<") & set(begun)


@given(st.text(alphabet="ab \n{}[]|<>/!-'=*:;&ref,()\x01é", max_size=60))
def test_any_text_gives_tidy_lines(wikitext: str) -> None:
    shown = prose(wikitext)
    assert "\x01" not in shown
    assert not [line for line in shown.split("\n") if shown and line != line.strip()]


@given(st.sampled_from(sorted(_RULES)), st.lists(st.sampled_from(["", " ", "1", "to", "a=b", "1=c", "=", "x"])))
def test_no_template_stumbles_over_its_arguments(name: str, arguments: list[str]) -> None:
    assert prose(f"x {{{{{'|'.join([name, *arguments])}}}}} y").startswith("x")


@pytest.mark.parametrize(
    "word", ["REDIRECT", "redirect:", "WEITERLEITUNG", "omdirigering", "перенаправление", "تحويل", "重定向"]
)
def test_redirects_of_any_language(word: str) -> None:
    assert is_redirect(f"\n#{word} [[There]]")
    assert not is_redirect("# [[There]]\n# [[Here]]")
    assert not is_redirect("#1 [[There]]")


def test_disambiguation_pages() -> None:
    for template in (
        "Disambiguation|geo",
        "disambig",
        "Begriffsklärung",
        "peker",
        "неоднозначность",
        "توضيح",
        "消歧义",
    ):
        assert is_disambiguation(f"Ula may be:\n* [[a]]\n{{{{{template}}}}}")
    assert not is_disambiguation("{{disambiguation needed|date=May}} {{dpr}}")


def test_entities_escaped_twice() -> None:
    assert decoded("&amp;lt;a&amp;nbsp;b &amp; c") == "<a\xa0b & c"


@pytest.fixture(scope="module")
def measure() -> ModuleType:
    pytest.importorskip("mwparserfromhell")
    path = Path(__file__).parents[2] / "measure" / "wikipedia.py"
    spec = importlib.util.spec_from_file_location("measure_wikipedia", path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["measure_wikipedia"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.long
def test_a_real_dump_beside_mwparserfromhell(shared_data: Path, measure: ModuleType) -> None:
    found = list(measure.measured(str(shared_data / "wikidump")))
    assert len(found) > 100
    assert [f.markup for f in found if f.markup] == []
    assert sum(f.both for f in found) >= 0.95 * sum(f.theirs for f in found)
    assert all(f.both >= 0.9 * f.theirs for f in found)
    assert sum(f.both < 0.95 * f.theirs for f in found) <= 3  # lists and references that mwparserfromhell misses


def test_templates_within_templates_show_down_to_the_fortieth() -> None:
    for depth, shown in ((40, "x y z"), (41, "x z")):
        assert prose("x " + "{{nowrap|" * depth + "y" + "}}" * depth + " z") == shown


@pytest.mark.parametrize(
    ("wikitext", "shown"),
    [
        ("A [[File:a|b]] c [[x", "A c x"),
        ("a\x01b\r\nc", "ab c"),
        ("x [[:File:a]] y [[ file : z]] w", "x File:a y w"),
        ("[[File_talk:a]] b [[user:x|y]]", "File_talk:a b y"),
        ("[[en:x]] [[doi:x]] [[simple:b]] [[zh-yue:c|d]]", "doi:x"),
        ("[https://a.b c d] [irc://x y] [//z w] [ftp://q]", "c d y w"),
        ("A {{nowrap|1=b=c}} d {{nowrap|x|y}} {{nowrap|text=z}}", "A b=c d x z"),
        (
            "{{convert|1|mi|2|furlong}} {{convert|1|mi|2|lb}} {{convert|5|by|6|x|7|m}}",
            "1 mi 2 furlong 1 mi 5 by 6 x 7 m",
        ),
        ("{{ship|a|b|c|d}} {{chem|a|b}} {{cvt|5|–|6|km2}}", "a b c ab 5–6 km²"),
        ("{{val|5|u=m}} {{val|5|ul=m}} {{val|1|2|3}} {{frac|1|2|3|4}}", "5 m 5 m 1 ± 2 1 2/3"),
        ("a {{GBP|5}} {{US$|7}} {{circa}} {{c.|1}}{{e}}{{e|}}", "a £5 $7 c. c. 1"),
        ("''''''six'''''' l''''a''", "'six' l'a"),
        ("x <references/> y <br> z<center>b</center>c", "x\ny z\nb\nc"),
        ("<REF>a</REF>b <references>\n<ref>a</ref></references>c", "b\nc"),
        ("a\n{|\n| b\nprose of a cell\n{|\n| c\nof another\n|}\nand more\n|}\nd", "a\nd"),
        ("{|\n| {{a\nb\n|}\nc {{nowrap|d\n{|\ne\n|}\nf}}", "c d\nf"),
        ("{| a\n|}\n{{x\n}}b\n|}c", "b"),
        ("a {{b|{{c}} d\n{{a}} }} b", "a b"),
        ("-{a}- -{H|b}-c -{T|x}- -{-|y}- -{zh:z}-", "a c z"),
        ("10<sup>5</sup> (m)<sup>2</sup> 3<sup>-2</sup> x<sup>2</sup>", "10^5 (m)^2 3^-2 x2"),
        ("<!-- a\nb -->c <nowiki>x\ny</nowiki>z<!-- d", "c x yz"),
        ("a (b, {{x}} c) ( {{x}} ) {{x}}, {{y}}; b{{x}}c", "a (b, c),; bc"),
        ("* a\n: b\n c\nd\n|e\n!f\n=g=\n;h\n#i\n----\nj", "d\nj"),
    ],
)
def test_other_markup(wikitext: str, shown: str) -> None:
    assert prose(wikitext) == shown
