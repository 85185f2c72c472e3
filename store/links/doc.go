// Package links keeps chains: that the end of a run of one job triggers another job. It owns the table links, which has
// the members then of the jobs' present definitions. Package claim makes the runs (chain.go there), within the
// transaction that ends the run, by the definition that the run had.
//
// A definition holds ids. Resolve puts them in the place of the names that callers write, and Show puts the names back.
// Write refuses what closes a circle or is too long, also when two writes race.
package links
