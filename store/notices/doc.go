// Package notices tells people what happens to jobs, and programs what happens to runs.
//
// Whatever happens is written in the transaction in which it happens (events.go, for the claim). Three pipelines lead
// from there to recipients, all by one outbox, which has a row for each recipient and pipeline:
//
//   - States: trouble of jobs, and its end. Events are rows of notices, and the health of a job is one of notified.
//     Collect (collect.go, join.go) moves the events into notice_states: a row for each recipient, job and kind of
//     trouble, with what the recipient was not told yet, and what it believes. So a newer state replaces an older one.
//   - Lifecycle: starts and successes of runs. Each is a row of lifecycle_events, and they are told in batches.
//   - Approvals: steps that wait for one. Each has a row in the outbox for each recipient.
//
// Claim (outbox.go) locks the recipient that has waited longest, lets its pipeline compose the message, and leases it:
// nothing else is sent to this recipient until Answered (answer.go), or until the lease has ended because the replica
// is lost. Pauses, backoff, outages and giving up are the same for all pipelines.
//
// A message of states is planned anew each time. compose.go reads the states that are due; plan.go sorts them by
// subject, and decides which are told now. A subject is a word for what jobs have in common, and the key by which
// PagerDuty and Alertmanager join messages: a job, a host, what held runs up (causes.go). states.go marks the states by
// the answer. When a message of a replica that stood still comes late, its states are told again: the recipient's last
// word is the truth.
//
// stale.go and overlapping.go find trouble that no run tells of, ends.go trouble whose end none will. defaults.go knows
// the recipients of tenants. list.go lists what was taken (notice_messages), and forget.go removes what is old.
package notices

import (
	"log/slog"

	"punctual/store/aside"
	"punctual/store/definitions"
	"punctual/store/pg"
)

// Options says how people are told.
type Options struct {
	Log *slog.Logger

	// PublicURL is where people reach the API, without a trailing slash. Notices link to it. Empty: they have no links.
	PublicURL string
	Labels    []string // of jobs: those that notices carry
	Pages     bool     // the links lead to the pages there, and not to the API
}

// Notifier fills the outbox and empties it. Safe for concurrent use.
type Notifier struct {
	db          *pg.DB
	definitions *definitions.Definitions
	aside       *aside.Aside
	options     Options
}

// NewNotifier returns a Notifier for a database.
func NewNotifier(db *pg.DB, d *definitions.Definitions, a *aside.Aside, o Options) *Notifier {
	return &Notifier{db: db, definitions: d, aside: a, options: o}
}

// labels returns those of a job's labels that notices carry.
func (s *Notifier) labels(all map[string]string) map[string]string {
	kept := map[string]string{}
	for _, name := range s.options.Labels {
		if value := all[name]; value != "" {
			kept[name] = value
		}
	}
	return kept
}
