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
// There are four kinds of due work (Work, in work.go): slots that are due now, runs that wait in ready, slots that are
// late, and runs that somebody ordered in numbers (backfills and replays). They are claimed apart, and a run's lease says
// as what it was claimed. Each kind has a share of a queue's worker slots, which it gets before any other gets more than
// its own, and a reserve, which the others leave free even while it has nothing to do; what else is free is anybody's. So
// none can keep another waiting for longer than one claim. What is ordered waits in its operation: in ready there are
// a hundred of a tenant's at a time, in lanes of their own.
//
// While everything due of a kind fits in the worker slots it is claimed in order of due time. When it does not, the slots
// are shared out among the tenants that wait (share, in fairness.go).
//
// A run that hangs in the last worker slot must not keep the slot from being claimed that is to replace it: such slots are
// claimed without one, by the jobs in flight (replace).
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
// the deadline come, the attempt is ended as lost (Store.EndSilent, which the heartbeat asks for); until then no other
// starts. That needs no worker slot, and no start of a limit.
//
// # What holds a run back
//
// Right before a request goes out, holds asks package breaker whether it may. A host that cannot be reached holds back
// its own runs, and a host or path whose requests time out may have a quarter of a queue's worker slots; a status of
// any kind holds nothing back. A run that must wait is parked: its row in ready says for what, since when and until when
// (Held); it gives the start of its tenant's limit back that it was claimed with. It is not claimed again before it may be sent: as a probe or as the host recovers (ticker.fetchHeld), when no
// replica holds it back any more (Store.ReleaseHeld), or when its time is up, and then it is dead. What a replica holds
// back is written to the table holds, so that every replica can tell, and reset, it.
//
// Of a job whose runs must not overlap, a run takes the job's gate when it is made, and has it until it ends (Gate). One
// that has to wait for another is not claimed before the gate is freed; whoever frees it sets the next run due.
//
// While the deployment or a tenant is frozen nothing of it is claimed. That is judged inside the claim's transaction, so
// that it holds from the moment the freeze has committed. A replica that finds its database to be a copy freezes it.
//
// # What else goes on
//
// Beside the tick loop a replica renews its heartbeat every two seconds. That brings back what there is to do
// besides: lost replicas to take over from, cancels to carry out, and chores (chore), which are operations on
// many runs and notices to tell. Chores are done in batches, by any replica, each in a transaction of its own;
// what they make are runs in ready like all others. What is past its retention is a chore too, of one replica at a time. Pauses end
// when they say; should no replica be there then, whoever comes ends them as of that instant.
//
// None of this waits for anybody else. Heartbeats, claims and finishes have connections of their own, beside those of the
// chores and of the API. What others have locked for longer than a moment they leave alone: a slot or a run that it
// belongs to stays due, and an outcome is put aside by the finisher (aside) and tried again.
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
// means. What an attempt sends is Assignment.Request; package placeholder finds what is filled in, authorize.go adds
// what authenticates the request, and signature.go signs it. Package guard (in delivery) keeps requests away from
// forbidden addresses; holds.go and package breaker keep them away from hosts that are down. The heartbeat, in
// heartbeat.go and liveness.go, notices lost replicas, takes over their runs, and brings cancels to the replica that is
// sending. Work that goes on after a 202 is in callback.go. Who is told of what is in notify.go and notice.go, when a job
// without success is stale in stale.go, and package notice writes the forms. Freezes are in freeze.go. Store, in
// store.go, is all that is asked of the database; package store implements it.
package scheduler
