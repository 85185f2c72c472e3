package secrets_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"punctual/internal/pgtest"
	. "punctual/internal/storetest"
	"punctual/scheduler/jobspec"
	"punctual/store"
	"punctual/store/jobs"
	"punctual/store/names"
	"punctual/store/pg"
	"punctual/store/secrets"
	"punctual/store/tenants"
	"punctual/store/vault"
)

// authBy refers to a stored secret, authValue contains a value.
func authBy(secret string) Option {
	return func(d *jobspec.Definition) {
		d.Target.Auth = &jobspec.Auth{Type: jobspec.AuthBearer, Secret: secret}
	}
}

func authValue(value string) Option {
	return func(d *jobspec.Definition) {
		d.Target.Auth = &jobspec.Auth{Type: jobspec.AuthBearer, Value: jobspec.HiddenOf(value)}
	}
}

func secretHeader(name, value string) Option {
	return func(d *jobspec.Definition) {
		d.Target.SecretHeaders = map[string]jobspec.Hidden{name: jobspec.HiddenOf(value)}
	}
}

// reads fails the test unless a secret opens and has this value.
func reads(c Fixture, name, want string) {
	c.T.Helper()
	got, err := c.Secrets.NamedSecret(c.T.Context(), c.Tenant, name)
	if err != nil || got.Value != want {
		c.T.Errorf("secret %q does not open as it should: %v", name, err)
	}
}

func jobSecret(c Fixture, job uuid.UUID, h jobspec.Hidden) string {
	c.T.Helper()
	id, ok := h.Sealed()
	if !ok {
		c.T.Fatal("a stored definition holds a value that is not sealed")
	}
	s, err := c.Secrets.JobSecret(c.T.Context(), c.Tenant, job, id)
	Must(c.T, err)
	return s.Value
}

func TestASecretIsReplacedAndCountsItsValues(t *testing.T) {
	c := NewFixture(t)
	first := c.Secret("token", "one")
	reads(c, "token", "one")
	same := c.Secret("token", "one")
	if same != first {
		t.Errorf("writing the same changed it: %+v, was %+v", same, first)
	}
	described, _, err := c.Secrets.PutSecret(t.Context(), c.Tenant, "token", "one", "of billing")
	if err != nil || described.Version != 1 || described.Description != "of billing" {
		t.Errorf("another description: %+v, %v", described, err)
	}
	if second := c.Secret("token", "two"); second.Version != 2 || second.ID != first.ID {
		t.Errorf("another value: %+v", second)
	}
	c.Secrets.ForgetSecrets()
	reads(c, "token", "two")
	if _, err := c.Secrets.NamedSecret(t.Context(), c.Tenant, "other"); !IsAuth(err) {
		t.Errorf("a secret that is not there: %v", err)
	}
	if _, err := c.Secrets.NamedSecret(t.Context(), c.Tenant+1, "token"); !IsAuth(err) {
		t.Errorf("another tenant's: %v", err)
	}
}

// A replica sees a change by another replica once its cached value is no longer trusted.
func TestAnotherReplicaSeesAChangedSecret(t *testing.T) {
	c := NewFixture(t)
	other := replica(c)
	c.Secret("token", "one")
	reads(other, "token", "one")
	c.Secret("token", "two")
	reads(other, "token", "one") // the cached value is trusted for some seconds
	other.Secrets.ForgetSecrets()
	reads(other, "token", "two")
}

// replica opens the same database again, with the same master key.
func replica(c Fixture) Fixture {
	c.T.Helper()
	return OpenFixture(c.T, store.Options{DatabaseURL: c.Options.DatabaseURL, MaxConns: 4, Master: c.Options.Master})
}

