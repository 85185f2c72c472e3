// Package flow lets workflows go on: it starts the steps whose turn it is, and has a workflow end whose steps have
// ended. It owns the table workflows.
//
// A workflow's run is like one whose target has accepted it: no replica holds it, and its row in ready is its deadline.
// Until it ends it has a row in workflows. Whatever ends the run of a step marks that row as due, in the same
// transaction. What follows is decided under the row's lock, by the runs as the next statement reads them: so two steps
// that end together cannot each find the other unfinished. A finish decides within its own transaction, as the Follower
// has it (follow.go), and a chore does it for all others (chore.go). What follows for one workflow is in workflow.go,
// and advance.go writes it for many.
//
// The row is locked after the runs of steps. So nothing that has locked it ends a run: the runs of a workflow that was
// cancelled are cancelled in a transaction of their own, and its own run is set due and ended with the overdue ones,
// whose claim takes gates in their order.
package flow
