package claim_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"punctual/internal/pgtest"
	. "punctual/internal/storetest"
	"punctual/scheduler"
	"punctual/scheduler/admit"
	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
	"punctual/store/claim"
)

// byTenant counts a claim's runs by tenant.
func byTenant(b domain.Batch) map[int32]int {
	n := map[int32]int{}
	for _, a := range b.Runs {
		n[a.Job.Tenant]++
	}
	return n
}

func TestAClaimTakesOfEachTenantWhatItsQuotaAllows(t *testing.T) {
	t.Parallel()
	for name, older := range map[string]bool{"what is due now": false, "backlog": true} {
		t.Run(name, func(t *testing.T) {
			c := NewReplica(t)
			other := c.Neighbour(3)
			ago := time.Duration(0)
			if older {
				ago = 3 * time.Minute
			}
			c.Many(20, "early", ago+2*time.Minute, Rarely, Tolerant)
			c.Many(1, "high", ago, Rarely, Tolerant, prioritised(jobspec.PriorityHigh))
			other.Many(6, "other", ago, Rarely, Tolerant)
			if !older {
				c.Exec(`UPDATE punctual.schedules
					SET next_run_at = now(), scheduled_for = date_trunc('second', now() - interval '1 s')`)
			}
			waiting, err := c.Claims.Contenders(t.Context(), c.Asks(0, older).Work, []int16{c.Queue})
			slices.SortFunc(waiting, func(a, b admit.Contender) int { return int(a.Tenant - b.Tenant) })
			if err != nil || len(waiting) != 2 || waiting[0].Tenant != c.Tenant || waiting[0].Weight != 1 ||
				waiting[1].Tenant != other.Tenant || waiting[1].Weight != 3 || waiting[1].Queue != c.Queue {
				t.Fatalf("%+v, error %v", waiting, err)
			}
			if older && !waiting[0].Oldest.Before(waiting[1].Oldest) {
				t.Errorf("waiting since %s and %s", waiting[0].Oldest, waiting[1].Oldest)
			}
			claim := c.Asks(0, older)
			claim.Quotas = []admit.Quota{
				{Queue: c.Queue, Tenant: c.Tenant, Slots: 4}, {Queue: c.Queue, Tenant: other.Tenant, Slots: 10},
			}
			first, err := c.Claims.ClaimDue(t.Context(), claim)
			if got := byTenant(first); err != nil || got[c.Tenant] != 4 || got[other.Tenant] != 6 || len(first.Full) == 0 {
				t.Errorf("%v, full: %v, error %v", got, first.Full, err)
			}
			if !slices.ContainsFunc(first.Runs, func(a domain.Assignment) bool {
				return a.Job.Priority == jobspec.PriorityHigh
			}) {
				t.Error("of a tenant's own work the urgent does not come first")
			}
			claim.Quotas = []admit.Quota{
				{Queue: c.Queue, Tenant: c.Tenant, Slots: 40}, {Queue: c.Queue, Tenant: other.Tenant, Slots: 40},
			}
			rest, err := c.Claims.ClaimDue(t.Context(), claim)
			if got := byTenant(rest); err != nil || got[c.Tenant] != 17 || len(got) != 1 || len(rest.Full) != 0 {
				t.Errorf("then %v, full: %v, error %v", got, rest.Full, err)
			}
		})
	}
	t.Run("ready runs", func(t *testing.T) {
		c := NewReplica(t)
		other := c.Neighbour(1)
		for _, tenant := range []Replica{c, other} {
			job := tenant.Create("job", Never)
			for range 3 {
				tenant.Trigger(job.Definition.Name)
			}
		}
		if waiting, err := c.Claims.Contenders(
			t.Context(), domain.WorkReady, []int16{c.Queue},
		); err != nil || len(waiting) != 2 {
			t.Fatalf("%+v, error %v", waiting, err)
		}
		claim := scheduler.Claim{Replica: uuid.New(), Quotas: []admit.Quota{
			{Queue: c.Queue, Tenant: c.Tenant, Slots: 1}, {Queue: c.Queue, Tenant: other.Tenant, Slots: 5},
		}}
		batch, err := c.Claims.ClaimReady(t.Context(), claim)
		if got := byTenant(batch); err != nil || got[c.Tenant] != 1 || got[other.Tenant] != 3 || len(batch.Full) == 0 {
			t.Errorf("%v, full: %v, error %v", got, batch.Full, err)
		}
	})
}

func TestNobodyWaits(t *testing.T) {
	c := NewReplica(t)
	c.Create("job")
	for _, older := range []bool{false, true} {
		if waiting, err := c.Claims.Contenders(t.Context(), c.Asks(0, older).Work, []int16{c.Queue}); err != nil ||
			len(waiting) != 0 {
			t.Errorf("%+v, error %v", waiting, err)
		}
	}
	if waiting, err := c.Claims.Contenders(
		t.Context(), domain.WorkReady, []int16{c.Queue},
	); err != nil || len(waiting) != 0 {
		t.Errorf("%+v, error %v", waiting, err)
	}
}

// However much work of another tenant is due, a claim finds a tenant's own work by reading a few pages.
func TestATenantsWorkIsNotSearchedForAmongOthers(t *testing.T) {
	pgtest.Exhaustive(t, "its tables are large")
	c := ReplicaOnClone(t)
	other := c.Neighbour(1)
	c.Fill(150_000)
	c.Exec(`INSERT INTO punctual.schedules (job_id, scheduled_for, next_run_at, tenant, version, lane, enabled)
		SELECT gen_random_uuid(), now() - ago * interval '1 s', now() - ago * interval '1 s',
			$1, 1, $2::smallint * 4 + 1, true
		FROM unnest(ARRAY[1, 1, 1, 60]) ago`, other.Tenant, c.Queue)
	claim := func(work domain.Work, tenant int32) scheduler.Claim {
		return scheduler.Claim{Work: work, Quotas: []admit.Quota{{Queue: c.Queue, Slots: 50, Tenant: tenant}}}
	}
	for _, state := range []string{"never analysed", "analysed"} {
		for name, p := range map[string]Plan{
			"a claim of what is due now":  c.ExplainClaim(claim(domain.WorkDue, other.Tenant)),
			"a claim of backlog":          c.ExplainClaim(claim(domain.WorkLate, other.Tenant)),
			"who waits":                   explainContenders(c, domain.WorkDue),
			"who waits for backlog":       explainContenders(c, domain.WorkLate),
			"a claim of anybody's":        c.ExplainClaim(claim(domain.WorkDue, 0)),
			"who waits among runs":        explainContenders(c, domain.WorkReady),
			"who waits among ordered":     explainContenders(c, domain.WorkOrdered),
			"a claim of a tenant's order": c.ExplainClaim(claim(domain.WorkOrdered, other.Tenant)),
			"a claim of a tenant's ready": c.ExplainClaim(claim(domain.WorkReady, other.Tenant)),
		} {
			if pages := p.Hit + p.Read; pages > 1000 || slices.Contains(p.Scans("schedules"), "Seq Scan") {
				t.Errorf("%s, %s: %d pages, read by %v", state, name, pages, p.Scans("schedules"))
			}
		}
		c.Exec(`ANALYZE punctual.schedules`)
	}
}

// explainContenders runs the statement that finds the waiting tenants.
func explainContenders(c Replica, of domain.Work) Plan {
	c.T.Helper()
	sql, arguments := claim.Contending(of, []int16{c.Queue}, nil)
	return c.Explain(sql, arguments[1:]...)
}
