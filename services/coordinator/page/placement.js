// SPDX-License-Identifier: Apache-2.0
// The placement map: for one layer which worker has which expert, or for all layers the worker of
// each expert.

import {byId, el, setOptions} from './dom.js';
import {CellMap, isDark, labelRows, workerColor} from './maps.js';

export class PlacementView {
  constructor() {
    this.placement = null;
    this.layer = byId('placement-layer');
    this.layer.addEventListener('change', () => this.render());
    this.map = new CellMap(byId('placement-map'), byId('placement-hint'),
                           (row, column) => this.describe(row, column));
    this.show(null);
  }

  show(placement) {
    this.placement = placement;
    const layers = placement?.layers ?? [];
    setOptions(this.layer, [['all', 'all'], ...layers.map((layer, i) => [String(i), String(layer)])]);
    this.render();
  }

  get all() {
    return this.layer.value === 'all' || this.layer.value === '';
  }

  describe(row, column) {
    const {placement} = this;
    const layer = this.all ? row : Number(this.layer.value);
    const workers = placement.workersOf(layer, column);
    const where = workers.join(', ') || 'no worker';
    if (this.all) {
      const copies = workers.length > 1 ? ` (${workers.length} copies)` : '';
      return `layer ${placement.layers[layer]}, expert ${column}: ${where}${copies}`;
    }
    const worker = placement.workers[row];
    return `${worker}: expert ${column} ${workers.includes(worker) ? 'is here' : `is not here, but on ${where}`}`;
  }

  render() {
    const {placement} = this;
    this.map.idleHint = !placement ? 'No epoch serves.' : this.all ?
        `Each cell has the color of its worker; a ${isDark() ? 'white' : 'black'} cell has several copies. Epoch ${placement.epoch}.` :
        'A row for each worker, a column for each expert.';
    if (!placement) {
      this.map.draw(0, 0, 8, () => [0, 0, 0]);
      labelRows(byId('placement-rows'), [], 8);
      byId('placement-legend').replaceChildren();
      delete byId('placement-legend').dataset.key;
      return;
    }
    const {experts, first, copies, layers, workers} = placement;
    const colors = workers.map((_, i) => workerColor(i));
    const many = isDark() ? [255, 255, 255] : [20, 20, 20];
    const none = isDark() ? [27, 34, 43] : [238, 242, 247];
    if (this.all) {
      const height = Math.max(4, Math.min(18, Math.floor(430 / Math.max(1, layers.length))));
      labelRows(byId('placement-rows'), layers, height);
      this.map.draw(layers.length, experts, height, (row, column) => {
        const at = row * experts + column;
        return copies[at] === 0 ? none : copies[at] > 1 ? many : colors[first[at]];
      });
    } else {
      const has = workers.map(() => new Uint8Array(experts));
      for (const copy of placement.all[Number(this.layer.value)]) has[copy.worker ?? 0][copy.expert ?? 0] = 1;
      labelRows(byId('placement-rows'), workers, 15);
      this.map.draw(workers.length, experts, 15, (row, column) => has[row][column] ? colors[row] : none);
    }
    this.fillLegend(workers, colors);
  }

  fillLegend(workers, colors) {
    const legend = byId('placement-legend');
    const key = JSON.stringify([this.all, workers, colors, isDark()]);
    if (legend.dataset.key === key) return;
    legend.dataset.key = key;
    const chip = (id, i) => {
      const square = el('i', {class: 'square'});
      square.style.setProperty('background', `rgb(${colors[i].join(' ')})`);
      return el('span', {class: 'chip'}, square, id);
    };
    legend.replaceChildren(...(this.all ? workers.map(chip) : []));
  }
}
