package wire

import (
	"strings"
	"testing"
)

func TestMailboxes(t *testing.T) {
	for address, fine := range map[string]bool{
		"ops@example.com": true, "o.p-s+cron@mail.example.com": true, "o'neil@example.com": true,
		"": false, "ops": false, "ops@": false, "@example.com": false, "a@b@example.com": false, "a b@example.com": false,
		"a@example.com\r\nRCPT TO:<b@c>": false, "Ops <ops@example.com>": false, "a,b@example.com": false,
		`"a"@example.com`: false, "a?subject=x@example.com": false, "-a@example.com": false, "a..b@example.com": false,
		"a@127.1": false, "é@example.com": false, strings.Repeat("a", 65) + "@example.com": false,
	} {
		if err := CheckMailbox(address); (err == nil) != fine {
			t.Errorf("%q: %v", address, err)
		}
	}
}

func TestMailServers(t *testing.T) {
	for raw, fine := range map[string]bool{
		"smtp://mail.example.com": true, "smtps://u:p@mail.example.com:465": true, "smtp://h:25?starttls=off": true,
		"http://h": false, "smtp://": false, "smtps://h?starttls=off": false, "smtp://h:0": false, "smtp://h/x": false,
		"smtp://h?x=1": false, "mail.example.com:25": false,
	} {
		if _, err := CheckMailServer(raw); (err == nil) != fine {
			t.Errorf("%s: %v", raw, err)
		}
	}
}
