// Score at every value of a setting: all clients, their worst tenth, each client with its choice.
function choiceChart(name, data) {
  const LINES = 300; // clients drawn one by one; of more only the choices and the selected one
  const scores = unpack(data.scores);
  const width = data.values.length;
  const at = (client, place) => scores[client * width + place];
  let selected = -1;
  const named = ["mean over clients", "worst tenth", "choice of a client"];
  const more = (across) => 22 * (legendLines(named.map((one) => one + "      "), across) - 1);
  function make(colours, across) {
    const scaled = (value) => (known(value) ? value * data.scale : "-");
    const client = (who, look) => ({ type: "line", data: data.values.map((_, place) => scaled(at(who, place))), showSymbol: false, silent: true, tooltip: { show: false }, animation: false, ...look });
    const faint = { lineStyle: { color: colours.muted, width: 0.8, opacity: Math.max(0.15, Math.min(0.6, 12 / data.names.length)) } };
    const every = data.names.length <= LINES ? data.names.map((_, who) => client(who, faint)) : [];
    const picked = selected < 0 ? [] : [client(selected, { lineStyle: { color: colours.vermilion, width: 3 }, z: 6,
      endLabel: { show: true, color: colours.ink, formatter: () => shortened(data.names[selected], 18) } })];
    const level = (value, type) => ({ yAxis: scaled(value), lineStyle: { type, color: colours.vermilion } });
    const [least, most] = reach([...scores, ...data.mean, ...data.worst].filter(known).map((value) => value * data.scale));
    const room = 0.04 * (most - least);
    return {
      grid: frame({ right: selected < 0 ? 24 : 110, top: 40 + more(across) }),
      legend: { top: 6, left: 8, selectedMode: false, textStyle: { color: colours.ink }, data: named },
      xAxis: axisLook(colours, { type: "category", data: data.values, name: data.setting, nameGap: 28, boundaryGap: true, axisLabel: { interval: 0, hideOverlap: false, showMinLabel: true, showMaxLabel: true } }),
      yAxis: axisLook(colours, { type: "value", min: least - room, max: most + room, name: data.title, nameGap: 46, axisLabel: { formatter: (value) => String(Number(value.toPrecision(3))) } }),
      tooltip: tip(colours, "axis", (found) => {
        const place = found[0].dataIndex;
        const lines = [data.values[place], `mean ${short(data.mean[place] * data.scale)}, worst tenth ${known(data.worst[place]) ? short(data.worst[place] * data.scale) : NONE}`,
          `${short(data.bytes[place])} bytes sent`, `chosen by ${data.chosen.filter((one) => one === place).length} of ${data.names.length} clients`];
        return selected < 0 ? lines : [...lines, `${data.names[selected]}: ${known(at(selected, place)) ? short(at(selected, place) * data.scale) : NONE}`];
      }),
      series: [
        ...every, ...picked,
        { type: "line", name: "mean over clients", data: data.mean.map(scaled), color: colours.blue, lineStyle: { width: 2.6 }, symbolSize: 7, z: 4,
          markLine: { silent: true, symbol: "none", label: { show: false }, data: [level(data.own[0], "solid"), ...(known(data.own[1]) ? [level(data.own[1], "dashed")] : [])] } },
        { type: "line", name: "worst tenth", data: data.worst.map(scaled), color: colours.blue, lineStyle: { width: 1.5, type: "dashed" }, symbolSize: 5, z: 4 },
        { type: "scatter", name: "choice of a client", color: colours.vermilion, symbolSize: data.names.length > 60 ? 5 : 9, z: 5, tooltip: { show: false },
          data: data.chosen.map((place, who) => [place, scaled(at(who, place)), who]).filter(([, value]) => value !== "-") },
      ],
    };
  }
  const pick = element("select");
  pick.setAttribute("aria-label", "Client to show");
  pick.append(element("option", "every client alike"), ...data.names.map((who) => element("option", who)));
  pick.addEventListener("change", () => { selected = pick.selectedIndex - 1; chart.draw(); });
  const chart = addChart(name, {
    make, controls: [pick], height: (across) => 400 + more(across), heavy: data.names.length > LINES,
    caption: "Test score at every value of the setting. Red lines: what clients get with their own choice, in the mean (solid) and for the worst tenth (dashed). Click a line to follow its client.",
    about: "Red: what clients choose themselves, in the mean (solid) and for their worst tenth (dashed).",
    click: (chart, x, y) => {
      const [across, score] = chart.plot.convertFromPixel({ gridIndex: 0 }, [x, y]);
      const place = Math.max(0, Math.min(width - 1, Math.round(across)));
      const far = (who) => { const value = at(who, place) * data.scale - score; return known(value) ? Math.abs(value) : Infinity; };
      selected = data.names.reduce((best, _, who) => (far(who) < far(best) ? who : best), 0);
      pick.selectedIndex = selected + 1;
      chart.draw();
    },
    rows: () => [["client", "chosen", ...data.values], ...data.names.map((who, place) => [who, data.values[data.chosen[place]], ...data.values.map((_, value) => at(place, value))])],
  });
}
