package notices

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
	"punctual/scheduler/notice"
	"punctual/store/pg"
)

// lookAgain is how long a limit must not have held anything back before it counts as over, and the pause between two
// looks at what lasts.
const lookAgain = 30 * time.Second

// cause is something that held up runs, and that a recipient knows of or may know of. It does not belong to the jobs:
// one-shots are forgotten before it is over.
type cause struct {
	Since  time.Time `json:"since"`
	Newest time.Time `json:"newest"`          // event
	Again  bool      `json:"again,omitempty"` // the recipient may believe something older
}

// collecting is how long a cause of one of the kinds in collects waits for its jobs. It is over before anything can be
// told of it: all that it held up is claimed when it is over, and comes in within moments.
const collecting = 30 * time.Second

var collects = []notice.Kind{notice.KindQueue, notice.KindFreeze, notice.KindDatabase, notice.KindReplicas}

// passes reports whether a digest is about late or dropped runs and missed slots alone.
func passes(d domain.Digest) bool { return d.State() == "" }

// passingKey is the key of the subject of events that are over when they are told: their cause, if it is known.
func passingKey(d domain.Digest) string {
	key := func(kind notice.Kind, name ...string) string {
		return strings.Join(append([]string{string(kind), d.Tenant}, name...), ":")
	}
	for _, e := range slices.Backward(d.Events) {
		switch e.Cause {
		case "limit":
			return key(notice.KindLimit, e.CauseName)
		case "queue_unserved":
			return key(notice.KindQueue, e.CauseName)
		case "frozen":
			return key(notice.KindFreeze)
		case "database_away":
			return key(notice.KindDatabase)
		case "no_replica":
			return key(notice.KindReplicas)
		}
	}
	switch d.Events[len(d.Events)-1].Event {
	case jobspec.EventLate:
		return key(notice.KindLate)
	case jobspec.EventDropped:
		return key(notice.KindDropped)
	default:
		return key(notice.KindMissed)
	}
}

// world is what holds up runs of a recipient's tenant now. It is not frozen: then nothing is sent.
type world struct {
	tenant   string
	limit    string // empty: none
	most     int
	heldAt   time.Time
	unserved []string // of the queues that were asked for
}

// readWorld reads the world, as far as the subjects with these keys need it.
func readWorld(ctx context.Context, tx *pg.Tx, tenant int32, keys []string) (w world, err error) {
	queues := []string{}
	for _, key := range keys {
		if kind, name, _ := kindOf(key); kind == notice.KindQueue {
			queues = append(queues, name)
		}
	}
	var heldAt *time.Time
	err = tx.QueryRow(ctx, `
		SELECT t.name, coalesce(u.held_by, ''), coalesce(
		           CASE u.held_by WHEN 'max_concurrent_runs' THEN t.max_concurrent_runs ELSE t.max_runs_per_second END, 0),
		       u.held_at, ARRAY(SELECT DISTINCT q FROM unnest($2::text[]) q WHERE NOT punctual.is_served(q))
		FROM punctual.tenants t
		LEFT JOIN punctual.tenant_usage u ON u.tenant = t.id
		WHERE t.id = $1`, tenant, queues).Scan(&w.tenant, &w.limit, &w.most, &heldAt, &w.unserved)
	w.heldAt = pg.OrZero(heldAt)
	return w, err
}

// lasts returns until when a cause lasts at least, and how it is told.
func (w world) lasts(kind notice.Kind, name string, now time.Time) (until time.Time, words string) {
	switch {
	case kind == notice.KindLimit && name == w.limit && w.heldAt.Add(lookAgain).After(now):
		return w.heldAt.Add(lookAgain), fmt.Sprintf("%s is at %s (%d)", w.tenant, w.limit, w.most)
	case kind == notice.KindQueue && slices.Contains(w.unserved, name):
		return now.Add(lookAgain), fmt.Sprintf("no live replica serves the queue %q", name)
	}
	return time.Time{}, ""
}

// tellPassing says what there is to tell of a cause of late runs and missed slots. It is told at once, then together a
// gap later, and when it is over. To a recipient that keeps a state, what is over when it is told is open until nothing
// more has happened for a gap.
func (to *recipient) tellPassing(key string, rows []*state, w world) (s notice.Subject, tells bool) {
	kind, name, _ := kindOf(key)
	s = notice.Subject{Kind: kind, Name: name, Key: key, State: notice.StatePassing}
	addJobs(&s, rows)
	c, open := to.causes[key]
	dirty, again := false, c.Again
	for _, r := range rows {
		dirty, again = dirty || r.dirty, again || r.again
		if r.unsent == nil {
			continue
		}
		for _, e := range r.unsent.Events {
			c.Newest = jobspec.Later(c.Newest, e.LastAt)
		}
	}
	if open && (s.Since == nil || c.Since.Before(*s.Since)) {
		s.Since = &c.Since
	}
	until, words := w.lasts(kind, name, to.now)
	lasting := words != ""
	quiet := !c.Newest.Add(gap).After(to.now)
	switch {
	case open && !lasting && (quiet || kind == notice.KindLimit):
		s.State = notice.StateResolved
		to.Over = append(to.Over, key)
		return s, true
	case dirty || open && c.Again:
		next := to.sent[key].Add(gap)
		if tells = again || !next.After(to.now); !tells {
			putOff(rows, next)
		}
	}
	if lasting {
		s.Cause = words
	}
	if tells && (lasting || stateful(to.To.Format)) {
		s.State = notice.StateFiring
		if !open {
			to.Begun = append(to.Begun, key)
		}
		c.Since, open = *cmp.Or(s.Since, &to.now), true
	}
	if open {
		to.causes[key] = c
		to.look(cmp.Or(until, c.Newest.Add(gap)))
	}
	return s, tells
}

// look has the recipient looked at again when a cause that is open may be over.
func (to *recipient) look(at time.Time) {
	if at.Before(to.now) {
		at = to.now.Add(time.Second)
	}
	if to.lookAt == nil || at.Before(*to.lookAt) {
		to.lookAt = &at
	}
}

// queueCauses queues the statement that writes what a recipient knows of causes.
func (to *recipient) queueCauses(b *pgx.Batch) {
	b.Queue(`UPDATE punctual.outbox SET causes = $2, look_at = $3, sent = $4 WHERE id = $1`,
		to.Recipient, asText(to.causes), to.lookAt, asText(to.sent))
}

// settleCauses notes what an answer means for the causes that a message told of.
func (to *recipient) settleCauses(o outcome) {
	if o.settled() {
		for _, key := range to.Keys {
			if c, open := to.causes[key]; slices.Contains(to.Over, key) {
				delete(to.causes, key)
			} else if open {
				c.Again = false
				to.causes[key] = c
			}
		}
	}
	if o.Arrival != notice.Delivered && o.Arrival != notice.Unknown {
		for _, key := range to.Begun {
			delete(to.causes, key)
		}
	}
}

// tellCausesAgain has the states of the causes of a message told again, because it may have arrived after later ones.
// One that is not open is over, and that is told.
func (to *recipient) tellCausesAgain() {
	for _, key := range to.Keys {
		if kind, _, _ := kindOf(key); !kind.Passing() {
			continue
		}
		c, open := to.causes[key]
		if !open {
			c = cause{Since: to.now, Newest: to.now.Add(-gap)}
		}
		c.Again = true
		to.causes[key], to.lookAt = c, &to.now
	}
}

// keysOfCauses returns the keys of the open causes in order.
func (to *recipient) keysOfCauses() []string { return slices.Sorted(maps.Keys(to.causes)) }
