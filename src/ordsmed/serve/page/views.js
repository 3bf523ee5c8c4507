// Views: what the page can ask, an entry each.
//
// name, does, button       of the link, the line below it, the button
// fits(model)              can this model be asked?
// fields                   of the form; `display` ones change how an answer is shown, not what is asked
// request(values, model)   {path, body, stream}: the body is what the method of ordsmed.open(...) sends; of the values
//                          `chance` is a number that is another one each time
// python(body)             lines that ask a `model` the same
// show(answer, values, body, model)   an element;  together([{model, answer}]): one of all models
// piece(event, place)      of a stream: the next piece comes to stand
import { chart } from "./chart.js";
import { bars, element, facts, heated, keywords, marked, MOST, python, table } from "./parts.js";

const can = (method) => (model) => model.can.includes(method);
const linesOf = (text) =>
  text
    .split("\n")
    .map((line) => line.trim())
    .filter(Boolean);
const number = (value) =>
  typeof value === "number" ? Number(value.toPrecision(4)).toLocaleString("en", { maximumFractionDigits: 4 }) : value;
const whole = (value) => (value === null ? null : value.toLocaleString("en", { maximumFractionDigits: 0 }));

const WAYS = {
  causal: "causal: each token after those before it",
  masked: "masked: each token hidden by itself",
  word: "word: hidden with the pieces right of it",
  detect: "detect: how real it looks",
  mean: "mean of both directions",
  forward: "forward",
  backward: "backward",
};
const way = {
  name: "way",
  label: "Way",
  kind: "choice",
  options: (model) => model.ways.map((each, n) => [n ? each : "", WAYS[each] ?? each]),
  shown: (model) => model.ways.length > 1,
};
const asked = ({ way }) => (way ? { way } : {});
const HEAT = () => element("p", { class: "scale" }, "0 bits ", element("span"), ` ${MOST} and more`);

const fill = {
  name: "Fill gaps",
  button: "Fill",
  fits: can("fill"),
  does: "What a masked model expects at each [MASK].",
  fields: [
    { name: "text", label: "Text", kind: "text", value: "the [MASK] is old.", insert: "[MASK]" },
    { name: "best", label: "Guesses", kind: "number", value: 5, min: 1, max: 100 },
  ],
  request: ({ text, best }) => ({ path: "api/fill", body: { texts: [text], best } }),
  python: ({ texts: [text], best }) => [
    `filled = model.fill(${python(text)}, best=${best})`,
    'print(*filled.lines, sep="\\n")',
  ],
  show: ([filled]) =>
    element(
      "div",
      {},
      filled.masks.map((guesses, n) =>
        bars(
          guesses.map((guess) => [guess.text, guess.probability]),
          filled.masks.length > 1 ? `[MASK] ${n + 1}` : "[MASK]",
        ),
      ),
    ),
};

const generate = {
  name: "Write",
  button: "Write",
  fits: can("generate"),
  does: "How a model goes on with a text, piece by piece.",
  fields: [
    { name: "text", label: "Begin with", kind: "text", value: "The value of", empty: true },
    { name: "tokens", label: "Tokens", kind: "number", value: 60, min: 1, max: 4096 },
    { name: "temperature", label: "Temperature", kind: "number", value: 0.8, min: 0, max: 100, step: "any" },
    { name: "share", label: "Top-p", kind: "number", value: 0.95, min: 0.001, max: 1, step: "any" },
    { name: "seed", label: "Seed (empty: any)", kind: "number", min: 0, empty: true },
  ],
  request: ({ text, seed, tokens, temperature, share, chance }) => ({
    path: "api/generate",
    stream: true,
    body: { texts: [text], tokens, temperature, share, seed: seed ?? chance, stream: true },
  }),
  python: ({ texts: [text], stream, ...how }) => [
    `for piece in model.stream(${python(text)}${keywords(how)}):`,
    '    print(piece, end="", flush=True)',
  ],
  begin: (body) =>
    element(
      "div",
      {},
      element("p", { class: "text", dir: "auto" }, element("span", { class: "soft" }, body.texts[0])),
      element("p", { class: "soft" }),
    ),
  piece: (piece, place, body) => {
    place.firstChild.append(piece.text);
    if (!piece.ended) return;
    const why = { end: "ended by the model's end sign", tokens: "as many as were asked for" }[piece.ended];
    place.lastChild.append(`${piece.tokens} tokens, ${why}; seed ${body.seed}`);
  },
};

