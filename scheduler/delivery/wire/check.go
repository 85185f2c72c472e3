package wire

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// MaxHeaderValue is the longest value of a header, in bytes.
const MaxHeaderValue = 8 << 10

const maxHeaderName = 256

// Methods are the methods that a job's target may be called with.
var Methods = []string{"GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"}

// CheckMethod reports what is wrong with the method of a job's target.
func CheckMethod(method string) error {
	if slices.Contains(Methods, method) {
		return nil
	}
	return fmt.Errorf("must be one of %s, in capitals", strings.Join(Methods, ", "))
}

// reserved maps the header names that a job may not set, in lower case, to what would be right. A name that ends in
// "-" stands for all names that begin with it.
var reserved = map[string]string{
	"host":              "it follows from the URL; set target.host for another one",
	"content-length":    "it follows from the body",
	"transfer-encoding": hopByHop,
	"connection":        hopByHop,
	"keep-alive":        hopByHop,
	"proxy-":            hopByHop,
	"te":                hopByHop,
	"trailer":           hopByHop,
	"upgrade":           hopByHop,
	"http2-settings":    hopByHop,
	"expect":            "the body is always sent at once",
	"webhook-":          "it is added to every attempt, and receivers verify it",
	"idempotency-key":   "it is added to every attempt; use a name of your own for another key",
	"punctual-":         "names beginning with it are added to every attempt",
	"traceparent":       "it is added to every attempt",
}

const hopByHop = "it belongs to the connection, not to the request"

// CheckHeader reports what is wrong with a header of a job's target. The error does not repeat the value, which may
// be a secret.
func CheckHeader(name, value string) error {
	switch {
	case name == "":
		return errors.New("a header needs a name")
	case len(name) > maxHeaderName:
		return fmt.Errorf("a header's name must have at most %d bytes", maxHeaderName)
	case strings.IndexFunc(name, NotToken) >= 0:
		return fmt.Errorf("header name %q must consist of letters, digits and any of !#$%%&'*+-.^_`|~", name)
	}
	// CGI and its kin give a program HTTP_PUNCTUAL_RUN for Punctual_Run as for Punctual-Run.
	lower := strings.ReplaceAll(strings.ToLower(name), "_", "-")
	prefix, _, cut := strings.Cut(lower, "-")
	why, found := reserved[lower]
	if !found && cut {
		why, found = reserved[prefix+"-"]
	}
	switch {
	case found && strings.Contains(name, "_"):
		return fmt.Errorf("header %s cannot be set: many servers take an underscore for a hyphen, and then %s", name, why)
	case found:
		return fmt.Errorf("header %s cannot be set: %s", name, why)
	case len(value) > MaxHeaderValue:
		return fmt.Errorf("header %s must be at most %d bytes long", name, MaxHeaderValue)
	case strings.Trim(value, " \t") != value:
		return fmt.Errorf("header %s must not begin or end with a space or tab", name)
	case strings.IndexFunc(value, IsControl) >= 0:
		return fmt.Errorf("header %s must be one line without control characters", name)
	}
	return nil
}

// NotToken reports whether r cannot stand in a token of RFC 9110 section 5.6.2.
func NotToken(r rune) bool {
	return !alphanumeric(r) && !strings.ContainsRune("!#$%&'*+-.^_`|~", r)
}

func alphanumeric(r rune) bool {
	return '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z'
}

// IsControl reports whether r cannot stand in the value of a header.
func IsControl(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }

// MaxURL is the longest URL of a target, in bytes.
const MaxURL = 2048

