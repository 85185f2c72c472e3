// Package scheduler is the domain of Punctual and the loops that drive it. It knows no SQL and no API.
//
// # Words
//
// A job is a definition: a schedule, an HTTP target and policies. A slot is a job and one nominal fire
// time. A run is what one slot, or one trigger by hand, becomes; an attempt is one HTTP request of a run.
// A replica is one process; all replicas are alike, share one Postgres and need no leader.
//
// # From a slot to a request
//
//	        schedules (one row per job: its next slot)         ready (retries, manual runs, runs given back)
//	                     │                                        │
//	tick loop  ──────────┴── claim: lock ≤ 100 due rows ──────────┘
//	                         decide (pure functions)
//	                         insert runs, advance schedules, commit
//	                                      │
//	worker slots ─────────────── one request per attempt ──► the job's target
//	                                      │
//	finisher ──────────────────── outcomes, in batches ──► runs, attempts, ready, dead_letters
//
// The tick loop (ticker) asks the Store to claim. A claim is one transaction: it locks due rows and passes
// over those that others hold (SKIP LOCKED), lets Decide turn each due slot into a Plan, writes the runs
// and the next slots, and commits. Only then are requests sent, so a replica that dies before the commit
// has done nothing, and one that dies after it has left a run and a lease that say so.
//
// A run's id is derived from its slot (SlotRunID). So the primary key alone makes a slot fire at most
// once, however many replicas there are and whatever they believe.
//
// While everything due fits in the worker slots it is claimed in order of due time. When it does not, the slots
// are shared out among the tenants that wait (share, in fairness.go).
//
// What a tenant with limits may do is shared out among the replicas (limits): each starts what its allowance says, and
// draws more when that is not enough. A claim takes what it may start of such a tenant (Grant) and leaves the rest as it is.
// The tenant is then held back: the tick loop claims around it (tickAround), so that what it has waiting is not looked
// through time and again, and comes to it by quotas as it may start something.
//
// # The states of a run
//
//	            claim of a slot
//	                  │
//	trigger ─► pending ─► running ─► succeeded
//	              ▲        │   ▲ └──► dead ─► dead letter
//	    given back└────────┤   │
//	                       ▼   │ claim from ready
//	                     retrying
//
// Slots that do not become runs are recorded as skipped, with the reason; nothing vanishes. A run waiting
// in pending or retrying has a row in ready. A running one is named by a row of claims, the lease of its
// batch, and carries the fencing token of its attempt: only the attempt with that token may end it.
//
// A run whose target has answered 202 and works on (completion async) is running, and held by no replica:
// the lease has let go of it, and it has a row in ready again, which is its deadline. The target's heartbeats
// put that off, and its completion or failure ends the attempt, with a token made of the fencing token. Should
// the deadline come, a claim from ready ends the attempt as lost; until then no other starts.
//
// # What else goes on
//
// Beside the tick loop a replica renews its heartbeat every two seconds. That brings back what there is to do
// besides: lost replicas to take over from, cancels to carry out, and chores (chore), which are operations on
// many runs and notices to tell. Chores are done in batches, by any replica, each in a transaction of its own;
// what they make are runs in ready like all others. Pauses that have run out and old partitions have a timer.
//
// Package failpoint names the steps between which a replica may die, and lets tests choose at which it does.
//
// # Time
//
// The database's clock is the only one that decides anything about schedules. Functions that decide take
// now as an argument. This machine's clock measures how long something took, and nothing else. The next
// slot is computed from the last slot, never from now, so lateness does not become drift. Package cron
// knows about zones and daylight saving.
//
// # Where to read on
//
// Decide, in decide.go, is the heart: missed slots, overlap, expiry. Timetable answers which slots a job
// has. Run, in scheduler.go, starts the loops and drains them. Judge, in retry.go, decides what a response
// means; package guard (in delivery) keeps requests away from addresses that are nobody's business, package breaker keeps requests away from hosts that do not answer. The heartbeat, in heartbeat.go
// and liveness.go, notices lost replicas and takes over their runs, and brings cancels to the replica that is
// sending. What an attempt sends is Assignment.Request; package placeholder finds what is filled in. What a callback, or the want of one, means is in callback.go. Notices, in notice.go, tell people
// what happened to a job: who is told is in notify.go, when a job without success is stale in stale.go, and package
// notice writes the forms. What proves to a target who calls it is added right before the request goes out, in
// authorize.go; what is signed is in signature.go. Store, in store.go, is all that is asked of the database; package store
// implements it.
package scheduler
