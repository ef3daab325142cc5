// Expected gain of every client over training alone, sorted, with its interval; a click selects a client.
function gainChart(name) {
  const NAMED = 40; // clients that can have their names beside them
  const { shown, signed } = writer(page.score);
  const compared = () => clients.methods.map((of, place) => [of, place])
    .filter(([of]) => of.gain.some((value) => known(value) && value !== 0));
  if (!compared().length) return;
  if (!compared().some(([, place]) => place === looked.method)) looked.method = compared()[0][1];
  // where rows stayed at the sites of a deployment, gains are known by scores alone
  const judged = clients.methods.some((of) => of.low.some(known));
  const gainWords = judged ? "expected gain" : "gain";
  let order = [];
  const sortAnew = () => {
    const of = clients.methods[looked.method];
    order = of.members.filter((client) => known(of.gain[client])).sort((a, b) => of.gain[a] - of.gain[b]);
  };
  sortAnew();
  const named = () => order.length <= NAMED;

  const words = (client) => {
    const of = clients.methods[looked.method];
    const interval = known(of.low[client]) ? ` [${signed(of.low[client])}, ${signed(of.high[client])}]` : "";
    return [
      clients.names[client],
      `${gainWords} ${signed(of.gain[client])}${interval}${of.verdict[client] ? `, ${of.verdict[client]}` : ""}`,
      `alone ${shown(of.alone[client])}, personal ${shown(of.personal[client])}`,
      `${known(of.rows[client]) ? Math.round(of.rows[client]) : NONE} training rows`,
    ];
  };

  function ring() {
    const at = order.indexOf(looked.client);
    if (at < 0) return [];
    const gain = clients.methods[looked.method].gain[looked.client] * page.score.scale;
    return [[...(named() ? [gain, at] : [at, gain]), looked.client]];
  }

  function make(colours, width) {
    const of = clients.methods[looked.method];
    const scale = page.score.scale;
    const flat = named();
    const point = (gain, rank) => (flat ? [gain * scale, rank] : [rank, gain * scale]);
    const size = Math.max(3, Math.min(9, (flat ? 300 : width) / order.length));
    const bars = order.flatMap((client, rank) =>
      known(of.low[client]) ? [point(of.low[client], rank), point(of.high[client], rank), flat ? ["-", rank] : [rank, "-"]] : []);
    // a series per verdict: thousands of dots with a look of their own would be slow
    const kinds = ["helped", "hurt", "unclear", "same", ""].map((verdict) => ({
      type: "scatter", id: "dots" + verdict, name: verdict, symbolSize: size, symbol: verdictMarks[verdict], itemStyle: { color: colours[verdict] },
      large: order.length > 1000, largeThreshold: 1, progressive: 0, cursor: "pointer", z: 4,
      data: order.map((client, rank) => [...point(of.gain[client], rank), client]).filter(([, , client]) => of.verdict[client] === verdict),
    }));
    const ends = order.flatMap((client) => [of.gain[client], of.low[client], of.high[client]]).map((value) => value * scale);
    // every dot is seen; intervals that are many times as long may leave the frame
    const gained = order.map((client) => of.gain[client] * scale);
    const inner = reach([...ends, 0]);
    const [least, most] = [Math.min(inner[0], gained[0]), Math.max(inner[1], gained[gained.length - 1])];
    const room = 0.04 * (most - least);
    const gains = axisLook(colours, {
      type: "value", min: least - room, max: most + room, name: `${gainWords} over training alone, ${page.score.title}`,
      nameGap: flat ? 26 : 44, axisLabel: { formatter: (value) => signed(value / scale) },
    });
    const ranks = axisLook(colours, {
      type: "value", min: -1, max: order.length, splitLine: { show: false },
      name: flat ? "" : `${order.length} clients, from the largest loss to the largest gain`, nameGap: 26,
      ...(flat ? { interval: 1 } : {}),
      axisLabel: {
        hideOverlap: !flat,
        formatter: (rank) => (!flat ? (rank < 0 || rank >= order.length ? "" : String(Math.round(rank) + 1))
          : Number.isInteger(rank) && order[rank] !== undefined ? shortened(clients.names[order[rank]], letters(width, 24)) : ""),
      },
    });
    return {
      grid: frame({ right: 18, bottom: order.length > 200 ? 34 : 8 }),
      xAxis: flat ? gains : ranks,
      yAxis: flat ? ranks : gains,
      dataZoom: order.length > 200
        ? [{ type: "slider", bottom: 8, height: 16, filterMode: "none", showDataShadow: false, showDetail: false, borderColor: colours.line,
             fillerColor: colours.line, handleStyle: { borderColor: colours.muted, color: colours.card } }] : [],
      tooltip: tip(colours, "axis", (found) => words(found[0].value[2]), {
        axisPointer: { type: "line", axis: flat ? "y" : "x", snap: true, label: { show: false }, lineStyle: { color: colours.muted } },
      }),
      series: [
        { type: "line", id: "intervals", data: bars, showSymbol: false, silent: true, tooltip: { show: false },
          z: 2,
          // where many lie upon one another they must not hide the dots
          lineStyle: { color: order.length > 300 ? colours.line : colours.muted, width: Math.max(0.6, Math.min(2, 80 / order.length)), opacity: order.length > 300 ? 1 : 0.5 },
          markLine: { silent: true, symbol: "none", label: { show: false }, lineStyle: { color: colours.ink, type: "solid", width: 1, opacity: 1 },
                      data: [flat ? { xAxis: 0 } : { yAxis: 0 }] } },
        ...kinds,
        { type: "scatter", id: "ring", data: ring(), symbolSize: size + 9, silent: true, tooltip: { show: false }, z: 5,
          itemStyle: { color: "transparent", borderColor: colours.ink, borderWidth: 2.5 },
          label: { show: true, position: flat ? "right" : "top", color: colours.ink, fontWeight: "bold",
                   formatter: (found) => shortened(clients.names[found.value[2]], 30) } },
      ],
    };
  }

  const method = element("select");
  method.setAttribute("aria-label", "Method of the figure");
  for (const [of, place] of compared()) {
    const option = element("option", of.method);
    option.value = place;
    method.append(option);
  }
  method.value = String(looked.method);
  method.addEventListener("change", () => look({ method: Number(method.value) }));

  const chart = addChart(name, {
    make,
    controls: [method],
    heavy: clients.names.length > 1500,
    height: () => (named() ? 90 + 19 * Math.max(order.length, 4) : 380),
    caption: (judged
      ? "Each dot is a client, averaged over seeds: what it can expect to gain over training alone, with its 95 % interval. "
        + `Blue: helped; orange diamonds: hurt; grey: unclear; grey squares: the same, ${page.words.same}. `
      : `Each dot is a client, averaged over seeds: what it gains over training alone by its test score. ${page.words.no_intervals} `)
      + "Click a client to select it here, in the table and in the other figures.",
    about: "Arrow keys move from client to client; Escape lets go.",
    rows: () => {
      const of = clients.methods[looked.method];
      const head = ["method", "client", "expected_gain", "low", "high", "verdict", "alone", "personal", "training_rows"];
      return [head, ...order.map((client) => [of.method, clients.names[client], of.gain[client], of.low[client], of.high[client],
        of.verdict[client], of.alone[client], of.personal[client], of.rows[client]])];
    },
    click: (chart, across, up) => {
      if (!chart.plot.containPixel({ gridIndex: 0 }, [across, up])) return;
      const rank = Math.round(chart.plot.convertFromPixel({ gridIndex: 0 }, [across, up])[named() ? 1 : 0]);
      const client = order[Math.max(0, Math.min(order.length - 1, rank))];
      look({ client: client === looked.client ? null : client });
    },
    key: (pressed) => {
      const at = order.indexOf(looked.client);
      const last = order.length - 1;
      const to = { ArrowRight: at + 1, ArrowUp: at + 1, ArrowLeft: at < 0 ? last : at - 1, ArrowDown: at < 0 ? last : at - 1,
                   Home: 0, End: last }[pressed];
      if (pressed === "Escape") look({ client: null });
      else if (to === undefined) return false;
      else look({ client: order[Math.max(0, Math.min(last, to))] });
      return true;
    },
  });
  looked.hearing.push((change) => {
    if ("method" in change) sortAnew();
    method.value = String(looked.method);
    const there = looked.client !== null && clients.methods[looked.method].members.includes(looked.client);
    chart.said.textContent = there ? words(looked.client).join("; ") + "." : "";
    if ("method" in change) chart.draw();
    else chart.plot.setOption({ series: [{ id: "ring", data: ring() }] });
  });
}
