// Package claim is the heart of the store: it claims due slots and ready runs, and writes the outcomes of their
// attempts. It owns the tables schedules, completions, runs, run_data, ready, attempts, claims, exclusive, cancels,
// allowances and tenant_usage. The rooms above make, let through, cancel and settle runs with it; it imports none of
// them. What else must happen when runs are written or end is left to Followers.
//
// The life of a slot is four transactions. Start reading with the first:
//
//   - due.go locks due rows of schedules, lets domain.Decide settle them, and writes the runs, the skips and the
//     next slots. Which rows it locks is in select.go, with what is shared out among tenants in fair.go.
//   - ready.go does the same for runs that wait in ready: retries, triggers, replays. Subjects decide about them, which
//     are named below.
//   - finish.go writes outcomes: the end of an attempt, what follows from it, and the end of the lease. finishing.go is
//     its transaction.
//   - recover.go ends the claims of replicas that are lost.
//
// place.go writes when a job fires next, for the rooms that change jobs. All runs but those of due slots begin by one
// statement, which is in enter.go, with the runs of triggers, replays and backfills. chain.go makes those that the end
// of another run triggers, within the transaction that ends it. callback.go lets a target that works on after its
// answer end its run.
//
// A claim of ready locks rows of ready, makes runs of the dated ones among them, locks the gates of their jobs and
// reads the runs. Then its subjects (subject.go) read what each decides by, in the order below, which is also that of
// locks: gates before limits. They are asked about one run after another, in the same order. The first that does not
// let a run go on decides what becomes of it, and the others are not asked. When all have let it go on, it starts, and
// takes what it needs of those that have something to give. Then they write, in the same order, and attempts are ended
// as a finish ends them.
//
//  1. othersLocks (ready_locked.go): a run of which another transaction has locked a row comes again.
//  2. contents (content.go): a run whose body is too much for this claim stays, and one whose definition this binary
//     cannot read comes again.
//  3. gates (gate.go): a run whose gate another claim has locked comes again. A run that starts takes the gate.
//  4. deadlines (deadline.go): an attempt that has passed its deadline ends, or goes on for a while, which
//     package flow decides for workflows. What follows is about all other runs.
//  5. dated (dated.go): a dated run that is too late for its job is skipped.
//  6. overlaps (overlap.go): a run about which no claim has decided is skipped, waits or replaces others, as the policy
//     says. Others may end because of it; nothing is decided about those any more.
//  7. lines (line.go): a run waits at its gate while another one has it, or while it is not its turn.
//  8. deletions (admitted.go): a run of a deleted job is cancelled.
//  9. slots (admitted.go): in a claim without worker slots a run stays.
//  10. limits (limits.go): a run waits at a limit that is full. A run that starts holds its limits.
//  11. starts (admitted.go): a run whose tenant may not start more stays.
//
// A run that waits for its gate or at a limit is not met again before whoever makes room there gives it its turn. One
// that comes again or stays is due, or will be.
//
// A finish is asked and told in one order. Before anything is written, each follower reads what it has to know and
// decides about each outcome: reports do. Then gates are locked, outcomes are written, gates are freed for those that
// wait, and leases end. Then followers write what follows: links the runs that are triggered, notices what people are
// told. Then flow lets workflows go on, in round trips of its own, or leaves them to a chore. Once the transaction has
// committed, all ask for the chores that have work, limits among them.
//
// What a run in ready waits for is in its column waits. The claim takes it for its turn, or for its host. park.go lets
// it wait for its gate or for a limit, and whoever makes room there gives it its turn. What waits for a target or for a
// person has a deadline, which is in silent.go.
//
// gates.go keeps the runs of a job from overlapping, and order.go counts those that wait in line. limits.go keeps the
// limits that jobs share, and limits_release.go has those that wait there go on: their tables are limit_holders and
// job_limits. locked.go finds a way around rows that a stranger has locked, with finish_locked.go, ready_locked.go and
// due_locked.go.
package claim
