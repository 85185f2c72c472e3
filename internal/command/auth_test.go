package command

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
)

// parse reads the flags of serve as the binary does.
func parse(t *testing.T, flags string) (Serve, error) {
	t.Helper()
	var c struct {
		Serve Serve `cmd:""`
	}
	parser, err := kong.New(&c, kong.Name("punctual"), kong.Exit(func(int) { t.Error("the parser exits") }))
	if err != nil {
		t.Fatal(err)
	}
	_, err = parser.Parse(strings.Fields("serve --database-url=postgres://127.0.0.1/punctual " + flags))
	return c.Serve, err
}

const (
	issuer  = "--oidc-issuer=https://login.example.com --oidc-audience=punctual"
	atPages = issuer + " --oidc-client-id=pages"
	public  = atPages + " --public-url=https://punctual.example.com"
)

// A wrong flag of the sign-in is named, with what would be right.
func TestTheFlagsOfTheSignIn(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		flags string
		want  []string // what the error says; none: the flags are right
	}{
		"nothing":                   {"", nil},
		"an issuer alone":           {issuer, nil},
		"a sign-in":                 {public, nil},
		"with more scopes":          {public + " --oidc-scopes=openid,offline_access", nil},
		"at no issuer":              {"--oidc-client-id=pages", []string{"--oidc-issuer", "--oidc-client-id needs it"}},
		"without a way back":        {atPages, []string{"--public-url", "https://punctual.example.com", "/login/callback"}},
		"without pages":             {public + " --no-dashboard", []string{"--oidc-client-id", "--no-dashboard"}},
		"without authentication":    {public + " --auth=none", []string{"--oidc-issuer", "--auth=none"}},
		"scopes without openid":     {public + " --oidc-scopes=profile", []string{"--oidc-scopes", "openid"}},
		"scopes without a client":   {issuer + " --oidc-scopes=openid", []string{"--oidc-client-id"}},
		"a secret without a client": {issuer + " --oidc-client-secret-file=secret", []string{"--oidc-client-id"}},
	} {
		_, err := parse(t, test.flags)
		if (err != nil) != (len(test.want) > 0) {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, want := range test.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: the error does not say %q: %v", name, want, err)
			}
		}
	}
}

func TestTheSecretOfTheClientIsInAFile(t *testing.T) {
	t.Parallel()
	c, err := parse(t, public)
	if err != nil {
		t.Fatal(err)
	}
	client, err := c.signIn()
	if err != nil || client.ClientID != "pages" || client.ClientSecret != "" || !slices.Equal(client.Scopes, []string{"openid"}) {
		t.Errorf("%+v, %v", client, err)
	}
	file := filepath.Join(t.TempDir(), "secret")
	for content, want := range map[string]string{"s3cret\n": "s3cret", "": "", " \n": ""} {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if c, err = parse(t, public+" --oidc-client-secret-file="+file); err != nil {
			t.Fatal(err)
		}
		client, err := c.signIn()
		if client.ClientSecret != want || (err != nil) != (want == "") {
			t.Errorf("%q: %q, %v", content, client.ClientSecret, err)
		}
		if err != nil && !strings.Contains(err.Error(), "--oidc-client-secret-file") {
			t.Errorf("the error does not name the flag: %v", err)
		}
	}
}
