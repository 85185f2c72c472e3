// Package claim is the heart of the store: it claims due slots and ready runs, writes the outcomes of their attempts,
// and keeps replicas alive. It owns the tables claims, exclusive, cancels, holds, replicas, queues, allowances and
// tenant_usage. Callers' rooms in package store use it to let runs through gates, to cancel them and to settle slots;
// it imports none of them.
//
// The life of a slot is four transactions. Start reading with the first:
//
//   - due.go locks due rows of schedules, lets scheduler.Decide settle them, and writes the runs, the skips and the
//     next slots. Which rows it locks is in select.go, with what is shared out among tenants in fair.go.
//   - ready.go does the same for runs that wait in ready: retries, triggers, replays.
//   - finish.go writes outcomes: the end of an attempt, what follows from it, and the end of the lease.
//   - recover.go ends the claims of replicas that are lost.
//
// gates.go keeps the runs of a job from overlapping. locked.go, with ready_locked.go, finds a way around rows that a
// stranger has locked. replica.go and fences.go are the heartbeat and its guard against failovers.
package claim
