// SPDX-License-Identifier: Apache-2.0
// Asks the coordinator every second and shows what it says. A page that is not visible does not ask.

import {age, bytes, count, get, number, rate, word} from './api.js';
import {DispatchView} from './dispatch.js';
import {badge, byId, el, setOptions, setText} from './dom.js';
import {LatencyView, took} from './latency.js';
import {LoadView} from './load.js';
import {onSchemeChange} from './maps.js';
import {Placement} from './plan.js';
import {PlacementView} from './placement.js';
import {EpochsView, EventsView, SessionsView, WorkersView} from './tables.js';

const interval_ms = 1000;

const deploymentMeaning = {
  serving: 'good', pending: 'warn', reading: 'warn', deleting: 'warn', unavailable: 'bad', refused: 'bad',
};

class Page {
  constructor() {
    Object.assign(this, {deployments: [], workers: [], events: new Map(), lastEvent: 0, sessions: [],
                         placement: null, planHash: '', failed: null, answeredAt: 0, shown: false});
    this.chosen = decodeURIComponent(new URLSearchParams(location.search).get('deployment') ?? '');
    this.load = new LoadView((layer, expert) => this.workersOf(layer, expert), () => this.showShown());
    this.latency = new LatencyView(this.load, () => this.show());
    this.placementView = new PlacementView();
    this.dispatch = new DispatchView();
    this.workersView = new WorkersView(this.load);
    this.epochs = new EpochsView();
    this.sessionsView = new SessionsView();
    this.eventsView = new EventsView();
    byId('deployment').addEventListener('change', (event) => this.choose(event.target.value));
    onSchemeChange(() => {
      this.load.render();
      this.placementView.render();
    });
  }

  choose(name) {
    this.chosen = name;
    history.replaceState(null, '', `?${new URLSearchParams({deployment: name})}${location.hash}`);
    this.load.clear();
    this.forgetPlan();
    this.tick();
  }

  forgetPlan() {
    this.placement = null;
    this.planHash = '';
    this.placementView.show(null);
  }

  get deployment() {
    return this.deployments.find((one) => one.spec?.name === this.chosen) ?? this.deployments[0];
  }

  workersOf(layer, expert) {
    const at = this.placement?.layers.indexOf(layer) ?? -1;
    return at < 0 ? [] : this.placement.workersOf(at, expert);
  }

  // One question after the other: the coordinator's port has few connections, and probes need them.
  async ask() {
    this.deployments = (await get('deployments')).deployments ?? [];
    this.workers = (await get('workers')).workers ?? [];
    await this.askPlan();
    await this.askEvents();
    this.sessions = (await get('sessions')).sessions ?? [];
    await this.askLoad();
  }

  async askPlan() {
    const hash = this.deployment?.plan_hash ?? '';
    if (hash === this.planHash) return;
    this.forgetPlan();
    if (hash === '') return;
    const answer = await get('plan', {deployment: this.deployment.spec.name});
    // The plan may be newer than the list of deployments by now; the next list will say so.
    this.planHash = answer.plan_hash;
    this.placement = new Placement(answer.plan);
    this.placementView.show(this.placement);
  }

  async askEvents() {
    const answer = await get('events', {after: this.lastEvent});
    const last = number(answer.last);
    if (last < this.lastEvent) {  // The coordinator has restarted and counts from 1 again.
      this.lastEvent = 0;
      this.events.clear();
      return this.askEvents();
    }
    this.lastEvent = last;
    for (const event of answer.events ?? []) {
      // What happens again has a new number and takes the place of its earlier one.
      const key = JSON.stringify([event.object, event.name, event.reason, event.message, event.first]);
      this.events.delete(key);
      this.events.set(key, event);
    }
    while (this.events.size > 1024) this.events.delete(this.events.keys().next().value);
  }

  async askLoad() {
    if (!this.deployment) return;
    const name = this.deployment.spec.name;
    const samples = this.load.samples;
    samples.add(await get('load', {deployment: name, ...samples.next()}));
    // The page is shown before its past is.
    const older = this.shown ? samples.older() : null;
    if (older) samples.add(await get('load', {deployment: name, ...older}));
  }

  show() {
    const {deployment} = this;
    setOptions(byId('deployment'), this.deployments.length === 0 ? [['', 'none']] :
        this.deployments.map((one) => [one.spec.name, one.spec.name]));
    if (deployment) byId('deployment').value = deployment.spec.name;
    this.load.render();
    this.showTiles(deployment);
    this.showBanners(deployment);
    this.dispatch.show(deployment, this.placement);
    const events = [...this.events.values()];
    this.epochs.show(events, deployment);
    this.sessionsView.show(this.sessions, deployment?.spec?.name);
    this.eventsView.show(events);
  }

