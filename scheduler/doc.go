// Package scheduler is what a replica does: it claims due work, sends its requests and writes their outcomes. Package
// domain decides what becomes of each slot, run and attempt. Neither knows SQL or the API.
//
// # Words
//
// A job is a definition: a schedule, an HTTP target and policies. A slot is a job and one nominal fire time. A run is
// what one slot, or one trigger by hand, becomes. An attempt is one HTTP request of a run. A replica is one process.
// All replicas are alike, share one Postgres and need no leader.
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
// The tick loop (ticker) asks the Store to claim. A claim is one transaction. It locks due rows and skips rows that
// others have locked (SKIP LOCKED), lets [domain.Decide] make a plan for each due job, writes the runs and the next
// slots, and commits. Only then are requests sent. So a replica that dies before the commit has done nothing, and one
// that dies after it has left a run and a lease that say so.
//
// A run's id is derived from its slot ([domain.SlotRunID]). So the primary key alone makes a slot fire at most once,
// however many replicas there are and whatever they believe.
//
// There are four kinds of due work ([domain.Work]): slots that are due now, runs that wait in ready, slots that are
// late, and runs ordered in bulk (backfills and replays). Each kind is claimed separately, and a run's lease names the
// kind it was claimed as. Each kind has a share of a queue's worker slots: it gets its share before another kind gets
// more than its own. Each kind also has a reserve, which less urgent kinds leave free even while the kind has nothing
// to do. More urgent kinds may use it, so slots that are due never wait while a worker slot is free. A kind whose
// reserve is used starts its first runs nonetheless, in excess of the worker slots (shares.go). The other
// slots are free for all kinds. A tick makes a round of claims of each kind: one claim, or a few side by side that work
// off a backlog. So no kind can keep another waiting for longer than a round. Runs ordered in bulk wait in their
// operation: ready holds a hundred of a tenant's at a time, in lanes of their own.
//
// While all due work of a kind fits in the worker slots, it is claimed in order of due time. When it does not fit,
// the slots are shared out among the tenants that wait (share.go).
//
// A run that hangs in the last worker slot must not block the claim of the slot that is to replace it. Such slots are
// claimed without a worker slot, by the jobs in flight (replace).
//
// The limits of a tenant are shared out among the replicas (limits). Each replica starts as many runs as its allowance
// permits, and draws more when that is not enough. Usage.Answer decides how much it gets. A claim takes as many of the
// tenant's runs as it may start (Grant) and leaves the others as they are. The tenant is then held back: the tick loop
// claims around it (claimAround), so that its backlog is not scanned tick after tick. Its backlog is claimed by quotas
// as soon as some of it may start.
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
// Slots that do not become runs are recorded as skipped, with the reason; nothing vanishes. A pending or retrying run
// has a row in ready. A running one is named by a row of claims, the lease of its batch, and carries the fencing
// token of its attempt: only the attempt with that token may end it.
//
// The end of a run may trigger runs of other jobs, those that its job names in then. They are made in the transaction
// that ends the run, and wait in ready like all others: that transaction takes no lock of the other jobs.
//
// A workflow is a job with steps in place of a target. Its run sends nothing: it is like one whose target has accepted
// it, and its steps have runs of their own. Each is made in the transaction that ends the last step before it
// (Definition.Advance decides that), and waits in ready like all others.
//
// With completion async a target may answer 202 and go on working. Its run is still running, but no replica holds it:
// the lease has released it, and it has a row in ready again, which is its deadline. The target's heartbeats put the
// deadline off. Its completion or failure ends the attempt, with a token made of the fencing token. If the deadline
// comes first, a chore ends the attempt as lost. Until then no other attempt starts. Ending the attempt takes no worker
// slot, and none of the starts that max_runs_per_second allows.
//
// # What lets a run in
//
// Package admit decides how much a claim may bring, and asks nothing of the database. The claim gets quotas and a
// Grant, and returns what it does not use. A run that was claimed has a permit: a worker slot, one of its tenant's
// starts, and its host's consent. Whatever becomes of the run, the permit gives all of it back. The files named above
// that share things out are admit's, and so is holds.go.
//
// # What holds a run back
//
// Right before a request goes out, holds asks package breaker whether it may. A host that cannot be reached holds
// back its own runs. A host or path whose requests time out may occupy a quarter of a queue's worker slots. No HTTP
// status holds a run back. A run that must wait is parked: its row in ready says what it waits for, since when and
// until when (Held). If it was claimed with one of the starts that max_runs_per_second allows, that start is
// returned. It is claimed again when it may be sent: as a probe or as the host recovers (ticker.fetchHeld), or when
// no replica holds it back any more. When its time is up, it is dead if a request to its host has failed shortly
// before, and otherwise it is a probe. A replica writes what it holds back to the table
// holds (Store.ReportHolds), so that every replica can show it, and reset it.
//
// When a job's runs must not overlap, a run takes the job's gate when it is created, and keeps it until it ends
// (Gate). A run that has to wait for another is not claimed before the gate is freed. The transaction that frees the
// gate sets the next run due, and its replica claims it at once: whatever a commit makes due wakes the tick loop.
//
// While the deployment is frozen nothing is claimed, and while a tenant is frozen nothing of that tenant. The
// claim's transaction checks this itself, so a freeze holds from the moment it has committed. A replica that finds
// its database to be a copy freezes the deployment.
//
// # What else goes on
//
// Beside the tick loop a replica renews its heartbeat every two seconds. The answer says what else there is to do:
// lost replicas to take over from, cancels to carry out, and chores to do (Chore), such as operations on many runs or
// jobs and notices to send. The replica that writes work for a chore needs no heartbeat for it: the commit asks for the
// chore (Store.Asked). The store hands its chores to Run as values. Any replica does chores, batch by batch, each batch
// in a transaction of its own. The runs they create wait in ready like all others. Deleting what is past its
// retention is a chore too, of one replica at a time. A pause ends at its set time. If no replica is up then, the first
// to come back ends it as of that instant.
//
// None of these waits for the others. Heartbeats, claims and finishes have connections of their own, separate from
// those of the chores and of the API. A row that somebody else has locked for longer than a moment is left alone: its
// slot or run stays due, and an outcome is put aside by the finisher (aside) and tried again.
//
// Package failpoint names the steps between which a replica may die, and lets tests choose where it does.
//
// # Time
//
// Only the database's clock decides anything about schedules. Functions that decide take now as an argument. This
// machine's clock measures how long something took, and nothing else. The next slot is computed from the last slot,
// never from now, so lateness does not become drift. Package cron knows about zones and daylight saving.
//
// # Where to read on
//
// Package domain is the heart: Decide, in decide.go, for missed slots, overlap and expiry; Judge, in retry.go, for
// what a response means; Assignment.Request for what an attempt sends. What the definition of a job says is in package
// jobspec, with Timetable for its slots. Run, in scheduler.go, starts the loops and drains them. Package forecast
// counts the slots of all jobs that are to come.
//
// Package placeholder finds the placeholders to fill in. Package credential adds the credentials and signs the request.
// Package delivery sends it, and its package guard keeps it away from forbidden addresses; holds.go and package breaker
// keep it away from hosts that are down. callback.go, in domain, handles work that goes on after a 202.
//
// The heartbeat, in heartbeat.go and liveness.go, notices lost replicas, takes over their runs, and brings cancels to
// the replica that is sending. What the database acknowledged it may have lost since: leases.go compares. notify.go,
// in jobspec, and stale.go, in domain, decide who is told of what, and when a job without success is stale. notice.go
// sends it, and package notice writes the texts. Freezes are in freeze.go.
//
// Store, in store.go, is everything that the loops ask of the database; package store implements it.
package scheduler
