// While a run trains, its process is asked every second; what has come in stays when it ends.
function follow() {
  const state = document.getElementById("live-state");
  const list = document.getElementById("live-progress");
  let silent = 0;

  function showProgress(entries) {
    list.replaceChildren(...entries.map((one) => {
      const line = element("li");
      const label = element("label", one.name + " ");
      const bar = element("progress");
      bar.max = one.of;
      bar.value = one.done;
      label.append(bar);
      line.append(label, ` ${one.done} of ${one.of} rounds`);
      return line;
    }));
  }

  function show(found) {
    showProgress(found.progress);
    for (const [name, data] of Object.entries(found.figures)) {
      if (charts[name]) charts[name].renew(data);
      else charts[name] = kinds[data.kind](name, data);
    }
  }

  async function ask() {
    try {
      const answer = await fetch("/data", { cache: "no-store" });
      if (!answer.ok) throw new Error(String(answer.status));
      const found = await answer.json();
      silent = 0;
      if (found.state === "finished") return location.replace("/"); // on to the report
      if (found.state === "stopped") { state.textContent = "The run was stopped; this is what it had reached."; return; }
      show(found);
      state.textContent = "Following.";
    } catch {
      silent += 1;
      if (silent > 3) { state.textContent = "The run's process has ended; this is what was seen last. Its folder holds the page."; return; }
    }
    setTimeout(ask, 1000);
  }
  setTimeout(ask, 500);
}

if (page.live) follow();
