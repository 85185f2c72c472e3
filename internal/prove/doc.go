// Package prove shows, from the outside, that Punctual keeps its promises.
//
// It runs replicas as in production: as separate processes of the real binary (package process) on a real Postgres.
// They call a target that remembers every request that it got (Witness). Afterwards Check works out, from the
// definitions and the clock alone, which slots were due. It compares them with the runs in the database and with the
// witness's log:
//
//	definitions ──► due slots ─┐
//	punctual.runs ─────────────┼─► Check ─► violations
//	the witness's log ─────────┘
//
// The rules are the constants of Rule. README.md says which promise each rule belongs to, and lists the faults under
// which the rules are checked. The list is written from the first paragraphs of the tests' comments, by
// go test ./internal/docs -run Written -args -update; directives such as //prove:replicas name its sections.
//
// Nothing here asks the scheduler what it believes it did. This package computes the slots of every, at, delay and
// plain cron schedules with code of its own, so that it notices a mistake in the product's code. Only cron expressions
// with zones, names, L, W or # are left to jobspec.Timetable, which has tables and a brute-force oracle of its own.
//
// The package is for tests. Nothing in the binary imports it.
package prove
