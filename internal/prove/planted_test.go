package prove

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"punctual/internal/pgtest"
	"punctual/internal/process"
)

// planted holds a secret for every place that can hold one. Each is recognisable wherever it shows up.
type planted map[string]string

// plant makes a secret of a kind.
func (p planted) plant(kind string) string {
	p[kind] = "planted" + kind + strings.ToLower(rand.Text())
	return p[kind]
}

// formsOf returns all forms in which a secret may be written.
func formsOf(secret string) []string {
	return []string{
		secret, hex.EncodeToString([]byte(secret)), base64.RawStdEncoding.EncodeToString([]byte(secret)),
		base64.RawURLEncoding.EncodeToString([]byte(secret)), url.QueryEscape(secret),
	}
}

// surfaces holds everything that can be read without the master key, by its name. New surfaces must be added here, so
// that they are searched too.
type surfaces struct {
	mu   sync.Mutex
	text map[string]string
}

func (s *surfaces) add(name, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.text == nil {
		s.text = map[string]string{}
	}
	s.text[name] += text + "\n"
}

// check reports every secret that is readable somewhere. It also reports every surface without its canary, because a
// surface that was not read would show no secret either.
func (s *surfaces) check(t *testing.T, p planted, canaries map[string]string) {
	t.Helper()
	for name, text := range s.text {
		for kind, secret := range p {
			for _, form := range formsOf(secret) {
				if at := strings.Index(text, form); at >= 0 {
					t.Errorf("%s shows the %s: …%s…", name, kind, text[max(0, at-100):min(len(text), at+len(form)+40)])
					break
				}
			}
		}
	}
	for name, canary := range canaries {
		if !strings.Contains(s.text[name], canary) {
			t.Errorf("%s does not show %q, which is no secret: was it looked at?", name, canary)
		}
	}
}

// gossip is a target that repeats the whole request in its answer, as a failure: plain, as JSON and URL-encoded.
func gossip(t *testing.T, w http.ResponseWriter, r *http.Request, heard func(string)) {
	t.Helper()
	body, _ := io.ReadAll(r.Body)
	all := ""
	for name, values := range r.Header {
		all += name + ": " + strings.Join(values, ",") + "\n"
		// A password in a header is encoded in base64, and this target decodes it.
		if pair, ok := strings.CutPrefix(values[0], "Basic "); ok {
			plain, _ := base64.StdEncoding.DecodeString(pair)
			all += string(plain) + "\n"
		}
	}
	heard(all + string(body))
	quoted, _ := json.Marshal(all)
	status := http.StatusInternalServerError
	switch r.URL.Path {
	case "/ok":
		status = http.StatusOK
	case "/refuse":
		status = http.StatusUnauthorized
	case "/hang":
		<-r.Context().Done()
		return
	}
	w.WriteHeader(status)
	// The headers with secrets come last, except for the quoted form. So the stored part of the body ends in the middle of
	// them.
	fmt.Fprintf(w, "%s\n%s\n%s\n%s", r.Header.Get("Authorization"), r.Header.Get("X-Secret"),
		url.QueryEscape(r.Header.Get("Authorization")), quoted)
}

// clientCertificate makes a client certificate, and returns it together with its key as PEM.
func clientCertificate(t *testing.T) (text, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	must(t, err)
	raw, err := x509.MarshalPKCS8PrivateKey(private)
	must(t, err)
	block := string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw}))
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})) + block, strings.Split(block, "\n")[1]
}

// dump returns every row of every table, as text.
func dump(t *testing.T, conn *pgx.Conn) string {
	t.Helper()
	var all strings.Builder
	for _, table := range queryAll[string](t, conn, `
		SELECT c.relname
		FROM pg_class c
		WHERE c.relnamespace = 'punctual'::regnamespace AND c.relkind = 'r'`) {
		all.WriteString(query[string](t, conn, `
			SELECT coalesce(string_agg(x::text, E'\n'), '')
			FROM punctual.`+pgx.Identifier{table}.Sanitize()+` x`) + "\n")
		// Postgres shows bytea columns as hexadecimal, so texts in them are dumped as texts too.
		all.WriteString(query[string](t, conn, `
			SELECT coalesce(string_agg(to_jsonb(x)::text, E'\n'), '')
			FROM punctual.`+pgx.Identifier{table}.Sanitize()+` x`) + "\n")
	}
	return all.String()
}

