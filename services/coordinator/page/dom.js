// SPDX-License-Identifier: Apache-2.0
// Elements and tables. Every text becomes a text node: nothing that comes from the coordinator is
// ever parsed as markup.

// el('td', {class: 'bad', title: 'why'}, 'text', another element). Attributes that are null or false
// are left out.
export function el(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    element.setAttribute(name, value === true ? '' : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

export const byId = (id) => document.getElementById(id);

// A word with the color of its meaning: 'good', 'warn', 'bad' or 'idle'.
export const badge = (text, meaning) => el('span', {class: `badge ${meaning}`}, text);

// Replaces the options of a select only if they differ, so that an open one stays open.
export function setOptions(select, options) {
  const key = JSON.stringify(options);
  if (select.dataset.options === key) return;
  const before = select.value;
  select.dataset.options = key;
  select.replaceChildren(...options.map(([value, text]) => el('option', {value}, text)));
  if (options.some(([value]) => value === before)) select.value = before;
}

export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

// A table that is updated in place: rows keep their elements, and a cell changes only if its data
// does, so that a selection or an open reason survives the next update.
//
// columns: {title, data(row), show(data, row) -> children, class?}. `show` sees only what `data`
// returns. kind 'tight': cells are not wrapped; 'small': a table on a phone as well.
export class Table {
  constructor(parent, columns, {key, empty, max = 200, kind = null}) {
    Object.assign(this, {parent, columns, key, empty, max});
    this.rows = new Map();
    this.body = el('tbody');
    this.table = el('table', {class: kind}, el('thead', {}, el('tr', {}, columns.map(
        (column) => el('th', {scope: 'col', class: column.class}, column.title)))), this.body);
    this.note = el('p', {class: 'hint'});
    parent.replaceChildren(el('div', {class: 'scroll'}, this.table), this.note);
  }

  update(items) {
    const shown = items.slice(0, this.max);
    this.table.hidden = shown.length === 0;
    setText(this.note, shown.length === 0 ? this.empty :
        items.length > shown.length ? `${items.length - shown.length} more are not shown.` : '');
    const kept = new Map();
    shown.forEach((item, index) => {
      const key = this.key(item);
      const row = this.rows.get(key) ?? this.newRow();
      kept.set(key, row);
      this.fill(row, item);
      if (this.body.children[index] !== row.element) {
        this.body.insertBefore(row.element, this.body.children[index] ?? null);
      }
    });
    for (const [key, row] of this.rows) if (!kept.has(key)) row.element.remove();
    this.rows = kept;
  }

  newRow() {
    const cells = this.columns.map(
        (column) => el('td', {'data-title': column.title, class: column.class}));
    return {element: el('tr', {}, cells), cells, data: []};
  }

  fill(row, item) {
    this.columns.forEach((column, i) => {
      const data = column.data(item);
      const text = JSON.stringify(data) ?? '';
      if (row.data[i] === text) return;
      row.data[i] = text;
      const shown = column.show ? column.show(data) : String(data);
      row.cells[i].replaceChildren(...[shown].flat().filter((part) => part !== ''));
    });
  }
}
