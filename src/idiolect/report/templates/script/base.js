"use strict";
// What all parts of the page share: its numbers, how they are written, and which client and method are looked at.
const page = JSON.parse(document.getElementById("page-data").textContent);
const NONE = "\u2013";

// Columns come as 32-bit floats in base 64; what is absent is not-a-number.
const unpack = (text) => new Float32Array(Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0)).buffer);

const element = (name, text, className) => {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text; // never as HTML: names are the user's
  if (className) made.className = className;
  return made;
};

const known = (value) => value !== null && value !== undefined && !Number.isNaN(value);

function writer(facts) {
  const shown = (value) => {
    if (!known(value)) return NONE;
    const scaled = value * facts.scale;
    const text = facts.decimals === null ? String(Number(scaled.toPrecision(4))) : scaled.toFixed(facts.decimals);
    return text.replace("-", "\u2212");
  };
  const signed = (value) => {
    const text = shown(value);
    if (!known(value) || !/[1-9]/.test(text)) return text.replace("\u2212", "");
    return value > 0 ? "+" + text : text;
  };
  return { shown, signed };
}

// A number in a few characters: 1.2k, 34M.
function short(value) {
  for (const [unit, letter] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]])
    if (Math.abs(value) >= unit) return Number((value / unit).toPrecision(3)) + letter;
  return String(Number(value.toPrecision(3)));
}

// Which client and which method are looked at: one choice for all tables and figures.
const looked = { client: null, method: 0, hearing: [] };

function look(change) {
  Object.assign(looked, change);
  for (const hear of looked.hearing) hear(change);
}
