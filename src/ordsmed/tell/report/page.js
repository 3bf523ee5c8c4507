"use strict";
// Interaction on a page: sort tables, name curves under the pointer, hide and highlight curves.
(function () {
  document.documentElement.classList.add("script");
  for (const table of document.querySelectorAll("table")) makeSortable(table);
  for (const plot of document.querySelectorAll(".plot")) addTooltip(plot);
  for (const item of document.querySelectorAll(".legend li[data-name]")) addToggle(item);

  for (const input of document.querySelectorAll(".axes > input")) rememberChoice(input);
  if (document.body.dataset.live) setInterval(follow, 2000);

  // A served page reloads when a run wrote something; the chosen axes are restored.
  function follow() {
    fetch("state").then((answer) => answer.ok ? answer.text() : document.body.dataset.live).then((state) => {
      if (state !== document.body.dataset.live) location.reload();
    }).catch(() => {});
  }

  function rememberChoice(input) {
    const key = "axis " + input.name;
    try {
      if (sessionStorage.getItem(key) === input.id) input.checked = true;
      input.onchange = () => sessionStorage.setItem(key, input.id);
    } catch (error) { /* pages opened as files may not store anything */ }
  }

  function makeSortable(table) {
    table.querySelectorAll("thead th").forEach((head, column) => {
      const button = document.createElement("button");
      button.append(...head.childNodes);
      head.append(button);
      button.onclick = () => {
        const up = head.getAttribute("aria-sort") !== "ascending";
        table.querySelectorAll("th").forEach((cell) => cell.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", up ? "ascending" : "descending");
        const body = table.tBodies[0], rows = [...body.rows];
        const valueOf = (row) => row.cells[column].dataset.value;
        rows.sort((first, second) => {
          const a = valueOf(first), b = valueOf(second);
          if (a === undefined || b === undefined) return (a === undefined) - (b === undefined);
          const difference = a !== "" && b !== "" && !isNaN(a) && !isNaN(b) ? a - b : a.localeCompare(b, "en", { numeric: true });
          return up ? difference : -difference;
        });
        body.append(...rows);
      };
    });
  }

  function points(path) {
    return path.getAttribute("d").split(/[ML]/).filter(Boolean).map((pair) => pair.split(" ").map(Number));
  }

  function addTooltip(plot) {
    const area = plot.querySelector(".area"), tooltip = document.createElement("div"), cross = document.createElement("div");
    const range = plot.dataset, lines = [...plot.querySelectorAll("path.line")];
    tooltip.className = "told"; cross.className = "cross"; tooltip.hidden = cross.hidden = true;
    area.append(cross, tooltip);
    let known = null;
    const number = (value, span) => Math.abs(span) > 50 ? Math.round(value).toLocaleString("en") : String(Number(value.toPrecision(4)));
    area.addEventListener("pointermove", (event) => {
      known = known || lines.map(points);
      const box = area.getBoundingClientRect();
      const x = (event.clientX - box.left) / box.width * 1000, y = (event.clientY - box.top) / box.height * 1000;
      const near = [];
      lines.forEach((line, index) => {
        if (line.classList.contains("hidden")) return;
        let best = null;
        for (const point of known[index]) if (!best || Math.abs(point[0] - x) < Math.abs(best[0] - x)) best = point;
        if (best && Math.abs(best[0] - x) < 40) near.push([Math.abs(best[1] - y), best, line.dataset.name]);
      });
      near.sort((first, second) => first[0] - second[0]);
      tooltip.hidden = cross.hidden = !near.length;
      if (!near.length) return;
      const low = Number(range.x0), high = Number(range.x1), at = near[0][1][0] / 1000;
      const place = range.log ? low * Math.pow(high / low, at) : low + at * (high - low);
      const loss = (v) => Number(range.y1) - v / 1000 * (range.y1 - range.y0);
      tooltip.textContent = "";
      tooltip.append(`${range.label}: ${number(place, high - low)}`);
      for (const curve of near.slice(0, 6)) {
        const line = document.createElement("div");
        line.textContent = `${number(loss(curve[1][1]), 0)}  ${curve[2]}`;
        tooltip.append(line);
      }
      cross.style.left = at * 100 + "%";
      tooltip.style.left = at < 0.5 ? `calc(${at * 100}% + .6rem)` : "auto";
      tooltip.style.right = at < 0.5 ? "auto" : `calc(${100 - at * 100}% + .6rem)`;
    });
    area.addEventListener("pointerleave", () => { tooltip.hidden = cross.hidden = true; });
  }

  function addToggle(item) {
    const name = item.dataset.name, place = item.closest("section") || document;
    const curves = () => [...place.querySelectorAll("path[data-name]")].filter((path) => path.dataset.name === name);
    item.tabIndex = 0;
    const toggle = () => { const off = item.classList.toggle("off"); curves().forEach((path) => path.classList.toggle("hidden", off)); };
    const mark = (on) => {
      curves().forEach((path) => path.classList.toggle("on", on));
      place.querySelectorAll(".plot").forEach((plot) => plot.classList.toggle("chosen", on && !item.classList.contains("off")));
    };
    item.onclick = () => { toggle(); mark(!item.classList.contains("off")); };
    item.onkeydown = (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); item.onclick(); } };
    item.onpointerenter = item.onfocus = () => mark(true);
    item.onpointerleave = item.onblur = () => mark(false);
  }
})();
