//prove:tenants

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
type surfaces map[string]string

func (s surfaces) add(name, text string) { s[name] += text + "\n" }

// check reports every secret that is readable somewhere. It also reports every surface without its canary, because a
// surface that was not read would show no secret either.
func (s surfaces) check(t *testing.T, p planted, canaries map[string]string) {
	t.Helper()
	for name, text := range s {
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
		if !strings.Contains(s[name], canary) {
			t.Errorf("%s does not show %q, which is no secret: was it looked at?", name, canary)
		}
	}
}

// gossips are targets that repeat what they hear.
type gossips struct {
	plain  *httptest.Server // answers by the path
	secure *httptest.Server // does too, and demands a client certificate
	login  *httptest.Server // gives tokens

	mu    sync.Mutex
	heard string
}

func newGossips(t *testing.T, token string) *gossips {
	t.Helper()
	g := &gossips{}
	g.plain = httptest.NewServer(http.HandlerFunc(g.gossip))
	t.Cleanup(g.plain.Close)
	g.secure = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g.hear(fmt.Sprintf("a client certificate: %d\n", len(r.TLS.PeerCertificates)))
		g.gossip(w, r)
	}))
	g.secure.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert}
	g.secure.StartTLS()
	t.Cleanup(g.secure.Close)
	g.login = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/refuse" {
			g.gossip(w, r)
			return
		}
		user, password, _ := r.BasicAuth()
		g.hear(user + " " + password)
		_ = json.NewEncoder(w).Encode(map[string]any{"access_token": token, "token_type": "Bearer", "expires_in": 3600})
	}))
	t.Cleanup(g.login.Close)
	return g
}

func (g *gossips) hear(text string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.heard += text
}

// gossip repeats the whole request in its answer, as a failure: plain, as JSON and URL-encoded.
func (g *gossips) gossip(w http.ResponseWriter, r *http.Request) {
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
	g.hear(all + string(body))
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
	case "/echo":
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"result":%s}`, body)
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

// planter plants secrets by the API, and keeps all answers.
type planter struct {
	planted
	t    *testing.T
	url  string // of the API
	seen surfaces
}

func (p planter) call(method, path, body string, headers ...string) string {
	p.t.Helper()
	status, answer := ask(p.t, method, p.url+path, body, append(headers, "Content-Type: application/json")...)
	return fmt.Sprintf("%s %s: %s %s", method, path, status, answer)
}

// api is call with an answer that must show no secret.
func (p planter) api(method, path, body string, headers ...string) string {
	p.t.Helper()
	answer := p.call(method, path, body, headers...)
	p.seen.add("the API", answer)
	return answer
}

// must is api for calls that must succeed.
func (p planter) must(method, path, body string, headers ...string) {
	p.t.Helper()
	if answer := p.api(method, path, body, headers...); !strings.Contains(answer, ": 2") {
		p.t.Fatal(answer)
	}
}

// keys makes what is shown once, when it is created: a signing secret and an API key, whose prefix is not secret.
func (p planter) keys() {
	p.t.Helper()
	find := func(form, answer string) []string {
		p.t.Helper()
		found := regexp.MustCompile(form).FindStringSubmatch(answer)
		if found == nil {
			p.t.Fatal(answer)
		}
		return found
	}
	p.planted["SigningSecret"] = find(`whsec_(.{43})`, p.call("POST", "/v1/signing-secrets", ""))[1]
	key := find(`punctual_[0-9a-f]{16}_([A-Za-z0-9_-]+)`, p.call("POST", "/v1/api-keys", `{"name":"planted","role":"admin"}`))
	p.planted["ApiKey"] = key[1]
	p.must("GET", "/v1/tenant", "", "Authorization: Bearer "+key[0])
	p.api("GET", "/v1/tenant", "", "Authorization: Bearer "+key[0]+"x")
	p.api("GET", "/v1/tenant", "", "Authorization: Bearer "+key[1])
}

// secrets makes named secrets, and tries to make some that are refused.
func (p planter) secrets(ca *x509.Certificate) {
	p.t.Helper()
	certificate, key := clientCertificate(p.t)
	p.planted["ClientKey"] = key
	for name, value := range map[string]string{
		"bearer":      p.plant("NamedSecret"),
		"client":      p.plant("ClientSecret"),
		"certificate": certificate,
		"ca":          string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca.Raw})),
		"replaced":    p.plant("FirstValue"),
		"in-body":     p.plant("InBody"),
	} {
		text, _ := json.Marshal(value)
		p.must("PUT", "/v1/secrets/"+name, `{"value":`+string(text)+`,"description":"canary of a description"}`)
	}
	p.must("PUT", "/v1/secrets/replaced", `{"value":"`+p.plant("SecondValue")+`"}`)
	named := p.planted["NamedSecret"]
	for _, bad := range []string{
		`{"value":"` + named, `{"value":["` + named + `"]}`, `{"value":{"a":"` + named + `"}}`, `{"values":"` + named + `"}`,
	} {
		p.api("PUT", "/v1/secrets/bad", bad)
	}
}

