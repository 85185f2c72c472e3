// Package bench measures what Punctual costs and how late it is, by the binary itself, against any Postgres: it is
// `punctual bench`. Run is all that main needs; Target and Bare are processes of their own that Run starts.
//
//	Run ── scratch: the schema punctual, empty at the start of each benchmark, gone at the end
//	  └─ for each benchmark: lab ─┬─ replicas (`punctual serve`)
//	                              ├─ target   (`punctual bench-target`): counts requests, notes how late they come
//	                              └─ bare     (`punctual bench-bare`): the same requests with no database
//
// # A benchmark
//
// It is a function in a file of its own and a row of benchmarks. It gets a lab, and returns an error when it could not
// measure or when a run went wrong; a figure that misses its target is no error. In a lab there are
//
//   - serve, target, launch: processes that end with the benchmark;
//   - herd: jobs that are due at one instant; burst: one that is measured from there to the last lease;
//   - query and conn: SQL; db.dsn: the way to the database; db.postmaster: its process, for cpu; now and until: its clock;
//   - await: wait for a state; atRest: until nothing is due or under way; succeeded: make sure that every run was a
//     success at once and was requested once;
//   - figure and cpuFigure: report the rounds of a figure, whose median counts. NaN is what could not be measured;
//   - say: tell what is going on.
//
// A growth measures the burst with ever more of something: growth.go. A seeder fills the schema for it by SQL, with rows
// like those of the API and of replicas (seed.go); a plot draws what came of it (plot.go).
//
// How much is measured is in Sizes, so that the tests run every benchmark in seconds.
//
// # The scratch schema
//
// All SQL of Punctual names the schema punctual, so that is what a bench works in. One that it finds is never touched,
// unless it bears the mark of a former bench, which was killed, and the lock that a living bench holds is free.
// The lock is one of a session: the database URL has to lead to Postgres, not to a pooler in transaction mode.
package bench
