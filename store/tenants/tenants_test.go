package tenants_test

import (
	"errors"
	"math"
	"net/netip"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"punctual/internal/pgtest"
	. "punctual/internal/storetest"
	"punctual/scheduler"
	"punctual/scheduler/jobspec"
	"punctual/store"
	"punctual/store/audit"
	"punctual/store/jobs"
	"punctual/store/tenants"
)

func TestADeletedTenantGetsNoJobs(t *testing.T) {
	c := NewFixture(t)
	made := c.NewTenant("alpha")
	if _, err := c.Tenants.CreateTenant(t.Context(), tenants.Tenant{Name: "alpha", Weight: 1}); !errors.Is(err, tenants.ErrTenantExists) {
		t.Errorf("error %v", err)
	}
	_, err := c.Tenants.DeleteTenant(t.Context(), "alpha")
	Must(t, err)
	c.Tenant = made.ID
	if _, err := c.TryCreate("n"); err == nil {
		t.Error("a deleted tenant got a job")
	}
	if _, err := c.CreateMany(jobs.ConflictError, Definition("n")); err == nil {
		t.Error("a deleted tenant got a batch")
	}
	if _, err := c.CreateMany(jobs.ConflictError, Definition("n"), Definition("m")); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("a batch of two for a deleted tenant: %v", err)
	}
	if _, _, err := c.Tenants.CreateKey(t.Context(), made.ID, tenants.NewKey{Name: "k", Role: "viewer"}); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("a key: %v", err)
	}
	again, err := c.Tenants.CreateTenant(t.Context(), tenants.Tenant{Name: "alpha", Weight: 1})
	if err != nil || again.ID == made.ID {
		t.Errorf("the name again: %+v, %v", again, err)
	}
}

// The first of the two wins: either the job exists and the tenant stays, or the tenant is gone and the job is not
// created.
func TestJobsAndTheDeletionOfTheirTenantRace(t *testing.T) {
	c := NewFixture(t)
	for range 30 {
		made := c.NewTenant("alpha")
		var wg sync.WaitGroup
		var created, deleted error
		c.Tenant = made.ID
		wg.Go(func() { _, created = c.TryCreate("n") })
		wg.Go(func() { _, deleted = c.Tenants.DeleteTenant(t.Context(), "alpha") })
		wg.Wait()
		if (created == nil) == (deleted == nil) {
			t.Fatalf("created: %v, deleted: %v", created, deleted)
		}
		if deleted != nil {
			if !errors.Is(deleted, store.ErrState) {
				t.Fatal(deleted)
			}
			c.DeleteJob("n")
			_, err := c.Tenants.DeleteTenant(t.Context(), "alpha")
			Must(t, err)
		}
	}
}

// Jobs name them without a foreign key.
func TestTenantsAndQueuesCannotBeRemoved(t *testing.T) {
	c := NewFixture(t)
	for _, statement := range []string{
		`DELETE FROM punctual.tenants`, `DELETE FROM punctual.queues`,
		`TRUNCATE punctual.queues`, `TRUNCATE punctual.tenants CASCADE`,
	} {
		if _, err := c.DB.Callers.Exec(t.Context(), statement); err == nil || !strings.Contains(err.Error(), "never removed") {
			t.Errorf("%s: %v", statement, err)
		}
	}
}

// An API key that a replica has cached works for a moment after its tenant was deleted.
func TestACompletedJobOfADeletedTenantStaysSo(t *testing.T) {
	c := NewFixture(t)
	made := c.NewTenant("alpha")
	c.Tenant = made.ID
	c.Complete(c.Create("n", At(time.Now().Add(time.Hour))).ID)
	_, err := c.Tenants.DeleteTenant(t.Context(), "alpha")
	Must(t, err)
	if rec, err := c.TryPut(Definition("n")); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("state %q, error %v", rec.State, err)
	}
}

