package delivery

import (
	"bufio"
	"bytes"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"testing"
	"time"

	"punctual/scheduler/delivery/guard"
	"punctual/scheduler/delivery/wire"
)

// BenchmarkSend measures one attempt against a target in a process of its own.
func BenchmarkSend(b *testing.B) {
	target := startTargetProcess(b)
	for _, bm := range []struct {
		name, method string
		body         []byte
	}{
		{"POST", "POST", []byte(`{"hello":"world"}`)},
		{"GET", "GET", nil},
	} {
		r := benchRequest(target, bm.method, bm.body)
		b.Run(bm.name, func(b *testing.B) {
			c := New(Config{Guard: guard.New(guard.Loopback)})
			defer c.Close()
			b.ReportAllocs()
			b.SetParallelism(64)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if res := c.Send(b.Context(), r); !res.OK() {
						b.Error(res.Error)
					}
				}
			})
		})
	}
	b.Run("net/http client", func(b *testing.B) { benchmarkPlain(b, target) })
}

// benchmarkPlain posts the same body with the same settings of net/http, without Punctual's client.
func benchmarkPlain(b *testing.B, target string) {
	hc := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1024, DisableCompression: true}}
	defer hc.CloseIdleConnections()
	r := benchRequest(target, "POST", []byte(`{"hello":"world"}`))
	b.ReportAllocs()
	b.SetParallelism(64)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			req, _ := http.NewRequestWithContext(b.Context(), r.Method, target, bytes.NewReader(r.Body))
			req.Header = maps.Clone(r.Header)
			for _, e := range r.Extra {
				req.Header.Set(e.Name, e.Value)
			}
			resp, err := hc.Do(req)
			if err != nil {
				b.Error(err)
				continue
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
		}
	})
}

func benchRequest(target, method string, body []byte) wire.Request {
	u, err := url.Parse(target)
	if err != nil {
		panic(err)
	}
	return wire.Request{
		Method: method, URL: u, Body: body, Timeout: 10 * time.Second,
		Header: http.Header{"Content-Type": {"application/json"}, "Authorization": {"Bearer abc"}},
		Extra: []wire.Header{
			{Name: "Webhook-Id", Value: "0190f5c2-0000-7000-8000-000000000000"},
			{Name: "Webhook-Timestamp", Value: "1767225600"},
			{Name: "Webhook-Signature", Value: "v1,K5oZfzN95Z9UVu1EsfQmfVNQhnkZ2pj9o9NDN/H/pI4="},
			{Name: "Idempotency-Key", Value: "0190f5c2-0000-7000-8000-000000000000:1767225600"},
			{Name: "Punctual-Job", Value: "hello"},
			{Name: "Punctual-Run", Value: "0190f5c2-0000-7000-8000-000000000000"},
			{Name: "Punctual-Attempt", Value: "1"},
			{Name: "Punctual-Trigger", Value: "schedule"},
			{Name: "Punctual-Scheduled-For", Value: "2026-01-01T00:00:00Z"},
			{Name: "Punctual-Fencing-Token", Value: "12345678"},
			{Name: "Traceparent", Value: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},
		},
	}
}

// startTargetProcess runs this test binary as the target in a process of its own, so that its work is not measured.
func startTargetProcess(b *testing.B) (address string) {
	b.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestTargetProcess$")
	cmd.Env = append(os.Environ(), "DELIVERY_TARGET=1")
	stdin, err := cmd.StdinPipe()
	must(b, err)
	stdout, err := cmd.StdoutPipe()
	must(b, err)
	must(b, cmd.Start())
	b.Cleanup(func() {
		_ = stdin.Close() // the target ends with its input
		_ = cmd.Wait()
	})
	address, err = bufio.NewReader(stdout).ReadString('\n')
	must(b, err)
	return address[:len(address)-1]
}

func TestTargetProcess(t *testing.T) {
	if os.Getenv("DELIVERY_TARGET") == "" {
		t.Skip("runs as the target of BenchmarkSend")
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, `{"ok":true}`)
	}))
	defer server.Close()
	_, _ = os.Stdout.WriteString(server.URL + "\n")
	_, _ = io.Copy(io.Discard, os.Stdin)
}
