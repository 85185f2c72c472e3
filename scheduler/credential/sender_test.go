package credential

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"punctual/scheduler/delivery/wire"
	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
)

// sender returns a sender, and the secrets that it reads.
func sender(t *testing.T, secrets map[string]Secret) (*Sender, *fakeSource) {
	t.Helper()
	source := &fakeSource{secrets: secrets}
	s := NewSender(source, client(t))
	t.Cleanup(s.Forget)
	return s, source
}

// with returns an attempt of a job whose target has the given part, in JSON, beside its URL and body.
func with(t *testing.T, url, part string) domain.Assignment {
	t.Helper()
	return domain.Assignment{
		RunID:   uuid.New(),
		Job:     compiled(t, `{"name":"job","timeout":"20s","target":{"url":"`+url+`","body":{"n":1},`+part+`}}`),
		Trigger: domain.TriggerManual, Attempt: 1,
	}
}

func (s *Sender) try(t *testing.T, a domain.Assignment) wire.Result {
	t.Helper()
	result, err := s.Send(t.Context(), a, a.Request(domain.Origin{}), time.Now())
	must(t, err)
	return result
}

// gotNothing checks that no request has reached a target.
func gotNothing(t *testing.T, requests <-chan seen) {
	t.Helper()
	select {
	case r := <-requests:
		t.Errorf("the target got %+v", r)
	default:
	}
}

// authorizedBy checks what the next request to a target is authorized by.
func authorizedBy(t *testing.T, requests <-chan seen, want string) {
	t.Helper()
	if got := (<-requests).Header.Get("Authorization"); got != want {
		t.Errorf("sent %q, want %q", got, want)
	}
}

func secretOf(value string) Secret {
	return Secret{Value: value, Revision: Revision{ID: uuid.New(), Version: 1}}
}

func TestARequestProvesWhoSendsIt(t *testing.T) {
	t.Parallel()
	const id = "019a3c5e-7d10-7c3e-9a44-0c6d5f0e8b11"
	s, _ := sender(t, map[string]Secret{"token": secretOf("s3cr3t"), id: secretOf("inline")})
	for _, c := range []struct{ part, header, want string }{
		{`"auth":{"type":"none"}`, "Authorization", ""},
		{`"auth":{"type":"bearer","secret":"token"}`, "Authorization", "Bearer s3cr3t"},
		{`"auth":{"type":"bearer","value":{"sealed":"` + id + `"}}`, "Authorization", "Bearer inline"},
		{`"auth":{"type":"basic","username":"ada","secret":"token"}`, "Authorization", "Basic YWRhOnMzY3IzdA=="},
		{`"auth":{"type":"header","header":"x-api-key","secret":"token"}`, "X-Api-Key", "s3cr3t"},
		{`"secret_headers":{"x-a":{"sealed":"` + id + `"}}`, "X-A", "inline"},
	} {
		url, requests := target(t, http.StatusOK)
		if result := s.try(t, with(t, url, c.part)); !result.OK() {
			t.Errorf("%s: %+v", c.part, result)
			continue
		}
		got := <-requests
		if got.Header.Get(c.header) != c.want {
			t.Errorf("%s: %s is %q, want %q", c.part, c.header, got.Header.Get(c.header), c.want)
		}
		webhook, _ := standardwebhooks.NewWebhook(fakeSigningSecret)
		if err := webhook.Verify([]byte(got.Body), got.Header); err != nil {
			t.Errorf("%s: %v", c.part, err)
		}
	}
}

