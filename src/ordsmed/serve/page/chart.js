// Chart: curves over steps: lines of an SVG, whose labels are text of the page and so as large on a small screen.
import { element } from "./parts.js";

function drawn(tag, attributes) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}

/** Round numbers between two, about so many. */
function ticks(low, high, count) {
  const raw = (high - low) / count,
    unit = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((each) => each * unit).find((each) => each >= raw);
  const first = Math.ceil(low / step - 1e-9);
  return Array.from({ length: Math.floor(high / step + 1e-9) - first + 1 }, (_, n) =>
    Number(((first + n) * step).toPrecision(12)),
  );
}

const short = (value) =>
  Math.abs(value) < 10_000 ? String(value) : value.toLocaleString("en", { notation: "compact" });

/** Curves {name, points: [step, low, value, high], dots: [step, value], level}; their very beginning is cut off. */
export function chart(title, curves) {
  const every = curves.flatMap((curve) => curve.points.filter((point) => point[2] !== null));
  if (every.length < 2) return null;
  const right = Math.max(...every.map((point) => point[0])),
    left = Math.min(0, ...every.map((point) => point[0]));
  const late = every.filter((point) => point[0] - left >= (right - left) * 0.03);
  const values = [
    ...(late.length > 1 ? late : every).map((point) => point[2]),
    ...curves.flatMap((curve) => [...curve.dots.slice(1).map((dot) => dot[1]), ...(curve.level ? [curve.level] : [])]),
  ];
  const margin = (Math.max(...values) - Math.min(...values)) * 0.06 || 0.1;
  const low = Math.min(...values) - margin,
    high = Math.max(...values) + margin;
  const x = (step) => ((step - left) / (right - left || 1)) * 100,
    y = (value) => ((high - value) / (high - low)) * 100;
  const path = (points) =>
    "M" + points.map(([step, value]) => `${x(step).toFixed(2)} ${y(value).toFixed(2)}`).join("L");
  const svg = drawn("svg", { viewBox: "0 0 100 100", preserveAspectRatio: "none", "aria-hidden": "true" });
  const area = element("div", { class: "area", role: "img", "aria-label": described(title, curves) }, svg);
  for (const value of ticks(low, high, 5)) {
    svg.append(drawn("path", { d: `M0 ${y(value)}H100`, class: "grid" }));
    area.append(element("i", { class: "y", style: { top: y(value) + "%" } }, short(value)));
  }
  for (const step of ticks(left, right, 4))
    area.append(element("i", { class: "x", style: { left: x(step) + "%" } }, short(step)));
  curves.forEach((curve, n) => {
    const points = curve.points.filter((point) => point[2] !== null);
    if (points.some((point) => point[1] !== point[3]))
      svg.append(
        drawn("path", {
          class: `band c${n}`,
          d:
            path([
              ...points.map((p) => [p[0], p[3]]),
              ...points
                .slice()
                .reverse()
                .map((p) => [p[0], p[1]]),
            ]) + "Z",
        }),
      );
    svg.append(drawn("path", { class: `line c${n}`, d: path(points.map((p) => [p[0], p[2]])) }));
    for (const dot of curve.dots) svg.append(drawn("path", { class: `dots c${n}`, d: path([dot]) + "h0" }));
    if (curve.level) svg.append(drawn("path", { class: `level c${n}`, d: `M0 ${y(curve.level)}H100` }));
  });
  const legend = curves.map((curve, n) => element("li", {}, element("b", { class: `c${n}` }), curve.name));
  return element(
    "figure",
    { class: "chart" },
    element("figcaption", {}, title),
    area,
    curves.length > 1 ? element("ul", { class: "legend" }, legend) : null,
  );
}

/** In words, for who does not see it. */
function described(title, curves) {
  return curves
    .map((curve) => {
      const points = curve.points.filter((point) => point[2] !== null);
      const said = points.length
        ? [points[0], points.at(-1)].map((point) => `${point[2].toPrecision(4)} at step ${point[0]}`)
        : ["nothing"];
      return `${title} of ${curve.name}: ${said.join(", then ")}`;
    })
    .join("; ");
}
