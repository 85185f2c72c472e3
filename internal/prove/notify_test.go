//prove:notices

package prove

import (
	"testing"

	"punctual/internal/pgtest"
	"punctual/internal/process"
)

// A job dies and recovers. Its hook gets each event once.
//
// Under two replicas, and it gets nothing else.
func TestAHookIsToldOfADeathAndOfTheRecovery(t *testing.T) {
	t.Parallel()
	dsn, w := pgtest.DSN(t), newWitness(t)
	fleet := []*process.Replica{serve(t, dsn), serve(t, dsn)}
	conn := connect(t, dsn)
	w.Script("/work", Answer{Status: 500}, Answer{Status: 500}, Answer{})
	w.Script("/hook", Answer{Status: 503}, Answer{})
	create(t, fleet[0].API, job("fragile", w.URL+"/work", process.JobSpec{
		"concurrency_policy": "forbid", "retry": map[string]any{"max_attempts": 2, "initial_backoff": "10ms"},
		"notify": []any{map[string]any{"on": []string{"dead", "recovered"}, "url": w.URL + "/hook"}},
	}))
	create(t, fleet[0].API, job("silent", w.URL+"/silent", process.JobSpec{"retry": map[string]any{"max_attempts": 1}}))
	w.Script("/silent", Answer{Status: 500})
	triggerTo(t, fleet[0].API, "dead", "silent")
	triggerTo(t, fleet[0].API, "dead", "fragile")
	await(t, "the first notice", func() bool { return len(w.At("/hook")) == 1 })
	// The test does not wait for the pauses between messages.
	hurry := func() {
		execute(t, conn, `UPDATE punctual.outbox SET held_until = now()
			WHERE held_until < now() + interval '30 s'`) // but not while a message is under way
	}
	await(t, "its second attempt", func() bool { hurry(); return len(w.At("/hook")) == 2 })
	await(t, "the answer to be written", func() bool {
		return query[int](t, conn, `SELECT count(*) FROM punctual.notice_messages`) == 1
	})
	triggerTo(t, fleet[1].API, "succeeded", "fragile")
	await(t, "the second notice", func() bool { return len(w.At("/hook")) == 3 })
	await(t, "the answer to be written", func() bool {
		return query[int](t, conn, `SELECT count(*) FROM punctual.notice_messages`) == 2
	})
	triggerTo(t, fleet[0].API, "succeeded", "fragile")
	f := atRest(t, dsn, w)
	verify(t, f, Conditions{SentOnce: true})
	if got := query[string](t, conn, `
		SELECT string_agg(array_to_string(events, ','), '; ' ORDER BY id) FROM punctual.notice_messages`); got != "dead; recovered" {
		t.Errorf("the hook was told %q", got)
	}
	if left := query[int](t, conn, `
		SELECT (SELECT count(*) FROM punctual.notices) + (SELECT count(*) FROM punctual.notice_states) +
		       (SELECT count(*) FROM punctual.notified WHERE failures > 0)`); left != 0 {
		t.Errorf("%d are left to be told, or fail still", left)
	}
	stop(t, fleet...)
}
