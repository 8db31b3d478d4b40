// The other side of package drive: counts while a window is open, keeps a standing backlog
// standing, and tells of the window in lines of JSON.

import { randomBytes } from "node:crypto";

export const spec = JSON.parse(process.argv[2]);
const ms = (ns) => ns / 1e6;

export class Meter {
  open = false;
  messages = 0;
  steps = {};

  done(n) {
    if (this.open) this.messages += n;
  }

  // took records the time of one call that began at start, by performance.now().
  took(step, start) {
    if (this.open) (this.steps[step] ??= []).push(performance.now() - start);
  }

  result(seconds) {
    const steps = {};
    for (const [step, all] of Object.entries(this.steps)) {
      all.sort((a, b) => a - b);
      const at = (q) => all[Math.min(Math.floor(q * all.length), all.length - 1)];
      steps[step] = { count: all.length, p50: at(0.5), p95: at(0.95), p99: at(0.99) };
    }
    return { messages: this.messages, seconds, steps };
  }
}

const cpu = () => {
  const u = process.cpuUsage();
  return (u.user + u.system) / 1e6;
};

const say = (event) => new Promise((resolve) => process.stdout.write(JSON.stringify(event) + "\n", resolve));

export const sleep = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

// begin opens the window, end closes it.
export async function begin(meter) {
  meter.open = true;
  meter.begun = performance.now();
  await say({ event: "begin", cpu: cpu() });
}

export async function end(meter) {
  meter.open = false;
  const seconds = (performance.now() - meter.begun) / 1000;
  await say({ event: "end", cpu: cpu(), result: meter.result(seconds) });
}

// measure opens the window after the warm-up and closes it; what runs beside it goes on.
export async function measure(meter) {
  await sleep(ms(spec.warmup));
  await begin(meter);
  await sleep(ms(spec.window));
  await end(meter);
}

// Semaphore hands out units in the order in which they were asked for.
class Semaphore {
  waiting = [];
  constructor(units) {
    this.units = units;
  }
  acquire(n) {
    if (this.waiting.length === 0 && this.units >= n) {
      this.units -= n;
      return undefined;
    }
    return new Promise((resolve) => this.waiting.push({ n, resolve }));
  }
  release(n) {
    this.units += n;
    while (this.waiting.length > 0 && this.units >= this.waiting[0].n) {
      const { n, resolve } = this.waiting.shift();
      this.units -= n;
      resolve();
    }
  }
}

// Balance is that of package drive: workers take a token for each message that they handle,
// producers give one for each that they enqueued and wait while too many are in between.
export class Balance {
  constructor(limit) {
    this.room = new Semaphore(limit);
    this.tokens = new Semaphore(0);
  }
}

// The bodies are random texts, as in package drive, so that nothing can compress them.
const bodies = Array.from({ length: 256 }, () => randomBytes(spec.payload).toString("base64url").slice(0, spec.payload));
let bodyNumber = 0;

// body is the body of one more message.
export const body = () => bodies[bodyNumber++ % bodies.length];

// fail ends the process: a window with an error in it is none.
export function fail(error) {
  process.stderr.write(`${error?.stack ?? error}\n`);
  process.exit(1);
}