func TestWhatABurstNeedsIsReadOnce(t *testing.T) {
	c := NewFixture(t)
	c.Secret("token", "one")
	reads(c, "token", "one")
	if _, err := c.Secrets.SigningKeys(t.Context(), c.Tenant); err != nil {
		t.Fatal(err)
	}
	before := acquired(c)
	var all sync.WaitGroup
	for range 100 {
		all.Go(func() {
			for range 10 {
				reads(c, "token", "one")
				if _, err := c.Secrets.SigningKeys(t.Context(), c.Tenant); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	// At most one further look for changes, if the five seconds ended meanwhile.
	if asked := acquired(c) - before; asked > 3 {
		t.Errorf("2,000 reads asked the database %d times", asked)
	}
}

func acquired(c Fixture) int64 { return c.DB.Callers.Stat().AcquireCount() }

func TestASecretInUseCannotBeDeleted(t *testing.T) {
	c := NewFixture(t)
	c.Secret("token", "one")
	for i := range 12 {
		c.Create(fmt.Sprintf("uses-%02d", i), authBy("token"))
	}
	var inUse *names.InUseError
	if err := c.Secrets.DeleteSecret(t.Context(), c.Tenant, "token"); !errors.As(err, &inUse) || len(inUse.Jobs) != 10 ||
		!inUse.More || inUse.Jobs[0] != "uses-00" {
		t.Fatalf("deleting it: %v", err)
	}
	for i := range 12 {
		name := fmt.Sprintf("uses-%02d", i)
		d := Definition(name) // it no longer refers to the secret
		if i%2 == 0 {
			c.DeleteJob(name)
			continue
		}
		c.Put(d)
	}
	Must(t, c.Secrets.DeleteSecret(t.Context(), c.Tenant, "token"))
	c.Secrets.ForgetSecrets()
	if _, err := c.Secrets.NamedSecret(t.Context(), c.Tenant, "token"); !IsAuth(err) {
		t.Errorf("it is still there: %v", err)
	}
	if err := c.Secrets.DeleteSecret(t.Context(), c.Tenant, "token"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("deleting it again: %v", err)
	}
}

// Wherever a definition refers to a secret, the secret stays until it does no more.
func TestASecretThatAnyPartOfAJobUsesStays(t *testing.T) {
	c := NewFixture(t)
	url := "http://127.0.0.1:9/hook"
	for part, use := range map[string]Option{
		"the authentication": authBy("token"),
		"the certificate":    func(d *jobspec.Definition) { d.Target.TLS = &jobspec.TLS{CA: "token"} },
		"the body":           func(d *jobspec.Definition) { d.Target.Body = []byte(`{"a":[{"$secret":"token"}]}`) },
		"a step": func(d *jobspec.Definition) {
			d.Target = jobspec.Target{}
			d.Steps = []jobspec.Step{{Name: "a", Target: jobspec.Target{URL: url, Auth: &jobspec.Auth{
				Type: jobspec.AuthBearer, Secret: "token",
			}}}}
		},
		"the body of a step": func(d *jobspec.Definition) {
			d.Target = jobspec.Target{}
			d.Steps = []jobspec.Step{{Name: "a", Target: jobspec.Target{URL: url, Body: []byte(`{"a":{"$secret":"token"}}`)}}}
		},
		"a notice": func(d *jobspec.Definition) {
			d.Notify = []jobspec.Notify{{On: []jobspec.Event{jobspec.EventDead}, Format: jobspec.FormatPagerDuty, Secret: "token"}}
		},
	} {
		if _, err := c.TryCreate("job", use); err == nil {
			t.Errorf("%s: it may name a secret that is missing", part)
		}
		c.Secret("token", "one")
		c.Create("job", use)
		var inUse *names.InUseError
		if err := c.Secrets.DeleteSecret(t.Context(), c.Tenant, "token"); !errors.As(err, &inUse) {
			t.Errorf("%s uses the secret, and deleting it: %v", part, err)
		}
		c.Put(Definition("job"))
		if err := c.Secrets.DeleteSecret(t.Context(), c.Tenant, "token"); err != nil && !errors.Is(err, store.ErrNotFound) {
			t.Errorf("%s uses it no more: %v", part, err)
		}
		c.DeleteJob("job")
	}
}

func TestASecretThatTheTenantUsesStays(t *testing.T) {
	c := NewFixture(t)
	c.Secret("token", "one")
	notify := func(list ...jobspec.Notify) {
		t.Helper()
		_, err := c.Tenants.EditTenant(t.Context(), c.TenantName(), func(t *tenants.Tenant) error {
			t.Notify = list
			return nil
		})
		Must(t, err)
	}
	notify(jobspec.Notify{On: []jobspec.Event{jobspec.EventDead}, Format: jobspec.FormatPagerDuty, Secret: "token"})
	var refused *jobspec.Refusal
	if err := c.Secrets.DeleteSecret(t.Context(), c.Tenant, "token"); !errors.As(err, &refused) || refused.Code != "state" {
		t.Errorf("the tenant's notify names the secret, and deleting it: %v", err)
	}
	notify()
	Must(t, c.Secrets.DeleteSecret(t.Context(), c.Tenant, "token"))
}

// The first of the two wins: either the job is refused, or the secret stays.
func TestASecretIsNotDeletedUnderAJobThatIsBeingWritten(t *testing.T) {
	c := NewFixture(t)
	for i := range 20 {
		name := fmt.Sprintf("token-%d", i)
		c.Secret(name, "one")
		var both sync.WaitGroup
		var created, deleted error
		both.Go(func() {
			_, created = c.TryCreate("job-"+name, authBy(name))
		})
		both.Go(func() { deleted = c.Secrets.DeleteSecret(t.Context(), c.Tenant, name) })
		both.Wait()
		var unknown jobspec.Problem
		var inUse *names.InUseError
		if refused, kept := errors.As(created, &unknown), errors.As(deleted, &inUse); refused == kept ||
			!refused && created != nil || !kept && deleted != nil {
			t.Errorf("%s: the job: %v, the secret: %v", name, created, deleted)
		}
	}
}

func TestAJobCannotReferToASecretThatIsNotThere(t *testing.T) {
	c := NewFixture(t)
	c.Secret("there", "one")
	d := Definition("job", authBy("there"), func(d *jobspec.Definition) { d.Target.TLS = &jobspec.TLS{CA: "missing"} })
	for what, write := range map[string]func() error{
		"create": func() error { _, err := c.For(c.Tenant).CreateJob(t.Context(), jobs.NewJob{Definition: d}); return err },
		"put": func() error {
			_, err := c.TryPut(d)
			return err
		},
	} {
		var unknown jobspec.Problem
		if err := write(); !errors.As(err, &unknown) || unknown.Field != "target.tls.ca" ||
			!strings.Contains(unknown.Message, `"missing"`) {
			t.Errorf("%s: %v", what, err)
		}
	}
	var batch *jobs.BatchError
	var unknown jobspec.Problem
	_, err := c.CreateMany(jobs.ConflictError, Definition("good", authBy("there")), d)
	if !errors.As(err, &batch) || len(batch.Errors) != 1 || !errors.As(batch.Errors[1], &unknown) {
		t.Errorf("in a batch: %v", err)
	}
}

// A secret value in a definition is stored encrypted, and the stored definition only refers to it.
func TestValuesOfADefinitionAreSealed(t *testing.T) {
	c := NewFixture(t)
	const planted, header = "planted-value", "planted-header"
	made := c.Create("job", authValue(planted), secretHeader("X-Key", header))
	if got := jobSecret(c, made.ID, made.Definition.Target.Auth.Value); got != planted {
		t.Error("the value does not come back")
	}
	if got := jobSecret(c, made.ID, made.Definition.Target.SecretHeaders["X-Key"]); got != header {
		t.Error("the header does not come back")
	}
	everything := c.Text(`SELECT (SELECT string_agg(v::text, ' ') FROM punctual.job_versions v)
		|| (SELECT string_agg(s::text, ' ') FROM punctual.job_secrets s)`)
	if everything == "-" || strings.Contains(everything, "planted") ||
		strings.Contains(everything, fmt.Sprintf("%x", planted)) {
		t.Errorf("the database shows it: %s", everything)
	}
}

func TestWritingTheSameSecretsAgainChangesNothing(t *testing.T) {
	c := NewFixture(t)
	put := func(options ...Option) jobs.Record {
		t.Helper()
		r, _ := c.Put(Definition("job", options...))
		return r
	}
	first := put(authValue("one"), secretHeader("X-Key", "h"))
	if again := put(authValue("one"), secretHeader("X-Key", "h")); again.Version != first.Version {
		t.Errorf("the same: version %d, want %d", again.Version, first.Version)
	}
	second := put(authValue("two"), secretHeader("X-Key", "h"))
	if second.Version != first.Version+1 ||
		second.Definition.Target.SecretHeaders["X-Key"] != first.Definition.Target.SecretHeaders["X-Key"] {
		t.Errorf("another value: version %d, headers stored anew", second.Version)
	}
	if got := jobSecret(c, second.ID, second.Definition.Target.Auth.Value); got != "two" {
		t.Error("the new value does not come back")
	}
	if got := jobSecret(c, first.ID, first.Definition.Target.Auth.Value); got != "one" {
		t.Error("the value of the version before is gone: its runs still need it")
	}
	// A batch with the same values changes nothing either.
	_, err := c.CreateMany(jobs.ConflictReplace, Definition("job", authValue("two"), secretHeader("X-Key", "h")))
	if now, _ := c.Jobs.GetJob(t.Context(), c.Tenant, "job"); err != nil || now.Version != second.Version {
		t.Errorf("the same in a batch: version %d, want %d: %v", now.Version, second.Version, err)
	}
	// A job cannot refer to the sealed values of another job.
	other := c.Create("other", authValue("theirs"))
	stolen := func(d *jobspec.Definition) { d.Target.Auth = other.Definition.Target.Auth }
	if _, err := c.TryPut(Definition("job", stolen)); err == nil {
		t.Error("a job refers to another's stored value")
	}
}

// Ciphertexts that were moved or changed do not open.
func TestACiphertextThatWasMovedDoesNotOpen(t *testing.T) {
	c := NewFixture(t)
	c.Secret("cheap", "one")
	c.Secret("dear", "two")
	c.Exec(`UPDATE punctual.secrets SET ciphertext = (SELECT ciphertext FROM punctual.secrets WHERE name = 'dear')
		WHERE name = 'cheap'`)
	if _, err := c.Secrets.NamedSecret(t.Context(), c.Tenant, "cheap"); !IsAuth(err) {
		t.Errorf("a moved ciphertext: %v", err)
	}
	c.Secret("cheap", "three") // writing the secret again repairs it
	c.Secrets.ForgetSecrets()
	reads(c, "cheap", "three")
}

func TestTheVaultOpensWithItsOwnMasterKeyOnly(t *testing.T) {
	c := NewFixture(t)
	Must(t, c.Secrets.OpenVault(t.Context()))
	for _, test := range []struct {
		name   string
		master *vault.Master
		want   error
	}{{"none", nil, secrets.ErrNoMaster}, {"another", pgtest.Master(t), vault.ErrMaster}, {"its own", c.Options.Master, nil}} {
		s := OpenStore(t, store.Options{DatabaseURL: c.Options.DatabaseURL, MaxConns: 2, Master: test.master})
		if err := s.Secrets.OpenVault(t.Context()); !errors.Is(err, test.want) {
			t.Errorf("%s: %v", test.name, err)
		}
	}
}

// Payloads are encrypted only by a process that can open them. One that cannot open what is encrypted does not serve.
func TestPayloadsNeedTheirMasterKey(t *testing.T) {
	c := NewFixture(t)
	opens := func(when string, master *vault.Master, seals bool, want error) {
		t.Helper()
		s := OpenStore(t, store.Options{DatabaseURL: c.Options.DatabaseURL, MaxConns: 2, Master: master})
		if err := s.Secrets.OpenPayloads(t.Context(), seals); !errors.Is(err, want) {
			t.Errorf("%s: %v", when, err)
		}
	}
	opens("nothing is encrypted, nor to be", nil, false, nil)
	opens("no key", nil, true, secrets.ErrNoMaster)
	if n := c.Count(`SELECT count(*) FROM punctual.data_keys WHERE payloads`); n != 0 {
		t.Errorf("%d keys are made without need", n)
	}
	for range 2 {
		opens("its own", c.Options.Master, true, nil)
	}
	if n := c.Count(`SELECT count(*) FROM punctual.data_keys WHERE payloads`); n != 1 {
		t.Errorf("there are %d keys", n)
	}
	opens("no key, and there are payloads", nil, false, secrets.ErrNoMaster)
	opens("another", pgtest.Master(t), false, vault.ErrMaster)
	opens("switched off", c.Options.Master, false, nil)
}

// A new tenant has its signing secret, so that its first callbacks wait for no commit. A first secret is nothing that a
// replica could have to forget.
func TestANewTenantHasItsSigningSecret(t *testing.T) {
	c := NewFixture(t)
	changed := func() int { return c.Count(`SELECT secrets_changed::int FROM punctual.deployment`) }
	before := changed()
	team := c.NewTenant("team")
	live := func() int { return c.Count(`SELECT count(*) FROM punctual.signing_secrets WHERE tenant = $1`, team.ID) }
	if n := live(); n != 1 {
		t.Errorf("%d secrets before the first callback", n)
	}
	if keys, err := c.Secrets.SigningKeys(t.Context(), team.ID); err != nil || len(keys) != 1 || live() != 1 {
		t.Errorf("%d keys, %v", len(keys), err)
	}
	if _, err := c.Secrets.SigningKeys(
		t.Context(), c.Tenant,
	); err != nil { // the first of a tenant that came with the schema
		t.Error(err)
	}
	if n := changed(); n != before {
		t.Errorf("replicas forgot their secrets %d times", n-before)
	}
}

// The first callback of a tenant reads the signing secrets of its neighbours as well: jobs of many tenants are often
// due together. A secret that cannot be opened fails its own tenant only.
func TestSigningSecretsOfManyTenantsAreReadTogether(t *testing.T) {
	c := NewFixture(t)
	ids := map[string]int32{}
	for _, name := range []string{"first", "neighbour", "broken"} {
		ids[name] = c.NewTenant(name).ID
	}
	c.Exec(`UPDATE punctual.signing_secrets SET ciphertext = '\x00' WHERE tenant = $1`, ids["broken"])
	replica := replica(c)
	if keys, err := replica.Secrets.SigningKeys(t.Context(), ids["first"]); err != nil || len(keys) != 1 {
		t.Errorf("%d keys of the first, %v", len(keys), err)
	}
	c.Exec(`DELETE FROM punctual.signing_secrets WHERE tenant = $1`, ids["neighbour"]) // so that it cannot be read again
	if keys, err := replica.Secrets.SigningKeys(t.Context(), ids["neighbour"]); err != nil || len(keys) != 1 {
		t.Errorf("%d keys of the neighbour, %v", len(keys), err)
	}
	c.WantCount(0, "the neighbour's secret was not read with the first one's: another was made",
		`SELECT count(*) FROM punctual.signing_secrets WHERE tenant = $1`, ids["neighbour"])
	for range 2 { // with its neighbours, and then alone
		if keys, err := replica.Secrets.SigningKeys(t.Context(), ids["broken"]); err == nil {
			t.Errorf("%d keys from a ciphertext that nothing opens", len(keys))
		}
	}
	late := c.NewTenant("late").ID
	if keys, err := replica.Secrets.SigningKeys(t.Context(), late); err != nil || len(keys) != 1 {
		t.Errorf("%d keys of a tenant that came after its neighbours were read, %v", len(keys), err)
	}
}

func TestReplicasMakeOneDataKeyAndOneSigningSecret(t *testing.T) {
	c := NewFixture(t)
	var all sync.WaitGroup
	for range 5 {
		replica := replica(c)
		all.Go(func() {
			if err := replica.Secrets.OpenVault(t.Context()); err != nil {
				t.Error(err)
			}
			if keys, err := replica.Secrets.SigningKeys(t.Context(), c.Tenant); err != nil || len(keys) != 1 {
				t.Errorf("%d signing keys, %v", len(keys), err)
			}
		})
	}
	all.Wait()
	keys, secrets := c.Count(`SELECT count(*) FROM punctual.data_keys`),
		c.Count(`SELECT count(*) FROM punctual.signing_secrets`)
	if keys != 1 || secrets != 1 {
		t.Errorf("%d data keys and %d signing secrets, want 1 of each", keys, secrets)
	}
}

func TestSigningSecretsAreMadeAndDeleted(t *testing.T) {
	c := NewFixture(t)
	ctx := t.Context()
	first, err := c.Secrets.ListSigningSecrets(ctx, c.Tenant)
	if err != nil || len(first) != 1 {
		t.Fatalf("%v, %v", first, err)
	}
	if err := c.Secrets.DeleteSigningSecret(ctx, c.Tenant, first[0].ID, 0); !errors.Is(err, store.ErrState) {
		t.Errorf("deleting the last: %v", err)
	}
	made, secret, err := c.Secrets.MakeSigningSecret(ctx, c.Tenant)
	if err != nil || !strings.HasPrefix(secret, "whsec_") {
		t.Fatalf("made %v: %v", made, err)
	}
	Must(t, c.Secrets.DeleteSigningSecret(ctx, c.Tenant, first[0].ID, time.Hour))
	both, err := c.Secrets.ListSigningSecrets(ctx, c.Tenant)
	if err != nil || len(both) != 2 || both[0].ExpiresAt == nil || both[1].ExpiresAt != nil {
		t.Errorf("after the first was given an end: %+v, %v", both, err)
	}
	if err := c.Secrets.DeleteSigningSecret(ctx, c.Tenant, made.ID, 0); !errors.Is(err, store.ErrState) {
		t.Errorf("deleting the last that does not expire: %v", err)
	}
	c.Exec(`UPDATE punctual.signing_secrets SET expires_at = now() - interval '1 second' WHERE expires_at IS NOT NULL`)
	if left, err := c.Secrets.ListSigningSecrets(ctx, c.Tenant); err != nil || len(left) != 1 || left[0].ID != made.ID {
		t.Errorf("after it expired: %+v, %v", left, err)
	}
	for range 9 {
		if _, _, err := c.Secrets.MakeSigningSecret(ctx, c.Tenant); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := c.Secrets.MakeSigningSecret(ctx, c.Tenant); !errors.Is(err, store.ErrState) {
		t.Errorf("an eleventh: %v", err)
	}
	if err := c.Secrets.DeleteSigningSecret(ctx, c.Tenant, uuid.New(), 0); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("one that is not there: %v", err)
	}
}

// Whatever is written during a rotation, one data key that opens everything remains at its end.
func TestRotationWhileReplicasWrite(t *testing.T) {
	c := NewFixture(t)
	for i := range 30 {
		c.Secret(fmt.Sprintf("before-%d", i), "value")
	}
	job := c.Create("job", authValue("inline"))
	if _, err := c.Secrets.SigningKeys(t.Context(), c.Tenant); err != nil {
		t.Fatal(err)
	}
	writer, rotator, knew := replica(c), replica(c), replica(c)
	reads(knew, "before-1", "value")
	writing, stop := context.WithCancel(t.Context())
	var writes int
	var done sync.WaitGroup
	done.Go(func() {
		for ; writing.Err() == nil; writes++ {
			writer.Secret(fmt.Sprintf("during-%d", writes%40), fmt.Sprintf("value %d", writes))
			writer.Create(fmt.Sprintf("job-%d", writes), authValue("inline"))
		}
	})
	for range 5 {
		if r, err := rotator.Secrets.RotateSecrets(t.Context(), nil); err != nil || r.Dropped == 0 {
			t.Errorf("rotation: %+v, %v", r, err)
		}
	}
	stop()
	done.Wait()
	c.WantCount(1, "data keys", `SELECT count(*) FROM punctual.data_keys`)
	fresh := replica(c)
	reads(fresh, "before-0", "value")
	if got := jobSecret(fresh, job.ID, job.Definition.Target.Auth.Value); got != "inline" {
		t.Error("the job's value does not open")
	}
	if keys, err := fresh.Secrets.SigningKeys(t.Context(), c.Tenant); err != nil || len(keys) != 1 {
		t.Errorf("signing keys: %d, %v", len(keys), err)
	}
	// A replica that knew only the first data key reads other data keys when it meets them.
	reads(knew, "before-0", "value")
	t.Logf("%d writes during five rotations", writes)
}

// A rotation that was cut off leaves two data keys, and the next rotation completes its work.
func TestAnInterruptedRotationIsBegunAnew(t *testing.T) {
	c := NewFixture(t)
	c.Secret("token", "one")
	undo := c.Before("UPDATE", "secrets", `RAISE 'cut off';`)
	if _, err := c.Secrets.RotateSecrets(t.Context(), nil); err == nil {
		t.Fatal("the rotation was not cut off")
	}
	undo()
	c.Secret("after", "two") // encrypted with the new key
	if r, err := c.Secrets.RotateSecrets(t.Context(), nil); err != nil || r.Values != 2 || r.Dropped != 2 {
		t.Errorf("%+v, %v", r, err)
	}
	fresh := replica(c)
	reads(fresh, "token", "one")
	reads(fresh, "after", "two")
}

func TestANewMasterKeyTakesOver(t *testing.T) {
	c := NewFixture(t)
	c.Secret("token", "one")
	young := pgtest.Master(t)
	if _, err := c.Secrets.RotateSecrets(t.Context(), young); err != nil {
		t.Fatal(err)
	}
	for master, want := range map[*vault.Master]error{young: nil, c.Options.Master: vault.ErrMaster} {
		s := OpenStore(t, store.Options{DatabaseURL: c.Options.DatabaseURL, MaxConns: 2, Master: master})
		if err := s.Secrets.OpenVault(t.Context()); !errors.Is(err, want) {
			t.Errorf("%v, want %v", err, want)
		}
		if secret, err := s.Secrets.NamedSecret(t.Context(), c.Tenant, "token"); want == nil &&
			(err != nil || secret.Value != "one") {
			t.Errorf("the secret does not open: %v", err)
		}
	}
}

// punctual_reader, the role for people, must not read ciphertexts.
func TestReadersSeeNoCiphertext(t *testing.T) {
	c := NewFixture(t)
	readable := Column[string](c, `
		SELECT c.relname
		FROM pg_class c
		WHERE c.relnamespace = 'punctual'::regnamespace AND c.relkind = 'r'
			AND has_table_privilege('punctual_reader', c.oid, 'SELECT')`)
	for _, table := range []string{"secrets", "job_secrets", "signing_secrets", "data_keys"} {
		if slices.Contains(readable, table) {
			t.Errorf("punctual_reader may read %s", table)
		}
	}
}

// A rotation waits for transactions that have encrypted with the old data key, and encrypts anew what they wrote.
func TestARotationWaitsForThoseWhoWrite(t *testing.T) {
	c := NewFixture(t)
	c.Secret("token", "one")
	var rotation sync.WaitGroup
	var job jobs.Record
	_, _, err := c.Idempotent(t.Context(), c.Tenant, store.Idempotency{Key: "k"}, func(w store.Writer) (_ store.Answer, err error) {
		if job, err = w.CreateJob(t.Context(), jobs.NewJob{Definition: Definition("late", authValue("two"))}); err != nil {
			return store.Answer{}, err
		}
		rotation.Go(func() {
			if r, err := replica(c).Secrets.RotateSecrets(t.Context(), nil); err != nil || r.Dropped != 1 {
				t.Errorf("%+v, %v", r, err)
			}
		})
		c.Waiting(1)
		return store.Answer{Status: 201}, nil
	})
	rotation.Wait()
	Must(t, err)
	fresh := replica(c)
	reads(fresh, "token", "one")
	if got := jobSecret(fresh, job.ID, job.Definition.Target.Auth.Value); got != "two" {
		t.Errorf("the job's value opens as %q", got)
	}
}

func TestSecretsInEveryQueryMode(t *testing.T) {
	t.Parallel()
	EachExecMode(t, func(t *testing.T, c Fixture) {
		ctx := t.Context()
		c.Secret("token", "one")
		c.Secret("token", "two")
		reads(c, "token", "two")
		job := c.Create("job", authBy("token"), secretHeader("X-Key", "h"))
		if got := jobSecret(c, job.ID, job.Definition.Target.SecretHeaders["X-Key"]); got != "h" {
			t.Error("the header does not come back")
		}
		c.Put(Definition("job", secretHeader("X-Key", "h")))
		first, err := c.Secrets.ListSigningSecrets(ctx, c.Tenant)
		Must(t, err)
		if _, _, err := c.Secrets.MakeSigningSecret(ctx, c.Tenant); err != nil {
			t.Fatal(err)
		}
		if err := c.Secrets.DeleteSigningSecret(ctx, c.Tenant, first[0].ID, time.Hour); err != nil {
			t.Error(err)
		}
		if r, err := c.Secrets.RotateSecrets(ctx, nil); err != nil || r.Dropped != 1 {
			t.Errorf("%+v, %v", r, err)
		}
		if err := c.Secrets.DeleteSecret(ctx, c.Tenant, "token"); err != nil {
			t.Error(err)
		}
		if list, _, err := c.Secrets.ListSecrets(ctx, c.Tenant, pg.Page{}); err != nil || len(list) != 0 {
			t.Errorf("%v, %v", list, err)
		}
	})
}
