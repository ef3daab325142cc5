// One method's clients: searched, filtered, sorted; a click on a row selects its client everywhere.
const clients = page.clients && page.clients.methods.length ? readClients(page.clients) : null;

function readClients(data) {
  const columns = data.columns.map(unpack);
  const fresh = new Set(data.fresh);
  const nothing = new Float32Array(data.names.length).fill(NaN);
  const methods = data.methods.map((one) => {
    const column = (key) => (one[key] === null ? nothing : columns[one[key]]);
    const own = { method: one.method, colour: one.colour, members: [] };
    for (const key of ["rows", "alone", "shared", "personal", "gain", "low", "high"]) own[key] = column(key);
    own.verdict = [...one.verdict].map((letter) => data.verdicts[letter] || "");
    [...one.verdict].forEach((letter, client) => { if (letter !== " ") own.members.push(client); });
    return own;
  });
  return { names: data.names, fresh, methods, limit: data.limit };
}

function clientTable(table) {
  const KEYS = ["names", "rows", "alone", "shared", "personal", "gain", null, null, "verdict"];
  const { shown, signed } = writer(page.score);
  const head = [...table.tHead.rows[0].cells];
  const search = document.getElementById("client-search");
  const method = document.getElementById("client-method");
  const verdicts = [...document.querySelectorAll("[data-verdict]")];
  const count = document.getElementById("client-count");
  const more = document.getElementById("client-more");
  const state = { verdict: "", column: 5, way: 1, all: false };
  const lowered = clients.names.map((name) => name.toLowerCase());

  function gauge(of, client, [least, most]) {
    const box = element("span", undefined, "gauge " + of.verdict[client]);
    box.setAttribute("aria-hidden", "true");
    const at = (value) => (100 * (value - least)) / (most - least);
    const zero = element("u");
    zero.style.left = at(0) + "%";
    box.append(zero);
    if (known(of.low[client]) && known(of.high[client])) {
      const bar = element("i");
      bar.style.left = at(of.low[client]) + "%";
      bar.style.width = at(of.high[client]) - at(of.low[client]) + "%";
      box.append(bar);
    }
    const dot = element("b");
    dot.style.left = at(of.gain[client]) + "%";
    box.append(dot);
    return box;
  }

  function line(of, client, reach) {
    const made = element("tr");
    made.dataset.client = client;
    const name = element("th");
    name.scope = "row";
    const button = element("button", clients.names[client], "pick");
    button.type = "button";
    name.append(button);
    if (clients.fresh.has(client)) name.append(" ", element("small", "new"));
    made.append(name, element("td", known(of.rows[client]) ? String(Math.round(of.rows[client])) : NONE));
    for (const key of ["alone", "shared", "personal"]) made.append(element("td", shown(of[key][client])));
    const gain = element("td", signed(of.gain[client]));
    if (known(of.low[client]) && known(of.high[client]))
      gain.append(" ", element("small", `[${signed(of.low[client])}, ${signed(of.high[client])}]`));
    const picture = element("td");
    if (known(of.gain[client])) picture.append(gauge(of, client, reach));
    made.append(gain, picture, element("td", of.verdict[client] || NONE, "words " + of.verdict[client]));
    return made;
  }

  const counted = (number) => (number === 1 ? "1 client" : `${number} clients`);

  function values(of) {
    const key = KEYS[state.column];
    const column = key === "names" ? clients.names : of[key];
    return (client) => (known(column[client]) ? column[client] : null);
  }

  function draw() {
    const of = clients.methods[looked.method];
    const wanted = search.value.trim().toLowerCase();
    const found = wanted ? of.members.filter((client) => lowered[client].includes(wanted)) : of.members;
    for (const button of verdicts) {
      const kind = button.dataset.verdict;
      const number = kind ? found.filter((client) => of.verdict[client] === kind).length : found.length;
      button.textContent = `${kind || "all"} ${number}`;
      button.setAttribute("aria-pressed", String(kind === state.verdict));
    }
    const value = values(of);
    const kept = found.filter((client) => !state.verdict || of.verdict[client] === state.verdict);
    kept.sort((a, b) => order(value(a), value(b), state.way));
    const visible = state.all ? kept : kept.slice(0, clients.limit);
    if (kept.includes(looked.client) && !visible.includes(looked.client)) visible.unshift(looked.client);
    const reach = [0, 0];
    for (const client of of.members)
      for (const end of [of.gain[client], of.low[client], of.high[client]])
        if (known(end)) { reach[0] = Math.min(reach[0], end); reach[1] = Math.max(reach[1], end); }
    const ends = reach[0] < reach[1] ? reach : [-1, 1];
    table.tBodies[0].replaceChildren(...visible.map((client) => line(of, client, ends)));
    const fresh = of.members.filter((client) => clients.fresh.has(client)).length;
    count.textContent = fresh
      ? `${visible.length} shown of ${counted(of.members.length - fresh)} and ${fresh} new`
      : `${visible.length} of ${counted(of.members.length)} shown`;
    more.hidden = visible.length >= kept.length;
    more.textContent = `Show all ${kept.length}`;
    showSelected();
  }

  function showSelected() {
    for (const row of table.tBodies[0].rows) {
      const selected = Number(row.dataset.client) === looked.client;
      row.classList.toggle("selected", selected);
      row.querySelector(".pick").setAttribute("aria-pressed", String(selected));
    }
  }

  table.tBodies[0].addEventListener("click", (event) => {
    const row = event.target.closest("tr");
    const client = Number(row.dataset.client);
    look({ client: client === looked.client ? null : client });
  });
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
  method.addEventListener("change", () => look({ method: Number(method.value) }));
  for (const button of verdicts)
    button.addEventListener("click", () => { state.verdict = button.dataset.verdict; draw(); });
  more.addEventListener("click", () => { state.all = true; draw(); });
  looked.hearing.push((change) => {
    method.value = String(looked.method);
    const there = [...table.tBodies[0].rows].some((row) => Number(row.dataset.client) === looked.client);
    if ("method" in change || (looked.client !== null && !there)) draw();
    else showSelected();
  });
  document.getElementById("client-controls").hidden = false;
  mark(head, head.find((cell) => Number(cell.dataset.column) === state.column), state.way);
  draw();
}
