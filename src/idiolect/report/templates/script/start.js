// Everything the page has numbers for is drawn; without this script the still figures stand.
const kinds = {
  gain: (name) => clients && gainChart(name),
  cost: costChart,
  deciles: decileChart,
  bars: barChart,
  sent: sentChart,
  choice: choiceChart,
  map: mapChart,
  lines: lineChart,
};
const charts = {};

if (clients) looked.method = page.clients.shown;
const clientsShown = document.getElementById("client-table");
if (clients && clientsShown) clientTable(clientsShown);
for (const [name, data] of Object.entries(page.figures)) charts[name] = kinds[data.kind](name, data);

let width = innerWidth;
addEventListener("resize", () => {
  if (innerWidth === width) return;
  width = innerWidth;
  for (const chart of drawn) { chart.plot.resize(); chart.draw(); }
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { for (const chart of drawn) chart.draw(); });
document.documentElement.dataset.ready = "yes";
document.documentElement.dataset.opened = String(Math.round(performance.now()));
