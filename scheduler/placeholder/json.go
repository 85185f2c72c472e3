package placeholder

import (
	"bytes"
	"encoding/json"
)

// ParseJSON finds the placeholders in the strings of the JSON of an attempt.
func ParseJSON(raw []byte) (Template, error) { return ofRuns.ParseJSON(raw) }

// ParseJSON finds the placeholders in the strings of a JSON value, at any depth. It leaves names of fields alone, and
// all else keeps its bytes. The template is filled in with InJSON.
func (s Set) ParseJSON(raw []byte) (Template, error) {
	var t Template
	from := 0 // start of what is not in the template yet
	for i := 0; i < len(raw); i++ {
		if raw[i] != '"' {
			continue
		}
		end := i + quoted(raw[i:])
		inner, err := s.parseString(raw[i:end], raw[end:])
		if err != nil {
			return Template{}, err
		}
		if !inner.IsZero() {
			for k, p := range inner.parts {
				p.literal = escaped(p.literal)
				if k == 0 {
					p.literal = string(raw[from:i+1]) + p.literal
				}
				t.parts = append(t.parts, p)
			}
			from = end - 1
		}
		i = end - 1
	}
	if !t.IsZero() {
		t.parts = append(t.parts, part{literal: string(raw[from:])})
	}
	return t, nil
}

// parseString finds the placeholders of a string literal, unless what follows makes it the name of a field.
func (s Set) parseString(text, following []byte) (Template, error) {
	if !bytes.Contains(text, []byte(opening)) && bytes.IndexByte(text, '\\') < 0 { // braces may be written as \u007b
		return Template{}, nil
	}
	if rest := bytes.TrimLeft(following, " \t\r\n"); len(rest) > 0 && rest[0] == ':' {
		return Template{}, nil
	}
	var value string
	if json.Unmarshal(text, &value) != nil {
		return Template{}, nil //nolint:nilerr // what is not JSON is others' to report
	}
	return s.Parse(value)
}

// quoted returns the length of the string literal that b begins with.
func quoted(b []byte) int {
	for i := 1; i < len(b); i++ {
		switch b[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(b)
}

// escaped writes a text as it stands within the quotes of a JSON string.
func escaped(text string) string {
	quoted := quotedText(text)
	return string(quoted[1 : len(quoted)-1])
}

// quotedText writes a text as a JSON string.
func quotedText(text string) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(text) // never fails for a string
	return bytes.TrimSpace(b.Bytes())
}
