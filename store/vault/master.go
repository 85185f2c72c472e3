package vault

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"

	"github.com/tink-crypto/tink-go/v2/aead/subtle"
	"github.com/tink-crypto/tink-go/v2/keyset"
	"github.com/tink-crypto/tink-go/v2/tink"
)

// masterKeySize is that of AES-256, in bytes.
const masterKeySize = 32

// MakeMasterKey is the command that makes a master key.
const MakeMasterKey = "openssl rand -base64 32"

// Master is what data keys are sealed with: the first of its keys seals, any of them may open.
type Master struct{ keys []tink.AEAD }

// ParseMaster reads master keys, one a line: 32 bytes in base64. Empty lines mean nothing. No error repeats a key.
func ParseMaster(text string) (*Master, error) {
	m := &Master{}
	n := 0
	for line := range strings.Lines(text) {
		n++
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		raw, err := base64.StdEncoding.DecodeString(line)
		if err != nil || len(raw) != masterKeySize {
			return nil, fmt.Errorf("line %d is not %d bytes in base64; make one with: %s", n, masterKeySize, MakeMasterKey)
		}
		key, err := subtle.NewAESGCM(raw)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		m.keys = append(m.keys, key)
	}
	if len(m.keys) == 0 {
		return nil, fmt.Errorf("there is no key in it; make one with: %s", MakeMasterKey)
	}
	return m, nil
}

// NewMasterKey returns a random master key, as ParseMaster reads it.
func NewMasterKey() string {
	raw := make([]byte, masterKeySize)
	_, _ = rand.Read(raw) // never fails
	return base64.StdEncoding.EncodeToString(raw)
}

// ErrMaster is a data key that none of the master keys opens.
var ErrMaster = errors.New("the master key does not open it")

// Seal returns a data key as the database keeps it.
func (m *Master) Seal(k *DataKey) ([]byte, error) {
	var b bytes.Buffer
	if err := k.handle.WriteWithAssociatedData(keyset.NewBinaryWriter(&b), m.keys[0], k.place()); err != nil {
		return nil, fmt.Errorf("sealing data key %d: %w", k.ID, err)
	}
	return b.Bytes(), nil
}

// Open opens a data key; ErrMaster when it was sealed with a master key that is not here.
func (m *Master) Open(id int64, sealed []byte) (*DataKey, error) {
	for _, key := range m.keys {
		handle, err := keyset.ReadWithAssociatedData(keyset.NewBinaryReader(bytes.NewReader(sealed)), key, (&DataKey{ID: id}).place())
		if err == nil {
			return newDataKey(handle)
		}
	}
	return nil, fmt.Errorf("data key %d: %w", id, ErrMaster)
}
