package runs_test

import (
	"testing"

	. "punctual/internal/storetest"
	"punctual/scheduler/domain"
)

// Each kind of wait has its words in one place. What outranks what is said by the order of the cases.
func TestWhatIsWaitedForHasAKindAndWords(t *testing.T) {
	c := NewFixture(t)
	const unserved, served = false, true
	for _, k := range []struct {
		served    bool
		waits, on string
		limit     string // of the tenant
		late      string
		kind      domain.Wait
		of, words string
	}{
		{unserved, "person", "", "max_concurrent_runs", "1 min", domain.WaitPerson, "", "approval"},
		{unserved, "frozen", "", "max_concurrent_runs", "1 min", domain.WaitFrozen, "", "frozen"},
		{unserved, "paused", "", "max_concurrent_runs", "1 min", domain.WaitPaused, "", "paused"},
		{unserved, "aside", "its body is sealed", "", "0", domain.WaitAside, "its body is sealed", "set aside: its body is sealed"},
		{unserved, "gate", "", "", "1 min", domain.WaitQueue, "reports", `no live replica serves the queue "reports"`},
		{served, "host", "breaker a.test:443", "", "0", domain.WaitHost, "a.test:443", "breaker a.test:443"},
		{served, "host", "hanging a.test/b", "", "0", domain.WaitHanging, "a.test/b", "hanging a.test/b"},
		{served, "gate", "", "max_concurrent_runs", "1 min", domain.WaitGate, "", "gate"},
		{served, "limit", "crm", "max_concurrent_runs", "1 min", domain.WaitLimit, "crm", "limit crm"},
		{served, "turn", "", "max_concurrent_runs", "1 min", domain.WaitTenant, "max_concurrent_runs", "limit max_concurrent_runs"},
		{served, "turn", "", "", "1 min", domain.WaitSlots, "", "slots"},
		{served, "turn", "", "", "1 s", "", "", ""},
	} {
		got := Ask[string](c.T, c.DB.Callers, `
			SELECT concat_ws('|', coalesce(kind, ''), coalesce(waits_on, ''), coalesce(waits_for, ''))
			FROM punctual.waits_for($1, 'reports', $2, nullif($3, ''), nullif($4, ''), $5, now() - $6::interval)`,
			k.served, k.waits, k.on, k.limit, c.Tenant, k.late)
		if want := string(k.kind) + "|" + k.of + "|" + k.words; got != want {
			t.Errorf("%+v: %s, want %s", k, got, want)
		}
	}
}