  // What depends on the sample that is shown.
  showShown() {
    this.latency?.render();
    this.workersView?.show(this.workers);
  }

  showTiles(deployment) {
    const live = this.workers.filter((one) => word(one.state) === 'live').length;
    const shown = this.load.shown;
    const perWorker = shown?.workers.map((one) => one.rows.reduce((a, b) => a + b, 0)) ?? [];
    const most = Math.max(...perWorker, 0);
    const mean = perWorker.reduce((a, b) => a + b, 0) / Math.max(1, perWorker.length);
    const {p99} = this.latency;
    const state = word(deployment?.state) || 'none';
    const pending = number(deployment?.pending_epoch);
    const tiles = [
      ['Deployment', badge(state, deploymentMeaning[state] ?? 'idle')],
      ['Model', deployment?.serving_model?.name ?? deployment?.spec?.model ?? ''],
      ['Epoch', `${number(deployment?.committed_epoch) || 'none'}${pending ? `, ${pending} is prepared` : ''}`],
      ['Revision', `${number(deployment?.serving_revision) || 'none'}${deployment?.current === false ? `, ${number(deployment?.revision)} waits` : ''}`],
      ['Workers live', `${live} of ${this.workers.length}`],
      ['Sessions', count(deployment?.sessions ?? 0)],
      ['Rows', shown ? rate(shown.total / shown.duration) : 'none'],
      ['Busiest worker', mean > 0 ? `${(most / mean).toFixed(2)} x mean` : 'none'],
      [p99 === null ? 'Step p99' : `Step p99, ${this.latency.kind}`, p99 === null ? 'none' : took(p99)],
    ];
    const key = tiles.map(([name, value]) => name + (value.textContent ?? value)).join('|');
    if (this.tiles === key) return;
    this.tiles = key;
    byId('tiles').replaceChildren(...tiles.map(
        ([name, value]) => el('div', {}, el('dt', {}, name), el('dd', {}, value))));
  }

  showBanners(deployment) {
    const banners = [];
    if (!deployment) banners.push(['idle', 'There is no deployment. Apply one: syctl apply -f FILE']);
    if (deployment?.problem?.message) banners.push(['bad', deployment.problem.message]);
    if (deployment && word(deployment.state) !== 'serving') banners.push(['warn', deployment.activity ?? '']);
    for (const line of deployment?.left_out ?? []) banners.push(['warn', `not in the plan: ${line}`]);
    for (const one of this.workers) {
      if (one.problem) banners.push(['bad', `worker ${one.id}: ${one.problem}`]);
    }
    for (const one of this.deployments) {
      const state = word(one.state);
      if (one === deployment || deploymentMeaning[state] === 'good') continue;
      banners.push([deploymentMeaning[state] ?? 'idle', `deployment ${one.spec.name} is ${state}: ${one.activity ?? ''}`]);
    }
    const reading = deployment?.reading;
    if (reading) banners.push(['warn', `reads the checkpoint: ${bytes(number(reading.bytes_done)) || '0 B'} of ${bytes(number(reading.bytes))}`]);
    const key = JSON.stringify(banners);
    if (this.banners === key) return;
    this.banners = key;
    const more = banners.length > 6 ? [['idle', `${banners.length - 6} more problems; see Workers and Events`]] : [];
    byId('banners').replaceChildren(...[...banners.slice(0, 6), ...more].map(
        ([meaning, text]) => el('p', {class: `banner ${meaning}`}, text)));
  }

  showFreshness() {
    const late = performance.now() - this.answeredAt;
    const text = this.failed === null ? 'live' :
        `no answer for ${age(late / 1000)}: ${this.failed}`;
    setText(byId('freshness'), text);
    byId('freshness').className = this.failed === null ? 'good' : 'bad';
    document.body.classList.toggle('stale', this.failed !== null);
  }

  async tick() {
    clearTimeout(this.timer);
    if (this.asking) return;  // its end sets the timer
    this.asking = true;
    try {
      await this.ask();
      this.show();
      this.answeredAt = performance.now();
      this.failed = null;
    } catch (error) {
      // A busy server is no news, unless it stays so.
      if (error.http !== 503 || performance.now() - this.answeredAt > 5000) this.failed = error.message;
    }
    this.asking = false;
    this.showFreshness();
    this.shown = true;
    // How long the page took, for whoever measures it.
    document.documentElement.dataset.renderedMs ??= String(Math.round(performance.now()));
    if (!document.hidden) this.timer = setTimeout(() => this.tick(), interval_ms);
  }
}

const page = new Page();
document.addEventListener('visibilitychange', () => {
  if (!document.hidden) page.tick();
});
page.tick();
