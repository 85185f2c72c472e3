package httpapi

import (
	"bytes"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"punctual/httpapi/auth"
	"punctual/httpapi/problem"
	"punctual/internal/pgtest"
	"punctual/store"
	"punctual/store/tenants"
)

func TestKeysAreMadeUsedAndRevoked(t *testing.T) {
	t.Parallel()
	s := guarded(t)
	admin := s.as("default", auth.RoleAdmin)
	made := admin.do("POST", "/v1/api-keys", `{"name":"ci","role":"editor","expires_in":"720h"}`).want(201)
	key := into[NewKey](made)
	if !strings.HasPrefix(key.Secret, key.Prefix+"_") || key.Role != string(auth.RoleEditor) || key.State != "active" ||
		!strings.HasPrefix(key.CreatedBy, "key:") {
		t.Errorf("made %s", made.body)
	}
	if d := key.ExpiresAt.Sub(key.CreatedAt); d != 720*time.Hour {
		t.Errorf("expires after %s", d)
	}
	path := made.header.Get("Location")
	ci := s.with(key.Secret)
	ci.create(minimal("n"))
	ci.do("GET", path, "").code(problem.CodeForbidden)
	must(t, s.store.Tenants.NoteKeysUsed(t.Context()))
	shown := admin.do("GET", path, "").want(200).hides(key.Secret)
	if got := into[tenants.Key](shown); got.LastUsedAt == nil || got.LastUsedAt.Second() != 0 {
		t.Errorf("shown %s", shown.body)
	}
	for range 2 {
		admin.do("DELETE", path, "").want(204)
	}
	until(t, "the key to cease to work", func() bool { return ci.do("GET", "/v1/jobs", "").status == 401 })
	if got := get[tenants.Key](admin, path); got.State != "revoked" || got.RevokedAt == nil {
		t.Errorf("revoked %+v", got)
	}
	list := get[List[tenants.Key]](admin, "/v1/api-keys?limit=1")
	if len(list.Data) != 1 || list.Data[0].ID != key.ID || list.NextCursor == nil {
		t.Errorf("listed %+v", list)
	}
	list = get[List[tenants.Key]](admin, "/v1/api-keys?cursor="+*list.NextCursor)
	if len(list.Data) != 1 || list.Data[0].Name != "admin" || list.NextCursor != nil {
		t.Errorf("listed %+v", list)
	}
}

// A known key is not looked up again while its answer is remembered. It is afterwards, so a revoked key stops
// working.
func TestAKnownKeyCostsNoQuery(t *testing.T) {
	t.Parallel()
	s := guarded(t)
	viewer := s.as("default", auth.RoleViewer)
	preview := func() {
		viewer.do("POST", "/v1/schedules/preview", `{"schedule":{"every":"1h"},"from":"2026-12-01T00:00:00Z"}`).want(200)
	}
	preview()
	began, before := time.Now(), s.store.Pool().Stat().AcquireCount()
	for range 50 {
		preview()
	}
	if n := s.store.Pool().Stat().AcquireCount() - before; n > 1 && time.Since(began) < auth.Remembered {
		t.Errorf("%d queries", n)
	}
	if auth.Remembered > 2*time.Second {
		t.Error("a revoked key works for longer than is documented")
	}
}

