package server

import (
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"punctual/scheduler/delivery"
	"punctual/scheduler/delivery/guard"
	"punctual/scheduler/delivery/wire"
)

func TestAuthoritiesOfAFileAreTrustedBesideTheSystems(t *testing.T) {
	t.Parallel()
	target := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "ok")
	}))
	target.Config.ErrorLog = nil
	target.StartTLS()
	t.Cleanup(target.Close)
	file := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(file,
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: target.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(target.URL)
	if err != nil {
		t.Fatal(err)
	}
	for path, reason := range map[string]wire.Reason{"": wire.ReasonTLS, file: ""} {
		pool, err := readCAs(path)
		if err != nil {
			t.Fatal(err)
		}
		client := delivery.New(delivery.Config{RootCAs: pool, Guard: guard.New(guard.Loopback)})
		t.Cleanup(client.Close)
		if res := client.Send(t.Context(), wire.Request{
			Method:  "POST",
			URL:     u,
			Timeout: time.Minute,
		}); res.Reason != reason {
			t.Errorf("with file %q: %+v", path, res)
		}
	}
	empty := filepath.Join(t.TempDir(), "empty.pem")
	if err := os.WriteFile(empty, []byte("no certificate"), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		empty: "BEGIN CERTIFICATE", filepath.Join(t.TempDir(), "absent"): "no such file",
	} {
		if _, err := readCAs(path); err == nil || !strings.Contains(err.Error(), "--target-ca-file") ||
			!strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", path, err)
		}
	}
}