func TestKeysAreFoundByTheirPrefixAndComparedWhole(t *testing.T) {
	c := NewFixture(t)
	ctx := audit.WithActor(t.Context(), audit.Actor{Kind: audit.Command, Name: "alice"})
	key, made, err := c.Tenants.CreateKey(ctx, c.Tenant, tenants.NewKey{Name: "k", Role: "editor", Lifetime: time.Minute})
	Must(t, err)
	if made.CreatedBy != "command:alice" || made.Tenant != "default" || made.ExpiresAt == nil {
		t.Errorf("made %+v", made)
	}
	got, err := c.Tenants.Authenticate(t.Context(), key)
	if err != nil || got.Key != made.ID || got.Role != "editor" || got.Tenant.Name != "default" || got.ExpiresIn <= 0 ||
		got.ExpiresIn > time.Minute {
		t.Errorf("%+v, %v", got, err)
	}
	for _, ref := range []string{made.ID.String(), strings.TrimPrefix(made.Prefix, "punctual_"), made.Prefix, key} {
		if _, id, err := c.Tenants.FindKey(t.Context(), ref); err != nil || id != made.ID {
			t.Errorf("%s: %s, %v", ref, id, err)
		}
	}
	if _, _, err := c.Tenants.FindKey(t.Context(), uuid.Nil.String()); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("error %v", err)
	}
	if found, err := c.Tenants.HasKeys(t.Context()); err != nil || !found {
		t.Errorf("%t, %v", found, err)
	}
	Must(t, c.Tenants.RevokeKey(t.Context(), c.Tenant, made.ID))
	if _, err := c.Tenants.Authenticate(t.Context(), key); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("error %v", err)
	}
	if found, err := c.Tenants.HasKeys(t.Context()); err != nil || found {
		t.Errorf("%t, %v", found, err)
	}
	if err := c.Tenants.RevokeKey(t.Context(), c.Tenant+1, made.ID); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("of another tenant: %v", err)
	}
	stored := c.Text(`SELECT k::text FROM punctual.api_keys k`)
	if stored == "-" || strings.Contains(stored, key[len("punctual_")+16+1:]) {
		t.Errorf("stored is %s", stored)
	}
}

