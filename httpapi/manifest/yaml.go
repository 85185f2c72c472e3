package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
)

// YAML returns a value as YAML for people, with its fields in the order of the JSON.
func YAML(v any) (string, error) {
	raw, err := json.Marshal(v)
	if err != nil {
		return "", err
	}
	var document yaml.Node // JSON is YAML, too
	if err := yaml.Unmarshal(raw, &document); err != nil {
		return "", err
	}
	plain(&document)
	var out bytes.Buffer
	e := yaml.NewEncoder(&out)
	e.SetIndent(2)
	if err := e.Encode(&document); err != nil {
		return "", err
	}
	return out.String(), e.Close()
}

// plain lets the encoder choose how each value is written.
func plain(n *yaml.Node) {
	n.Style = 0
	for _, part := range n.Content {
		plain(part)
	}
}

// readYAML returns the documents of a text as JSON.
func readYAML(text []byte) (documents []json.RawMessage, err error) {
	d := yaml.NewDecoder(bytes.NewReader(text))
	for {
		var n yaml.Node
		err := d.Decode(&n)
		if errors.Is(err, io.EOF) {
			return documents, nil
		}
		if err != nil {
			return nil, hinted(err)
		}
		document, err := toJSON(&n)
		if err != nil {
			return nil, err
		}
		documents = append(documents, document)
	}
}

// hinted adds what to do about the mistake that a cron expression invites.
func hinted(err error) error {
	if strings.Contains(err.Error(), "expected alphabetic or numeric character") {
		return fmt.Errorf(`%w: in YAML, a text that begins with * needs quotes, as in cron: "*/5 * * * *"`, err)
	}
	return err
}

func toJSON(n *yaml.Node) (json.RawMessage, error) {
	var probe any // the library finds repeated names, names that are no text, and aliases without an end
	if err := n.Decode(&probe); err != nil {
		return nil, err
	}
	v, err := value(n)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	err = e.Encode(v)
	return bytes.TrimSpace(out.Bytes()), err
}

// value returns what a node stands for, in the types of encoding/json.
func value(n *yaml.Node) (any, error) {
	switch n.Kind {
	case yaml.DocumentNode:
		return value(n.Content[0])
	case yaml.AliasNode:
		return value(n.Alias)
	case yaml.SequenceNode:
		return list(n)
	case yaml.MappingNode:
		return object(n)
	}
	return scalar(n)
}

func list(n *yaml.Node) (any, error) {
	items := make([]any, len(n.Content))
	var err error
	for i, item := range n.Content {
		if items[i], err = value(item); err != nil {
			return nil, err
		}
	}
	return items, nil
}

func object(n *yaml.Node) (any, error) {
	fields := map[string]any{}
	var defaults []any // of merge keys: <<: *defaults
	for i := 0; i+1 < len(n.Content); i += 2 {
		name := n.Content[i]
		if name.Kind == yaml.AliasNode {
			name = name.Alias
		}
		v, err := value(n.Content[i+1])
		switch {
		case err != nil:
			return nil, err
		case name.ShortTag() == "!!merge":
			defaults = append(defaults, v)
		default:
			fields[name.Value] = v
		}
	}
	merge(fields, defaults)
	return fields, nil
}

// merge adds the fields of defaults that an object has not. Of several defaults, the first counts.
func merge(fields map[string]any, defaults []any) {
	for _, from := range defaults {
		switch from := from.(type) {
		case []any:
			merge(fields, from)
		case map[string]any:
			for name, v := range from {
				if _, ok := fields[name]; !ok {
					fields[name] = v
				}
			}
		}
	}
}

// ambiguous is a number that YAML 1.1 reads as octal, and YAML 1.2 and people as decimal.
var ambiguous = regexp.MustCompile(`^[-+]?0[0-9_]+$`)

// scalar keeps numbers and instants as they are written: 1.0 stays 1.0, and 2026-12-01 does not become a time.
func scalar(n *yaml.Node) (v any, err error) {
	switch n.ShortTag() {
	case "!!null":
		return nil, nil
	case "!!bool", "!!int", "!!float":
		if ambiguous.MatchString(n.Value) {
			return nil, fmt.Errorf("line %d: %s is octal to some programs and decimal to others: "+
				"write it without the zero, or in quotes", n.Line, n.Value)
		}
		if json.Valid([]byte(n.Value)) {
			return json.RawMessage(n.Value), nil
		}
		err = n.Decode(&v)
		return v, err
	}
	return n.Value, nil
}
