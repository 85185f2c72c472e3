package httpapi

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"punctual/httpapi/auth"
)

// A simple client, such as Python's urllib, reads no answer before it has sent its whole body.
func TestAnAnswerReachesAClientThatSendsItsWholeBodyFirst(t *testing.T) {
	t.Parallel()
	s := guarded(t).as("default", auth.RoleAdmin)
	key := s.headers[0]
	for _, c := range []struct {
		name, method, path, header string
		status                     int
	}{
		{"too large", "POST", "/v1/jobs", key, 413},
		{"too large for an optional body", "POST", "/v1/breakers/reset", key, 413},
		{"without a key", "POST", "/v1/jobs", "X-None: 1", 401},
		{"of no operation", "POST", "/v1/nothing", key, 404},
		{"of another method", "DELETE", "/v1/jobs", key, 405},
	} {
		if got := sendAllFirst(t, s.url, c.method, c.path, c.header); got != c.status {
			t.Errorf("%s: %d, want %d", c.name, got, c.status)
		}
	}
}

func sendAllFirst(t *testing.T, url, method, path, header string) int {
	t.Helper()
	address := strings.TrimPrefix(url, "http://")
	conn, err := net.Dial("tcp", address)
	must(t, err)
	defer conn.Close()
	must(t, conn.SetDeadline(time.Now().Add(time.Minute)))
	body := bytes.Repeat([]byte(" "), 10<<20)
	_, err = fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n%s\r\n\r\n",
		method, path, address, len(body), header)
	must(t, err)
	if _, err := conn.Write(body); err != nil {
		t.Errorf("%s %s: sending the body: %v", method, path, err)
		return 0
	}
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Errorf("%s %s: %v", method, path, err)
		return 0
	}
	return answer.StatusCode
}

// An absent body is either no fault, or the answer names what it lacks.
func TestAnAbsentBodyIsNoFaultOrIsNamed(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.create(minimal("one"))
	path := strings.NewReplacer("{job}", "one", "{run}", "019abd5e-0a00-8000-8000-000000000000", "{version}", "1",
		"{name}", "order.created", "{operation}", "019abd5e-0a00-8000-8000-000000000000")
	tried := 0
	for route, item := range static200(t, "/openapi.json").fields()["paths"].(map[string]any) {
		for method := range item.(map[string]any) {
			if method != "post" && method != "put" && method != "patch" {
				continue
			}
			tried++
			r := s.do(strings.ToUpper(method), path.Replace(route), "")
			switch {
			case r.status < 300 || r.status == 404 || r.status == 409 || r.status == 401:
			case r.status == 422 && strings.Contains(string(r.body), `"errors"`):
			case r.status == 400 && strings.Contains(string(r.body), "The body is empty; it must be a JSON object."):
			default:
				t.Errorf("%s %s: %d %s", method, route, r.status, r.body)
			}
		}
	}
	if tried < 30 {
		t.Errorf("%d operations were tried", tried)
	}
	s.do("POST", "/v1/breakers/reset", "").want(202).shows(`"matched":0`)
	s.do("POST", "/v1/breakers/reset", `{"host":5}`).want(422).shows("body.host")
	s.do("POST", "/v1/breakers/reset", `{"hosts":"x"}`).want(422).shows("body.hosts")
}
