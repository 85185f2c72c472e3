package jobspec

import (
	"fmt"
	"maps"
	"net/textproto"
	"net/url"
	"strings"

	"punctual/scheduler/delivery/wire"
	"punctual/scheduler/placeholder"
)

// Fills are the parts of a request that contain placeholders, compiled. Most jobs have none, and pay nothing for them.
type Fills struct {
	url     Address
	headers map[string]placeholder.Template
	body    placeholder.Template
	isJSON  bool // the body is JSON
}

// NewFills returns nil for a request without placeholders.
func NewFills(target Target, u Address) (*Fills, error) {
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
	return &Fills{url: u, headers: headers, body: body, isJSON: isJSON}, nil
}

// Own returns the fills of a request with a body or headers of its own, which replace those of the definition. They are
// data: braces in them are no placeholders. Of a body that is made of the definition's own, as template says, those of
// the definition are filled in.
func (f *Fills) Own(body []byte, template, headers bool) *Fills {
	var own Fills
	if f != nil {
		own = *f
	}
	switch {
	case body == nil:
	case template:
		own.body, own.isJSON, _ = bodyFills(body) // it was checked with the definition
	default:
		own.body = placeholder.Template{}
	}
	if headers {
		own.headers = nil
	}
	if !own.url.filled && own.headers == nil && own.body.IsZero() {
		return nil
	}
	return &own
}

// Fill fills in the values of an attempt. It copies what the request shares with other attempts' requests.
func (f *Fills) Fill(r *wire.Request, v *placeholder.Values) {
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
