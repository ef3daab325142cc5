// Deciles over clients; shares of rows; bytes that leave a client.
function decileChart(name, data) {
  const { shown } = writer(page.score);
  const scale = page.score.scale;
  const lines = [...data.lines].reverse(); // the first method on top
  const own = (line) => {
    const of = clients && clients.methods.find((one) => one.method === line.method);
    return of && looked.client !== null ? of.personal[looked.client] : NaN;
  };
  // all marks are seen: what is so far off that it would flatten the rest is an arrow at the edge
  function ends() {
    const extremes = lines.flatMap((line) => [line.deciles[0], line.deciles[10]]);
    const marks = lines.flatMap((line) => [line.deciles[1], line.deciles[9], line.mean, line.worst, own(line)]);
    const [low, high] = reach([...extremes, ...marks].filter(known).map((value) => value * scale));
    const far = 2 * (high - low);
    const near = marks.filter(known).map((value) => value * scale).filter((value) => value > low - far && value < high + far);
    return [Math.min(low, ...near), Math.max(high, ...near)];
  }
  function make(colours, width) {
    const [least, most] = ends();
    const room = 0.05 * (most - least);
    const steps = [[1, 2, 0.25], [2, 3, 0.4], [3, 4, 0.6], [4, 6, 0.85], [6, 7, 0.6], [7, 8, 0.4], [8, 9, 0.25]];
    const about = (place) => {
      const line = lines[place];
      const deciles = line.deciles.slice(1, 10).map((value, order) => `p${10 * (order + 1)} ${shown(value)}`);
      const ends = line.interval.length ? ` [${line.interval.map(shown).join(", ")}]` : "";
      const mine = known(own(line)) ? [`${clients.names[looked.client]}: ${shown(own(line))}`] : [];
      return [line.method, `mean ${shown(line.mean)}${ends}, worst tenth ${shown(line.worst)}`, deciles.slice(0, 5).join(", "), deciles.slice(5).join(", "), ...mine];
    };
    const spot = (value, place, symbolSize) => {
      if (!known(value)) return ["-", place];
      const [at, low, high] = [value * scale, least - room, most + room];
      if (at >= low && at <= high) return [at, place];
      return { value: [at < low ? low : high, place], symbol: "triangle", symbolSize, symbolRotate: at < low ? 90 : -90 };
    };
    const mark = (data, look) => ({ type: "scatter", data, z: 5, clip: false, tooltip: { show: false }, silent: true, symbolSize: 10, ...look });
    return {
      grid: frame({ right: 20, top: 8 }),
      yAxis: axisLook(colours, { type: "category", data: lines.map((line) => line.method), axisLabel: { formatter: (text) => shortened(text, letters(width, 26)), hideOverlap: false, interval: 0, showMinLabel: true, showMaxLabel: true } }),
      xAxis: axisLook(colours, { type: "value", min: least - room, max: most + room, name: `${data.title}: bands from p10 to p90, the darkest around the median`, nameGap: 28,
        axisLabel: { formatter: (value) => String(Number(value.toPrecision(3))) } }),
      tooltip: tip(colours, "axis", (found) => about(found[0].dataIndex), { axisPointer: { type: "shadow" } }),
      series: [
        { type: "bar", stack: "deciles", data: lines.map((line) => line.deciles[1] * scale), itemStyle: { color: "transparent" }, barWidth: "56%" },
        ...steps.map(([low, high, strength]) => ({
          type: "bar", stack: "deciles", barWidth: "56%",
          data: lines.map((line) => ({ value: (line.deciles[high] - line.deciles[low]) * scale, itemStyle: { color: colour(line.colour), opacity: strength } })),
        })),
        mark(lines.map((line, place) => spot(line.mean, place, 13)), { symbol: "diamond", symbolSize: 13, itemStyle: { color: colours.ink, borderColor: colours.card, borderWidth: 1 } }),
        mark(lines.map((line, place) => spot(line.worst, place, 12)), { symbol: "diamond", symbolSize: 12, itemStyle: { color: colours.card, borderColor: colours.ink, borderWidth: 1.6 } }),
        mark(lines.map((line, place) => spot(own(line), place, 11)), { symbol: "circle", symbolSize: 11, itemStyle: { color: colours.vermilion, borderColor: colours.card, borderWidth: 1.5 } }),
      ],
    };
  }
  const heads = ["method", "mean", "worst_tenth", ...Array.from({ length: 11 }, (_, place) => `p${10 * place}`)];
  const chart = addChart(name, {
    make, height: 76 + 44 * lines.length, about: "One row of bands per method.",
    caption: "The test score over clients: bands from p10 to p90. Diamond: the mean over clients; hollow: the mean of the worst tenth; red: the selected client; a triangle at the edge: farther out than the axis.",
    rows: () => [heads, ...data.lines.map((line) => [line.method, line.mean, line.worst, ...line.deciles])],
  });
  looked.hearing.push((change) => { if ("client" in change) chart.draw(); });
}

