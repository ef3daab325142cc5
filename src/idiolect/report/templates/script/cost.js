// Score, or distance from the optimum, while rounds, bytes, gradients or modelled seconds are spent.
function costChart(name, data) {
  const WIDE = 20; // of costs: the factor beyond which a logarithmic scale shows more
  const STEEP = 4; // of scores
  const state = { cost: 0, statistic: 0, hidden: new Set() };
  let lines = data.lines.map(read);

  function read(line) {
    return { ...line, costs: line.costs.map(unpack), values: line.values.map(unpack), band: line.band && line.band.map(unpack) };
  }

  const ratio = (values) => {
    const [least, most] = reach(values.map(Math.log));
    return Math.exp(most - least);
  };
  const seen = () => lines.filter((line) => !state.hidden.has(line.method) && line.values[state.statistic]);

  function make(colours, width, still) {
    const shown = seen();
    const calm = shown.filter((line) => !line.diverged);
    const all = (calm.length ? calm : shown).flatMap((line) => [...line.values[state.statistic]]).filter(known).map((value) => value * data.scale);
    const spent = shown.flatMap((line) => [...line.costs[state.cost]]).filter((value) => value > 0);
    const wide = spent.length > 0 && Math.max(...spent) / Math.min(...spent) > WIDE;
    const steep = all.length > 0 && Math.min(...all) > 0 && ratio(all) > STEEP;
    const [least, most] = steep ? reach(all.map(Math.log)).map(Math.exp) : reach(all);
    const room = steep ? (most / least) ** 0.05 : 0.05 * (most - least);
    const paid = (line) => line.costs[state.cost].some((value) => value > 0);
    const farthest = spent.length ? Math.max(...spent) : 1;
    const nearest = spent.length ? Math.min(...spent) : 0.1;
    const ticks = (log, from, to) => (log ? { customValues: logTicks(from, to), showMinLabel: true, showMaxLabel: true } : {});
    return {
      grid: frame({ right: 24, top: still ? 46 : 14 }),
      legend: { show: Boolean(still), top: 6, textStyle: { color: colours.ink }, selectedMode: false, data: shown.map((line) => line.method) },
      xAxis: axisLook(colours, {
        type: wide ? "log" : "value", min: wide ? nearest : 0, max: farthest, name: data.costs[state.cost] + (wide ? " (log scale)" : ""),
        nameGap: 28, axisTick: ticks(wide, nearest, farthest), axisLabel: { formatter: short, ...ticks(wide, nearest, farthest) },
      }),
      yAxis: axisLook(colours, {
        type: steep ? "log" : "value", name: data.title + (steep ? " (log scale)" : ""), nameGap: 52,
        min: steep ? least / room : least - room, max: steep ? most * room : most + room,
        axisTick: ticks(steep, least / room, most * room),
        axisLabel: { formatter: (value) => String(Number(value.toPrecision(3))), ...ticks(steep, least / room, most * room) },
      }),
      tooltip: tip(colours, "item", (found) => [
        found.seriesName,
        `${data.statistics[state.statistic]}: ${Number(found.value[1].toPrecision(5))}`,
        ...data.costs.map((cost, place) => `${cost}: ${short(lines.find((line) => line.method === found.seriesName).costs[place][found.value[2]])}`),
      ]),
      series: shown.flatMap((line) => {
        const own = colour(line.colour);
        const values = line.values[state.statistic];
        const costs = line.costs[state.cost];
        const last = values.length - 1;
        const points = [...values].map((value, place) => [costs[place], value * data.scale, place]).filter(([cost, value]) => known(value) && (cost > 0 || !wide));
        // what is free is a level line: only where it ends can be shown
        const level = !paid(line);
        const end = values[last] * data.scale;
        const path = level ? [[wide ? nearest : 0, end, last], [farthest, end, last]] : points;
        const spread = line.band && !level && state.statistic === 0 ? band(line, own, wide) : [];
        return [...spread, {
          type: "line", name: line.method, data: path, color: own, symbol: line.diverged ? "triangle" : "circle", clip: true,
          symbolSize: path.length > 60 ? 5 : 7, showSymbol: path.length <= 60, showAllSymbol: path.length <= 60,
          lineStyle: { width: 2.2, type: level ? "dotted" : "solid" }, triggerLineEvent: true,
          emphasis: { focus: "series" }, z: 3,
        }];
      }),
    };
  }

  // Low and high of the seeds as thin lines: areas would need a common grid of costs.
  function band(line, own, wide) {
    return line.band.map((values) => ({
      type: "line", data: [...values].map((value, place) => [line.costs[state.cost][place], value * data.scale]).filter(([cost]) => cost > 0 || !wide),
      showSymbol: false, silent: true, tooltip: { show: false }, lineStyle: { width: 0.8, color: own, opacity: 0.55 }, z: 2,
    }));
  }

  const controls = [];
  if (data.costs.length > 1) controls.push(choices("Cost", data.costs, 0, (place) => { state.cost = place; chart.draw(); }));
  if (data.statistics.length > 1)
    controls.push(choices("Score of", data.statistics, 0, (place) => { state.statistic = place; chart.draw(); }));
  const legend = () => switches("Methods", lines.map((line) => ({ name: line.method, colour: line.colour })), state.hidden, () => chart.draw());
  let keys = legend();
  controls.push(keys);
  const chart = addChart(name, {
    make,
    controls,
    height: 380,
    caption: data.caption,
    about: "The buttons above switch what is spent, what is scored, and which methods are shown.",
    rows: () => [["method", ...data.costs, ...data.statistics], ...lines.flatMap((line) => [...line.values[0]].map((_, place) =>
      [line.method, ...line.costs.map((costs) => costs[place]), ...line.values.map((values) => values[place])]))],
  });
  // while a run goes on, new rounds arrive
  chart.renew = (newer) => {
    data = newer;
    lines = newer.lines.map(read);
    if (newer.lines.length !== keys.childElementCount) { // a method has begun
      const next = legend();
      keys.replaceWith(next);
      keys = next;
    }
    state.cost = Math.min(state.cost, data.costs.length - 1);
    chart.draw();
  };
  return chart;
}
