// Who learns with whom: as a graph, as a table of weights, and what each client may expect of it.
function mapChart(name, data) {
  const state = { view: 0, client: -1, byGroup: false };
  const [gain, low, high] = [data.gain, data.low, data.high].map(unpack);
  const weights = data.weights && { ...data.weights, across: unpack(data.weights.across), up: unpack(data.weights.up), share: unpack(data.weights.share) };
  const order = data.names.map((_, client) => client).sort((a, b) => (gain[a] || 0) - (gain[b] || 0));
  const percent = (share) => `${(100 * share).toFixed(1)} %`;
  const { signed } = writer({ scale: data.scale, decimals: null });
  const groups = [...new Set(data.groups)].sort((a, b) => a - b);
  const fills = ["blue", "vermilion", "green", "purple", "sky", "brown", "wine"].map((name) => `var(--${name})`);
  const advices = ["var(--muted)", "var(--green)", "var(--blue)"]; // of the ways, in their order
  const tint = (colours, client) => {
    if (!state.byGroup) return colour(advices[data.advice[client]]);
    return colour(fills[groups.indexOf(data.groups[client]) % fills.length]);
  };

  function words(client) {
    const lines = [data.names[client], `advice: ${data.ways[data.advice[client]]}; group ${data.groups[client]}; ${data.rows[client]} rows`,
      `expected gain ${signed(gain[client])}${known(low[client]) ? ` [${signed(low[client])}, ${signed(high[client])}]` : ""}`];
    if (!weights) return lines;
    const from = weights.of.map((of, place) => [of, weights.whose[place], weights.share[place]]).filter(([of, whose]) => of === client && whose !== client);
    from.sort((a, b) => b[2] - a[2]);
    return [...lines, ...from.slice(0, 6).map(([, whose, share]) => `${data.names[whose]}: ${percent(share)}`)];
  }

  function graph(colours) {
    const both = new Map();
    weights.of.forEach((of, place) => {
      const whose = weights.whose[place];
      if (of === whose || weights.share[place] < 0.02) return;
      const pair = of < whose ? `${of} ${whose}` : `${whose} ${of}`;
      both.set(pair, Math.max(both.get(pair) || 0, weights.share[place]));
    });
    const most = Math.max(...data.rows, 1);
    const spot = (client) => [weights.across[client], weights.up[client]];
    // lines of like strength are one series: thousands of single ones would be slow
    const strengths = [0.02, 0.05, 0.12, 0.3, 2];
    const edges = strengths.slice(0, -1).map((from, step) => {
      const pairs = [...both].filter(([, share]) => share >= from && share < strengths[step + 1]).map(([pair]) => pair.split(" ").map(Number));
      return { type: "line", showSymbol: false, silent: true, tooltip: { show: false }, lineStyle: { color: colours.muted, width: 0.5 + 1.4 * step, opacity: 0.45 },
        data: pairs.flatMap(([one, other]) => [spot(one), spot(other), ["-", "-"]]) };
    });
    const hide = { show: false };
    const reachOf = (values) => { const ends = [Math.min(...values), Math.max(...values)]; const room = 0.08 * (ends[1] - ends[0]) || 1; return { min: ends[0] - room, max: ends[1] + room }; };
    return {
      xAxis: { type: "value", ...reachOf(weights.across), axisLine: hide, axisTick: hide, axisLabel: hide, splitLine: hide },
      yAxis: { type: "value", ...reachOf(weights.up), axisLine: hide, axisTick: hide, axisLabel: hide, splitLine: hide },
      grid: { left: 20, right: 20, top: 20, bottom: 12 },
      tooltip: tip(colours, "item", (found) => words(found.value[2])),
      series: [...edges, {
        type: "scatter", z: 4, cursor: "pointer",
        data: data.names.map((_, client) => ({ value: [...spot(client), client], symbolSize: (data.names.length > 60 ? 5 : 9) + 16 * Math.sqrt(data.rows[client] / most) * Math.min(1, 60 / data.names.length),
          itemStyle: { color: tint(colours, client), borderColor: client === state.client ? colours.ink : colours.card, borderWidth: client === state.client ? 3 : 1 } })),
        label: { show: true, position: "top", color: colours.ink, fontSize: 11, formatter: (found) => (data.names.length <= 60 || found.value[2] === state.client ? shortened(data.names[found.value[2]], 16) : "") },
        labelLayout: { hideOverlap: true },
      }],
    };
  }

  function heat(colours, width) {
    const ranks = [];
    weights.order.forEach((client, rank) => { ranks[client] = rank; });
    const number = data.names.length;
    const label = { formatter: (rank) => (weights.order[rank] === undefined ? "" : shortened(data.names[weights.order[rank]], 16)), fontSize: number > 30 ? 9 : 11, hideOverlap: true };
    const axis = (rest) => axisLook(colours, { type: "value", min: -1, max: number, interval: number > 60 ? Math.ceil(number / 30) : 1, splitLine: { show: false }, ...rest });
    const cell = [Math.max(2, (width - 140) / (number + 1) - 1), Math.max(2, (heatHigh() - 142) / (number + 1) - 1)];
    return {
      grid: { left: 120, right: 20, top: 12, bottom: 130 },
      xAxis: axis({ name: "whose rows count", nameGap: 104, axisLabel: { ...label, rotate: 90 } }),
      yAxis: axis({ inverse: true, name: "for whom", nameGap: 100, axisLabel: label }),
      tooltip: tip(colours, "item", (found) => [`for ${data.names[found.value[2]]}`, `${data.names[found.value[3]]} counts ${percent(found.value[4])}`]),
      series: [{
        type: "scatter", symbol: "rect", symbolSize: cell, progressive: 0,
        data: weights.of.map((of, place) => {
          const whose = weights.whose[place];
          const chosen = of === state.client || whose === state.client;
          return { value: [ranks[whose], ranks[of], of, whose, weights.share[place]],
            itemStyle: { color: chosen ? colours.vermilion : colours.blue, opacity: Math.max(0.06, Math.sqrt(weights.share[place])) } };
        }),
      }],
    };
  }

  const heatHigh = () => Math.max(420, Math.min(900, 170 + 16 * data.names.length));
  const named = data.names.length <= 40;

  function gains(colours, width) {
    const point = (value, rank) => (named ? [value * data.scale, rank] : [rank, value * data.scale]);
    const bars = order.flatMap((client, rank) => (known(low[client]) ? [point(low[client], rank), point(high[client], rank), named ? ["-", rank] : [rank, "-"]] : []));
    const ends = reach([...gain, ...low, ...high, 0].filter(known).map((value) => value * data.scale));
    const room = 0.05 * (ends[1] - ends[0]);
    const values = axisLook(colours, { type: "value", name: data.title + " over training alone", nameGap: named ? 28 : 46, min: ends[0] - room, max: ends[1] + room,
      axisLabel: { formatter: (value) => signed(value / data.scale) } });
    const ranks = axisLook(colours, { type: "value", min: -1, max: order.length, splitLine: { show: false }, ...(named ? { interval: 1 } : { name: `${order.length} clients`, nameGap: 28 }),
      axisLabel: { hideOverlap: !named, formatter: (rank) => (named ? (order[rank] === undefined ? "" : shortened(data.names[order[rank]], letters(width, 24))) : String(Math.max(0, Math.round(rank)))) } });
    return {
      grid: frame({ right: 20, top: 12 }),
      xAxis: named ? values : ranks,
      yAxis: named ? ranks : values,
      tooltip: tip(colours, "axis", (found) => words(found[0].value[2]), { axisPointer: { type: "line", axis: named ? "y" : "x", snap: true, label: { show: false } } }),
      series: [
        { type: "line", data: bars, showSymbol: false, silent: true, tooltip: { show: false }, lineStyle: { color: colours.muted, width: named ? 2 : 0.8, opacity: 0.5 } },
        { type: "scatter", symbolSize: named ? 9 : 5, progressive: 0,
          data: order.map((client, rank) => ({ value: [...point(gain[client], rank), client], itemStyle: { color: tint(colours, client), borderColor: client === state.client ? colours.ink : "transparent", borderWidth: 2.5 } })),
          markLine: { silent: true, symbol: "none", label: { show: false }, lineStyle: { color: colours.ink, type: "solid" }, data: [named ? { xAxis: 0 } : { yAxis: 0 }] } },
      ],
    };
  }

  const views = weights ? [["graph", graph], ["table of weights", heat], ["expected gains", gains]] : [["expected gains", gains]];
  const pick = element("select");
  pick.setAttribute("aria-label", "Client to show");
  pick.append(element("option", "no client selected"), ...data.names.map((who) => element("option", who)));
  const show = (client) => {
    state.client = client;
    pick.selectedIndex = client + 1;
    chart.said.textContent = client < 0 ? "" : words(client).join("; ") + ".";
    markRow(client < 0 ? null : data.names[client]);
    chart.draw();
  };
  pick.addEventListener("change", () => show(pick.selectedIndex - 1));
  const controls = [choices("View", views.map(([label]) => label), 0, (place) => { state.view = place; chart.draw(); }),
    choices("Colour", ["by advice", "by group"], 0, (place) => { state.byGroup = place === 1; showLegend(); chart.draw(); }), pick];
  const legend = element("div", undefined, "legend plain");
  function showLegend() {
    const counted = (group) => data.groups.filter((one) => one === group).length;
    const entries = state.byGroup ? groups.slice(0, fills.length).map((group, place) => [fills[place], `group ${group}: ${counted(group)}`])
      : data.ways.map((way, place) => [advices[place], way]);
    legend.replaceChildren(...entries.map(([tinted, text]) => {
      const entry = element("span");
      const swatch = element("i");
      swatch.style.background = tinted;
      entry.append(swatch, text);
      return entry;
    }));
  }
  showLegend();
  controls.push(legend);
  const chart = addChart(name, {
    make: (colours, width) => views[state.view][1](colours, width),
    controls,
    height: () => (views[state.view][0] === "graph" ? 480 : views[state.view][0] === "table of weights" ? heatHigh() : named ? 90 + 19 * order.length : 400),
    heavy: data.names.length > 300,
    caption: "The graph: lines join clients that count for one another, thicker the more; dots are as large as a client's rows. The table of weights: whose rows count for whom. Click a client to select it.",
    about: "The buttons above switch between a graph, the table of weights and the expected gains.",
    rows: () => weights && state.view < 2
      ? [["client", "whose", "share"], ...weights.of.map((of, place) => [data.names[of], data.names[weights.whose[place]], weights.share[place]])]
      : [["client", "advice", "group", "rows", "expected_gain", "low", "high"], ...order.map((client) => [data.names[client], data.ways[data.advice[client]], data.groups[client], data.rows[client], gain[client], low[client], high[client]])],
  });
  chart.plot.on("click", (found) => {
    const client = found.value && found.value[2];
    if (Number.isInteger(client)) show(client === state.client ? -1 : client);
  });
}

// The row of a plain table that names the client.
function markRow(name) {
  for (const row of document.querySelectorAll("#clients table.sortable tbody tr"))
    row.classList.toggle("selected", name !== null && row.cells[0].dataset.value === name);
}
