package httpapi

import (
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"punctual/httpapi/api"
	"punctual/httpapi/problem"
	"punctual/scheduler/delivery/guard"
	"punctual/scheduler/domain"
)

// hostileBodies are refused by every operation that reads a body.
func hostileBodies() map[string]string {
	long := strings.Repeat("x", api.MaxBody)
	return map[string]string{
		"cut off":                     `{"name":"n","target":{"url":"http://`,
		"nests deep":                  strings.Repeat(`{"a":`, 5000) + "1" + strings.Repeat("}", 5000),
		"nests deep and never closes": strings.Repeat("[", api.MaxBody/2),
		"a huge string":               `{"name":"` + long + `"}`,
		"a huge key":                  `{"` + long + `":1}`,
		"a huge number":               `{"timeout":` + strings.Repeat("9", 1000) + `}`,
		"bytes that are no UTF-8":     "{\"name\":\"\xff\xfe\xc0\xaf\"}",
		"UTF-16":                      "\xff\xfe{\x00}\x00",
		"a byte order mark":           "\xef\xbb\xbf{}",
		"NULs":                        "{\"name\":\"a\x00b\"}",
		"nothing but NULs":            strings.Repeat("\x00", 1000),
		"keys that appear twice":      `{"zzz":1,"zzz":2}`,
		"unknown keys":                `{"__proto__":{"admin":true},"constructor":1,"$where":"1"}`,
		"many unknown keys":           `{` + strings.Repeat(`"k":1,`, 50_000) + `"k":1}`,
		"a list":                      `[{"name":"n"}]`,
		"two values":                  `{}{}`,
		"comments":                    `{/* */}`,
		"single quotes":               `{'name':'n'}`,
		"XML": `<?xml version="1.0"?><!DOCTYPE a [<!ENTITY b SYSTEM "file:///etc/passwd">]>` +
			`<a>&b;</a>`,
		"NaN":                       `{"a":NaN}`,
		"a lone surrogate in a key": `{"\ud800":1}`,
	}
}

// bodyRoutes are the operations that read a body. They name a job that exists.
var bodyRoutes = []string{
	"POST /v1/jobs", "PUT /v1/jobs/n", "PUT /v1/jobs/new", "PATCH /v1/jobs/n", "POST /v1/jobs/batch",
	"POST /v1/jobs/n/trigger", "POST /v1/jobs/n/pause", "POST /v1/jobs/n/resume", "POST /v1/jobs/n/backfill",
	"POST /v1/schedules/preview", "POST /v1/dead-letters/replay", "POST /v1/dead-letters/resolve",
	"POST /v1/jobs/pause", "POST /v1/jobs/resume", "POST /v1/jobs/delete",
	"POST /v1/runs/%s/heartbeat", "POST /v1/runs/%s/complete", "POST /v1/runs/%s/fail", "POST /v1/dead-letters/%s/resolve",
}

// hostileParts are refused or not found as any value of a path or a query.
var hostileParts = []string{
	"'%20OR%201=1%20--", "%00", "a%00b", "%ff%fe", "..%2f..%2fetc%2fpasswd", "..%5c", "%2e%2e", "*", "%25",
	"%0d%0aSet-Cookie:%20a=b", "<script>alert(1)</script>", "$%7bjndi:ldap://x%7d", "%f0%9f%98%80", "-1",
	"99999999999999999999", "00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff",
	"019ad964-3b80-8b21-8f6e-1d2c3b4a5968'", "{{7*7}}",
}

// refusal sends a request, which must be refused.
type refusal func(t *testing.T, method, path, body string, headers ...string)

