package store

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
	"punctual/scheduler/credential"
	"punctual/scheduler/domain"
	"punctual/store/jobs"
	"punctual/store/names"
	"punctual/store/pg"
	"punctual/store/secrets"
	"punctual/store/vault"
)

// authBy refers to a stored secret, authValue contains a value.
func authBy(secret string) option {
	return func(d *domain.Definition) {
		d.Target.Auth = &domain.Auth{Type: domain.AuthBearer, Secret: secret}
	}
}

func authValue(value string) option {
	return func(d *domain.Definition) {
		d.Target.Auth = &domain.Auth{Type: domain.AuthBearer, Value: domain.HiddenOf(value)}
	}
}

func secretHeader(name, value string) option {
	return func(d *domain.Definition) {
		d.Target.SecretHeaders = map[string]domain.Hidden{name: domain.HiddenOf(value)}
	}
}

func (c crud) secret(name, value string) secrets.Secret {
	c.t.Helper()
	r, _, err := c.Secrets.PutSecret(c.t.Context(), c.tenant, name, value, "")
	must(c.t, err)
	return r
}

// reads fails the test unless a secret opens and has this value.
func (c crud) reads(name, want string) {
	c.t.Helper()
	got, err := c.Secrets.NamedSecret(c.t.Context(), c.tenant, name)
	if err != nil || got.Value != want {
		c.t.Errorf("secret %q does not open as it should: %v", name, err)
	}
}

func (c crud) jobSecret(job uuid.UUID, h domain.Hidden) string {
	c.t.Helper()
	id, ok := h.Sealed()
	if !ok {
		c.t.Fatal("a stored definition holds a value that is not sealed")
	}
	s, err := c.Secrets.JobSecret(c.t.Context(), c.tenant, job, id)
	must(c.t, err)
	return s.Value
}

func TestASecretIsReplacedAndCountsItsValues(t *testing.T) {
	c := newCRUD(t)
	first := c.secret("token", "one")
	c.reads("token", "one")
	same := c.secret("token", "one")
	if same != first {
		t.Errorf("writing the same changed it: %+v, was %+v", same, first)
	}
	described, _, err := c.Secrets.PutSecret(t.Context(), c.tenant, "token", "one", "of billing")
	if err != nil || described.Version != 1 || described.Description != "of billing" {
		t.Errorf("another description: %+v, %v", described, err)
	}
	if second := c.secret("token", "two"); second.Version != 2 || second.ID != first.ID {
		t.Errorf("another value: %+v", second)
	}
	c.Secrets.ForgetSecrets()
	c.reads("token", "two")
	if _, err := c.Secrets.NamedSecret(t.Context(), c.tenant, "other"); !isAuth(err) {
		t.Errorf("a secret that is not there: %v", err)
	}
	if _, err := c.Secrets.NamedSecret(t.Context(), c.tenant+1, "token"); !isAuth(err) {
		t.Errorf("another tenant's: %v", err)
	}
}

func isAuth(err error) bool {
	var auth *credential.AuthError
	return errors.As(err, &auth)
}

// A replica sees a change by another replica once its cached value is no longer trusted.
func TestAnotherReplicaSeesAChangedSecret(t *testing.T) {
	c := newCRUD(t)
	other := c.replica()
	c.secret("token", "one")
	other.reads("token", "one")
	c.secret("token", "two")
	other.reads("token", "one") // the cached value is trusted for some seconds
	other.Secrets.ForgetSecrets()
	other.reads("token", "two")
}

// replica opens the same database again, with the same master key.
func (c crud) replica() crud {
	c.t.Helper()
	return openCRUD(c.t, Options{DatabaseURL: c.Options.DatabaseURL, MaxConns: 4, Master: c.Options.Master})
}

