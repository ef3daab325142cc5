// The panel of a reproduced figure: measured curves, and under or over them the bounds of theory.
function lineChart(name, data) {
  const hidden = new Set();
  const lines = data.lines.map((line) => ({ ...line, name: line.label || "unnamed" }));
  const named = [...new Map(lines.map((line) => [line.name, line])).values()];
  const dashes = { "-": "solid", "--": "dashed", "-.": "dashed", ":": "dotted", None: "solid" };
  function make(colours, width, still) {
    const shown = lines.filter((line) => !hidden.has(line.name));
    const fits = ([across, up]) => (!data.across_log || across > 0) && (!data.up_log || up > 0);
    const axis = (title, log, gap) => axisLook(colours, { type: log ? "log" : "value", scale: true, name: title + (log ? " (log scale)" : ""), nameGap: gap,
      axisLabel: { formatter: (value) => (value !== 0 && (Math.abs(value) < 0.01 || Math.abs(value) >= 1e5) ? value.toExponential(0) : String(Number(value.toPrecision(3)))), showMinLabel: null, showMaxLabel: null } });
    return {
      grid: frame({ right: 24, top: still ? 46 : 14 }),
      legend: { show: Boolean(still), top: 6, textStyle: { color: colours.ink }, selectedMode: false, data: named.map((line) => line.name) },
      xAxis: axis(data.across, data.across_log, 28),
      yAxis: axis(data.up, data.up_log, 56),
      tooltip: tip(colours, "item", (found) => [found.seriesName, `${data.across || "x"}: ${Number(found.value[0].toPrecision(4))}`, `${data.up || "y"}: ${Number(found.value[1].toPrecision(4))}`]),
      series: shown.map((line) => {
        const points = line.across.map((across, place) => [across, line.up[place]]).filter(fits);
        return { type: "line", name: line.name, data: points, color: colour(line.colour), symbolSize: 5, showSymbol: points.length <= 60 || line.style === "None", showAllSymbol: true,
          lineStyle: { type: dashes[line.style] || "solid", width: line.style === "None" ? 0 : 2 } };
      }),
    };
  }
  const keys = switches("Lines", named, hidden, () => chart.draw());
  const chart = addChart(name, {
    make, controls: [keys], height: 340, about: "The buttons above switch lines on and off.",
    rows: () => [["line", data.across || "x", data.up || "y"], ...lines.flatMap((line) => line.across.map((across, place) => [line.name, across, line.up[place]]))],
  });
  return chart;
}