// A key is unknown, expired, revoked, malformed or missing. The same 401 follows the same work.
//
//prove:tenants
func TestWhateverIsWrongWithAKeyTheAnswerIsTheSame(t *testing.T) {
	t.Parallel()
	s := guarded(t)
	s.tenant("alpha")
	good := s.key("alpha", auth.RoleAdmin)
	revoked, expired := s.key("alpha", auth.RoleAdmin), s.key("alpha", auth.RoleAdmin)
	s.exec(`UPDATE punctual.api_keys SET revoked_at = now() WHERE prefix = $1`, strings.Split(revoked, "_")[1])
	s.exec(`
		UPDATE punctual.api_keys
		SET created_at = now() - interval '2 hours', expires_at = now() - interval '1 second'
		WHERE prefix = $1`, strings.Split(expired, "_")[1])
	s.tenant("gone")
	orphan := s.key("gone", auth.RoleAdmin)
	_, err := s.store.Tenants.DeleteTenant(t.Context(), "gone")
	must(t, err)
	last := good[len(good)-1:]
	flipped := good[:len(good)-1] + map[bool]string{true: "A", false: "Q"}[last != "A"]
	var want []byte
	for name, header := range map[string]string{
		"missing":           "X-Nothing: x",
		"empty":             "Authorization: Bearer",
		"another scheme":    "Authorization: Basic " + good,
		"malformed":         "Authorization: Bearer punctual_x",
		"no key at all":     "Authorization: Bearer hello",
		"a token":           "Authorization: Bearer a.b.c",
		"NUL and bad UTF-8": "Authorization: Bearer punctual_\xff\xfe",
		"unknown": "Authorization: Bearer punctual_0123456789abcdef_" +
			strings.Split(good, "_")[1] + strings.Repeat("A", 27),
		"another secret":     "Authorization: Bearer " + flipped,
		"one character more": "Authorization: Bearer " + good + "A",
		"revoked":            "Authorization: Bearer " + revoked,
		"expired":            "Authorization: Bearer " + expired,
		"tenant deleted":     "Authorization: Bearer " + orphan,
	} {
		before := s.store.Pool().Stat().AcquireCount()
		r := s.do("GET", "/v1/jobs", "", header, "X-Request-Id: same")
		r.code(problem.CodeUnauthenticated)
		if n := s.store.Pool().Stat().AcquireCount() - before; n != 1 {
			t.Errorf("%s: %d queries", name, n)
		}
		if r.header.Get("WWW-Authenticate") != "Bearer" {
			t.Errorf("%s: %v", name, r.header)
		}
		if want == nil {
			want = r.body
		}
		if !bytes.Equal(r.body, want) {
			t.Errorf("%s: %s, others %s", name, r.body, want)
		}
	}
	s.with(good).do("GET", "/v1/jobs", "").want(200)
	s.do("GET", "/v1/jobs", "", "Authorization: bearer "+good).want(200)
}

func TestKeysAreCheckedBeforeTheyAreMade(t *testing.T) {
	t.Parallel()
	s := guarded(t)
	admin := s.as("default", auth.RoleAdmin)
	for body, at := range map[string]string{
		`{"role":"viewer"}`:          "body.name",
		`{"name":"k"}`:               "body.role",
		`{"name":"k","role":"root"}`: "body.role",
		`{"name":"` + strings.Repeat("ä", 129) + `","role":"viewer"}`:                        "body.name",
		`{"name":"k","role":"viewer","expires_at":"soon"}`:                                   "body.expires_at",
		`{"name":"k","role":"viewer","expires_at":"2020-01-01T00:00:00Z"}`:                   "body.expires_at",
		`{"name":"k","role":"viewer","expires_in":"0s"}`:                                     "body.expires_in",
		`{"name":"k","role":"viewer","expires_in":"tomorrow"}`:                               "body.expires_in",
		`{"name":"k","role":"viewer","expires_in":"1h","expires_at":"2099-01-01T00:00:00Z"}`: "body.expires_in",
	} {
		admin.do("POST", "/v1/api-keys", body).blames(at)
	}
	admin.do("POST", "/v1/api-keys", `{"name":"`+strings.Repeat("ä", 128)+`","role":"viewer"}`).want(201)
	admin.do("POST", "/v1/api-keys", `{"name":"k","role":"operator"}`).code(problem.CodeForbidden)
	admin.do("POST", "/v1/api-keys", `{"name":"k","role":"viewer"}`, "Idempotency-Key: x").want(201)
	var kept int
	if err := s.store.Pool().QueryRow(t.Context(),
		`SELECT count(*) FROM punctual.idempotency_keys`).Scan(&kept); err != nil || kept != 0 {
		t.Errorf("%d answers are kept, error %v", kept, err)
	}
	operators := s.key("default", auth.RoleOperator)
	id := s.idOf(operators)
	admin.do("DELETE", "/v1/api-keys/"+id, "").code(problem.CodeForbidden)
	s.with(operators).do("DELETE", "/v1/api-keys/"+id, "").want(204)
}

