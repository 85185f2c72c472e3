package placeholder

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestSecretsAreFoundAtAnyDepth(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		`{"a": {"$secret": "x"}, "b": [1, {"c": {"$secret":"y"}}]}`: `a=x b[1].c=y`,
		`{"$secret": "x"}`:                               `=x`,
		`[{"$secret": "x"}]`:                             `[0]=x`,
		`{"a": {"\u0024secret": "x"}}`:                   `a=x`,
		`{"a": {"$secret": "x"}, "a": {"$secret": "y"}}`: `a=x a=y`,
		`{"a.b": {"$secret": "x"}}`:                      `a.b=x`,
		`{"a": {"$secret": "x", "b": 1}}`:                `a!`,
		`{"a": {"b": 1, "$secret": "x"}}`:                `a!`,
		`{"a": {"$secret": "x", "$secret": "y"}}`:        `a!`,
		`{"a": {"$secret": 1}}`:                          `a!`,
		`{"a": {"$secret": ""}}`:                         `a!`,
		`{"a": {"$secret": ["x"]}}`:                      `a!`,
		`{"a": {"$secret": {"$secret": "x"}}}`:           `a.$secret=x a!`,
		`{"a": "$secret", "b": ["$secret", "x"]}`:        ``,
		`{"a": {"b": "$secret"}}`:                        ``,
		`"{\"$secret\": \"x\"}"`:                         ``,
		`{"$Secret": "x", "secret": "y"}`:                ``,
		`null`:                                           ``,
		``:                                               ``,
		`{"a": {"$secret": "x"`:                          ``,
	} {
		var got []string
		for _, s := range Secrets([]byte(body)) {
			if s.Fault != "" {
				got = append(got, s.Field+"!")
				continue
			}
			got = append(got, s.Field+"="+s.Name)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %v, want %s", body, got, want)
		}
	}
}

// Whatever else a body holds keeps its bytes, and no value reaches into another.
func TestValuesTakeThePlacesOfSecrets(t *testing.T) {
	t.Parallel()
	values := map[string]string{"x": `a"b\<c>` + "\n", "y": `{"$secret":"x"}`}
	value := func(name string) (string, error) {
		if v, ok := values[name]; ok {
			return v, nil
		}
		return "", fmt.Errorf("no %s", name)
	}
	body := []byte(`{ "n":1.50, "a":{ "$secret" : "x" } ,"b":[{"$secret":"y"},"$secret"],"c":{"$secret":"x"}}`)
	got, err := FillSecrets(body, Secrets(body), value)
	want := `{ "n":1.50, "a":"a\"b\\<c>\n" ,"b":["{\"$secret\":\"x\"}","$secret"],"c":"a\"b\\<c>\n"}`
	if err != nil || string(got) != want {
		t.Errorf("%s, %v; want %s", got, err, want)
	}
	body = []byte(`{"a":{"$secret":"z"}}`)
	if _, err := FillSecrets(body, Secrets(body), value); err == nil {
		t.Error("a missing secret is no error")
	}
}

// However they are nested, as many secrets are found as were written, and each is filled in where it stands.
func TestEverySecretIsFilledIn(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := 0
		var value func(depth int) any
		value = func(depth int) any {
			switch kind := rapid.IntRange(0, 6).Draw(t, "kind"); {
			case kind < 2:
				n++
				return map[string]any{"$secret": fmt.Sprint("s", n)}
			case kind == 2 && depth < 5:
				return []any{value(depth + 1), value(depth + 1)}
			case kind == 3 && depth < 5:
				return map[string]any{"a": value(depth + 1), rapid.StringMatching(`[a-z"{$]{1,3}`).Draw(t, "b"): value(depth + 1)}
			case kind == 4:
				return rapid.String().Draw(t, "text")
			}
			return rapid.Float64().Draw(t, "number")
		}
		body, err := json.Marshal(value(0))
		if err != nil {
			t.Fatal(err)
		}
		written := strings.Count(string(body), `{"$secret":`)
		found := Secrets(body)
		if len(found) != written {
			t.Fatalf("%s: %v", body, found)
		}
		filled, err := FillSecrets(body, found, func(name string) (string, error) { return "value of " + name, nil })
		if err != nil || !json.Valid(filled) || strings.Count(string(filled), `"value of s`) != written {
			t.Fatalf("%s: %s, %v", body, filled, err)
		}
	})
}
