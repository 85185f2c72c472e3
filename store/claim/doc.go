// Package claim is the heart of the store: it claims due slots and ready runs, writes the outcomes of their attempts,
// and keeps replicas alive. It owns the tables schedules, completions, runs, run_data, ready, attempts, claims,
// exclusive, cancels, workflows, holds, replicas, queues, allowances and tenant_usage. The rooms above make, let
// through, cancel and settle runs with it; it imports none of them. What else must happen when runs are written or end
// is left to Followers.
//
// The life of a slot is four transactions. Start reading with the first:
//
//   - due.go locks due rows of schedules, lets domain.Decide settle them, and writes the runs, the skips and the
//     next slots. Which rows it locks is in select.go, with what is shared out among tenants in fair.go.
//   - ready.go does the same for runs that wait in ready: retries, triggers, replays. dated.go makes runs of dated ones
//     whose time has come, for the same claim.
//   - finish.go writes outcomes: the end of an attempt, what follows from it, and the end of the lease. finishing.go is
//     its transaction.
//   - recover.go ends the claims of replicas that are lost.
//
// place.go writes when a job fires next, for the rooms that change jobs. All runs but those of due slots begin by one
// statement, which is in enter.go, with the runs of triggers, replays and backfills. chain.go makes those that the end
// of another run triggers, within the transaction that ends it. callback.go lets a target that works on after its
// answer end its run. workflow.go lets workflows go on when the runs of their steps end.
//
// A finish is asked and told in one order. Before anything is written, each follower reads what it has to know and
// decides about each outcome: reports do. Then gates are locked, outcomes are written, gates are freed for those that
// wait, and leases end. Then followers write what follows: links the runs that are triggered, notices what people are
// told. Then steps of workflows go on, in round trips of their own, or are left to a chore. Once the transaction has
// committed, all ask for the chores that have work, limits among them.
//
// What a run in ready waits for is in its column waits. The claim takes it for its turn, or for its host. park.go lets
// it wait for its gate or for a limit, and whoever makes room there gives it its turn. What waits for a target or for a
// person has a deadline, which is in silent.go.
//
// gates.go keeps the runs of a job from overlapping, overlap.go decides about those in ready that would, and order.go
// lets those of a job pass in order. limits.go keeps the limits that jobs share: its tables are limit_holders and
// job_limits. locked.go finds a way around rows that a stranger has locked, with finish_locked.go and ready_locked.go.
// replica.go and fences.go are the heartbeat and its guard against failovers.
package claim
