package command

import (
	"io"
	"net/http"
	"net/http/cookiejar"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"punctual/internal/oidctest"
)

// A person signs in at an issuer to the pages of a replica, which knows both by its flags.
func TestAPersonSignsInAtTheIssuer(t *testing.T) {
	t.Parallel()
	const public = "http://punctual.example.com"
	issuer := oidctest.New(t)
	issuer.SignsIn(oidctest.SignIn{
		Client: "pages", Secret: "s3cret", Redirect: public + "/login/callback",
		Access: map[string]any{"punctual_tenant": "default"},
	})
	secret := filepath.Join(t.TempDir(), "secret")
	must(t, os.WriteFile(secret, []byte("s3cret\n"), 0o600))
	ctx := bounded(t)
	r := serve(t, dsnFor(t), "--auth=keys", "--oidc-issuer="+issuer.URL, "--oidc-audience=punctual",
		"--oidc-client-id=pages", "--oidc-client-secret-file="+secret, "--public-url="+public)
	jar, _ := cookiejar.New(nil)
	browser := &http.Client{Jar: jar, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}
	get := func(url string, want int) (to, body string) {
		t.Helper()
		// The address that the replica gives is that of no machine: a proxy would stand there.
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.Replace(url, public, r.API.URL, 1), nil)
		must(t, err)
		response, err := browser.Do(request)
		must(t, err)
		defer response.Body.Close()
		raw, err := io.ReadAll(response.Body)
		if err != nil || response.StatusCode != want {
			t.Fatalf("%s: status %d, want %d, error %v: %s", url, response.StatusCode, want, err, raw)
		}
		return response.Header.Get("Location"), string(raw)
	}
	_, page := get(public+"/login", 200)
	says(t, page, "Sign in with "+strings.TrimPrefix(issuer.URL, "http://"))
	to, _ := get(public+"/login/oidc?next=/jobs", 303)
	back, _ := get(to, 302)
	get(back, 200)
	_, page = get(public+"/jobs", 200)
	says(t, page, "alice · default")
	stop(t, r)
	for _, given := range append(issuer.Given(), "s3cret") {
		if strings.Contains(r.Output(), given) {
			t.Errorf("%s is logged", given)
		}
	}
}