// Over a thousand hostile inputs on all routes. Each gets 4xx with the reason, and changes nothing.
//
// Deep, huge and broken JSON, bad UTF-8, NULs, keys twice, cron bombs, header injection, rubbish in paths, queries and
// conditions.
//
//prove:api
func TestHostileInputIsRefusedWithAReason(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.create(minimal("n"))
	run := into[struct{ ID string }](s.do("POST", "/v1/jobs/n/trigger", "").want(202)).ID
	tried := 0
	refuse := refusal(func(t *testing.T, method, path, body string, headers ...string) {
		t.Helper()
		tried++
		r := s.in(t).do(method, path, body, headers...)
		if r.status < 400 || r.status >= 500 {
			t.Errorf("%s %.100s: %d for %.100q %q: %.300s", method, path, r.status, body, headers, r.body)
			return
		}
		r.want(r.status)
		if len(r.body) > 64<<10 {
			t.Errorf("%s %.100s: %d bytes of answer to %.100q", method, path, len(r.body), body)
		}
	})
	refuse.bodies(t, run)
	refuse.parts(t)
	refuse.preconditions(t)
	refuse.targets(t)
	refuse.expressions(t)
	t.Logf("%d hostile inputs, each refused with a reason", tried)
	if jobs := s.items("/v1/jobs"); len(jobs) != 1 {
		t.Errorf("%d jobs, want the one of before", len(jobs))
	}
	if job := s.do("GET", "/v1/jobs/n", "").want(200).fields(); job["version"] != 1.0 || job["state"] != "active" {
		t.Errorf("the job was changed: %v", job)
	}
}

func (refuse refusal) bodies(t *testing.T, run string) {
	for _, route := range bodyRoutes {
		method, path, _ := strings.Cut(route, " ")
		if strings.Contains(path, "%s") {
			path = fmt.Sprintf(path, run)
		}
		for name, body := range hostileBodies() {
			t.Run(route+" with "+name, func(t *testing.T) { refuse(t, method, path, body) })
		}
		for _, header := range []string{
			"Content-Type: text/html", "Content-Type: application/json; charset=utf-16", "Content-Encoding: gzip",
			"Content-Type: multipart/form-data; boundary=x",
		} {
			t.Run(route+" with "+header, func(t *testing.T) { refuse(t, method, path, `{}`, header) })
		}
	}
}

func (refuse refusal) parts(t *testing.T) {
	for _, part := range append(hostileParts, strings.Repeat("a", 5000)) {
		for _, route := range []string{
			"GET /v1/jobs/%s", "DELETE /v1/jobs/%s", "POST /v1/jobs/%s/trigger", "POST /v1/jobs/%s/pause",
			"GET /v1/jobs/%s/runs", "GET /v1/jobs/%s/upcoming", "GET /v1/jobs/%s/explain?at=2026-01-01T00:00:00Z",
			"GET /v1/runs/%s", "POST /v1/runs/%s/cancel", "GET /v1/operations/%s", "POST /v1/dead-letters/%s/replay",
			"GET /v1/runs/%s/progress", "GET /v1/jobs?cursor=%s", "GET /v1/runs?cursor=%s", "GET /v1/dead-letters?cursor=%s",
			"GET /v1/operations?cursor=%s", "GET /v1/jobs?limit=%s", "GET /v1/jobs/n/upcoming?n=%s", "GET /v1/jobs?state=%s",
			"GET /v1/runs?status=%s", "GET /v1/runs?from=%s", "GET /v1/runs?job_id=%s", "GET /v1/jobs?nothing=%s",
			"GET /v1/jobs/n/explain?at=%s", "GET /v1/forecast?from=%s", "GET /v1/forecast?to=%s", "GET /v1/forecast?step=%s",
			"GET /v1/forecast?scope=%s", "GET /v1/dead-letters/groups?cursor=%s",
		} {
			method, path, _ := strings.Cut(fmt.Sprintf(route, part), " ")
			if strings.Contains(path, "job_id=00000000") || strings.Contains(path, "job_id=ffffffff") { // valid ids
				continue
			}
			t.Run(fmt.Sprintf("%.60s", method+" "+path), func(t *testing.T) { refuse(t, method, path, "") })
		}
	}
}