// CheckURL parses the URL of a job's target, or reports what is wrong with it. It is stricter than [url.Parse]: what
// it accepts means the same to every parser. It does not decide which addresses may be called; package guard does.
func CheckURL(raw string) (*url.URL, error) {
	if len(raw) > MaxURL {
		return nil, fmt.Errorf("must be at most %d bytes long", MaxURL)
	}
	position := 0
	for _, c := range raw {
		if position++; notInURL(c) {
			return nil, fmt.Errorf("character %q at position %d must be percent-encoded (in a host name: punycode)", c,
				position)
		}
	}
	u, err := url.Parse(raw)
	switch {
	case err != nil:
		return nil, errors.New("must be a valid URL, such as https://example.com/hook")
	case u.Scheme != "http" && u.Scheme != "https", u.Opaque != "", u.Host == "":
		return nil, errors.New("must be an absolute http or https URL, such as https://example.com/hook")
	case u.User != nil:
		return nil, errors.New("must not hold a user or password; put them into a header")
	case strings.Contains(raw, "#"):
		return nil, errors.New("must not have a fragment (#…), as it is never sent")
	}
	if err := checkHost(u.Hostname()); err != nil {
		return nil, err
	}
	if strings.HasSuffix(u.Host, ":") {
		return nil, errors.New("must have a port after the colon, or no colon")
	}
	if p := u.Port(); p != "" {
		if n, err := strconv.ParseUint(p, 10, 16); err != nil || n == 0 {
			return nil, errors.New("must have a port between 1 and 65535")
		}
	}
	return u, nil
}

// LogHeader is the header with which a target says where people read the log of the attempt. Of every answer it is kept
// under the name KeptLog, up to a byte more than a link may have.
const (
	LogHeader = "Punctual-Log-Url"
	KeptLog   = "punctual-log-url"
)

// CheckLink parses a link for people: a URL that, unlike that of a target, may have a fragment.
func CheckLink(raw string) (*url.URL, error) {
	if len(raw) > MaxURL {
		return nil, fmt.Errorf("must be at most %d bytes long", MaxURL)
	}
	page, fragment, _ := strings.Cut(raw, "#")
	u, err := CheckURL(page)
	if err != nil {
		return nil, err
	}
	if _, err := url.Parse(raw); err != nil || strings.ContainsFunc(fragment, notInURL) {
		return nil, errors.New("must have a fragment in which special characters are percent-encoded")
	}
	return u, nil
}

// notInURL reports whether a character may stand in no URL.
func notInURL(c rune) bool { return c <= ' ' || c >= 0x7f || strings.ContainsRune("\"<>\\^`{|}", c) }

// CheckHost reports what is wrong with the host by which a job's target is called.
func CheckHost(host string) error {
	foreign := func(r rune) bool { return notInLabel(r) && !strings.ContainsRune(".:[]", r) }
	if host == "" || strings.ContainsFunc(host, foreign) {
		return errors.New("must be a host name or address, with a port if need be, such as api.internal or " +
			"api.internal:8443: without scheme, user, path and placeholders, other characters in punycode")
	}
	_, err := CheckURL("http://" + host)
	return err
}

func checkHost(host string) error {
	if strings.Contains(host, ":") { // url.Parse lets a colon through between brackets only
		if a, err := netip.ParseAddr(host); err != nil || a.Zone() != "" {
			return errors.New("must have a valid IPv6 address between the brackets, without a zone")
		}
		return nil
	}
	name := strings.TrimSuffix(host, ".")
	if name == "" || len(name) > 253 {
		return errors.New("must have a host name of 1 to 253 characters")
	}
	last := ""
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || len(label) > 63 || strings.IndexFunc(label, notInLabel) >= 0 {
			return errors.New("must have a host name of letters, digits and hyphens, in labels of 1 to 63 characters")
		}
		last = label
	}
	// Resolvers read 127.1, 2130706433 and 0x7f.0.0.1 as addresses, each in its own way.
	if endsInNumber(last) {
		if _, err := netip.ParseAddr(host); err != nil {
			return errors.New("must have an IPv4 address of four decimal numbers, such as 192.0.2.1")
		}
	}
	return nil
}

// endsInNumber reports whether a last label makes a host an address: all digits, or hexadecimal.
func endsInNumber(label string) bool {
	if hex, ok := strings.CutPrefix(strings.ToLower(label), "0x"); ok {
		return strings.Trim(hex, "0123456789abcdef") == ""
	}
	return strings.Trim(label, "0123456789") == ""
}

func notInLabel(r rune) bool { return !alphanumeric(r) && r != '-' && r != '_' }

var ports = map[string]string{"http": "80", "https": "443"}

// PortOf returns the port that an HTTP or HTTPS URL leads to.
func PortOf(u *url.URL) string { return cmp.Or(u.Port(), ports[u.Scheme]) }