func TestUseOfKeysIsWrittenToTheMinute(t *testing.T) {
	c := NewFixture(t)
	_, made, err := c.Tenants.CreateKey(t.Context(), c.Tenant, tenants.NewKey{Name: "k", Role: "viewer"})
	Must(t, err)
	for range 3 {
		c.Tenants.KeyUsed(made.ID)
		Must(t, c.Tenants.NoteKeysUsed(t.Context()))
	}
	got, err := c.Tenants.GetKey(t.Context(), c.Tenant, made.ID)
	if err != nil || got.LastUsedAt == nil || got.LastUsedAt.Second() != 0 {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestRequestsAreDrawnUntilNoneAreLeft(t *testing.T) {
	c := NewFixture(t)
	const rate = 50
	began, drawn := time.Now(), 0
	var wg sync.WaitGroup
	var mu sync.Mutex
	for range 4 { // as four replicas would
		wg.Go(func() {
			for range 20 {
				r, err := c.Tenants.DrawRequests(t.Context(), c.Tenant, rate, 5)
				if err != nil || r.Granted > 5 || r.Remaining > rate || r.Full > time.Second {
					t.Errorf("%+v, %v", r, err)
				}
				mu.Lock()
				drawn += r.Granted
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if most := int(rate*(time.Since(began).Seconds()+1)) + 1; drawn > most || drawn < rate {
		t.Errorf("%d drawn, want %d to %d", drawn, rate, most)
	}
	// A change of the record equals a step of the database's clock in the other direction.
	for _, stepped := range []string{"- interval '1 hour'", "+ interval '1 hour'"} {
		c.Exec(`UPDATE punctual.request_rates SET spent_until = now() ` + stepped)
		if r, err := c.Tenants.DrawRequests(t.Context(), c.Tenant, 1, 1); err != nil || r.Granted != 1 {
			t.Errorf("%s: %+v, %v", stepped, r, err)
		}
	}
	if r, err := c.Tenants.DrawRequests(t.Context(), c.Tenant, math.MaxInt32, math.MaxInt32/10); err != nil ||
		r.Granted > math.MaxInt32/10 {
		t.Errorf("%+v, %v", r, err)
	}
	if persistence := c.Text(`SELECT relpersistence::text
		FROM pg_class
		WHERE oid = 'punctual.request_rates'::regclass`); persistence != "u" {
		t.Errorf("the table waits for the disk: %s", persistence)
	}
}

func TestTenantsAreReadAsTheyWereWrittenInEveryMode(t *testing.T) {
	t.Parallel()
	EachExecMode(t, func(t *testing.T, c Fixture) {
		asked := tenants.Tenant{
			Name: "alpha", Weight: 2, MaxJobs: new(7), MinInterval: new(jobspec.DurationOf(90 * time.Second)),
			AllowedTargets: prefixes("10.0.0.0/8", "fd00::/8"), Notify: []jobspec.Notify{},
		}
		made, err := c.Tenants.CreateTenant(t.Context(), asked)
		Must(t, err)
		asked.ID, asked.CreatedAt, asked.UpdatedAt = made.ID, made.CreatedAt, made.UpdatedAt
		if !reflect.DeepEqual(made, asked) {
			t.Errorf("made %+v of %+v", made, asked)
		}
		changed, err := c.Tenants.EditTenant(t.Context(), "alpha", func(t *tenants.Tenant) error {
			t.MaxJobs, t.MinInterval, t.AllowedTargets = nil, nil, nil
			return nil
		})
		if err != nil || changed.MaxJobs != nil || changed.MinInterval != nil || len(changed.AllowedTargets) != 0 {
			t.Errorf("%+v, %v", changed, err)
		}
		key, _, err := c.Tenants.CreateKey(t.Context(), made.ID, tenants.NewKey{Name: "k", Role: "viewer", Lifetime: 24 * time.Hour})
		Must(t, err)
		if got, err := c.Tenants.Authenticate(t.Context(), key); err != nil || got.ExpiresIn != 0 {
			t.Errorf("%+v, %v", got, err)
		}
		if r, err := c.Tenants.DrawRequests(t.Context(), made.ID, 10, 1); err != nil || r.Granted != 1 {
			t.Errorf("%+v, %v", r, err)
		}
		if r, err := c.Tenants.DrawRequests(t.Context(), made.ID, 10, 1); err != nil || r.Granted != 1 {
			t.Errorf("%+v, %v", r, err)
		}
		if _, _, err := c.Tenants.ListTenants(t.Context(), "", 10); err != nil {
			t.Error(err)
		}
		if n, err := c.Tenants.CountJobs(t.Context(), made); err != nil || n != 0 {
			t.Errorf("%d, %v", n, err)
		}
		c.Tenants.KeyUsed(uuid.New())
		if err := c.Tenants.NoteKeysUsed(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func prefixes(texts ...string) []netip.Prefix {
	var list []netip.Prefix
	for _, text := range texts {
		list = append(list, netip.MustParsePrefix(text))
	}
	return list
}

func TestARenewalTellsWhomTenantsMayCall(t *testing.T) {
	t.Parallel()
	s := OpenStore(t, store.Options{DatabaseURL: pgtest.DSN(t)})
	replica := scheduler.Replica{ID: uuid.New(), Queues: map[string]int{"default": 1}}
	if _, err := s.Replicas.Register(t.Context(), replica); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		sql  string
		want map[int32][]netip.Prefix
	}{
		{`SELECT`, map[int32][]netip.Prefix{}},
		{
			`UPDATE punctual.tenants SET allowed_targets = '{10.0.0.0/8,fd00:7::/64,127.0.0.1}' WHERE name = 'default'`,
			map[int32][]netip.Prefix{1: prefixes("10.0.0.0/8", "fd00:7::/64", "127.0.0.1/32")},
		},
		{`UPDATE punctual.tenants SET deleted_at = now()`, map[int32][]netip.Prefix{}},
	} {
		if _, err := s.DB.Callers.Exec(t.Context(), test.sql); err != nil {
			t.Fatal(err)
		}
		pulse, err := s.Replicas.Renew(t.Context(), replica.ID, scheduler.Condition{})
		Must(t, err)
		if diff := cmp.Diff(test.want, pulse.AllowedTargets,
			cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
			t.Errorf("%s: %s", test.sql, diff)
		}
	}
}
