package jobs

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"time"

	"punctual/scheduler/jobspec"
)

// Encode returns a definition as job_versions stores it. It does not escape for HTML: a body keeps its characters.
func Encode(d jobspec.Definition) (string, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(d); err != nil {
		return "", fmt.Errorf("encoding the definition: %w", err)
	}
	return string(bytes.TrimSpace(b.Bytes())), nil
}

// sameDefinition reports whether b means the same as a once defaults are filled in. Bodies are compared as JSON. Texts
// are compared as written: "60s" in place of "1m" is a change, because definitions are echoed as written.
func (s *Jobs) sameDefinition(a, b jobspec.Definition) bool {
	x, errX := meaning(a, s.options.DefaultJitter)
	y, errY := meaning(b, s.options.DefaultJitter)
	return errX == nil && errY == nil && reflect.DeepEqual(x, y)
}

func meaning(d jobspec.Definition, defaultJitter time.Duration) (any, error) {
	d = d.WithDefaults()
	d.Jitter = d.EffectiveJitter(defaultJitter)
	text, err := Encode(d)
	if err != nil {
		return nil, err
	}
	var v any
	decoder := json.NewDecoder(bytes.NewReader([]byte(text)))
	decoder.UseNumber() // 2^53 + 1 is not 2^53
	err = decoder.Decode(&v)
	return v, err
}
