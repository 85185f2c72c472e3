package command

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Each wrong flag of the mail server is refused by its name.
func TestFlagsOfTheMailServer(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	right := mail{SMTPURL: "smtp://punctual@mail.example.com", SMTPFrom: "Punctual <punctual@example.com>"}
	with := func(change func(*mail)) mail {
		m := right
		change(&m)
		return m
	}
	for name, c := range map[string]struct {
		flags mail
		says  string // empty: it is accepted
	}{
		"none":         {mail{}, ""},
		"no server":    {mail{SMTPFrom: "a@example.com"}, "need --smtp-url"},
		"all":          {right, ""},
		"bad URL":      {with(func(m *mail) { m.SMTPURL = "mail.example.com:25" }), "--smtp-url: must be smtp://"},
		"bad sender":   {with(func(m *mail) { m.SMTPFrom = "punctual" }), `--smtp-from "punctual": must be an address`},
		"bad greeting": {with(func(m *mail) { m.SMTPHello = "a b" }), `--smtp-hello: "a b"`},
		"no address":   {with(func(m *mail) { m.SMTPHello = "[a]" }), `--smtp-hello: "[a]"`},
		"bad domain":   {with(func(m *mail) { m.SMTPAllowDomains = []string{"a b"} }), `--smtp-allow-domains: "a b"`},
		"password":     {with(func(m *mail) { m.SMTPPasswordFile = file("right", "secret\n") }), ""},
		"no such file": {with(func(m *mail) { m.SMTPPasswordFile = filepath.Join(dir, "none") }), "--smtp-password-file: "},
		"empty file":   {with(func(m *mail) { m.SMTPPasswordFile = file("empty", "\n") }), "write the password into it"},
		"no user": {with(func(m *mail) {
			m.SMTPURL, m.SMTPPasswordFile = "smtp://mail.example.com", file("also", "secret")
		}), "the user into --smtp-url"},
	} {
		config, err := c.flags.config()
		switch {
		case c.says == "" && err != nil, c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)):
			t.Errorf("%s: %v, want … %s …", name, err, c.says)
		case name == "password" && config.Password != "secret":
			t.Errorf("the password is %q", config.Password)
		}
	}
}
