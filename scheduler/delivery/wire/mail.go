package wire

import (
	"errors"
	"net/url"
	"regexp"
	"strconv"
	"strings"
)

// CheckMailServer parses the URL of a mail server, or reports what is wrong with it, without quoting a password.
func CheckMailServer(raw string) (*url.URL, error) {
	u, err := url.Parse(raw)
	if err != nil || u.Scheme != "smtp" && u.Scheme != "smtps" || u.Hostname() == "" || strings.Trim(u.Path, "/") != "" {
		return nil, errors.New("must be smtp://user@host:587 or smtps://user@host:465")
	}
	if err := checkHost(u.Hostname()); err != nil {
		return nil, err
	}
	if p := u.Port(); p != "" {
		if n, err := strconv.ParseUint(p, 10, 16); err != nil || n == 0 {
			return nil, errors.New("must have a port between 1 and 65535")
		}
	}
	if u.RawQuery != "" && (u.RawQuery != "starttls=off" || u.Scheme != "smtp") {
		return nil, errors.New("must have no query, or, with smtp, the query starttls=off")
	}
	return u, nil
}

// mailbox is a plain address without quotes and comments, so that it means the same in an envelope, a header and a
// mailto URL.
var mailbox = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_+=~'-]*(\.[A-Za-z0-9_+=~'-]+)*@[A-Za-z0-9.-]+$`)

// CheckMailbox reports what is wrong with an e-mail address.
func CheckMailbox(address string) error {
	user, domain, _ := strings.Cut(address, "@")
	if !mailbox.MatchString(address) || len(address) > 254 || len(user) > 64 || checkHost(domain) != nil {
		return errors.New("must be one plain e-mail address of ASCII characters, such as ops@example.com")
	}
	return nil
}