const classify = {
  name: "Classify",
  button: "Classify",
  fits: can("classify"),
  does: "Which class a text has, or two texts together.",
  fields: [
    { name: "text", label: "Text", kind: "text", value: "it is old" },
    { name: "second", label: "Second text, for models that learned pairs", kind: "text", rows: 2, empty: true },
  ],
  request: ({ text, second }) => ({
    path: "api/classify",
    body: { texts: [text], ...(second ? { seconds: [second] } : {}) },
  }),
  python: ({ texts: [text], seconds: [second] = [] }) => [
    `found = model.classify(${[text, second]
      .filter((each) => each !== undefined)
      .map(python)
      .join(", ")})`,
    "print(found.label, found.probabilities, found.number)",
  ],
  show: ([found]) =>
    found.number !== null
      ? facts([["the number that it is given", number(found.number)]])
      : bars(
          Object.entries(found.probabilities).sort((a, b) => b[1] - a[1]),
          "Classes",
        ),
};

const tag = {
  name: "Tag",
  button: "Tag",
  fits: can("tag"),
  does: "The tags of words; white space parts them.",
  fields: [{ name: "text", label: "Text", kind: "text", value: "Newts swim in Bergen ." }],
  request: ({ text }) => ({ path: "api/tag", body: { sentences: [text] } }),
  python: ({ sentences: [text] }) => [`tagged = model.tag(${python(text)})`, "print(*zip(tagged.words, tagged.tags))"],
  show: ([tagged], { text }, body, model) => {
    const spans = entities(text, tagged, model.labels);
    return element(
      "div",
      {},
      marked(text, spans),
      spans.length ? null : element("p", { class: "soft" }, "No word has a tag."),
    );
  },
};

/** Words as spans: B-X and the I-X after it are one; a tag without such a mark is a word's own. */
function entities(text, tagged, labels) {
  const kinds = [...new Set(labels.map((label) => label.replace(/^[A-Z]-/, "")))].filter((kind) => kind !== "O");
  const spans = [],
    points = (end) => [...text.slice(0, end)].length;
  let at = 0,
    before = "";
  tagged.words.forEach((word, n) => {
    const start = text.indexOf(word, at),
      [, mark, kind] = tagged.tags[n].match(/^(?:([A-Z])-)?(.*)$/s);
    at = start + word.length;
    if (kind !== "O" && mark && !"BS".includes(mark) && before === kind) {
      spans.at(-1).end = at;
      spans.at(-1).shares.push(tagged.probabilities[n]);
    } else if (kind !== "O") spans.push({ start, end: at, kind, shares: [tagged.probabilities[n]] });
    before = mark ? kind : "";
  });
  return spans.map(({ start, end, kind, shares }) => {
    const mean = shares.reduce((sum, each) => sum + each, 0) / shares.length;
    return [points(start), points(end), kind, kinds.indexOf(kind), `${kind}: ${(mean * 100).toFixed(1)} %`];
  });
}

const answer = {
  name: "Answer",
  button: "Answer",
  fits: can("answer"),
  does: "Which part of a text answers a question.",
  fields: [
    { name: "question", label: "Question", kind: "line", value: "What does it raise?" },
    { name: "context", label: "Text", kind: "text", rows: 5, value: "It takes bytes and raises a key error." },
    { name: "best", label: "Answers", kind: "number", value: 3, min: 1, max: 20 },
  ],
  request: ({ question, context, best }) => ({
    path: "api/answer",
    body: { questions: [question], contexts: [context], best },
  }),
  python: ({ questions: [question], contexts: [context], best }) => [
    `found = model.answer(${python(question)}, ${python(context)}, best=${best})`,
    "print(found.text, found.probability)",
  ],
  show: ([found], { context }) => {
    const [start, end] = found.span,
      none = "no answer in this text";
    return element(
      "div",
      {},
      found.text ? marked(context, [[start, end, "", 0]]) : element("p", { class: "text" }, none, "."),
      bars(
        found.n_best.map((span) => [span.text || none, span.probability]),
        "Answers",
      ),
    );
  },
};

// by the way a model is read
const PERPLEXITY = {
  causal: "perplexity",
  forward: "perplexity",
  backward: "perplexity",
  masked: "pseudo-perplexity",
  word: "pseudo-perplexity",
};

const overSteps = (answer) =>
  table(
    "over the run's checkpoints; the words above are of the last one",
    ["step", "log-likelihood"],
    answer.map(({ step, scores: [scored] }) => [whole(step), number(scored.log_likelihood)]),
  );

