//prove:notices

package prove

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"punctual/httpapi/client"
	"punctual/internal/pgtest"
	"punctual/internal/privatepg"
	"punctual/internal/process"
)

// heldUp is something that keeps all jobs of a queue from being sent.
type heldUp struct {
	dsn, queue string
	api        *client.Client
	hold, free func()
	fleet      []*process.Replica // at the end
}

// Hundreds of jobs were held up. Each recipient gets one message with all and the reason.
//
// When it is over.
func TestWhatHeldUpManyJobsIsOneMessage(t *testing.T) {
	t.Parallel()
	freezes := func(scope string) func(t *testing.T, h *heldUp) {
		return func(t *testing.T, h *heldUp) {
			h.dsn = pgtest.DSN(t)
			h.fleet = []*process.Replica{serve(t, h.dsn)}
			in := map[string]any{"scope": scope, "note": "the warehouse moves"}
			h.hold = func() { do[any](t, h.api, "POST", "/v1/freeze", in) }
			h.free = func() { do[any](t, h.api, "POST", "/v1/unfreeze", in) }
		}
	}
	for _, test := range []struct {
		name, says string
		begin      func(t *testing.T, h *heldUp)
	}{
		{"no replica", "no replica was alive from ", func(t *testing.T, h *heldUp) {
			h.dsn = pgtest.DSN(t)
			h.fleet = []*process.Replica{serve(t, h.dsn), serve(t, h.dsn)}
			h.hold = func() {
				h.fleet[1].Kill()
				stop(t, h.fleet[0])
			}
			h.free = func() { h.fleet = []*process.Replica{serve(t, h.dsn), serve(t, h.dsn)} }
		}},
		{"a crash of the database", "no replica could reach the database from ", func(t *testing.T, h *heldUp) {
			server := pgtest.NewServer(t, privatepg.Config{})
			h.dsn = pgtest.Database(t, server)
			h.fleet = []*process.Replica{serve(t, h.dsn), serve(t, h.dsn)}
			h.hold = func() { must(t, server.Crash()) }
			h.free = func() { must(t, server.Restart(t.Context())) }
		}},
		{"a queue", `no live replica served the queue \"reports\" from `, func(t *testing.T, h *heldUp) {
			h.dsn, h.queue = pgtest.DSN(t), "reports"
			only := serve(t, h.dsn, "--queues=reports=20")
			h.fleet = []*process.Replica{serve(t, h.dsn, "--queues=default=20")}
			h.hold = func() { stop(t, only) }
			h.free = func() { h.fleet = append(h.fleet, serve(t, h.dsn, "--queues=reports=20")) }
		}},
		{"a freeze", "the tenant was frozen from ", freezes("tenant")},
		{"a freeze of all", "the deployment was frozen from ", freezes("deployment")},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			h := &heldUp{queue: "default"}
			test.begin(t, h)
			h.api = h.fleet[0].API
			oneMessage(t, h, test.says)
		})
	}
}

// oneMessage holds up 300 jobs for 40 s, and checks what a channel and PagerDuty are told.
func oneMessage(t *testing.T, h *heldUp, says string) {
	const skipped, late = 200, 100
	w, pager, slack := newWitness(t), newPager(t), newChannel(t, false)
	do[any](t, h.api, "PUT", "/v1/secrets/pagerduty-key", map[string]string{"value": "0123456789abcdef0123456789abcdef"})
	due := nextSecond(20 * time.Second)
	specs := func(n int, name, policy string) []process.JobSpec {
		return many(n, name, w.URL+"/work", process.JobSpec{
			"schedule": map[string]any{"every": "1h", "starts_at": client.Instant(due)}, "queue": h.queue,
			"missed": map[string]any{"policy": policy, "tolerance": "5s"},
			"notify": []any{told("slack", slack.url, "missed", "late"), told("pagerduty", pager.url, "missed", "late")},
		})
	}
	create(t, h.api, append(specs(skipped, "skipped", "skip"), specs(late, "late", "fire_once")...)...)
	pass(t, time.Until(due.Add(-5*time.Second)))
	h.hold()
	pass(t, time.Until(due.Add(40*time.Second)))
	h.free()
	awaitFor(t, 2*time.Minute, "what was late to be sent", func() bool { return w.Len() == late })
	conn := connect(t, h.dsn)
	awaitFor(t, 2*time.Minute, "the messages", func() bool {
		return len(slack.messages()) > 0 && len(pager.events()) > 0 && nothingToTell(t, conn)
	})
	got := slack.messages()
	want := fmt.Sprintf("%d runs of %d jobs late, %d slots of %d jobs missed: %s", late, late, skipped, skipped, says)
	if len(got) != 1 || !strings.Contains(got[0], want) {
		t.Errorf("the channel is told %d times, first %.500s", len(got), got[0])
	}
	text := strings.ReplaceAll(strings.Join(got, "\n"), `\u003e`, ">") + " "
	for _, name := range append(names("skipped", skipped), names("late", late)...) {
		if !strings.ContainsAny(after(text, name), `,">`) {
			t.Errorf("%s is not named", name)
		}
	}
	execute(t, conn, `
		UPDATE punctual.outbox SET due_at = now(), look_at = now(), causes = (
		    SELECT json_object_agg(key, value || jsonb_build_object('newest', now() - interval '6 min'))
		    FROM jsonb_each(causes))
		WHERE format = 'pagerduty'`)
	await(t, "the end of the incident", func() bool { return len(pager.events()) > 1 })
	if e := pager.events(); len(e) != 2 || e[0]["event_action"] != "trigger" || e[1]["event_action"] != "resolve" {
		t.Errorf("PagerDuty is sent %v", e)
	}
	stop(t, h.fleet...)
}

// nothingToTell reports whether no recipient is yet to be told anything.
func nothingToTell(t *testing.T, conn *pgx.Conn) bool {
	t.Helper()
	return query[int](t, conn, `
		SELECT (SELECT count(*) FROM punctual.notices) +
		       (SELECT count(*) FROM punctual.notice_states WHERE tell_at IS NOT NULL)`) == 0
}

// names are those of the jobs that many makes.
func names(name string, n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprint(name, "-", i))
	}
	return all
}

// after returns the characters that follow an occurrence of a name, one for each.
func after(text, name string) (next string) {
	for _, rest := range strings.Split(text, name)[1:] {
		next += rest[:1]
	}
	return next
}
