package httpapi

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"punctual/httpapi/auth"
	"punctual/internal/oidctest"
	"punctual/store/tenants"
)

// BenchmarkAdmit measures authentication of a known caller, to compare with the hundreds of microseconds that a
// request takes.
func BenchmarkAdmit(b *testing.B) {
	i := oidctest.New(b)
	limit := 1_000_000
	s := guarded(b)
	s.tenant("alpha")
	s.tenant("limited", tenants.Tenant{Weight: 1, MaxRequestsPerSecond: &limit})
	for _, c := range []struct {
		name, token string
		noAuth      bool
	}{
		{"none", "", true},
		{"key", s.key("alpha", auth.RoleEditor), false},
		{"key of a limited tenant", s.key("limited", auth.RoleEditor), false},
		{"token", i.Token(nil), false},
	} {
		b.Run(c.name, func(b *testing.B) {
			server := &server{freezes: &freezeBook{store: s.store}, callers: auth.New(auth.Config{
				Store: s.store, NoAuth: c.noAuth, Tenant: tenants.DefaultTenant, OIDC: configOf(i),
				Log: slog.New(slog.DiscardHandler),
			})}
			r := httptest.NewRequest(http.MethodGet, "/v1/jobs", nil)
			r.Header.Set("Authorization", "Bearer "+c.token)
			w := httptest.NewRecorder()
			b.ReportAllocs()
			for b.Loop() {
				if _, err := server.admit(b.Context(), w, r, auth.RoleViewer); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