const surprisal = {
  name: "Surprisal",
  button: "Score",
  fits: can("score"),
  does: "How surprising each word is, in bits: -log2 of its probability.",
  fields: [
    { name: "text", label: "Text", kind: "text", value: "the old cat sat on the mat" },
    way,
    {
      name: "parts",
      label: "Of",
      kind: "choice",
      display: true,
      options: () => [
        ["words", "words"],
        ["tokens", "tokens"],
      ],
    },
    { name: "numbers", label: "Numbers", kind: "check", value: true, display: true },
    {
      name: "steps",
      label: "At each kept checkpoint",
      kind: "check",
      value: false,
      shown: (model) => model.checkpoints,
    },
  ],
  request: (values, model) => ({
    path: "score",
    body: { texts: [values.text], ...asked(values), ...(values.steps && model.checkpoints ? { steps: "all" } : {}) },
  }),
  python: ({ texts: [text], steps, ...how }) =>
    steps
      ? [
          'for at_step in ordsmed.open("RUN").at_steps():  # RUN: its folder, on the machine where it is',
          `    print(at_step.step, at_step.score(${python(text)}${keywords(how)}).log_likelihood)`,
        ]
      : [`scored = model.score(${python(text)}${keywords(how)})`, "print(scored.words)"],
  show: (answer, { parts, numbers }) => {
    const {
      scores: [scored],
    } = answer.at(-1);
    const bits = scored.tokens.map((part) => part.bits).filter((each) => each !== null);
    const mean = bits.length ? bits.reduce((sum, each) => sum + each, 0) / bits.length : null;
    return element(
      "div",
      {},
      heated(scored.text, scored[parts], numbers),
      HEAT(),
      answer.length > 1 ? overSteps(answer) : null,
      facts([
        ["bits a token", mean === null ? null : number(mean)],
        [PERPLEXITY[scored.way] ?? "", mean === null || !PERPLEXITY[scored.way] ? null : number(2 ** mean)],
        ["log-likelihood", number(scored.log_likelihood)],
        ["read", scored.way],
      ]),
    );
  },
};

const ALIKE = 1e-6; // sums no further apart are equal, as the server's /pairs has it

const pairs = {
  name: "Minimal pairs",
  button: "Compare",
  fits: can("score"),
  does: "Which of two texts a model finds likelier. Lines two by two: the good one first.",
  fields: [
    {
      name: "text",
      label: "Pairs of lines",
      kind: "text",
      rows: 5,
      value: "the cats sit\nthe cats sits\nit is old\nit are old",
    },
    way,
  ],
  request: (values) => {
    const texts = linesOf(values.text);
    if (!texts.length || texts.length % 2)
      throw new Error(`text: found ${texts.length} line${texts.length === 1 ? "" : "s"}; wanted two for each pair`);
    return { path: "score", body: { texts, ...asked(values) } };
  },
  python: ({ texts, ...how }) => [
    `scored = model.score(${python(texts)}${keywords(how)})`,
    "for good, bad in zip(scored[::2], scored[1::2]):",
    "    print(good.log_likelihood > bad.log_likelihood, good.text, bad.text)",
  ],
  show: ([{ scores }]) => {
    const rows = scores.flatMap((good, n) => (n % 2 ? [] : [[good, scores[n + 1]]]));
    const right = rows.filter(([good, bad]) => good.log_likelihood - bad.log_likelihood > ALIKE).length;
    return element(
      "div",
      {},
      element("p", {}, `${right} of ${rows.length} right`),
      element(
        "ol",
        { class: "pairs" },
        rows.map(([good, bad]) => {
          const apart = good.log_likelihood - bad.log_likelihood;
          return element(
            "li",
            {},
            element("b", {}, apart > ALIKE ? "right" : apart < -ALIKE ? "wrong" : "equal"),
            element(
              "span",
              { class: "soft" },
              `: log-likelihood ${number(good.log_likelihood)} and ${number(bad.log_likelihood)}`,
            ),
            heated(good.text, good.words, true),
            heated(bad.text, bad.words, true),
          );
        }),
      ),
      HEAT(),
    );
  },
};

const search = {
  name: "Search",
  button: "Search",
  fits: (model) => model.indexes.length > 0,
  does: "Which passages of an index answer a question.",
  fields: [
    { name: "question", label: "Question", kind: "line", value: "what is old?" },
    {
      name: "index",
      label: "Index",
      kind: "choice",
      options: (model) => model.indexes.map((each) => [each, each]),
      shown: (model) => model.indexes.length > 1,
    },
    { name: "k", label: "Passages", kind: "number", value: 5, min: 1, max: 1000 },
  ],
  request: ({ question, index, k }) => ({ path: "search", body: { questions: [question], index, k } }),
  show: ([hits]) =>
    hits.length
      ? element(
          "ol",
          {},
          hits.map((hit) =>
            element(
              "li",
              {},
              element("p", { class: "soft" }, `${hit.title || hit.id}: ${number(hit.score)}`),
              element("p", { class: "text", dir: "auto" }, hit.text),
            ),
          ),
        )
      : element("p", {}, "Nothing: no passage has a word of it."),
};

