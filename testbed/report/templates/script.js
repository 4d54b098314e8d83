"use strict";
(() => {
  const one = (id) => document.getElementById(id);

  // Theme: automatic, light, dark.
  const theme = one("theme"), order = ["auto", "light", "dark"];
  let kept = null;
  try { kept = localStorage.getItem("theme"); } catch { /* no storage for files in some browsers */ }
  const wear = (name) => {
    if (name === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = name;
    theme.textContent = `Theme: ${name}`;
    theme.dataset.now = name;
  };
  wear(order.includes(kept) ? kept : "auto");
  theme.hidden = false;
  theme.addEventListener("click", () => {
    const next = order[(order.indexOf(theme.dataset.now) + 1) % order.length];
    wear(next);
    try { localStorage.setItem("theme", next); } catch { /* it lasts until the page is left */ }
  });

  // The table of questions: filters and sorting. Without this script it is all there, in the order of the stream.
  const table = one("rows");
  if (!table) return;
  const body = table.tBodies[0], rows = [...body.rows];
  const text = (row, at) => row.cells[at].textContent;
  const find = one("find"), mark = one("mark"), layer = one("layer"), count = one("count");
  const hay = rows.map((row) => row.textContent.toLowerCase());
  const filter = () => {
    const word = find.value.trim().toLowerCase();
    let shown = 0;
    rows.forEach((row, i) => {
      const fits = (!word || hay[i].includes(word)) && (!layer.value || text(row, 5) === layer.value)
        && (!mark.value || (mark.value === "harmed" ? row.classList.contains("harmed") : text(row, 7).split(" ").includes(mark.value)));
      row.hidden = !fits;
      shown += fits;
    });
    count.textContent = `${shown} of ${rows.length} shown`;
  };
  for (const control of [find, mark, layer]) control.addEventListener("input", filter);
  one("filters").addEventListener("submit", (event) => event.preventDefault());
  one("filters").hidden = false;
  filter();

  [...table.tHead.rows[0].cells].forEach((head, at) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = head.textContent;
    head.textContent = "";
    head.append(button);
    button.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const number = (row) => { const value = parseFloat(text(row, at)); return Number.isNaN(value) ? Infinity : value; };
      const by = head.dataset.sort === "number" ? (a, b) => number(a) - number(b) : (a, b) => text(a, at).localeCompare(text(b, at));
      body.append(...[...rows].sort((a, b) => (down ? -1 : 1) * by(a, b)));
    });
  });
})();
