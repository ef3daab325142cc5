"use strict";
// A value is a number where both cells have one; words sort by their letters, and what is absent goes last.
function order(left, right, way) {
  const none = (value) => value === null || value === "";
  if (none(left) || none(right)) return none(left) - none(right);
  if (typeof left === "number" && typeof right === "number") return way * (left - right);
  return way * String(left).localeCompare(String(right), "en", { numeric: true });
}

function mark(head, chosen, way) {
  for (const cell of head) cell.removeAttribute("aria-sort");
  chosen.setAttribute("aria-sort", way > 0 ? "ascending" : "descending");
}

// Numbers open with the largest on top, words with the first letter.
function nextWay(cell) {
  const now = cell.getAttribute("aria-sort");
  if (now) return now === "ascending" ? -1 : 1;
  return cell.dataset.kind === "words" ? 1 : -1;
}

for (const table of document.querySelectorAll("table.sortable")) {
  const head = [...table.tHead.rows[0].cells];
  head.forEach((cell, place) => {
    cell.querySelector("button").addEventListener("click", () => {
      const way = nextWay(cell);
      const value = (row) => {
        const text = row.cells[place].dataset.value;
        return text === "" ? null : cell.dataset.kind === "words" ? text : Number(text);
      };
      const rows = [...table.tBodies[0].rows].sort((a, b) => order(value(a), value(b), way));
      table.tBodies[0].append(...rows);
      mark(head, cell, way);
    });
  });
}

const data = JSON.parse(document.getElementById("client-data").textContent);
const table = document.getElementById("client-table");
if (table && data.methods.length) {
  const LIMIT = data.limit;
  const [NAME, TRAIN, ALONE, SHARED, PERSONAL, GAIN, LOW, HIGH, VERDICT, HELD_OUT] = Array(10).keys();
  const head = [...table.tHead.rows[0].cells];
  const search = document.getElementById("client-search");
  const method = document.getElementById("client-method");
  const verdicts = [...document.querySelectorAll("[data-verdict]")];
  const count = document.getElementById("client-count");
  const more = document.getElementById("client-more");
  const state = { method: data.shown, verdict: "", column: GAIN, way: 1, all: false };

  const shown = (value) => {
    if (value === null) return "\u2013";
    const scaled = value * data.scale;
    return data.decimals === null ? String(Number(scaled.toPrecision(4))) : scaled.toFixed(data.decimals);
  };
  const signed = (value) => {
    const text = shown(value);
    if (value === null || Number(text) === 0) return text.replace("-", "");
    return value > 0 ? "+" + text : text.replace("-", "\u2212");
  };
  const element = (name, text, className) => {
    const made = document.createElement(name);
    if (text !== undefined) made.textContent = text; // never as HTML: names are the user's
    if (className) made.className = className;
    return made;
  };

  function gauge(row, [least, most]) {
    const box = element("span", undefined, "gauge " + row[VERDICT]);
    box.setAttribute("aria-hidden", "true");
    const at = (value) => (100 * (value - least)) / (most - least);
    const zero = element("u");
    zero.style.left = at(0) + "%";
    box.append(zero);
    if (row[LOW] !== null && row[HIGH] !== null) {
      const bar = element("i");
      bar.style.left = at(row[LOW]) + "%";
      bar.style.width = at(row[HIGH]) - at(row[LOW]) + "%";
      box.append(bar);
    }
    const dot = element("b");
    dot.style.left = at(row[GAIN]) + "%";
    box.append(dot);
    return box;
  }

  function line(row, reach) {
    const made = element("tr");
    const name = element("th", row[NAME]);
    name.scope = "row";
    if (row[HELD_OUT]) name.append(" ", element("small", "new"));
    made.append(name, element("td", row[TRAIN] === null ? "\u2013" : String(row[TRAIN])));
    for (const column of [ALONE, SHARED, PERSONAL]) made.append(element("td", shown(row[column])));
    const gain = element("td", signed(row[GAIN]));
    if (row[LOW] !== null && row[HIGH] !== null)
      gain.append(" ", element("small", `[${signed(row[LOW])}, ${signed(row[HIGH])}]`));
    const picture = element("td");
    if (row[GAIN] !== null) picture.append(gauge(row, reach));
    made.append(gain, picture, element("td", row[VERDICT] || "\u2013", "words " + row[VERDICT]));
    return made;
  }

  const clients = (number) => (number === 1 ? "1 client" : `${number} clients`);

  function draw() {
    const rows = data.methods[state.method].rows;
    const wanted = search.value.trim().toLowerCase();
    const found = rows.filter((row) => !wanted || row[NAME].toLowerCase().includes(wanted));
    for (const button of verdicts) {
      const kind = button.dataset.verdict;
      const number = kind ? found.filter((row) => row[VERDICT] === kind).length : found.length;
      button.textContent = `${kind || "all"} ${number}`;
      button.setAttribute("aria-pressed", String(kind === state.verdict));
    }
    const kept = found.filter((row) => !state.verdict || row[VERDICT] === state.verdict);
    kept.sort((a, b) => order(a[state.column], b[state.column], state.way));
    const visible = state.all ? kept : kept.slice(0, LIMIT);
    const ends = rows.flatMap((row) => [row[GAIN], row[LOW], row[HIGH]]).filter((value) => value !== null);
    const least = ends.reduce((low, value) => Math.min(low, value), 0);
    const most = ends.reduce((high, value) => Math.max(high, value), 0);
    const reach = least < most ? [least, most] : [-1, 1];
    table.tBodies[0].replaceChildren(...visible.map((row) => line(row, reach)));
    const fresh = rows.filter((row) => row[HELD_OUT]).length;
    count.textContent = fresh
      ? `${visible.length} shown of ${clients(rows.length - fresh)} and ${fresh} new`
      : `${visible.length} of ${clients(rows.length)} shown`;
    more.hidden = visible.length === kept.length;
    more.textContent = `Show all ${kept.length}`;
  }

  head.forEach((cell) => {
    const button = cell.querySelector("button");
    if (!button) return;
    button.addEventListener("click", () => {
      state.column = Number(cell.dataset.column);
      state.way = nextWay(cell);
      mark(head, cell, state.way);
      draw();
    });
  });
  search.addEventListener("input", draw);
  method.addEventListener("change", () => { state.method = Number(method.value); draw(); });
  for (const button of verdicts)
    button.addEventListener("click", () => { state.verdict = button.dataset.verdict; draw(); });
  more.addEventListener("click", () => { state.all = true; draw(); });
  document.getElementById("client-controls").hidden = false;
  mark(head, head.find((cell) => Number(cell.dataset.column) === GAIN), 1);
  draw();
}
document.documentElement.dataset.ready = "yes";
