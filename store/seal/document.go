package seal

import (
	"bytes"
	"io"

	"github.com/go-json-experiment/json/jsontext"
)

// chosen tells which members of a document are payloads, by their name, the name of the member that they are in, and
// how deep their object is.
type chosen func(name, within string, depth int) bool

// bodies are the payloads of a Document.
func bodies(name, within string, depth int) bool {
	return name == "body" && within == "target" || name == "headers" && depth == 1
}

// quotes are the payloads of a Notice.
func quotes(name, within string, _ int) bool {
	return within == "runs" && (name == "error" || name == "response")
}

// SealDocument seals the payloads in a document.
func (s *Sealer) SealDocument(doc []byte) ([]byte, error) { return s.sealIn(doc, bodies) }

func (s *Sealer) sealIn(doc []byte, which chosen) ([]byte, error) {
	return inDocument(doc, which, func(value []byte) ([]byte, error) { return s.write(kindOf(value), value, `"`) })
}

// OpenDocument opens the payloads in a document. A text that is not JSON is left as it is: whoever reads it judges it.
func (s *Sealer) OpenDocument(doc []byte) ([]byte, error) {
	if !bytes.Contains(doc, []byte(`"`+prefix)) {
		return doc, nil
	}
	return inDocument(doc, bodies, func(value []byte) ([]byte, error) { return s.read(value, `"`) })
}

// inDocument replaces the payloads in a document.
func inDocument(doc []byte, which chosen, replace func(value []byte) ([]byte, error)) ([]byte, error) {
	w := walk{doc: doc, which: which, replace: replace, decoder: jsontext.NewDecoder(bytes.NewReader(doc),
		jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))}
	if err := w.value("", ""); err != nil {
		if w.failed {
			return nil, err
		}
		return doc, nil
	}
	return append(w.out, doc[w.copied:]...), nil
}

// walk goes through a document.
type walk struct {
	doc     []byte
	decoder *jsontext.Decoder
	which   chosen
	replace func(value []byte) ([]byte, error)
	depth   int
	out     []byte
	copied  int  // how much of doc is in out
	failed  bool // a payload could not be replaced
}

// value reads a value that is a member, and whose object is one, too.
func (w *walk) value(within, name string) error {
	switch w.decoder.PeekKind() {
	case '{':
		return w.members(name)
	case '[':
		return w.elements(within, name)
	}
	return w.decoder.SkipValue()
}

func (w *walk) members(within string) error {
	if _, err := w.decoder.ReadToken(); err != nil {
		return err
	}
	w.depth++
	for w.decoder.PeekKind() != '}' {
		token, err := w.decoder.ReadToken()
		if err != nil {
			return err
		}
		name := token.String()
		if w.which(name, within, w.depth) {
			err = w.payload()
		} else {
			err = w.value(within, name)
		}
		if err != nil {
			return err
		}
	}
	w.depth--
	_, err := w.decoder.ReadToken()
	return err
}

func (w *walk) elements(within, name string) error {
	if _, err := w.decoder.ReadToken(); err != nil {
		return err
	}
	for w.decoder.PeekKind() != ']' {
		if w.decoder.PeekKind() == 0 {
			return io.ErrUnexpectedEOF
		}
		if err := w.value(within, name); err != nil {
			return err
		}
	}
	_, err := w.decoder.ReadToken()
	return err
}

// payload replaces the value that comes next, unless it is null.
func (w *walk) payload() error {
	value, err := w.decoder.ReadValue()
	if err != nil || string(value) == "null" {
		return err
	}
	end := int(w.decoder.InputOffset())
	replaced, err := w.replace(value)
	if err != nil {
		w.failed = true
		return err
	}
	w.out = append(append(w.out, w.doc[w.copied:end-len(value)]...), replaced...)
	w.copied = end
	return nil
}
