//prove:notices

package prove

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"punctual/internal/pgtest"
	"punctual/internal/process"
)

// channel is a receiver of notices. A slow one takes one message a second, and asks for a pause otherwise.
type channel struct {
	url  string
	slow bool
	mu   sync.Mutex
	last time.Time
	got  []string
}

func newChannel(t *testing.T, slow bool) *channel {
	c := &channel{slow: slow}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		c.mu.Lock()
		defer c.mu.Unlock()
		if err != nil || c.slow && time.Since(c.last) < time.Second {
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		c.last, c.got = time.Now(), append(c.got, string(body))
	}))
	t.Cleanup(server.Close)
	c.url = server.URL + "/"
	return c
}

func (c *channel) messages() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.got)
}

// told is an entry of notify.
func told(format, url string, on ...string) map[string]any {
	entry := map[string]any{"on": on, "format": format, "url": url}
	if format == "pagerduty" {
		entry["secret"] = "pagerduty-key"
	}
	return entry
}

// 600 one-shots wait behind a limit. Their lateness is one cause, reported when it begins and ends.
//
// A limit of 5 starts a second, for 120 s. A digest follows the first message. Reporting costs none of the starts that
// the limit allows.
func TestABurstBehindALimitIsOneCause(t *testing.T) {
	t.Parallel()
	const perSecond, n = 5, 600
	dsn, w, pager, slack := pgtest.DSN(t), newWitness(t), newPager(t), newChannel(t, false)
	conn := connect(t, dsn)
	r := serve(t, dsn)
	limit(t, conn, "max_runs_per_second", perSecond)
	awaitRate(t, r, perSecond)
	do[any](t, r.API, "PUT", "/v1/secrets/pagerduty-key", map[string]string{"value": "0123456789abcdef0123456789abcdef"})
	create(t, r.API, many(n, "once", w.URL+"/works", process.JobSpec{
		"schedule": oneShot(time.Now().Add(3 * time.Second)),
		"notify":   []any{told("slack", slack.url, "late"), told("pagerduty", pager.url, "late")},
	})...)
	awaitFor(t, 5*time.Minute, "all runs", func() bool { return w.Len() == n })
	requests := w.Requests()
	var starts []time.Time
	for _, r := range requests {
		starts = append(starts, r.At)
	}
	slices.SortFunc(starts, time.Time.Compare)
	if took, ideal := starts[n-1].Sub(starts[0]), time.Second*n/perSecond; took > ideal*5/4 {
		t.Errorf("%d runs took %s, and %s at the pace of the limit", n, took, ideal)
	}
	awaitFor(t, 3*time.Minute, "the end of the limit to be told", func() bool {
		all := strings.Join(slack.messages(), "\n")
		events := pager.events()
		return strings.Contains(all, "max_runs_per_second holds back no more runs") && len(events) > 1 &&
			events[len(events)-1]["event_action"] == "resolve"
	})
	if got := slack.messages(); len(got) > 3 || !strings.Contains(got[0], ": default is at max_runs_per_second (5)") {
		t.Errorf("the channel is told %d times, first %s", len(got), got[0])
	}
	if got := pager.events(); len(got) > 3 {
		t.Errorf("PagerDuty is sent %d events", len(got))
	}
	all := strings.ReplaceAll(strings.Join(slack.messages(), "\n"), `\u003e`, ">")
	late := query[[]string](t, conn, `
		SELECT array_agg(j.name) FROM punctual.runs r JOIN punctual.jobs j ON j.id = r.job_id WHERE r.late`)
	if len(late) < n/3 { // about half of them wait for longer than their tolerance of a minute
		t.Errorf("only %d runs are late", len(late))
	}
	for _, name := range late {
		if !strings.Contains(all, name+",") && !strings.Contains(all, name+`"`) && !strings.Contains(all, name+">") {
			t.Errorf("%s is late and not named", name)
		}
	}
	stop(t, r)
}

// awaitRate waits until a replica knows the limit. It learns of it with a heartbeat, at the latest in ten seconds.
func awaitRate(t *testing.T, r *process.Replica, perSecond int) {
	t.Helper()
	await(t, "the limit to be set", func() bool {
		return do[struct {
			Max *int `json:"max_runs_per_second"`
		}](t, r.API, "GET", "/v1/tenant", nil).Max != nil
	})
}

