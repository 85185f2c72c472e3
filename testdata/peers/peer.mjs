// What the programs of graphile-worker and pg-boss have in common: their flags, and the request of a job.
import { parseArgs } from 'node:util'
import { createRequire } from 'node:module'

// options reads the command line; README.md says what it means.
export function options() {
  const { values: o, positionals } = parseArgs({
    allowPositionals: true,
    options: {
      'database-url': { type: 'string' },
      schema: { type: 'string' },
      target: { type: 'string' },
      jobs: { type: 'string', default: '0' },
      due: { type: 'string' },
      every: { type: 'string', default: '0' },
      slots: { type: 'string', default: '0' },
      crons: { type: 'string', default: '0' },
      tuned: { type: 'boolean', default: false },
    },
  })
  if (!/^[a-z_]+$/.test(o.schema ?? '')) throw new Error('--schema is needed: small letters and _')
  return {
    command: positionals[0],
    databaseUrl: o['database-url'],
    schema: o.schema,
    target: o.target,
    jobs: Number(o.jobs),
    due: o.due && new Date(o.due),
    every: Number(o.every), // milliseconds
    slots: Number(o.slots),
    crons: Number(o.crons),
    tuned: o.tuned,
  }
}

// version returns the version of a package that a program has installed.
export function version(program, name) {
  return createRequire(program)(`./node_modules/${name}/package.json`).version
}

// due returns when a job is due; undefined: at once.
export function due(o, i) {
  return o.due && new Date(o.due.getTime() + i * o.every)
}

// payload is what a job carries: the same data as a job definition of Punctual.
export function payload(o, name, at) {
  return { name, due: at?.toISOString(), url: o.target, body: { range: 'yesterday', kind: 'invoices' } }
}

// poster returns a function that posts the callback of a job. Its client keeps as many connections as there are slots.
export function poster({ Pool }, slots) {
  const pools = new Map()
  return async function post(job, number, attempt) {
    const url = new URL(job.url)
    if (!pools.has(url.origin)) pools.set(url.origin, new Pool(url.origin, { connections: slots }))
    const { statusCode, body } = await pools.get(url.origin).request({
      method: 'POST', path: url.pathname, headers: headers(job, number, attempt), body: JSON.stringify(job.body),
    })
    await body.dump()
    if (statusCode < 200 || statusCode > 299) throw new Error(`the target answered ${statusCode}`)
  }
}

// headers are as many as an attempt of Punctual has, with values of the same length.
function headers(job, number, attempt) {
  const id = '00000000-0000-8000-8000-' + String(number).replaceAll('-', '').slice(-12).padStart(12, '0')
  return {
    'Content-Type': 'application/json',
    'User-Agent': 'punctual/bench',
    'Webhook-Id': id,
    'Idempotency-Key': id + ':1800000000',
    'Punctual-Job': job.name,
    'Punctual-Run': id,
    'Punctual-Attempt': String(attempt),
    'Punctual-Trigger': 'schedule',
    'Punctual-Scheduled-For': job.due ?? '2027-01-15T08:00:00Z',
    'Punctual-Fencing-Token': '1',
  }
}