func TestWhatABurstNeedsIsReadOnce(t *testing.T) {
	c := newCRUD(t)
	c.secret("token", "one")
	c.reads("token", "one")
	if _, err := c.Secrets.SigningKeys(t.Context(), c.tenant); err != nil {
		t.Fatal(err)
	}
	before := c.acquired()
	var all sync.WaitGroup
	for range 100 {
		all.Go(func() {
			for range 10 {
				c.reads("token", "one")
				if _, err := c.Secrets.SigningKeys(t.Context(), c.tenant); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	// At most one further look for changes, if the five seconds ended meanwhile.
	if asked := c.acquired() - before; asked > 3 {
		t.Errorf("2,000 reads asked the database %d times", asked)
	}
}

func (c crud) acquired() int64 { return c.DB.Callers.Stat().AcquireCount() }

func TestASecretInUseCannotBeDeleted(t *testing.T) {
	c := newCRUD(t)
	c.secret("token", "one")
	for i := range 12 {
		c.create(fmt.Sprintf("uses-%02d", i), authBy("token"))
	}
	var inUse *names.InUseError
	if err := c.Secrets.DeleteSecret(t.Context(), c.tenant, "token"); !errors.As(err, &inUse) || len(inUse.Jobs) != 10 ||
		!inUse.More || inUse.Jobs[0] != "uses-00" {
		t.Fatalf("deleting it: %v", err)
	}
	for i := range 12 {
		name := fmt.Sprintf("uses-%02d", i)
		d := definition(name) // it no longer refers to the secret
		if i%2 == 0 {
			c.deleteJob(name)
			continue
		}
		c.put(d)
	}
	must(t, c.Secrets.DeleteSecret(t.Context(), c.tenant, "token"))
	c.Secrets.ForgetSecrets()
	if _, err := c.Secrets.NamedSecret(t.Context(), c.tenant, "token"); !isAuth(err) {
		t.Errorf("it is still there: %v", err)
	}
	if err := c.Secrets.DeleteSecret(t.Context(), c.tenant, "token"); !errors.Is(err, ErrNotFound) {
		t.Errorf("deleting it again: %v", err)
	}
}

// The first of the two wins: either the job is refused, or the secret stays.
func TestASecretIsNotDeletedUnderAJobThatIsBeingWritten(t *testing.T) {
	c := newCRUD(t)
	for i := range 20 {
		name := fmt.Sprintf("token-%d", i)
		c.secret(name, "one")
		var both sync.WaitGroup
		var created, deleted error
		both.Go(func() {
			_, created = c.tryCreate("job-"+name, authBy(name))
		})
		both.Go(func() { deleted = c.Secrets.DeleteSecret(t.Context(), c.tenant, name) })
		both.Wait()
		var unknown domain.Problem
		var inUse *names.InUseError
		if refused, kept := errors.As(created, &unknown), errors.As(deleted, &inUse); refused == kept ||
			!refused && created != nil || !kept && deleted != nil {
			t.Errorf("%s: the job: %v, the secret: %v", name, created, deleted)
		}
	}
}

func TestAJobCannotReferToASecretThatIsNotThere(t *testing.T) {
	c := newCRUD(t)
	c.secret("there", "one")
	d := definition("job", authBy("there"), func(d *domain.Definition) { d.Target.TLS = &domain.TLS{CA: "missing"} })
	for what, write := range map[string]func() error{
		"create": func() error { _, err := c.For(c.tenant).CreateJob(t.Context(), jobs.NewJob{Definition: d}); return err },
		"put": func() error {
			_, err := c.tryPut(d)
			return err
		},
	} {
		var unknown domain.Problem
		if err := write(); !errors.As(err, &unknown) || unknown.Field != "target.tls.ca" ||
			!strings.Contains(unknown.Message, `"missing"`) {
			t.Errorf("%s: %v", what, err)
		}
	}
	var batch *jobs.BatchError
	var unknown domain.Problem
	_, err := c.createMany(jobs.ConflictError, definition("good", authBy("there")), d)
	if !errors.As(err, &batch) || len(batch.Errors) != 1 || !errors.As(batch.Errors[1], &unknown) {
		t.Errorf("in a batch: %v", err)
	}
}

// A secret value in a definition is stored encrypted, and the stored definition only refers to it.
func TestValuesOfADefinitionAreSealed(t *testing.T) {
	c := newCRUD(t)
	const planted, header = "planted-value", "planted-header"
	made := c.create("job", authValue(planted), secretHeader("X-Key", header))
	if got := c.jobSecret(made.ID, made.Definition.Target.Auth.Value); got != planted {
		t.Error("the value does not come back")
	}
	if got := c.jobSecret(made.ID, made.Definition.Target.SecretHeaders["X-Key"]); got != header {
		t.Error("the header does not come back")
	}
	everything := c.text(`SELECT (SELECT string_agg(v::text, ' ') FROM punctual.job_versions v)
		|| (SELECT string_agg(s::text, ' ') FROM punctual.job_secrets s)`)
	if everything == "-" || strings.Contains(everything, "planted") ||
		strings.Contains(everything, fmt.Sprintf("%x", planted)) {
		t.Errorf("the database shows it: %s", everything)
	}
}

func TestWritingTheSameSecretsAgainChangesNothing(t *testing.T) {
	c := newCRUD(t)
	put := func(options ...option) jobs.Record {
		t.Helper()
		r, _ := c.put(definition("job", options...))
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
	if got := c.jobSecret(second.ID, second.Definition.Target.Auth.Value); got != "two" {
		t.Error("the new value does not come back")
	}
	if got := c.jobSecret(first.ID, first.Definition.Target.Auth.Value); got != "one" {
		t.Error("the value of the version before is gone: its runs still need it")
	}
	// A batch with the same values changes nothing either.
	_, err := c.createMany(jobs.ConflictReplace, definition("job", authValue("two"), secretHeader("X-Key", "h")))
	if now, _ := c.Jobs.GetJob(t.Context(), c.tenant, "job"); err != nil || now.Version != second.Version {
		t.Errorf("the same in a batch: version %d, want %d: %v", now.Version, second.Version, err)
	}
	// A job cannot refer to the sealed values of another job.
	other := c.create("other", authValue("theirs"))
	stolen := func(d *domain.Definition) { d.Target.Auth = other.Definition.Target.Auth }
	if _, err := c.tryPut(definition("job", stolen)); err == nil {
		t.Error("a job refers to another's stored value")
	}
}

// Ciphertexts that were moved or changed do not open.
func TestACiphertextThatWasMovedDoesNotOpen(t *testing.T) {
	c := newCRUD(t)
	c.secret("cheap", "one")
	c.secret("dear", "two")
	c.exec(`UPDATE punctual.secrets SET ciphertext = (SELECT ciphertext FROM punctual.secrets WHERE name = 'dear')
		WHERE name = 'cheap'`)
	if _, err := c.Secrets.NamedSecret(t.Context(), c.tenant, "cheap"); !isAuth(err) {
		t.Errorf("a moved ciphertext: %v", err)
	}
	c.secret("cheap", "three") // writing the secret again repairs it
	c.Secrets.ForgetSecrets()
	c.reads("cheap", "three")
}

func TestTheVaultOpensWithItsOwnMasterKeyOnly(t *testing.T) {
	c := newCRUD(t)
	must(t, c.Secrets.OpenVault(t.Context()))
	for _, test := range []struct {
		name   string
		master *vault.Master
		want   error
	}{{"none", nil, secrets.ErrNoMaster}, {"another", pgtest.Master(t), vault.ErrMaster}, {"its own", c.Options.Master, nil}} {
		s := openStore(t, Options{DatabaseURL: c.Options.DatabaseURL, MaxConns: 2, Master: test.master})
		if err := s.Secrets.OpenVault(t.Context()); !errors.Is(err, test.want) {
			t.Errorf("%s: %v", test.name, err)
		}
	}
}

// A new tenant has its signing secret, so that its first callbacks wait for no commit. A first secret is nothing that a
// replica could have to forget.
func TestANewTenantHasItsSigningSecret(t *testing.T) {
	c := newCRUD(t)
	changed := func() int { return c.count(`SELECT secrets_changed::int FROM punctual.deployment`) }
	before := changed()
	team := c.newTenant("team")
	live := func() int { return c.count(`SELECT count(*) FROM punctual.signing_secrets WHERE tenant = $1`, team.ID) }
	if n := live(); n != 1 {
		t.Errorf("%d secrets before the first callback", n)
	}
	if keys, err := c.Secrets.SigningKeys(t.Context(), team.ID); err != nil || len(keys) != 1 || live() != 1 {
		t.Errorf("%d keys, %v", len(keys), err)
	}
	if _, err := c.Secrets.SigningKeys(
		t.Context(), c.tenant,
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
	c := newCRUD(t)
	ids := map[string]int32{}
	for _, name := range []string{"first", "neighbour", "broken"} {
		ids[name] = c.newTenant(name).ID
	}
	c.exec(`UPDATE punctual.signing_secrets SET ciphertext = '\x00' WHERE tenant = $1`, ids["broken"])
	replica := c.replica()
	if keys, err := replica.Secrets.SigningKeys(t.Context(), ids["first"]); err != nil || len(keys) != 1 {
		t.Errorf("%d keys of the first, %v", len(keys), err)
	}
	c.exec(`DELETE FROM punctual.signing_secrets WHERE tenant = $1`, ids["neighbour"]) // so that it cannot be read again
	if keys, err := replica.Secrets.SigningKeys(t.Context(), ids["neighbour"]); err != nil || len(keys) != 1 {
		t.Errorf("%d keys of the neighbour, %v", len(keys), err)
	}
	c.wantCount(0, "the neighbour's secret was not read with the first one's: another was made",
		`SELECT count(*) FROM punctual.signing_secrets WHERE tenant = $1`, ids["neighbour"])
	for range 2 { // with its neighbours, and then alone
		if keys, err := replica.Secrets.SigningKeys(t.Context(), ids["broken"]); err == nil {
			t.Errorf("%d keys from a ciphertext that nothing opens", len(keys))
		}
	}
	late := c.newTenant("late").ID
	if keys, err := replica.Secrets.SigningKeys(t.Context(), late); err != nil || len(keys) != 1 {
		t.Errorf("%d keys of a tenant that came after its neighbours were read, %v", len(keys), err)
	}
}

func TestReplicasMakeOneDataKeyAndOneSigningSecret(t *testing.T) {
	c := newCRUD(t)
	var all sync.WaitGroup
	for range 5 {
		replica := c.replica()
		all.Go(func() {
			if err := replica.Secrets.OpenVault(t.Context()); err != nil {
				t.Error(err)
			}
			if keys, err := replica.Secrets.SigningKeys(t.Context(), c.tenant); err != nil || len(keys) != 1 {
				t.Errorf("%d signing keys, %v", len(keys), err)
			}
		})
	}
	all.Wait()
	keys, secrets := c.count(`SELECT count(*) FROM punctual.data_keys`),
		c.count(`SELECT count(*) FROM punctual.signing_secrets`)
	if keys != 1 || secrets != 1 {
		t.Errorf("%d data keys and %d signing secrets, want 1 of each", keys, secrets)
	}
}

func TestSigningSecretsAreMadeAndDeleted(t *testing.T) {
	c := newCRUD(t)
	ctx := t.Context()
	first, err := c.Secrets.ListSigningSecrets(ctx, c.tenant)
	if err != nil || len(first) != 1 {
		t.Fatalf("%v, %v", first, err)
	}
	if err := c.Secrets.DeleteSigningSecret(ctx, c.tenant, first[0].ID, 0); !errors.Is(err, ErrState) {
		t.Errorf("deleting the last: %v", err)
	}
	made, secret, err := c.Secrets.MakeSigningSecret(ctx, c.tenant)
	if err != nil || !strings.HasPrefix(secret, "whsec_") {
		t.Fatalf("made %v: %v", made, err)
	}
	must(t, c.Secrets.DeleteSigningSecret(ctx, c.tenant, first[0].ID, time.Hour))
	both, err := c.Secrets.ListSigningSecrets(ctx, c.tenant)
	if err != nil || len(both) != 2 || both[0].ExpiresAt == nil || both[1].ExpiresAt != nil {
		t.Errorf("after the first was given an end: %+v, %v", both, err)
	}
	if err := c.Secrets.DeleteSigningSecret(ctx, c.tenant, made.ID, 0); !errors.Is(err, ErrState) {
		t.Errorf("deleting the last that does not expire: %v", err)
	}
	c.exec(`UPDATE punctual.signing_secrets SET expires_at = now() - interval '1 second' WHERE expires_at IS NOT NULL`)
	if left, err := c.Secrets.ListSigningSecrets(ctx, c.tenant); err != nil || len(left) != 1 || left[0].ID != made.ID {
		t.Errorf("after it expired: %+v, %v", left, err)
	}
	for range 9 {
		if _, _, err := c.Secrets.MakeSigningSecret(ctx, c.tenant); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := c.Secrets.MakeSigningSecret(ctx, c.tenant); !errors.Is(err, ErrState) {
		t.Errorf("an eleventh: %v", err)
	}
	if err := c.Secrets.DeleteSigningSecret(ctx, c.tenant, uuid.New(), 0); !errors.Is(err, ErrNotFound) {
		t.Errorf("one that is not there: %v", err)
	}
}

// Whatever is written during a rotation, one data key that opens everything remains at its end.
func TestRotationWhileReplicasWrite(t *testing.T) {
	c := newCRUD(t)
	for i := range 30 {
		c.secret(fmt.Sprintf("before-%d", i), "value")
	}
	job := c.create("job", authValue("inline"))
	if _, err := c.Secrets.SigningKeys(t.Context(), c.tenant); err != nil {
		t.Fatal(err)
	}
	writer, rotator, knew := c.replica(), c.replica(), c.replica()
	knew.reads("before-1", "value")
	writing, stop := context.WithCancel(t.Context())
	var writes int
	var done sync.WaitGroup
	done.Go(func() {
		for ; writing.Err() == nil; writes++ {
			writer.secret(fmt.Sprintf("during-%d", writes%40), fmt.Sprintf("value %d", writes))
			writer.create(fmt.Sprintf("job-%d", writes), authValue("inline"))
		}
	})
	for range 5 {
		if r, err := rotator.Secrets.RotateSecrets(t.Context(), nil); err != nil || r.Dropped == 0 {
			t.Errorf("rotation: %+v, %v", r, err)
		}
	}
	stop()
	done.Wait()
	c.wantCount(1, "data keys", `SELECT count(*) FROM punctual.data_keys`)
	fresh := c.replica()
	fresh.reads("before-0", "value")
	if got := fresh.jobSecret(job.ID, job.Definition.Target.Auth.Value); got != "inline" {
		t.Error("the job's value does not open")
	}
	if keys, err := fresh.Secrets.SigningKeys(t.Context(), c.tenant); err != nil || len(keys) != 1 {
		t.Errorf("signing keys: %d, %v", len(keys), err)
	}
	// A replica that knew only the first data key reads other data keys when it meets them.
	knew.reads("before-0", "value")
	t.Logf("%d writes during five rotations", writes)
}

// A rotation that was cut off leaves two data keys, and the next rotation completes its work.
func TestAnInterruptedRotationIsBegunAnew(t *testing.T) {
	c := newCRUD(t)
	c.secret("token", "one")
	undo := c.before("UPDATE", "secrets", `RAISE 'cut off';`)
	if _, err := c.Secrets.RotateSecrets(t.Context(), nil); err == nil {
		t.Fatal("the rotation was not cut off")
	}
	undo()
	c.secret("after", "two") // encrypted with the new key
	if r, err := c.Secrets.RotateSecrets(t.Context(), nil); err != nil || r.Values != 2 || r.Dropped != 2 {
		t.Errorf("%+v, %v", r, err)
	}
	fresh := c.replica()
	fresh.reads("token", "one")
	fresh.reads("after", "two")
}

func TestANewMasterKeyTakesOver(t *testing.T) {
	c := newCRUD(t)
	c.secret("token", "one")
	young := pgtest.Master(t)
	if _, err := c.Secrets.RotateSecrets(t.Context(), young); err != nil {
		t.Fatal(err)
	}
	for master, want := range map[*vault.Master]error{young: nil, c.Options.Master: vault.ErrMaster} {
		s := openStore(t, Options{DatabaseURL: c.Options.DatabaseURL, MaxConns: 2, Master: master})
		if err := s.Secrets.OpenVault(t.Context()); !errors.Is(err, want) {
			t.Errorf("%v, want %v", err, want)
		}
		if secret, err := s.Secrets.NamedSecret(t.Context(), c.tenant, "token"); want == nil &&
			(err != nil || secret.Value != "one") {
			t.Errorf("the secret does not open: %v", err)
		}
	}
}

// punctual_reader, the role for people, must not read ciphertexts.
func TestReadersSeeNoCiphertext(t *testing.T) {
	c := newCRUD(t)
	readable := column[string](c, `
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
	c := newCRUD(t)
	c.secret("token", "one")
	var rotation sync.WaitGroup
	var job jobs.Record
	_, _, err := c.Idempotent(t.Context(), c.tenant, Idempotency{Key: "k"}, func(w Writer) (_ Answer, err error) {
		if job, err = w.CreateJob(t.Context(), jobs.NewJob{Definition: definition("late", authValue("two"))}); err != nil {
			return Answer{}, err
		}
		rotation.Go(func() {
			if r, err := c.replica().Secrets.RotateSecrets(t.Context(), nil); err != nil || r.Dropped != 1 {
				t.Errorf("%+v, %v", r, err)
			}
		})
		c.waiting(1)
		return Answer{Status: 201}, nil
	})
	rotation.Wait()
	must(t, err)
	fresh := c.replica()
	fresh.reads("token", "one")
	if got := fresh.jobSecret(job.ID, job.Definition.Target.Auth.Value); got != "two" {
		t.Errorf("the job's value opens as %q", got)
	}
}

func TestSecretsInEveryQueryMode(t *testing.T) {
	eachExecMode(t, func(t *testing.T, c crud) {
		ctx := t.Context()
		c.secret("token", "one")
		c.secret("token", "two")
		c.reads("token", "two")
		job := c.create("job", authBy("token"), secretHeader("X-Key", "h"))
		if got := c.jobSecret(job.ID, job.Definition.Target.SecretHeaders["X-Key"]); got != "h" {
			t.Error("the header does not come back")
		}
		c.put(definition("job", secretHeader("X-Key", "h")))
		first, err := c.Secrets.ListSigningSecrets(ctx, c.tenant)
		must(t, err)
		if _, _, err := c.Secrets.MakeSigningSecret(ctx, c.tenant); err != nil {
			t.Fatal(err)
		}
		if err := c.Secrets.DeleteSigningSecret(ctx, c.tenant, first[0].ID, time.Hour); err != nil {
			t.Error(err)
		}
		if r, err := c.Secrets.RotateSecrets(ctx, nil); err != nil || r.Dropped != 1 {
			t.Errorf("%+v, %v", r, err)
		}
		if err := c.Secrets.DeleteSecret(ctx, c.tenant, "token"); err != nil {
			t.Error(err)
		}
		if list, _, err := c.Secrets.ListSecrets(ctx, c.tenant, pg.Page{}); err != nil || len(list) != 0 {
			t.Errorf("%v, %v", list, err)
		}
	})
}
