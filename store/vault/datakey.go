package vault

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"

	"github.com/tink-crypto/tink-go/v2/aead"
	"github.com/tink-crypto/tink-go/v2/keyset"
	"github.com/tink-crypto/tink-go/v2/tink"
)

// DataKey encrypts values. Safe for concurrent use.
type DataKey struct {
	ID     int64 // each ciphertext of the key begins with it
	handle *keyset.Handle
	aead   tink.AEAD
}

// NewDataKey makes a random data key.
func NewDataKey() (*DataKey, error) {
	handle, err := keyset.NewHandle(aead.AES256GCMKeyTemplate())
	if err != nil {
		return nil, fmt.Errorf("making a data key: %w", err)
	}
	return newDataKey(handle)
}

func newDataKey(handle *keyset.Handle) (*DataKey, error) {
	primary, err := handle.Primary()
	if err != nil {
		return nil, fmt.Errorf("reading a data key: %w", err)
	}
	primitive, err := aead.New(handle)
	if err != nil {
		return nil, fmt.Errorf("reading a data key: %w", err)
	}
	return &DataKey{ID: int64(primary.KeyID()), handle: handle, aead: primitive}, nil
}

func (k *DataKey) place() []byte { return []byte("punctual data key " + strconv.FormatInt(k.ID, 10)) }

// Place is where a value is stored. A ciphertext that was moved to another place does not decrypt.
type Place struct {
	Tenant int32
	Kind   string // the kind of the table
	Name   string // the name of the row within its kind
}

// bytes is unambiguous: the kind has no NUL.
func (p Place) bytes() []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(p.Tenant))
	b = append(b, p.Kind...)
	return append(append(b, 0), p.Name...)
}

// Seal encrypts a value for its place.
func (k *DataKey) Seal(value []byte, at Place) ([]byte, error) {
	sealed, err := k.aead.Encrypt(value, at.bytes())
	if err != nil {
		return nil, fmt.Errorf("encrypting a %s: %w", at.Kind, err)
	}
	return sealed, nil
}

// ErrCiphertext says that a ciphertext does not decrypt: it was changed, or moved from another place.
var ErrCiphertext = errors.New("it does not decrypt: it was changed, or moved from another row")

// Open decrypts the value that is stored at a place.
func (k *DataKey) Open(sealed []byte, at Place) ([]byte, error) {
	value, err := k.aead.Decrypt(sealed, at.bytes())
	if err != nil {
		return nil, fmt.Errorf("a %s: %w", at.Kind, ErrCiphertext) // Tink's own text says less
	}
	return value, nil
}
