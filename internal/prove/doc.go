// Package prove shows, from the outside, that Punctual keeps its promises.
//
// It runs replicas as what they are in production, separate processes of the real binary on a real
// Postgres (package proc), lets them call a target that remembers every request it got (Witness), and afterwards
// works out which slots were due, from the definitions and the clock alone, to compare them with the runs
// in the database and with what the witness saw (Check):
//
//	definitions ──► due slots ─┐
//	punctual.runs ─────────────┼─► Check ─► violations
//	the witness's log ─────────┘
//
// The rules are the constants of Rule; docs/reliability.md tells which of them is which promise, and lists the
// faults under which they are checked.
//
// Nothing here asks the scheduler what it believes it did. Slots of every, at, delay and plain cron
// schedules are computed by code of this package's own, so that a mistake in the product's is noticed;
// only cron expressions with zones, names, L, W or # are left to scheduler.Timetable, which has tables
// and a brute-force oracle of its own.
//
// It is for tests. Nothing in the binary imports it.
package prove
