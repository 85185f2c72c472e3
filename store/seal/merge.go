package seal

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// parted is a body whose parts SQL could not put together, because one of them is sealed: see enterUpstream of package
// claim.
type parted struct {
	Own      jsontext.Value `json:"own"`      // the job's own body, an object; null: it has none
	Upstream jsontext.Value `json:"upstream"` // what made the run
}

// OpenBody returns a body as it was given.
func (s *Sealer) OpenBody(stored []byte) ([]byte, error) {
	if parts, is := bytes.CutPrefix(stored, []byte(merged)); is {
		return s.merge(parts)
	}
	value, err := s.read(stored, "")
	return bytes.Clone(value), err
}

// merge puts a body together. The job's own members come first. There may be placeholders in them, so braces in what is
// added are escaped, as punctual.escaped_braces does.
func (s *Sealer) merge(raw []byte) ([]byte, error) {
	var p parted
	lax := []json.Options{jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)}
	if err := json.Unmarshal(raw, &p, lax...); err != nil {
		return nil, &OpenError{fmt.Errorf("its parts: %w", err)}
	}
	upstream, err := s.members(p.Upstream, "", "result")
	if err != nil {
		return nil, err
	}
	if p.Own.Kind() != '{' && p.Own.Kind() != '"' {
		return fmt.Appendf(nil, `{"upstream":{%s}}`, upstream), nil
	}
	own, err := s.read(p.Own, `"`)
	if err != nil {
		return nil, err
	}
	if own, err = s.members(own, "upstream", ""); err != nil {
		return nil, err
	}
	if len(own) > 0 {
		own = append(own, ',')
	}
	return fmt.Appendf(nil, `{%s"upstream":{%s}}`, own, doubled.Replace(written.Replace(string(upstream)))), nil
}

// Braces are escaped in two steps. A backslash that is escaped begins no escape.
var (
	written = strings.NewReplacer(`\\`, `\\`, `\u007b`, `{`, `\u007B`, `{`)
	doubled = strings.NewReplacer(`{{`, `{{{{`)
)

// members returns the members of an object without one (but), and with another opened.
func (s *Sealer) members(object []byte, but, open string) (members []byte, err error) {
	d := jsontext.NewDecoder(bytes.NewReader(object), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	if _, err := d.ReadToken(); err != nil {
		return nil, &OpenError{err}
	}
	for d.PeekKind() == '"' {
		token, err := d.ReadToken()
		if err != nil {
			return nil, &OpenError{err}
		}
		name := token.String()
		value, err := d.ReadValue()
		if err != nil {
			return nil, &OpenError{err}
		}
		if name == but {
			continue
		}
		if name == open {
			if value, err = s.read(value, `"`); err != nil {
				return nil, err
			}
		}
		if len(members) > 0 {
			members = append(members, ',')
		}
		if members, err = jsontext.AppendQuote(members, name); err != nil {
			return nil, &OpenError{err}
		}
		members = append(append(members, ':'), value...)
	}
	return members, nil
}
