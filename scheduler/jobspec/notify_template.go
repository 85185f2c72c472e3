package jobspec

import (
	"encoding/json"
	"errors"
	"regexp"
	"strings"

	"punctual/scheduler/placeholder"
)

// maxTemplate bounds a template of notices, in bytes.
const maxTemplate = 10_000

// noticeFields are the placeholders of a template of notices.
var noticeFields = placeholder.NewSet("headline", "state", "kind", "key", "tenant", "since", "cause", "events", "jobs",
	"job_count", "host", "reason", "error", "runbook", "labels", "link")

// likeJSON matches the start of a text that is meant to be JSON.
var likeJSON = regexp.MustCompile(`^(\{\s*"|\[\s*"|\[\s*\{\s*")`)

// FillTemplate fills values into a template of notices. A template that is JSON stays JSON; isJSON says whether it is.
func FillTemplate(template string, values map[string]string) (body []byte, isJSON bool, err error) {
	t, isJSON, err := parseTemplate(template)
	if err != nil || t.IsZero() {
		return []byte(template), isJSON, err
	}
	place := placeholder.InText
	if isJSON {
		place = placeholder.InJSON
	}
	return t.Append(nil, &placeholder.Values{Texts: values}, place), isJSON, nil
}

func parseTemplate(template string) (t placeholder.Template, isJSON bool, err error) {
	text := strings.TrimSpace(template)
	if json.Valid([]byte(text)) {
		isJSON = strings.HasPrefix(text, "{") || strings.HasPrefix(text, "[")
	} else if likeJSON.MatchString(text) {
		return t, false, errors.New("begins like JSON and is none; placeholders stand within strings, as in " +
			`{"text": "{{headline}}"}`)
	}
	if isJSON {
		t, err = noticeFields.ParseJSON([]byte(template))
	} else {
		t, err = noticeFields.Parse(template)
	}
	return t, isJSON, err
}

// template checks what only format template has.
func (c *checker) template(at string, n Notify) {
	switch {
	case !c.ofFormat(at, n, FormatTemplate, n.Template, `text with placeholders, such as {"text": "{{headline}}"}`):
	case len(n.Template) > maxTemplate:
		c.add(at, "%d bytes; at most %d", len(n.Template), maxTemplate)
	default:
		_, _, err := parseTemplate(n.Template)
		c.check(at, err)
	}
}