// The value is within what is signed, and is taken out of what the target repeats.
func TestSecretsAreFilledIntoBodies(t *testing.T) {
	t.Parallel()
	const value = `s3cr3t"<x>/`
	requests := make(chan seen, 10)
	echo := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		requests <- seen{Body: string(body), Header: r.Header}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"result":{"got":%s},"again":%q}`, body, value)
	}))
	t.Cleanup(echo.Close)
	s, _ := sender(t, map[string]Secret{"token": secretOf(value), "binary": secretOf("\xff")})
	a := with(t, echo.URL, `"method":"PUT"`)
	a.Job = compiled(t, `{"name":"job","keep_response":4096,"target":{"url":"`+echo.URL+`",
		"body":{"job":"{{job}}","auth":{"token":{"$secret":"token"}}}}}`)
	result := s.try(t, a)
	got := <-requests
	if got.Body != `{"job":"job","auth":{"token":"s3cr3t\"<x>/"}}` {
		t.Errorf("sent %s", got.Body)
	}
	webhook, _ := standardwebhooks.NewWebhook(fakeSigningSecret)
	must(t, webhook.Verify([]byte(got.Body), got.Header))
	if kept := string(result.Body) + string(result.JSON); strings.Contains(kept, "s3cr3t") ||
		!strings.Contains(kept, `"token":"***"`) || !strings.Contains(kept, `"again":"***"`) {
		t.Errorf("kept %s", kept)
	}
	a.Body = []byte(`{"$secret":"token"}`)
	s.try(t, a)
	if got := (<-requests).Body; got != string(a.Body) {
		t.Errorf("of the body of a trigger it sent %s", got)
	}
	for name, want := range map[string]string{"missing": `there is no secret "missing"`, "binary": "not valid UTF-8"} {
		a.Body, a.Job = nil, compiled(t, `{"name":"job","target":{"url":"`+echo.URL+`","body":[{"$secret":"`+name+`"}]}}`)
		if result := s.try(t, a); result.Reason != "auth" || result.Sent || !strings.Contains(result.Error, want) {
			t.Errorf("%s: %+v", name, result)
		}
	}
	gotNothing(t, requests)
}

func TestWithoutItsSecretNothingIsSent(t *testing.T) {
	t.Parallel()
	url, requests := target(t, http.StatusOK)
	refusing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprintf(w, `{"error":"invalid_client","error_description":"%s %s"}`, r.Header.Get("Authorization"), body)
	}))
	t.Cleanup(refusing.Close)
	s, _ := sender(t, map[string]Secret{"lines": secretOf("two\nlines"), "token": secretOf("s3cr3t")})
	for _, c := range []struct{ part, want string }{
		{`"auth":{"type":"bearer","secret":"missing"}`, `there is no secret "missing"`},
		{`"auth":{"type":"bearer","secret":"lines"}`, "one line"},
		{`"secret_headers":{"x-a":{"sealed":"019a3c5e-7d10-7c3e-9a44-0c6d5f0e8b11"}}`, "there is no secret"},
		{`"tls":{"client_certificate":"token"}`, `secret "token" does not hold a certificate chain`},
		{`"tls":{"ca":"token"}`, `secret "token" holds no certificate`},
		{`"auth":{"type":"oauth2","secret":"token","client_id":"c","token_url":"` + refusing.URL + `"}`, "it answered 400"},
		{
			`"auth":{"type":"oauth2","secret":"token","client_id":"c","token_url":"http://127.0.0.1:1/"}`,
			"no token from 127.0.0.1:1: connection refused",
		},
		{
			`"auth":{"type":"oidc","secret":"token","client_id":"c","issuer":"` + refusing.URL + `"}`,
			"openid-configuration answered 400",
		},
	} {
		to := url
		if strings.Contains(c.part, "tls") {
			to = strings.Replace(url, "http:", "https:", 1)
		}
		a := with(t, to, c.part)
		result := s.try(t, a)
		if result.Reason != "auth" || result.Sent || !strings.Contains(result.Error, c.want) ||
			strings.Contains(result.Error, "s3cr3t") || strings.Contains(result.Error, "two") {
			t.Errorf("%s: %+v", c.part, result)
		}
		o := domain.Judge(a, result, time.Now(), time.Now())
		if o.Verdict != domain.RetryRun || o.Reason != domain.ReasonAuth {
			t.Errorf("%s: verdict %v, reason %s", c.part, o.Verdict, o.Reason)
		}
	}
	gotNothing(t, requests)
}

// The time that credentials take is the attempt's, but people know the timeout that they have set.
func TestTimeoutsAreToldAsTheyWereSet(t *testing.T) {
	t.Parallel()
	over := make(chan struct{})
	hanging := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-over:
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(hanging.Close)
	t.Cleanup(func() { close(over) })
	s, _ := sender(t, map[string]Secret{"token": secretOf("s3cr3t")})
	host := strings.TrimPrefix(hanging.URL, "http://")
	token := `"auth":{"secret":"token","client_id":"c",`
	for part, want := range map[string]string{
		`"method":"POST"`: "no answer within 2s",
		token + `"type":"oauth2","token_url":"` + hanging.URL + `"}`: "no token from " + host + ": no answer within 2s",
		token + `"type":"oidc","issuer":"` + hanging.URL + `"}`:      "no token from " + host + ": no answer within 2s",
	} {
		t.Run(part, func(t *testing.T) {
			t.Parallel()
			a := with(t, hanging.URL, part)
			r := a.Request(domain.Origin{})
			r.Timeout = 2 * time.Second // enough to connect on a machine that is busy with other things
			if result, err := s.Send(t.Context(), a, r, time.Now()); err != nil || result.Error != want {
				t.Errorf("%+v, %v; want %q", result, err, want)
			}
		})
	}
}

// While the database is away, the secrets may well be valid. So the attempt waits and does not count as a failure.
func TestAttemptsWaitWhileSecretsCannotBeRead(t *testing.T) {
	t.Parallel()
	url, _ := target(t, http.StatusOK)
	s, source := sender(t, nil)
	source.signing = func() ([]SigningKey, error) { return nil, errAway }
	a := with(t, url, `"method":"POST"`)
	if result, err := s.Send(t.Context(), a, a.Request(domain.Origin{}), time.Now()); err == nil {
		t.Errorf("%+v", result)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	result, err := s.Send(ctx, a, a.Request(domain.Origin{}), time.Now())
	if err != nil || !result.Cancelled || result.Sent {
		t.Errorf("cancelled: %+v, %v", result, err)
	}
}

func TestAnAttemptThatExpiresWhileItsSecretsAreReadIsNotSent(t *testing.T) {
	t.Parallel()
	s, _ := sender(t, map[string]Secret{"token": secretOf("s3cr3t")})
	url, requests := target(t, http.StatusOK)
	a := with(t, url, `"auth":{"type":"bearer","secret":"token"}},"expires_after":"1m","retry":{"max_attempts":1`)
	a.Trigger, a.DueAt = domain.TriggerSchedule, time.Now()
	last := a.DueAt.Add(time.Minute) // the last instant at which it may start
	if result, err := s.Send(t.Context(), a, a.Request(domain.Origin{}), last); !errors.Is(err, ErrExpired) {
		t.Errorf("result %+v, error %v", result, err)
	}
	gotNothing(t, requests)
	result, err := s.Send(t.Context(), a, a.Request(domain.Origin{}), last.Add(-30*time.Second))
	if err != nil || len(requests) != 1 {
		t.Errorf("in time: result %+v, error %v, sent %d times", result, err, len(requests))
	}
}

func TestOnlyLiveKeysSign(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 0)
	live, _ := NewSigningKey(fakeSigningSecret, time.Time{})
	ending, _ := NewSigningKey(fakeSigningSecret, now.Add(time.Second))
	ended, _ := NewSigningKey(fakeSigningSecret, now)
	headers, err := sign([]SigningKey{ended, live, ending}, "id", now, nil)
	if err != nil || headers[0].Value != "1800000000" || len(strings.Fields(headers[1].Value)) != 2 {
		t.Errorf("%v, %v", headers, err)
	}
	var refused *AuthError
	if _, err := sign([]SigningKey{ended}, "id", now, nil); !errors.As(err, &refused) {
		t.Errorf("without a live key: %v", err)
	}
	for _, bad := range []string{"", "whsec_", "whsec_c2hvcnQ=", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwbdbMUDWDBH0="} {
		if _, err := NewSigningKey(bad, time.Time{}); err == nil {
			t.Errorf("%q is taken for a signing secret", bad)
		}
	}
}

// issuer is a token endpoint that records its requests.
type issuer struct {
	*httptest.Server
	fetches atomic.Int32
	mu      sync.Mutex
	asked   []string
	inBody  bool // it accepts the client's secret only in the body
}

func newIssuer(t *testing.T) *issuer {
	t.Helper()
	i := &issuer{}
	i.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/.well-known/openid-configuration") {
			_ = json.NewEncoder(w).Encode(map[string]any{"issuer": i.URL, "token_endpoint": i.URL + "/token"})
			return
		}
		_ = r.ParseForm()
		user, password, _ := r.BasicAuth()
		i.mu.Lock()
		i.asked = append(i.asked, fmt.Sprintf("%s:%s %s", user, password, r.PostForm.Encode()))
		i.mu.Unlock()
		if i.inBody && r.PostForm.Get("client_secret") == "" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		_ = json.NewEncoder(w).Encode(map[string]any{
			"access_token": fmt.Sprintf("token-%d", i.fetches.Add(1)), "token_type": "bearer", "expires_in": 3600,
		})
	}))
	t.Cleanup(i.Close)
	return i
}

func TestATokenIsFetchedOnceAndKept(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	url, requests := target(t, http.StatusOK)
	s, source := sender(t, map[string]Secret{"client": secretOf("s3cr3t&")})
	part := `"auth":{"type":"oauth2","secret":"client","client_id":"punct ual","token_url":"` + i.URL +
		`/token","scopes":["b","a"],"audience":"billing"}`
	var all sync.WaitGroup
	for range 20 {
		a := with(t, url, part)
		all.Go(func() {
			if result, err := s.Send(t.Context(), a, a.Request(domain.Origin{}), time.Now()); err != nil || !result.OK() {
				t.Errorf("%+v, %v", result, err)
			}
		})
	}
	all.Wait()
	for range 20 {
		authorizedBy(t, requests, "Bearer token-1")
	}
	if want := "punct+ual:s3cr3t%26 audience=billing&grant_type=client_credentials&scope=a+b"; i.fetches.Load() != 1 ||
		i.asked[0] != want {
		t.Errorf("%d fetches: %q, want %q", i.fetches.Load(), i.asked, want)
	}
	// A new value of the secret needs a new token.
	source.secrets = map[string]Secret{"client": secretOf("other")}
	s.try(t, with(t, url, part))
	authorizedBy(t, requests, "Bearer token-2")
}

func TestATokenThatIsRefusedIsDropped(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	url, requests := target(t, http.StatusUnauthorized)
	s, _ := sender(t, map[string]Secret{"client": secretOf("s3cr3t")})
	part := `"auth":{"type":"oidc","secret":"client","client_id":"c","issuer":"` + i.URL + `"}`
	for n := 1; n <= 2; n++ {
		if result := s.try(t, with(t, url, part)); result.Status != http.StatusUnauthorized {
			t.Errorf("%+v", result)
		}
		authorizedBy(t, requests, fmt.Sprintf("Bearer token-%d", n))
	}
}

func TestAClientMayHaveToSayItInTheBody(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	i.inBody = true
	url, requests := target(t, http.StatusOK)
	s, _ := sender(t, map[string]Secret{"client": secretOf("s3cr3t")})
	s.try(t, with(t, url, `"auth":{"type":"oauth2","secret":"client","client_id":"c","token_url":"`+i.URL+`/token"}`))
	authorizedBy(t, requests, "Bearer token-1")
	if len(i.asked) != 2 || i.asked[1] != ": client_id=c&client_secret=s3cr3t&grant_type=client_credentials" {
		t.Errorf("the issuer was asked %q", i.asked)
	}
}

func TestHowLongTokensAreKept(t *testing.T) {
	t.Parallel()
	key := &token{}
	for _, c := range []struct {
		answer string
		want   time.Duration
		ok     bool
	}{
		{`{"access_token":"a","expires_in":600}`, 10 * time.Minute, true},
		{`{"access_token":"a","token_type":"Bearer","expires_in":"600"}`, 10 * time.Minute, true},
		{`{"access_token":"a"}`, tokenLifetime, true},
		{`{"access_token":"a","expires_in":1e99}`, 24 * time.Hour, true},
		{`{"access_token":"a","expires_in":-5}`, tokenLifetime, true},
		{`{"access_token":"a","token_type":"mac"}`, 0, false},
		{`{"access_token":"a\nb"}`, 0, false},
		{`{"error":"s3cr3t"}`, 0, false},
		{`s3cr3t`, 0, false},
	} {
		_, got, err := key.read([]byte(c.answer))
		if got != c.want || (err == nil) != c.ok || err != nil && strings.Contains(err.Error(), "s3cr3t") {
			t.Errorf("%s: %s, %v", c.answer, got, err)
		}
	}
}

func TestClientsWithCertificatesAreKeptByRevision(t *testing.T) {
	t.Parallel()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	server.StartTLS()
	t.Cleanup(server.Close)
	ca := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	s, source := sender(t, map[string]Secret{"ca": secretOf(ca)})
	for range 3 {
		if result := s.try(t, with(t, server.URL, `"tls":{"ca":"ca"}`)); !result.OK() {
			t.Fatalf("%+v", result)
		}
	}
	if n := s.tls.Len(); n != 1 {
		t.Errorf("%d clients for one revision", n)
	}
	source.secrets = map[string]Secret{"ca": secretOf(ca)}
	s.try(t, with(t, server.URL, `"tls":{"ca":"ca"}`))
	if n := s.tls.Len(); n != 2 {
		t.Errorf("%d clients for two revisions", n)
	}
	if result := s.try(t, with(t, server.URL, `"method":"GET"`)); result.Reason != wire.ReasonTLS {
		t.Errorf("without the authority: %+v", result)
	}
}

func TestSecretsOfDefinitionsAreNotWritten(t *testing.T) {
	t.Parallel()
	h := jobspec.HiddenOf("s3cr3t")
	text, _ := json.Marshal(map[string]any{"a": h, "b": &h})
	for _, got := range []string{
		string(text), fmt.Sprint(h), fmt.Sprintf("%v %+v %#v %s %q", h, h, h, h, h),
		fmt.Sprintf("%+v %#v", secretOf("s3cr3t"), secretOf("s3cr3t")), h.LogValue().String(),
	} {
		if strings.Contains(got, "s3cr3t") {
			t.Errorf("it is written: %s", got)
		}
	}
	id := uuid.New()
	stored, _ := json.Marshal(jobspec.SealedAs(id))
	var back jobspec.Hidden
	if err := json.Unmarshal(stored, &back); err != nil || back != jobspec.SealedAs(id) {
		t.Errorf("%s comes back as %v: %v", stored, back, err)
	}
	if err := json.Unmarshal([]byte(`{"sealed":"s3cr3t"}`), &back); err == nil || strings.Contains(err.Error(), "s3cr3t") {
		t.Errorf("what is neither: %v", err)
	}
}

func BenchmarkSign(b *testing.B) {
	key, err := NewSigningKey(fakeSigningSecret, time.Time{})
	must(b, err)
	for _, size := range []int{0, 1 << 10, 256 << 10} {
		body, keys := make([]byte, size), []SigningKey{key}
		b.Run(fmt.Sprintf("%dKiB", size>>10), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := sign(keys, "01a128e7-2780-8804-a169-8fb691c134cb", time.Unix(1_800_000_000, 0), body); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