// idOf returns the id of a key.
func (s *service) idOf(key string) string {
	s.t.Helper()
	_, id, err := s.store.Tenants.FindKey(s.t.Context(), key)
	must(s.t, err)
	return id.String()
}

func TestKeysAreNeverLogged(t *testing.T) {
	t.Parallel()
	var logs lockedBuffer
	s := guarded(t, func(c *Config) {
		c.Log = slog.New(slog.NewTextHandler(&logs, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	key := s.key("default", auth.RoleEditor)
	editor := s.with(key)
	editor.create(minimal("n"))
	editor.do("GET", "/v1/jobs/other", "").want(404)
	editor.do("POST", "/v1/jobs", `{`).want(400)
	s.with(key+"x").do("GET", "/v1/jobs", "").want(401)
	s.store.Close() // every query fails from now on
	editor.do("GET", "/v1/jobs", "")
	s.with(key+"y").do("GET", "/v1/jobs", "")
	if text := logs.String(); strings.Contains(text, strings.SplitN(key, "_", 3)[2]) ||
		!strings.Contains(text, "request") {
		t.Errorf("logged %s", text)
	}
}

// A flood of wrong keys fills no memory and spares the database. Known keys work.
//
//prove:tenants
func TestAFloodOfWrongKeysLocksNobodyOut(t *testing.T) {
	t.Parallel()
	s := guarded(t)
	viewer := s.as("default", auth.RoleViewer)
	viewer.do("GET", "/v1/jobs", "").want(200)
	before := s.store.Pool().Stat().AcquireCount()
	began, refused := time.Now(), 0
	const flood = 3 * auth.BurstOfAddress
	for i := range flood {
		r := s.do("GET", "/v1/jobs", "", fmt.Sprintf("Authorization: Bearer punctual_%016x_%043d", i, i))
		if r.status == 429 {
			r.code(problem.CodeRateLimited)
			refused++
			if r.header.Get("Retry-After") == "" {
				t.Fatal("no Retry-After")
			}
			continue
		}
		r.code(problem.CodeUnauthenticated)
	}
	looked := s.store.Pool().Stat().AcquireCount() - before
	if most := int64(auth.BurstOfAddress + auth.UnknownOfAddress*(time.Since(began).Seconds()+1)); looked > most {
		t.Errorf("%d of %d wrong keys were looked for, at most %d", looked, flood, most)
	}
	if time.Since(began) < 5*time.Second && refused == 0 {
		t.Error("none were refused")
	}
	until(t, "what is known of the key to lapse",
		func() bool { viewer.do("GET", "/v1/jobs", "").want(200); return time.Since(began) > auth.Remembered })
}

// lives returns how long a new key works; 0: for ever.
func lives(r *reply) time.Duration {
	r.t.Helper()
	key := into[NewKey](r.want(201))
	if key.ExpiresAt == nil {
		return 0
	}
	return key.ExpiresAt.Sub(key.CreatedAt)
}

func TestAKeyLivesAYearUnlessItSaysOtherwise(t *testing.T) {
	t.Parallel()
	s := guarded(t)
	const year, day = 365 * 24 * time.Hour, 24 * time.Hour
	create := func(tenant, more string) *reply {
		t.Helper()
		return s.as(tenant, auth.RoleAdmin).do("POST", "/v1/api-keys", `{"name":"k","role":"viewer"`+more+`}`)
	}
	const never, long, far = `,"expires_in":"never"`, `,"expires_in":"17520h"`, `,"expires_at":"2099-01-01T00:00:00Z"`
	for more, want := range map[string]time.Duration{"": year, never: 0, long: 2 * year} {
		if got := lives(create("default", more)); got != want {
			t.Errorf("%s: it lives %s", more, got)
		}
	}
	create("default", never+far).blames("body.expires_in")
	s.tenant("strict")
	operator := s.as("default", auth.RoleOperator)
	operator.do("PATCH", "/v1/tenants/strict", `{"max_key_age":"30m"}`).blames("body.max_key_age")
	operator.do("PATCH", "/v1/tenants/strict", `{"max_key_age":"720h"}`).want(200).shows(`"max_key_age":"720h0m0s"`)
	for more, want := range map[string]time.Duration{"": 30 * day, `,"expires_in":"720h"`: 30 * day, `,"expires_in":"1h"`: time.Hour} {
		if got := lives(create("strict", more)); got != want {
			t.Errorf("strict %s: it lives %s", more, got)
		}
	}
	for _, more := range []string{never, long, `,"expires_in":"720h1s"`} {
		create("strict", more).wantMessage("body.expires_in", "720h", "max_key_age")
	}
	create("strict", far).wantMessage("body.expires_at", "720h", "max_key_age")
	// The deployment's limit holds for a tenant without one, and the lower of two counts.
	st, err := store.Open(t.Context(), store.Options{
		DatabaseURL: s.store.Pool().Config().ConnString(), Master: pgtest.Master(t), Replica: true, MaxKeyAge: 90 * day,
	})
	must(t, err)
	t.Cleanup(st.Close)
	strict := *s
	strict.store = st
	s = strict.another(Config{Log: slog.New(slog.DiscardHandler)})
	if got := lives(create("default", "")); got != 90*day {
		t.Errorf("it lives %s", got)
	}
	create("default", never).blames("body.expires_in")
	create("strict", `,"expires_in":"800h"`).blames("body.expires_in")
	operator.do("PATCH", "/v1/tenants/strict", `{"max_key_age":null}`).want(200).shows(`"max_key_age":null`)
}

func TestAKeyThatExpiresSoonIsToldOf(t *testing.T) {
	t.Parallel()
	s := guarded(t)
	s.tenant("other")
	admin := s.as("default", auth.RoleAdmin)
	names := func() string {
		var all []string
		for _, k := range get[List[tenants.Key]](admin, "/v1/api-keys?expiring=true").Data {
			all = append(all, k.Name)
		}
		return strings.Join(all, " ")
	}
	for name, key := range map[string]struct {
		life, left string
		soon       bool
	}{
		"fresh": {"365 days", "31 days", false}, "old": {"365 days", "29 days", true}, "brief": {"7 days", "1 hour", false},
		"month": {"30 days", "11 days", false}, "late": {"30 days", "9 days", true},
	} {
		secret := into[NewKey](admin.do("POST", "/v1/api-keys", `{"name":"`+name+`","role":"viewer"}`).want(201)).Secret
		s.exec(`UPDATE punctual.api_keys
			SET created_at = now() + $2::text::interval - $1::text::interval, expires_at = now() + $2::text::interval
			WHERE name = $3`, key.life, key.left, name)
		got := s.with(secret).do("GET", "/v1/jobs", "").want(200).header.Get(auth.HeaderKeyExpires)
		if _, err := time.Parse(time.RFC3339, got); key.soon != (err == nil) || key.soon != (got != "") {
			t.Errorf("%s: told %q", name, got)
		}
		if key.soon != slices.Contains(strings.Fields(names()), name) {
			t.Errorf("%s: expiring are %q", name, names())
		}
	}
	if list := get[List[tenants.Key]](s.as("other", auth.RoleAdmin), "/v1/api-keys?expiring=true"); len(list.Data) != 0 {
		t.Errorf("another tenant sees %+v", list.Data)
	}
}
