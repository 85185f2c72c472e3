package prove

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// targetEnv makes this test binary a minimal target instead, in a process of its own.
const targetEnv = "PROVE_TARGET"

// runTarget answers every request with an empty 200 and counts; GET /count tells how many there were.
func runTarget() error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println("target http://" + listener.Addr().String())
	var count atomic.Int64
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/count" {
			_, _ = io.WriteString(w, strconv.FormatInt(count.Load(), 10))
			return
		}
		_, _ = io.Copy(io.Discard, r.Body)
		count.Add(1)
	})}
	return server.Serve(listener)
}

// target is a running runTarget.
type target struct {
	*Process
	url string
}

func startTarget(t testing.TB) *target {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p, err := Launch(self, []string{targetEnv + "=1"})
	if err != nil {
		t.Fatal(err)
	}
	watch(t, p)
	await(t, "the target", func() bool { return strings.HasSuffix(p.Output(), "\n") })
	return &target{p, strings.TrimSpace(strings.TrimPrefix(p.Output(), "target "))}
}

// count is how many requests it has answered.
func (t *target) count(ctx context.Context) (int, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, t.url+"/count", nil)
	if err != nil {
		return 0, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err
	}
	text, err := io.ReadAll(response.Body)
	n, parse := strconv.Atoi(string(text))
	return n, errors.Join(err, parse, response.Body.Close())
}
