package delivery

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// MaxHeaderValue is the longest value of a header, in bytes.
const MaxHeaderValue = 8 << 10

const maxHeaderName = 256

var methods = []string{
	http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch,
	http.MethodDelete, http.MethodHead, http.MethodOptions,
}

// CheckMethod reports what is wrong with the method of a job's target.
func CheckMethod(method string) error {
	if slices.Contains(methods, method) {
		return nil
	}
	return fmt.Errorf("must be one of %s, in capitals", strings.Join(methods, ", "))
}

// reserved maps the header names that a job may not set, in lower case, to what would be right. A name that ends in
// "-" stands for all names that begin with it.
var reserved = map[string]string{
	"host":              "it follows from the URL",
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
		return fmt.Errorf("a header's name must have at most %d characters", maxHeaderName)
	case strings.IndexFunc(name, notToken) >= 0:
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
	case strings.IndexFunc(value, isControl) >= 0:
		return fmt.Errorf("header %s must be one line without control characters", name)
	}
	return nil
}

// notToken reports whether r cannot stand in a token of RFC 9110 section 5.6.2.
func notToken(r rune) bool {
	return (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') &&
		!strings.ContainsRune("!#$%&'*+-.^_`|~", r)
}

func isControl(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }
