// Works the jobs of make bench with pg-boss. ../README.md has the protocol and the settings.
import { PgBoss } from 'pg-boss'
import * as undici from 'undici'
import { due, options, payload, poster, version } from '../peer.mjs'

const o = options()
const queue = 'callbacks'
// A batch is fetched, worked and completed as a whole. While one of two is completed, the other is worked.
const batches = o.tuned ? 2 : 1
const batchSize = o.slots ? Math.ceil(o.slots / batches) : 500

async function start(more) {
  const boss = new PgBoss({ connectionString: o.databaseUrl, schema: o.schema, ...more })
  boss.on('error', (error) => console.error(error))
  await boss.start()
  await boss.createQueue(queue, o.tuned ? { heartbeatSeconds: 10 } : {})
  return boss
}

async function load() {
  const boss = await start({ supervise: false, schedule: false })
  for (let first = 0; first < o.jobs; first += 5000) {
    const jobs = []
    for (let i = first; i < Math.min(first + 5000, o.jobs); i++) {
      const at = due(o, i)
      jobs.push({ data: payload(o, `job-${i}`, at), startAfter: at })
    }
    await boss.insert(queue, jobs)
  }
  await boss.stop()
}

async function work() {
  const boss = await start(o.tuned && {
    superviseIntervalSeconds: 5, monitorIntervalSeconds: 5, cronMonitorIntervalSeconds: 15, cronWorkerIntervalSeconds: 1,
  })
  for (let first = 0; first < o.crons; first += 50) {
    const some = Array.from({ length: Math.min(50, o.crons - first) }, (_, i) => `cron-${first + i}`)
    await Promise.all(some.map((key) => boss.schedule(queue, '* * * * *', payload(o, key), { key })))
  }
  const post = poster(undici, batches * batchSize)
  await boss.work(queue, {
    batchSize,
    localConcurrency: batches,
    ...(o.tuned && { pollingIntervalSeconds: 0.5, burstWhenBatchFull: true }),
  }, (jobs) => Promise.all(jobs.map((job) => post(job.data, job.id, 1))))
  process.on('SIGTERM', () => boss.stop())
  console.log('ready')
}

switch (o.command) {
  case 'describe':
    console.log(JSON.stringify({
      name: 'pg-boss',
      version: version(import.meta.url, 'pg-boss'),
      runtime: `Node ${process.version}`,
      unfinished: `SELECT EXISTS (SELECT FROM ${o.schema}.job WHERE name = '${queue}' AND state < 'completed')`,
    }))
    break
  case 'load':
    await load()
    break
  case 'work':
    await work()
    break
  default:
    throw new Error(`unknown command ${o.command}`)
}