// A host is down. That is one incident, with any number of jobs.
func TestAHostThatIsDownForAWhileIsOneIncident(t *testing.T) {
	t.Parallel()
	const jobs = 12
	dsn, port, pager, slack := pgtest.DSN(t), newDeadPort(t), newPager(t), newChannel(t, false)
	conn := connect(t, dsn)
	r := serve(t, dsn)
	do[any](t, r.API, "PUT", "/v1/secrets/pagerduty-key", map[string]string{"value": "0123456789abcdef0123456789abcdef"})
	on := []string{"failing", "dead", "recovered"}
	create(t, r.API, many(jobs, "calls", "http://"+port.addr+"/work", process.JobSpec{
		"schedule": every("2s"), "retry": map[string]any{"max_attempts": 1},
		"notify": []any{told("slack", slack.url, on...), told("pagerduty", pager.url, on...)},
	})...)
	await(t, "all jobs to fail", func() bool {
		return query[int](t, conn, `SELECT count(*) FROM punctual.notified WHERE failing_since IS NOT NULL`) == jobs
	})
	await(t, "the host's incident", func() bool { return len(slack.messages()) > 0 && len(pager.events()) > 0 })
	await(t, "the notices of all jobs to be in a line", func() bool {
		return query[int](t, conn, `SELECT count(*) FROM punctual.notices WHERE event = 'failing'`) == 0
	})
	w := port.open()
	defer port.close(w)
	await(t, "all jobs to be well", func() bool {
		return query[int](t, conn, `SELECT count(*) FROM punctual.notified WHERE failing_since IS NOT NULL`) == 0
	})
	await(t, "the end of the incident", func() bool { return len(slack.messages()) > 1 && len(pager.events()) > 1 })
	await(t, "nothing more to be told", func() bool {
		return query[int](t, conn, `SELECT count(*) FROM punctual.notices WHERE event = 'recovered'`) == 0 &&
			query[int](t, conn, `SELECT count(*) FROM punctual.notice_states WHERE tell_at <= now()`) == 0
	})
	if got := slack.messages(); len(got) != 2 || !strings.Contains(got[0], port.addr+" cannot be reached") ||
		!strings.Contains(got[1], port.addr+" can be reached again") {
		t.Errorf("the channel is told %q", got)
	}
	var actions []any
	for _, e := range pager.events() {
		actions = append(actions, e["event_action"])
	}
	if !slices.Equal(actions, []any{"trigger", "resolve"}) {
		t.Errorf("PagerDuty is sent %v", actions)
	}
	stop(t, r)
}

// Many jobs fail at once. A few messages name each, or lead to a list that does.
//
// The recipient takes one message a second.
func TestJobsThatFailAtOnceAreAllNamed(t *testing.T) {
	t.Parallel()
	for _, n := range []int{300, 10_000} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			dsn, w, slack := pgtest.DSN(t), newWitness(t), newChannel(t, true)
			conn := connect(t, dsn)
			r := serve(t, dsn, "--public-url=https://punctual.example.com")
			w.Script("/fails", Answer{Status: 500})
			create(t, r.API, many(n, "job", w.URL+"/fails", process.JobSpec{
				"schedule": oneShot(time.Now().Add(time.Duration(n/200) * time.Second)), "retry": map[string]any{"max_attempts": 1},
				"notify": []any{told("slack", slack.url, "failing", "dead", "recovered")},
			})...)
			awaitFor(t, 5*time.Minute, "all jobs to fail", func() bool {
				return query[int](t, conn, `SELECT count(*) FROM punctual.dead_letters`) == n
			})
			awaitFor(t, 5*time.Minute, "all to be told", func() bool {
				return query[int](t, conn, `SELECT count(*) FROM punctual.notices`) == 0 &&
					query[int](t, conn, `SELECT count(*) FROM punctual.notice_states WHERE tell_at IS NOT NULL`) == 0
			})
			named := map[string]bool{}
			for _, id := range query[[]string](t, conn, `SELECT array_agg(id::text) FROM punctual.notice_messages`) {
				for _, j := range do[struct{ Named []struct{ Name string } }](t, r.API, "GET", "/v1/notices/"+id, nil).Named {
					named[j.Name] = true
				}
			}
			if len(named) != n {
				t.Errorf("%d of %d jobs are named in the lists of the messages", len(named), n)
			}
			messages := slack.messages()
			if len(messages) > 12 {
				t.Errorf("%d messages", len(messages))
			}
			all := strings.ReplaceAll(strings.Join(messages, "\n"), `\u003e`, ">")
			for i := range n {
				if name := fmt.Sprintf("job-%d", i); n == 300 && !strings.Contains(all, name+",") &&
					!strings.Contains(all, name+`"`) && !strings.Contains(all, name+">") && !strings.Contains(all, name+" ") {
					t.Errorf("%s is not named in a message", name)
				}
			}
			stop(t, r)
		})
	}
}
