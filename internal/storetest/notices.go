package storetest

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
	"punctual/scheduler/notice"
	"punctual/store/tenants"
)

// Tell adds the notices that are due to the outbox.
func (c Fixture) Tell() {
	c.T.Helper()
	for {
		left, err := c.Notices.Collect(c.T.Context())
		Must(c.T, err)
		if !left {
			return
		}
	}
}

// Later lets five minutes pass since the last notices.
func (c Fixture) Later() {
	c.T.Helper()
	c.Pass("5 min")
}

// Pass lets some time pass since the last notices.
func (c Fixture) Pass(span string) {
	c.T.Helper()
	c.Exec(`UPDATE punctual.notified
		SET sent = (SELECT coalesce(jsonb_object_agg(key, value::timestamptz - $1::interval), '{}')
			FROM jsonb_each_text(sent))`, span)
	c.Exec(`UPDATE punctual.notices SET tell_at = tell_at - $1::interval`, span)
	c.Exec(`UPDATE punctual.outbox
		SET sent = (SELECT coalesce(jsonb_object_agg(key, value::timestamptz - $1::interval), '{}')
			FROM jsonb_each_text(sent)), due_at = due_at - $1::interval, look_at = look_at - $1::interval,
		causes = (SELECT coalesce(jsonb_object_agg(key, value || jsonb_build_object(
				'newest', (value ->> 'newest')::timestamptz - $1::interval)), '{}')
			FROM jsonb_each(causes))`, span)
	c.Exec(`UPDATE punctual.notice_states SET tell_at = tell_at - $1::interval`, span)
}

// ClaimNotice claims a message that waits, whatever makes its recipient wait; nil: there is none.
func (c Fixture) ClaimNotice() *notice.Outgoing {
	c.T.Helper()
	c.Exec(`UPDATE punctual.outbox SET held_until = now() WHERE pipeline = 'states'`)
	m, err := c.Notices.Claim(c.T.Context(), false)
	Must(c.T, err)
	return m
}

// HearsAll sends the notices that are due until nothing is left to tell now, and returns the messages. Nothing makes a
// recipient wait.
func (c Fixture) HearsAll() (all []notice.Outgoing) {
	c.T.Helper()
	c.Tell()
	for m := c.ClaimNotice(); m != nil; m = c.ClaimNotice() {
		all = append(all, *m)
		Must(c.T, c.Notices.Answered(c.T.Context(), *m, notice.Answer{Arrival: notice.Delivered}))
	}
	return all
}

// Hears is hearsAll with at most one message to each recipient, by URL.
func (c Fixture) Hears() map[string]notice.Outgoing {
	c.T.Helper()
	heard := map[string]notice.Outgoing{}
	for _, m := range c.HearsAll() {
		if _, twice := heard[m.To.URL]; twice {
			c.T.Errorf("%s is told twice", m.To.URL)
		}
		heard[m.To.URL] = m
	}
	return heard
}

// Message returns what a message of format json says.
func Message(t *testing.T, m notice.Outgoing) (said notice.Message) {
	t.Helper()
	if err := json.Unmarshal(m.Body, &said); err != nil {
		t.Fatalf("%s: %v", m.Body, err)
	}
	return said
}

// Digest returns what a message says of its one job.
func Digest(t *testing.T, m notice.Outgoing) domain.Digest {
	t.Helper()
	said := Message(t, m)
	if len(said.Subjects) != 1 || len(said.Subjects[0].Jobs) != 1 {
		t.Fatalf("%s is not about one job", m.Body)
	}
	return said.Subjects[0].Jobs[0]
}

// Summary returns the events of a notice, each with its count.
func Summary(t *testing.T, a notice.Outgoing) string {
	t.Helper()
	var parts []string
	for _, e := range Digest(t, a).Events {
		parts = append(parts, fmt.Sprintf("%s %d", e.Event, e.Count))
	}
	return strings.Join(parts, ", ")
}

// WantHeard fails the test unless exactly this notice goes out now, to the hook only. If want is empty, no notice may
// go out.
func (c Replica) WantHeard(want string) notice.Outgoing {
	c.T.Helper()
	heard := c.Hears()
	a, told := heard[Hook]
	switch {
	case want == "" && len(heard) > 0:
		c.T.Fatalf("told of %s", heard[Hook].Body)
	case want != "" && (!told || len(heard) != 1):
		c.T.Fatalf("%d URLs are told, the hook: %t", len(heard), told)
	case want != "" && Summary(c.T, a) != want:
		c.T.Errorf("told of %s, want %s", Summary(c.T, a), want)
	}
	return a
}

// Dies makes a run of the job that dies, and WellAgain makes a run that succeeds.
func (c Replica) Dies(job string) {
	c.T.Helper()
	c.Finish(Buried(c.Begun(job)))
}

// WellAgain makes a run of the job that succeeds.
func (c Replica) WellAgain(job string) {
	c.T.Helper()
	c.Finish(Succeeded(c.Begun(job)))
}

// Limited sets whether the tenant is at a limit now. If it is not, it was until a minute ago.
func (c Fixture) Limited(is bool) {
	c.T.Helper()
	c.Exec(`UPDATE punctual.tenants SET max_runs_per_second = 5 WHERE id = $1`, c.Tenant)
	c.Exec(`
		INSERT INTO punctual.tenant_usage AS u (tenant, held_by, held_since, held_at)
		VALUES ($1, 'max_runs_per_second', now() - interval '1 h', now() - CASE WHEN $2 THEN '0' ELSE '1 min' END::interval)
		ON CONFLICT (tenant) DO UPDATE SET held_by = excluded.held_by, held_since = excluded.held_since,
		    held_at = excluded.held_at`, c.Tenant, is)
}

// SlotAt records what became of a slot: it ran, or was skipped or replaced because the run before had not ended.
func (c Fixture) SlotAt(job uuid.UUID, at time.Time, fate string) {
	c.T.Helper()
	switch fate {
	case "ran":
		c.RanAt(job, domain.SlotRunID(job, at), at)
	case "replaced":
		c.RanAt(job, domain.SlotRunID(job, at), at)
		c.Exec(`UPDATE punctual.runs SET status = 'cancelled', reason = 'replaced' WHERE id = $1`, domain.SlotRunID(job, at))
	default:
		c.SkippedAt(job, at, at, 1)
		c.Exec(`UPDATE punctual.runs SET id = $2, reason = $3, created_at = $4 WHERE job_id = $1 AND skipped_last = $4`, job,
			domain.NewRunID(at), fate, at)
	}
}

// Clear lets the newest slots of a job run.
func (c Replica) Clear(job uuid.UUID) {
	c.T.Helper()
	for i := range 6 {
		c.SlotAt(job, time.Now().UTC().Truncate(time.Second).Add(time.Duration(i+1)*time.Second), "ran")
	}
}

// Hook is where notices of tests go.
const Hook = "https://pager.example/hook"

// Everything makes a job tell Hook of every event.
var Everything = Notify(Hook, jobspec.Events...)

// ByDefault makes a list of notices the tenant's default.
func (c Fixture) ByDefault(list ...jobspec.Notify) {
	c.T.Helper()
	_, err := c.Tenants.EditTenant(c.T.Context(), "default", func(now *tenants.Tenant) error {
		now.Notify = list
		return nil
	})
	Must(c.T, err)
}

// TellsNobody gives a job no recipients, whatever its tenant's are.
func TellsNobody(d *jobspec.Definition) { d.Notify = []jobspec.Notify{} }
