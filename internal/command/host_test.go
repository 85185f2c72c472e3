package command

import (
	"crypto/tls"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"punctual/internal/process"
)

// An ingress is reached by its address. It learns the name from the handshake and from the header.
func TestATargetBehindAnIngressIsCalledByItsName(t *testing.T) {
	t.Parallel()
	called := make(chan [2]string, 1)
	ingress := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		called <- [2]string{r.TLS.ServerName, r.Host}
	}))
	ingress.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	ingress.StartTLS() // its certificate is for example.com
	t.Cleanup(ingress.Close)
	roots := filepath.Join(t.TempDir(), "roots.pem")
	must(t, os.WriteFile(roots,
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ingress.Certificate().Raw}), 0o600))
	r, err := process.Start(bounded(t), binary(t),
		[]string{"DATABASE_URL=" + dsnFor(t), process.CallLoopback, "SSL_CERT_FILE=" + roots},
		[]string{"serve", "--log-format=json", "--listen=127.0.0.1:0", "--auth=none"})
	must(t, err)
	t.Cleanup(r.Kill)
	for name, host := range map[string]string{"right": "example.com:8443", "wrong": "billing.internal"} {
		calls(t, r, "POST", "/v1/jobs", process.JobSpec{
			"name": name, "target": map[string]any{"url": ingress.URL, "host": host},
			"retry": map[string]any{"max_attempts": 1},
		}, nil)
		calls(t, r, "POST", "/v1/jobs/"+name+"/trigger", nil, nil)
	}
	select {
	case got := <-called:
		if want := [2]string{"example.com", "example.com:8443"}; got != want {
			t.Errorf("the handshake and the header name %q, want %q", got, want)
		}
	case <-bounded(t).Done():
		t.Fatal("nothing is sent")
	}
	await(t, "the end of the run whose name the certificate does not have", func() bool {
		var page struct {
			Data []struct{ Status, Reason, Error string }
		}
		calls(t, r, "GET", "/v1/runs?job=wrong", nil, &page)
		if len(page.Data) == 0 || page.Data[0].Status != "dead" {
			return false
		}
		if got := page.Data[0]; got.Reason != "tls" {
			t.Errorf("it is dead for %s: %s", got.Reason, got.Error)
		}
		return true
	})
	stop(t, r)
}