// The test plants a secret in every possible place, does everything that may reveal one, and then reads everything
// readable. No secret may be in it.
func TestPlantedSecretsAreSeenNowhere(t *testing.T) {
	t.Parallel()
	p, seen := planted{}, &surfaces{}
	var mu sync.Mutex
	arrived := ""
	heard := func(text string) {
		mu.Lock()
		defer mu.Unlock()
		arrived += text
	}
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { gossip(t, w, r, heard) }))
	t.Cleanup(target.Close)
	secure := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		heard(fmt.Sprintf("a client certificate: %d\n", len(r.TLS.PeerCertificates)))
		gossip(t, w, r, heard)
	}))
	secure.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert}
	secure.StartTLS()
	t.Cleanup(secure.Close)
	token := p.plant("Token")
	login := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/refuse" {
			gossip(t, w, r, heard)
			return
		}
		user, password, _ := r.BasicAuth()
		heard(user + " " + password)
		_ = json.NewEncoder(w).Encode(map[string]any{"access_token": token, "token_type": "Bearer", "expires_in": 3600})
	}))
	t.Cleanup(login.Close)

	dsn := withPassword(t, pgtest.DSN(t), p.plant("DatabasePassword"))
	p["MasterKey"] = process.MasterKey
	r := serve(t, dsn, "--log-level=debug")
	call := func(method, path, body string, headers ...string) string {
		t.Helper()
		status, answer := ask(t, method, r.API.URL+path, body, append(headers, "Content-Type: application/json")...)
		return fmt.Sprintf("%s %s: %s %s", method, path, status, answer)
	}
	api := func(method, path, body string, headers ...string) string {
		t.Helper()
		answer := call(method, path, body, headers...)
		seen.add("the API", answer)
		return answer
	}
	must := func(answer string) string {
		t.Helper()
		if !strings.Contains(answer, ": 2") {
			t.Fatal(answer)
		}
		return answer
	}
	quote := func(s string) string { text, _ := json.Marshal(s); return string(text) }

	// The signing secret is shown once, when it is created.
	made := must(call("POST", "/v1/signing-secrets", ""))
	p["SigningSecret"] = made[strings.Index(made, "whsec_")+len("whsec_") : strings.Index(made, "whsec_")+len("whsec_")+43]
	// So is an API key. Its prefix is not secret.
	made = must(call("POST", "/v1/api-keys", `{"name":"planted","role":"admin"}`))
	apiKey := regexp.MustCompile(`punctual_[0-9a-f]{16}_([A-Za-z0-9_-]+)`).FindStringSubmatch(made)
	p["ApiKey"] = apiKey[1]
	must(api("GET", "/v1/tenant", "", "Authorization: Bearer "+apiKey[0]))
	api("GET", "/v1/tenant", "", "Authorization: Bearer "+apiKey[0]+"x")
	api("GET", "/v1/tenant", "", "Authorization: Bearer "+apiKey[1])
	pemText, key := clientCertificate(t)
	p["ClientKey"] = key
	ca := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: secure.Certificate().Raw}))
	for name, value := range map[string]string{
		"bearer":      p.plant("NamedSecret"),
		"client":      p.plant("ClientSecret"),
		"certificate": pemText,
		"ca":          ca,
		"replaced":    p.plant("FirstValue"),
	} {
		must(api("PUT", "/v1/secrets/"+name, `{"value":`+quote(value)+`,"description":"canary of a description"}`))
	}
	must(api("PUT", "/v1/secrets/replaced", `{"value":"`+p.plant("SecondValue")+`"}`))
	oauth := func(path string) string {
		return fmt.Sprintf(`{"type":"oauth2","secret":"client","client_id":"punctual","token_url":"%s%s","scopes":["a"]}`,
			login.URL, path)
	}
	auths := map[string]string{
		"bearer":   `{"type":"bearer","secret":"bearer"}`,
		"inline":   `{"type":"bearer","value":"` + p.plant("InlineValue") + `"}`,
		"basic":    `{"type":"basic","username":"punctual","value":"` + p.plant("Password") + `"}`,
		"replaced": `{"type":"bearer","secret":"replaced"}`,
		"header":   `{"type":"header","header":"X-Other","value":"` + p.plant("HeaderValue") + `"}`,
		"oauth2":   oauth("/token"), "oauth2-refused": oauth("/refuse"),
	}
	headers := `{"X-Secret":"` + p.plant("SecretHeader") + `"}`
	p["Credential"] = base64.StdEncoding.EncodeToString([]byte("punctual:" + p["Password"]))
	var jobs []string
	for name, auth := range auths {
		for _, path := range []string{"ok", "fail", "refuse", "hang"} {
			job := name + "-" + path
			jobs = append(jobs, job)
			definition := fmt.Sprintf(`{"name":%q,"description":"canary of a job","timeout":%q,`+
				`"retry":{"max_attempts":2,"initial_backoff":"1ms"},`+
				`"target":{"url":"%s/%s","auth":%s,"secret_headers":%s}}`,
				job, map[bool]string{true: "2s", false: "30s"}[path == "hang"], target.URL, path, auth, headers)
			must(api("POST", "/v1/jobs", definition, "Idempotency-Key: "+job))
			must(api("POST", "/v1/jobs", definition, "Idempotency-Key: "+job))
			must(api("PUT", "/v1/jobs/"+job, definition))
			api("POST", "/v1/jobs", strings.Replace(definition, `"retry"`, `"retyr"`, 1))
			api("POST", "/v1/jobs", definition[:len(definition)-3])
			api("PATCH", "/v1/jobs/"+job, `{"target":{"auth":{"value":["`+p["InlineValue"]+`"]}}}`)
		}
	}
	jobs = append(jobs, "certified")
	must(api("POST", "/v1/jobs", fmt.Sprintf(`{"name":"certified","retry":{"max_attempts":1},`+
		`"target":{"url":"%s/fail","tls":{"client_certificate":"certificate","ca":"ca"}}}`, secure.URL)))
	for _, bad := range []string{
		`{"value":"` + p["NamedSecret"], `{"value":["` + p["NamedSecret"] + `"]}`,
		`{"value":{"a":"` + p["NamedSecret"] + `"}}`, `{"values":"` + p["NamedSecret"] + `"}`,
	} {
		api("PUT", "/v1/secrets/bad", bad)
	}
	for _, job := range jobs {
		must(api("POST", "/v1/jobs/"+job+"/trigger", ""))
	}
	conn := connect(t, dsn)
	await(t, "all runs to end", func() bool {
		return query[bool](t, conn, `SELECT NOT EXISTS (SELECT FROM punctual.runs WHERE finished_at IS NULL)`)
	})
	for _, path := range []string{
		"/v1/jobs?limit=500", "/v1/runs?limit=500", "/v1/dead-letters?limit=500", "/v1/secrets?limit=500",
		"/v1/dead-letters/groups",
		"/v1/signing-secrets", "/v1/operations", "/v1/audit-log?limit=500",
		"/v1/api-keys", "/v1/tenants", "/v1/tenant",
		"/", "/openapi.json", "/docs", "/readyz", "/healthz",
	} {
		api("GET", path, "")
	}
	for _, job := range jobs {
		api("GET", "/v1/jobs/"+job, "")
		api("GET", "/v1/jobs/"+job+"/explain?at="+time.Now().UTC().Format(time.RFC3339), "")
		api("GET", "/v1/jobs/"+job+"/runs", "")
	}
	for _, run := range queryAll[string](t, conn, `SELECT id::text FROM punctual.runs`) {
		api("GET", "/v1/runs/"+run, "")
	}
	seen.add("the metrics", call("GET", "/metrics", ""))
	seen.add("the database", dump(t, conn))
	seen.add("the rotation", punctual(t, dsn, "secrets", "rotate", "--log-level=debug"))
	seen.add("the database", dump(t, conn))
	if arguments, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", r.PID())); err == nil {
		seen.add("the list of processes", string(arguments))
	}
	stop(t, r)
	seen.add("the log", r.Output())
	seen.check(t, p, map[string]string{
		"the API":      "canary of a job",
		"the database": "canary of a job",
		"the log":      `"level":"DEBUG"`,
		"the metrics":  "punctual_",
		"the rotation": "secrets rotated",
	})
	// The secrets were sent. Otherwise the search would prove nothing.
	for _, kind := range []string{
		"NamedSecret", "InlineValue", "Password", "HeaderValue", "SecretHeader", "Token", "ClientSecret", "SecondValue",
	} {
		if !strings.Contains(arrived, p[kind]) {
			t.Errorf("the %s never reached a target", kind)
		}
	}
	if !strings.Contains(arrived, "a client certificate: 1") {
		t.Error("no client certificate was presented")
	}
	if reasons := query[string](t, conn, `
		SELECT string_agg(DISTINCT reason, ' ' ORDER BY reason)
		FROM punctual.dead_letters`); reasons != "auth http_4xx http_5xx timeout" {
		t.Errorf("the runs died of %s", reasons)
	}
	if kept := query[int](t, conn, `SELECT count(*) FROM punctual.attempts WHERE response LIKE '%***%'`); kept == 0 {
		t.Error("no response that echoes a secret was kept, masked")
	}
}

// withPassword returns dsn with another password. Over a Unix socket Postgres does not ask for one.
func withPassword(t *testing.T, dsn, password string) string {
	t.Helper()
	u, err := url.Parse(dsn)
	must(t, err)
	u.User = url.UserPassword(u.User.Username(), password)
	return u.String()
}
