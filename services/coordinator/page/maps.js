// SPDX-License-Identifier: Apache-2.0
// Maps of cells: a canvas with one pixel for each cell, enlarged by the style sheet. So a map of
// 61 x 256 cells is drawn within milliseconds, at any width.

import {el, setText} from './dom.js';

const dark = matchMedia('(prefers-color-scheme: dark)');
export const isDark = () => dark.matches;
export const onSchemeChange = (call) => dark.addEventListener('change', call);

// Colors from least to most. Both orders run from the page's background to its opposite, so that
// more always stands out more.
const ramps = {
  rows: {
    light: ['#eef2f7', '#c3dbef', '#7fb8de', '#3d8cc4', '#1c5c9c', '#0b2f63'],
    dark: ['#1b222b', '#1f3f63', '#2368a0', '#3b98cf', '#8cc9e8', '#f1fbff'],
  },
  // 0, 0.5, 1, 2, 4 and more times the mean.
  mean: {
    light: ['#5a9bd0', '#b9d6ec', '#eef0f2', '#f6b26b', '#d9541e', '#7c1310'],
    dark: ['#2f7fc0', '#28465f', '#262d36', '#a4602a', '#ea6a2c', '#ffd9a8'],
  },
};

function channels(hex) {
  return [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
}

// 256 colors as [r, g, b] of 'rows' or 'mean'.
export function ramp(name) {
  const stops = ramps[name][isDark() ? 'dark' : 'light'].map(channels);
  return Array.from({length: 256}, (_, i) => {
    const at = i / 255 * (stops.length - 1);
    const low = Math.min(Math.floor(at), stops.length - 2);
    return stops[low].map((value, c) => Math.round(value + (stops[low + 1][c] - value) * (at - low)));
  });
}

// Colors of single workers, as far apart as they can be.
export function workerColor(index) {
  const hue = index * 137.508 % 360;
  return hsl(hue, 0.55, isDark() ? 0.56 : [0.45, 0.6, 0.35][index % 3]);
}

function hsl(hue, saturation, lightness) {
  const a = saturation * Math.min(lightness, 1 - lightness);
  return [0, 8, 4].map((n) => {
    const k = (n + hue / 30) % 12;
    return Math.round(255 * (lightness - a * Math.max(-1, Math.min(k - 3, 9 - k, 1))));
  });
}

// The row labels beside a map: every n-th, so that they do not overlap.
export function labelRows(axis, labels, rowHeight) {
  const every = Math.max(1, Math.ceil(15 / rowHeight));
  const key = JSON.stringify([labels, every]);
  if (axis.dataset.labels === key) return;
  axis.dataset.labels = key;
  axis.replaceChildren(...labels.map((label, i) => el('span', {}, i % every === 0 ? String(label) : '')));
}

export class CellMap {
  // `describe(row, column)` returns the text about a cell, shown below the map for the cell under
  // the pointer or the finger.
  constructor(canvas, hint, describe) {
    Object.assign(this, {canvas, hint, describe, rows: 0, columns: 0, at: null});
    const move = (event) => {
      const box = canvas.getBoundingClientRect();
      const column = Math.floor((event.clientX - box.left) / box.width * this.columns);
      const row = Math.floor((event.clientY - box.top) / box.height * this.rows);
      const inside = row >= 0 && row < this.rows && column >= 0 && column < this.columns;
      this.at = inside ? [row, column] : null;
      this.tell();
    };
    canvas.addEventListener('pointermove', move);
    canvas.addEventListener('pointerdown', move);
    canvas.addEventListener('pointerleave', (event) => {
      if (event.pointerType !== 'mouse') return;  // a finger that is lifted leaves its cell shown
      this.at = null;
      this.tell();
    });
  }

  // `color(row, column)` returns [r, g, b].
  draw(rows, columns, rowHeight, color) {
    Object.assign(this, {rows, columns});
    if (this.canvas.width !== columns || this.canvas.height !== rows) {
      this.canvas.width = Math.max(columns, 1);
      this.canvas.height = Math.max(rows, 1);
    }
    this.canvas.style.setProperty('height', `${rows * rowHeight}px`);
    this.canvas.hidden = rows === 0 || columns === 0;
    if (this.canvas.hidden) return this.tell();
    const context = this.canvas.getContext('2d');
    const image = context.createImageData(columns, rows);
    for (let row = 0, i = 0; row < rows; ++row) {
      for (let column = 0; column < columns; ++column, i += 4) {
        const [r, g, b] = color(row, column);
        image.data[i] = r;
        image.data[i + 1] = g;
        image.data[i + 2] = b;
        image.data[i + 3] = 255;
      }
    }
    context.putImageData(image, 0, 0);
    this.tell();
  }

  tell() {
    const inside = this.at && this.at[0] < this.rows && this.at[1] < this.columns;
    setText(this.hint, inside ? this.describe(...this.at) : this.idleHint ?? '');
  }
}

// The colors of a scale, with what its ends mean.
export function legend(element, name, from, to) {
  const key = JSON.stringify([name, from, to, isDark()]);
  if (element.dataset.key === key) return;
  element.dataset.key = key;
  const canvas = el('canvas', {width: 256, height: 1, class: 'scale', 'aria-hidden': 'true'});
  const context = canvas.getContext('2d');
  ramp(name).forEach(([r, g, b], i) => {
    context.fillStyle = `rgb(${r} ${g} ${b})`;
    context.fillRect(i, 0, 1, 1);
  });
  element.replaceChildren(from, canvas, to);
}

// A text before a bar that is `share` (0 to 1) of the cell wide.
export const bar = (share, text) => {
  const box = el('span', {class: 'bar'}, el('i'), el('b', {}, text));
  box.firstChild.style.setProperty('width', `${Math.round(Math.min(share, 1) * 100)}%`);
  return box;
};
