package credential

import (
	"bytes"
	"cmp"
	"encoding/json"
	"net/url"
	"slices"
	"strings"

	"punctual/scheduler/delivery"
	"punctual/scheduler/delivery/wire"
	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
)

// leastTail is the shortest part of a secret, in bytes, that is worth hiding where a body was cut off within it.
const leastTail = 4

// scrub removes the secrets that a request contained from what is kept of the answer, because targets echo requests.
// It finds them as they were sent, and as JSON and URLs write them.
func scrub(r *wire.Result, secrets []string) {
	if !domain.MayHaveResult(r.JSON) {
		r.JSON = nil // there is nothing in it to keep
	}
	if len(secrets) == 0 || len(r.Body) == 0 && r.Error == "" && len(r.JSON) == 0 && len(r.Header) == 0 {
		return
	}
	body := string(r.Body)
	for _, form := range formsOf(secrets) {
		body = strings.ReplaceAll(body, form, jobspec.Mask)
		r.Error = strings.ReplaceAll(r.Error, form, jobspec.Mask)
		r.JSON = bytes.ReplaceAll(r.JSON, []byte(form), []byte(jobspec.Mask))
		for name, value := range r.Header {
			r.Header[name] = strings.ReplaceAll(value, form, jobspec.Mask)
			if len(value) == delivery.MaxKeptHeader { // it may have been cut
				r.Header[name] = scrubTail(r.Header[name], form)
			}
		}
		if r.Truncated {
			body = scrubTail(body, form)
		}
	}
	if len(r.Body) > 0 {
		r.Body = []byte(body)
	}
}

// formsOf returns the forms in which secrets may be written, none of them empty. The longest come first: once a
// shorter form within a longer one was removed, the rest of the longer one would not be found.
func formsOf(secrets []string) []string {
	var forms []string
	for _, secret := range secrets {
		if secret == "" {
			continue
		}
		forms = append(forms, secret, url.QueryEscape(secret), url.PathEscape(secret))
		for _, escapeHTML := range []bool{true, false} {
			text := quoted(secret, escapeHTML)
			forms = append(forms, text, strings.ReplaceAll(text, "/", `\/`)) // PHP escapes slashes in JSON
		}
	}
	slices.SortFunc(forms, func(a, b string) int { return cmp.Or(cmp.Compare(len(b), len(a)), strings.Compare(a, b)) })
	return slices.Compact(forms)
}

// quoted writes a secret as it stands within the quotes of a JSON string. Go escapes <, > and & unless told not to, and
// most others do not.
func quoted(secret string, escapeHTML bool) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(escapeHTML)
	_ = e.Encode(secret) // never fails for a string
	return strings.TrimSuffix(strings.TrimPrefix(strings.TrimSuffix(b.String(), "\n"), `"`), `"`)
}

// scrubTail hides the beginning of a secret at the end of a body that was cut off there.
func scrubTail(body, secret string) string {
	for n := min(len(secret)-1, len(body)); n >= leastTail; n-- {
		if strings.HasSuffix(body, secret[:n]) {
			return body[:len(body)-n] + jobspec.Mask
		}
	}
	return body
}