// jobs makes jobs with every kind of authentication for every kind of answer, each in several ways of which some are
// refused. It returns their names.
func (p planter) jobs(to *gossips) (jobs []string) {
	p.t.Helper()
	oauth := func(path string) string {
		return fmt.Sprintf(`{"type":"oauth2","secret":"client","client_id":"punctual","token_url":"%s%s","scopes":["a"]}`,
			to.login.URL, path)
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
	p.planted["Credential"] = base64.StdEncoding.EncodeToString([]byte("punctual:" + p.planted["Password"]))
	for name, auth := range auths {
		for _, path := range []string{"ok", "fail", "refuse", "hang"} {
			job := name + "-" + path
			jobs = append(jobs, job)
			definition := fmt.Sprintf(`{"name":%q,"description":"canary of a job","timeout":%q,`+
				`"retry":{"max_attempts":2,"initial_backoff":"1ms"},`+
				`"target":{"url":"%s/%s","auth":%s,"secret_headers":%s}}`,
				job, map[bool]string{true: "2s", false: "30s"}[path == "hang"], to.plain.URL, path, auth, headers)
			p.must("POST", "/v1/jobs", definition, "Idempotency-Key: "+job)
			p.must("POST", "/v1/jobs", definition, "Idempotency-Key: "+job)
			p.must("PUT", "/v1/jobs/"+job, definition)
			p.api("POST", "/v1/jobs", strings.Replace(definition, `"retry"`, `"retyr"`, 1))
			p.api("POST", "/v1/jobs", definition[:len(definition)-3])
			p.api("PATCH", "/v1/jobs/"+job, `{"target":{"auth":{"value":["`+p.planted["InlineValue"]+`"]}}}`)
		}
	}
	p.must("POST", "/v1/jobs", fmt.Sprintf(`{"name":"certified","retry":{"max_attempts":1},`+
		`"target":{"url":"%s/fail","tls":{"client_certificate":"certificate","ca":"ca"}}}`, to.secure.URL))
	p.must("POST", "/v1/jobs", fmt.Sprintf(`{"name":"in-body","retry":{"max_attempts":1},"keep_response":65536,`+
		`"target":{"url":"%s/echo","body":{"job":"{{job}}","keys":[{"$secret":"in-body"}]}}}`, to.plain.URL))
	return append(jobs, "certified", "in-body")
}

// read reads everything that the API shows.
func (p planter) read(jobs, runs []string) {
	p.t.Helper()
	for _, path := range []string{
		"/v1/jobs?limit=500", "/v1/runs?limit=500", "/v1/dead-letters?limit=500", "/v1/secrets?limit=500",
		"/v1/dead-letters/groups",
		"/v1/signing-secrets", "/v1/operations", "/v1/audit-log?limit=500",
		"/v1/api-keys", "/v1/tenants", "/v1/tenant",
		"/", "/openapi.json", "/docs", "/readyz", "/healthz",
	} {
		p.api("GET", path, "")
	}
	for _, job := range jobs {
		p.api("GET", "/v1/jobs/"+job, "")
		p.api("GET", "/v1/jobs/"+job+"/explain?at="+time.Now().UTC().Format(time.RFC3339), "")
		p.api("GET", "/v1/jobs/"+job+"/runs", "")
	}
	for _, run := range runs {
		p.api("GET", "/v1/runs/"+run, "")
	}
	p.seen.add("the metrics", p.call("GET", "/metrics", ""))
}

// Secrets are in every place, and targets echo them. No answer, log line, metric or row shows them.
//
// Rows have them as ciphertext only.
func TestPlantedSecretsAreSeenNowhere(t *testing.T) {
	t.Parallel()
	all, seen := planted{"MasterKey": process.MasterKey}, surfaces{}
	to := newGossips(t, all.plant("Token"))
	dsn := withPassword(t, pgtest.DSN(t), all.plant("DatabasePassword"))
	r := serve(t, dsn, "--log-level=debug")
	p := planter{all, t, r.API.URL, seen}
	p.keys()
	p.secrets(to.secure.Certificate())
	jobs := p.jobs(to)
	for _, job := range jobs {
		p.must("POST", "/v1/jobs/"+job+"/trigger", "")
	}
	conn := connect(t, dsn)
	await(t, "all runs to end", func() bool {
		return query[bool](t, conn, `SELECT NOT EXISTS (SELECT FROM punctual.runs WHERE finished_at IS NULL)`)
	})
	p.read(jobs, queryAll[string](t, conn, `SELECT id::text FROM punctual.runs`))
	seen.add("the database", dump(t, conn))
	seen.add("the rotation", punctual(t, dsn, "secrets", "rotate", "--log-level=debug"))
	seen.add("the database", dump(t, conn))
	if arguments, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", r.PID())); err == nil {
		seen.add("the list of processes", string(arguments))
	}
	stop(t, r)
	seen.add("the log", r.Output())
	seen.check(t, all, map[string]string{
		"the API":      "canary of a job",
		"the database": "canary of a job",
		"the log":      `"level":"DEBUG"`,
		"the metrics":  "punctual_",
		"the rotation": "secrets rotated",
	})
	// The secrets were sent. Otherwise the search would prove nothing.
	for _, kind := range []string{
		"NamedSecret", "InlineValue", "Password", "HeaderValue", "SecretHeader", "Token", "ClientSecret", "SecondValue", "InBody",
	} {
		if !strings.Contains(to.heard, all[kind]) {
			t.Errorf("the %s never reached a target", kind)
		}
	}
	if !strings.Contains(to.heard, "a client certificate: 1") {
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
