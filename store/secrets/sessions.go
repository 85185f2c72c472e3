package secrets

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"

	"punctual/store/vault"
)

// Sessions of the pages are kept by browsers, encrypted. Every replica opens what another has sealed, and the database
// holds nothing of them. After a rotation of the data keys, a replica opens older sessions only if it remembers their
// key.

// sessionPlace belongs to no row, so a session is no ciphertext of the database.
var sessionPlace = vault.Place{Kind: "session"}

// ErrSession says that a session was not sealed by this deployment, or was sealed with a data key that is gone.
var ErrSession = errors.New("the session does not open")

// keyIDSize is the size of a data key's id, in bytes.
const keyIDSize = 8

// SealSession encrypts a session with the newest data key. The result is text that a cookie may hold.
func (s *Secrets) SealSession(ctx context.Context, session []byte) (string, error) {
	key, err := s.newestKey(ctx, s.db.Callers, ``)
	if err != nil {
		return "", err
	}
	sealed, err := key.Seal(session, sessionPlace)
	if err != nil {
		return "", err
	}
	return base64.RawURLEncoding.EncodeToString(append(binary.BigEndian.AppendUint64(nil, uint64(key.ID)), sealed...)), nil
}

// OpenSession decrypts what SealSession has returned. Its error is ErrSession for anything else. A flood of forged
// sessions costs the database a query a second at most.
func (s *Secrets) OpenSession(ctx context.Context, sealed string) ([]byte, error) {
	raw, err := base64.RawURLEncoding.DecodeString(sealed)
	if err != nil || len(raw) <= keyIDSize {
		return nil, ErrSession
	}
	id := int64(binary.BigEndian.Uint64(raw))
	key := s.keyring.get(id)
	if key == nil && s.unknownKeys.Allow() { // a rotation may have made it since
		if _, err := s.openAll(ctx, s.db.Callers); err != nil {
			return nil, err
		}
		key = s.keyring.get(id)
	}
	if key == nil {
		return nil, ErrSession
	}
	session, err := key.Open(raw[keyIDSize:], sessionPlace)
	if err != nil {
		return nil, ErrSession
	}
	return session, nil
}
