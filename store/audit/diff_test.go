package audit_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"punctual/store/audit"
)

func TestDifferencesAreFieldByField(t *testing.T) {
	t.Parallel()
	const sealed = `{"target":{"auth":{"type":"bearer","value":{"sealed":"019a3c5e-7d10-7c3e-9a44-0c6d5f0e8b1%d"}}}}`
	for _, c := range []struct{ before, after, want string }{
		{`{}`, `{}`, ""},
		{`{"a":{"b":1,"c":[1,2]}}`, `{"a":{"b":2,"c":[1,3]},"d":"x"}`, "a.b 1 2, a.c [1,2] [1,3], d  \"x\", "},
		{`{"a":null}`, `{"labels":{}}`, ""},
		{fmt.Sprintf(sealed, 1), fmt.Sprintf(sealed, 1), ""},
		{fmt.Sprintf(sealed, 1), fmt.Sprintf(sealed, 2), `target.auth.value "***" "***", `},
		{
			`{"target":{"headers":{"X-Api-Key":"s3cret"}}}`, `{"target":{"headers":{"X-Api-Key":"t3cret","X":"1"}}}`,
			`target.headers.X  "1", target.headers.X-Api-Key "***" "***", `,
		},
		{
			`{"target":{"secret_headers":{"X":{"sealed":"019a3c5e-7d10-7c3e-9a44-0c6d5f0e8b11"}}}}`, `{"target":{}}`,
			`target.secret_headers.X "***" , `,
		},
	} {
		got := ""
		for _, d := range audit.DefinitionDifferences(c.before, c.after) {
			got += fmt.Sprintf("%s %s %s, ", d.Field, d.Before, d.After)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s → %s: %s", c.before, c.after, diff)
		}
	}
}
