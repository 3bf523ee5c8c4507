"use strict";
// What a page does beside being read: tables are sorted, curves named where they are pointed at, hidden and brought out.
(function () {
  document.documentElement.classList.add("script");
  for (const table of document.querySelectorAll("table")) sortable(table);
  for (const plot of document.querySelectorAll(".plot")) readable(plot);
  for (const item of document.querySelectorAll(".legend li[data-name]")) choosable(item);

  for (const input of document.querySelectorAll(".axes > input")) kept(input);
  if (document.body.dataset.live) setInterval(follow, 2000);

  // A page that is served comes again when something was written; what was chosen stays chosen.
  function follow() {
    fetch("state").then((answer) => answer.ok ? answer.text() : document.body.dataset.live).then((state) => {
      if (state !== document.body.dataset.live) location.reload();
    }).catch(() => {});
  }

  function kept(input) {
    const key = "axis " + input.name;
    try {
      if (sessionStorage.getItem(key) === input.id) input.checked = true;
      input.onchange = () => sessionStorage.setItem(key, input.id);
    } catch (nothing) { /* a file may keep nothing */ }
  }

  function sortable(table) {
    table.querySelectorAll("thead th").forEach((head, column) => {
      const button = document.createElement("button");
      button.append(...head.childNodes);
      head.append(button);
      button.onclick = () => {
        const up = head.getAttribute("aria-sort") !== "ascending";
        table.querySelectorAll("th").forEach((each) => each.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", up ? "ascending" : "descending");
        const body = table.tBodies[0], rows = [...body.rows];
        const of = (row) => row.cells[column].dataset.value;
        rows.sort((one, other) => {
          const a = of(one), b = of(other);
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

  function readable(plot) {
    const area = plot.querySelector(".area"), told = document.createElement("div"), cross = document.createElement("div");
    const range = plot.dataset, lines = [...plot.querySelectorAll("path.line")];
    told.className = "told"; cross.className = "cross"; told.hidden = cross.hidden = true;
    area.append(cross, told);
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
      near.sort((one, other) => one[0] - other[0]);
      told.hidden = cross.hidden = !near.length;
      if (!near.length) return;
      const low = Number(range.x0), high = Number(range.x1), at = near[0][1][0] / 1000;
      const place = range.log ? low * Math.pow(high / low, at) : low + at * (high - low);
      const loss = (v) => Number(range.y1) - v / 1000 * (range.y1 - range.y0);
      told.textContent = "";
      told.append(`${range.label}: ${number(place, high - low)}`);
      for (const each of near.slice(0, 6)) {
        const line = document.createElement("div");
        line.textContent = `${number(loss(each[1][1]), 0)}  ${each[2]}`;
        told.append(line);
      }
      cross.style.left = at * 100 + "%";
      told.style.left = at < 0.5 ? `calc(${at * 100}% + .6rem)` : "auto";
      told.style.right = at < 0.5 ? "auto" : `calc(${100 - at * 100}% + .6rem)`;
    });
    area.addEventListener("pointerleave", () => { told.hidden = cross.hidden = true; });
  }

  function choosable(item) {
    const name = item.dataset.name, place = item.closest("section") || document;
    const own = () => [...place.querySelectorAll("path[data-name]")].filter((path) => path.dataset.name === name);
    item.tabIndex = 0;
    const toggle = () => { const off = item.classList.toggle("off"); own().forEach((path) => path.classList.toggle("hidden", off)); };
    const mark = (on) => {
      own().forEach((path) => path.classList.toggle("on", on));
      place.querySelectorAll(".plot").forEach((plot) => plot.classList.toggle("chosen", on && !item.classList.contains("off")));
    };
    item.onclick = () => { toggle(); mark(!item.classList.contains("off")); };
    item.onkeydown = (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); item.onclick(); } };
    item.onpointerenter = item.onfocus = () => mark(true);
    item.onpointerleave = item.onblur = () => mark(false);
  }
})();
