// The page: what the server has, a view of it as a form, its answers beside each other, the lines that ask the same.
import { code, curl, element } from "./parts.js";
import { views } from "./views.js";

const place = (id) => document.getElementById(id);
const root = new URL(".", location.href);
const values = {}; // of each view's form, while the page is open
let token = "",
  models = [],
  view,
  under_way,
  last;

class Refused extends Error {
  constructor(status, line) {
    super(line);
    this.status = status;
  }
}

/** What a server says of why it refuses: one line, in our form or in none. */
async function refusal(answer) {
  const text = await answer.text();
  try {
    const { error } = JSON.parse(text);
    return new Refused(answer.status, error.message ?? error);
  } catch {
    return new Refused(answer.status, `the server answers ${answer.status} ${answer.statusText}`);
  }
}

const encoded = (name) =>
  name
    .split("/")
    .map(encodeURIComponent)
    .join("/")
    .replace(/[!'()*]/g, (sign) => "%" + sign.charCodeAt(0).toString(16));
const address = (model, path) => new URL(`${encoded(model.name)}/${path}`, root).href;

async function ask(url, request, signal) {
  const headers = { accept: "application/json", ...(token ? { authorization: `Bearer ${token}` } : {}) };
  const body = request.body && JSON.stringify(request.body);
  if (body) headers["content-type"] = "application/json";
  let answer;
  try {
    answer = await fetch(url, { method: body ? "POST" : "GET", headers, body, signal, cache: "no-store" });
  } catch (error) {
    throw signal?.aborted
      ? error
      : new Refused(0, `${root.host}: the server cannot be reached; \`ordsmed serve RUN\` starts it`);
  }
  if (!answer.ok) throw await refusal(answer);
  return answer;
}

/** The events of a stream. */
async function* events(answer) {
  let rest = "";
  for await (const text of chunks(answer.body.pipeThrough(new TextDecoderStream()).getReader())) {
    const lines = (rest + text).split("\n");
    rest = lines.pop();
    for (const line of lines) {
      if (!line.startsWith("data: ") || line === "data: [DONE]") continue;
      const event = JSON.parse(line.slice(6));
      if (event.error) throw new Refused(200, event.error);
      yield event;
    }
  }
}

async function* chunks(reader) {
  for (let part; !(part = await reader.read()).done;) yield part.value;
}

// Which view, of which models: the part of the address behind #, so a link to it can be sent.

function words(hash) {
  try {
    return hash.split("&").map(decodeURIComponent);
  } catch {
    return []; // somebody wrote it by hand
  }
}

function chosen() {
  const [name, model, other] = words(location.hash.slice(1));
  const first = models.find((each) => each.name === model) ?? models[0];
  const able = Object.keys(views).filter((each) => views[each].fits(first));
  return {
    name: able.includes(name) ? name : able[0],
    first,
    other: models.find((each) => each.name === other && each !== first),
  };
}

const link = (name, model, other) =>
  "#" + [name, model.name, ...(other ? [other.name] : [])].map(encodeURIComponent).join("&");

function option(value, text, selected) {
  return element("option", { value, selected }, text);
}

function showView() {
  under_way?.abort();
  under_way = null;
  const { name, first, other } = chosen();
  view = views[name];
  const able = models.filter((model) => model !== first && view.fits(model));
  const second = able.includes(other) ? other : null;
  last = { first, second, results: [] };
  place("model").replaceChildren(
    ...models.map((model) => option(model.name, `${model.name} (${model.family})`, model === first)),
  );
  place("other").replaceChildren(
    option("", "no other", !second),
    ...able.map((model) => option(model.name, model.name, model === second)),
  );
  place("other").parentElement.hidden = !able.length;
  const within = place("views").contains(document.activeElement);
  place("views").replaceChildren(
    ...Object.entries(views)
      .filter(([, each]) => each.fits(first))
      .map(([key, each]) =>
        element("a", { href: link(key, first, other), "aria-current": key === name ? "page" : undefined }, each.name),
      ),
  );
  if (within) place("views").querySelector("[aria-current]").focus();
  document.title = `${view.name}: ordsmed`;
  place("title").textContent = view.name;
  place("does").textContent = view.does;
  place("results").replaceChildren();
  form(name, first);
  state("", false);
  showLines();
  if (view.atOnce) send();
}

function moved(model, other) {
  location.hash = link(chosen().name, model, other);
}

// The form

function form(name, model) {
  const kept = (values[name] ??= {});
  const fields = view.fields.filter((each) => each.shown?.(model) ?? true);
  const buttons = [
    element("button", { class: "main" }, view.button),
    element("button", { type: "button", id: "stop", hidden: true, onclick: () => under_way?.abort() }, "Stop"),
  ];
  const small = fields.filter((each) => each.kind !== "text" && each.kind !== "line"),
    large = fields.filter((each) => !small.includes(each));
  place("form").replaceChildren(
    ...large.map((each) => field(each, kept, model)),
    element(
      "div",
      { class: "row" },
      small.map((each) => field(each, kept, model)),
      buttons,
    ),
  );
  place("form").hidden = false;
}

function field(of, kept, model) {
  const id = `field-${of.name}`,
    value = kept[of.name] ?? of.value;
  const common = {
    id,
    name: of.name,
    dir: "auto",
    spellcheck: "false",
    autocomplete: "off",
    oninput: () => changed(of),
  };
  const input = {
    text: () => element("textarea", { ...common, rows: of.rows ?? 3, required: !of.empty }, value ?? ""),
    line: () => element("input", { ...common, value, required: true }),
    number: () =>
      element("input", {
        ...common,
        type: "number",
        value,
        min: of.min,
        max: of.max,
        step: of.step,
        required: !of.empty,
      }),
    check: () => element("input", { ...common, type: "checkbox", checked: value }),
    choice: () =>
      element(
        "select",
        common,
        of.options(model).map(([key, text]) => option(key, text, key === value)),
      ),
  }[of.kind]();
  const insert =
    of.insert &&
    element("button", { type: "button", class: "insert", onclick: () => inserted(input, of) }, `Insert ${of.insert}`);
  return element("div", { class: `field ${of.kind}` }, element("label", { for: id }, of.label), insert, input);
}

function inserted(input, of) {
  input.setRangeText(of.insert, input.selectionStart, input.selectionEnd, "end");
  input.focus();
  changed(of);
}

/** What stands in the form; an empty number is none. */
function filledIn() {
  const read = (of) => {
    const input = place("form").elements[of.name];
    if (!input) return undefined;
    if (of.kind === "check") return input.checked;
    return of.kind === "number" ? (Number.isNaN(input.valueAsNumber) ? undefined : input.valueAsNumber) : input.value;
  };
  const chance = Math.floor(Math.random() * 1e6);
  return { ...Object.fromEntries(view.fields.map((of) => [of.name, read(of)])), chance };
}

function changed(of) {
  values[chosen().name] = filledIn();
  if (of.display && last.results.length) showAnswers();
  else if (!of.display) showLines();
}

// Requests and answers

/** The lines that ask what is asked; before a seed is drawn the form's own. */
function showLines(requests) {
  const both = [last.first, last.second].filter(Boolean);
  try {
    const given = filledIn();
    requests ??= both.map((model) => view.request(given, model));
  } catch {
    requests = [];
  }
  place("lines").hidden = !requests.length;
  place("lines")
    .querySelectorAll("figure")
    .forEach((each) => each.remove());
  if (!requests.length) return;
  const shell = requests.map((request, n) => curl(address(both[n], request.path), request, token)).join("\n");
  place("lines").append(
    code("curl", shell),
    code("Python", view.python ? opened(both, requests) : fetched(both, requests)),
  );
  place("secret").hidden = !token;
}

function opened(both, requests) {
  const asked = requests.map((request, n) =>
    [`model = ordsmed.open(${JSON.stringify(root.href + both[n].name)})`, ...view.python(request.body)].join("\n"),
  );
  return [...(view.imports ?? []), "import ordsmed", "", ...asked].join("\n");
}

/** What no method of a model gives. */
function fetched(both, requests) {
  const headers = token ? ', headers={"Authorization": "Bearer " + os.environ["ORDSMED_TOKEN"]}' : "";
  const asked = requests.map((request, n) =>
    [
      `request = urllib.request.Request(${JSON.stringify(address(both[n], request.path))}${headers})`,
      "print(json.load(urllib.request.urlopen(request)))",
    ].join("\n"),
  );
  return [`import json${token ? ", os" : ""}, urllib.request`, "", ...asked].join("\n");
}

async function send() {
  under_way?.abort();
  const control = (under_way = new AbortController()),
    both = [last.first, last.second].filter(Boolean),
    given = filledIn();
  const results = (last.results = []);
  let requests;
  try {
    requests = both.map((model) => view.request(given, model));
  } catch (error) {
    place("results").replaceChildren(problem(error));
    return;
  }
  showLines(requests);
  const began = performance.now();
  state("asks ...", true);
  const columns = both.map((model) => column(model, both.length > 1));
  if (!view.together) place("results").replaceChildren(...columns);
  await Promise.all(
    both.map(async (model, n) => {
      const result = { model, request: requests[n], given };
      results[n] = result;
      try {
        const answer = await ask(address(model, requests[n].path), requests[n], control.signal);
        if (requests[n].stream) await shownAsItComes(answer, requests[n], columns[n]);
        else result.answer = await answer.json();
      } catch (error) {
        if (control.signal.aborted) result.stopped = true;
        else result.error = error;
        if (requests[n].stream && result.error) columns[n].append(problem(error));
      }
    }),
  );
  if (control !== under_way) return; // another one was asked meanwhile
  const took = `after ${Math.round(performance.now() - began).toLocaleString("en")} ms`;
  state(`${results.some((result) => result.stopped) ? "stopped" : "answered"} ${took}`, false);
  if (!requests[0].stream) showAnswers();
  if (results.some((result) => result.error?.status === 401)) enter(true);
}

async function shownAsItComes(answer, request, column) {
  const written = view.begin(request.body);
  column.append(written);
  for await (const event of events(answer)) view.piece(event, written, request.body);
}

function column(model, named) {
  return element(
    "section",
    { class: "answer", "aria-label": model.name },
    named ? element("h3", {}, model.name) : null,
  );
}

function showAnswers() {
  const results = last.results.filter((result) => !result.stopped),
    good = results.filter((result) => result.answer !== undefined);
  const columns = results.map((result) => {
    const made = column(result.model, results.length > 1);
    made.append(
      result.error
        ? problem(result.error)
        : view.show(result.answer, { ...result.given, ...displayed() }, result.request.body, result.model),
    );
    return made;
  });
  const shared =
    view.together && good.length ? [element("section", { class: "answer wide" }, view.together(good))] : [];
  place("results").replaceChildren(...shared, ...columns);
}

const displayed = () =>
  Object.fromEntries(view.fields.filter((of) => of.display).map((of) => [of.name, filledIn()[of.name]]));

const problem = (error) => element("p", { class: "error", role: "alert" }, error.message);

function state(text, busy) {
  place("status").textContent = text;
  place("stop").hidden = !busy;
  place("results").setAttribute("aria-busy", String(busy));
}

// The beginning

/** Ask for the token, which no storage and no address ever holds. */
function enter(wrong) {
  place("entry").hidden = false;
  if (wrong && token)
    place("about").replaceChildren(element("span", { class: "error", role: "alert" }, "The token is wrong."));
  else place("about").textContent = "This server answers those who know its token.";
  place("token").focus();
}

async function begin() {
  try {
    const facts = await (await ask(root.href, {})).json();
    models = facts.models;
    place("about").textContent =
      `version ${facts.ordsmed} at ${root.host}: ` + (models.length > 1 ? `${models.length} models` : "one model");
  } catch (error) {
    if (error.status === 401) enter(true);
    else place("about").replaceChildren(problem(error));
    return;
  }
  place("entry").hidden = true;
  place("models").hidden = false;
  showView();
}

place("entry").addEventListener("submit", (event) => {
  event.preventDefault();
  token = place("token").value.trim();
  place("token").value = "";
  begin();
});
place("form").addEventListener("submit", (event) => {
  event.preventDefault();
  send();
});
place("form").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) place("form").requestSubmit();
});
place("model").addEventListener("change", () =>
  moved(
    models.find((model) => model.name === place("model").value),
    last.second,
  ),
);
place("other").addEventListener("change", () =>
  moved(
    last.first,
    models.find((model) => model.name === place("other").value),
  ),
);
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault(); // what is behind # is the view
  place("main").focus();
});
addEventListener("hashchange", showView);
begin();
