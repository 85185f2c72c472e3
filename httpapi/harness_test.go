package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"punctual/httpapi/auth"
	"punctual/httpapi/problem"
	"punctual/internal/pgtest"
	"punctual/scheduler"
	"punctual/scheduler/delivery"
	"punctual/scheduler/delivery/guard"
	"punctual/scheduler/domain"
	"punctual/store"
	"punctual/store/tenants"
)

// service is the API on a database of its own.
type service struct {
	t       testing.TB
	url     string
	store   *store.Store
	headers []string // of every request
}

// in returns s for a subtest.
func (s *service) in(t testing.TB) *service {
	sub := *s
	sub.t = t
	return &sub
}

func serve(t testing.TB, change ...func(*Config)) *service {
	t.Helper()
	st, err := store.Open(t.Context(),
		store.Options{DatabaseURL: pgtest.DSN(t), DefaultJitter: 10 * time.Second, Master: pgtest.Master(t), Replica: true})
	must(t, err)
	t.Cleanup(st.Close)
	registry := prometheus.NewRegistry()
	config := Config{
		Store: st, Log: slog.New(slog.DiscardHandler), Version: "test", Gatherer: registry, Registerer: registry,
		DefaultJitter: 10 * time.Second, NoAuth: true,
		timeout: 10 * time.Minute, // so that no test depends on the speed of the machine
	}
	for _, c := range change {
		c(&config)
	}
	return (&service{t: t, store: st}).another(config)
}

// another returns another replica on the database of s.
func (s *service) another(config Config) *service {
	s.t.Helper()
	config.Store = s.store
	handler, err := NewHandler(config)
	must(s.t, err)
	server := httptest.NewServer(handler)
	s.t.Cleanup(server.Close)
	sub := *s
	sub.url = server.URL
	return &sub
}

// guarded is serve with authentication.
func guarded(t testing.TB, change ...func(*Config)) *service {
	t.Helper()
	return serve(t, append([]func(*Config){func(c *Config) { c.NoAuth = false }}, change...)...)
}

// tenant creates a tenant and returns its id.
func (s *service) tenant(name string, settings ...tenants.Tenant) int32 {
	s.t.Helper()
	asked := append(settings, tenants.Tenant{Weight: 1})[0]
	asked.Name = name
	made, err := s.store.Tenants.CreateTenant(s.t.Context(), asked)
	must(s.t, err)
	return made.ID
}

// key creates a key of a tenant and returns it.
func (s *service) key(tenant string, role auth.Role) string {
	s.t.Helper()
	id, err := s.store.Tenants.TenantID(s.t.Context(), tenant)
	must(s.t, err)
	key, _, err := s.store.Tenants.CreateKey(s.t.Context(), id, tenants.NewKey{Name: string(role), Role: string(role)})
	must(s.t, err)
	return key
}

// with returns s for a caller who sends a key or token.
func (s *service) with(key string) *service {
	sub := *s
	sub.headers = append(slices.Clip(s.headers), "Authorization: Bearer "+key)
	return &sub
}

// as returns s for a caller with a role in a tenant.
func (s *service) as(tenant string, role auth.Role) *service {
	s.t.Helper()
	return s.with(s.key(tenant, role))
}

// acting returns s for an operator who acts for a tenant.
func (s *service) acting(tenant string) *service {
	sub := *s
	sub.headers = append(slices.Clip(s.headers), auth.HeaderTenant+": "+tenant)
	return &sub
}

// reply is an answer read to its end.
type reply struct {
	t       testing.TB
	request string // as messages name it
	status  int
	header  http.Header
	body    []byte
}

// do sends a request. Headers are "Name: value"; a body without a Content-Type is application/json.
func (s *service) do(method, path, body string, headers ...string) *reply {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, strings.NewReader(body))
	must(s.t, err)
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for _, h := range append(slices.Clip(s.headers), headers...) {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Set(name, value)
		if value == "" {
			r.Header.Del(name)
		}
	}
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	response, err := client.Do(r)
	must(s.t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	must(s.t, err)
	return &reply{s.t, fmt.Sprintf("%s %s %.90s", method, path, body), response.StatusCode, response.Header, text}
}

// want fails the test unless the answer has the status. It also checks that a problem is whole.
func (r *reply) want(status int) *reply {
	r.t.Helper()
	if r.status != status {
		r.t.Fatalf("%s: status %d, want %d: %s", r.request, r.status, status, r.body)
	}
	if status >= 400 {
		if media := r.header.Get("Content-Type"); media != "application/problem+json" {
			r.t.Errorf("an error of type %q", media)
		}
		p := r.problem()
		known, ok := problem.Codes[p.Code]
		if !ok || known.Status != status || p.Status != status || p.Title != known.Title ||
			p.Type != "/docs#"+string(p.Code) || p.Detail == "" {
			r.t.Errorf("not a whole problem: %s", r.body)
		}
	}
	return r
}

func (r *reply) problem() problem.Problem {
	r.t.Helper()
	return into[problem.Problem](r)
}

