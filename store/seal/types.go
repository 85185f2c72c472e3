package seal

import "errors"

// Text is a payload in a column of text, such as a response.
type Text string

// Bytes is a payload in a column of bytes: a body, which is JSON. Nil is null.
type Bytes []byte

// JSON is a payload in a column of JSON, such as a result. Nil is null.
type JSON []byte

// Document is JSON with payloads in it: a definition, or an entry of the audit log. The bodies of targets are payloads,
// and so are headers at its top. The rest can be read in SQL.
type Document string

// Notice is JSON about runs, whose errors and responses are payloads. It is scanned to NoticeOf.
type Notice []byte

// Quoting is a text that is a payload if it quotes one, such as an error.
type Quoting struct {
	Text   string
	Quotes bool
}

// Shown is as Text, for people: where it cannot be opened, it says so. What is written again must not be read as one.
type Shown string

// payload is a type of this package, as it is written.
type payload interface {
	// stored returns the value as it is stored; nil: null.
	stored(s *Sealer) ([]byte, error)
}

// place of a payload, as rows are scanned to it.
type scanned interface {
	// take takes the value as it is stored, which is not null.
	take(s *Sealer, stored []byte) error
	// null takes null.
	null() error
}

var errNull = errors.New("it is null")

func (t Text) stored(s *Sealer) ([]byte, error)  { return s.write(text, []byte(t), "") }
func (t Shown) stored(s *Sealer) ([]byte, error) { return Text(t).stored(s) }

func (q Quoting) stored(s *Sealer) ([]byte, error) {
	if !q.Quotes {
		return (*Sealer)(nil).write(text, []byte(q.Text), "")
	}
	return Text(q.Text).stored(s)
}

func (b Bytes) stored(s *Sealer) ([]byte, error) {
	if b == nil {
		return nil, nil
	}
	return s.write(kindOf(b), b, "")
}

func (j JSON) stored(s *Sealer) ([]byte, error) {
	if j == nil {
		return nil, nil
	}
	return s.write(kindOf(j), j, `"`)
}

func (n Notice) stored(s *Sealer) ([]byte, error) {
	if n == nil {
		return nil, nil
	}
	return s.sealIn(n, quotes)
}

func (d Document) stored(s *Sealer) ([]byte, error) { return s.SealDocument([]byte(d)) }

func (t *Text) null() error  { return errNull }
func (t *Shown) null() error { return errNull }

func (t *Text) take(s *Sealer, stored []byte) error {
	value, err := s.read(stored, "")
	*t = Text(value)
	return err
}

func (t *Shown) take(s *Sealer, stored []byte) error {
	value, err := s.read(stored, "")
	if *t = Shown(value); err != nil {
		*t = Shown("(" + err.Error() + ")")
	}
	return nil
}

func (b *Bytes) null() error {
	*b = nil
	return nil
}

func (b *Bytes) take(s *Sealer, stored []byte) (err error) {
	*b, err = s.OpenBody(stored)
	return err
}

func (j *JSON) null() error {
	*j = nil
	return nil
}

func (j *JSON) take(s *Sealer, stored []byte) error {
	value, err := s.read(stored, `"`)
	*j = append(JSON{}, value...)
	return err
}

func (d *Document) null() error {
	*d = ""
	return nil
}

func (d *Document) take(s *Sealer, stored []byte) error {
	value, err := s.OpenDocument(stored)
	*d = Document(value)
	return err
}