const neighbors = {
  name: "Neighbors",
  button: "Find",
  fits: can("embed"),
  does: "Which of several sentences are nearest to one: cosines of their vectors.",
  fields: [
    { name: "first", label: "Sentence", kind: "line", value: "the cat is old" },
    {
      name: "rest",
      label: "Among these, one a line",
      kind: "text",
      rows: 5,
      value: "the dog is old\nit raises a key error\nan old cat sat there",
    },
  ],
  request: ({ first, rest }, model) => {
    const among = linesOf(rest);
    if (!among.length) throw new Error("sentences: found none; wanted one or more to choose among");
    return { path: "api/embed", body: { texts: [first, ...among], of: "sentences", ...model.sentences } };
  },
  python: ({ texts, ...how }) => [
    `texts = ${python(texts)}`,
    `vectors = np.stack([each.vectors for each in model.embed(texts${keywords(how)})])`,
    "vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)",
    "print(vectors[1:] @ vectors[0])",
  ],
  imports: ["import numpy as np"],
  show: (answer) => {
    const [first, ...rest] = answer.map((each) => vector(each.vectors));
    const rows = rest.map((each, n) => [answer[n + 1].text, cosine(first, each)]).sort((a, b) => b[1] - a[1]);
    return table(
      "Nearest first",
      ["sentence", "cosine"],
      rows.map(([text, alike]) => [text, alike.toFixed(4)]),
    );
  },
};

/** Numbers of 32 bits, as they travel in base64. */
function vector(packed) {
  const bytes = Uint8Array.from(atob(packed), (sign) => sign.charCodeAt(0)),
    view = new DataView(bytes.buffer);
  return Float32Array.from({ length: bytes.length / 4 }, (_, n) => view.getFloat32(4 * n, true));
}

function cosine(a, b) {
  const dot = (x, y) => x.reduce((sum, value, n) => sum + value * y[n], 0);
  return dot(a, b) / (Math.sqrt(dot(a, a) * dot(b, b)) || 1);
}

const run = {
  name: "Training",
  button: "Read again",
  fits: (model) => model.run,
  does: "The loss of the run, and what it found in the end.",
  fields: [],
  atOnce: true,
  request: () => ({ path: "run" }),
  together: (results) => {
    const curves = results.map(({ model, answer }) => ({
      name: model.name,
      points: answer.points,
      dots: answer.validations,
      level: answer.guessing_loss,
    }));
    const names = new Set(results.flatMap(({ answer }) => Object.keys(answer.curves)));
    const over = [...names].slice(0, 6).map((name) =>
      chart(
        name,
        results
          .filter(({ answer }) => answer.curves[name]?.length > 1)
          .map(({ model, answer }) => ({
            name: model.name,
            points: answer.curves[name].map(([x, y]) => [x, y, y, y]),
            dots: [],
            level: null,
          })),
      ),
    );
    const about = curves.some((curve) => curve.dots.length) ? "Dots: validations on texts held out. " : "";
    const note = about + (curves.some((curve) => curve.level) ? "Dashes: guessing by frequency." : "");
    return element(
      "div",
      {},
      chart("loss", curves) ?? element("p", {}, "No curve: this folder keeps the losses of fewer than two steps."),
      element("p", { class: "soft" }, note),
      over,
    );
  },
  show: (answer) =>
    element(
      "div",
      {},
      element("p", {}, answer.summary),
      facts([
        ["state", answer.state],
        ["step", whole(answer.step) + (answer.planned ? ` of ${whole(answer.planned)}` : "")],
        ["tokens", answer.tokens === null ? null : whole(answer.tokens)],
        ["hours", number(answer.hours)],
        ["loss", number(answer.loss)],
      ]),
      Object.keys(answer.scores).length
        ? table(
            "Scores",
            ["score", "found", "guessing"],
            Object.entries(answer.scores).map(([name, value]) => [
              name,
              number(value),
              number(answer.guessing[name] ?? ""),
            ]),
          )
        : null,
      answer.probes.length
        ? table(
            "Probes",
            ["probe", "score", "step", "found"],
            answer.probes.map((row) => [
              row.probe,
              row.score,
              row.step === null ? "" : whole(row.step),
              number(row.value),
            ]),
          )
        : null,
    ),
};

export const views = {
  fill,
  write: generate,
  classify,
  tag,
  answer,
  surprisal,
  pairs,
  neighbors,
  search,
  training: run,
};
