package audit_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"punctual/store/audit"
)

func TestMaskedDefinitionsHaveNoSecrets(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"target":{"url":"https://x"}}`: `{"target":{"url":"https://x"}}`,
		`{"target":{"headers":{"content-type":"text/plain"}},"n":12345678901234567890}`: `{"target":` +
			`{"headers":{"content-type":"text/plain"}},"n":12345678901234567890}`,
		`{"target":{"headers":{"Authorization":"Bearer s3cret","X-Team":"a"}}}`: `{"target":` +
			`{"headers":{"Authorization":"***","X-Team":"a"}}}`,
		`{"target":{"headers":{"cookie":"s3cret","x-auth-token":"s3cret","api-key":"s"}}}`: `{"target":` +
			`{"headers":{"api-key":"***","cookie":"***","x-auth-token":"***"}}}`,
		`{"target":{"headers":{"X-Client-Secret":"s3cret","Keyboard":"qwerty"}}}`: `{"target":` +
			`{"headers":{"Keyboard":"qwerty","X-Client-Secret":"***"}}}`,
		`{"target":{"auth":{"type":"bearer","secret":"billing-token"}}}`: `{"target":` +
			`{"auth":{"type":"bearer","secret":"billing-token"}}}`,
		`{"target":{"auth":{"type":"bearer","value":{"enc":"s3cret"}}}}`: `{"target":` +
			`{"auth":{"type":"bearer","value":"***"}}}`,
		`{"target":{"secret_headers":{"x":"s3cret"}},"steps":[{"target":{"auth":{"value":"s3cret"}}}]}`: `{"steps":` +
			`[{"target":{"auth":{"value":"***"}}}],"target":{"secret_headers":{"x":"***"}}}`,
		`{"target":{"body":{"auth":{"value":1}},"headers":{"a":"b"}}}`: `{"target":` +
			`{"body":{"auth":{"value":1}},"headers":{"a":"b"}}}`,
		`{"auth": broken`: `"***"`,
	} {
		if diff := cmp.Diff(want, audit.MaskDefinition(text)); diff != "" {
			t.Errorf("%s: %s", text, diff)
		}
	}
}
