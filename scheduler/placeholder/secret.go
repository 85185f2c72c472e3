package placeholder

import (
	"bytes"

	"github.com/go-json-experiment/json/jsontext"
)

// secretMember is the one member of an object that stands for a secret.
const secretMember = "$secret"

// Secret is an object {"$secret": "name"} in a JSON body. The value of the secret is sent in its place.
type Secret struct {
	Name       string
	Member     string // the member of the body in which it stands; empty: the body is no object, or the secret itself
	Field      string // where it stands, such as items[0].token; empty: it is the whole body
	Fault      string // why it stands for no secret, in words that follow its field; empty: it does
	start, end int    // in the body
}

// Secrets finds the secrets of a JSON body, at any depth, in the order in which they stand. A body that is a string has
// none: it is text.
func Secrets(body []byte) (all []Secret) {
	if !bytes.Contains(body, []byte(secretMember)) && !bytes.Contains(body, []byte(`\u00`)) { // it may be escaped
		return nil
	}
	in := jsontext.NewDecoder(bytes.NewReader(body), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	var open []object
	for {
		token, err := in.ReadToken()
		if err != nil {
			return all // at the end. What is not JSON is others' to report
		}
		if token.Kind() == '}' {
			last := open[len(open)-1]
			open = open[:len(open)-1]
			if s, is := last.secret(); is {
				s.end = int(in.InputOffset())
				all = append(all, s)
			}
		}
		container, length := in.StackIndex(in.StackDepth())
		switch inObject := container == '{' && len(open) > 0; {
		case token.Kind() == '{':
			open = append(open, begun(in))
		case inObject && length%2 == 1:
			open[len(open)-1].name(token.String())
		case inObject && token.Kind() == '"':
			open[len(open)-1].text(token.String())
		}
	}
}

// object is an object of a body, as far as it was read, and the secret for which it may stand.
type object struct {
	Secret
	members int
	current string // name of the member that was read last
	asks    bool   // it has a member $secret, whose text is Name
}

func (o *object) name(name string) {
	o.current = name
	o.members++
	o.asks = o.asks || name == secretMember
}

func (o *object) text(value string) {
	if o.current == secretMember {
		o.Name = value
	}
}

// secret returns the secret for which the whole object stands.
func (o *object) secret() (s Secret, is bool) {
	s = o.Secret
	switch {
	case o.members > 1:
		s.Fault = `an object with "$secret" has no other member: the value of the secret is sent in place of the object`
	case o.Name == "":
		s.Fault = `"$secret" must be the name of a secret, as in {"$secret": "billing-token"}`
	}
	return s, o.asks
}

// begun returns an object of which the opening brace was read.
func begun(in *jsontext.Decoder) (o object) {
	o.start = int(in.InputOffset()) - 1
	depth := 1
	for name := range in.StackPointer().Tokens() {
		switch kind, _ := in.StackIndex(depth); {
		case kind == '[':
			o.Field += "[" + name + "]"
		case depth == 1:
			o.Member, o.Field = name, Clip(name)
		default:
			o.Field += "." + Clip(name)
		}
		depth++
	}
	return o
}

// FillSecrets returns a body with the values of its secrets in their places, as JSON strings. value is asked for each
// secret that fits; an error of it is returned as it is.
func FillSecrets(body []byte, all []Secret, value func(name string) (string, error)) ([]byte, error) {
	filled, from := make([]byte, 0, 2*len(body)), 0
	for _, s := range all {
		if s.Fault != "" {
			continue
		}
		text, err := value(s.Name)
		if err != nil {
			return nil, err
		}
		filled = append(filled, body[from:s.start]...)
		filled, from = append(filled, quotedText(text)...), s.end
	}
	return append(filled, body[from:]...), nil
}