func (refuse refusal) preconditions(t *testing.T) {
	for _, header := range []string{
		"If-Match: W/\"1\"", "If-Match: '", "If-Match: \"99999999999999\"", "If-Match: \"1\", \"2\"", "If-Match: \"-1\"",
	} {
		for _, method := range []string{"PUT", "PATCH", "DELETE"} {
			body := ""
			if method != "DELETE" {
				body = `{"description":"x","target":{"url":"http://example.com/"}}`
			}
			t.Run(method+" with "+header, func(t *testing.T) { refuse(t, method, "/v1/jobs/n", body, header) })
		}
	}
	for _, key := range []string{
		"Idempotency-Key: " + strings.Repeat("k", 256), "Idempotency-Key: a b", "Idempotency-Key: ä",
	} {
		t.Run(fmt.Sprintf("%.40s", key), func(t *testing.T) { refuse(t, "POST", "/v1/jobs", minimal("with-key"), key) })
	}
}

func (refuse refusal) targets(t *testing.T) {
	for _, name := range []string{
		"Host", "host", "Content-Length", "Transfer-Encoding", "Connection", "TE", "Upgrade", "Expect", "Trailer",
		"Proxy-Authorization", "Keep-Alive", "Webhook-Id", "webhook_signature", "Punctual-Run", "PUNCTUAL_RUN",
		"Idempotency-Key", "Traceparent", "X Y", "X:", "", "X\\r\\nHost", "Ä",
	} {
		for _, value := range []string{"x", `x\r\nHost: evil`} {
			headers := fmt.Sprintf(`{"%s":"%s"}`, name, value)
			t.Run("a header "+headers, func(t *testing.T) {
				refuse(t, "POST", "/v1/jobs", `{"name":"h","target":{"url":"http://example.com/","headers":`+headers+`}}`)
				refuse(t, "PATCH", "/v1/jobs/n", `{"target":{"headers":`+headers+`}}`)
				refuse(t, "POST", "/v1/jobs/n/trigger", `{"headers":`+headers+`}`)
			})
		}
	}
	for _, value := range []string{`a\r\nX: b`, `a\nb`, `a\u0000b`, `a\u007fb`, ` a`, `a\t`} {
		t.Run("a value "+value, func(t *testing.T) {
			refuse(t, "POST", "/v1/jobs", `{"name":"h","target":{"url":"http://example.com/","headers":{"X":"`+value+`"}}}`)
			refuse(t, "POST", "/v1/jobs/n/trigger", `{"headers":{"X":"`+value+`"}}`)
		})
	}
	t.Run("headers of one name in different case", func(t *testing.T) {
		refuse(t, "POST", "/v1/jobs",
			`{"name":"h","target":{"url":"http://example.com/","headers":{"X-Team":"a","x-team":"b"}}}`)
		refuse(t, "POST", "/v1/jobs/n/trigger", `{"headers":{"X-Team":"a","x-team":"b"}}`)
	})
}

func (refuse refusal) expressions(t *testing.T) {
	for _, cron := range []string{
		"0 0 31W 2 1#6", strings.Repeat("*/1,", 2000) + "* * * * *", "0 0 30 2 *", "@every 1s", "* * * * * * *", `\u0000`,
		"1-2-3 * * * *", strings.Repeat("9", 250) + " * * * *",
	} {
		t.Run(fmt.Sprintf("cron %.40s", cron), func(t *testing.T) {
			refuse(t, "POST", "/v1/jobs", `{"name":"c","schedule":{"cron":"`+cron+`"},"target":{"url":"http://example.com/"}}`)
			refuse(t, "POST", "/v1/schedules/preview", `{"schedule":{"cron":"`+cron+`"}}`)
		})
	}
}

