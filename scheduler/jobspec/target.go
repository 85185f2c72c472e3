package jobspec

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"punctual/scheduler/delivery/wire"
	"punctual/scheduler/placeholder"
)

// bodyFills finds the placeholders of a body. A JSON string is sent as plain text, so its text is what is searched.
func bodyFills(raw []byte) (t placeholder.Template, isJSON bool, err error) {
	if !bytes.Contains(raw, []byte("{{")) && !bytes.Contains(raw, []byte(`\u007`)) {
		return t, false, nil // as most bodies have none; \u007 is for escaped braces
	}
	text, isJSON := RequestBody(raw)
	if isJSON {
		t, err = placeholder.ParseJSON(text)
	} else {
		t, err = placeholder.Parse(string(text))
	}
	return t, isJSON, err
}

// Address is the URL of a target, with the placeholders of its path and query apart.
type Address struct {
	*url.URL    // with sample values filled in
	filled      bool
	path, query placeholder.Template
}

// ParseAddress parses the URL of a job's target, which may contain placeholders in its path and query. Filling them in
// cannot change the host.
func ParseAddress(raw string) (u Address, err error) {
	_, t, sample, err := SplitURL(raw)
	if err != nil {
		return u, err
	}
	u.URL, err = wire.CheckURL(sample)
	u.filled = !t.IsZero()
	u.path, u.query, _ = t.Cut("?")
	return u, err
}

// SplitURL finds the placeholders in what follows the host of a URL. base is what comes before, and sample is the URL
// with sample values filled in. A URL without placeholders is all base.
func SplitURL(raw string) (base string, t placeholder.Template, sample string, err error) {
	if !strings.Contains(raw, "{{") {
		return raw, t, raw, nil
	}
	_, rest, _ := strings.Cut(raw, "://")
	base = raw
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		base = raw[:len(raw)-len(rest)+i]
	}
	if strings.Contains(base, "{{") {
		return base, t, "", errors.New(
			"a placeholder can stand in the path and the query only, never in the scheme, the host or the port")
	}
	t, err = placeholder.Parse(raw[len(base):])
	if err != nil {
		return base, t, "", err
	}
	if longest := len(base) + t.Longest(MaxName); longest > wire.MaxURL {
		return base, t, "", fmt.Errorf("can become %d bytes long with placeholders filled in; at most %d", longest,
			wire.MaxURL)
	}
	return base, t, string(t.Append([]byte(base), &placeholder.Values{Job: "job"}, placeholder.InURL)), nil
}

// MaxName is the longest name of a job, in bytes.
const MaxName = 128

// placeholders checks the placeholders of headers and body.
func (c *checker) placeholders(prefix string, headers map[string]string, body []byte) {
	for _, name := range sortedNames(headers) {
		t, err := placeholder.Parse(headers[name])
		if err != nil {
			c.add(prefix+"headers."+clip(name), "%v", err)
		} else if longest := t.Longest(MaxName); longest > wire.MaxHeaderValue {
			c.add(prefix+"headers."+clip(name), "can become %d bytes long with placeholders filled in; at most %d",
				longest, wire.MaxHeaderValue)
		}
	}
	t, _, err := bodyFills(body)
	if err != nil {
		c.add(prefix+"body", "%v", err)
	} else if longest := t.Longest(MaxName); longest > MaxPayload {
		c.add(prefix+"body", "can become %d bytes long with placeholders filled in; at most %d (256 KiB)",
			longest, MaxPayload)
	}
}

// RequestBody returns the bytes to send: a JSON string is sent as plain text, any other value as JSON.
func RequestBody(raw json.RawMessage) (body []byte, isJSON bool) {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 || bytes.Equal(raw, []byte("null")) {
		return nil, false
	}
	var text string
	if raw[0] == '"' && json.Unmarshal(raw, &text) == nil {
		return []byte(text), false
	}
	return raw, true
}

func (c *checker) logURL(raw string) {
	if raw == "" {
		return
	}
	_, _, sample, err := SplitURL(raw)
	if err == nil {
		_, err = wire.CheckLink(sample)
	}
	c.check("log_url", err)
}
