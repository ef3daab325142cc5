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

// A table that is wider than the page says so: on many screens no scroll bar does.
for (const box of document.querySelectorAll(".scroll")) {
  const note = element("p", "More columns to the right: scroll the table sideways.", "about sideways");
  box.after(note);
  const look = () => { note.hidden = box.scrollWidth <= box.clientWidth + 7; }; // its own padding shows no column
  new ResizeObserver(look).observe(box);
  look();
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
