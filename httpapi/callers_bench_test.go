package httpapi

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"punctual/store/tenants"
)

// BenchmarkAdmit measures authentication of a known caller, to compare with the hundreds of microseconds that a
// request takes.
func BenchmarkAdmit(b *testing.B) {
	i := newIssuer(b)
	limit := 1_000_000
	s := guarded(b)
	s.tenant("alpha")
	s.tenant("limited", tenants.Tenant{Weight: 1, MaxRequestsPerSecond: &limit})
	for _, c := range []struct {
		name, token string
		noAuth      bool
	}{
		{"none", "", true},
		{"key", s.key("alpha", RoleEditor), false},
		{"key of a limited tenant", s.key("limited", RoleEditor), false},
		{"token", i.token(nil), false},
	} {
		b.Run(c.name, func(b *testing.B) {
			config := Config{
				Store: s.store, NoAuth: c.noAuth, Tenant: tenants.DefaultTenant, OIDC: i.config(),
				Log: slog.New(slog.DiscardHandler),
			}
			server := &server{
				Config: config, keys: newKeyring(s.store), tokens: newTokens(config.OIDC, config.Log),
				tenants: newTenantBook(s.store), rates: newRates(s.store),
			}
			r := httptest.NewRequest(http.MethodGet, "/v1/jobs", nil)
			r.Header.Set("Authorization", "Bearer "+c.token)
			w := httptest.NewRecorder()
			b.ReportAllocs()
			for b.Loop() {
				if _, err := server.admit(b.Context(), w, r, RoleViewer); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