// code fails the test unless the answer is a problem with the code and its status, and its detail has all texts.
func (r *reply) code(code problem.Code, says ...string) problem.Problem {
	r.t.Helper()
	r.want(problem.Codes[code].Status)
	p := r.problem()
	if p.Code != code {
		r.t.Errorf("%s: code %s, want %s: %s", r.request, p.Code, code, r.body)
	}
	for _, text := range says {
		if !strings.Contains(p.Detail, text) {
			r.t.Errorf("%s: the detail %q does not say %q", r.request, p.Detail, text)
		}
	}
	return p
}

// blames fails the test unless the answer finds fault with exactly these fields, in this order.
func (r *reply) blames(fields ...string) problem.Problem {
	r.t.Helper()
	return r.blamesAs(problem.CodeInvalid, fields...)
}

// blamesAs is blames for a problem with another code.
func (r *reply) blamesAs(code problem.Code, fields ...string) problem.Problem {
	r.t.Helper()
	p := r.code(code)
	if diff := cmp.Diff(fields, locations(p)); diff != "" {
		r.t.Errorf("%s: the fields at fault (-want +got):\n%s", r.request, diff)
	}
	return p
}

// wantMessage fails the test unless the answer finds fault with exactly one field, and its message has all texts.
func (r *reply) wantMessage(field string, says ...string) {
	r.t.Helper()
	p := r.blames(field)
	for _, text := range says {
		if !slices.ContainsFunc(p.Errors, func(e problem.FieldError) bool { return strings.Contains(e.Message, text) }) {
			r.t.Errorf("%s: %v does not say %q", r.request, p.Errors, text)
		}
	}
}

func into[T any](r *reply) T {
	r.t.Helper()
	var v T
	if err := json.Unmarshal(r.body, &v); err != nil {
		r.t.Fatalf("%v: %s", err, r.body)
	}
	return v
}

func (r *reply) fields() map[string]any { r.t.Helper(); return into[map[string]any](r) }

// shows fails the test unless the answer has all texts.
func (r *reply) shows(texts ...string) *reply {
	r.t.Helper()
	for _, text := range texts {
		if !bytes.Contains(r.body, []byte(text)) {
			r.t.Errorf("%s does not show %s: %s", r.request, text, r.body)
		}
	}
	return r
}

// hides fails the test if the answer has one of the texts.
func (r *reply) hides(texts ...string) *reply {
	r.t.Helper()
	for _, text := range texts {
		if bytes.Contains(r.body, []byte(text)) {
			r.t.Errorf("%s shows %s: %s", r.request, text, r.body)
		}
	}
	return r
}

// get returns what is at a path.
func get[T any](s *service, path string) T {
	s.t.Helper()
	return into[T](s.do("GET", path, "").want(200))
}

// items returns the items of a list.
func (s *service) items(path string) []map[string]any {
	s.t.Helper()
	list := get[List[map[string]any]](s, path).Data
	if list == nil {
		s.t.Errorf("GET %s: there is no list", path)
	}
	return list
}

// locations returns the fields at fault, in order.
func locations(p problem.Problem) []string {
	var list []string
	for _, e := range p.Errors {
		list = append(list, e.Location)
	}
	return list
}

// minimal returns the smallest valid job.
func minimal(name string) string {
	return `{"name":"` + name + `","schedule":{"cron":"0 3 * * *"},"target":{"url":"http://example.com/hook"}}`
}

// batch returns the body that writes jobs at once.
func batch(onConflict string, jobs ...string) string {
	return fmt.Sprintf(`{"on_conflict":%q,"jobs":[%s]}`, onConflict, strings.Join(jobs, ","))
}

// jobOf returns a job that has a name, a target and the given fields, such as ,"paused":true.
func jobOf(name, more string) string {
	return `{"name":"` + name + `","target":{"url":"http://example.com/"}` + more + `}`
}

// with returns a job with one more field.
func with(field, job string) string { return "{" + field + "," + job[1:] }

func (s *service) create(body string) map[string]any {
	s.t.Helper()
	return s.do("POST", "/v1/jobs", body).want(201).fields()
}

// exec changes the database directly.
func (s *service) exec(sql string, args ...any) {
	s.t.Helper()
	if _, err := s.store.Pool().Exec(s.t.Context(), sql, args...); err != nil {
		s.t.Fatal(err)
	}
}

// must ends the test if there is an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// until waits for a condition.
func until(t testing.TB, what string, condition func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !condition() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

// lockedBuffer is a log that several goroutines may write.
type lockedBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// dispatch runs a replica that sends what is due, until the test ends. It tells ended every outcome that is written.
func (s *service) dispatch(g *guard.Guard, ended chan<- domain.Outcome) {
	s.t.Helper()
	client := delivery.New(delivery.Config{Guard: g})
	ctx, stop := context.WithCancel(context.WithoutCancel(s.t.Context()))
	done := make(chan error)
	go func() {
		done <- scheduler.Run(ctx, s.store.Replicas, scheduler.Config{
			Queues: map[string]int{"default": 20}, DrainTimeout: time.Second, Client: client,
			Log: slog.New(slog.DiscardHandler), Metrics: scheduler.NewMetrics(prometheus.NewRegistry(), time.Second),
			Credentials: s.store.Secrets, Chores: s.store.Chores(), Notices: s.store.Notices,
			Finished: func(outcomes []domain.Outcome) {
				for _, o := range outcomes {
					ended <- o
				}
			},
		})
	}()
	s.t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			s.t.Error(err)
		}
		client.Close()
	})
}