// Groups of bars side by side, or parts of one whole; all numbers are shares.
function barChart(name, data) {
  const groups = data.stacked ? [...data.groups].reverse() : data.groups;
  const percent = (value) => (known(value) ? `${(100 * value).toFixed(1)} %` : NONE);
  const more = (width) => 22 * (legendLines(data.parts.map((part) => part + "      "), width) - 1);
  function make(colours, width) {
    const kinds = [colours.blue, colours.sky, colours.green, colours.line]; // who is right, in both figures alike
    const shades = data.stacked ? kinds : [colours.ink, ...kinds];
    const names = axisLook(colours, { type: "category", data: groups.map((group) => group.name), axisLabel: { formatter: (text) => shortened(text, letters(width, 28)), hideOverlap: false, interval: 0, showMinLabel: true, showMaxLabel: true, rotate: !data.stacked && groups.length > 4 ? 25 : 0 } });
    const values = axisLook(colours, { type: "value", min: 0, max: 100, axisLabel: { showMinLabel: true, showMaxLabel: true }, name: data.title, nameGap: data.stacked ? 28 : 38 });
    return {
      grid: frame({ right: 20, top: 34 + more(width) }),
      legend: { top: 4, left: 8, textStyle: { color: colours.ink }, selectedMode: false },
      xAxis: data.stacked ? values : names,
      yAxis: data.stacked ? names : values,
      tooltip: tip(colours, "axis", (found) => [groups[found[0].dataIndex].name, ...data.parts.map((part, place) => `${part}: ${percent(groups[found[0].dataIndex].values[place])}`)],
        { axisPointer: { type: "shadow" } }),
      series: data.parts.map((part, place) => ({
        type: "bar", name: part, stack: data.stacked ? "all" : undefined, barMaxWidth: data.stacked ? 26 : 30,
        itemStyle: { color: shades[place], borderColor: colours.card, borderWidth: 0.5 },
        data: groups.map((group) => (known(group.values[place]) ? 100 * group.values[place] : "-")),
      })),
    };
  }
  addChart(name, {
    make, height: (width) => (data.stacked ? 96 + 40 * groups.length : 320) + more(width), about: "The table of the same numbers is beside it.",
    rows: () => [["name", ...data.parts], ...data.groups.map((group) => [group.name, ...group.values])],
  });
}

function sentChart(name, data) {
  const lines = [...data.lines].reverse();
  const most = Math.max(...lines.map((line) => line.arrays.length), 1);
  const total = (line) => line.arrays.reduce((sum, [, bytes]) => sum + bytes, 0);
  function make(colours, width) {
    const fills = [colours.blue, colours.sky, colours.green, colours.vermilion, colours.muted];
    return {
      grid: frame({ right: 70, top: 8 }),
      yAxis: axisLook(colours, { type: "category", data: lines.map((line) => line.name), axisLabel: { formatter: (text) => shortened(text, letters(width, 26)), hideOverlap: false, interval: 0, showMinLabel: true, showMaxLabel: true } }),
      xAxis: axisLook(colours, { type: "value", min: 0, name: data.title, nameGap: 28, axisLabel: { formatter: short } }),
      tooltip: tip(colours, "axis", (found) => {
        const line = lines[found[0].dataIndex];
        return [`${line.name}: ${short(total(line))} bytes`, ...(line.arrays.length ? [...line.arrays.slice(0, 8).map(([what]) => what), ...line.about] : ["nothing is sent"])];
      }, { axisPointer: { type: "shadow" } }),
      series: Array.from({ length: most }, (_, place) => ({
        type: "bar", stack: "sent", barMaxWidth: 24, itemStyle: { color: fills[place % fills.length], borderColor: colours.card, borderWidth: 0.5 },
        data: lines.map((line) => (line.arrays[place] ? line.arrays[place][1] : 0)),
        label: place === most - 1 ? { show: true, position: "right", color: colours.ink, formatter: (found) => short(total(lines[found.dataIndex])) + "B" } : undefined,
      })),
    };
  }
  addChart(name, {
    make, height: 76 + 34 * lines.length, about: "The table of the same numbers is beside it.",
    rows: () => [["method", "array", "bytes"], ...data.lines.flatMap((line) => line.arrays.map(([what, bytes]) => [line.name, what, bytes]))],
  });
}
