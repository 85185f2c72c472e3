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

// masterKeySize is the key size of AES-256 in bytes.
const masterKeySize = 32

// MakeMasterKey is the shell command that makes a master key.
const MakeMasterKey = "openssl rand -base64 32"

// Master holds the master keys, which data keys are sealed with: the first seals, any of them may open.
type Master struct{ keys []tink.AEAD }

// ParseMaster reads master keys, one per line: 32 bytes in base64. Empty lines are ignored. No error repeats a key.
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
			return nil, fmt.Errorf("line %d is not %d bytes in base64; create one with: %s", n, masterKeySize, MakeMasterKey)
		}
		key, err := subtle.NewAESGCM(raw)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		m.keys = append(m.keys, key)
	}
	if len(m.keys) == 0 {
		return nil, fmt.Errorf("there is no key in it; create one with: %s", MakeMasterKey)
	}
	return m, nil
}

// NewMasterKey returns a random master key in the form that ParseMaster reads.
func NewMasterKey() string {
	raw := make([]byte, masterKeySize)
	_, _ = rand.Read(raw) // never fails
	return base64.StdEncoding.EncodeToString(raw)
}

// ErrMaster says that none of the master keys opens a data key.
var ErrMaster = errors.New("the master key does not open it")

// Seal returns a data key as the database stores it.
func (m *Master) Seal(k *DataKey) ([]byte, error) {
	var b bytes.Buffer
	if err := k.handle.WriteWithAssociatedData(keyset.NewBinaryWriter(&b), m.keys[0], k.place()); err != nil {
		return nil, fmt.Errorf("sealing data key %d: %w", k.ID, err)
	}
	return b.Bytes(), nil
}

// Open opens a data key. The error is ErrMaster if the data key was sealed with a master key that m does not have.
func (m *Master) Open(id int64, sealed []byte) (*DataKey, error) {
	for _, key := range m.keys {
		handle, err := keyset.ReadWithAssociatedData(
			keyset.NewBinaryReader(bytes.NewReader(sealed)), key, (&DataKey{ID: id}).place())
		if err == nil {
			return newDataKey(handle)
		}
	}
	return nil, fmt.Errorf("data key %d: %w", id, ErrMaster)
}