// forbiddenHosts are this machine, its neighbours and its cloud, in every notation that passes the check of URLs. The
// port is the target's, which counts every connection.
var forbiddenHosts = []string{
	"127.0.0.1", "127.0.0.2", "127.255.255.254", "0.0.0.0", "localhost", "LOCALHOST", "localhost.", "foo.localhost",
	"[::1]", "[::]", "[0:0:0:0:0:0:0:1]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[0:0:0:0:0:ffff:127.0.0.1]",
	"[::127.0.0.1]", "[64:ff9b::7f00:1]", "[64:ff9b:1::7f00:1]", "[2002:7f00:1::]", "[2001:0:7f00:1::]", "[fe80::1]",
	"[fc00::1]", "[fd00:ec2::254]", "[fec0::1]", "[ff02::1]", "[::ffff:169.254.169.254]", "[::ffff:a9fe:a9fe]",
	"[64:ff9b::a9fe:a9fe]", "169.254.169.254", "169.254.170.2", "100.100.100.200", "168.63.129.16", "10.0.0.1",
	"172.16.0.1", "172.31.255.255", "192.168.0.1", "100.64.0.1", "192.0.0.192", "198.18.0.1", "224.0.0.1", "240.0.0.1",
	"255.255.255.255",
}

// malformedHosts mean an address to some parsers.
var malformedHosts = []string{
	"127.1", "127.0.1", "2130706433", "0x7f000001", "0x7f.0.0.1", "0177.0.0.1", "017700000001", "127.0.0.1.", "127.0.0.01",
	"①②⑦.0.0.1", "127。0。0。1", "[::1%25lo]", "[::1%lo]", "user@127.0.0.1", "127.0.0.1@example.com",
	"example.com@127.0.0.1", "127.0.0.1\\\\@example.com", "127.0.0.1%00.example.com", "127.0.0.1%2f@example.com",
	"ⓛocalhost", "[::ffff:127.0.0.1", "::1", "[127.0.0.1]", "[v1.x]", " 127.0.0.1", "127.0.0.1 ", "127.0.0.1\\t",
}

// A target is at a private or metadata address, in some 60 notations. Nothing connects to it.
//
// Also loopback and link-local. A new job gets 422. A job that was written before the address was forbidden gets
// blocked_address.
//
//prove:addresses
func TestNoNotationOfAForbiddenAddressIsCalled(t *testing.T) {
	t.Parallel()
	var connections atomic.Int32
	target := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	target.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}
	all, err := net.Listen("tcp", ":0") // all addresses of this machine
	if err != nil {
		t.Fatal(err)
	}
	target.Listener = all
	target.Start()
	t.Cleanup(target.Close)
	_, port, _ := net.SplitHostPort(all.Addr().String())

	g := guard.New(nil)
	s := serve(t, func(c *Config) { c.Guard = g })
	before := s.another(Config{Log: slog.New(slog.DiscardHandler), NoAuth: true}) // without a guard
	ended := make(chan domain.Outcome, len(forbiddenHosts))
	s.dispatch(g, ended)

	tried := 0
	refuse := func(url string) {
		t.Helper()
		tried++
		for method, request := range map[string]struct{ path, body string }{
			"POST": {"/v1/jobs", `{"name":"refused","target":{"url":"` + url + `"}}`},
			"PUT":  {"/v1/jobs/refused", `{"target":{"url":"` + url + `"}}`},
		} {
			s.do(method, request.path, request.body).blames("body.target.url")
		}
		s.do("POST", "/v1/jobs/batch",
			`{"jobs":[`+minimal("fine")+`,{"name":"refused","target":{"url":"`+url+`"}}]}`).code(problem.CodeInvalid)
		s.do("POST", "/v1/jobs", `{"name":"refused","target":{"url":"http://example.com/"},`+
			`"notify":[{"on":["dead"],"url":"`+url+`"}]}`).code(problem.CodeInvalid)
	}
	for _, host := range malformedHosts {
		refuse("http://" + host + "/")
	}
	for i, host := range forbiddenHosts {
		url := "http://" + host + ":" + port + "/"
		refuse(url)
		refuse("https://" + host + "/")
		// As a job written before, or by a replica that allowed the address.
		name := fmt.Sprint("job-", i)
		before.create(`{"name":"` + name + `","target":{"url":"` + url + `"},"retry":{"max_attempts":1},"timeout":"5s"}`)
		s.do("PATCH", "/v1/jobs/"+name, `{"description":"still may be changed"}`).want(200)
		s.do("PATCH", "/v1/jobs/"+name, `{"target":{"url":"`+url+`"}}`).code(problem.CodeInvalid)
		s.do("POST", "/v1/jobs/"+name+"/trigger", "").want(202)
		tried++
	}
	for range forbiddenHosts {
		o := <-ended
		// Not every resolver knows these names, or says so in time; without an address there is nothing to block.
		unresolved := (o.Reason == domain.ReasonConnect || o.Reason == domain.ReasonTimeout) &&
			(strings.Contains(o.Job.Target.URL, "foo.localhost:") || strings.Contains(o.Job.Target.URL, "localhost.:"))
		if o.Verdict != domain.Bury || o.Reason != domain.ReasonBlockedAddress && !unresolved {
			t.Errorf("%s: %v %s %s", o.Job.Target.URL, o.Verdict, o.Reason, o.Error)
		}
	}
	if n := connections.Load(); n != 0 {
		t.Errorf("%d connections to forbidden addresses", n)
	}
	t.Logf("%d URLs in %d notations: none was called", tried, len(forbiddenHosts)+len(malformedHosts))
}

