package audit_test

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/uuid"

	. "punctual/internal/storetest"
	"punctual/store/audit"
	"punctual/store/tenants"
)

// administered returns the audit entries of a tenant since the last call, oldest first, each as action, name, before
// and after. The test fails if an actor other than alice made one.
func administered(c Fixture, tenant int32, since *uuid.UUID) string {
	c.T.Helper()
	c.Tenant = tenant
	var lines []string
	for _, e := range c.Entries(since) {
		if OrEmpty(e.Actor) != "alice" {
			c.T.Errorf("%s is %s %q", e.Action, e.ActorKind, OrEmpty(e.Actor))
		}
		lines = append(lines,
			strings.Join(strings.Fields(string(e.Action)+" "+OrEmpty(e.Name)+" "+string(e.Before)+" -> "+string(e.After)), " "))
	}
	return strings.Join(lines, "\n")
}

func TestChangesOfKeysTenantsAndSecretsHaveOneEntryEach(t *testing.T) {
	c := NewFixture(t)
	ctx := audit.WithActor(t.Context(),
		audit.Actor{Kind: audit.Key, Name: "alice", Address: netip.MustParseAddr("203.0.113.7")})
	team, err := c.Tenants.CreateTenant(ctx, tenants.Tenant{Name: "team", Weight: 1})
	c.Must(err)
	const limited = `"max_jobs":7,"max_pending_runs":null,"max_concurrent_runs":null,"max_runs_per_second":null,"max_requests_per_second":null,` +
		`"min_interval":null,"max_key_age":null,"changes_kept":null,"allowed_targets":[],"notify":[]}`
	unlimited := strings.Replace(limited, "7", "null", 1)
	edit := func() error {
		_, err := c.Tenants.EditTenant(ctx, "team", func(t *tenants.Tenant) error {
			t.MaxJobs = new(7)
			return nil
		})
		return err
	}
	put := func(value string) error {
		_, _, err := c.Secrets.PutSecret(ctx, team.ID, "token", value, "of billing")
		return err
	}
	sign := func() error { _, _, err := c.Secrets.MakeSigningSecret(ctx, team.ID); return err }
	unsign := func() error {
		live, err := c.Secrets.ListSigningSecrets(ctx, team.ID)
		c.Must(err)
		if len(live) == 0 {
			return errors.New("there is no signing secret")
		}
		return c.Secrets.DeleteSigningSecret(ctx, team.ID, live[0].ID, 0)
	}
	var since uuid.UUID
	var key, all string
	var made tenants.Key
	create := func() (err error) {
		key, made, err = c.Tenants.CreateKey(ctx, team.ID, tenants.NewKey{Name: "ci", Role: "editor", Never: true})
		return err
	}
	const shown = `{"prefix":"PREFIX","role":"editor"}`
	for _, k := range []struct {
		name string
		work func() error
		want string
	}{
		{
			"a tenant", func() error { return nil },
			`tenant.create team -> {"weight":1,` + unlimited + "\n" + `signing_secret.create -> {"expires_at":null}`,
		},
		{"a key", create, "api_key.create ci -> " + shown},
		{"a limit", edit, `tenant.update team {"weight":1,` + unlimited + ` -> {"weight":1,` + limited},
		{"the same limit again", edit, ""},
		{"a revoked key", func() error { return c.Tenants.RevokeKey(ctx, team.ID, made.ID) }, "api_key.revoke ci " + shown + " ->"},
		{"a key revoked again", func() error { return c.Tenants.RevokeKey(ctx, team.ID, made.ID) }, ""},
		{
			"a secret", func() error { return put("planted-one") },
			`secret.put token -> {"description":"of billing","version":1}`,
		},
		{"the same secret again", func() error { return put("planted-one") }, ""},
		{
			"another value", func() error { return put("planted-two") },
			`secret.put token {"description":"of billing","version":1} -> {"description":"of billing","version":2}`,
		},
		{"no secret", func() error { return c.Secrets.DeleteSecret(ctx, team.ID, "token") }, "secret.delete token ->"},
		{"a signing secret", sign, `signing_secret.create -> {"expires_at":null}`},
		{"another", sign, `signing_secret.create -> {"expires_at":null}`},
		{"one less", unsign, `signing_secret.delete {"expires_at":null} ->`},
		{
			"no tenant", func() error { _, err := c.Tenants.DeleteTenant(ctx, "team"); return err },
			`tenant.delete team {"weight":1,` + limited + " ->",
		},
	} {
		c.Must(k.work())
		got := administered(c, team.ID, &since)
		if want := strings.ReplaceAll(k.want, "PREFIX", strings.TrimPrefix(made.Prefix, "punctual_")); got != want {
			t.Errorf("%s:\n%s\nwant\n%s", k.name, got, want)
		}
		all += got
	}
	for _, secret := range []string{"planted", key} {
		if strings.Contains(all, secret) {
			t.Errorf("the log holds %q", secret)
		}
	}
}

// An entry about the whole deployment belongs to no tenant.
func TestARotationHasAnEntry(t *testing.T) {
	c := NewFixture(t)
	ctx := audit.WithActor(t.Context(), audit.Actor{Kind: audit.Command, Name: "alice"})
	if _, err := c.Secrets.RotateSecrets(ctx, nil); err != nil {
		t.Fatal(err)
	}
	c.WantCount(1, "entries", `SELECT count(*)
		FROM punctual.audit
		WHERE action = 'secret.rotate' AND actor = 'alice' AND tenant IS NULL
			AND after ->> 'new_master_key' = 'false'`)
}
