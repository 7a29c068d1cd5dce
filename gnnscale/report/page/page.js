// Tells the values under the pointer: reads them back from the curves and the scales of a plot.
"use strict";
(() => {
  const tip = document.getElementById("tip");
  const SVG = "http://www.w3.org/2000/svg";

  function points(path) {
    const numbers = path.getAttribute("d").match(/-?[\d.]+/g) || [];
    const found = [];
    for (let i = 0; i + 1 < numbers.length; i += 2) found.push([+numbers[i], +numbers[i + 1]]);
    return found;
  }

  function nearest(curve, x) {
    let best = null;
    for (const point of curve) if (!best || Math.abs(point[0] - x) <= Math.abs(best[0] - x)) best = point;
    return best;
  }

  // A stacked area holds its value until the next: the last corner at or before the pointer.
  function held(curve, x) {
    let best = curve[0];
    for (const point of curve) if (point[0] <= x) best = point;
    return best;
  }

  const plain = (value) => {
    const size = Math.abs(value);
    return size >= 100 ? value.toFixed(0) : size >= 1 ? value.toFixed(2) : value.toFixed(4);
  };

  function row(css, label, value) {
    const line = document.createElement("div");
    const swatch = document.createElement("i");
    swatch.className = css;
    line.append(swatch, `${label}  ${value}`);
    return line;
  }

  for (const chart of document.querySelectorAll("svg.chart")) {
    const [lowX, highX, startX, endX] = chart.dataset.x.split(" ").map(Number);
    const [lowY, highY, startY, endY] = chart.dataset.y.split(" ").map(Number);
    const stacked = "stacked" in chart.dataset;
    const valueX = (at) => lowX + ((at - startX) / (endX - startX)) * (highX - lowX);
    const valueY = (at) => lowY + ((at - startY) / (endY - startY)) * (highY - lowY);
    const curves = [...chart.querySelectorAll("path.line[data-label]")].map((path) => ({
      label: path.dataset.label,
      css: path.classList[1],
      points: points(path),
    }));
    const pointer = document.createElementNS(SVG, "path");
    pointer.setAttribute("class", "pointer");

    chart.addEventListener("pointermove", (event) => {
      const box = chart.getBoundingClientRect();
      const at = ((event.clientX - box.left) / box.width) * chart.viewBox.baseVal.width;
      if (at < startX - 4 || at > endX + 4) return leave();
      const rows = [];
      let below = 0;
      let snapped = stacked ? at : Infinity;
      for (const curve of curves) {
        const point = (stacked ? held : nearest)(curve.points, at);
        if (!point) continue;
        const value = valueY(point[1]);
        if (Math.abs(point[0] - at) < Math.abs(snapped - at)) snapped = point[0];
        rows.push(row(curve.css, curve.label, plain(stacked ? value - below : value)));
        below = value;
      }
      if (!rows.length) return leave();
      const title = document.createElement("div");
      const x = stacked ? Math.floor(valueX(at)) : Math.round(valueX(snapped));
      title.textContent = `${chart.dataset.title} ${x}`;
      tip.replaceChildren(title, ...rows);
      tip.hidden = false;
      const left = event.clientX + 14;
      tip.style.left = `${left + tip.offsetWidth > innerWidth ? left - tip.offsetWidth - 28 : left}px`;
      tip.style.top = `${Math.min(event.clientY + 12, innerHeight - tip.offsetHeight - 4)}px`;
      pointer.setAttribute("d", `M${snapped} ${endY}V${startY}`);
      chart.append(pointer);
    });
    function leave() {
      tip.hidden = true;
      pointer.remove();
    }
    chart.addEventListener("pointerleave", leave);
  }
})();