// A run is recognized by headers that no job can set, wherever its request comes from.
func TestRunsMayNotCallTheAPI(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.create(minimal("n"))
	for _, request := range []string{
		"GET /v1/jobs", "POST /v1/jobs/n/trigger", "DELETE /v1/jobs/n", "GET /metrics", "GET /nothing",
		"POST /v1/runs/019ad964-3b80-8b21-8f6e-1d2c3b4a5968/complete",
	} {
		method, path, _ := strings.Cut(request, " ")
		s.do(method, path, "", "Punctual-Attempt: 1", "Punctual-Fencing-Token: 7",
			"Punctual-Run: 019ad964-3b80-8b21-8f6e-1d2c3b4a5968").code(problem.CodeCallback)
	}
	s.do("GET", "/v1/jobs/n", "").want(200)
}

// A web page's own name resolves to this machine. It is refused without authentication.
//
// A browser takes this server for the page's own origin.
//
//prove:api
func TestOtherHostsNamesAreRefusedWithoutAuthentication(t *testing.T) {
	t.Parallel()
	s := serve(t, func(c *Config) { c.OnlyLocal, c.PublicHost = true, "punctual.example" })
	open := serve(t)
	for host, ok := range map[string]bool{
		"": true, "127.0.0.1": true, "127.0.0.1:8080": true, "localhost": true, "LOCALHOST:8080": true, "[::1]:8080": true,
		"[::1]": true, "192.168.7.1:8080": true, "punctual.example": true, "Punctual.Example:80": true,
		"evil.example": false, "evil.example:8080": false, "localhost.evil.example": false, "127.0.0.1.evil.example": false,
		"127.1": false, "punctual.example.evil": false, "foo.localhost": false,
	} {
		for _, svc := range []*service{s, open} {
			r, err := http.NewRequestWithContext(t.Context(), "GET", svc.url+"/v1/jobs", nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Host = host
			response, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			_ = response.Body.Close()
			want := http.StatusOK
			if svc == s && !ok {
				want = http.StatusMisdirectedRequest
			}
			if response.StatusCode != want {
				t.Errorf("%q: %d, want %d", host, response.StatusCode, want)
			}
		}
	}
}

// A replica that has just started learns what tenants may call before it sends anything, because a refused attempt
// counts.
func TestPermissionsAreKnownBeforeAnythingIsSent(t *testing.T) {
	t.Parallel()
	target := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(target.Close)
	s := serve(t)
	s.exec(`UPDATE punctual.tenants SET allowed_targets = '{127.0.0.0/8}'`)
	const jobs = 20
	for i := range jobs {
		s.create(fmt.Sprintf(`{"name":"j-%d","schedule":{"delay":"0s"},"target":{"url":%q},"retry":{"max_attempts":1}}`, i,
			target.URL))
	}
	ended := make(chan domain.Outcome, jobs)
	s.dispatch(guard.New(nil), ended)
	for range jobs {
		if o := <-ended; o.Verdict != domain.Succeed {
			t.Errorf("%v %s %s", o.Verdict, o.Reason, o.Error)
		}
	}
}
