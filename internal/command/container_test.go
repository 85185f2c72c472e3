package command

import (
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

// composed returns the words of a command in compose.yaml.
func composed(t *testing.T, first string) []string {
	t.Helper()
	text := readFile(t, "compose.yaml")
	match := regexp.MustCompile(`(?m)^ +command: \[(` + first + `\b[^\]]*)\]$`).FindStringSubmatch(text)
	if match == nil {
		t.Fatalf("compose.yaml has no command %s", first)
	}
	words := strings.Split(match[1], ", ")
	for i, w := range words {
		words[i] = strings.Trim(w, `"`)
	}
	return words
}

func TestHealthcheckAsksTheReplica(t *testing.T) {
	t.Parallel()
	r := serve(t, dsnFor(t), append([]string{"--auth=keys"}, composed(t, "serve")[1:]...)...)
	address := strings.TrimPrefix(r.API.URL, "http://")
	_, port, err := net.SplitHostPort(address)
	must(t, err)
	for _, listen := range []string{address, "0.0.0.0:" + port, ":" + port} {
		code, out, notes := apart(t, []string{"PUNCTUAL_LISTEN=" + listen, "HTTP_PROXY=http://127.0.0.1:1"}, "healthcheck")
		if code != 0 || out != "ready\n" || notes != "" {
			t.Errorf("%s: exit code %d, stdout %q, stderr %q", listen, code, out, notes)
		}
	}
	stop(t, r)
	line := refused(t, 1, nil, "healthcheck", "--listen="+address)
	if line != "punctual: not ready: cannot connect to "+address+": connection refused\n" {
		t.Errorf("it says %q", line)
	}
}

func TestHealthcheckSaysWhyAReplicaIsNotReady(t *testing.T) {
	t.Parallel()
	stay := make(chan struct{})
	for name, c := range map[string]struct {
		answer  http.HandlerFunc
		timeout string
		want    string
	}{
		"a problem": {func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(503)
			_, _ = w.Write([]byte(`{"detail":"The database cannot be reached."}`))
		}, "3s", "responds with 503: The database cannot be reached."},
		"something else": {http.NotFound, "3s", `responds with 404: "404 page not found\n"`},
		"nothing":        {func(http.ResponseWriter, *http.Request) { <-stay }, "100ms", "within 100ms"},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(c.answer)
			t.Cleanup(server.Close)
			if name == "nothing" {
				t.Cleanup(func() { close(stay) })
			}
			line := refused(t, 1, nil, "healthcheck", "--timeout="+c.timeout,
				"--listen="+strings.TrimPrefix(server.URL, "http://"))
			says(t, line, "punctual: not ready: ", c.want)
		})
	}
}

func TestEchoShowsWhatArrives(t *testing.T) {
	t.Parallel()
	p := launch(t, []string{"PUNCTUAL_LISTEN=127.0.0.1:0"}, composed(t, "echo")...)
	ready := regexp.MustCompile(`echo ready.* url=http://(\S+)`)
	await(t, "the echo target", func() bool { return ready.MatchString(p.Output()) })
	address := ready.FindStringSubmatch(p.Output())[1]
	response, err := http.Post("http://"+address+"/greet", "application/json", strings.NewReader(`{"hello":"world"}`))
	must(t, err)
	_ = response.Body.Close()
	await(t, "the line of the request", func() bool { return strings.Contains(p.Output(), "path=/greet") })
	if code, out, notes := apart(t, nil, "healthcheck", "--listen="+address); code != 0 ||
		strings.Contains(p.Output(), "readyz") {
		t.Errorf("exit code %d: %s%s\nthe log: %s", code, out, notes, p.Output())
	}
	kill(t, p, syscall.SIGTERM)
	if code, out := wait(t, p); code != 0 {
		t.Errorf("exit code %d:\n%s", code, out)
	}
}
