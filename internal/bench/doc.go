// Package bench measures what Punctual costs and how late it is, with the binary itself, against any Postgres.
// `make bench` builds and runs its program, internal/bench/cmd. Run starts Target and Bare as processes of their own.
//
//	Run ── scratch: the schema punctual, empty at the start of each benchmark, gone at the end
//	  └─ for each benchmark: lab ─┬─ replicas (`punctual serve`)
//	                              ├─ target   (`bench target`): counts requests, notes how late they come
//	                              └─ bare     (`bench bare`): the same requests with no database
//
// # A benchmark
//
// A benchmark is a function in a file of its own and a row of benchmarks. It gets a lab. If it cannot measure, or a run
// went wrong, it ends by must, as a test ends by t.Fatal; a figure that misses its target is no error. A lab has
//
//   - setting, serve, target, launch: start processes that end with the benchmark;
//   - herd: creates jobs that are due at one instant; burst: measures such jobs from then until the last lease is gone;
//   - query, exec and conn: run SQL; db.dsn: the database's DSN; db.postmaster: its process, for cpu;
//   - now and until: use the database's clock;
//   - await: waits for a state; atRest: waits until nothing is due or in flight; succeeded: checks that every run
//     succeeded at once and was requested once;
//   - figure and cpuFigure: report the rounds of a figure, whose median counts. NaN means: could not be measured;
//   - say: reports progress.
//
// A growth measures the burst with ever more of something (growth.go). For it, a seeder fills the schema by SQL with
// rows like those that the API and replicas write (seed.go).
//
// RunPeers is for command peers, beside this package, and no part of the binary. Peers are programs that describe
// themselves, load jobs and work them (testdata/peers); peers.go measures them and Punctual as contenders.
//
// Sizes says how much is measured, so that the tests can run every benchmark in seconds.
//
// # The scratch schema
//
// All of Punctual's SQL names the schema punctual, so a bench works in that schema. It never touches one that it finds,
// with one exception: the schema bears the mark of a former bench that was killed, and the lock that a living bench
// holds is free. The lock belongs to a session, so the database URL must lead to Postgres itself and not to a pooler in
// transaction mode.
package bench
