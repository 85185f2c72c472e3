package domain

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"net/textproto"
	"net/url"
	"strings"

	"punctual/scheduler/delivery/wire"
	"punctual/scheduler/placeholder"
)

// fills are the parts of a request that contain placeholders, compiled. Most jobs have none, and pay nothing for them.
type fills struct {
	url     targetURL
	headers map[string]placeholder.Template
	body    placeholder.Template
	isJSON  bool // the body is JSON
}

// newFills returns nil for a request without placeholders.
func newFills(target Target, u targetURL) (*fills, error) {
	headers, err := headerFills(target.Headers)
	if err != nil {
		return nil, fmt.Errorf("target.headers: %w", err)
	}
	body, isJSON, err := bodyFills(target.Body)
	if err != nil {
		return nil, fmt.Errorf("target.body: %w", err)
	}
	if !u.filled && headers == nil && body.IsZero() {
		return nil, nil
	}
	return &fills{url: u, headers: headers, body: body, isJSON: isJSON}, nil
}

// of returns the fills of an attempt. A body or headers of the run's own replace those of the job, and are data: braces
// in them are no placeholders. Of a body that is made of the job's own, those of the job are filled in.
func (f *fills) of(a Assignment) *fills {
	if a.Trigger == TriggerNotify {
		return nil
	}
	if a.Body == nil && a.Headers == nil {
		return f
	}
	var own fills
	if f != nil {
		own = *f
	}
	switch {
	case a.Body == nil:
	case a.Template:
		own.body, own.isJSON, _ = bodyFills(a.Body) // it was checked with the job
	default:
		own.body = placeholder.Template{}
	}
	if a.Headers != nil {
		own.headers = nil
	}
	if !own.url.filled && own.headers == nil && own.body.IsZero() {
		return nil
	}
	return &own
}

// fill fills in the values of an attempt. It copies what the request shares with other attempts' requests.
func (f *fills) fill(r *wire.Request, v *placeholder.Values) {
	if f.url.filled {
		u := *r.URL
		u.RawPath = string(f.url.path.Append(nil, v, placeholder.InURL))
		u.Path, _ = url.PathUnescape(u.RawPath) // cannot fail: the path was checked, and values are escaped
		u.RawQuery = string(f.url.query.Append(nil, v, placeholder.InURL))
		r.URL = &u
	}
	if len(f.headers) > 0 {
		r.Header = maps.Clone(r.Header)
		for name, t := range f.headers {
			r.Header[name] = []string{string(t.Append(nil, v, placeholder.InText))}
		}
	}
	if f.body.IsZero() {
		return
	}
	place := placeholder.InText
	media := strings.ToLower(textproto.MIMEHeader(r.Header).Get("Content-Type"))
	switch {
	case f.isJSON:
		place = placeholder.InJSON
	case strings.HasPrefix(media, "application/x-www-form-urlencoded"):
		place = placeholder.InURL
	}
	r.Body = f.body.Append(make([]byte, 0, f.body.Longest(len(v.Job))), v, place)
}

// values are the values of an attempt's placeholders. A notice, whose job may have no timetable, has none.
func (a Assignment) values() *placeholder.Values {
	return &placeholder.Values{
		ScheduledFor: a.ScheduledFor, Zone: a.Job.Timetable.zone, Run: a.RunID, Attempt: a.Attempt, Job: a.Job.Name,
	}
}

// headerFills returns the headers that contain placeholders, by canonical name; nil when there are none.
func headerFills(headers map[string]string) (filled map[string]placeholder.Template, err error) {
	for name, value := range headers {
		t, err := placeholder.Parse(value)
		if err != nil {
			return nil, err
		}
		if t.IsZero() {
			continue
		}
		if filled == nil {
			filled = map[string]placeholder.Template{}
		}
		filled[textproto.CanonicalMIMEHeaderKey(name)] = t
	}
	return filled, nil
}

// bodyFills finds the placeholders of a body. A JSON string is sent as plain text, so its text is what is searched.
func bodyFills(raw []byte) (t placeholder.Template, isJSON bool, err error) {
	if !bytes.Contains(raw, []byte("{{")) && !bytes.Contains(raw, []byte(`\u007`)) {
		return t, false, nil // as most bodies have none; \u007 is for escaped braces
	}
	text, isJSON := requestBody(raw)
	if isJSON {
		t, err = placeholder.ParseJSON(text)
	} else {
		t, err = placeholder.Parse(string(text))
	}
	return t, isJSON, err
}

// targetURL is the URL of a target, with the placeholders of its path and query apart.
type targetURL struct {
	*url.URL    // with sample values filled in
	filled      bool
	path, query placeholder.Template
}

// ParseTarget parses the URL of a job's target, which may contain placeholders in its path and query. Filling them in
// cannot change the host.
func ParseTarget(raw string) (*url.URL, error) {
	u, err := parseTarget(raw)
	return u.URL, err
}

func parseTarget(raw string) (u targetURL, err error) {
	_, t, sample, err := parseURL(raw)
	if err != nil {
		return u, err
	}
	u.URL, err = wire.CheckURL(sample)
	u.filled = !t.IsZero()
	u.path, u.query, _ = t.Cut("?")
	return u, err
}

// parseURL finds the placeholders in what follows the host of a URL. base is what comes before, and sample is the URL
// with sample values filled in. A URL without placeholders is all base.
func parseURL(raw string) (base string, t placeholder.Template, sample string, err error) {
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
	if longest := len(base) + t.Longest(maxNameLength); longest > wire.MaxURL {
		return base, t, "", fmt.Errorf("can become %d bytes long with placeholders filled in; at most %d", longest,
			wire.MaxURL)
	}
	return base, t, string(t.Append([]byte(base), &placeholder.Values{Job: "job"}, placeholder.InURL)), nil
}

// maxNameLength is the longest name of a job, in bytes.
const maxNameLength = 128

// placeholders checks the placeholders of headers and body.
func (c *checker) placeholders(prefix string, headers map[string]string, body []byte) {
	for _, name := range sortedNames(headers) {
		t, err := placeholder.Parse(headers[name])
		if err != nil {
			c.add(prefix+"headers."+clip(name), "%v", err)
		} else if longest := t.Longest(maxNameLength); longest > wire.MaxHeaderValue {
			c.add(prefix+"headers."+clip(name), "can become %d bytes long with placeholders filled in; at most %d",
				longest, wire.MaxHeaderValue)
		}
	}
	t, _, err := bodyFills(body)
	if err != nil {
		c.add(prefix+"body", "%v", err)
	} else if longest := t.Longest(maxNameLength); longest > MaxPayload {
		c.add(prefix+"body", "can become %d bytes long with placeholders filled in; at most %d (256 KiB)",
			longest, MaxPayload)
	}
}
