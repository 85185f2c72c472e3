package seal

import (
	"bytes"
	"errors"
	"fmt"
	"sync/atomic"

	"punctual/store/vault"
)

// Keys are the data keys of payloads.
type Keys interface {
	// Sealing returns the key with which payloads are sealed.
	Sealing() (*vault.DataKey, error)
	// Opening returns the key with an id. It may ask the database, on a connection of its own.
	Opening(id int64) (*vault.DataKey, error)
}

// Sealer seals and opens payloads. Safe for concurrent use.
type Sealer struct {
	on   bool
	keys atomic.Pointer[Keys]
}

// New returns a Sealer. If it is on, it seals what is written; on or off, it opens what is sealed.
func New(on bool) *Sealer { return &Sealer{on: on} }

// On reports whether payloads are sealed as they are written.
func (s *Sealer) On() bool { return s != nil && s.on }

// Use has the Sealer take its keys from there.
func (s *Sealer) Use(keys Keys) { s.keys.Store(&keys) }

// OpenError says that a payload cannot be opened.
type OpenError struct{ Err error }

func (e *OpenError) Error() string { return unopened + e.Err.Error() }

const unopened = "a payload that is encrypted (--encrypt-payloads) cannot be opened: "

// Unopened begins what is shown in the place of a payload that cannot be opened.
const Unopened = "(" + unopened

// Unwrap returns the cause.
func (e *OpenError) Unwrap() error { return e.Err }

var errNoKeys = errors.New("this process has no master key (--master-key-file)")

// write returns a payload as it is stored. In a column of JSON it is between quotes.
func (s *Sealer) write(kind byte, value []byte, quote string) ([]byte, error) {
	switch {
	case s.On():
		token, err := s.seal(kind, value)
		return append(append([]byte(quote), token...), quote...), err
	case bytes.HasPrefix(value, []byte(quote+prefix)):
		return append([]byte(quote+escaped), value[len(quote):]...), nil
	}
	return value, nil
}

func (s *Sealer) seal(kind byte, value []byte) ([]byte, error) {
	keys := s.known()
	if keys == nil {
		return nil, fmt.Errorf("encrypting a payload: %w", errNoKeys)
	}
	key, err := keys.Sealing()
	if err != nil {
		return nil, fmt.Errorf("encrypting a payload: %w", err)
	}
	return seal(key, kind, value)
}

// read returns a payload as it was given. The result may be a part of stored.
func (s *Sealer) read(stored []byte, quote string) ([]byte, error) {
	if !bytes.HasPrefix(stored, []byte(quote+prefix)) {
		return stored, nil
	}
	inner := stored[len(quote):]
	switch {
	case bytes.HasPrefix(inner, []byte(escaped)):
		return append([]byte(quote), inner[len(escaped):]...), nil
	case bytes.HasPrefix(inner, []byte(sealed)):
		return s.open(bytes.TrimSuffix(inner, []byte(quote)))
	}
	return nil, &OpenError{errForm}
}

// open decrypts a sealed value.
func (s *Sealer) open(token []byte) ([]byte, error) {
	p, err := parse(token)
	if err != nil {
		return nil, &OpenError{err}
	}
	keys := s.known()
	if keys == nil {
		return nil, &OpenError{errNoKeys}
	}
	key, err := keys.Opening(p.key)
	if err != nil {
		return nil, &OpenError{err}
	}
	value, err := key.Open(p.ciphertext, place(p.kind, p.length))
	if err != nil {
		return nil, &OpenError{err}
	}
	return value, nil
}

func (s *Sealer) known() Keys {
	if s == nil {
		return nil
	}
	if keys := s.keys.Load(); keys != nil {
		return *keys
	}
	return nil
}
