package jobspec

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/google/uuid"

	"punctual/scheduler/placeholder"
)

// Mask stands for a secret wherever a definition is shown.
const Mask = "***"

// SecretName matches names of headers whose values are not for everybody who may see the rest. It rather matches one
// too many.
var SecretName = regexp.MustCompile(
	`(?i)auth|cookie|token|secret|passw|credential|session|signature|(^|[-_])(api)?key([-_]|$)`)

// Hidden is a secret text of a definition. It is the value that somebody wrote, or the wish to keep the stored value,
// or, once stored, the id under which the store keeps the value. Whatever prints a Hidden gets the id or the mask,
// never the value; only Value returns that.
type Hidden struct {
	value  string
	sealed uuid.UUID
	kept   bool
}

// HiddenOf returns a value as somebody wrote it.
func HiddenOf(value string) Hidden { return Hidden{value: value} }

// SealedAs returns a value that the store keeps under an id.
func SealedAs(id uuid.UUID) Hidden { return Hidden{sealed: id} }

// KeptSecret stands for the value that is stored in its place already.
func KeptSecret() Hidden { return Hidden{kept: true} }

// Kept reports whether h stands for the value that is stored in its place already.
func (h Hidden) Kept() bool { return h.kept }

// Value returns the value that was written; empty once it is stored.
func (h Hidden) Value() string { return h.value }

// Sealed returns the id under which the store keeps the value; ok is false for a value that was just written.
func (h Hidden) Sealed() (id uuid.UUID, ok bool) { return h.sealed, h.sealed != uuid.Nil }

// IsZero reports whether the field was absent.
func (h Hidden) IsZero() bool { return h == Hidden{} }

// String returns the mask.
func (h Hidden) String() string { return Mask }

// GoString returns the mask.
func (h Hidden) GoString() string { return Mask }

// LogValue returns the mask.
func (h Hidden) LogValue() slog.Value { return slog.StringValue(Mask) }

// sealedForm is how stored definitions name a secret. A value that somebody writes is a string, so neither passes for
// the other.
type sealedForm struct {
	Sealed uuid.UUID `json:"sealed"`
}

// MarshalJSON writes the id of a stored value, and the mask for any other.
func (h Hidden) MarshalJSON() ([]byte, error) {
	if id, ok := h.Sealed(); ok {
		return json.Marshal(sealedForm{id})
	}
	return []byte(`"` + Mask + `"`), nil
}

// UnmarshalJSON reads a value, or the id of a stored one. As encoding/json asks, null changes nothing.
func (h *Hidden) UnmarshalJSON(raw []byte) error {
	if string(raw) == "null" {
		return nil
	}
	if raw = bytes.TrimSpace(raw); len(raw) > 0 && raw[0] == '"' {
		var value string
		err := json.Unmarshal(raw, &value)
		*h = HiddenOf(value)
		return err
	}
	var form sealedForm
	strict := json.NewDecoder(bytes.NewReader(raw))
	strict.DisallowUnknownFields()
	if err := strict.Decode(&form); err != nil || form.Sealed == uuid.Nil {
		return fmt.Errorf("a secret must be a string, or an object that names the stored value")
	}
	*h = SealedAs(form.Sealed)
	return nil
}

// Masked returns d as it may be shown: with the mask in place of every secret.
func (d Definition) Masked() Definition {
	d.EachHidden(func(_ string, h *Hidden) { *h = HiddenOf(Mask) })
	return d
}

// EachTarget visits the targets of a definition, and lets visit change them: its own, or those of its steps. field is
// the path of a target. That of a step goes by the step's name, steps[load].target, because a secret that is kept stays
// with its step, wherever the step then stands. Path says where it stands.
func (d *Definition) EachTarget(visit func(field string, t *Target)) {
	if !d.IsWorkflow() {
		visit("target", &d.Target)
		return
	}
	d.Steps = slices.Clone(d.Steps)
	for i := range d.Steps {
		if d.Steps[i].Approval != nil {
			continue // it has none
		}
		visit("steps["+d.Steps[i].Name+"].target", &d.Steps[i].Target)
	}
}

// Path returns the path in the JSON of a definition of a field, as EachTarget, EachHidden and SecretNames name it.
func (d Definition) Path(field string) string {
	name, rest, ok := strings.Cut(strings.TrimPrefix(field, "steps["), "].") // names have no brackets
	if at := slices.Index(StepNames(d.Steps), name); ok && at >= 0 {
		return fmt.Sprintf("steps[%d].%s", at, rest)
	}
	return field
}

// EachHidden visits the secrets of a definition in order of their fields, and lets visit change them. It copies what
// the definition shares with others before.
func (d *Definition) EachHidden(visit func(field string, h *Hidden)) {
	d.EachTarget(func(at string, t *Target) {
		if t.Auth != nil && !t.Auth.Value.IsZero() {
			auth := *t.Auth
			visit(at+".auth.value", &auth.Value)
			t.Auth = &auth
		}
		if len(t.SecretHeaders) == 0 {
			return
		}
		headers := make(map[string]Hidden, len(t.SecretHeaders))
		for _, name := range sortedNames(t.SecretHeaders) {
			h := t.SecretHeaders[name]
			visit(at+".secret_headers."+name, &h)
			headers[name] = h
		}
		t.SecretHeaders = headers
	})
}

// HasSecrets reports whether a definition holds secrets or refers to some.
func (d Definition) HasSecrets() (has bool) {
	d.EachTarget(func(_ string, t *Target) {
		has = has || t.Auth != nil || len(t.SecretHeaders) > 0 || t.TLS != nil || placeholder.Secrets(t.Body) != nil
	})
	return has || slices.ContainsFunc(d.Notify, func(n Notify) bool { return n.Secret != "" })
}

// SecretNames returns the named secrets that a definition refers to, by the fields that name them.
func (d Definition) SecretNames() map[string]string {
	names := map[string]string{}
	d.EachTarget(func(at string, t *Target) {
		if a := t.Auth; a != nil {
			names[at+".auth.secret"] = a.Secret
		}
		if t := t.TLS; t != nil {
			names[at+".tls.client_certificate"], names[at+".tls.ca"] = t.ClientCertificate, t.CA
		}
		for i, s := range placeholder.Secrets(t.Body) {
			field := bodyField(at+".body", s)
			if _, twice := names[field]; twice { // a body may repeat names
				field += fmt.Sprintf(" (secret %d)", i+1)
			}
			names[field] = s.Name
		}
	})
	for i, entry := range d.Notify {
		names[fmt.Sprintf("notify[%d].secret", i)] = entry.Secret
	}
	maps.DeleteFunc(names, func(_, name string) bool { return name == "" })
	return names
}
