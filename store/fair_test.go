package store

import (
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"punctual/internal/pgtest"
	"punctual/scheduler"
	"punctual/scheduler/admit"
	"punctual/scheduler/domain"
)

// neighbour makes another tenant that uses the same queue.
func (c claimer) neighbour(weight int) claimer {
	c.t.Helper()
	c.tenant = value[int32](c.crud,
		`INSERT INTO punctual.tenants (name, weight) VALUES ('neighbour', $1) RETURNING id`, weight)
	return c
}

// byTenant counts a claim's runs by tenant.
func byTenant(b domain.Batch) map[int32]int {
	n := map[int32]int{}
	for _, a := range b.Runs {
		n[a.Job.Tenant]++
	}
	return n
}

func TestAClaimTakesOfEachTenantWhatItsQuotaAllows(t *testing.T) {
	for name, older := range map[string]bool{"what is due now": false, "backlog": true} {
		t.Run(name, func(t *testing.T) {
			c := newClaimer(t)
			other := c.neighbour(3)
			ago := time.Duration(0)
			if older {
				ago = 3 * time.Minute
			}
			c.many(20, "early", ago+2*time.Minute, rarely, tolerant)
			c.many(1, "high", ago, rarely, tolerant, prioritised(domain.PriorityHigh))
			other.many(6, "other", ago, rarely, tolerant)
			if !older {
				c.exec(`UPDATE punctual.schedules
					SET next_run_at = now(), scheduled_for = date_trunc('second', now() - interval '1 s')`)
			}
			waiting, err := c.Claims.Contenders(t.Context(), c.asks(0, older).Work, []int16{c.queue})
			slices.SortFunc(waiting, func(a, b admit.Contender) int { return int(a.Tenant - b.Tenant) })
			if err != nil || len(waiting) != 2 || waiting[0].Tenant != c.tenant || waiting[0].Weight != 1 ||
				waiting[1].Tenant != other.tenant || waiting[1].Weight != 3 || waiting[1].Queue != c.queue {
				t.Fatalf("%+v, error %v", waiting, err)
			}
			if older && !waiting[0].Oldest.Before(waiting[1].Oldest) {
				t.Errorf("waiting since %s and %s", waiting[0].Oldest, waiting[1].Oldest)
			}
			claim := c.asks(0, older)
			claim.Quotas = []admit.Quota{
				{Queue: c.queue, Tenant: c.tenant, Slots: 4}, {Queue: c.queue, Tenant: other.tenant, Slots: 10},
			}
			first, err := c.Claims.ClaimDue(t.Context(), claim)
			if got := byTenant(first); err != nil || got[c.tenant] != 4 || got[other.tenant] != 6 || len(first.Full) == 0 {
				t.Errorf("%v, full: %v, error %v", got, first.Full, err)
			}
			if !slices.ContainsFunc(first.Runs, func(a domain.Assignment) bool {
				return a.Job.Priority == domain.PriorityHigh
			}) {
				t.Error("of a tenant's own work the urgent does not come first")
			}
			claim.Quotas = []admit.Quota{
				{Queue: c.queue, Tenant: c.tenant, Slots: 40}, {Queue: c.queue, Tenant: other.tenant, Slots: 40},
			}
			rest, err := c.Claims.ClaimDue(t.Context(), claim)
			if got := byTenant(rest); err != nil || got[c.tenant] != 17 || len(got) != 1 || len(rest.Full) != 0 {
				t.Errorf("then %v, full: %v, error %v", got, rest.Full, err)
			}
		})
	}
	t.Run("ready runs", func(t *testing.T) {
		c := newClaimer(t)
		other := c.neighbour(1)
		for _, tenant := range []claimer{c, other} {
			job := tenant.create("job", never)
			for range 3 {
				tenant.trigger(job.Definition.Name)
			}
		}
		if waiting, err := c.Claims.Contenders(
			t.Context(), domain.WorkReady, []int16{c.queue},
		); err != nil || len(waiting) != 2 {
			t.Fatalf("%+v, error %v", waiting, err)
		}
		claim := scheduler.Claim{Replica: uuid.New(), Quotas: []admit.Quota{
			{Queue: c.queue, Tenant: c.tenant, Slots: 1}, {Queue: c.queue, Tenant: other.tenant, Slots: 5},
		}}
		batch, err := c.Claims.ClaimReady(t.Context(), claim)
		if got := byTenant(batch); err != nil || got[c.tenant] != 1 || got[other.tenant] != 3 || len(batch.Full) == 0 {
			t.Errorf("%v, full: %v, error %v", got, batch.Full, err)
		}
	})
}

func TestNobodyWaits(t *testing.T) {
	c := newClaimer(t)
	c.create("job")
	for _, older := range []bool{false, true} {
		if waiting, err := c.Claims.Contenders(t.Context(), c.asks(0, older).Work, []int16{c.queue}); err != nil ||
			len(waiting) != 0 {
			t.Errorf("%+v, error %v", waiting, err)
		}
	}
	if waiting, err := c.Claims.Contenders(
		t.Context(), domain.WorkReady, []int16{c.queue},
	); err != nil || len(waiting) != 0 {
		t.Errorf("%+v, error %v", waiting, err)
	}
}

// However much work of another tenant is due, a claim finds a tenant's own work by reading a few pages.
func TestATenantsWorkIsNotSearchedForAmongOthers(t *testing.T) {
	pgtest.Exhaustive(t, "its tables are large")
	c := claimerOnClone(t)
	other := c.neighbour(1)
	c.fill(150_000)
	c.exec(`INSERT INTO punctual.schedules (job_id, scheduled_for, next_run_at, tenant, version, lane, enabled)
		SELECT gen_random_uuid(), now() - ago * interval '1 s', now() - ago * interval '1 s',
			$1, 1, $2::smallint * 4 + 1, true
		FROM unnest(ARRAY[1, 1, 1, 60]) ago`, other.tenant, c.queue)
	claim := func(work domain.Work, tenant int32) scheduler.Claim {
		return scheduler.Claim{Work: work, Quotas: []admit.Quota{{Queue: c.queue, Slots: 50, Tenant: tenant}}}
	}
	for _, state := range []string{"never analysed", "analysed"} {
		for name, p := range map[string]plan{
			"a claim of what is due now":  c.explainClaim(claim(domain.WorkDue, other.tenant)),
			"a claim of backlog":          c.explainClaim(claim(domain.WorkLate, other.tenant)),
			"who waits":                   c.explainContenders(domain.WorkDue),
			"who waits for backlog":       c.explainContenders(domain.WorkLate),
			"a claim of anybody's":        c.explainClaim(claim(domain.WorkDue, 0)),
			"who waits among runs":        c.explainContenders(domain.WorkReady),
			"who waits among ordered":     c.explainContenders(domain.WorkOrdered),
			"a claim of a tenant's order": c.explainClaim(claim(domain.WorkOrdered, other.tenant)),
			"a claim of a tenant's ready": c.explainClaim(claim(domain.WorkReady, other.tenant)),
		} {
			if pages := p.Hit + p.Read; pages > 1000 || slices.Contains(p.scans("schedules"), "Seq Scan") {
				t.Errorf("%s, %s: %d pages, read by %v", state, name, pages, p.scans("schedules"))
			}
		}
		c.exec(`ANALYZE punctual.schedules`)
	}
}
