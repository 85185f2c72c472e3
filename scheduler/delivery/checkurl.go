package delivery

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
)

// MaxURL is the longest URL of a target, in bytes.
const MaxURL = 2048

// CheckURL parses the URL of a job's target, or reports what is wrong with it. It is stricter than [url.Parse]: what
// it accepts means the same to every parser. It does not decide which addresses may be called; [Config.Guard] does.
func CheckURL(raw string) (*url.URL, error) {
	if len(raw) > MaxURL {
		return nil, fmt.Errorf("must be at most %d bytes long", MaxURL)
	}
	for i := range len(raw) {
		if c := raw[i]; c <= ' ' || c >= 0x7f || strings.IndexByte("\"<>\\^`{|}", c) >= 0 {
			return nil, fmt.Errorf("character %q at position %d must be percent-encoded (in a host name: punycode)", c, i+1)
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

func notInLabel(r rune) bool {
	return (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && r != '-' && r != '_'
}
