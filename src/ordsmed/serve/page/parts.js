// Parts: elements made of text alone, bars, spans, colored words, and the lines that ask the same elsewhere.

/** An element; children that are strings become text, whatever stands in them. */
export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "style") for (const [key, of] of Object.entries(value)) made.style.setProperty(key, of);
    else if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value === true) made.setAttribute(name, "");
    else if (value !== false && value !== undefined) made.setAttribute(name, value);
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return made;
}

const percent = (share) => (share * 100).toFixed(share < 0.0995 ? 2 : 1) + " %";

/** Names with their probabilities, a bar each, the first at the top. */
export function bars(rows, label) {
  const row = ([name, share]) =>
    element(
      "tr",
      {},
      element("th", { scope: "row" }, name),
      element("td", { class: "bar" }, element("span", { style: { width: Math.max(share * 100, 0.4) + "%" } })),
      element("td", { class: "n" }, percent(share)),
    );
  return element("table", { class: "bars" }, element("caption", {}, label), element("tbody", {}, rows.map(row)));
}

/** A text with marks: [start, end, label, color, note] in characters as Python counts them. */
export function marked(text, spans) {
  const points = [...text],
    place = element("p", { class: "text", dir: "auto" });
  let at = 0;
  for (const [start, end, label, color, note] of spans) {
    place.append(points.slice(at, start).join(""));
    place.append(
      element(
        "mark",
        { class: "c" + (color % 8), title: note },
        points.slice(start, end).join(""),
        label ? element("small", {}, label) : null,
      ),
    );
    at = end;
  }
  place.append(points.slice(at).join(""));
  return place;
}

export const MOST = 16; // bits that are as red as it gets

/** A text whose parts are the redder the more surprising they are; tokens of the same characters stand side by side. */
export function heated(text, parts, numbers) {
  const points = [...text],
    place = element("p", { class: "text" + (numbers ? " numbers" : ""), dir: "auto" });
  let at = 0;
  for (const part of parts) {
    if (part.start > at) place.append(points.slice(at, part.start).join(""));
    const shown = points.slice(Math.max(part.start, at), part.end).join("") || "\u22ef";
    at = Math.max(at, part.end);
    const bits = part.bits === null ? "not scored" : part.bits.toFixed(1);
    place.append(
      element(
        "span",
        {
          class: part.bits === null ? "part unscored" : "part",
          title: part.bits === null ? bits : bits + " bits",
          style: { "--heat": Math.min(Math.max((part.bits ?? 0) / MOST, 0), 1) * 75 + "%" },
        },
        shown,
        element("small", {}, numbers && part.bits !== null ? bits : ""),
      ),
    );
  }
  place.append(points.slice(at).join(""));
  return place;
}

/** Names and values. */
export const facts = (rows) =>
  element(
    "dl",
    { class: "facts" },
    rows
      .filter(([, value]) => value !== null && value !== undefined)
      .map(([name, value]) => element("div", {}, element("dt", {}, name), element("dd", {}, String(value)))),
  );

export function table(caption, heads, rows) {
  const cell = (value, n) => element(n ? "td" : "th", n ? { class: "n" } : { scope: "row" }, value);
  return element(
    "div",
    { class: "scroll", tabindex: "0", role: "group", "aria-label": caption },
    element(
      "table",
      {},
      element("caption", {}, caption),
      element(
        "thead",
        {},
        element(
          "tr",
          {},
          heads.map((head, n) => element("th", { scope: "col", class: n ? "n" : "" }, head)),
        ),
      ),
      element(
        "tbody",
        {},
        rows.map((row) => element("tr", {}, row.map(cell))),
      ),
    ),
  );
}

/** A value as Python writes it. */
export function python(value) {
  if (Array.isArray(value)) return "[" + value.map(python).join(", ") + "]";
  if (typeof value === "boolean") return value ? "True" : "False";
  return JSON.stringify(value);
}

/** Keywords of a call: `best=5, seed=0`. */
export const keywords = (options) =>
  Object.entries(options)
    .map(([name, value]) => `, ${name}=${python(value)}`)
    .join("");

const quoted = (text) => "'" + text.replaceAll("'", "'\\''") + "'";

/** What asks the same from a shell. */
export function curl(url, request, secret) {
  const words = [`curl ${request.stream ? "-N " : ""}${/^[\w:/.%~[\]-]*$/.test(url) ? url : quoted(url)}`];
  if (secret) words.push('-H "Authorization: Bearer $ORDSMED_TOKEN"');
  if (request.body) words.push(`-d ${quoted(JSON.stringify(request.body))}`);
  return words.join(" \\\n  ");
}

/** Lines to copy. */
export function code(name, text) {
  const button = element("button", { type: "button", "aria-label": `Copy the ${name} lines`, onclick: copy }, "Copy");
  async function copy() {
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = "Copied";
    } catch {
      // no clipboard where the address is neither https nor this machine
      getSelection().selectAllChildren(lines);
      button.textContent = "Marked: press Ctrl-C";
    }
    setTimeout(() => {
      button.textContent = "Copy";
    }, 2000);
  }
  const lines = element("pre", {}, element("code", {}, text));
  return element("figure", { class: "code" }, element("figcaption", {}, name, button), lines);
}
